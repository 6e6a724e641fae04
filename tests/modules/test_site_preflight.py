# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The look at a machine before a rollout, through real Ansible.

Covers machine_facts of module_utils/preflight, too.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys

import pytest

PYTHON = os.path.join(sys.base_prefix, "bin", "python%d.%d" % sys.version_info[:2])
NO_COMPILERS = {"compilers": [], "python_headers": False}


def by_check(result):
    return {found["check"]: found for found in result["findings"]}


def errors(result):
    return [found["check"] for found in result["findings"] if found["severity"] == "error"]


def tree(path):
    """Names, sizes and times of everything below a directory."""
    return sorted(
        (str(entry), entry.lstat().st_size, entry.lstat().st_mtime_ns) for entry in [path, *path.rglob("*")])


needs_compiler = pytest.mark.skipif(not shutil.which("c++") or not shutil.which("cc"), reason="no compiler here")


@needs_compiler
def test_checking_and_looking_in_four_steps_never_changes_anything(run_module, tmp_path):
    root = tmp_path / "soft" / "stacks"
    arguments = {"root": str(root), "required_bytes": 1 << 20, "required_inodes": 10, "python_headers": False}
    for check in (True, False, True, False):
        before = tree(tmp_path)
        result = run_module("site_preflight", arguments, check=check)
        assert not result.failed, result.console
        assert not result.changed and os.listdir(str(tmp_path)) == []
        assert ("probe" in result["facts"]["root"]) is not check
        assert (tree(tmp_path) == before) is check
        assert result["compilers"] == {"CC": "cc", "CXX": "c++"}
        assert result["facts"]["compilers"]["CXX"]["runs"] is True
        assert os.path.realpath(result["python"]["executable"]) == os.path.realpath(PYTHON)
        assert result["python"]["tag"] == "cp%d%d" % sys.version_info[:2] and not result["python"]["in_venv"]


@needs_compiler
@needs_compiler
def test_a_finished_release_needs_no_trial_of_the_compilers(run_module, tmp_path):
    calls, wrapper = tmp_path / "calls", tmp_path / "c++"
    wrapper.write_text('#!/bin/sh\necho "$*" >> %s\nexec c++ "$@"\n' % calls)
    wrapper.chmod(0o755)
    root = tmp_path / "root"
    root.mkdir()
    arguments = {"root": str(root), "mpi": {}, "python_headers": False,
                 "compilers": [{"name": "CXX", "language": "c++", "command": str(wrapper)}]}
    done = run_module("site_preflight", dict(arguments, release_done=True))
    assert not done.failed and not calls.exists()
    full = run_module("site_preflight", arguments)
    assert not full.failed and "-o" in calls.read_text()
    assert full["facts"]["compilers"]["CXX"]["runs"] is True


def test_on_a_machine_that_is_not_the_site_it_says_only_that(run_module, tmp_path):
    result = run_module("site_preflight", {
        "root": "relative", "site": "polaris", "required_commands": ["no-such-command"],
        "expect": {"hostname_globs": ["polaris-login-*"], "paths": [str(tmp_path), "/no/such/soft"],
                   "rehearsal": "ansible-playbook -i inventories/rehearsal/polaris playbooks/polaris.yml"}})
    host = os.uname().nodename
    assert result.failed and result["failed_step"] == "preflight"
    assert result["msg"] == (
        "%s is not the site polaris: its host name is not like polaris-login-*, and it has no /no/such/soft. To try "
        "the playbook on any machine, run its rehearsal: ansible-playbook -i inventories/rehearsal/polaris "
        "playbooks/polaris.yml." % host)
    assert errors(result) == ["site"] and "python" not in result
    here = run_module("site_preflight", dict(
        NO_COMPILERS, root=str(tmp_path), expect={"hostname_globs": [host[:2] + "*"], "paths": [str(tmp_path)]}))
    assert not here.failed and by_check(here)["site"]["ok"]


def test_the_root_alone_is_judged_before_anything_is_asked_of_the_machine(run_module, tmp_path):
    arguments = {"only_root": True, "python": "/no/such/python", "required_bytes": 1 << 60}
    before = tree(tmp_path)
    fine = run_module("site_preflight", dict(arguments, root=str(tmp_path / "root")))
    assert not fine.failed and not fine.changed and "python" not in fine
    # Of a long name there is a warning in place of the note.
    assert set(by_check(fine)) - {"root.path", "root.shebang"} == {"site", "account", "root.writable"}
    assert tree(tmp_path) == before
    (tmp_path / "file").write_text("")
    for root, check in ((tmp_path / "file", "root.writable"), ("/", "root.path"), ("x", "root.path")):
        assert errors(run_module("site_preflight", dict(arguments, root=str(root)))) == [check]


