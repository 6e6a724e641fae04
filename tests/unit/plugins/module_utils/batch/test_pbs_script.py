# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The batch script for PBS, and how it is submitted."""

from __future__ import annotations

import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.pbs_script import batch_script, submission
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.registry import check_options
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError


def script(name="ts-pytorch-6f1ed002-9c0a11d4", log="/soft/log", command=("/usr/bin/python3", "-I"), **options):
    return batch_script(name, check_options("pbs", options), log, command)


def directives(text):
    return [line[len("#PBS "):] for line in text.splitlines() if line.startswith("#PBS ")]


def test_everything_that_a_site_says_is_a_directive():
    lines = directives(script(
        account="proj1", queue="gpu", walltime="1-02:30:00", nodes=2, cores=64, gpus=4, memory="240G", requeue=1,
        directives=["-l filesystems=home:eagle"],
    ))
    assert lines[0] == "-l filesystems=home:eagle"
    for line in (
        "-A proj1", "-q gpu", "-l walltime=26:30:00", "-l select=2:ncpus=64:ngpus=4:mem=240gb", "-l place=scatter",
        "-r y", "-N ts-pytorch-6f1ed002-9c0a11d4", "-j oe", "-o localhost:/dev/null", "-W umask=022",
    ):
        assert line in lines


def test_the_launcher_of_a_job_may_start_as_many_processes_on_a_node_as_it_is_asked_for():
    assert "-l select=2:ncpus=64:mpiprocs=4" in directives(script(nodes=2, cores=64, tasks=4))


def test_without_options_pbs_decides():
    lines = directives(script())
    assert not any(line.startswith(("-l", "-A", "-q")) for line in lines)
    assert "-r n" in lines, "a job that PBS puts back is not counted by the site's requeue"


def test_a_job_that_is_put_back_for_its_time_limit_only_is_not_rerun_by_pbs():
    assert "-r n" in directives(script(requeue=2, requeue_on=["time_limit"]))


def test_resources_are_asked_for_in_one_place():
    with pytest.raises(StackError) as caught:
        script(cores=4, directives=["-l select=1:ncpus=2:arch=x"])
    assert caught.value.failed_step == "options"
    assert any("select=1" in line for line in directives(script(directives=["-l select=1:ncpus=2"])))


@pytest.mark.parametrize("name", ["", "7-of-9", "a" * 231, "a b", "a\n", "t\u00e4"])
def test_a_name_that_pbs_would_refuse_is_refused_before(name):
    with pytest.raises(StackError):
        script(name=name)


@pytest.mark.parametrize("name", ["t", "ts-py_torch+2.1-6f1ed002", "a" * 230])
def test_a_name_that_pbs_takes_is_taken(name):
    assert "-N " + name in directives(script(name=name))


def test_a_line_break_cannot_smuggle_in_a_command():
    with pytest.raises(StackError):
        script(log="/soft/log\nrm -rf /")


def test_the_directives_become_arguments_and_the_commands_a_program():
    words = submission(script(account="proj1", directives=["-v 'A=a b'"]))
    assert words[:4] == ["qsub", "-f", "-v", "A=a b"]
    assert words[words.index("-A") + 1] == "proj1"
    program = words[words.index("--") + 1:]
    assert program[:2] == ["/bin/sh", "-c"]
    assert "#" not in program[2] and "umask 022" in program[2]


@pytest.mark.parametrize("directive", ["-v 'A=a", "-q gpu -- /bin/date"])
def test_a_directive_that_is_no_list_of_options_is_refused(directive):
    with pytest.raises(StackError) as caught:
        script(directives=[directive])
    assert caught.value.failed_step == "options"


@pytest.mark.parametrize("name", ["log", "the log", "l'og", 'l"og', "l$og", "l\\og"])
def test_the_script_writes_to_the_log_whatever_its_name(tmp_path, name):
    log = tmp_path / name
    log.write_text("before\n")
    text = script(log=str(log), command=("/bin/sh", "-c", 'umask; echo "it\'s here"; exit 7'))
    for words in (["/bin/sh", "-c", text], submission(text)[-3:]):
        assert subprocess.run(words, check=False).returncode == 7
    assert log.read_text() == "before\n" + "0022\nit's here\n" * 2


def test_a_log_that_cannot_be_opened_has_an_exit_code_of_its_own(tmp_path):
    words = submission(script(log=str(tmp_path / "nowhere" / "log"), command=("/bin/true",)))
    assert subprocess.run(words[-3:], stderr=subprocess.DEVNULL, check=False).returncode == 73


@pytest.mark.parametrize(("options", "place"), [
    ({"exclusive": True}, ["-l place=excl"]),
    ({"exclusive": True, "nodes": 2}, ["-l place=scatter:excl"]),
    ({"exclusive": False, "nodes": 2}, ["-l place=scatter"]),
    ({"exclusive": False}, []),
])
def test_whole_nodes_are_asked_for_by_their_place(options, place):
    assert [line for line in directives(script(**options)) if "place" in line] == place
