# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the clean-up of the scenarios removes, and what it leaves alone."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

PLAYBOOK = pathlib.Path(__file__).parents[2] / "molecule" / "cleanup.yml"


@pytest.fixture()
def clean_up(ansible_environment, tmp_path):
    """Run the clean-up with this root; the exit code, and what was printed in one line."""

    def run(root):
        environment = {
            **ansible_environment, "HOME": str(tmp_path / "home"), "TORCHSTACK_TEST_ROOT": str(root),
            "MOLECULE_EPHEMERAL_DIRECTORY": str(tmp_path / "molecule")}
        process = subprocess.run(
            ["ansible-playbook", "-i", "localhost,", "-c", "local", str(PLAYBOOK)], env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return process.returncode, " ".join(process.stdout.split())

    return run


def release_below(root):
    """A frozen file of a release."""
    path = root / "2026-11-20" / ".torchstack" / "release.yml"
    path.parent.mkdir(parents=True)
    path.write_text("name: 2026-11-20\n")
    path.parent.chmod(0o555)
    return path


def test_a_root_that_no_test_has_made_is_left_as_it_is_with_what_to_do(clean_up, tmp_path):
    kept = release_below(tmp_path / "soft")
    code, said = clean_up(tmp_path / "soft")
    assert code != 0 and kept.read_text() == "name: 2026-11-20\n" and kept.parent.stat().st_mode & 0o777 == 0o555
    assert "soft exists, and no test has made it: nothing of it was removed" in said
    assert "touch %s.of-tests" % (tmp_path / "soft") in said


@pytest.mark.parametrize("place", ["elsewhere", "home/torchstack-test"])
def test_a_root_that_tests_have_made_is_removed_before_and_after_each_scenario(clean_up, tmp_path, place):
    root = tmp_path / place
    root.parent.mkdir(exist_ok=True)
    for _time in range(2):
        code, said = clean_up(root)
        assert code == 0 and not root.exists(), said
        release_below(root)
    code, said = clean_up(root)
    assert code == 0 and not root.exists(), said
