# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The record of a tree: what is in it, what it does not depend on, and what it refuses to say."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import manifest, manifest_walk
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import manifest_entries as manifest_look
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import manifest_file as manifest_record

not_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
ODD_NAMES = (b"new\nline", b"caf\xe9", "caf\u00e9".encode(), b"\xed\xa0\x80", b"-dash", b"tab\t\"quote\\", b"!first")


def write(path, content=b"content", bits=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(bits)
    return path


def mode(path):
    return stat.S_IMODE(os.lstat(str(path)).st_mode)


@pytest.fixture()
def top(tmp_path):
    """A small release, with everything that a tree can hold without root."""
    top = tmp_path / "root" / "release"
    write(top / "bin" / "tool", b"#!/bin/sh\n", 0o755)
    write(top / "lib" / "data")
    write(top / "lib-extra" / "data", b"other")
    write(top / "lib.txt", b"")
    (top / "lib" / "link").symlink_to("data")
    (top / "lib" / "outside").symlink_to("/etc/passwd")
    (top / "lib" / "dangling").symlink_to("nothing")
    os.link(str(top / "lib" / "data"), str(top / "hard"))
    os.mkfifo(str(top / "pipe"), 0o600)
    (top / ".torchstack").mkdir()
    for directory in (top, top / "bin", top / "lib", top / "lib-extra", top / ".torchstack"):
        directory.chmod(0o755)
    (top / "bin").chmod(0o2750)
    yield top
    subprocess.run(["chmod", "-R", "u+rwX", str(tmp_path)], check=True)


def request(top, record=None, **more):
    place = str(record or top / ".torchstack" / "manifest.json")
    return manifest.Request(str(top), str(top.parent), place, **more)


def record(top, apply=True, **more):
    return manifest.record(request(top, **more), apply)


def compare(top, **more):
    return manifest.compare(request(top, **more))


def read(top):
    """The record as any JSON reader has it."""
    return json.loads((top / ".torchstack" / "manifest.json").read_text(encoding="ascii"))


def drift(result):
    """All that differs, as pairs of kind and path."""
    found = [("added", path) for path in result["added"]] + [("removed", path) for path in result["removed"]]
    return sorted(found + [(entry["kind"], entry["path"]) for entry in result["differing"]])


def test_a_record_holds_every_entry_with_what_its_type_has(top):
    with socket.socket(socket.AF_UNIX) as listener:
        # The address of a socket is short, the directory of a test is not.
        os.chdir(str(top))
        listener.bind("socket")
        os.chmod("socket", 0o700)
        os.chdir("/")
    result = record(top)
    found = read(top)
    entries = {entry.pop("path"): entry for entry in found["entries"]}
    digest = hashlib.sha256(b"content").hexdigest()
    assert entries == {
        ".": {"type": "directory", "mode": "0755"},
        ".torchstack": {"type": "directory", "mode": "0755"},
        "bin": {"type": "directory", "mode": "2750"},
        "bin/tool": {
            "type": "file", "mode": "0755", "size": 10, "sha256": hashlib.sha256(b"#!/bin/sh\n").hexdigest()
        },
        "hard": {"type": "file", "mode": "0644", "size": 7, "sha256": digest},
        "lib": {"type": "directory", "mode": "0755"},
        "lib/data": {"type": "file", "mode": "0644", "size": 7, "sha256": digest},
        "lib/dangling": {"type": "symlink", "target": "nothing"},
        "lib/link": {"type": "symlink", "target": "data"},
        "lib/outside": {"type": "symlink", "target": "/etc/passwd"},
        "lib-extra": {"type": "directory", "mode": "0755"},
        "lib-extra/data": {"type": "file", "mode": "0644", "size": 5, "sha256": hashlib.sha256(b"other").hexdigest()},
        "lib.txt": {"type": "file", "mode": "0644", "size": 0, "sha256": hashlib.sha256(b"").hexdigest()},
        "pipe": {"type": "fifo", "mode": "0600"},
        "socket": {"type": "socket", "mode": "0700"},
    }
    assert found["counts"] == result["counts"] == {"files": 5, "directories": 5, "symlinks": 3, "others": 2}
    assert found["bytes"] == result["bytes"] == 29
    assert (found["format"], found["content"], found["record"]) == (1, "full", ".torchstack/manifest.json")
    assert result["hardlinked"] == 2


def test_entries_are_one_line_each_sorted_by_the_bytes_of_the_path_and_the_digest_is_over_them(top):
    result = record(top)
    lines = (top / ".torchstack" / "manifest.json").read_bytes().split(b"\n")
    lines = [line.rstrip(b",") for line in lines if line.startswith(b'{"path"')]
    assert hashlib.sha256(b"".join(line + b"\n" for line in lines)).hexdigest() == result["digest"]
    paths = [json.loads(line)["path"] for line in lines]
    assert paths[0] == "."
    assert paths[1:] == sorted(paths[1:], key=os.fsencode)
    assert paths.index("lib") < paths.index("lib-extra") < paths.index("lib.txt") < paths.index("lib/data")


def test_the_record_is_the_same_whatever_the_order_of_the_walk_and_the_number_of_threads(top, monkeypatch):
    for number in range(200):
        write(top / "many" / ("%d" % (number % 7)) / ("name-%d" % number), b"%d" % number)
    expected = record(top, apply=False, workers=1)["digest"]
    real = os.scandir

    class Backwards:
        def __init__(self, directory):
            with real(directory) as entries:
                self.entries = sorted(entries, key=lambda entry: entry.name, reverse=True)

        def __enter__(self):
            return iter(self.entries)

        def __exit__(self, *error):
            return None

    for workers in (1, 2, 7):
        assert record(top, apply=False, workers=workers)["digest"] == expected
    monkeypatch.setattr(manifest_walk.os, "scandir", Backwards)
    for workers in (1, 3):
        assert record(top, apply=False, workers=workers)["digest"] == expected


def test_the_record_is_the_same_in_every_locale(top):
    for name in ODD_NAMES:
        with open(os.path.join(os.fsencode(str(top)), name), "wb"):
            pass
    os.symlink(b"caf\xe9 target", os.path.join(os.fsencode(str(top)), b"odd target"))
    program = (
        "import sys;"
        "from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import manifest;"
        "asked = manifest.Request(sys.argv[1], sys.argv[2], sys.argv[1] + '/.torchstack/manifest.json');"
        "print(sys.getfilesystemencoding(), manifest.record(asked, False)['digest'])"
    )
    encodings, digests = set(), set()
    for variables in (
        {"LC_ALL": "C.UTF-8"}, {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"LC_ALL": "C", "PYTHONUTF8": "1"},
    ):
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)), **variables)
        output = subprocess.check_output(
            [sys.executable, "-c", program, str(top), str(top.parent)], env=environment, universal_newlines=True
        ).split()
        encodings.add(output[0])
        digests.add(output[1])
    assert len(encodings) > 1, "the encodings were to differ"
    assert digests == {record(top)["digest"]}


