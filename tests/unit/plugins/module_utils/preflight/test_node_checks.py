# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a compute node's facts mean for the builds that will run there.

Covers gpu_checks, too.
"""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.findings import ERROR, NOTE, WARNING
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight import node_checks

GIB = 1 << 30
MACHINE = {
    "host": "n1", "system": "SLES 15", "kernel": "5", "architecture": "x86_64", "glibc": "2.31", "processor": "A",
    "flags": ["avx", "avx2"], "uid": 1001,
}
NO_GPUS = {"driver": "", "cuda": None, "count": None, "names": [], "problem": ""}
A100 = {"driver": "535.104.05", "cuda": 12020, "count": 4, "names": ["A100"] * 4, "problem": ""}
FACTS = {
    "nonce": "7", "machine": MACHINE, "python": {"executable": "/usr/bin/python3", "version": "3.11.2"},
    "capacity": {"cores": 64, "machine_cores": 64, "memory": 240 * GIB, "machine_memory": 512 * GIB},
    "shared": {"nonce": "7", "waited": 0.0, "prefix": True, "problem": ""},
    "tmpdirs": [{"path": "/local/scratch", "problem": "", "runs": True, "socket": "", "free": 100 * GIB}],
    "gpus": NO_GPUS, "modules": {"command": True, "failed": {}, "inits": []},
    "programs": {"python": {"command": "/usr/bin/python3", "path": "/usr/bin/python3", "version": "3.11.2"}},
}
WANTED = {"nonce": "7", "prefix": "/soft/r1", "python": "3.11.2", "node": {}, "options": {}, "gpus": 0}


def judged(part=None, changes=None, node=None, options=None, login=None, tmpdir=None):
    facts = dict(FACTS, **({part: dict(FACTS[part], **changes)} if part else {}))
    facts["tmpdirs"] = [dict(FACTS["tmpdirs"][0], **(tmpdir or {}))]
    wanted = dict(WANTED, node=node or {}, options=options or {})
    return node_checks.judge(facts, wanted, dict(MACHINE, host="login", **(login or {})))


def bad(findings):
    return [(finding.check, finding.severity) for finding in findings if finding.severity != NOTE]


def said(findings, check):
    return " ".join(finding.message for finding in findings if finding.check == check)


def test_a_node_as_the_site_describes_it_passes():
    node = {"cores": 64, "memory": "240G", "tmpdir": "/local/scratch", "tmpdir_space": "20G"}
    findings = judged(node=node)
    assert bad(findings) == []
    alike = "n1 is like the login side: SLES 15, glibc 2.31, the same instruction sets."
    assert said(findings, "compute.machine") == alike
    assert said(findings, "compute.gpus") == "GPUs and their driver were not checked: the site's data speaks of none."
    assert said(findings, "compute.modules") == "No modules were tried: torchstack_jobs.node.modules names none."


def test_every_problem_has_a_remedy():
    broken = dict(
        FACTS, shared=dict(FACTS["shared"], nonce=""),
        tmpdirs=[dict(FACTS["tmpdirs"][0], runs=False, path="/" + "x" * 60, free=0)],
        capacity=dict(FACTS["capacity"], cores=2, memory=GIB), gpus=dict(A100, count=1, problem="cuInit answers 999"),
        modules={"command": True, "failed": {"gcc/12": "unknown"}, "inits": []}, programs={
            "CC": {"command": "cc", "path": "", "version": ""}}, machine=dict(MACHINE, uid=5),
    )
    node = {"cores": 64, "memory": "240G", "cuda": "13.0", "modules": ["gcc/12"]}
    wanted = dict(WANTED, node=node, gpus=4)
    findings = node_checks.judge(broken, wanted, MACHINE)
    errors = [finding for finding in findings if finding.severity == ERROR]
    assert {finding.check for finding in errors} == {
        "compute." + name for name in (
            "prefix", "tmpdir", "cores", "memory", "gpus", "driver", "modules", "programs", "machine")}
    assert all(finding.remedy.endswith(".") and finding.message.endswith(".") for finding in errors)


@pytest.mark.parametrize(("changes", "text"), [
    ({"nonce": "", "waited": 60.0},
     "n1 does not see what was written for it on the login side, even after 60 seconds."),
    ({"nonce": "6", "waited": 60.0},
     "n1 does not see what was written for it on the login side, even after 60 seconds."),
    ({"prefix": False, "problem": "No such file or directory"}, "n1 has no directory /soft/r1."),
    ({"problem": "Read-only file system"}, "n1 cannot write in /soft/r1: Read-only file system."),
])
def test_a_prefix_that_the_node_does_not_see_or_may_not_write_is_refused(changes, text):
    findings = judged("shared", changes)
    assert bad(findings) == [("compute.prefix", ERROR)]
    assert said(findings, "compute.prefix") == text


def test_a_late_file_system_is_told():
    assert bad(judged("shared", {"waited": 12.5})) == [("compute.prefix", WARNING)]


@pytest.mark.parametrize(("changes", "node", "severity", "text"), [
    ({"problem": "No such file or directory"}, {}, ERROR, "cannot be written on n1, in /local/scratch: No such file"),
    ({"runs": False}, {}, ERROR, "without the right to run programs (noexec)"),
    ({"path": "/" + "x" * 60}, {}, ERROR, "has 61 characters: with more than 60"),
    ({"socket": "Operation not supported"}, {}, WARNING, "No socket can be made in /local/scratch"),
    ({"free": 19 * GIB}, {"tmpdir_space": "20G"}, ERROR, "has 19 GiB free, and 20 GiB is needed"),
    ({"free": GIB}, {}, WARNING, "has 1 GiB free, and 2 GiB is needed"),
])
def test_a_directory_for_temporary_files_has_to_be_good_for_builds(changes, node, severity, text):
    findings = judged(tmpdir=changes, node=node)
    assert bad(findings) == [("compute.tmpdir", severity)]
    assert text in said(findings, "compute.tmpdir")


def test_sixty_characters_are_just_short_enough():
    assert bad(judged(tmpdir={"path": "/" + "x" * 59})) == []


def test_the_job_s_own_tmpdir_counts_beside_the_one_that_the_site_names():
    tried = [dict(FACTS["tmpdirs"][0], path=path, runs=False) for path in ("/tmp", "/local/scratch")]
    wanted = dict(WANTED, node={"tmpdir": "/local/scratch"})
    findings = [one for one in node_checks.judge(dict(FACTS, tmpdirs=tried), wanted, MACHINE) if one.severity == ERROR]
    assert [one.check for one in findings] == ["compute.tmpdir"] * 2
    assert {finding.remedy for finding in findings[:2]} == {"Name another directory as torchstack_jobs.node.tmpdir."}


@pytest.mark.parametrize(("node", "options", "fails"), [
    ({"cores": 64}, {}, False), ({"cores": 65}, {}, True), ({}, {"cores": 65}, True), ({}, {}, False),
    ({"cores": 32}, {"cores": 128}, False),
])
def test_cores_are_what_the_site_s_node_says_else_what_the_job_asks_for(node, options, fails):
    assert bad(judged(node=node, options=options)) == ([("compute.cores", ERROR)] if fails else [])


def test_a_quota_of_the_control_group_counts_as_cores_do():
    findings = judged("capacity", {"cores": 1.5}, {"cores": 2})
    assert said(findings, "compute.cores") == "A job may use 1.5 of the 64 processors of n1, and 2 are expected."


@pytest.mark.parametrize(("memory", "node", "options", "fails"), [
    (240 * GIB, {"memory": "240G"}, {}, False), (217 * GIB, {"memory": "240G"}, {}, False),
    (215 * GIB, {"memory": "240G"}, {}, True), (240 * GIB, {}, {"memory": "1T"}, True),
    (GIB, {"memory": "1024 MB"}, {}, False), (None, {"memory": "240G"}, {}, False), (1, {}, {}, False),
])
def test_memory_is_what_the_site_says_but_for_what_the_kernel_keeps(memory, node, options, fails):
    findings = judged("capacity", {"memory": memory}, node, options)
    assert bad(findings) == ([("compute.memory", ERROR)] if fails else [])


@pytest.mark.parametrize(("changes", "toolkit", "severity", "text"), [
    ({}, "12.2", None, "speaks CUDA 12.2, which runs programs of CUDA 12.2"),
    ({}, "12.2.1", None, "runs programs of CUDA 12.2.1"),
    ({}, "11.8", None, "runs programs of CUDA 11.8"),
    ({}, "12.4", WARNING, "speaks CUDA 12.2, and the toolkit is 12.4: programs run, but the driver cannot compile"),
    ({}, "13.0", ERROR, "speaks CUDA 12.2, which does not run programs of CUDA 13.0"),
    ({"cuda": 10010}, "10.2", ERROR, "speaks CUDA 10.1, which does not run"),
    ({"cuda": None}, "12.4", None, "The driver 535.104.05 on n1 runs programs of CUDA 12."),
    ({"cuda": None}, "13.0", ERROR, "does not run programs of CUDA 13.0, which needs 580 or newer"),
    ({"cuda": None, "driver": "440.33.01"}, "10.2", None, "runs programs of CUDA 10"),
    ({"cuda": None, "driver": "440.31"}, "10.2", ERROR, "which needs 440.33 or newer"),
    ({"cuda": None}, "99.0", None, "It is not known whether the driver 535.104.05 on n1 runs programs of CUDA 99.0."),
    ({"cuda": 12040, "driver": ""}, "12.4", None, "The driver of unknown version on n1 speaks CUDA 12.4"),
])
def test_the_driver_has_to_run_what_the_toolkit_makes(changes, toolkit, severity, text):
    facts = dict(FACTS, gpus=dict(A100, **changes))
    findings = node_checks.judge(facts, dict(WANTED, node={"cuda": toolkit}), MACHINE)
    assert bad(findings) == ([("compute.driver", severity)] if severity else [])
    assert text in said(findings, "compute.driver")


@pytest.mark.parametrize(("gpus", "node", "asked", "failed"), [
    (NO_GPUS, {"cuda": "12.4"}, 0, ["compute.gpus"]),
    (NO_GPUS, {}, 4, ["compute.gpus"]),
    (NO_GPUS, {}, 0, []),
    (A100, {}, 4, []),
    (dict(A100, count=0), {}, 1, ["compute.gpus"]),
    (dict(A100, count=None, problem="cuInit answers with error 999"), {}, 4, ["compute.gpus"]),
    (A100, {}, 8, ["compute.gpus"]),
    (A100, {}, 0, []),
])
def test_gpus_are_looked_at_where_the_site_speaks_of_them(gpus, node, asked, failed):
    findings = node_checks.judge(dict(FACTS, gpus=gpus), dict(WANTED, node=node, gpus=asked), MACHINE)
    assert [check for check, _severity in bad(findings)] == failed


def test_gpus_of_another_maker_stop_nothing():
    findings = node_checks.judge(dict(FACTS, gpus=NO_GPUS), dict(WANTED, gpus=8), MACHINE)
    assert bad(findings) == [("compute.gpus", WARNING)]
    assert said(findings, "compute.gpus") == "n1 has no driver of NVIDIA; its GPUs were not looked at."


def test_modules_have_to_load_in_a_plain_shell():
    node = {"modules": ["gcc/12", "cuda"]}
    assert said(judged(node=node), "compute.modules") == "On n1 load: gcc/12, cuda."
    findings = judged("modules", {"failed": {"cuda": "unknown module"}}, node)
    assert said(findings, "compute.modules") == "The module cuda does not load on n1: unknown module."
    findings = judged("modules", {"command": False, "inits": ["/etc/profile.d/lmod.sh"]}, node)
    assert bad(findings) == [("compute.modules", ERROR)]
    remedy = next(finding.remedy for finding in findings if finding.severity == ERROR)
    assert "for example /etc/profile.d/lmod.sh as torchstack_jobs.node.module_init" in remedy


@pytest.mark.parametrize(("program", "text"), [
    ({"command": "/opt/python3", "path": "", "version": ""},
     "n1 has no /opt/python3, which is python on the login side."),
    ({"command": "/opt/python3", "path": "/opt/python3", "version": "3.6.15"},
     "/opt/python3 is Python 3.11.2 on the login side and 3.6.15 on n1."),
    ({"command": "/opt/python3", "path": "/opt/python3", "version": ""},
     "/opt/python3 is Python 3.11.2 on the login side and does not answer on n1."),
])
def test_the_release_s_python_has_to_be_the_same_on_both_sides(program, text):
    findings = judged("programs", {"python": program})
    assert bad(findings) == [("compute.programs", ERROR)]
    assert said(findings, "compute.programs") == text


@pytest.mark.parametrize(("changes", "severities", "text"), [
    ({"glibc": "2.28"}, [], "glibc is 2.28 on n1 and 2.31 on the login side"),
    ({"system": "RHEL 8"}, [], "n1 runs RHEL 8, the login side SLES 15."),
    ({"flags": ["avx"]}, [], "The processor of the login side knows what that of n1 does not: avx2."),
    ({"flags": ["avx", "avx2", "avx512f"]}, [],
     "The processor of n1 knows what that of the login side does not: avx512f."),
    ({"flags": ["avx", "avx2", *("x%d" % number for number in range(9))]}, [], "x7 and 1 more."),
    ({"uid": 7}, [ERROR], "The account has uid 7 on n1 and 1001 on the login side."),
    ({"architecture": "aarch64"}, [ERROR], "n1 is aarch64, and the login side is x86_64."),
])
def test_differences_between_the_sides_are_told(changes, severities, text):
    findings = judged("machine", changes)
    assert [severity for _check, severity in bad(findings)] == severities
    assert text in said(findings, "compute.machine")


def test_a_node_of_another_kind_is_answered_with_where_the_rollout_has_to_run():
    (found,) = [finding for finding in judged("machine", {"architecture": "aarch64"}) if not finding.ok]
    assert "in a job on a compute node; release_expect.machine: aarch64 then refuses" in found.remedy


@pytest.mark.parametrize(("text", "size"), [
    ("1K", 1024), ("240G", 240 * GIB), ("2 TiB", 2048 * GIB), ("512mb", GIB // 2),
])
def test_sizes_are_counted_as_batch_systems_do(text, size):
    assert node_checks.parse_size(text) == size


def test_a_size_without_a_unit_is_none():
    with pytest.raises(ValueError, match="'240' is no size"):
        node_checks.parse_size("240")


@pytest.mark.parametrize(("size", "words"), [
    (512, "512 bytes"), (3 << 20, "3 MiB"), (1.5 * GIB, "1.5 GiB"), (2 << 40, "2 TiB"),
])
def test_sizes_are_told_in_the_unit_that_fits(size, words):
    assert node_checks.format_bytes(size) == words


def test_modules_of_a_release_are_corrected_in_its_file():
    node = {"modules": ["gcc/12"], "of_toolchain": True}
    findings = judged("modules", {"failed": {"gcc/12": "unknown"}}, node)
    (finding,) = [found for found in findings if found.severity == ERROR]
    assert finding.remedy.startswith("Correct toolchain.modules in the release file")
