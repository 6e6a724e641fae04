# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Do what bin/matrix is called for."""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
from typing import Sequence

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.files import write_atomic
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import release_file as definitions
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import ansible_programs, release_file

from . import cells, runs

DO = ("write", "plan", "rollout", "mirror")
DONE, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    found = argparse.ArgumentParser(
        prog="matrix", description="Roll out, plan or mirror the releases of a matrix, one after another, and sum up.",
        epilog="Ends with 0; with 1 where a release failed; with 2 where nothing was begun.")
    found.add_argument("do", choices=DO, help="write: the release files of the matrix, and nothing else")
    found.add_argument("matrix", type=pathlib.Path, help="its file, inventories/<site>/matrices/<name>.yml")
    found.add_argument("--to", type=pathlib.Path, help="the directory of the mirror")
    found.add_argument("--logs", type=pathlib.Path, help="where what the playbooks print is kept; default: "
                       "~/.cache/torchstack/matrix/<name>")
    found.add_argument("--playbook", help="another one than that of the site")
    found.add_argument("arguments", nargs="*", help="further arguments of ansible-playbook, after --")
    return found


def main(words: Sequence[str]) -> int:
    """Run the program; returns its exit code."""
    asked = parser().parse_args(words)
    try:
        if asked.do == "mirror" and not asked.to:
            raise cells.MatrixError("say where the mirror goes: bin/matrix mirror %s --to DIRECTORY" % asked.matrix)
        found = read(asked.matrix)
        if asked.do == "write":
            return write(asked.matrix, found)
        check(asked.matrix, found)
        return run_all(asked, found)
    except (cells.MatrixError, ValueError) as error:
        said = str(error)
        print("matrix: %s%s" % (said, "" if said.endswith((".", "?")) else "."), file=sys.stderr)
        return REFUSED


def read(path: pathlib.Path) -> cells.Matrix:
    """Read a matrix file. Raises MatrixError: it is not there, or has a mistake; one sentence with its name."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        beside = sorted(other.stem for other in path.parent.glob("*.yml"))
        raise cells.MatrixError("%s cannot be read (%s); beside it there are %s" % (
            path, getattr(error, "strerror", "") or "it is not UTF-8", ", ".join(beside) or "none")) from error
    try:
        content, _lines = release_file.parse(text)
        return cells.matrix(content)
    except release_file.MistakeError as mistake:
        raise cells.MatrixError("%s has a mistake in line %d: %s" % (path, mistake.line, mistake)) from mistake
    except cells.MatrixError as error:
        raise cells.MatrixError("%s: %s" % (path, error)) from error


def place(matrix: pathlib.Path, release: str) -> pathlib.Path:
    """Return where a release file of a matrix is."""
    return matrix.resolve().parents[1] / "releases" / (release + ".yml")


def write(matrix: pathlib.Path, found: cells.Matrix) -> int:
    """Write the release files that are not as the matrix has them. Raises MatrixError: one is written by hand."""
    changed = []
    for cell in found.cells:
        path = place(matrix, cell.release)
        before = path.read_text(encoding="utf-8") if path.exists() else None
        if cell.content is None or before == cell.text(matrix.name):
            continue
        if before is not None and cells.HEADER % matrix.name not in before:
            raise cells.MatrixError("%s is there and not of this matrix; give one of the two another name" % path)
        changed.append((path, cell.text(matrix.name)))
    for path, text in changed:
        write_atomic(str(path), text.encode("utf-8"))
        print("Written: %s" % path)
    for name, reason in found.left_out:
        print("Left out: %s, as %s" % (name, reason))
    if not changed:
        print("All release files of %s are as they have to be." % matrix.name)
    return DONE


def check(matrix: pathlib.Path, found: cells.Matrix) -> None:
    """Look at all release files, before any playbook runs. Raises MatrixError, ValueError: one has mistakes."""
    keys = release_file.specified()["release_file"]["options"]
    for cell in found.cells:
        path = place(matrix, cell.release)
        if not path.is_file():
            raise cells.MatrixError("there is no release file %s; %s" % (
                path, "correct the name" if cell.content is None else "bin/matrix write %s makes it" % matrix))
        if cell.content is not None and path.read_text(encoding="utf-8") != cell.text(matrix.name):
            raise cells.MatrixError("%s is not what the matrix says; bin/matrix write %s renews it" % (path, matrix))
        read_file = release_file.read(path)
        problems = definitions.problems(read_file.content, keys, path.name, read_file.places)
        if problems:
            raise cells.MatrixError(" ".join(problems))


def command(asked: argparse.Namespace, release: str) -> list[str]:
    """Compose the command line for one release."""
    site = asked.matrix.resolve().parents[1]
    of_checkout = ansible_programs.TOP / "playbooks" / ("mirror.yml" if asked.do == "mirror" else site.name + ".yml")
    of_collection = "hpcml.torchstack.%s" % ("mirror" if asked.do == "mirror" else "rollout")
    own = asked.playbook or (str(of_checkout) if of_checkout.is_file() else of_collection)
    program = ansible_programs.find("ansible-playbook") or "ansible-playbook"
    words = [program, own, "-i", str(site / "hosts.yml"), "-e", "torchstack_release=%s" % release,
             "-e", "release_file=%s" % place(asked.matrix, release)]
    words += ["--check", "--diff"] if asked.do == "plan" else []
    words += ["-e", "torchstack_host=%s" % site.name] if asked.do == "mirror" else []
    return [*words, *asked.arguments]


def run_all(asked: argparse.Namespace, found: cells.Matrix) -> int:
    """Run the playbook for every release, also after one that failed, and print the table."""
    if asked.do == "mirror":
        os.environ["TORCHSTACK_MIRROR"] = str(asked.to.resolve())
    logs = asked.logs or pathlib.Path.home() / ".cache" / "torchstack" / "matrix" / asked.matrix.stem
    rows = []
    for number, cell in enumerate(found.cells, 1):
        log = logs / ("%s-%s.log" % (asked.do, cell.release))
        print("%d of %d: %s %s, log %s" % (number, len(found.cells), asked.do, cell.release, log), flush=True)
        done = runs.run(cell.release, command(asked, cell.release), log)
        rows.append((cell.values, done))
        if done.outcome == runs.STOPPED:
            break
    print("\n" + "\n".join(runs.table(found.axes, rows)))
    for name, reason in found.left_out:
        print("Left out: %s, as %s" % (name, reason))
    for cell in found.cells[len(rows):]:
        print("Not begun: %s" % cell.release)
    outcomes = {done.outcome for _values, done in rows}
    return INTERRUPTED if runs.STOPPED in outcomes else FAILED if runs.FAILED in outcomes else DONE