def test_names_with_line_breaks_and_bytes_that_are_no_text_come_back_as_they_are(top):
    place = os.path.join(os.fsencode(str(top)), b"odd")
    os.mkdir(place)
    for name in ODD_NAMES:
        with open(os.path.join(place, name), "wb"):
            pass
        os.symlink(name, os.path.join(place, b"to " + name))
    record(top)
    entries = [entry for entry in read(top)["entries"] if entry["path"].startswith("odd/")]
    assert [manifest_record.as_bytes(entry["path"][4:]) for entry in entries] == sorted(
        [*ODD_NAMES, *(b"to " + name for name in ODD_NAMES)]
    )
    assert {manifest_record.as_bytes(entry["target"]) for entry in entries if "target" in entry} == set(ODD_NAMES)
    assert compare(top)["matches"]
    os.unlink(os.path.join(place, b"caf\xe9"))
    assert compare(top)["removed"] == ["odd/caf\\xe9"]


def test_every_entry_survives_writing_and_reading():
    for entry in (
        manifest_record.Entry(b"a\xff\n", "file", 0o4755, 12, "ab" * 32),
        manifest_record.Entry(b".", "directory", 0o2755),
        manifest_record.Entry(b"l", "symlink", target=b"\x80\\"),
    ):
        line = manifest_record.encode_entry(entry)
        assert manifest_record.decode_entry(line) == entry
        if entry.kind == "file":
            assert manifest_record.encode_file(entry.path, *entry[2:5]).encode("ascii") == line
        assert line.isascii() and b"\n" not in line


