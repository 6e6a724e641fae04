# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Trees that are deep, strange, or change while they are looked at."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import pathlib
import shutil
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify import library_scan, library_walk
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.library_scan import scan

RELOCATABLE = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x01\x00\x3e\x00\x01\x00\x00\x00" + bytes(40)
"""The header of an object that is linked and not loaded: the shortest file that is ELF and not broken."""


def look(*tops, exclude=(), unopened=()):
    return scan([str(top) for top in tops], list(exclude), 64, 62, unopened=unopened)


@contextlib.contextmanager
def chain(top, names):
    """Directories one in the other, however long the path is, with an ELF file in the last; removed afterwards."""
    descriptors = [os.open(top, os.O_RDONLY)]
    try:
        for name in names:
            os.mkdir(name, dir_fd=descriptors[-1])
            descriptors.append(os.open(name, os.O_RDONLY, dir_fd=descriptors[-1]))
            if len(descriptors) > 8:
                os.close(descriptors.pop(0))
        file = os.open("last.o", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=descriptors[-1])
        os.write(file, RELOCATABLE)
        os.close(file)
        yield
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
        remove_chain(top)


def remove_chain(top):
    """Remove a chain of directories from above: rmtree() fails where a path is too long."""
    for number in itertools.count():
        names = [entry.path for entry in os.scandir(top) if entry.is_dir(follow_symlinks=False)]
        if not names:
            break
        for below in os.scandir(names[0]):
            if below.is_dir(follow_symlinks=False):
                os.rename(below.path, os.path.join(top, "moved-%d" % number))
            else:
                os.unlink(below.path)
        os.rmdir(names[0])


def test_directories_in_each_other_beyond_the_longest_path_are_walked_to_the_last(tmp_path):
    top = tmp_path / "top"
    top.mkdir()
    with chain(str(top), ["directory"] * 500):
        opened = len(os.listdir("/proc/self/fd"))
        found = look(top)
        assert found.files == 1 and found.not_checked[0].path.endswith(b"/directory/last.o")
        assert len(found.not_checked[0].path) > 5000 and not found.unreadable
        assert len(os.listdir("/proc/self/fd")) == opened


def test_an_object_that_no_program_can_open_is_a_finding(tmp_path, monkeypatch):
    monkeypatch.setattr(library_scan, "MAX_PATH", len(str(tmp_path)) + 20)
    data = bytearray(pathlib.Path(os.path.realpath("/proc/self/exe")).read_bytes())
    machine = int.from_bytes(data[18:20], "little")
    for name in ("a" * 19, "b" * 20):
        (tmp_path / name).write_bytes(data)
    found = scan([str(tmp_path)], [], 64, machine)
    assert [os.path.basename(item.path) for item in found.objects] == [b"a" * 19]
    assert [item.code for item in found.unreadable] == [errno.ENAMETOOLONG]


def test_no_more_than_some_directories_are_open_at_once_and_none_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(library_walk, "MAX_OPEN", 3)
    place = tmp_path
    for number in range(12):
        for side in ("left", "right"):
            (place / side).mkdir()
            (place / side / "part.o").write_bytes(RELOCATABLE)
        place = place / ("right" if number % 2 else "left")
    opened = set(os.listdir("/proc/self/fd"))
    most = []
    real = library_walk.os.scandir

    def counted(descriptor):
        most.append(len(set(os.listdir("/proc/self/fd")) - opened))
        return real(descriptor)

    monkeypatch.setattr(library_walk.os, "scandir", counted)
    found = look(tmp_path)
    monkeypatch.undo()
    assert found.files == len(found.not_checked) == 24 and not found.unreadable
    assert max(most) <= 6
    assert set(os.listdir("/proc/self/fd")) == opened