def test_all_errors_are_said_at_once(run_module, tmp_path):
    result = run_module("site_preflight", {
        "root": str(tmp_path / "my soft"), "required_commands": ["no-such-command"],
        "compilers": [{"name": "CXX", "language": "c++", "command": "no-such-compiler"}],
        "python": "/no/such/python", "mpi": {"prefix": "/no/such/mpi"}})
    assert result.failed
    assert errors(result) == ["root.path", "python", "compiler.CXX", "commands", "mpi"]
    for found in result["findings"]:
        if found["severity"] == "error":
            assert found["message"] in result["msg"] and found["remedy"] in result["msg"] and found["remedy"]
    assert "space" in result["msg"]


def test_the_python_that_is_named_must_not_be_a_virtual_environment(run_module, tmp_path):
    if not os.access(PYTHON, os.X_OK):
        pytest.skip("this Python has no %s" % PYTHON)
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    named = str(tmp_path / "venv" / "bin" / "python")
    result = run_module("site_preflight", dict(NO_COMPILERS, root=str(tmp_path / "root"), python=named))
    assert result.failed and errors(result) == ["python.base"] and result["python"]["in_venv"]
    base = result["python"]["base_executable"]
    assert base in result["msg"] and not base.startswith(str(tmp_path))
    result = run_module("site_preflight", dict(NO_COMPILERS, root=str(tmp_path / "root"), python=base))
    assert not result.failed
    result = run_module("site_preflight", dict(
        NO_COMPILERS, root=str(tmp_path / "root"), python=base, python_minimum="3.99"))
    assert result.failed and errors(result) == ["python.version"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_root_of_another_account_is_refused_with_its_name(run_module, tmp_path):
    result = run_module("site_preflight", dict(NO_COMPILERS, root="/usr/lib"))
    assert result.failed and errors(result) == ["root.owner"]
    assert "/usr/lib belongs to root" in result["msg"]
    assert "Run this as root, or choose another root." in result["msg"]
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    result = run_module("site_preflight", dict(NO_COMPILERS, root=str(closed / "root")))
    assert errors(result) == ["root.writable"] and "cannot be created" in result["msg"]


@pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="no pip here")
def test_an_index_that_cannot_be_reached_is_told_with_its_address_and_the_reason(run_module, tmp_path):
    places = {"PIP_INDEX_URL": "http://guest:s3cret@127.0.0.1:9/simple", "PIP_EXTRA_INDEX_URL": ""}
    result = run_module(
        "site_preflight", dict(NO_COMPILERS, root=str(tmp_path / "root"), package_index="pip"), environment=places)
    assert errors(result) == ["index"]
    begin, _, told = result["msg"].partition("127.0.0.1:9/simple/pip/: Connection refused. ")
    assert begin.startswith("pip cannot reach its package index: http://") and "s3cret" not in begin
    assert told.startswith("Correct the network or pip's configuration")