def test_recording_again_writes_nothing(top):
    first = record(top)
    place = top / ".torchstack" / "manifest.json"
    before = os.stat(str(place))
    second = record(top)
    after = os.stat(str(place))
    assert (first["changed"], second["changed"]) == (True, False)
    assert first["digest"] == second["digest"] == second["previous"]
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert drift(second) == []


def test_a_plan_says_what_recording_then_does_and_writes_nothing(top):
    record(top)
    old = (top / ".torchstack" / "manifest.json").read_bytes()
    write(top / "lib" / "new")
    (top / "lib.txt").unlink()
    planned = record(top, apply=False)
    assert (top / ".torchstack" / "manifest.json").read_bytes() == old
    done = record(top)
    for result in (planned, done):
        del result["seconds"]
    assert planned == done
    assert drift(done) == [("added", "lib/new"), ("removed", "lib.txt")]
    assert done["changed"] and compare(top)["matches"]


CHANGES = {
    "added": lambda top: write(top / "lib" / "new"),
    "removed": lambda top: (top / "lib" / "data").unlink(),
    "type": lambda top: ((top / "lib" / "data").unlink(), (top / "lib" / "data").mkdir()),
    "mode": lambda top: (top / "lib" / "data").chmod(0o755),
    "size": lambda top: (top / "lib-extra" / "data").write_bytes(b"longer than before"),
    "content": lambda top: (top / "lib-extra" / "data").write_bytes(b"OTHER"),
    "target": lambda top: ((top / "lib" / "link").unlink(), (top / "lib" / "link").symlink_to("../hard")),
}


@pytest.mark.parametrize("kind", sorted(CHANGES))
@pytest.mark.parametrize("content", [True, False])
def test_each_kind_of_change_is_found_and_named(top, kind, content):
    (top / "hard").unlink()
    record(top)
    CHANGES[kind](top)
    result = compare(top, content=content)
    if kind == "content" and not content:
        assert result["matches"]
        return
    assert not result["matches"] and not result["changed"]
    assert [found for found, path in drift(result)] == [kind]
    assert {name for name, number in result["totals"].items() if number} == {kind}
    assert kind in str(manifest.drift_error("tree", "record", result).message)


def test_a_changed_hard_link_is_reported_under_each_of_its_names(top):
    record(top)
    (top / "hard").write_bytes(b"CONTENT")
    assert drift(compare(top)) == [("content", "hard"), ("content", "lib/data")]


def test_a_moved_prefix_still_matches(top):
    digest = record(top)["digest"]
    moved = top.parent / "elsewhere" / "moved"
    moved.parent.mkdir()
    shutil.move(str(top), str(moved))
    asked = manifest.Request(str(moved), str(top.parent), str(moved / ".torchstack" / "manifest.json"))
    assert manifest.compare(asked)["matches"]
    assert manifest.record(asked, True)["changed"] is False
    assert manifest.record(asked, True)["digest"] == digest
    shutil.move(str(moved), str(top))


def test_a_copy_without_times_and_hard_links_matches(top):
    record(top)
    copy = top.parent / "copy"
    subprocess.run(["cp", "-r", "--preserve=mode", str(top), str(copy)], check=True)
    assert os.stat(str(copy / "hard")).st_nlink == 1
    assert compare(copy)["matches"]


@pytest.mark.parametrize("place", [".torchstack/manifest.json", "manifest.json", "lib/deep/deeper/record"])
def test_the_record_is_left_out_of_itself_wherever_it_lies(top, place):
    (top / place).parent.mkdir(parents=True, exist_ok=True)
    assert record(top, record=top / place)["changed"]
    again = record(top, record=top / place)
    assert (again["changed"], again["excluded"]) == (False, 1)
    copy = top.parent / "copy.json"
    shutil.copy(str(top / place), str(copy))
    assert compare(top, record=copy)["matches"], "a copy of the record elsewhere leaves the original out, too"


def test_a_record_outside_of_the_tree_leaves_nothing_out(top):
    record(top, record=top.parent / "manifest.json")
    write(top / "manifest.json")
    assert drift(compare(top, record=top.parent / "manifest.json")) == [("added", "manifest.json")]


def test_a_record_is_not_written_outside_of_the_boundary(top, tmp_path):
    with pytest.raises(StackError, match="lies outside"):
        record(top, record=tmp_path / "manifest.json")
    assert not (tmp_path / "manifest.json").exists()
    with pytest.raises(StackError, match="directory does not exist"):
        record(top, record=top / "nothing" / "manifest.json")


