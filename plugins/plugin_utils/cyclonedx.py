# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Print the bill of materials of a release as CycloneDX, by that format's own library; bin/cyclonedx is the program.

https://cyclonedx.org/specification/overview/, https://github.com/CycloneDX/cyclonedx-python-lib

The release has its bill as SPDX, which this reads: a record that is damaged is refused, and nothing is looked at twice.
"""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import signal
import sys
import uuid
from typing import Any, Mapping, Sequence

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.lenient_json import mapping, mappings, text

SBOM = pathlib.Path(".torchstack", "sbom.spdx.json")
NEEDS = "pip install 'cyclonedx-python-lib[json-validation]'"
NOTHING = ("", "NOASSERTION", "NONE")

_TYPES = {"INSTALL": "application", "CONTAINER": "container", "FILE": "file"}
_INSIDE = ("CONTAINS", "DEPENDS_ON", "HAS_PREREQUISITE")
"""Relations that say what something consists of or needs."""


def read(path: pathlib.Path) -> dict[str, Any]:
    """Read an SPDX document, or that of the release in a directory. Raises ValueError: it is none."""
    file = path / SBOM if path.is_dir() else path
    try:
        document = mapping(json.loads(file.read_bytes()))
    except OSError as error:
        raise ValueError("%s cannot be read: %s. Name a release that was frozen, or its %s." % (
            file, error.strerror, SBOM.name)) from error
    except ValueError as error:
        raise ValueError("%s is no JSON: %s. Name the %s of a release." % (file, error, SBOM.name)) from error
    if document.get("spdxVersion") != "SPDX-2.3":
        raise ValueError("%s is no document of SPDX 2.3. Name the %s of a release." % (file, SBOM.name))
    return document


def convert(document: Mapping[str, Any]) -> str:
    """Convert an SPDX document to one of CycloneDX 1.6 in JSON, the same for the same document.

    Raises ImportError: the library is not there; ValueError: what comes out is not as the format asks.
    """
    from cyclonedx.exception import MissingOptionalDependencyException
    from cyclonedx.model.bom import Bom
    from cyclonedx.output.json import JsonV1Dot6
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    quoted = {text(one.get("licenseId")): text(one.get("extractedText"))
              for one in mappings(document.get("hasExtractedLicensingInfos"))}
    components = {text(one.get("SPDXID")): _component(one, quoted) for one in mappings(document.get("packages"))}
    described = next((text(one.get("relatedSpdxElement")) for one in mappings(document.get("relationships"))
                      if one.get("relationshipType") == "DESCRIBES"), "")
    bom = Bom(
        components=[one for name, one in components.items() if name != described],
        serial_number=uuid.UUID(text(document.get("documentNamespace")).rpartition(":")[2]))
    created = text(mapping(document.get("creationInfo")).get("created"))
    bom.metadata.timestamp = datetime.datetime.fromisoformat(created)
    bom.metadata.component = components[described]
    for name, component in components.items():
        bom.register_dependency(component, [
            components[text(one.get("relatedSpdxElement"))] for one in mappings(document.get("relationships"))
            if one.get("spdxElementId") == name and one.get("relationshipType") in _INSIDE
            and text(one.get("relatedSpdxElement")) in components])
    written = JsonV1Dot6(bom).output_as_string(indent=2)
    try:
        wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(written)
    except MissingOptionalDependencyException as error:
        raise ImportError(str(error), name="cyclonedx-python-lib[json-validation]") from error
    if wrong is not None:
        raise ValueError("what comes out is not as CycloneDX asks: %s" % " ".join(str(wrong).split())[:300])
    return written + "\n"


def _component(package: Mapping[str, Any], quoted: Mapping[str, str]) -> Any:
    from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.contact import OrganizationalEntity
    from packageurl import PackageURL

    addresses = [text(one.get("referenceLocator")) for one in mappings(package.get("externalRefs"))]
    supplier = text(package.get("supplier")).partition(": ")[2]
    location = text(package.get("downloadLocation"))
    kind = ExternalReferenceType.VCS if location.startswith("git+") else ExternalReferenceType.DISTRIBUTION
    return Component(
        name=text(package.get("name")), version=text(package.get("versionInfo")) or None,
        type=ComponentType(_TYPES.get(text(package.get("primaryPackagePurpose")), "library")),
        bom_ref=text(package.get("SPDXID")), description=text(package.get("sourceInfo")) or None,
        supplier=OrganizationalEntity(name=supplier) if supplier else None,
        purl=PackageURL.from_string(addresses[0]) if addresses else None,
        licenses=_licences(text(package.get("licenseDeclared")), quoted),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=text(one.get("checksumValue")))
                for one in mappings(package.get("checksums")) if one.get("algorithm") == "SHA256"],
        external_references=[] if location in NOTHING else [ExternalReference(type=kind, url=XsUri(location))])


def _licences(expression: str, quoted: Mapping[str, str]) -> list[Any]:
    from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression

    if expression in NOTHING:
        return []
    # A licence that SPDX does not know is named as the package has it.
    return [DisjunctiveLicense(name=quoted[expression]) if expression in quoted else LicenseExpression(expression)]


def main(words: Sequence[str]) -> int:
    """Run the program; returns its exit code: 2 where there is nothing to print."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    parser = argparse.ArgumentParser(
        prog="cyclonedx", description="Print the bill of materials of a frozen release as CycloneDX 1.6, in JSON.")
    parser.add_argument("release", type=pathlib.Path, help="the release's directory, or its %s" % SBOM.name)
    try:
        print(convert(read(parser.parse_args(words).release)), end="")
    except ImportError as error:
        print("cyclonedx: %s is not installed in %s: %s/bin/%s" % (
            error.name, sys.executable, sys.prefix, NEEDS), file=sys.stderr)
        return 2
    except (ValueError, KeyError) as error:
        print("cyclonedx: %s" % error, file=sys.stderr)
        return 2
    return 0
