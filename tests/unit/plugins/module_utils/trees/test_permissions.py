# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A pass over a tree: what it changes, what it reports, and what it survives."""

from __future__ import annotations

import os
import random
import resource
import stat
import subprocess
import sys
import threading
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.text import shortly
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import permissions as tree_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import workers as tree_workers
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees.counters import as_result, problem
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees.permissions import Pass, compile_globs
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees.policy import Policy

not_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may do what this test expects to be refused")


def mode(path):
    return stat.S_IMODE(os.lstat(str(path)).st_mode)


def over(one_pass, top):
    return one_pass.over(os.path.dirname(str(top)), os.path.basename(str(top)))


def go(top, state="frozen", apply=True, **options):
    """One pass, as the module's result."""
    return as_result(over(Pass(Policy(state), apply, **options), top))


@pytest.fixture()
def top(tmp_path):
    top = tmp_path / "release"
    (top / "bin").mkdir(parents=True)
    (top / "lib" / "deep").mkdir(parents=True)
    for name, bits in (("bin/tool", 0o755), ("lib/data", 0o640), ("lib/deep/x.so", 0o775)):
        (top / name).write_text(name)
        (top / name).chmod(bits)
    (top / "lib" / "link").symlink_to("data")
    for name in ("", "bin", "lib", "lib/deep"):
        (top / name).chmod(0o755)
    yield top
    go(top, "writable")


@pytest.fixture()
def writable_directories():
    """A pass that freezes files and leaves directories alone, so that a test can play the one who swaps names."""
    one_pass = Pass(Policy("frozen"), True)
    one_pass.policy.rules["directories"] = "u+w"
    return one_pass


def test_freezing_changes_everything_once_and_then_nothing(top):
    first = go(top)
    assert (first["changed_files"], first["changed_directories"]) == (3, 4)
    assert (first["files"], first["directories"], first["symlinks"]) == (3, 4, 1)
    assert {entry["path"]: (entry["from"], entry["to"]) for entry in first["drift"]} == {
        ".": ("0755", "0555"), "bin": ("0755", "0555"), "bin/tool": ("0755", "0555"), "lib": ("0755", "0555"),
        "lib/data": ("0640", "0444"), "lib/deep": ("0755", "0555"), "lib/deep/x.so": ("0775", "0555"),
    }
    second = go(top)
    assert (second["changed_files"], second["changed_directories"], second["drift"]) == (0, 0, [])


def test_thawing_gives_the_owner_the_write_bit_and_nothing_else(top):
    go(top)
    go(top, "writable")
    assert [mode(top / name) for name in ("", "bin/tool", "lib/data")] == [0o755, 0o755, 0o644]


def test_check_mode_reports_the_same_and_changes_nothing(top):
    planned = go(top, apply=False)
    assert mode(top / "lib" / "data") == 0o640
    done = go(top)
    for key in ("files", "directories", "changed_files", "changed_directories", "drift", "drift_total", "special"):
        assert planned[key] == done[key], key


def test_a_frozen_tree_is_only_read(top, monkeypatch):
    go(top)
    one_pass = Pass(Policy("frozen"), True)
    with monkeypatch.context() as patched:
        patched.setattr(one_pass, "chmod", lambda *_arguments: pytest.fail("a mode was changed"))
        patched.setattr(tree_module.os, "fchmod", lambda *_arguments: pytest.fail("a mode was changed"))
        assert over(one_pass, top).files == 3


def test_links_are_counted_and_never_followed(top):
    outside = top.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("")
    (outside / "file").chmod(0o666)
    outside.chmod(0o777)
    (top / "to-directory").symlink_to(outside)
    (top / "to-file").symlink_to(outside / "file")
    (top / "dangling").symlink_to("nothing")
    assert go(top)["symlinks"] == 4
    assert (mode(outside), mode(outside / "file")) == (0o777, 0o666)


@pytest.mark.parametrize("way", ["_chmod_library", "_chmod_by_hand", "choose_chmod"])
def test_a_file_swapped_for_a_link_before_its_chmod_does_not_lead_outside(top, writable_directories, way):
    from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import dir_handles as directories

    victim = top.parent / "victim"
    victim.write_text("")
    victim.chmod(0o666)
    real = directories.choose_chmod() if way == "choose_chmod" else getattr(directories, way)

    def swapping(directory, name, bits):
        if name == "data":
            os.unlink(name, dir_fd=directory)
            os.symlink(str(victim), name, dir_fd=directory)
        real(directory, name, bits)

    writable_directories.chmod = swapping
    result = as_result(over(writable_directories, top))
    assert mode(victim) == 0o666
    assert result["vanished"] == 1
    assert result["changed_files"] == 2