def freeze(top):
    subprocess.run(["chmod", "-R", "a-w", str(top)], check=True)


def test_a_frozen_directory_is_writable_for_the_moment_only_and_recorded_as_frozen(top):
    (top / ".torchstack").chmod(0o2755)
    freeze(top)
    record(top)
    assert mode(top / ".torchstack") == 0o2555
    assert mode(top / ".torchstack" / "manifest.json") == 0o444
    assert {entry["path"]: entry.get("mode") for entry in read(top)["entries"]}[".torchstack"] == "2555"
    assert compare(top)["matches"] and not record(top)["changed"]


@pytest.mark.parametrize(("directory", "file"), [(0o755, 0o644), (0o775, 0o644), (0o700, 0o600), (0o550, 0o440)])
def test_who_may_read_the_directory_may_read_the_record(top, directory, file):
    (top / ".torchstack").chmod(directory)
    previous = os.umask(0o077)
    try:
        record(top)
    finally:
        os.umask(previous)
    assert mode(top / ".torchstack" / "manifest.json") == file


def test_a_failed_write_leaves_the_frozen_directory_and_the_earlier_record_as_they_were(top, monkeypatch):
    record(top)
    old = (top / ".torchstack" / "manifest.json").read_bytes()
    write(top / "new")
    freeze(top)

    def full(path, content, bits):
        assert mode(top / ".torchstack") == 0o755
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(manifest_record, "write_atomic", full)
    with pytest.raises(StackError, match="No space left on device"):
        record(top)
    assert mode(top / ".torchstack") == 0o555
    assert (top / ".torchstack" / "manifest.json").read_bytes() == old


def test_a_signal_while_the_record_is_written_waits_until_the_directory_is_frozen_again(top):
    freeze(top)
    program = """
import os, signal, sys
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import manifest
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import manifest_file as manifest_record
real = manifest_record.write_atomic
def interrupted(path, content, bits):
    os.kill(os.getpid(), signal.SIGTERM)
    real(path, content, bits)
manifest_record.write_atomic = interrupted
manifest.record(manifest.Request(sys.argv[1], sys.argv[2], sys.argv[1] + "/.torchstack/manifest.json"), True)
print("not reached")
"""
    process = subprocess.run(
        [sys.executable, "-c", program, str(top), str(top.parent)], check=False, stdout=subprocess.PIPE,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path))),
    )
    assert (process.returncode, process.stdout) == (-signal.SIGTERM, b"")
    assert mode(top / ".torchstack") == 0o555
    assert compare(top)["matches"]


def test_setgid_that_a_chmod_would_lose_is_refused_before_it_is_lost(top, monkeypatch):
    (top / ".torchstack").chmod(0o2555)
    monkeypatch.setattr(manifest_record.os, "geteuid", lambda: 12345)
    monkeypatch.setattr(manifest_record.os, "getegid", lambda: 12345)
    monkeypatch.setattr(manifest_record.os, "getgroups", lambda: [])
    with pytest.raises(StackError, match="setgid for a group that this account is not in"):
        manifest_record.write_record(str(top / ".torchstack" / "manifest.json"), bytearray(b"x"))
    assert mode(top / ".torchstack") == 0o2555
    assert not (top / ".torchstack" / "manifest.json").exists()


def rewrite(path):
    path.write_bytes(b"CONTENT")


def grow(path):
    with open(str(path), "ab") as stream:
        stream.write(b"!")


def shrink(path):
    os.truncate(str(path), 3)


def replace(path):
    path.with_name("other").write_bytes(b"content")
    path.with_name("other").rename(path)


def change_mode(path):
    path.chmod(0o600)


@pytest.mark.parametrize("disturb", [rewrite, grow, shrink, replace, change_mode])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_file_that_changes_while_it_is_read_is_reported_and_nothing_recorded(top, monkeypatch, disturb, moment):
    (top / "hard").unlink()
    record(top)
    old = (top / ".torchstack" / "manifest.json").read_bytes()
    write(top / "zzz")
    real, done = os.readv, []

    def disturbed(descriptor, buffers):
        count = None if moment == "before" else real(descriptor, buffers)
        if not done and os.readlink("/proc/self/fd/%d" % descriptor).endswith("/lib/data"):
            done.append(True)
            disturb(top / "lib" / "data")
        return real(descriptor, buffers) if count is None else count

    monkeypatch.setattr(manifest_look.os, "readv", disturbed)
    with pytest.raises(StackError) as caught:
        record(top)
    assert [name for name in caught.value.details["unstable"] if name.startswith("lib/data (")]
    assert "digest" not in caught.value.details
    assert (top / ".torchstack" / "manifest.json").read_bytes() == old
    done.clear()
    (top / "zzz").unlink()
    result = compare(top)
    assert not result["matches"] and any(name.startswith("lib/data (") for name in result["unstable"])
    assert "lib/data" not in [path for kind, path in drift(result)]


