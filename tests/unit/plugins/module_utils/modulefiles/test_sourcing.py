# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Start-up files and set-ups that are sourced."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.sourcing import source_init, source_setup

BEFORE = {"PATH": "/usr/bin:/bin"}


def test_start_up_files_are_read_in_order_and_may_fail_inside(tmp_path):
    (tmp_path / "one.sh").write_text("export A=1 PATH=/one:$PATH\necho noise\nfalse\n")
    (tmp_path / "two.sh").write_text('export B="$A and\ntwo"\nunset GONE\nf() { :; }; export -f f\nreturn 3\n')
    before = {"PATH": "/usr/bin:/bin", "GONE": "1", "PWD": "/here"}
    after = source_init(before, [str(tmp_path / "one.sh"), str(tmp_path / "two.sh")], 30)
    assert (after["A"], after["B"], after["PATH"]) == ("1", "1 and\ntwo", "/one:/usr/bin:/bin")
    assert "GONE" not in after
    assert after["PWD"] == "/here"
    assert set(after) - set(before) == {"A", "B", "BASH_FUNC_f%%"}


def test_shell_text_runs_after_the_start_up_files(tmp_path):
    (tmp_path / "one.sh").write_text("export A=1\n")
    after = source_init({"PATH": "/usr/bin:/bin"}, [str(tmp_path / "one.sh")], 30, "echo noise\nexport B=$A$A")
    assert after["B"] == "11"
    with pytest.raises(StackError, match=r"exit status 4 while it read the text of init_script: why"):
        source_init({"PATH": "/usr/bin:/bin"}, [], 30, "echo why >&2; exit 4")


def test_a_start_up_file_that_is_missing_or_leaves_the_shell_is_an_error(tmp_path):
    with pytest.raises(StackError, match="does not exist"):
        source_init({}, [str(tmp_path / "nothing.sh")], 30)
    (tmp_path / "leaves.sh").write_text("echo why >&2; exit 4\n")
    with pytest.raises(StackError, match=r"exit status 4 while it read .*leaves.sh: why"):
        source_init({"PATH": "/usr/bin:/bin"}, [str(tmp_path / "leaves.sh")], 30)


def test_a_set_up_is_sourced_with_the_command_module_after_the_purge():
    defining = ['module() { export SAID="$SAID [$*]"; echo noise; }']
    after = source_setup(BEFORE, defining, "module load x; export DONE=1", ["/first", "/second"], True, 30)
    assert after == {**BEFORE, "SAID": " [use /second] [use /first] [purge] [load x]", "DONE": "1"}
    assert source_setup(BEFORE, [], "export DONE=1", ["/first"], True, 30) == {**BEFORE, "DONE": "1"}


def test_a_set_up_may_be_a_file_and_one_that_fails_is_an_error(tmp_path):
    place = tmp_path / "set up.sh"
    place.write_text("export DONE=1\n")
    assert source_setup(BEFORE, [], str(place), [], False, 30)["DONE"] == "1"
    for setup in (str(tmp_path / "nothing.sh"), "echo why >&2; exit 4", "false"):
        with pytest.raises(StackError, match=r"The set-up of the toolchain ended with exit status [14]: "):
            source_setup(BEFORE, [], setup, [], False, 30)
