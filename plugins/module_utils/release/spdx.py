# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write the bill of materials of a release as an SPDX 2.3 document. Pure.

https://spdx.github.io/spdx-spec/v2.3/

The same release gives the same bytes: the document's time is that of the last build step, and its namespace follows
from its content.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from typing import Any, Mapping, Sequence

from ..definition.packages import canonical
from . import package_urls, suppliers
from .licences import licence

VERSION = "SPDX-2.3"
TOOL = "Tool: hpcml.torchstack"
DOCUMENT = "SPDXRef-DOCUMENT"
RELEASE = "SPDXRef-Release"
NONE = package_urls.NONE
NOT_DOWNLOADED = "NONE"
"""The location of what was made here, or lies in the release only."""
BEGINNING = "1970-01-01T00:00:00Z"
"""The time of a document about a release of which no step was recorded."""

OF_THE_SITE = ("site",)
"""Kinds of components that the release needs and does not have in it."""


class _Document:
    """Collect a document while it is made."""

    def __init__(self, created: str) -> None:
        self.created = created
        self.packages: list[dict[str, Any]] = []
        self.relations: list[tuple[str, str, str]] = [(DOCUMENT, "DESCRIBES", RELEASE)]
        self.quoted: dict[str, str] = {}
        self.taken: set[str] = set()
        self.site = suppliers.NOBODY

    def package(self, words: tuple[str, ...], name: str, version: str, **more: Any) -> str:
        """Add a package, and return its identifier; what is empty is left out."""
        stem = own = package_urls.identifier(*words)
        number = 1
        while own in self.taken:
            number += 1
            own = "%s-%d" % (stem, number)
        self.taken.add(own)
        said = licence(more.pop("licence", ""))
        self.quoted.update(said.quoted)
        url, digest, notes = more.pop("purl", ""), more.pop("sha256", ""), more.pop("notes", [])
        found = {
            "SPDXID": own, "name": name, "versionInfo": version, "filesAnalyzed": False,
            # Who names nobody is answered for by the site, which hands it on.
            "supplier": more.pop("supplier", "") or self.site,
            "downloadLocation": more.pop("downloadLocation", NONE), "licenseConcluded": NONE,
            "licenseDeclared": said.expression, "copyrightText": NONE, **more,
        }
        if digest:
            found["checksums"] = [{"algorithm": "SHA256", "checksumValue": digest.lower()}]
        if url:
            found["externalRefs"] = [
                {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": url}]
        if notes:
            found["annotations"] = [
                {"annotationDate": self.created, "annotationType": "OTHER", "annotator": TOOL, "comment": note}
                for note in notes]
        self.packages.append({key: value for key, value in found.items() if value != ""})
        return own

    def relate(self, first: str, how: str, second: str) -> None:
        """Add a relationship."""
        self.relations.append((first, how, second))

    def finished(self, name: str) -> dict[str, Any]:
        """Return the whole document, with the namespace that follows from it."""
        found: dict[str, Any] = {
            "spdxVersion": VERSION, "dataLicense": "CC0-1.0", "SPDXID": DOCUMENT, "name": name,
            "creationInfo": {"created": self.created, "creators": [TOOL]},
            "packages": self.packages,
            "relationships": [
                {"spdxElementId": first, "relationshipType": how, "relatedSpdxElement": second}
                for first, how, second in self.relations],
        }
        if self.quoted:
            found["hasExtractedLicensingInfos"] = [
                {"licenseId": key, "name": key, "extractedText": text} for key, text in sorted(self.quoted.items())]
        digest = hashlib.sha256(json.dumps(found, sort_keys=True).encode("utf-8")).hexdigest()
        found["documentNamespace"] = uuid.uuid5(uuid.NAMESPACE_OID, digest).urn
        return found


def document(installed: Mapping[str, Any], created: str = "") -> dict[str, Any]:
    """Make the bill of materials. ``created``: the time of the document, as ``2026-11-20T08:15:00Z``."""
    release = installed["release"]
    made = _Document(created or BEGINNING)
    name = "-".join(filter(None, ("torchstack", release["site"], release["name"])))
    base = installed["base"]
    made.site = suppliers.organisation(release["site"])
    made.package(
        ("Release",), name, release["name"], primaryPackagePurpose="INSTALL", summary=release["title"],
        downloadLocation=NOT_DOWNLOADED,
        sourceInfo="Digest of all that was asked for: %s" % release["digest"] if release["digest"] else "",
        comment="Base: %s, Python %s" % (base["kind"].replace("_", " "), base["python"]))
    of_conda = _conda(made, installed)
    sources = _components(made, installed)
    _parts(made, installed, sources.get("pytorch", RELEASE))
    _python(made, installed, of_conda, sources)
    _files(made, installed)
    return made.finished(name)


def _conda(made: _Document, installed: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for one in installed["conda"]:
        found[one["name"]] = made.package(
            ("Conda", one["name"]), one["name"], one["version"], licence=one["licence"], sha256=one["sha256"],
            downloadLocation=package_urls.location(one["url"]), purl=package_urls.conda(one),
            supplier=suppliers.of_channel(one["channel"]),
            sourceInfo="conda package, build %s of %s" % (one["build"], one["channel"] or "an unnamed channel"))
        made.relate(RELEASE, "CONTAINS", found[one["name"]])
    _depend(made, installed["conda"], found)
    return found


def _depend(made: _Document, listed: Sequence[Mapping[str, Any]], own: Mapping[str, str]) -> None:
    """Say what needs what; ``own`` has the identifiers by the names that ``needs`` has."""
    for one in listed:
        name = one["name"] if one["name"] in own else canonical(one["name"])
        for need in one["needs"]:
            if need in own and need != name:
                made.relate(own[name], "DEPENDS_ON", own[need])


def _components(made: _Document, installed: Mapping[str, Any]) -> dict[str, str]:
    """Add the sources, the image and what the site brings; a wheel is a Python distribution."""
    found = {}
    distributions = {canonical(one["name"]): one for one in installed["python"]}
    # What is in an image refers to it.
    for one in sorted(installed["components"], key=lambda one: one["key"] != "image"):
        if one["kind"] == "wheel":
            continue
        became = distributions.get(_distribution(one), {})
        found[one["key"]] = own = made.package(
            ("Component", one["key"]), one["name"], one["version"] or _short(one), sha256=one.get("sha256", ""),
            supplier=suppliers.of_address(one.get("url", "")) or became.get("supplier", ""),
            downloadLocation=package_urls.location(one.get("url", ""), one.get("commit", "")),
            purl=package_urls.source(one) if one["kind"] in ("git", "archive") else "",
            packageFileName=one["name"] if one["key"] == "image" else "",
            primaryPackagePurpose={"image": "CONTAINER", "site": "LIBRARY"}.get(one["kind"], "SOURCE"),
            sourceInfo=_origin(one), notes=_settings(one))
        if one["kind"] in OF_THE_SITE:
            made.relate(RELEASE, "DEPENDS_ON", own)
        elif one["kind"] == "image" and one["key"] != "image":
            made.relate(found.get("image", RELEASE), "CONTAINS", own)
        elif not became:
            made.relate(RELEASE, "CONTAINS", own)
        for patch in one["patches"]:
            patched = made.package(
                ("Patch", one["key"], patch["file"]), patch["file"], _short(patch), sha256=patch["sha256"],
                packageFileName=patch["file"], primaryPackagePurpose="FILE", downloadLocation=NOT_DOWNLOADED,
                sourceInfo="patch of series %s, kept in the release below .torchstack/series" % one["series"])
            made.relate(patched, "PATCH_APPLIED", own)
            # The release keeps it; and what asks for a bill's minimum elements walks such relations only.
            made.relate(RELEASE, "CONTAINS", patched)
    return found


def _parts(made: _Document, installed: Mapping[str, Any], source: str) -> None:
    """Add what a PyTorch from source has of others; ``source`` is the identifier of its source."""
    for one in installed["parts"]:
        purpose, how = ("LIBRARY", "DEPENDS_ON") if one["kind"] in OF_THE_SITE else ("SOURCE", "CONTAINS")
        own = made.package(
            ("Part", one["key"]), one["name"], one["version"], supplier=suppliers.of_address(one.get("url", "")),
            downloadLocation=package_urls.location(one.get("url", ""), one.get("commit", "")),
            purl=package_urls.source(one), primaryPackagePurpose=purpose, sourceInfo=_origin(one))
        made.relate(source, how, own)


def _short(one: Mapping[str, Any]) -> str:
    """Return a version for what has none of its own: the beginning of its digest."""
    return one["sha256"][:12] if one.get("sha256") else ""


def _distribution(component: Mapping[str, Any]) -> str:
    """Return the canonical name of the distribution that a component becomes."""
    return "torch" if component["key"] == "pytorch" else canonical(component["name"])


def _origin(component: Mapping[str, Any]) -> str:
    words = []
    if component["kind"] == "git":
        words.append("git repository %s" % component.get("url", "without an address"))
        if component.get("tag"):
            words.append("tag %s" % component["tag"])
        words.append("commit %s" % component.get("commit", "unknown"))
    elif component["kind"] == "archive":
        words.append("source archive %s" % component["url"] if component.get("url") else "source archive of an index")
    elif component["kind"] == "image":
        words.append("container image" if component["key"] == "image" else "in the container image")
    else:
        words.append("of the site, no part of the release")
    if component.get("place") and component["kind"] == "site":
        words.append("in %s" % component["place"])
    return ", ".join(words)


def _settings(component: Mapping[str, Any]) -> list[str]:
    flags = ["%s=%s" % item for item in component["flags"].items()]
    return ["Settings of the build: %s" % "; ".join(flags)] if flags else []


def _python(
    made: _Document, installed: Mapping[str, Any], of_conda: Mapping[str, str], sources: Mapping[str, str],
) -> None:
    built_from = {_distribution(one): sources[one["key"]] for one in installed["components"] if one["key"] in sources}
    of_wheels = {
        _distribution(one): one for one in installed["components"] if one["kind"] == "wheel" and one.get("sha256")}
    found = {}
    for one in installed["python"]:
        name = canonical(one["name"])
        wheel = of_wheels.get(name, {})
        place = {"built": NOT_DOWNLOADED, "wheel": package_urls.location(wheel.get("url", ""))}.get(one["source"], NONE)
        found[name] = own = made.package(
            ("Python", name), one["name"], one["version"], licence=one["licence"],
            sha256=one.get("sha256") or wheel.get("sha256", ""), downloadLocation=place,
            packageFileName=one.get("file", ""), supplier=one["supplier"],
            purl=package_urls.pypi(one["name"], one["version"]), primaryPackagePurpose="LIBRARY",
            sourceInfo="Python distribution, %s, in %s" % (
                {"conda": "of a conda package", "built": "built for this release"}.get(one["source"], "of a wheel"),
                one["place"]))
        made.relate(of_conda.get(one.get("conda_package", ""), RELEASE), "CONTAINS", own)
        if one["source"] == "built" and name in built_from:
            made.relate(own, "GENERATED_FROM", built_from[name])
            made.relate(own, "HAS_PREREQUISITE", built_from[name])
    _depend(made, installed["python"], found)


def _files(made: _Document, installed: Mapping[str, Any]) -> None:
    """Add the site's own files as packages of one file each, as patches are: those are what readers list and walk."""
    for one in installed["files"]:
        own = made.package(
            ("File", one["name"]), one["name"], _short(one), sha256=one["sha256"], packageFileName=one["place"],
            primaryPackagePurpose="FILE", downloadLocation=NOT_DOWNLOADED,
            sourceInfo="file of the site's own (files of the release file), in %s" % one["place"])
        made.relate(RELEASE, "CONTAINS", own)