def test_a_directory_swapped_for_a_link_before_it_is_opened_does_not_lead_outside(
    top, writable_directories, monkeypatch
):
    outside = top.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("")
    (outside / "file").chmod(0o666)
    real = os.open

    def swapping(name, flags, *arguments, dir_fd=None):
        if name == "deep":
            os.rename("deep", "moved", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
            os.symlink(str(outside), "deep", dir_fd=dir_fd)
        return real(name, flags, *arguments, dir_fd=dir_fd)

    with monkeypatch.context() as patched:
        patched.setattr(tree_module.os, "open", swapping)
        result = as_result(over(writable_directories, top))
    assert result["vanished"] == 1
    assert mode(outside / "file") == 0o666


def test_names_that_vanish_during_the_walk_are_counted_and_survived(top, writable_directories, monkeypatch):
    real = os.stat

    def removing(name, **options):
        if name == "data":
            os.unlink(name, dir_fd=options["dir_fd"])
        return real(name, **options)

    with monkeypatch.context() as patched:
        patched.setattr(tree_module.os, "stat", removing)
        result = as_result(over(writable_directories, top))
    assert result["vanished"] == 1
    assert mode(top / "bin" / "tool") == 0o555


def test_a_directory_that_vanishes_during_the_walk_is_counted_and_survived(top, writable_directories, monkeypatch):
    real = os.open

    def removing(name, flags, *arguments, dir_fd=None):
        if name == "deep":
            os.unlink("deep/x.so", dir_fd=dir_fd)
            os.rmdir("deep", dir_fd=dir_fd)
        return real(name, flags, *arguments, dir_fd=dir_fd)

    with monkeypatch.context() as patched:
        patched.setattr(tree_module.os, "open", removing)
        assert over(writable_directories, top).vanished == 1


def test_s03_freeze_repairs_directories_left_at_2500_and_reports_them(top):
    for name in ("lib", "lib/deep"):
        (top / name).chmod(0o2500)
    (top / "lib" / "data").chmod(0o400)
    result = go(top)
    assert (mode(top / "lib"), mode(top / "lib" / "deep")) == (0o2555, 0o2555)
    assert {"path": "lib/deep", "from": "2500", "to": "2555"} in result["drift"]
    assert {"path": "lib", "from": "2500", "to": "2555"} in result["drift"]
    assert mode(top / "lib" / "data") == 0o444


@pytest.mark.parametrize("bits", [0o000, 0o100, 0o200, 0o300, 0o400, 0o600, 0o2000])
def test_directories_that_cannot_be_read_or_searched_yet_are_repaired_first(top, bits):
    (top / "lib" / "deep").chmod(bits)
    (top / "lib").chmod(bits)
    result = go(top)
    assert result["files"] == 3
    assert mode(top / "lib" / "deep" / "x.so") == 0o555
    assert mode(top / "lib") == 0o555 | bits & 0o7000


def test_the_tree_itself_may_be_unreadable_before(top):
    top.chmod(0)
    assert go(top)["files"] == 3
    assert mode(top) == 0o555


@not_root
@pytest.mark.parametrize("bits", [0o000, 0o200, 0o600])
def test_check_mode_names_directories_that_it_cannot_look_into(top, bits):
    (top / "lib").chmod(bits)
    result = go(top, apply=False)
    assert result["unseen"] == ["lib"]
    assert {"path": "lib", "from": "%04o" % bits, "to": "0555"} in result["drift"]
    assert mode(top / "lib") == bits
    go(top)


@not_root
def test_a_directory_that_stays_unreadable_is_an_error_by_name(top):
    (top / "lib").chmod(0o200)
    error = problem(over(Pass(Policy("writable"), True), top), str(top))
    assert error.details["refused"] == ["lib (Permission denied)"]
    go(top)


def test_special_files_are_reported_and_not_left_writable(top):
    os.mkfifo(str(top / "pipe"))
    (top / "pipe").chmod(0o666)
    (top / "suid").write_text("")
    (top / "suid").chmod(0o4755)
    result = go(top)
    assert result["special"] == [
        {"path": "pipe", "kind": "fifo", "mode": "0666"}, {"path": "suid", "kind": "setuid", "mode": "4755"},
    ]
    assert (mode(top / "pipe"), mode(top / "suid")) == (0o444, 0o4555)
    assert go(top)["special_total"] == 2


def test_hard_links_are_counted_and_those_with_a_name_outside_told_apart(top):
    os.link(str(top / "lib" / "data"), str(top / "bin" / "same"))
    os.link(str(top / "bin" / "tool"), str(top.parent / "outside"))
    planned, done = go(top, apply=False), go(top)
    for result in (planned, done):
        assert (result["hardlinked"], result["hardlinked_outside"]) == (3, 1)
        assert (result["files"], result["changed_files"]) == (4, 3)
    assert mode(top.parent / "outside") == 0o555


def test_excluded_paths_are_left_alone_with_all_below(top):
    result = go(top, exclude=["lib/deep", "bin/*"])
    assert result["excluded"] == 2
    assert (mode(top / "lib" / "deep" / "x.so"), mode(top / "lib" / "deep")) == (0o775, 0o755)
    assert (mode(top / "bin" / "tool"), mode(top / "lib" / "data")) == (0o755, 0o444)


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("src", "src", True), ("src", "a/src", False), ("src/", "src", True), ("*", "a", True), ("*", "a/b", False),
        ("**/x", "x", True), ("**/x", "a/b/x", True), ("a/**", "a/b/c", True), ("a/**", "a", False),
        ("?.py", "a.py", True), ("?.py", "ab.py", False), ("[!a]b", "cb", True), ("[!a]b", "ab", False),
        ("[a-c]", "b", True), ("a.b", "axb", False), ("a\nb*", "a\nb\n", True), ("[", "[", True),
    ],
)
def test_globs_match_as_in_a_shell_with_globstar(pattern, path, matches):
    assert (compile_globs([pattern]).fullmatch(path) is not None) == matches