def test_a_root_that_others_can_write_is_warned_of_and_not_refused(run_module, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    root.chmod(0o775)
    result = run_module("site_preflight", dict(NO_COMPILERS, root=str(root)))
    assert not result.failed and by_check(result)["root.mode"]["severity"] == "warning"
    assert "chmod go-w" in " ".join(result.console.split())


def test_s31_the_latency_that_was_measured_is_warned_of_above_the_limit(run_module, tmp_path):
    arguments = dict(NO_COMPILERS, root=str(tmp_path), latency={"files": 5, "warn_ms": 0.0001})
    result = run_module("site_preflight", arguments)
    found = by_check(result)["root.latency"]
    assert found["severity"] == "warning" and result["facts"]["root"]["probe"]["latency"]["files"] == 5
    assert "root.latency" not in by_check(run_module("site_preflight", arguments, check=True))
    assert "root.latency" not in by_check(run_module("site_preflight", dict(arguments, release_done=True)))


def test_s03_the_umask_of_the_caller_is_reported(run_module, tmp_path):
    old = os.umask(0o077)
    try:
        result = run_module("site_preflight", dict(NO_COMPILERS, root=str(tmp_path / "root")))
    finally:
        os.umask(old)
    assert result["facts"]["account"]["umask"] == "0077" and "0077" in by_check(result)["umask"]["message"]


@needs_compiler
def test_s05_compilers_that_look_at_their_own_name_are_called_by_it(run_module, tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "redirect").write_text(
        "#!/bin/sh\ncase ${0##*/} in\n  gcc) exec %s \"$@\" ;;\n  g++) exec %s \"$@\" ;;\n"
        "  *) echo \"no driver is called ${0##*/}\" >&2; exit 1 ;;\nesac\n" % (shutil.which("cc"), shutil.which("c++")))
    (tools / "redirect").chmod(0o755)
    for name in ("gcc", "g++"):
        (tools / name).symlink_to("redirect")
    result = run_module("site_preflight", {
        "root": str(tmp_path / "root"), "python_headers": False, "compilers": [
            {"name": "CC", "language": "c", "command": "gcc"},
            {"name": "CXX", "language": "c++", "command": str(tools / "g++")}]},
        environment={"PATH": "%s:%s" % (tools, os.environ["PATH"])})
    assert not result.failed, result.console
    assert result["compilers"] == {"CC": "gcc", "CXX": str(tools / "g++")}
    assert result["facts"]["compilers"]["CC"]["path"] == str(tools / "gcc")
    assert result["facts"]["compilers"]["CXX"]["runs"] is True


def test_an_mpi_without_a_wrapper_for_cxx_is_refused_with_what_to_do(run_module, tmp_path):
    directory = tmp_path / "mpi" / "bin"
    directory.mkdir(parents=True)
    (directory / "mpicc").write_text("#!/bin/sh\ncat \"$2\"\n")
    (directory / "mpicc").chmod(0o755)
    arguments = dict(NO_COMPILERS, root=str(tmp_path / "root"))
    result = run_module("site_preflight", dict(arguments, mpi={"prefix": str(tmp_path / "mpi")}))
    assert result.failed and errors(result) == ["mpi"]
    assert "has no C++ wrapper" in result["msg"] and "mpi.cxx" in result["msg"]
    bare = {"PATH": "%s:/usr/bin:/bin" % (tmp_path / "empty")}
    if not shutil.which("mpicc", path=bare["PATH"]):
        result = run_module("site_preflight", dict(arguments, mpi={}), environment=bare)
        assert not result.failed and result["mpi"]["provider"] == "wheel"


def through(wrapper):
    """What makes Ansible run modules by this interpreter: of a host that no inventory names it would be its own."""
    inventory = wrapper.with_name("hosts.ini")
    inventory.write_text("localhost ansible_connection=local ansible_python_interpreter=%s\n" % wrapper)
    return {"ANSIBLE_INVENTORY": str(inventory)}


@pytest.fixture
def mounted(tmp_path_factory):
    """An interpreter whose modules see a small tmpfs at a directory, and that directory."""

    def make(options, filled="true"):
        place = tmp_path_factory.mktemp("mount")
        wrapper = tmp_path_factory.mktemp("bin") / "python"
        wrapper.write_text(
            "#!/bin/sh\nexec unshare --user --map-root-user --mount"
            " sh -c 'mount -t tmpfs -o %s none %s && cd %s && %s && exec \"$0\" \"$@\"' %s \"$@\"\n"
            % (options, place, place, filled, sys.executable))
        wrapper.chmod(0o755)
        probe = subprocess.run(
            [str(wrapper), "-c", "pass"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if probe.returncode:
            pytest.skip("no user namespaces here: " + probe.stdout.strip())
        return place, through(wrapper)

    return make


@pytest.mark.parametrize(
    ("options", "asked", "check", "words"),
    [
        ("size=4m", {"required_bytes": 64 << 20}, "root.space", "has 4 MiB free, and the release needs about 64 MiB"),
        ("size=4m,nr_inodes=10", {"required_inodes": 1000}, "root.inodes", "the release needs about 1000"),
        ("ro,size=4m", {}, "root.mount", "is mounted read-only (tmpfs at "),
        ("noexec,size=4m", {}, "root.mount", "where no program can be run (tmpfs at "),
    ],
    ids=["full", "inodes", "ro", "noexec"],
)
def test_a_file_system_that_will_not_do_is_refused(run_module, mounted, options, asked, check, words):
    place, environment = mounted(options)
    for mode in (True, False):
        result = run_module(
            "site_preflight", dict(NO_COMPILERS, root=str(place), **asked), check=mode, environment=environment)
        assert result.failed and errors(result) == [check] and words in result["msg"]


def test_a_resume_needs_what_its_own_release_does_not_have_yet(run_module, mounted):
    filled = "mkdir begun && dd if=/dev/zero of=begun/wheel bs=1M count=40 2> /dev/null"
    place, environment = mounted("size=64m", filled)
    asked = dict(NO_COMPILERS, root=str(place), required_bytes=60 << 20)
    resumed = run_module("site_preflight", dict(asked, release="begun"), environment=environment)
    assert not resumed.failed, resumed["msg"]
    words = " ".join(found["message"] for found in resumed["findings"])
    assert "the release needs about 20 MiB more, of 60 MiB in all: 40 MiB are there already." in words
    other = run_module("site_preflight", dict(asked, release="another"), environment=environment)
    assert other.failed and "has 24 MiB free, and the release needs about 60 MiB." in other["msg"]


def test_a_limit_that_free_space_does_not_show_is_found_by_reserving(run_module, tmp_path, tmp_path_factory):
    wrapper = tmp_path_factory.mktemp("bin") / "python"
    wrapper.write_text("#!/bin/sh\nulimit -f 4096\nexec %s \"$@\"\n" % sys.executable)
    wrapper.chmod(0o755)
    arguments = dict(NO_COMPILERS, root=str(tmp_path / "root"), required_bytes=1 << 30)
    environment = through(wrapper)
    result = run_module("site_preflight", arguments, environment=environment)
    assert result.failed and errors(result) == ["root.space"] and "ulimit -f" in result["msg"]
    for free in ({"reserve": False}, {"release_done": True}):
        assert not run_module("site_preflight", dict(arguments, **free), environment=environment).failed
    assert not run_module("site_preflight", arguments, check=True, environment=environment).failed
    assert os.listdir(str(tmp_path)) == []
