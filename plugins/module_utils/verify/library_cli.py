# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run the command ``bin/verify``: the verification without Ansible, for any directory."""

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
from . import library_record
from .libraries import verify
from .library_findings import KINDS, sentence
from .library_rules import parse_rules

CLEAN, FINDINGS, CANNOT = 0, 1, 2

HEAD = {
    "missing": "Libraries that are not found",
    "misplaced": "Libraries that come from elsewhere than declared",
    "embedded": "Copies of a library inside another file",
    "forbidden": "Places that nothing may come from",
    "required": "Objects that do not need what they have to",
    "versions": "Symbol versions that a library does not have",
    "unsealed": "Libraries that a user's LD_LIBRARY_PATH replaces",
    "unreadable": "Files that cannot be looked at",
}


def parser() -> argparse.ArgumentParser:
    """Define the command line."""
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
    """Read a file with rules."""
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except OSError as error:
        raise StackError("Cannot read %s: %s." % (path, error.strerror), "rules", "Correct the path.", path) from error
    except ValueError as error:
        raise StackError("%s is not JSON: %s." % (path, error), "rules", "Correct it.", path) from error


def run(arguments: argparse.Namespace, display: Display) -> tuple[int, list[str]]:
    """Verify, and return the exit code and what to print."""
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
        reasons = collections.Counter(item.why for item in outcome.not_checked)
        if reasons:
            counted = ", ".join("%d %s" % (count, why) for why, count in sorted(reasons.items()))
            raise StackError(
                "Of %s nothing was checked: %s." % (arguments.prefix, counted), "scan",
                "Verify it on the machine that it is for.", arguments.prefix)
        message = "There is no dynamic ELF object in %s." % arguments.prefix
        raise StackError(message, "scan", "Correct the path.", arguments.prefix)
    if arguments.json:
        result["failed"] = bool(outcome.findings)
        if outcome.findings:
            result["msg"] = sentence(outcome.findings, len(outcome.scan.objects))
        return code, [json.dumps(result, indent=2, sort_keys=True)]
    reasons = collections.Counter(item.why for item in outcome.not_checked)
    rules = ["Rules: %s" % source, ""] if source else []
    return code, rules + render_table(result, reasons, os.path.abspath(arguments.prefix))


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align rows, each column as wide as its widest cell."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))] if rows else []
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def searched(places: Sequence[str]) -> list[str]:
    """List the places that were searched, one line for each rule."""
    rules: dict[str, list[str]] = {}
    for place in places:
        rule, _colon, where = place.partition(": ")
        rules.setdefault(rule, []).append(where.replace(" (no such file)", ""))
    return ["      searched %s: %s" % (rule, ", ".join(where)) for rule, where in rules.items()]


def render_table(result: dict[str, Any], not_checked: collections.Counter[str], top: str = "") -> list[str]:
    """Render a verification's result, and how many files were not checked and why, as lines for a terminal.

    The paths of the table are relative to ``top``, the verified directory; absolute where it is empty.
    """
    below = top.rstrip("/") + "/"
    lines: list[str] = []
    for kind in KINDS:
        if not result[kind + "_total"]:
            continue
        lines.append("%s: %d" % (HEAD[kind], result[kind + "_total"]))
        for finding in result[kind]:
            where = finding.get("environment")
            lines.append("  " + finding["message"] + (" (%s)" % where if where else ""))
            if "root" in finding:
                lines.append("      for %s, %d objects in all" % (finding["root"], finding["roots"]))
            lines += searched(finding["searched"])
            lines.append("      " + finding["remedy"])
        left = result[kind + "_total"] - len(result[kind])
        lines += ["  and %d more" % left] * bool(left) + [""]
    rows = [("library", "is", "found by", "needed by")]
    for name, places in result["providers"].items():
        for place in places:
            rule = place["rule"] + (" (%s)" % place["environment"] if "environment" in place else "")
            path = place["path"][len(below) if top and place["path"].startswith(below) else 0 :]
            rows.append((name, path, rule, str(place["needed_by"])))
    relative = any(not row[1].startswith("/") for row in rows[1:])
    lines += ["Relative paths are below %s." % top, ""] if relative else []
    lines += [*columns(rows), ""] if len(rows) > 1 else []
    for entry in result["allowed"]:
        facts = (entry["soname"], entry["objects"][0], entry["objects_total"], entry["reason"])
        lines.append("%s may be missing for %s (%d): %s" % facts)
    lines += [
        "%s holds a copy of %s, %r, which it may: %s" % (entry["object"], entry["name"], entry["text"], entry["reason"])
        for entry in result["own_copies"]
    ]
    lines += ["The %s rule for %s met nothing." % (rule["rule"], rule["name"]) for rule in result["unused"]]
    lines += ["Not checked, %s: %d." % (why, count) for why, count in sorted(not_checked.items())]
    if result["unopened"]:
        lines.append("Not opened, for their names: %d." % result["unopened"])
    total = sum(result[kind + "_total"] for kind in KINDS)
    lines.append("%d object%s of %d files, %d finding%s, %.1f s" % (
        result["objects"], "" if result["objects"] == 1 else "s", result["files"],
        total, "" if total == 1 else "s", result["seconds"],
    ))
    return lines


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