def test_names_with_line_breaks_and_foreign_bytes_are_changed_and_shown(top):
    raw = os.path.join(os.fsencode(str(top)), b"caf\xe9\n")
    os.mkdir(raw)
    with open(os.path.join(raw, b"\xff"), "wb"):
        pass
    os.chmod(os.path.join(raw, b"\xff"), 0o600)
    os.chmod(raw, 0o700)
    result = go(top)
    assert stat.S_IMODE(os.stat(os.path.join(raw, b"\xff")).st_mode) == 0o444
    assert {"path": "caf\\xe9\n/\\xff", "from": "0600", "to": "0444"} in result["drift"]


def test_lists_are_short_and_totals_whole(top):
    result = go(top, limit=2)
    assert len(result["drift"]) == 2
    assert result["drift_total"] == 7
    go(top, "writable")
    none_listed = go(top, limit=0)
    assert (none_listed["drift"], none_listed["drift_total"]) == ([], 7)


@not_root
def test_a_foreign_owner_is_one_error_with_count_and_names(top):
    one_pass = Pass(Policy("frozen"), True)
    one_pass.uid += 1
    error = problem(over(one_pass, top), str(top))
    assert isinstance(error, StackError)
    assert "7 of the entries below %s belong to another account, first ., bin, bin/tool" % top in error.message
    assert error.details["foreign_total"] == 7
    assert mode(top / "lib" / "data") == 0o640


@not_root
def test_foreign_files_that_need_no_change_are_no_error(top):
    go(top)
    one_pass = Pass(Policy("frozen"), True)
    one_pass.uid += 1
    assert problem(over(one_pass, top), str(top)) is None


@not_root
def test_setgid_that_a_chmod_would_lose_is_an_error_and_the_entry_untouched(top):
    (top / "lib").chmod(0o2755)
    one_pass = Pass(Policy("frozen"), True)
    one_pass.groups = set()
    error = problem(over(one_pass, top), str(top))
    assert "setgid for a group" in error.message
    assert error.details["setgid_lost"] == ["lib"]
    assert (mode(top / "lib"), mode(top / "lib" / "data")) == (0o2755, 0o444)


