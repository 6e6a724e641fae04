# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run the command ``bin/verify-release``: whether a release, here or as a copy, is what its statement says."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from typing import Any, Sequence

from ..core.errors import StackError
from ..core.lenient_json import mapping, mappings, text
from ..trees import manifest
from . import provenance, provenance_file
from .records import ReleaseFiles

HOLDS, REFUSED = 0, 1

_EPILOG = """Exit code: 0 everything holds, 1 something does not or cannot be verified, 2 usage.
Without a list of allowed signers, anybody may have written the statement: --unsigned says that this is known."""


def parser() -> argparse.ArgumentParser:
    """Define the command line."""
    command = argparse.ArgumentParser(
        prog="verify-release", epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Say whether the release in PREFIX, or a copy of it, is what its statement says: signature,\n"
                    "manifest, and the content, mode and place of every file.")
    command.add_argument("prefix", metavar="PREFIX", help="directory of the release")
    command.add_argument(
        "--statement", metavar="FILE",
        help="the %s, its signature beside it as FILE.sig (that of the root PREFIX is in)" % provenance.NAME)
    trust = command.add_mutually_exclusive_group(required=True)
    trust.add_argument("--allowed-signers", metavar="FILE", help="who may have signed it, as in ssh-keygen(1)")
    trust.add_argument("--unsigned", action="store_true", help="ask for no signature")
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    return command


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Verify a release, and return what holds. Raises StackError: what does not, or cannot be verified."""
    prefix = os.path.abspath(arguments.prefix)
    root, release = os.path.split(prefix)
    path = arguments.statement or provenance.statement_path(ReleaseFiles(root, release))
    content = provenance.read_bytes(path)
    if content is None:
        raise StackError(
            "There is no statement %s." % path, provenance.STEP,
            "Name it with --statement: of a copy, it has to be copied too.", path)
    signer = ""
    if arguments.allowed_signers:
        signer = provenance_file.require_signed(path, content, path + ".sig", arguments.allowed_signers)
    record = os.path.join(prefix, provenance.MANIFEST)
    named = provenance.require_manifest(content, path, record)
    found = manifest.compare(manifest.Request(prefix, root, record))
    if not found["matches"]:
        raise manifest.difference_error(prefix, record, found)
    build = mapping(mapping(json.loads(content).get("predicate")).get("buildDefinition"))
    return {
        "release": named, "prefix": prefix, "statement": path, "signer": signer,
        "files": mapping(found["counts"]).get("files"),
        "bytes": found["bytes"], "inputs": len(mappings(build.get("resolvedDependencies"))),
        "steps": len(mappings(mapping(build.get("internalParameters")).get("steps"))),
        "digest": text(mapping(build.get("externalParameters")).get("digest")),
    }


def render(result: dict[str, Any]) -> str:
    """Put what holds into words."""
    signed = "signed by %s" % result["signer"] if result["signer"] else "and its signature was not asked for"
    return "%s is release %s as %s has it, %s: %d files, %d bytes, made of %d inputs in %d steps.\n" % (
        result["prefix"], result["release"], result["statement"], signed, result["files"], result["bytes"],
        result["inputs"], result["steps"])


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # text on a real stream
    asked = parser().parse_args(arguments)
    try:
        result = run(asked)
    except StackError as error:
        told = error.as_result()
        if asked.json:
            sys.stdout.write(json.dumps(dict(told, failed=True), indent=2, sort_keys=True) + "\n")
        else:
            sys.stderr.write("verify-release: %s\n" % told["msg"])
        return REFUSED
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    sys.stdout.write(json.dumps(result, indent=2, sort_keys=True) + "\n" if asked.json else render(result))
    return HOLDS
