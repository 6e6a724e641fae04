# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What facts about a machine mean for a rollout."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.findings import failure
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight import machine_checks


def only(findings):
    """The one finding there is."""
    assert len(findings) == 1, findings
    return findings[0]


def here(host, missing_paths, machine="x86_64"):
    """What a machine says of itself."""
    return {"host": host, "machine": machine, "missing_paths": missing_paths}


@pytest.mark.parametrize("host", ["polaris-login-01", "polaris-login-01.hsn.cm.polaris.alcf.anl.gov", "x3005c0s1b0n0"])
def test_the_site_is_recognised_by_its_host_name_and_paths(host):
    found = only(machine_checks.judge_site(here(host, []), {"hostname_globs": ["polaris-login-*", "x3*"]}, "polaris"))
    assert found.ok and found.severity == "note"


def test_a_site_whose_compute_nodes_are_of_another_kind_is_rolled_out_on_one_of_them():
    expect = {"machine": "aarch64", "hostname_globs": ["login*", "nid*"]}
    found = only(machine_checks.judge_site(here("login1", []), expect, "x"))
    assert not found.ok
    assert found.message == (
        "login1 is x86_64, and releases of the site x are for aarch64, whose programs do not run here.")
    assert "in a job on a compute node, with launcher: local under torchstack_jobs" in found.remedy
    assert only(machine_checks.judge_site(here("nid001", [], "aarch64"), expect, "x")).ok


def test_a_site_that_expects_nothing_is_any_machine():
    assert only(machine_checks.judge_site(here("vm", []), {}, "")).ok


def test_a_machine_that_is_not_the_site_is_told_so_in_one_sentence_with_the_rehearsal():
    expect = {"hostname_globs": ["polaris-login-*", "x3*"], "rehearsal": "ansible-playbook -i rehearsal polaris.yml"}
    found = only(machine_checks.judge_site(here("vm", ["/soft", "/opt/cray"]), expect, "polaris"))
    assert found.message == (
        "vm is not the site polaris: its host name is not like polaris-login-* or x3*, "
        "and it has no /soft and no /opt/cray.")
    assert found.remedy == (
        "To try the playbook on any machine, run its rehearsal: ansible-playbook -i rehearsal polaris.yml.")
    assert failure([found]) == found.message + " " + found.remedy


def test_where_there_is_no_rehearsal_lint_is_named():
    found = only(machine_checks.judge_site(here("vm", ["/soft"]), {}, "polaris"))
    assert found.remedy == "Run it there; the playbook lint looks for mistakes in the site's data on any machine."


def test_root_is_told_what_it_cannot_see():
    found = only(machine_checks.judge_account(0, "root", "0022"))
    assert found.severity == "note" and found.ok and "permissions" in found.message and found.remedy
    assert only(machine_checks.judge_account(1001, "stacks", "0022")).remedy == ""


def test_s03_the_callers_umask_is_reported_and_does_not_matter():
    findings = machine_checks.judge_account(1001, "stacks", "0077")
    assert findings[1].message == "The caller's umask is 0077; every step runs under 0022 all the same."
    assert failure(findings) == ""


PYTHON = {
    "command": "python3", "problem": "", "executable": "/usr/bin/python3", "version": "3.11.2", "minor": "3.11",
    "base_executable": "/usr/bin/python3.11", "in_venv": False, "venv": True, "ensurepip": True, "headers": True,
    "include_dir": "/usr/include/python3.11",
}
WANTED = {
    "python": "", "python_minimum": "3.9", "module_python_minimum": "3.8", "python_venv": True, "python_headers": True}


def python(module_python=None, wanted=None, **changes):
    return machine_checks.judge_python(dict(PYTHON, **changes), module_python or PYTHON, wanted or WANTED)


def test_a_python_that_has_everything_will_do():
    assert only(python()).ok


@pytest.mark.parametrize(
    ("changes", "check", "words"),
    [
        ({"problem": "it cannot be run (No such file or directory)"}, "python", "python3 does not answer"),
        ({"version": "3.8.18"}, "python.version", "is Python 3.8.18, and 3.9 is needed"),
        ({"in_venv": True}, "python.base", "inside a virtual environment"),
        ({"venv": False, "ensurepip": False}, "python.venv", "lacks venv and ensurepip"),
        ({"ensurepip": False}, "python.venv", "lacks ensurepip"),
        ({"headers": False}, "python.headers", "no Python.h in /usr/include/python3.11"),
    ],
)
def test_what_a_python_lacks_is_an_error_with_its_remedy(changes, check, words):
    found = only(python(**changes))
    assert found.severity == "error" and found.check == check and words in found.message and found.remedy


def test_the_base_of_a_virtual_environment_is_named():
    assert only(python(in_venv=True)).remedy == "Name its base as release_python or base.python: /usr/bin/python3.11."


def test_what_is_not_needed_is_not_asked_for():
    assert only(python(wanted=dict(WANTED, python_venv=False, python_headers=False), venv=False, headers=False)).ok


def test_a_python_of_another_age_only_tells_its_version():
    old = {"command": "python2", "problem": "", "executable": "/usr/bin/python2", "version": "2.7.18"}
    found = only(machine_checks.judge_python(old, PYTHON, dict(WANTED, python="python2")))
    assert found.check == "python.version"


def test_the_python_of_the_modules_has_a_floor_of_its_own():
    wanted = dict(WANTED, python="/opt/python", python_minimum="3.11")
    assert only(python(dict(PYTHON, executable="/usr/bin/python3.9", version="3.9.1"), wanted)).ok
    found = only(python(dict(PYTHON, executable="/usr/bin/python3.6", version="3.6.15"), wanted))
    assert "3.6.15, and 3.8 is needed" in found.message and "ansible_python_interpreter" in found.remedy