def test_a_deep_directory_that_is_moved_away_meanwhile_is_a_finding_and_the_rest_is_walked(tmp_path, monkeypatch):
    monkeypatch.setattr(library_walk, "MAX_OPEN", 2)
    top, elsewhere = tmp_path / "top", tmp_path / "elsewhere"
    deep = top / "a" / "b" / "c" / "d"
    deep.mkdir(parents=True)
    elsewhere.mkdir()
    (top / "part.o").write_bytes(RELOCATABLE)
    (elsewhere / "secret.o").write_bytes(RELOCATABLE)
    real = library_walk.os.scandir
    seen = []

    def moving(descriptor):
        seen.append(os.readlink("/proc/self/fd/%d" % descriptor))
        if seen[-1] == str(deep):
            shutil.move(str(top / "a" / "b" / "c"), str(elsewhere / "c"))
        return real(descriptor)

    monkeypatch.setattr(library_walk.os, "scandir", moving)
    found = look(top)
    assert [item.path for item in found.not_checked] == [os.fsencode(top / "part.o")]
    assert [(item.path, item.reason) for item in found.unreadable] == [
        (os.fsencode(top / "a" / "b"), library_walk.MOVED)
    ]
    assert str(elsewhere) not in seen


def replaced(monkeypatch, name, change):
    """Change the file system right before a name is opened."""
    real = os.open

    def opening(path, flags, *more, **keywords):
        if path == name:
            change()
        return real(path, flags, *more, **keywords)

    monkeypatch.setattr(library_scan.os, "open", opening)


@pytest.mark.parametrize("kind", ["gone", "link", "pipe", "directory"])
def test_a_file_that_is_something_else_when_it_is_opened_is_passed_over(tmp_path, monkeypatch, kind):
    top, outside = tmp_path / "top", tmp_path / "outside.o"
    top.mkdir()
    outside.write_bytes(RELOCATABLE)
    for name in ("one.o", "two.o"):
        (top / name).write_bytes(RELOCATABLE)

    def change():
        (top / "two.o").unlink()
        if kind == "link":
            (top / "two.o").symlink_to(outside)
        elif kind == "pipe":
            os.mkfifo(str(top / "two.o"))
        elif kind == "directory":
            (top / "two.o").mkdir()

    replaced(monkeypatch, "two.o", change)
    found = look(top)
    assert [os.path.basename(item.path) for item in found.not_checked] == [b"one.o"]
    assert found.unreadable == []


def test_a_directory_that_is_swapped_for_a_link_leads_nowhere(tmp_path, monkeypatch):
    top, outside = tmp_path / "top", tmp_path / "outside"
    for place in (top / "inner", outside):
        place.mkdir(parents=True)
        (place / "part.o").write_bytes(RELOCATABLE)

    def change():
        shutil.rmtree(str(top / "inner"))
        (top / "inner").symlink_to(outside)

    replaced(monkeypatch, "inner", change)
    found = look(top)
    assert (found.files, found.not_checked, found.unreadable) == (0, [], [])


def test_a_lack_of_descriptors_ends_the_scan_with_what_to_raise(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(RELOCATABLE)

    def change():
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    replaced(monkeypatch, "file", change)
    with pytest.raises(StackError, match=r"file: Too many open files") as caught:
        look(tmp_path)
    assert "ulimit -n" in caught.value.remedy


def test_a_file_below_two_of_the_paths_is_looked_at_once(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "ab").mkdir()
    for place in ("a", "a/b", "ab"):
        (tmp_path / place / "part.o").write_bytes(RELOCATABLE)
    assert look(tmp_path / "a", tmp_path / "a" / "b", tmp_path / "ab").files == 3
    # What is left out below one path is looked at below the other, which does not leave it out.
    found = look(tmp_path / "a", tmp_path / "a" / "b", exclude=["b/part.o"])
    assert (found.files, found.excluded) == (2, 1)


def test_names_of_any_bytes_are_walked_and_known_by_their_bytes(tmp_path):
    names = [b"new\nline.o", b"\xff\xfe.o", b"tab\t.o", "\u20ac.o".encode()]
    for name in names:
        (tmp_path / "d").mkdir(exist_ok=True)
        inner = os.path.join(os.fsencode(tmp_path), b"d-" + name)
        os.mkdir(inner)
        with open(os.path.join(inner, name), "wb") as stream:
            stream.write(RELOCATABLE)
    found = look(tmp_path)
    assert sorted(os.path.basename(item.path) for item in found.not_checked) == sorted(names)
    assert look(tmp_path, exclude=["d-*"]).excluded == len(names)


def test_links_in_a_circle_are_not_walked(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "up").symlink_to("..")
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "inner" / "part.o").write_bytes(RELOCATABLE)
    (tmp_path / "part.o").symlink_to("inner/part.o")
    assert look(tmp_path).files == 1


