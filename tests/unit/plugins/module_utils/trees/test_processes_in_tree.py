# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Which processes use a tree: real ones, and /proc as others see it."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import open_files as lease
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import processes_in_tree as in_use

SLEEPER = "import sys; print(1, flush=True); sys.stdin.read()"


@pytest.fixture(name="tree")
def small_tree(tmp_path):
    (tmp_path / "release" / "bin").mkdir(parents=True)
    (tmp_path / "release" / "lib.so").write_bytes(b"x" * 8192)
    (tmp_path / "release-2").mkdir()
    (tmp_path / "release-2" / "lib.so").write_bytes(b"y" * 8192)
    return tmp_path / "release"


@pytest.fixture(name="run")
def runner():
    """Start a Python program that waits; it has done what it does when this returns."""
    started = []

    def run(program, *arguments, **options):
        words = [options.pop("executable_path", sys.executable), "-c", program, *arguments]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
        started.append(process)
        process.stdout.readline()
        return process

    yield run
    for process in started:
        process.communicate()


def uses(tree, **options):
    return in_use.look(str(tree), **options)["processes"]


def test_nobody_uses_a_tree_that_nobody_uses(tree):
    found = in_use.look(str(tree))
    assert (found["in_use"], found["files"], found["processes"], found["held"]) == (False, 1, [], [])


def test_a_process_that_works_in_a_directory_is_named(tree, run):
    process = run(SLEEPER, cwd=str(tree / "bin"))
    (use,) = uses(tree)
    assert (use["pid"], use["how"], use["path"]) == (process.pid, "works in it", str(tree / "bin"))
    assert use["command"].startswith(sys.executable) and use["account"]


def test_a_process_that_has_a_file_mapped_is_named_once(tree, run):
    program = "import mmap; s = open(sys.argv[1], 'rb'); m = mmap.mmap(s.fileno(), 0, prot=mmap.PROT_READ); s.close()"
    process = run("import sys; %s; %s" % (program, SLEEPER), str(tree / "lib.so"))
    (use,) = uses(tree)
    assert (use["pid"], use["how"], use["path"]) == (process.pid, "mapped", str(tree / "lib.so"))


def test_a_process_that_has_a_file_open_is_named(tree, run):
    process = run("import sys; s = open(sys.argv[1], 'rb'); %s" % SLEEPER, str(tree / "lib.so"))
    (use,) = uses(tree)
    assert (use["pid"], use["how"]) == (process.pid, "open")


def test_a_program_of_the_tree_that_runs_is_named(tree):
    shutil.copy("/bin/sleep", str(tree / "bin" / "sleep"))
    process = subprocess.Popen([str(tree / "bin" / "sleep"), "60"])
    try:
        (use,) = uses(tree)
        assert (use["pid"], use["how"], use["command"]) == (process.pid, "program", str(tree / "bin" / "sleep") + " 60")
    finally:
        process.kill()
        process.wait()


def test_a_file_that_was_deleted_while_open_still_counts_by_its_path(tree, run):
    run("import sys; s = open(sys.argv[1], 'rb'); %s" % SLEEPER, str(tree / "lib.so"))
    (tree / "lib.so").unlink()
    assert [use["how"] for use in uses(tree)] == ["open"]


def test_a_process_that_still_names_the_former_place_of_a_moved_tree_uses_it(tree, run):
    run(SLEEPER, cwd=str(tree / "bin"))
    assert uses(tree.parent / "removing") == []
    assert [use["how"] for use in uses(tree.parent / "removing", before=str(tree))] == ["works in it"]


def test_a_tree_whose_name_only_begins_alike_is_another_one(tree, run):
    run("import sys; s = open(sys.argv[1], 'rb'); %s" % SLEEPER, str(tree.parent / "release-2" / "lib.so"))
    assert uses(tree) == []


