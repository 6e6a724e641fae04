# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""tree_permissions and tree_manifest where the file system fails, dies, or changes under them.

The modules' work runs in a Python process of its own with the library of faults; one test goes through Ansible.
"""

from __future__ import annotations

import errno
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

import pytest
from support import faults

PROGRAM = """
import json, os, resource, sys
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
name, arguments = sys.argv[1], json.loads(sys.argv[2])
try:
    if name == "tree_permissions":
        from ansible_collections.hpcml.torchstack.plugins.modules import tree_permissions
        defaults = {"policy": None, "exclude": [], "keep_private": [], "workers": 0, "max_listed": 100}
        arguments = dict(defaults, **arguments)
        result = tree_permissions.set_permissions(arguments, True)
    else:
        from ansible_collections.hpcml.torchstack.plugins.modules import tree_manifest
        defaults = {"state": "recorded", "content": "full", "exclude": [], "workers": 0, "max_listed": 100}
        result = tree_manifest.record_or_compare(dict(defaults, fail_on_drift=True, **arguments), False)
    result["failed"] = False
except StackError as error:
    result = dict(error.as_result(), failed=True)
with open("/proc/self/status") as status:
    own = [int(line.split()[1]) for line in status if line.startswith("VmHWM:")][0]
# The copies are forks without an exec, so their peak is theirs.
result["memory"] = [own // 1024, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024]
print(json.dumps(result))
"""

not_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may write to what is frozen")


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


@pytest.fixture()
def release(tmp_path):
    """Twenty files in four directories, with loops of links and names that are no text."""
    top = tmp_path / "root" / "release"
    for number in range(4):
        (top / ("d%d" % number)).mkdir(parents=True)
        for name in range(5):
            path = top / ("d%d" % number) / ("f%d" % name)
            path.write_text("content of %d" % name)
            path.chmod(0o644)
    (top / "d0" / "loop").symlink_to("../d0")
    (top / "d1" / "round").symlink_to("about")
    (top / "d1" / "about").symlink_to("round")
    with open(os.path.join(os.fsencode(top), b"d2", b"caf\xe9\nx"), "wb") as stream:
        stream.write(b"odd")
    for directory in (top, *top.glob("d*")):
        directory.chmod(0o755)
    yield top
    subprocess.run(["chmod", "-R", "u+rwX", str(top)], check=True)


@pytest.fixture()
def victim(tmp_path):
    """What lies outside and nobody may touch."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f0").write_text("secret")
    (outside / "f0").chmod(0o666)
    outside.chmod(0o777)
    return outside


@pytest.fixture()
def start(collections_path, tmp_path):
    def start(name, top, fault=None, **more):
        arguments = {"path": str(top), "root": str(top.parent)}
        arguments.update({"state": "frozen"} if name == "tree_permissions" else {"record": str(record_of(top))})
        environment = dict(os.environ, PYTHONPATH=str(collections_path), PYTHONDONTWRITEBYTECODE="1", **(fault or {}))
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, name, json.dumps(dict(arguments, **more))], env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )

    return start


@pytest.fixture()
def go(start):
    def go(name, top, fault=None, **more):
        process = start(name, top, fault, **more)
        output, trouble = process.communicate()
        if process.returncode:
            assert process.returncode == -signal.SIGKILL, trouble
            return None
        return json.loads(output)

    return go


def record_of(top):
    return top / ".torchstack" / "manifest.json" if (top / ".torchstack").is_dir() else top.parent / "manifest.json"


def reads_well(result, *words):
    """One sentence what failed and where, one what to do next."""
    assert result["failed"] and result["failed_step"] and result["remedy"] and result["path"]
    assert "\n" not in result["msg"] and result["msg"].endswith(result["remedy"]), result["msg"]
    for word in words:
        assert word in result["msg"], result["msg"]


def files_of(top):
    return [path for path in top.rglob("*") if path.is_file() and not path.is_symlink()]


# What fails as a whole