def test_a_file_that_never_ends_is_left_after_what_it_should_have_had(top, monkeypatch):
    real = os.readv
    monkeypatch.setattr(manifest_look.os, "readv", lambda descriptor, buffers: real(descriptor, buffers) or 1000)
    with pytest.raises(StackError, match="changed while it was read"):
        record(top)


def test_a_file_that_somebody_keeps_rewriting_is_refused_or_recorded_as_it_was(top):
    """With equally long content, as fast as can be: what is recorded is a content that the file had."""
    (top / "hard").unlink()
    rounds = ((b"xxxxxxx", b"content"), (b"yyyyyyy", b"xxxxxxx"), (b"xxxxxxx", b"yyyyyyy"))
    contents = {
        hashlib.sha256(new[:place] + old[place:]).hexdigest() for new, old in rounds for place in range(8)
    }
    stop = threading.Event()

    def keep_writing():
        with open(str(top / "lib" / "data"), "r+b", buffering=0) as stream:
            while not stop.is_set():
                for letter in (b"x", b"y"):
                    for place in range(7):
                        stream.seek(place)
                        stream.write(letter)

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        for _number in range(5):
            try:
                record(top)
            except StackError as error:
                assert error.details["totals"]["unstable"] >= 1
            else:
                assert next(e["sha256"] for e in read(top)["entries"] if e["path"] == "lib/data") in contents
    finally:
        stop.set()
        writer.join()


def swap(monkeypatch, name, act):
    """Have something happen right before a name is opened for the first time."""
    real, done = os.open, []

    def disturbed(path, *arguments, **options):
        if os.fsdecode(path) == name and not done:
            done.append(True)
            act()
        return real(path, *arguments, **options)

    monkeypatch.setattr(manifest_look.os, "open", disturbed)


def test_a_file_swapped_for_a_link_is_not_followed(top, monkeypatch):
    def act():
        (top / "lib.txt").unlink()
        (top / "lib.txt").symlink_to("/etc/passwd")

    swap(monkeypatch, "lib.txt", act)
    with pytest.raises(StackError, match=r"lib\.txt \(Too many levels of symbolic links\)"):
        record(top)


def test_a_file_swapped_for_a_named_pipe_does_not_stop_the_walk(top, monkeypatch):
    def act():
        (top / "lib.txt").unlink()
        os.mkfifo(str(top / "lib.txt"))

    swap(monkeypatch, "lib.txt", act)
    with pytest.raises(StackError, match=r"lib\.txt \(it changed while it was opened\)"):
        record(top)


@pytest.mark.parametrize("target", ["/etc", None])
def test_a_directory_swapped_for_a_link_or_removed_is_reported_and_not_entered(top, monkeypatch, target):
    record(top)

    def act():
        shutil.rmtree(str(top / "lib"))
        if target:
            (top / "lib").symlink_to(target)

    swap(monkeypatch, "lib", act)
    result = compare(top, workers=1)
    assert not result["matches"]
    assert any(path.startswith("lib (") for path in result["unstable"])
    assert [path for path in result["added"] if path.startswith("lib/")] == []


def test_a_file_that_vanishes_is_unstable_and_not_removed(top, monkeypatch):
    record(top)
    swap(monkeypatch, "lib.txt", (top / "lib.txt").unlink)
    result = compare(top)
    assert "lib.txt (No such file or directory)" in result["unstable"]
    assert result["removed"] == []


def test_what_is_added_to_a_directory_while_it_is_read_does_not_go_unnoticed(top, monkeypatch):
    swap(monkeypatch, "tool", lambda: write(top / "bin" / "late"))
    with pytest.raises(StackError, match=r"bin \(it changed while it was read\)"):
        record(top, workers=1)