def test_a_mapped_file_is_known_by_its_inode_where_a_container_sees_another_path(tree, tmp_path):
    status = (tree / "lib.so").stat()
    place = tmp_path / "proc" / "4711"
    (place / "fd").mkdir(parents=True)
    (place / "cwd").symlink_to("/")
    device = "%02x:%02x" % (os.major(status.st_dev), os.minor(status.st_dev))
    (place / "maps").write_text("7f00-7f01 r--p 00000000 %s %d    /image/lib.so\n" % (device, status.st_ino))
    inodes = frozenset({(status.st_dev, status.st_ino)})
    found = in_use.processes(in_use.Tree((os.fsencode(str(tree)),), inodes), str(tmp_path / "proc"))
    assert [(use.pid, use.how, use.path) for use in found.uses] == [(4711, "mapped", "/image/lib.so")]


def test_what_the_kernel_holds_is_in_use_though_no_process_is_seen(tree, tmp_path, monkeypatch):
    with lease.undisturbed():
        if lease.ask(None, str(tree / "lib.so")) == lease.UNSUPPORTED:
            pytest.skip("the file system of the tests has no leases")
    monkeypatch.setattr(lease, "AGAIN", (0.0,))
    (tmp_path / "proc").mkdir()
    with open(str(tree / "lib.so"), "rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ):
        found = in_use.look(str(tree), proc=str(tmp_path / "proc"))
    assert found["in_use"] and found["processes"] == [] and found["held"] == [str(tree / "lib.so")]
    assert found["unseen"] == []


def others(tmp_path, flags):
    """A /proc with one process into which this account may not look."""
    place = tmp_path / "proc" / "4711"
    place.mkdir(parents=True)
    (place / "stat").write_text("4711 (other) S 1 1 1 0 -1 %d " % flags + "0 " * 40)
    for name in ("maps", "fd"):
        (place / name).symlink_to("/proc/1/" + name)
    (tmp_path / "proc" / "self").mkdir()
    (tmp_path / "proc" / "self" / "mountinfo").write_text("")
    return str(tmp_path / "proc")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every process")
def test_what_no_lease_tells_of_others_is_said(tree, tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "ask", lambda directory, name: lease.UNSUPPORTED)
    found = in_use.look(str(tree), proc=others(tmp_path, 0))
    assert found["unseen"] == ["whether a process of another account uses it: its file system has no leases"]
    assert not found["in_use"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every process")
def test_files_that_may_not_be_asked_for_are_said(tree, tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "ask", lambda directory, name: lease.NOT_OURS)
    found = in_use.look(str(tree), proc=others(tmp_path, 0))
    assert found["unseen"] == [
        "whether a process of another account uses it: 1 of its files may not be asked for by this account"]


def test_threads_of_the_kernel_use_nothing(tree, tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "ask", lambda directory, name: lease.UNSUPPORTED)
    assert in_use.look(str(tree), proc=others(tmp_path, 0x00200000))["unseen"] == []


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is hidden from root")
@pytest.mark.parametrize("options, hidden", [
    ("rw", False), ("rw,hidepid=0", False), ("rw,hidepid=2", True), ("rw,gid=5,hidepid=invisible", True),
])
def test_a_proc_that_hides_others_is_known(tmp_path, options, hidden):
    proc = str(tmp_path / "proc")
    os.makedirs(proc + "/self")
    with open(proc + "/self/mountinfo", "w", encoding="utf-8") as stream:
        stream.write("22 1 0:21 / %s rw - proc proc %s\n" % (proc, options))
    assert in_use.hides(proc) is hidden


def test_where_the_file_system_answers_for_its_server_no_file_is_held_and_that_is_said(tree, run, monkeypatch):
    run("import sys; s = open(sys.argv[1], 'rb'); %s" % SLEEPER, str(tree / "lib.so"))
    monkeypatch.setattr(lease, "means_this_host", lambda _path: False)
    monkeypatch.setattr(in_use, "hides", lambda _proc: True)
    found = in_use.look(str(tree))
    assert found["held_count"] == 0 and found["process_count"] == 1
    (sentence,) = found["unseen"]
    assert "has no leases" in sentence


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_tree_that_may_not_be_read_is_not_one_that_nobody_uses(tree, monkeypatch):
    monkeypatch.setattr(in_use, "hides", lambda _proc: True)
    tree.chmod(0)
    try:
        (sentence,) = in_use.look(str(tree))["unseen"]
    finally:
        tree.chmod(0o755)
    assert "may not be read" in sentence