@pytest.mark.parametrize("error", ["EROFS", "EIO", "ENOSPC", "EDQUOT"])
@pytest.mark.parametrize("workers", [1, 4])
def test_a_file_system_that_takes_no_change_is_named_with_what_was_changed_before(
    go, fault_library, release, error, workers
):
    fault = faults.variables(
        fault_library, "error:" + error, ("fchmodat", "fchmodat2"), path=release, at=8, onwards=True
    )
    result = go("tree_permissions", release, fault, workers=workers)
    reads_well(result, "Cannot change d", os.strerror(getattr(errno, error)), "run it again")
    assert os.path.dirname(result["path"]).startswith(str(release))
    done = sum(mode(path) == 0o444 for path in files_of(release))
    assert done == result["changed_files"] == 7
    assert "before that, 7 of the " in result["msg"]
    again = go("tree_permissions", release)
    assert not again["failed"] and all(mode(path) == 0o444 for path in files_of(release))


def test_ansible_reports_a_read_only_file_system_in_the_same_words(run_module, fault_library, release):
    fault = faults.variables(fault_library, "error:EROFS", ("fchmod", "fchmodat", "fchmodat2"), path=release)
    arguments = {"path": str(release), "root": str(release.parent), "state": "frozen"}
    result = run_module("tree_permissions", arguments, environment=fault)
    reads_well(result, "Cannot change", "Read-only file system", "0 of the ", "Mount the file system for writing")
    assert (result["failed_step"], result["path"], result["changed_files"]) == ("apply", str(release), 0)


def test_a_read_only_mount_is_named_in_one_sentence(release, collections_path):
    if subprocess.run(["unshare", "-rm", "true"], check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("this account may not have a mount namespace of its own")
    arguments = {"path": str(release), "root": str(release.parent), "state": "frozen"}
    script = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" || exit 9; shift; exec "$@"'
    process = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", str(release.parent), sys.executable, "-c", PROGRAM,
         "tree_permissions", json.dumps(arguments)],
        env=dict(os.environ, PYTHONPATH=str(collections_path)), stdout=subprocess.PIPE, text=True, check=False,
    )
    if process.returncode == 9:
        pytest.skip("a bind mount cannot be made read-only here")
    reads_well(json.loads(process.stdout), "Read-only file system", "Mount the file system for writing")


@pytest.mark.parametrize("error", ["EPERM", "EACCES"])
@pytest.mark.parametrize("calls", [("fchmodat", "fchmodat2"), ("fstatat", "fstatat64"), ("open",)])
def test_one_refusal_in_the_middle_is_named_and_everything_else_done(go, fault_library, release, error, calls):
    fault = faults.variables(fault_library, "error:" + error, calls, path=release / "d2", at=2)
    result = go("tree_permissions", release, fault)
    left = [path for path in files_of(release) if mode(path) != 0o444]
    if calls == ("open",):
        assert not result["failed"] and not left, "the directory is opened once, and that comes first"
        return
    reads_well(result, "1 of the entries below %s cannot be changed" % release)
    assert result["refused_total"] == 1 and len(left) == 1
    assert result["refused"][0].startswith("d2/")
    assert not go("tree_permissions", release)["failed"]
    assert all(mode(path) == 0o444 for path in files_of(release))


def test_a_directory_that_can_no_longer_be_read_is_named_and_the_others_done(go, fault_library, release):
    fault = faults.variables(fault_library, "error:EACCES", ("open", "list"), path=release / "d1")
    result = go("tree_permissions", release, fault)
    reads_well(result, "cannot be changed", "d1 (Permission denied)")
    assert all(mode(path) == 0o444 for path in files_of(release) if path.parent.name != "d1")


@pytest.mark.parametrize("calls", ["open", "list", "next", "stat", "mode", "read"])
@pytest.mark.parametrize("name", ["tree_permissions", "tree_manifest"])
def test_interrupted_calls_are_made_again(go, fault_library, release, name, calls):
    if (name, calls) in (("tree_permissions", "read"), ("tree_manifest", "mode")):
        pytest.skip("this module makes no such call")
    expected = go("tree_manifest", release)["digest"] if name == "tree_manifest" else None
    record_of(release).unlink(missing_ok=True)
    for at in (1, 3, 8):
        fault = faults.variables(fault_library, "error:EINTR", (calls,), path=release / "d", at=at)
        result = go(name, release, fault)
        assert not result["failed"], (at, result["msg"])
        if expected:
            assert result["digest"] == expected
        else:
            assert (result["vanished"], result["files"]) == (0, 21)
    if not expected:
        assert all(mode(path) == 0o444 for path in files_of(release))


