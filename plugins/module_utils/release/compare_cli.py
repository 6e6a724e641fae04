# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run the command ``bin/compare``: in which ways two releases differ, without Ansible."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
from typing import Any, Mapping, Sequence

from ..core.cli import Display
from ..core.errors import StackError
from . import compare_trees
from .compare_files import CLASSES, OTHER, SAME

EQUIVALENT, DIFFERENT, CANNOT = 0, 1, 2


def parser() -> argparse.ArgumentParser:
    """Define the command line."""
    command = argparse.ArgumentParser(
        prog="compare",
        description="Say in which ways two releases differ that were made from the same release file.",
        epilog="Exit code: 0 they are the same but for place, time and records, 1 real differences, "
               "2 the comparison could not be done.")
    command.add_argument("first", metavar="FIRST", help="directory of a release")
    command.add_argument("second", metavar="SECOND", help="directory of the other one")
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.add_argument("--max-listed", metavar="N", type=int, default=20, help="most paths of a class (20)")
    return command


def render(result: Mapping[str, Any]) -> list[str]:
    """Render the result for a person: every class that there is, its meaning, and its first paths."""
    lines = []
    for name, meaning in CLASSES.items():
        count = result["counts"][name]
        if not count:
            continue
        lines.append("%7d  %s: %s" % (count, name, meaning))
        shown = result["differences"].get(name, [])
        lines += ["           %s%s" % (one["path"], " (%s)" % one["detail"] if one["detail"] else "") for one in shown]
        if shown and len(shown) < count and name != SAME:
            lines.append("           and %d more" % (count - len(shown)))
    if result["counts"][OTHER]:
        lines.append("The releases differ.")
    else:
        lines.append("The releases are the same, but for what the classes above say.")
    return lines


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # text on a real stream
    asked = parser().parse_args(arguments)
    display = Display(sys.stderr)
    try:
        result = compare_trees.compare(asked.first, asked.second, display.progress).as_result(max(0, asked.max_listed))
    except StackError as error:
        display.clear()
        sys.stderr.write("compare: %s\n" % error.as_result()["msg"])
        return CANNOT
    except KeyboardInterrupt:
        display.clear()
        return 128 + signal.SIGINT
    display.clear()
    lines = [json.dumps(result, indent=2, sort_keys=True)] if asked.json else render(result)
    with contextlib.suppress(KeyboardInterrupt):
        sys.stdout.write("\n".join(lines) + "\n")
    return EQUIVALENT if result["equivalent"] else DIFFERENT
