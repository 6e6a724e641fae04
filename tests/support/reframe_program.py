# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The ReFrame that tests run, and a configuration of it."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess

import pytest

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
MISSING = "There is no ReFrame: run the tests by tests/run, or name its command by TORCHSTACK_REFRAME."


def command() -> str:
    """The path of ``reframe``; fails the test where there is none."""
    usual = str(CHECKOUT / ".cache" / "tests" / "reframe" / "bin" / "reframe")
    found = shutil.which(os.environ.get("TORCHSTACK_REFRAME") or usual)
    if found is None:
        pytest.fail(MISSING, pytrace=False)
    return found


def configured(place: pathlib.Path, partitions: list[dict], modules_system: str = "nomod", **more) -> pathlib.Path:
    """Write a configuration of a site that has nothing of its own but these partitions.

    Args:
        place: the directory for it.
        partitions: their keys in ReFrame's configuration, but for environments.
        modules_system: ReFrame's name of it.
        more: further keys of the system.
    """
    everywhere = [dict(partition, environs=["builtin"]) for partition in partitions]
    system = {"name": "site", "hostnames": [".*"], "modules_system": modules_system, "partitions": everywhere, **more}
    path = place / "site.py"
    path.write_text("import json\nsite_configuration = json.loads(%r)\n" % json.dumps({"systems": [system]}))
    return path


def run(configuration: pathlib.Path, tests: list, place: pathlib.Path, *words: str, **environment: str):
    """Run ReFrame.

    Args:
        configuration: of :func:`configured`.
        tests: directories or files of tests.
        place: where it works.
        words: further words of the command line.
        environment: variables to set.

    Returns:
        the exit status and what was printed.
    """
    checks = [word for path in tests for word in ("-c", str(path))]
    options = ["--prefix", str(place), "--report-file", str(place / "report.json"), "--nocolor"]
    whole = dict({name: os.environ[name] for name in ("HOME", "USER") if name in os.environ}, LC_ALL="C.UTF-8")
    whole.update({"PATH": "/usr/bin:/bin", "TMPDIR": str(place), **environment})
    done = subprocess.run(
        [command(), "-C", str(configuration), *checks, *options, *words], cwd=place, env=whole, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )
    return done.returncode, done.stdout


def outcomes(place: pathlib.Path) -> dict[str, dict]:
    """The cases of the last run by their names, as ReFrame's report has them."""
    report = json.loads((place / "report.json").read_text())
    return {case["display_name"]: case for run_of in report["runs"] for case in run_of["testcases"]}
