# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compare the collection's modules with the programs they stand in for, and print one table of ratios.

Run by `make bench`. The table goes to the standard output, what is going on to the standard error. The exit status is
1 where a part failed, and with --strict also where a goal is missed or a part could not be measured.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import platform
import sys
import traceback

import ansible.release
import installed_tree
from measuring import UnavailableError, told
from parts import PARTS
from plays import CHECKOUT
from table import Outcome, render

CACHE = CHECKOUT / ".cache" / "bench"


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))


def busy() -> list[str]:
    """A remark where other programs want the processors too; before the first comparison, as those count later."""
    load = os.getloadavg()[0]
    return ["The machine was busy (load average %.1f): repeat this in a quiet moment." % load] if load > 0.5 else []


def head(size: installed_tree.Size) -> str:
    """What was compared on."""
    return "ansible-core %s, Python %s, %s %s, %d processors\nTree: %s (requirements/%s)" % (
        ansible.release.__version__, platform.python_version(), platform.system(), platform.machine(), processors(),
        size, installed_tree.LOCK.name,
    )


def listed(title: str, lines: list[str]) -> str:
    """A titled list, or nothing where there is nothing to list."""
    return "\n%s\n%s\n" % (title, "\n".join("- " + line for line in lines)) if lines else ""


def compare(names: list[str], tree: pathlib.Path) -> tuple[Outcome, bool]:
    """What the parts brought, and whether one of them failed."""
    outcome, failed = Outcome(), False
    for name in names:
        try:
            with told("comparing: %s (%d of %d)" % (name, names.index(name) + 1, len(names))):
                outcome.add(PARTS[name](tree, CACHE))
        except UnavailableError as error:
            outcome.missing.append("%s: %s." % (name, str(error).rstrip(".")))
        except Exception as error:
            # One broken part must not hide the rows of the others.
            traceback.print_exc()
            outcome.missing.append("%s: FAILED: %s" % (name, (str(error).splitlines() or [repr(error)])[0]))
            failed = True
    return outcome, failed


def main() -> int:
    """Print the table; returns the exit status."""
    parser = argparse.ArgumentParser(description="Compare the modules with other programs.")
    parser.add_argument("--strict", action="store_true", help="fail where a goal is missed or not measured")
    parser.add_argument("--only", action="append", choices=sorted(PARTS), help="only this part; may be repeated")
    options = parser.parse_args()
    remarks = busy()
    CACHE.mkdir(parents=True, exist_ok=True)
    try:
        tree = installed_tree.make(CACHE)
    except UnavailableError as error:
        print("There is nothing to compare on: %s" % error, file=sys.stderr)
        return 1
    size = installed_tree.measure(tree)
    if not size.suffices:
        print(
            "The tree in %s is too small to compare on: %s. At least %d files, %d objects and %.0f GB are needed. "
            "Remove it, and it is installed again."
            % (tree, size, installed_tree.LEAST_FILES, installed_tree.LEAST_OBJECTS, installed_tree.LEAST_BYTES / 1e9),
            file=sys.stderr,
        )
        return 1
    outcome, failed = compare(options.only or list(PARTS), tree)
    print("\n%s\n" % head(size))
    if outcome.rows:
        print(render(outcome.rows))
    print(listed("Besides:", outcome.notes + remarks) + listed("Not compared:", outcome.missing), end="", flush=True)
    if outcome.missed:
        print("\nMissed: %s." % ", ".join(row.what for row in outcome.missed))
    return 1 if failed or (options.strict and (outcome.missed or outcome.missing)) else 0


if __name__ == "__main__":
    sys.exit(main())
