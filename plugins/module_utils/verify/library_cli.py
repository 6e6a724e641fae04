# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The command ``bin/verify``: the verification without Ansible, for any directory."""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import signal
import sys
from typing import Any, Sequence

from ..core.cli import Display
from ..core.errors import StackError
from . import library_record, library_table
from .libraries import verify
from .library_findings import sentence
from .library_rules import parse_rules

CLEAN, FINDINGS, CANNOT = 0, 1, 2

def parser() -> argparse.ArgumentParser:
    """The command line."""
    command = argparse.ArgumentParser(
        prog="verify",
        description="Say where every ELF object below PREFIX finds the libraries that it needs. Executes none of them.",
        epilog="Exit code: 0 all is as it should be, 1 findings, 2 the verification could not be done.",
    )
    command.add_argument("prefix", metavar="PREFIX", help="directory or file; of a release, its own rules are taken")
    command.add_argument(
        "--rules", metavar="FILE", help="JSON file: options of the module ldd_verify, or a verification.json"
    )
    command.add_argument("--library-path", metavar="P", help="LD_LIBRARY_PATH to verify with, besides with none")
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.add_argument("--max-listed", metavar="N", type=int, default=100, help="most findings of a kind (100)")
    return command


def read_rules(path: str) -> Any:
    """The content of a file with rules."""
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except OSError as error:
        raise StackError("Cannot read %s: %s." % (path, error.strerror), "rules", "Correct the path.", path) from error
    except ValueError as error:
        raise StackError("%s is not JSON: %s." % (path, error), "rules", "Correct it.", path) from error


def run(arguments: argparse.Namespace, display: Display) -> tuple[int, list[str]]:
    """Verify, and return the exit code and what to print.

    Raises:
        StackError: the verification could not be done.
    """
    own = os.path.join(arguments.prefix, library_record.NAME)
    source = arguments.rules or (own if os.path.exists(own) else "")
    given = library_record.rules_for(arguments.prefix, read_rules(source) if source else {})
    if not isinstance(given, dict):
        raise StackError("%s holds no rules." % source, "rules", "Write a JSON object.", source)
    if arguments.library_path is not None:
        given = dict(given, environment={"LD_LIBRARY_PATH": arguments.library_path})
    outcome = verify(parse_rules(given), [arguments.prefix], progress=display.progress)
    result = outcome.as_result(max(0, arguments.max_listed))
    code = FINDINGS if outcome.findings else CLEAN
    if not (outcome.scan.objects or outcome.findings):
        raise StackError(
            "There is no dynamic ELF object in %s." % arguments.prefix, "scan", "Correct the path.", arguments.prefix
        )
    if arguments.json:
        result["failed"] = bool(outcome.findings)
        if outcome.findings:
            result["msg"] = sentence(outcome.findings, len(outcome.scan.objects))
        return code, [json.dumps(result, indent=2, sort_keys=True)]
    reasons = collections.Counter(item.why for item in outcome.not_checked)
    rules = ["Rules: %s" % source, ""] if source else []
    return code, rules + library_table.render(result, reasons, os.path.abspath(arguments.prefix))


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # text on a real stream
    display = Display(sys.stderr)
    try:
        code, lines = run(parser().parse_args(arguments), display)
    except StackError as error:
        display.clear()
        sys.stderr.write("verify: %s\n" % error.as_result()["msg"])
        return CANNOT
    except KeyboardInterrupt:
        display.clear()
        return 128 + signal.SIGINT
    display.clear()
    with contextlib.suppress(KeyboardInterrupt):
        sys.stdout.write("\n".join(lines) + "\n")
    return code