CXX = {"name": "CXX", "language": "c++"}
FOUND = {
    "command": "g++", "path": "/usr/bin/g++", "origin": "search", "tried": ["c++", "g++"], "standard": "c++17",
    "compiles": True, "runs": True, "complaint": ""}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"path": "", "command": ""}, "No compiler for C++ was found on PATH: tried c++, g++."),
        ({"path": "", "command": "icpx", "origin": "environment"},
         "CXX in the environment is 'icpx', which is not on PATH."),
        ({"path": "", "command": "icpx", "origin": "option"}, "CXX is 'icpx', which is not on PATH."),
        ({"compiles": False, "complaint": "x.cpp:1: error: no."},
         "CXX is 'g++' (/usr/bin/g++), which cannot compile and link a small C++ program (c++17): x.cpp:1: error: no."),
        ({"runs": False, "complaint": "it ended by signal 4"},
         "CXX is 'g++' (/usr/bin/g++), and a small C++ program (c++17) that it compiled does not run here: "
         "it ended by signal 4."),
    ],
)
def test_a_compiler_that_is_missing_or_does_not_work_is_an_error(changes, words):
    found = only(machine_checks.judge_compilers({"CXX": dict(FOUND, **changes)}, [CXX]))
    assert found.severity == "error" and found.message == words and "CXX" in found.sentence and found.remedy


@pytest.mark.parametrize("runs", [True, None])
def test_a_compiler_that_works_is_noted_and_one_that_was_not_tried_is_not(runs):
    assert only(machine_checks.judge_compilers({"CXX": dict(FOUND, runs=runs)}, [CXX])).ok
    untried = {key: value for key, value in FOUND.items() if key not in ("compiles", "runs", "complaint", "standard")}
    assert machine_checks.judge_compilers({"CXX": untried}, [CXX]) == []


def test_all_missing_commands_are_named_at_once():
    assert only(machine_checks.judge_commands({"git": "", "make": "/usr/bin/make", "tar": ""})).message == (
        "Not on PATH: git, tar.")
    assert only(machine_checks.judge_commands({"git": "/usr/bin/git"})).ok
    assert machine_checks.judge_commands({}) == []


MPI = {
    "provider": "path", "cc": "/m/bin/mpicc", "cxx": "/m/bin/mpicxx", "launcher": "/m/bin/mpiexec", "looked_for": "",
    "vendor": "MPICH", "version": "4.3.2", "launcher_vendor": "MPICH", "header": True, "complaint": "",
    "library_dirs": ["/m/lib"], "cxx_library_dirs": ["/m/lib"]}


@pytest.mark.parametrize("changes", [{}, {"provider": "wheel"}, {"library_dirs": []}, {"launcher_vendor": "PALS"}])
def test_a_whole_mpi_is_noted(changes):
    assert only(machine_checks.judge_mpi(dict(MPI, **changes))).ok


@pytest.mark.parametrize(
    ("changes", "severity", "words"),
    [
        ({"provider": ""}, "error", "There is no MPI"),
        ({"cc": "", "looked_for": "/m/bin/mpicc"}, "error", "no C wrapper: /m/bin/mpicc is not there"),
        ({"header": False, "complaint": "mpi.h: No such file or directory"}, "error", "cannot compile: mpi.h: No such"),
        ({"cxx": ""}, "error", "has no C++ wrapper: there is no mpicxx, mpic++, mpiCC beside it"),
        ({"cxx_library_dirs": ["/o/lib"]}, "error", "belong to different MPIs: they link from /m/lib and from /o/lib"),
        ({"launcher": ""}, "warning", "No mpiexec or mpirun"),
        ({"launcher_vendor": "Open MPI"}, "warning", "every rank would be alone"),
        ({"launcher_complaint": "plm_rsh_agent: ssh : rsh"}, "error", "cannot start a process on this machine"),
    ],
)
def test_an_mpi_that_is_not_whole_is_refused_with_what_to_do(changes, severity, words):
    found = only(machine_checks.judge_mpi(dict(MPI, **changes)))
    assert found.severity == severity and words in found.message and found.remedy


def test_the_module_system_or_why_there_is_none_is_noted():
    assert only(machine_checks.judge_modules({"kind": "lmod", "version": "8.7", "problem": ""})).message == (
        "Module system: lmod 8.7.")
    assert only(machine_checks.judge_modules({"kind": "none", "version": "", "problem": "None was found."})).ok


def test_all_errors_are_said_at_once_and_warnings_are_not_errors():
    findings = machine_checks.judge_commands({"git": ""}) + machine_checks.judge_mpi(dict(MPI, launcher=""))
    findings += machine_checks.judge_mpi(dict(MPI, provider=""))
    assert failure(findings) == (
        "Not on PATH: git. Install them or load their modules. There is no MPI: mpicc is not on PATH, and the wheel is "
        "not allowed. Load the site's MPI module, name its installation as mpi.prefix, or allow mpi.wheel.")


@pytest.mark.parametrize(
    "facts, severity, words",
    [
        ({"answers": True, "complaint": ""}, "note", "reaches its package index"),
        ({"answers": None, "complaint": ""}, "note", "was not checked"),
        ({"answers": False, "complaint": "Name or service not known"}, "error", "cannot reach its package index: Name"),
    ],
    ids=["reached", "no pip", "not reached"],
)
def test_an_index_that_cannot_be_reached_is_an_error(facts, severity, words):
    (finding,) = machine_checks.judge_index(facts)
    assert finding.severity == severity
    assert words in finding.message
