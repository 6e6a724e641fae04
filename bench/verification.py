# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The verification of a release against `ldd` on each of its objects, and its manifest against `sha256sum`."""

from __future__ import annotations

import functools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import ratios

CHECKOUT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = """
import sys
from ansible_collections.hpcml.torchstack.plugins.module_utils import manifest

asked = manifest.Request(sys.argv[1], sys.argv[1], sys.argv[2])
sys.exit(0 if manifest.record(asked, False)["counts"]["files"] else 1)
"""


def objects(release: pathlib.Path) -> list[str]:
    """The ELF files of a release."""
    found = []
    for path in release.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with open(path, "rb") as stream:
                if stream.read(4) == b"\x7fELF":
                    found.append(str(path))
    return found


def each(command: str, paths: list[str]) -> None:
    """Run a command on one file after the other, as a script of a site does."""
    for path in paths:
        subprocess.run([command, path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def run(*words: str) -> None:
    """Run a command that succeeds."""
    process = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, env={
        **os.environ, "PYTHONPATH": str(pathlib.Path(sys.prefix) / "collections"), "PYTHONDONTWRITEBYTECODE": "1"})
    if process.returncode:
        sys.exit(process.stdout.decode(errors="replace"))


def main() -> None:
    """Print the medians, their ratios, and the goals."""
    release = ratios.release()
    found = objects(release)
    print("%d ELF files" % len(found))
    with tempfile.TemporaryDirectory() as scratch:
        rules = pathlib.Path(scratch) / "rules.json"
        # ldd judges nothing, so neither does the verification here.
        rules.write_text('{"allow_missing": [{"name": "*", "reason": "only the time counts"}]}')
        if shutil.which("ldd"):
            medians = ratios.compare({
                "ldd on each file": functools.partial(each, "ldd", found),
                "ldd_verify": functools.partial(run, str(CHECKOUT / "bin/verify"), str(release), "--rules", str(rules)),
            }, 3)
            ratios.say_ratio(medians["ldd on each file"], medians["ldd_verify"], "at least 15")
        else:
            print("Not compared with ldd: there is none.")
        medians = ratios.compare({
            "sha256sum on all files": functools.partial(
                run, "find", str(release), "-type", "f", "-exec", "sha256sum", "{}", "+"),
            "tree_manifest, full": functools.partial(
                run, sys.executable, "-c", PROGRAM, str(release), str(pathlib.Path(scratch) / "manifest.json")),
        }, 3)
    ratios.say_ratio(medians["sha256sum on all files"], medians["tree_manifest, full"], "at least 1")


if __name__ == "__main__":
    main()
