# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A process map as text, and the libraries that it means."""

from __future__ import annotations

import mmap
import os
from collections import namedtuple

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf import process_map
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf.process_map import (
    Library,
    MappedFile,
    find_file,
    identify,
    identity_of,
    libraries,
    parse_maps,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf.reader import ElfError

Elf = namedtuple("Elf", "kind soname")


def line(name, permissions=b"r--p", device=b"08:01", inode=7, address=0x7F0000000000):
    """One line as the kernel writes it, the name in its column."""
    head = b"%x-%x %s 00000000 %s %d" % (address, address + 4096, permissions, device, inode)
    return head.ljust(73) + name + b"\n" if name else head + b" \n"


PASSED_OVER = {
    "anonymous": line(b"", inode=0),
    "heap": line(b"[heap]", inode=0),
    "stack": line(b"[stack]", inode=0),
    "vdso": line(b"[vdso]", b"r-xp", inode=0),
    "named anonymous": line(b"[anon:glibc: malloc]", inode=0),
    "named shared anonymous": line(b"[anon_shmem:x]", b"rw-s", b"00:01", 9),
    "huge page": line(b"/anon_hugepage (deleted)", b"rw-p", b"00:10", 12),
    "memfd": line(b"/memfd:libffi (deleted)", b"r-xp", b"00:01", 3079),
    "segment": line(b"/SYSV00000000 (deleted)", b"rw-s", b"00:01", 5),
    "shared zero": line(b"/dev/zero (deleted)", b"rw-s", b"00:01", 6),
    "event": line(b"anon_inode:[perf_event]", b"rw-s", b"00:0e", 4),
    "socket": line(b"socket:[321]", b"rw-s", b"00:08", 321),
    "cut short": b"7f00-7f01 r-xp 0000",
    "nothing": b"\n",
    "nonsense": b"a b c d e /f\n",
}


@pytest.mark.parametrize("text", PASSED_OVER.values(), ids=PASSED_OVER.keys())
def test_what_is_not_a_file_is_passed_over(text):
    assert parse_maps(text) == ()


NAMES = {
    "plain": b"/usr/lib/libm.so.6",
    "spaces": b"/opt/a  b/lib c.so.1 ",
    "line feed": b"/opt/a\\012b/libx.so",
    "not UTF-8": b"/opt/\xff\xfe/libx.so",
    "deleted": b"/opt/libx.so (deleted)",
    "named like a memfd": b"/memfd:libx.so",
    "huge page file system": b"/dev/hugepages/libx.so",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_names_of_files_are_kept_byte_for_byte(name):
    assert parse_maps(line(name)) == (MappedFile(name, "08:01", 7, False),)


def test_the_segments_of_a_file_are_one_and_any_of_them_makes_it_executable():
    text = line(b"/l.so") + line(b"/l.so", b"r-xp") + line(b"/l.so", b"rw-p") + line(b"/m.so")
    assert parse_maps(text) == (MappedFile(b"/l.so", "08:01", 7, True), MappedFile(b"/m.so", "08:01", 7, False))


def test_a_name_that_means_two_files_is_two_files():
    text = line(b"/l.so", inode=1) + line(b"/l.so", inode=2) + line(b"/l.so", device=b"08:02", inode=1)
    assert [(file.device, file.inode) for file in parse_maps(text)] == [("08:01", 1), ("08:01", 2), ("08:02", 1)]


@pytest.mark.parametrize("name", [b"plain.so", b"a\nb.so", b"a\\012b.so", b"\xff.so", b"x.so (deleted)", b" .so"])
def test_a_mapped_file_is_found_again_whatever_its_name_is(tmp_path, name):
    path = os.fsencode(str(tmp_path)) + b"/" + name
    with open(path, "wb") as stream:
        stream.write(b"x" * 4096)
    with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ):
        with open("/proc/self/maps", "rb") as maps:
            [mapped] = [file for file in parse_maps(maps.read()) if os.path.dirname(file.name) == os.path.dirname(path)]
        assert find_file(mapped) == (path, False, identity_of(os.stat(path)), True)


def test_a_mapped_file_that_was_deleted_is_known_by_device_and_inode(tmp_path):
    path = os.fsencode(str(tmp_path)) + b"/gone\n.so"
    with open(path, "wb") as stream:
        stream.write(b"x" * 4096)
    with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ):
        os.unlink(path)
        with open("/proc/self/maps", "rb") as maps:
            [mapped] = [file for file in parse_maps(maps.read()) if os.path.dirname(file.name) == os.path.dirname(path)]
    found, deleted, identity, _regular = find_file(mapped)
    assert (found, deleted, identity) == (path, True, ("maps", mapped.device, mapped.inode))


