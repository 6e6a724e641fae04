# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""State where a release comes from, as an in-toto statement with SLSA's provenance.

https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md, https://slsa.dev/spec/v1.0/provenance

The statement is about the manifest, which has the digest of every file. Everything in it is in records of the release,
so that the same release gives the same bytes: inputs as the bill of materials has them, steps as their stamps do.
"""

from __future__ import annotations

import glob
import json
import os
import re
from typing import Any, Iterator, Mapping

from ..core.digests import sha256_of
from ..core.errors import StackError, explained
from ..core.files import read_json, regular_file
from ..core.lenient_json import kept, mapping, mappings, moment, text
from .records import ReleaseFiles

NAME = "provenance.json"
SIGNATURE = NAME + ".sig"
NAMESPACE = "hpcml.torchstack.provenance"
"""Of signatures: none made for another purpose is one of a statement."""

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "https://github.com/hpcml/torchstack/blob/main/docs/how-to/prove-a-release.md"
"""Where the parameters of such a build are described."""

MANIFEST = ".torchstack/manifest.json"
RELEASE_FILE = ".torchstack/release.yml"
SBOM = ".torchstack/sbom.spdx.json"
STEP = "provenance"

_COMMIT = re.compile(r"\bcommit ([0-9a-f]{40}(?:[0-9a-f]{24})?)\b")
_OF_STEPS = ("digest", "result", "started", "finished", "host", "attempt", "from_cache", "taken_over")


def statement_path(files: ReleaseFiles) -> str:
    """Tell where a release has its statement."""
    return os.path.join(files.afterwards, NAME)


def make_statement(files: ReleaseFiles, digest: str, builder: str) -> dict[str, Any]:
    """Make the statement of a release that has its manifest.

    ``digest`` is that of all that was asked for, ``builder`` an address that names who builds. Raises StackError: a
    record is missing or damaged.
    """
    frozen = mapping(_read(files.frozen, needed=False))
    steps = list(_steps(files.prefix))
    times = [step["started"] for step in steps if moment(step.get("started")) is not None]
    ends = [step["finished"] for step in steps if moment(step.get("finished")) is not None]
    thaws = frozen.get("thawed")
    return {
        "_type": STATEMENT,
        "subject": [_descriptor(files, MANIFEST)],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"release": files.release, "digest": digest},
                "internalParameters": {"steps": steps, **({"thaws": thaws} if thaws else {})},
                "resolvedDependencies": [
                    _descriptor(files, RELEASE_FILE),
                    *_inputs(mapping(_read(os.path.join(files.prefix, SBOM))))],
            },
            "runDetails": {
                "builder": {"id": builder},
                "metadata": {
                    **({"startedOn": min(times)} if times else {}),
                    **({"finishedOn": text(frozen.get("refrozen_at")) if thaws else max(ends)} if ends else {})},
                "byproducts": [_descriptor(files, SBOM)],
            },
        },
    }


def as_bytes(statement: Mapping[str, Any]) -> bytes:
    """Encode the statement as it is written and signed."""
    return (json.dumps(statement, indent=2, sort_keys=True) + "\n").encode("utf-8")


def read_bytes(path: str) -> bytes | None:
    """Read a statement or a signature; None where there is none. Raises StackError: it cannot be read."""
    with explained("Cannot read %s" % path, STEP, "Correct its rights.", path):
        try:
            with open(path, "rb", opener=regular_file) as stream:
                return stream.read()
        except FileNotFoundError:
            return None


def subject_of(content: bytes, path: str) -> tuple[str, str]:
    """Return which release a statement is about, and the sha256 of its manifest. Raises StackError: it is none."""
    try:
        statement = json.loads(content.decode("utf-8"))
        if statement["_type"] != STATEMENT or statement["predicateType"] != PREDICATE:
            raise ValueError("it is of another type")
        (subject,) = [one for one in statement["subject"] if one["name"].endswith("/" + MANIFEST)]
        return str(subject["name"][:-len("/" + MANIFEST)]), str(subject["digest"]["sha256"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StackError(
            "%s is no statement of where a release comes from: %s." % (path, str(error) or "it has no manifest"), STEP,
            "Name the %s that the freeze wrote." % NAME, path) from error


def require_manifest(content: bytes, path: str, manifest: str) -> str:
    """Return which release a statement is about. Raises StackError: the manifest is not the one that it is about."""
    with explained("Cannot read the manifest %s" % manifest, STEP, "Bring it back, or correct its rights.", manifest):
        found = sha256_of(manifest)
    release, wanted = subject_of(content, path)
    if found != wanted:
        raise StackError(
            "The manifest %s is not the one that %s was written for." % (manifest, path), STEP,
            "Find out who changed it; bring it back as it was.", manifest)
    return release


def _descriptor(files: ReleaseFiles, name: str) -> dict[str, Any]:
    path = os.path.join(files.prefix, name)
    with explained("Cannot read %s" % path, STEP, "Freeze the release first: the role freeze writes it.", path):
        return {"name": "%s/%s" % (files.release, name), "digest": {"sha256": sha256_of(path)}}


def _steps(prefix: str) -> Iterator[dict[str, Any]]:
    pattern = os.path.join(glob.escape(os.path.join(prefix, ".torchstack", "steps")), "*", "stamp.json")
    stamps = [(os.path.basename(os.path.dirname(path)), mapping(_read(path))) for path in glob.glob(pattern)]
    for name, stamp in sorted(stamps, key=lambda one: (text(one[1].get("finished")), one[0])):
        yield {"name": name, **kept(stamp, *_OF_STEPS)}


def _inputs(sbom: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what a release was made of and a digest proves; what was built for it is no input."""
    for package in mappings(sbom.get("packages")):
        built = package.get("downloadLocation") == "NONE" and package.get("primaryPackagePurpose") == "LIBRARY"
        digest = {
            text(entry.get("algorithm")).lower(): text(entry.get("checksumValue"))
            for entry in mappings(package.get("checksums"))}
        commit = _COMMIT.search(text(package.get("sourceInfo")))
        if commit:
            digest["gitCommit"] = commit.group(1)
        if digest and not built:
            addresses = [text(one.get("referenceLocator")) for one in mappings(package.get("externalRefs"))]
            named = " ".join(filter(None, (text(package.get("name")), text(package.get("versionInfo")))))
            yield {"name": named, "digest": digest, **({"uri": addresses[0]} if addresses else {})}


def _read(path: str, needed: bool = True) -> object:
    try:
        found = read_json(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise StackError("Cannot read %s: %s." % (path, why), STEP, "Restore it from a copy.", path) from error
    if found is None and needed:
        raise StackError(
            "The release has no %s." % path, STEP, "Freeze the release first: the role freeze writes it.", path)
    return found