def test_a_refusal_of_the_system_is_reported_and_the_rest_done(top):
    one_pass = Pass(Policy("frozen"), True)
    real = one_pass.chmod

    def refusing(directory, name, bits):
        if name == "data":
            raise PermissionError(1, "Operation not permitted")
        real(directory, name, bits)

    one_pass.chmod = refusing
    error = problem(over(one_pass, top), str(top))
    assert error.details["refused"] == ["lib/data (Operation not permitted)"]
    assert mode(top / "lib" / "deep" / "x.so") == 0o555


@pytest.mark.parametrize("workers", [1, 4])
def test_a_failing_file_system_stops_the_pass_with_its_reason(top, workers):
    one_pass = Pass(Policy("frozen"), True, workers=workers)

    def failing(_directory, _name, _bits):
        raise OSError(30, "Read-only file system")

    one_pass.chmod = failing
    with pytest.raises(StackError, match="Read-only file system"):
        over(one_pass, top)
    assert not any(thread.is_alive() for thread in one_pass.threads)


def build_random(top, seed, entries):
    """A tree of random shape and modes; its directories."""
    random_numbers = random.Random(seed)
    directories = [str(top)]
    for number in range(entries):
        path = os.path.join(random_numbers.choice(directories), "n%d" % number)
        if random_numbers.random() < 0.3:
            os.mkdir(path)
            directories.append(path)
        else:
            with open(path, "w"):
                pass
            os.chmod(path, random_numbers.randrange(0o1000))
    for path in reversed(directories):
        os.chmod(path, random_numbers.randrange(0o1000))
    return directories


@pytest.mark.parametrize("workers", [0, 1, 5])
@pytest.mark.parametrize("handles", [0, 2])
def test_threads_and_few_descriptors_give_the_same_result(tmp_path, workers, handles):
    top = tmp_path / "tree"
    top.mkdir()
    directories = build_random(top, 7, 400)
    before = len(os.listdir("/proc/self/fd"))
    result = go(top, workers=workers, handles=handles)
    assert len(os.listdir("/proc/self/fd")) == before
    assert result["directories"] == len(directories)
    assert result["files"] == 401 - len(directories)
    assert result["vanished"] == 0
    assert go(top)["drift_total"] == 0
    go(top, "writable")


def flat(tmp_path, entries):
    top = tmp_path / "flat"
    top.mkdir()
    for number in range(entries):
        (top / str(number)).write_text("")
    return top


def test_a_large_directory_is_shared_between_threads(tmp_path):
    top = flat(tmp_path, 2000)
    one_pass = Pass(Policy("frozen"), True, workers=4)
    real, names = one_pass.chmod, set()

    def noting(directory, name, bits):
        names.add(threading.current_thread().name)
        time.sleep(0.0002)
        real(directory, name, bits)

    one_pass.chmod = noting
    assert over(one_pass, top).changed_files == 2000
    assert len(names) > 1
    go(top, "writable")


def test_slow_calls_bring_in_more_threads_and_pay(tmp_path):
    top = flat(tmp_path, 3000)
    one_pass = Pass(Policy("frozen"), True)
    real = one_pass.chmod
    inside, most = [], [0]

    def slow(directory, name, bits):
        inside.append(name)
        most[0] = max(most[0], len(inside))
        time.sleep(0.001)
        inside.pop()
        real(directory, name, bits)

    one_pass.chmod = slow
    tally = over(one_pass, top)
    assert len(one_pass.threads) == tree_workers.AUTO_WORKERS - 1
    assert tally.changed_files == 3000
    assert most[0] >= 4, "that many calls waited at the same time"
    go(top, "writable")


def test_the_number_of_workers_is_the_number_asked_for(tmp_path):
    top = flat(tmp_path, 3000)
    one_pass = Pass(Policy("frozen"), True, workers=6)
    over(one_pass, top)
    assert len(one_pass.threads) == 5
    go(top, "writable")


def test_one_worker_means_one_however_slow(top, monkeypatch):
    monkeypatch.setattr(tree_workers, "SLOW", 0.0)
    one_pass = Pass(Policy("frozen"), True, workers=1)
    over(one_pass, top)
    assert one_pass.threads == []