def test_where_the_map_shows_another_inode_than_stat_an_existing_name_still_counts(tmp_path):
    path = os.fsencode(str(tmp_path / "overlay.so"))
    open(path, "wb").close()
    assert find_file(MappedFile(path, "00:99", 1, True))[:3] == (path, False, identity_of(os.stat(path)))


def raises(error):
    def read(_path):
        raise error

    return read


READINGS = {
    "library": (lambda path: Elf(3, b"libx.so.1"), False, (b"libx.so.1", True)),
    "program": (lambda path: Elf(2, None), False, (b"", True)),
    "object file": (lambda path: Elf(1, None), True, None),
    "data": (lambda path: None, False, None),
    "data, mapped with x": (lambda path: None, True, None),
    "unreadable code": (raises(PermissionError()), True, (b"", False)),
    "unreadable data": (raises(PermissionError()), False, None),
    "broken code": (raises(ElfError("cut short")), True, (b"", False)),
}


@pytest.mark.parametrize("read, executable, expected", READINGS.values(), ids=READINGS.keys())
def test_a_library_is_what_its_header_says_or_else_what_is_executable(tmp_path, read, executable, expected):
    path = os.fsencode(str(tmp_path / "libx.so"))
    open(path, "wb").close()
    library = identify(MappedFile(path, "", os.stat(path).st_ino, executable), read)
    assert (library and (library.soname, library.readable)) == expected
    assert library is None or library.name == (library.soname or b"libx.so")


def test_a_device_is_not_opened():
    status = os.stat("/dev/null")
    assert identify(MappedFile(b"/dev/null", "", status.st_ino, True), raises(AssertionError("opened"))) is None


def test_a_deleted_library_goes_by_the_name_of_its_file():
    library = identify(MappedFile(b"/nowhere/libx.so.1 (deleted)", "08:01", 5, True))
    assert library == Library(b"/nowhere/libx.so.1", b"", ("maps", "08:01", 5), True, False)
    assert library.name == b"libx.so.1"


def test_a_library_belongs_to_the_first_step_that_has_it_and_the_address_says_nothing(tmp_path, monkeypatch):
    texts = []
    for name in ("a", "b", "c"):
        path = tmp_path / name
        path.write_text("")
        texts.append(line(os.fsencode(str(path)), b"r-xp", inode=os.stat(str(path)).st_ino))
    os.link(str(tmp_path / "a"), str(tmp_path / "d"))
    same = line(os.fsencode(str(tmp_path / "d")), b"r-xp", inode=os.stat(str(tmp_path / "a")).st_ino)
    monkeypatch.setattr(process_map, "identify", lambda file: identify(file, lambda path: Elf(3, None)))
    steps = [("start", texts[0]), ("first", texts[2] + texts[1]), ("second", texts[0] + texts[1] + same)]
    found = [(step, os.path.basename(library.path)) for step, library in libraries(steps)]
    assert found == [("start", b"a"), ("first", b"b"), ("first", b"c")]


def test_in_a_container_a_file_of_the_same_name_here_says_nothing(tmp_path):
    here = tmp_path / "libtorch.so"
    here.write_bytes(b"no library at all")
    line = "7f0000000000-7f0000001000 %s 00000000 00:2a 77 %s\n"
    text = (line % ("r-xp", here) + line % ("r--p", "/data")).encode()
    text += (line % ("r-xp", "/gone.so (deleted)")).replace(" 77 ", " 78 ").encode()
    ((_step, gone), (_step, found)) = process_map.libraries([("torch", text)], process_map.identify_unseen)
    assert (found.path, found.name, found.soname) == (os.fsencode(here), b"libtorch.so", b"")
    assert (gone.path, gone.deleted) == (b"/gone.so", True)


def test_the_map_of_this_very_process_names_its_libc():
    with open("/proc/self/maps", "rb") as stream:
        found = {library.name for _step, library in libraries([("here", stream.read())])}
    assert any(name.startswith((b"libc.so", b"libc.musl", b"ld-")) for name in found)