def test_what_is_called_like_source_is_counted_and_not_opened_unless_it_is_named_itself(tmp_path):
    for name in ("module.py", "part.o", "py"):
        (tmp_path / name).write_bytes(RELOCATABLE)
    (tmp_path / "secret.py").touch(0)
    found = look(tmp_path, unopened=[".py"])
    assert [os.path.basename(item.path) for item in found.not_checked] == [b"part.o", b"py"]
    assert (found.files, found.unopened, found.unreadable) == (4, 2, [])
    assert len(look(tmp_path / "module.py", unopened=[".py"]).not_checked) == 1
    assert len(look(tmp_path).not_checked) == 3


@pytest.mark.parametrize("size", [2, 3])
def test_several_processes_find_what_one_finds(tmp_path, monkeypatch, size):
    for first, second, name in itertools.product(range(6), range(5), range(4)):
        place = tmp_path / "tree" / str(first) / str(second)
        place.mkdir(parents=True, exist_ok=True)
        (place / ("%d.o" % name)).write_bytes((RELOCATABLE, b"text", b"", RELOCATABLE[:50])[name])
    (tmp_path / "tree" / "left out").mkdir()
    (tmp_path / "tree" / "0" / "module.py").write_text("import os\n")
    monkeypatch.setattr(library_scan, "processors", lambda: 1)
    alone = look(tmp_path / "tree", exclude=["left out"], unopened=[".py"])
    monkeypatch.setattr(library_scan, "processors", lambda: size)
    monkeypatch.setattr(library_scan, "may_fork", lambda: True)
    monkeypatch.setattr(library_scan, "MANY", 0)
    together = look(tmp_path / "tree", exclude=["left out"], unopened=[".py"])
    assert vars(together) == vars(alone)
    assert (alone.files, alone.unopened, alone.excluded) == (121, 1, 1)
    assert (len(alone.not_checked), len(alone.unreadable)) == (30, 30)


def test_a_failure_of_another_process_ends_the_scan_with_its_words(tmp_path, monkeypatch):
    first = os.getpid()
    for number in range(8):
        (tmp_path / str(number)).mkdir()

    def refuse(walk, level, *more):
        if os.getpid() != first:
            raise StackError("Cannot look at %s: no more files." % walk.path(), "scan", "Raise the limit.")
        # Until the other one has something to refuse, and has done so.
        time.sleep(0.1)

    monkeypatch.setattr(library_scan, "_look_at_files", lambda kinds, *rest: refuse(*rest))
    monkeypatch.setattr(library_scan, "processors", lambda: 2)
    monkeypatch.setattr(library_scan, "may_fork", lambda: True)
    monkeypatch.setattr(library_scan, "MANY", 0)
    with pytest.raises(StackError, match="no more files") as caught:
        look(tmp_path)
    assert (caught.value.failed_step, caught.value.remedy) == ("scan", "Raise the limit.")


def test_a_directory_that_is_given_away_is_walked_by_its_names_and_through_no_link(tmp_path):
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    for place in ("a/b/c", "a/d", "e"):
        (tree / place).mkdir(parents=True)
        (tree / place / "file").touch()
    walk = library_walk.Walk(str(tree), None, lambda path, error: None)
    steps = iter(walk)
    next(steps)
    spare = walk.spare()
    assert spare in (["a"], ["e"]) and walk.spare() is None, "one is left to walk"
    walk.take_back(spare)
    steps.close()

    def walked(start, failures):
        walk = library_walk.Walk(str(tree), None, lambda path, error: failures.append(path), start)
        return sorted(walk.path(name) for level in walk for name in level.files)

    assert walked(["a", "b"], []) == [str(tree / "a/b/c/file")]
    outside.mkdir()
    (outside / "file").touch()
    shutil.rmtree(tree / "a" / "d")
    (tree / "a" / "d").symlink_to(outside)
    failures: list[str] = []
    assert walked(["a", "d"], failures) == [] and failures == [str(tree / "a/d")]
