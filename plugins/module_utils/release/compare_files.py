# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Two contents of one file of a release that was made twice: in which way they differ. Pure."""

from __future__ import annotations

import functools
import io
import json
import re
import tarfile
import zipfile
import zlib
from typing import Any, Callable, Dict, Iterable, Mapping, NamedTuple

from ..elf import sections as elf_sections
from . import compare_code
from .compare_places import Places

SAME, PLACE, BYTECODE, RECORDS, TIMES, ELF, LAYOUT, OTHER = (
    "same", "place", "bytecode", "records", "times", "elf", "layout", "other")

CLASSES = {
    SAME: "the same bytes, type and mode",
    PLACE: "only the directory of the release or the one above it is another",
    BYTECODE: "compiled from the same source, at another time or place",
    RECORDS: "records of the build and of installers: times, logs, digests of what the other classes have",
    TIMES: "archives with the same members, packed at another time or with members of the other classes",
    ELF: "objects of which only notes (the build id), comments, symbol tables that are not loaded and debugging "
         "information differ, or their own place",
    LAYOUT: "objects with the same symbols, libraries and code, laid out otherwise as the path in them has another "
            "length",
    OTHER: "real differences",
}
"""What each class means, from the least to the most."""

UNPACKED_MOST = 4 << 30
"""Bytes that members of one archive may have together."""

RECORD_DIRECTORY = ".torchstack/"
VOLATILE = tuple(
    RECORD_DIRECTORY + name for name in ("steps/", "manifest.json", "sbom.spdx.json", "bytecode.json"))
"""Records that are about one build: times, attempts, logs, and what follows from those."""
OF_ONE_BUILD = ("sha256", "hash", "hashes", "seconds", "started", "finished", "time", "wheel_sha256")
"""Keys of the other records that are about one build, such as the checksum of a wheel that was packed then."""
OF_CONDA = ("name", "version", "build", "subdir", "sha256", "files")
"""What of a conda package's record says what is installed; the rest is about the cache and the time."""

_TREE = re.compile(r"(\.torchstack/patches/.*)-[0-9a-f]{10}(\.\w+)\Z")


class Judged(NamedTuple):
    """A class, and what is the matter where that is not plain."""

    kind: str
    detail: str = ""


class Sides(NamedTuple):
    """The places of the two releases."""

    first: Places
    second: Places


def common_name(path: str) -> str:
    """What a file is called in every release: records of patch series are named after their tree's place."""
    return _TREE.sub(r"\1-*\2", path)


def judge(path: str, first: bytes, second: bytes, sides: Sides) -> Judged:
    """How two contents differ.

    Args:
        path: of the file, relative to its release.
        first: what the one release has there.
        second: what the other has.
        sides: where the two lie.
    """
    if first == second:
        return Judged(SAME)
    if path.endswith(".pyc"):
        # Only the tree knows what became of the source.
        same = first[:4] == second[:4]
        return Judged(BYTECODE) if same else Judged(OTHER, "of another version of Python")
    if path.startswith(VOLATILE):
        return Judged(RECORDS)
    bare = sides.first.without(first), sides.second.without(second)
    if bare[0] == bare[1]:
        return Judged(PLACE)
    for fits, compare in _JUDGES:
        if fits(path, first, second):
            return compare(path, first, second, bare, sides)
    return Judged(OTHER, "%d and %d bytes" % (len(first), len(second)) if len(first) != len(second) else "content")


def _json(path: str, first: bytes, second: bytes, bare: tuple[bytes, bytes], sides: Sides) -> Judged:
    try:
        found = [_stable(json.loads(content.decode("utf-8")), path) for content in bare]
    except (ValueError, RecursionError):
        return Judged(OTHER, "no JSON")
    return Judged(RECORDS) if found[0] == found[1] else Judged(OTHER, "what it records")


def _stable(value: Any, path: str) -> Any:
    """What of a record is not about one build."""
    if "/conda-meta/" in path and isinstance(value, Mapping):
        return {key: value.get(key) for key in OF_CONDA}
    if isinstance(value, Mapping):
        return {key: _stable(item, "") for key, item in value.items() if key not in OF_ONE_BUILD}
    return [_stable(item, "") for item in value] if isinstance(value, list) else value


def _installed(path: str, first: bytes, second: bytes, bare: tuple[bytes, bytes], sides: Sides) -> Judged:
    """An installer's list of files with their digests; the files are compared themselves."""
    names = [{line.partition(b",")[0] for line in content.splitlines()} for content in bare]
    if names[0] == names[1]:
        return Judged(RECORDS)
    return Judged(OTHER, "lists other files, such as %s" % sorted(names[0] ^ names[1])[0].decode("utf-8", "replace"))


def _history(path: str, first: bytes, second: bytes, bare: tuple[bytes, bytes], sides: Sides) -> Judged:
    """Conda's journal: the packages are compared by their records."""
    return Judged(RECORDS)