@not_root
def test_what_cannot_be_read_fails_recording_and_is_listed_when_comparing(top):
    record(top)
    (top / "lib-extra" / "data").chmod(0)
    (top / "bin").chmod(0)
    with pytest.raises(StackError) as caught:
        record(top)
    assert "2 of the entries" in caught.value.message and "nothing was recorded" in caught.value.message
    assert caught.value.details["unreadable"] == ["bin (Permission denied)", "lib-extra/data (Permission denied)"]
    result = compare(top)
    assert result["unreadable"] == caught.value.details["unreadable"]
    assert drift(result) == [("mode", "bin"), ("mode", "lib-extra/data")], "what bin holds is not known to be gone"
    assert not result["matches"]


def test_nothing_but_directories_and_regular_files_is_opened(top, monkeypatch):
    opened, real = [], os.open

    def noting(path, *arguments, **options):
        opened.append(os.fsdecode(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(manifest_look.os, "open", noting)
    record(top, apply=False)
    assert not {"pipe", "link", "outside", "dangling"} & set(opened)
    assert {"data", "tool", "lib"} <= set(opened)


def test_reading_leaves_the_access_times_alone(top):
    path = top / "lib-extra" / "data"
    os.utime(str(path), (1, 2))
    record(top)
    assert os.stat(str(path)).st_atime == 1


def test_where_the_system_forbids_that_files_are_read_all_the_same(top, monkeypatch):
    real = os.open

    def refusing(path, flags, *arguments, **options):
        if flags & os.O_NOATIME:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return real(path, flags, *arguments, **options)

    expected = record(top, apply=False)["digest"]
    monkeypatch.setattr(manifest_look.os, "open", refusing)
    assert record(top, apply=False)["digest"] == expected


def test_a_record_without_content_is_quick_and_cannot_be_compared_in_full(top):
    full = record(top)
    quick = record(top, content=False)
    assert quick["changed"] and quick["digest"] != full["digest"] and drift(quick) == []
    assert all("sha256" not in entry for entry in read(top)["entries"])
    assert compare(top, content=False)["matches"]
    with pytest.raises(StackError, match="recorded without content"):
        compare(top)


def test_excluded_paths_are_in_no_record_and_the_record_remembers_them(top):
    write(top / "lib" / "__pycache__" / "x.pyc")
    record(top, exclude=("**/__pycache__",))
    assert not [entry for entry in read(top)["entries"] if "__pycache__" in entry["path"]]
    assert compare(top)["matches"]
    write(top / "notes" / "a" / "b")
    (top / "lib-extra" / "data").unlink()
    assert drift(compare(top)) == [
        ("added", "notes"), ("added", "notes/a"), ("added", "notes/a/b"), ("removed", "lib-extra/data")
    ]
    assert compare(top, exclude=("notes", "lib-extra"))["matches"]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: text[:-40], "cut off"),
        (lambda text: text.replace('"mode": "2750"', '"mode": "2755"'), "do not have the digest"),
        (lambda text: text.replace('"format": 1', '"format": 99'), "format 99"),
        (lambda text: "{}\n", "no entries"),
        (lambda text: "", "no entries"),
        (lambda text: text.replace('"digest"', '"dogest"'), "header is incomplete"),
    ],
)
def test_a_damaged_record_is_named_as_such_and_recorded_anew(top, damage, reason):
    record(top)
    place = top / ".torchstack" / "manifest.json"
    text = place.read_text()
    place.write_text(damage(text))
    with pytest.raises(StackError, match=reason):
        compare(top)
    result = record(top)
    assert result["changed"] and reason in result["record_problem"]
    assert place.read_text() == text


def test_a_record_that_is_a_link_or_missing_is_no_record(top):
    with pytest.raises(StackError, match="There is no record"):
        compare(top)
    record(top, record=top / "real.json")
    (top / ".torchstack" / "manifest.json").symlink_to("../real.json")
    with pytest.raises(StackError, match="a symbolic link"):
        compare(top)
    with pytest.raises(StackError, match="a symbolic link"):
        record(top)
    assert (top / ".torchstack" / "manifest.json").is_symlink()


def test_lists_are_short_and_totals_whole(top):
    for number in range(30):
        write(top / "many" / ("%02d" % number))
    result = record(top, limit=3)
    assert len(result["added"]) == 3 and result["totals"]["added"] == 31 + 14
    assert record(top, apply=False, limit=0)["added"] == []