@pytest.mark.parametrize("error", ["ENOENT", "ESTALE"])
@pytest.mark.parametrize("calls", [("fstatat", "fstatat64"), ("fchmodat", "fchmodat2"), ("openat", "openat64")])
def test_what_vanishes_between_listing_and_change_is_counted_and_survived(go, fault_library, release, error, calls):
    place = release / "d1" if "openat" in calls else release / "d1" / "f"
    fault = faults.variables(fault_library, "error:" + error, calls, path=place, at=1)
    result = go("tree_permissions", release, fault)
    assert not result["failed"] and result["vanished"] == 1
    assert not go("tree_permissions", release)["failed"]
    assert all(mode(path) == 0o444 for path in files_of(release))


@pytest.mark.parametrize("error", ["ENOENT", "ESTALE", "EIO", "EACCES"])
@pytest.mark.parametrize(
    ("calls", "place"),
    [
        (("fstat", "fstat64"), "d1/f3"), (("openat", "openat64"), "d1/f3"), (("readv",), "d1/f3"),
        (("fstatat", "fstatat64"), "d1/about"), (("readlinkat",), "d1/about"),
    ],
)
def test_an_entry_that_cannot_be_read_to_its_end_is_named_and_nothing_recorded(
    go, fault_library, release, error, calls, place
):
    fault = faults.variables(fault_library, "error:" + error, calls, path=release / place)
    result = go("tree_manifest", release, fault)
    reads_well(result, "1 of the entries below", "first %s (" % place, "nothing was recorded")
    assert result["unstable" if error in ("ENOENT", "ESTALE") else "unreadable"]
    assert not record_of(release).exists()
    assert not go("tree_manifest", release)["failed"]


@pytest.mark.parametrize("error", ["ENOSPC", "EDQUOT", "EROFS", "EIO"])
@pytest.mark.parametrize("calls", ["create", "write", "sync", "rename"])
def test_a_record_that_cannot_be_written_leaves_the_earlier_one_and_the_frozen_directory(
    go, fault_library, release, error, calls
):
    (release / ".torchstack").mkdir()
    go("tree_manifest", release)
    earlier = record_of(release).read_bytes()
    (release / "d0" / "f0").write_text("changed")
    (release / ".torchstack").chmod(0o555)
    fault = faults.variables(fault_library, "error:" + error, (calls,), path=release / ".torchstack")
    result = go("tree_manifest", release, fault)
    if calls == "sync" and not result["failed"]:
        pytest.fail("a record that may not be on disk was called recorded")
    reads_well(result, "Cannot write the record %s" % record_of(release), os.strerror(getattr(errno, error)))
    assert record_of(release).read_bytes() == earlier
    assert (mode(release / ".torchstack"), os.listdir(release / ".torchstack")) == (0o555, ["manifest.json"])
    assert not go("tree_manifest", release)["failed"]
    assert record_of(release).read_bytes() != earlier


