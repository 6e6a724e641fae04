# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The program that looks at a compute node, on this machine."""

from __future__ import annotations

import ast
import json
import os
import pathlib
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.zipapp import program_text
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight import node_directories, node_facts
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight.node_command import Ran

PROGRAM = program_text(node_facts)

NO_MODULES = "unset -f module 2> /dev/null\n"
TOY_MODULES = """
module() {
    case "$1 ${2:-}" in
        "load good/1") export LOADEDMODULES="${LOADEDMODULES:+$LOADEDMODULES:}good/1" ;;
        "load silent/1") ;;
        "load bad/1") echo "bad/1: no such module" >&2; return 1 ;;
        "load fatal/1") echo "cannot go on" >&2; exit 4 ;;
        "purge ") unset LOADEDMODULES ;;
    esac
}
"""


@pytest.fixture()
def question(tmp_path):
    """A question whose other side has written."""
    (tmp_path / "prefix").mkdir()
    (tmp_path / "temporary").mkdir()
    (tmp_path / "nonce").write_text("7\n")
    return {
        "nonce": "7", "nonce_file": str(tmp_path / "nonce"), "answer_file": str(tmp_path / "answer.json"),
        "prefix": str(tmp_path / "prefix"), "wait": 0, "tmpdir": str(tmp_path / "temporary"), "modules": [],
        "module_init": "", "programs": {"python": sys.executable, "CC": "no-such-compiler -m64"},
    }