def test_a_tree_five_thousand_levels_deep_is_walked_with_few_descriptors(tmp_path):
    top = tmp_path / "deep"
    top.mkdir()
    descriptor = os.open(str(top), os.O_RDONLY)
    for level in range(5000):
        for name in ("d", "a")[:1 + (level % 4 == 0)]:
            os.mkdir(name, 0o700, dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        result = go(top)
        thawed = go(top, "writable", workers=4)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        subprocess.run(["rm", "-rf", str(top)], check=True)
    assert (result["directories"], result["changed_directories"], result["vanished"]) == (6251, 6251, 0)
    assert thawed["changed_directories"] == 6251


def test_a_large_tree_needs_little_memory(tmp_path):
    """Two hundred thousand entries in one directory, without a disk: scandir and stat are stand-ins."""
    program = """
import os, sys
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import permissions as tree
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import policy as modes
top = sys.argv[1]
os.mkdir(top)
open(top + "/file", "w").close()
found = os.stat(top + "/file")
class Entry:
    def __init__(self, name): self.name = name
    def is_symlink(self): return False
    def is_dir(self, follow_symlinks): return False
class Many:
    def __enter__(self): return (Entry("name-of-ordinary-length-%d" % n) for n in range(200000))
    def __exit__(self, *error): return None
tree.os.scandir = lambda descriptor: Many()
real = os.stat
tree.os.stat = lambda name, **options: found if "dir_fd" in options else real(name, **options)
one_pass = tree.Pass(modes.Policy("frozen"), True, workers=int(sys.argv[2]))
one_pass.chmod = lambda *arguments: None
tally = one_pass.over(os.path.dirname(top), os.path.basename(top))
assert tally.changed_files == 200000, tally.changed_files
# Not ru_maxrss, which begins with what the process had that started this one.
print([int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM:")][0])
"""
    for workers in ("1", "4"):
        output = subprocess.check_output(
            [sys.executable, "-c", program, str(tmp_path / ("many" + workers)), workers],
            env=dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path))),
        )
        assert int(output) < 200


def test_processes_come_to_the_same_result_as_one_hard_links_included(tmp_path, monkeypatch):
    """Names of one file in many directories, which several processes meet, are one change."""
    monkeypatch.setattr(tree_workers, "MANY", 50)
    monkeypatch.setattr(tree_workers, "processors", lambda: 3)
    top = tmp_path / "tree"
    for number in range(60):
        (top / ("d%d" % (number % 7)) / str(number)).mkdir(parents=True)
        for name in range(30):
            path = top / ("d%d" % (number % 7)) / str(number) / str(name)
            path.write_text("")
            path.chmod(0o640 if name % 3 else 0o750)
        os.link(str(top / "d0" / "0" / "1"), str(path) + " too")
    os.link(str(top / "d0" / "0" / "2"), str(tmp_path / "outside"))
    facts = ("files", "directories", "hardlinked", "hardlinked_outside", "changed_files", "changed_directories",
             "drift_total", "vanished")
    alone = go(top, apply=False, workers=1)
    planned = go(top, apply=False)
    done = go(top)
    for result in (planned, done):
        assert {key: result[key] for key in facts} == {key: alone[key] for key in facts}
    assert (done["files"], done["hardlinked"], done["hardlinked_outside"]) == (1860, 62, 1)
    assert go(top)["drift_total"] == 0
    go(top, "writable")


def test_a_failure_in_another_process_stops_all_and_is_told_with_what_all_have_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(tree_workers, "MANY", 50)
    monkeypatch.setattr(tree_workers, "SLOW", 1000.0)
    monkeypatch.setattr(tree_workers, "processors", lambda: 2)
    top = tmp_path / "tree"
    for number in range(80):
        (top / str(number)).mkdir(parents=True)
        for name in range(20):
            (top / str(number) / str(name)).write_text("")
    one_pass = Pass(Policy("frozen"), True)
    first, real = os.getpid(), one_pass.chmod

    def failing(directory, name, bits):
        if os.getpid() != first:
            raise OSError(30, "Read-only file system")
        time.sleep(0.0005)
        real(directory, name, bits)

    one_pass.chmod = failing
    with pytest.raises(StackError, match="Read-only file system; before that, ") as caught:
        over(one_pass, top)
    frozen = sum(mode(path) == 0o444 for path in top.glob("*/*"))
    assert caught.value.details["changed_files"] == frozen < 1600
    go(top, "writable")


def test_names_within_a_sentence_are_on_one_line():
    assert shortly(["a\nb", "caf\udce9", "x"]) == "a\\nb, caf\\xe9, x"
