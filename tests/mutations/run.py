# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Plant the faults of mutations.yml one after the other in a copy of the checkout, and see that the tests find them.

Run by `tests/run mutations`, with cases such as S07 for some of them. Each test has to pass first, without any fault.
The exit status is 1 where a fault was not caught, and 2 where a fault does not fit any more or a test was not run.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree
from typing import NamedTuple

import yaml

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
TABLE = pathlib.Path(__file__).with_name("mutations.yml")
CASES = ["S%02d" % number for number in range(1, 46)]
PLACE = pathlib.Path("ansible_collections", "hpcml", "torchstack")
FAILED = 1  # pytest's exit status where tests were run and some of them failed


class Mutation(NamedTuple):
    """A fault, and the test that finds it."""

    case: str
    what: str
    file: str
    before: str
    after: str
    test: str

    def planted(self, text: str) -> str:
        """Return a file's text with the fault; ValueError: what it takes the place of is not there, or not once."""
        count = text.count(self.before)
        if count != 1:
            raise ValueError("%s: %s has %r %s." % (
                self.case, self.file, self.before, "%d times" % count if count else "no more; say what it is now"))
        return text.replace(self.before, self.after)


def load() -> list[Mutation]:
    """Return the table."""
    return [Mutation(**row) for row in yaml.safe_load(TABLE.read_text(encoding="utf-8"))]


def copy_checkout(place: pathlib.Path) -> pathlib.Path:
    """Copy what git knows of the checkout to where a collection lies, and return that directory."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=CHECKOUT, check=True,
        stdout=subprocess.PIPE).stdout
    there = b"\0".join(name for name in names.split(b"\0") if name and os.path.lexists(CHECKOUT / os.fsdecode(name)))
    target = place / PLACE
    target.mkdir(parents=True)
    with subprocess.Popen(
            ["tar", "--null", "--files-from=-", "-cf", "-"], cwd=CHECKOUT, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE) as pack, subprocess.Popen(["tar", "-xf", "-", "-C", target], stdin=pack.stdout):
        pack.stdin.write(there)
        pack.stdin.close()
    return target


def run_tests(target: pathlib.Path, tests: list[str]) -> tuple[int, dict[str, int], str]:
    """Run tests in the copy; return pytest's exit status, how many passed, failed and were skipped, and its output."""
    report = target.parents[2] / "report.xml"
    report.unlink(missing_ok=True)
    environment = {
        **os.environ, "PYTHONPATH": str(target.parents[2]), "PYTHONDONTWRITEBYTECODE": "1",
        "ANSIBLE_COLLECTIONS_PATH": str(target.parents[2])}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junit-xml=%s" % report, *tests], cwd=target,
        env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    if report.exists():
        (suite,) = xml.etree.ElementTree.parse(report).getroot().iter("testsuite")
        counts = {name: int(suite.get(name, "0")) for name in counts}
    return done.returncode, counts, done.stdout


def attempt(target: pathlib.Path, mutation: Mutation) -> tuple[bool, str]:
    """Plant a fault in the copy, run its test and take the fault out again; return whether it was caught, and how."""
    path = target / mutation.file
    text = path.read_text(encoding="utf-8")
    path.write_text(mutation.planted(text), encoding="utf-8")
    try:
        status, counts, said = run_tests(target, [mutation.test])
    finally:
        path.write_text(text, encoding="utf-8")
    if status == FAILED and counts["failures"]:
        return True, "%d of %d failed" % (counts["failures"], counts["tests"])
    return False, "pytest ended with %d, %s\n%s" % (status, counts, said[-2000:])


def main(words: list[str]) -> int:
    """Plant all faults, or those of some cases."""
    parser = argparse.ArgumentParser(description="Plant faults, and see that the tests find them.")
    parser.add_argument("case", nargs="*", choices=[*CASES, []], help="only these, such as S07")
    wanted = parser.parse_args(words).case
    table = [mutation for mutation in load() if not wanted or mutation.case in wanted]
    with tempfile.TemporaryDirectory(prefix="mutations-") as place:
        target = copy_checkout(pathlib.Path(place))
        for mutation in table:
            mutation.planted((target / mutation.file).read_text(encoding="utf-8"))
        began = time.monotonic()
        status, counts, said = run_tests(target, sorted({mutation.test for mutation in table}))
        passed = counts["tests"] - counts["failures"] - counts["errors"] - counts["skipped"]
        print("without a fault: %d passed, %d skipped, %.0f seconds" % (
            passed, counts["skipped"], time.monotonic() - began), flush=True)
        if status:
            print(said[-6000:])
            return 2
        missed = []
        for mutation in table:
            began = time.monotonic()
            caught, how = attempt(target, mutation)
            print("%s %-10s %4.0f s  %s: %s" % (
                mutation.case, "caught" if caught else "NOT CAUGHT", time.monotonic() - began, mutation.what, how),
                flush=True)
            if not caught:
                missed.append(mutation.case)
    print("%d of %d faults caught, of %d cases" % (
        len(table) - len(missed), len(table), len({mutation.case for mutation in table})))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