def test_the_program_answers_by_itself_without_this_collection(question, tmp_path):
    command = [sys.executable, "-I", "-S", "-", json.dumps(question)]
    done = subprocess.run(
        command, input=PROGRAM, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/", check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith(os.uname().nodename + ": ")
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert answer["nonce"] == "7"
    assert answer["shared"] == {"nonce": "7", "waited": answer["shared"]["waited"], "prefix": True, "problem": ""}
    assert answer["machine"]["host"] == os.uname().nodename and answer["machine"]["uid"] == os.geteuid()
    assert 0 < answer["capacity"]["cores"] <= len(os.sched_getaffinity(0))
    assert 0 < answer["capacity"]["memory"] <= answer["capacity"]["machine_memory"]
    assert answer["tmpdirs"][-1]["path"] == question["tmpdir"] and answer["tmpdirs"][-1]["free"] > 0
    assert answer["tmpdirs"][0]["path"] == (os.environ.get("TMPDIR") or "/tmp")
    assert answer["programs"]["CC"] == {"command": "no-such-compiler -m64", "path": "", "version": ""}
    assert answer["programs"]["python"]["version"] == "%d.%d.%d" % sys.version_info[:3]
    assert [path.name for path in (tmp_path / "temporary").iterdir()] == []
    assert [path.name for path in (tmp_path / "prefix").iterdir()] == []


def test_the_program_is_for_the_oldest_python_of_a_target_and_for_ascii_terminals():
    PROGRAM.encode("ascii")
    ast.parse(PROGRAM, feature_version=(3, 8))
    imported = [node for node in ast.walk(ast.parse(PROGRAM)) if isinstance(node, ast.ImportFrom)]
    assert all("ansible" not in str(node.module) for node in imported)


def test_an_answer_that_cannot_be_written_is_a_failure(question, capsys):
    question["answer_file"] = question["prefix"] + "/missing/answer.json"
    assert node_facts.main([json.dumps(question)]) == 1
    assert "cannot be written: No such file or directory" in capsys.readouterr().out


def test_what_the_login_side_wrote_may_come_late_but_not_for_ever(question, monkeypatch):
    pathlib.Path(question["nonce_file"]).unlink()
    assert node_facts.shared(question)["nonce"] == ""
    question["wait"] = 600
    late = pathlib.Path(question["nonce_file"])
    monkeypatch.setattr(node_directories.time, "sleep", lambda _seconds: late.write_text("7"))
    assert node_facts.shared(question)["nonce"] == "7"


def test_a_prefix_that_is_missing_or_may_not_be_written_is_told(question):
    question["prefix"] += "/missing"
    facts = node_facts.shared(question)
    assert (facts["prefix"], facts["problem"]) == (False, "No such file or directory")


def test_temporary_files_need_a_directory(tmp_path):
    assert node_facts.temporary(str(tmp_path / "missing"))["problem"] == "No such file or directory"
    long = tmp_path / ("x" * 120)
    long.mkdir()
    facts = node_facts.temporary(str(long))
    assert facts["problem"] == "" and facts["runs"] is True and facts["socket"]


@pytest.mark.parametrize(("init", "names", "command", "failed"), [
    (TOY_MODULES, [], True, {}),
    (NO_MODULES, ["good/1"], False, {}),
    (TOY_MODULES, ["good/1"], True, {}),
    (TOY_MODULES, ["bad/1", "good/1"], True, {"bad/1": "bad/1: no such module"}),
    (TOY_MODULES, ["silent/1", "good/1"], True, {"silent/1": "it changed nothing"}),
    (TOY_MODULES, ["good/1", "fatal/1"], True, {"fatal/1": "the shell ended: cannot go on"}),
])
def test_modules_are_loaded_in_a_plain_shell(init, names, command, failed, tmp_path):
    facts = node_facts.modules(init, names)
    assert (facts["command"], facts["failed"]) == (command, failed)
    file = tmp_path / "it's an init"
    file.write_text(init)
    assert node_facts.modules(str(file), names) == facts


def test_programs_are_looked_for_with_the_modules_loaded(tmp_path):
    (tmp_path / "cc").write_text("#!/bin/sh\n")
    (tmp_path / "cc").chmod(0o755)
    init = "module() { PATH=%s:$PATH; LOADEDMODULES=$2; }" % tmp_path
    loaded = node_facts.modules(init, ["PrgEnv-gnu"])
    assert loaded["path"].startswith(str(tmp_path) + ":")
    assert node_facts.programs({"CC": "cc -g"}, loaded["path"])["CC"]["path"] == str(tmp_path / "cc")
    assert node_facts.modules(init, [])["path"] == ""


@pytest.mark.parametrize(("text", "version"), [
    ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\n", "535.104.05"),
    ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build\n", "550.54.14"),
    ("", ""),
])
def test_the_driver_tells_its_version(text, version, monkeypatch):
    monkeypatch.setattr(node_facts, "read", lambda path: text)
    monkeypatch.setattr(node_facts, "run", lambda words, seconds=0: Ran(None, "no such command"))
    monkeypatch.setattr(node_facts, "_has_library", lambda name: False)
    assert node_facts.gpus() == {"driver": version, "cuda": None, "count": None, "names": [], "problem": ""}


@pytest.mark.parametrize(("answer", "cuda", "count", "problem"), [
    (Ran(0, "12040 0 4\n"), 12040, 4, ""),
    (Ran(0, "12040 100 -1\n"), 12040, 0, ""),
    (Ran(0, "12040 999 -1\n"), 12040, None, "cuInit answers with error 999"),
    (Ran(-11, ""), None, None, "the driver does not answer: it crashed"),
    (Ran(None, "it did not finish within 60 seconds"), None, None,
     "the driver does not answer: it did not finish within 60 seconds"),
])
def test_the_driver_is_asked_in_a_process_of_its_own(answer, cuda, count, problem, monkeypatch):
    def run(words, seconds=0):
        return answer if words[0] == sys.executable else Ran(None, "no such command")

    monkeypatch.setattr(node_facts, "run", run)
    monkeypatch.setattr(node_facts, "_has_library", lambda name: True)
    facts = node_facts.gpus()
    assert (facts["cuda"], facts["count"], facts["problem"]) == (cuda, count, problem)


def test_a_command_that_hangs_is_ended_with_its_children():
    hangs = ["sh", "-c", "sleep 600 & sleep 600"]
    assert node_facts.run(hangs, 0.2) == (None, "it did not finish within 0.2 seconds")
    assert node_facts.run(["/no/such/command"]).code is None