def test_a_directory_of_temporary_files_that_fills_up_is_named_and_nothing_recorded(
    go, fault_library, release, tmp_path
):
    """Python itself looks elsewhere where it is full from the beginning: it writes a file there to see."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for number in range(2000):
        (release / "d3" / ("more%d" % number)).write_text("")
    fault = faults.variables(fault_library, "error:ENOSPC", ("write",), path=scratch, at=2, onwards=True)
    result = go("tree_manifest", release, dict(fault, TMPDIR=str(scratch)))
    reads_well(result, "temporary file", "nothing was recorded", "TMPDIR")
    assert not record_of(release).exists() and not os.listdir(scratch)


# Killed


def test_killed_at_every_change_the_next_freeze_completes(go, fault_library, release):
    for number in (0, 1):
        shutil.rmtree(str(release / ("d%d" % number)))
    changes = 0
    for at in range(1, 40):
        subprocess.run(["chmod", "-R", "u+w", str(release)], check=True)
        fault = faults.variables(fault_library, "kill", ("mode",), path=release, at=at)
        result = go("tree_permissions", release, fault)
        assert {mode(path) for path in files_of(release)} <= {0o644, 0o444}
        if result is not None:
            changes = at - 1
            break
        again = go("tree_permissions", release)
        assert not again["failed"] and all(mode(path) == 0o444 for path in files_of(release))
    assert changes == 14, "eleven files and three directories"


@pytest.mark.parametrize(("action", "calls"), [("kill", faults.CHANGES), ("torn", ("write",))])
def test_killed_at_every_change_the_next_recording_completes_and_records_nothing_of_the_killed_one(
    go, fault_library, release, action, calls
):
    (release / ".torchstack").mkdir()
    expected = go("tree_manifest", release, content="quick")["digest"]
    (release / ".torchstack").chmod(0o755)
    for at in range(1, 30):
        record_of(release).unlink(missing_ok=True)
        fault = faults.variables(fault_library, action, calls, path=release / ".torchstack", at=at)
        if go("tree_manifest", release, fault) is not None:
            break
        result = go("tree_manifest", release, content="quick")
        assert not result["failed"] and result["digest"] == expected
        assert os.listdir(release / ".torchstack") == ["manifest.json"]
    assert at > (4 if action == "kill" else 1), "create, write, mode, sync, rename at least"


def test_a_helper_that_is_killed_is_an_error_and_the_next_run_completes(start, go, fault_library, tmp_path):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there are no helpers on one processor")
    top = tmp_path / "root" / "many"
    top.mkdir(parents=True)
    for directory in range(60):
        (top / str(directory)).mkdir()
        for name in range(60):
            (top / str(directory) / str(name)).write_text("")
    # The first process is delayed, its copies are busy or wait; either way they live until the end of the walk.
    for name in ("tree_manifest", "tree_permissions"):
        calls = ("fchmodat2", "fchmodat") if name == "tree_permissions" else ("readv",)
        process = start(name, top, faults.variables(fault_library, "delay:500", calls, path=top))
        children = "/proc/%d/task/%d/children" % (process.pid, process.pid)
        killed = []
        while process.poll() is None and not killed:
            with open(children, encoding="ascii") as stream:
                killed = [int(word) for word in stream.read().split()]
            for child in killed:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.002)
        output, trouble = process.communicate()
        assert process.returncode == 0, trouble
        result = json.loads(output)
        if killed:
            reads_well(result, "was killed")
        assert not go(name, top)["failed"]
    assert all(mode(path) == 0o444 for path in files_of(top))
    subprocess.run(["chmod", "-R", "u+rwX", str(top)], check=True)


# Swapped


def stopped(process):
    """Wait until a process has stopped; whether it has, rather than ended."""
    while True:
        with open("/proc/%d/stat" % process.pid, encoding="utf-8") as stream:
            state = stream.read().rpartition(")")[2].split()[0]
        if state == "T":
            return True
        if state in "ZX":
            return False
        time.sleep(0.002)


SWAPS = [
    ("tree_permissions", ("fstatat", "fstatat64"), "d1/f0"),
    ("tree_permissions", ("fchmodat", "fchmodat2"), "d1/f0"),
    ("tree_permissions", ("openat", "openat64"), "d1"),
    ("tree_permissions", ("fchmod",), "d1"),
    ("tree_permissions", ("list",), "d1"),
    ("tree_permissions", ("fchmodat", "fchmodat2"), "d1"),
    ("tree_manifest", ("fstat", "fstat64"), "d1/f0"),
    ("tree_manifest", ("openat", "openat64"), "d1/f0"),
    ("tree_manifest", ("readv",), "d1/f0"),
    ("tree_manifest", ("openat", "openat64"), "d1"),
    ("tree_manifest", ("list",), "d1"),
    ("tree_manifest", ("fstatat", "fstatat64"), "d1"),
]


@pytest.mark.parametrize(("name", "calls", "place"), SWAPS, ids=["%s-%s-%s" % (n, c[0], p) for n, c, p in SWAPS])
def test_a_swap_for_a_link_never_leads_outside(start, fault_library, release, victim, name, calls, place):
    """The process is stopped before the call on the name; what it named goes, and a link to the outside comes."""
    process = start(
        name, release, faults.variables(fault_library, "stop", calls, path=release / place, at=1), workers=1
    )
    assert stopped(process)
    swapped = release / place
    modes = {path: mode(path) for path in (swapped.parent, release)}
    for path in (*modes, *([] if "/" in place else [swapped])):
        path.chmod(0o755)
    os.rename(str(swapped), str(release.parent / "aside"))
    swapped.symlink_to(victim / "f0" if "/" in place else victim)
    for path, bits in modes.items():
        path.chmod(bits)
    process.send_signal(signal.SIGCONT)
    output, trouble = process.communicate()
    assert process.returncode == 0, trouble
    result = json.loads(output)
    assert (mode(victim), mode(victim / "f0")) == (0o777, 0o666)
    if name == "tree_permissions":
        assert not result["failed"]
        # What was open already was changed where it lies now, and nothing else.
        assert result["files"] + result["symlinks"] + result["vanished"] >= 18
    else:
        reads_well(result, "changed while they were read", "nothing was recorded")
        assert not record_of(release).exists()
    subprocess.run(["chmod", "-R", "u+rwX", str(release.parent)], check=True)


# Large and deep


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Two hundred thousand names, of a hundred thousand files: every file has to be remembered until its second name.

    In memory where there is room, since nothing of it shall last.
    """
    memory = "/dev/shm"
    room = os.path.isdir(memory) and os.access(memory, os.W_OK) and os.statvfs(memory).f_favail > 300000
    place = tempfile.mkdtemp(dir=memory) if room else str(tmp_path_factory.mktemp("large"))
    top = pathlib.Path(place) / "tree"
    for number in range(100):
        directory = str(top / ("package-%d" % number))
        os.makedirs(directory)
        for name in range(1000):
            path = "%s/module_of_ordinary_length_%d.py" % (directory, name)
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
            os.link(path, path + "c")
    yield top
    subprocess.run(["chmod", "-R", "u+rwX", place], check=True)
    shutil.rmtree(place)


