# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Each part of the tests makes the environments that it needs, and no other."""

from __future__ import annotations

import pathlib
import re
import subprocess

import pytest

TOP = pathlib.Path(__file__).parents[2]
ASK = 'checkout=$PWD work=/nowhere; . tests/environments; cores=(2.18 2.21) newest_core=2.21; needed_by "$@"'
PROGRAMS = ["easybuild", "reframe"]


def needed(*words):
    done = subprocess.run(["bash", "-euc", ASK, "bash", *words], cwd=TOP, text=True, check=True, stdout=subprocess.PIPE)
    return done.stdout.split()


@pytest.mark.parametrize(("words", "environments"), [
    ("quick", ["2.21"]),
    ("dev", ["2.21"]),
    ("lint", ["2.21", "docs"]),
    ("docs", ["docs"]),
    ("bench --only rollout", ["2.21"]),
    ("molecule horovod", ["2.21"]),
    ("importer", ["importer"]),
    ("units", ["2.21"]),
    ("sanity", ["2.21"]),
    ("nightly", ["2.18", "2.21"]),
    ("all", ["2.21"]),
    ("rollouts", ["2.21"]),
    ("pytest tests/e2e", ["2.21"]),
    ("others", ["2.21", *PROGRAMS]),
    ("pytest", ["2.21", *PROGRAMS]),
    ("pytest -k word", ["2.21", *PROGRAMS]),
    ("pytest tests/unit", ["2.21"]),
    ("pytest -x tests/roles/test_makefile.py::test_help_shows_every_target tests/unit/plugins", ["2.21"]),
    ("pytest tests/roles", ["2.21", "easybuild"]),
    ("pytest tests/roles/test_easybuild.py", ["2.21", "easybuild"]),
    ("pytest tests/reframe/test_reframe_slurm.py", ["2.21", "reframe"]),
    ("pytest tests", ["2.21", *PROGRAMS]),
])
def test_a_part_needs(words, environments):
    assert needed(*words.split()) == environments


def test_every_environment_has_a_lock_with_digests_that_one_script_makes():
    script = (TOP / "requirements" / "lock").read_text()
    for name in ("test-2.18", "test-2.19", "test-2.21", *PROGRAMS, "docs", "importer"):
        text = (TOP / "requirements" / (name + ".txt")).read_text()
        pinned = re.findall(r"^[a-z0-9.-]+==\S+.*?(?=^[a-z]|\Z)", text, re.M | re.S | re.I)
        assert pinned and all("--hash=sha256:" in block for block in pinned), name
        assert re.search(r"\b%s\b" % name.partition("-")[0], script)