def test_owners_that_differ_from_the_trees_are_listed_and_are_no_difference(top, monkeypatch):
    record(top)
    real = os.fstat

    class Other:
        def __init__(self, found):
            self.found = found
            self.st_uid = 4711

        def __getattr__(self, name):
            return getattr(self.found, name)

    def foreign(descriptor):
        found = real(descriptor)
        return Other(found) if os.readlink("/proc/self/fd/%d" % descriptor).endswith("/lib.txt") else found

    monkeypatch.setattr(manifest_look.os, "fstat", foreign)
    result = compare(top)
    assert (result["foreign"], result["totals"]["foreign"], result["matches"]) == (["lib.txt"], 1, True)


def test_a_tree_that_is_not_one_is_refused(top):
    for path, words in ((top / "nothing", "does not exist"), (top / "lib.txt", "is not a directory")):
        with pytest.raises(StackError, match=words):
            manifest.record(manifest.Request(str(path), str(top.parent), str(top / "x.json")), True)
    with pytest.raises(StackError, match="lies outside"):
        manifest.record(manifest.Request(str(top), str(top / "lib"), str(top / "lib" / "x.json")), True)
    with pytest.raises(StackError, match="cannot be negative"):
        record(top, workers=-1)


@pytest.mark.parametrize("workers", [1, 4])
def test_a_tree_five_hundred_levels_deep_needs_few_descriptors(tmp_path, workers):
    top = tmp_path / "root" / "deep"
    top.mkdir(parents=True)
    (tmp_path / "root" / "records").mkdir()
    descriptor = os.open(str(top), os.O_RDONLY)
    for _level in range(500):
        os.mkdir("d", 0o755, dir_fd=descriptor)
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=descriptor))
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        asked = request(top, record=tmp_path / "root" / "records" / "deep.json", workers=workers)
        counts = manifest.record(asked, True)["counts"]
        assert manifest.compare(asked)["matches"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        subprocess.run(["rm", "-rf", str(top)], check=True)
    assert (counts["files"], counts["directories"]) == (500, 501)
    assert len(os.listdir("/proc/self/fd")) == before


class Readers:
    """Names of the threads that have read files; each one waits until there are as many as ``awaited``."""

    def __init__(self):
        self.names = set()
        self.awaited = 0
        self._read = os.readv

    def readv(self, descriptor, buffers):
        self.names.add(threading.current_thread().name)
        end = time.monotonic() + 60
        while len(self.names) < self.awaited and time.monotonic() < end:
            time.sleep(0.001)
        return self._read(descriptor, buffers)


@pytest.fixture(name="readers")
def readers_of_four_hundred_files(top, monkeypatch):
    for number in range(400):
        write(top / "many" / ("%d" % number))
    readers = Readers()
    monkeypatch.setattr(manifest_look.os, "readv", readers.readv)
    return readers


def test_several_threads_read_at_the_same_time_and_one_means_one(top, readers):
    record(top, apply=False, workers=1)
    assert readers.names == {threading.current_thread().name}
    readers.names.clear()
    readers.awaited = 2
    record(top, apply=False, workers=4)
    assert len(readers.names) > 1 and threading.current_thread().name not in readers.names


def test_large_files_are_read_by_threads_and_small_ones_by_the_first(top, monkeypatch):
    for number in range(6):
        write(top / "large" / ("%d" % number), b"%d" % number * manifest_look.LARGE)
    expected = record(top, apply=False, workers=1)["digest"]
    real, readers = os.readv, {}

    def noting(descriptor, buffers):
        name = os.path.basename(os.path.dirname(os.readlink("/proc/self/fd/%d" % descriptor)))
        readers.setdefault(name, set()).add(threading.current_thread().name)
        return real(descriptor, buffers)

    monkeypatch.setattr(manifest_look.os, "readv", noting)
    monkeypatch.setattr(manifest_walk, "SLOW", 1000.0)
    assert record(top, apply=False)["digest"] == expected
    first = threading.current_thread().name
    assert first not in readers["large"] and readers["lib"] == readers["bin"] == {first}


def test_slow_calls_bring_in_the_threads_and_pay(top, monkeypatch):
    for number in range(800):
        write(top / "many" / ("%d" % number))
    expected = record(top, apply=False, workers=1)["digest"]
    real, inside, most = os.readv, [], [0]

    def slow(descriptor, buffers):
        inside.append(descriptor)
        most[0] = max(most[0], len(inside))
        time.sleep(0.001)
        inside.pop()
        return real(descriptor, buffers)

    monkeypatch.setattr(manifest_look.os, "readv", slow)
    assert record(top, apply=False)["digest"] == expected
    assert most[0] >= 2, "that many calls waited at the same time"


def test_a_busy_machine_is_not_taken_for_a_slow_file_system(top, readers, monkeypatch):
    monkeypatch.setattr(manifest_walk, "SLOW", 0.0)
    record(top, apply=False)
    assert readers.names == {threading.current_thread().name}, "nothing had to wait for the file system"


def test_a_file_that_takes_the_name_of_a_link_while_the_directory_is_listed_is_reported(top, monkeypatch):
    real, done = os.stat, []

    def disturbed(path, *arguments, **options):
        if path == b"dangling" and not done:
            done.append(True)
            (top / "lib" / "dangling").unlink()
            write(top / "lib" / "dangling")
        return real(path, *arguments, **options)

    monkeypatch.setattr(manifest_look.os, "stat", disturbed)
    with pytest.raises(StackError) as caught:
        record(top, workers=1)
    assert "lib/dangling (it changed before it was looked at)" in caught.value.details["unstable"]


def test_twenty_thousand_files_are_recorded_and_compared_in_little_memory(tmp_path):
    """What grows with the tree is the record, which is whole in memory once, while it is written."""
    top = tmp_path / "root" / "tree"
    for number in range(200):
        directory = top / ("site-packages-%d" % number)
        directory.mkdir(parents=True)
        with open(str(directory / "0.py"), "wb") as stream:
            stream.write(b"%d" % number)
        for name in range(99):
            os.link(str(directory / "0.py"), str(directory / ("module_of_ordinary_length_%d.py" % name)))
    program = """
import sys
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import manifest
def most():
    # Not ru_maxrss, which begins with what the process had that started this one.
    return [int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM:")][0]
before = most()
asked = manifest.Request(sys.argv[1], sys.argv[1], sys.argv[1] + "/manifest.json")
assert manifest.record(asked, True)["counts"]["files"] == 20000
assert manifest.compare(asked)["matches"]
print((most() - before) // 1024)
"""
    output = subprocess.check_output(
        [sys.executable, "-c", program, str(top)],
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path))),
    )
    assert int(output) < 40