def _elf(path: str, first: bytes, second: bytes, bare: tuple[bytes, bytes], sides: Sides) -> Judged:
    try:
        found = elf_sections.sections(first), elf_sections.sections(second)
    except ValueError as error:
        return Judged(OTHER, str(error))
    loaded = [
        [one for one in part if one.flags & elf_sections.LOADED and one.kind != elf_sections.NOTE] for part in found]
    names = [[one.name for one in part] for part in loaded]
    if names[0] != names[1]:
        return Judged(OTHER, "other sections")
    differing = [
        one.name.decode("ascii", "replace") for one, two in zip(*loaded)
        if (one.address, one.size) != (two.address, two.size)
        or sides.first.without(one.content) != sides.second.without(two.content)
    ]
    if not differing:
        return Judged(ELF)
    layouts = [[(one.address, one.size) for one in part] for part in loaded]
    if layouts[0] == layouts[1] or not (sides.first.has(first) and sides.second.has(second)):
        return Judged(OTHER, "the content of %s" % ", ".join(differing[:4]))
    try:
        if _interface(first, found[0], sides.first) != _interface(second, found[1], sides.second):
            return Judged(OTHER, "the symbols, the libraries, the variables or the amount of code")
    except ValueError as error:
        return Judged(OTHER, str(error))
    if compare_code.machine(first) != compare_code.X86_64:
        return Judged(LAYOUT, "its code is not compared")
    if not compare_code.same_code(loaded[0], loaded[1], (sides.first.without, sides.second.without)):
        return Judged(OTHER, "the code")
    return Judged(LAYOUT)


def _interface(content: bytes, found: list[elf_sections.Section], places: Places) -> tuple[Any, ...]:
    """What another layout leaves alone: how much code there is, variables, and what is offered and wanted."""
    code = [(one.name, one.size) for one in found if one.flags & elf_sections.CODE]
    texts = [
        sorted(places.without(text) for text in one.content.split(b"\0")) for one in found if one.name == b".dynstr"]
    variables = [places.without(one.content) for one in found if one.name == b".data"]
    return code, variables, texts, elf_sections.dynamic_symbols(content, found)


def _archive(path: str, first: bytes, second: bytes, bare: tuple[bytes, bytes], sides: Sides) -> Judged:
    try:
        members = _members(first), _members(second)
        if members[0].keys() != members[1].keys():
            return Judged(OTHER, "other members, such as %s" % sorted(members[0].keys() ^ members[1].keys())[0])
        for name in sorted(members[0]):
            judged = judge(name, members[0][name](), members[1][name](), sides)
            if judged.kind == OTHER:
                return Judged(OTHER, "member %s: %s" % (name, judged.detail))
    except _NOT_UNPACKED as error:
        return Judged(OTHER, "it cannot be unpacked: %s" % error)
    return Judged(TIMES)


_NOT_UNPACKED = (ValueError, OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError, NotImplementedError)

Members = Dict[str, Callable[[], bytes]]
"""The members of an archive, which are read one after the other: those of a wheel of PyTorch hold gigabytes."""


def _members(content: bytes) -> Members:
    if content.startswith(b"PK"):
        return _of_zip(content)
    if content.startswith(b"!<arch>\n"):
        return _of_ar(content)
    try:
        return _of_tar(content)
    except tarfile.TarError:
        return {"content": functools.partial(_inflated, content)}


def _of_zip(content: bytes) -> Members:
    archive = zipfile.ZipFile(io.BytesIO(content))
    _refuse_large(entry.file_size for entry in archive.infolist())
    return {entry.filename: functools.partial(archive.read, entry) for entry in archive.infolist()}


def _of_ar(content: bytes) -> Members:
    """Members of a static library: headers of 60 bytes with times, owners and modes (ar(5)); names may be repeated."""
    found: Members = {}
    position = 8
    while position + 60 <= len(content):
        header = content[position:position + 60]
        begin, size = position + 60, int(header[48:58])
        name = header[:16].decode("ascii", "replace").strip()
        found["%d %s" % (len(found), name)] = functools.partial(_part, content, begin, size)
        position = begin + size + size % 2
    return found


def _part(content: bytes, begin: int, size: int) -> bytes:
    return content[begin:begin + size]


def _of_tar(content: bytes) -> Members:
    archive = tarfile.open(fileobj=io.BytesIO(content))  # noqa: SIM115  # its members are read later; it is memory
    _refuse_large(entry.size for entry in archive)
    return {entry.name: functools.partial(_of_entry, archive, entry) for entry in archive}


def _of_entry(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(entry) if entry.isreg() else None
    return stream.read() if stream else entry.type + entry.linkname.encode("utf-8")


def _inflated(content: bytes) -> bytes:
    """The content of a file that gzip has packed; its header has a time."""
    unpacker = zlib.decompressobj(31)
    plain = unpacker.decompress(content, UNPACKED_MOST)
    if unpacker.unconsumed_tail:
        raise ValueError("its content is too large")
    return plain


def _refuse_large(sizes: Iterable[int]) -> None:
    """Refuse an archive that would unpack to more than a release holds.

    Raises:
        ValueError: its members are too large.
    """
    if sum(sizes) > UNPACKED_MOST:
        raise ValueError("its members are too large")


Compare = Callable[[str, bytes, bytes, "tuple[bytes, bytes]", Sides], Judged]

_PACKED = (b"PK\x03\x04", b"!<arch>\n", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0")

_JUDGES: tuple[tuple[Callable[[str, bytes, bytes], bool], Compare], ...] = (
    (lambda path, first, second: path.endswith((".dist-info/RECORD", ".egg-info/installed-files.txt")), _installed),
    (lambda path, first, second: path.endswith("conda-meta/history"), _history),
    (lambda path, first, second: path.endswith((".dist-info/direct_url.json",)) or (
        path.endswith(".json") and (path.startswith(RECORD_DIRECTORY) or "conda-meta/" in path)), _json),
    (lambda path, first, second: first[:4] == second[:4] == elf_sections.MAGIC, _elf),
    (lambda path, first, second: first.startswith(_PACKED) and second.startswith(_PACKED), _archive),
)
"""Who judges what, the first that fits."""