def test_two_hundred_thousand_files_need_less_than_200_mb_in_each_process(go, large):
    frozen = go("tree_permissions", large)
    assert (frozen["files"], frozen["hardlinked"], frozen["changed_files"]) == (200000, 200000, 100000)
    recorded = go("tree_manifest", large)
    assert recorded["counts"]["files"] == 200000
    compared = go("tree_manifest", large, state="compared", content="quick")
    assert compared["matches"]
    for result in (frozen, recorded, compared):
        assert max(result["memory"]) < 200, result["memory"]
    print("MB, first process and largest copy:", frozen["memory"], recorded["memory"], compared["memory"])


def test_three_thousand_levels_are_frozen_and_recorded(go, tmp_path):
    """Beyond what a path can hold; chmod -R and find manage, too."""
    top = tmp_path / "root" / "deep"
    top.mkdir(parents=True)
    descriptor = os.open(top, os.O_RDONLY)
    for _level in range(3000):
        os.mkdir("d", 0o755, dir_fd=descriptor)
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=descriptor))
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    try:
        frozen = go("tree_permissions", top)
        assert (frozen["directories"], frozen["changed_directories"], frozen["changed_files"]) == (3001, 3001, 3000)
        writable = subprocess.run(["find", str(top), "-perm", "/222"], stdout=subprocess.PIPE, check=True)
        assert writable.stdout == b""
        recorded = go("tree_manifest", top)
        assert recorded["counts"]["files"] == 3000 and max(recorded["memory"]) < 200
        assert go("tree_manifest", top, state="compared", content="quick")["matches"]
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", str(top)], check=True)
        subprocess.run(["rm", "-rf", str(top)], check=True)