def test_other_processes_come_to_the_same_record(top, monkeypatch):
    for number in range(40):
        for name in range(20):
            write(top / "many" / ("d%d" % number) / ("%d" % name), b"%d" % name)
        write(top / "many" / ("d%d" % number) / "large", b"%d" % (number % 10) * manifest_look.LARGE)
        os.link(str(top / "many" / "d0" / "7"), str(top / "many" / ("d%d" % number) / "link"))
    expected = record(top, apply=False, workers=1)
    monkeypatch.setattr(manifest_walk, "processors", lambda: 3)
    asked, real = [], manifest_walk.Helpers.ask
    monkeypatch.setattr(
        manifest_walk.Helpers, "ask", lambda self, question: asked.append(question) or real(self, question)
    )
    result = record(top, apply=False)
    assert asked and [result[key] for key in ("digest", "hardlinked", "counts")] == [
        expected[key] for key in ("digest", "hardlinked", "counts")
    ]


@not_root
def test_other_processes_name_the_same_troubles(top, monkeypatch):
    for number in range(40):
        for name in range(20):
            write(top / "many" / ("d%d" % number) / ("%d" % name), b"%d" % name)
    record(top)
    for name in ("d7", "d9/3", "d30/19"):
        (top / "many" / name).chmod(0)
    (top / "many" / "d20" / "4").write_bytes(b"5")
    expected = compare(top, workers=1)
    monkeypatch.setattr(manifest_walk, "processors", lambda: 3)
    result = compare(top)
    assert result["totals"]["unreadable"] == 3 and result["totals"]["content"] == 1
    for changing in ("seconds", "workers"):
        del expected[changing], result[changing]
    assert result == expected


def test_what_a_killed_recording_left_is_neither_recorded_nor_kept(top):
    digest = record(top)["digest"]
    left = top / ".torchstack" / ".manifest.json.ab_c0123"
    left.write_text("half")
    assert record(top, apply=False)["digest"] == digest and compare(top)["matches"]
    (top / "lib" / "new").write_text("")
    record(top)
    assert not left.exists() and compare(top)["matches"]
