# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Classify how two contents of one file of a release that was made twice differ. Pure."""

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
from .path_masks import PathMasks

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

MAX_UNPACKED = 4 << 30
"""Bytes that members of one archive may have together."""

RECORD_DIRECTORY = ".torchstack/"
VOLATILE = tuple(RECORD_DIRECTORY + name for name in ("steps/", "manifest.json", "sbom.spdx.json", "bytecode.json"))
"""Records that are about one build: times, attempts, logs, and what follows from those."""
OF_ONE_BUILD = ("sha256", "hash", "hashes", "seconds", "started", "finished", "time", "wheel_sha256")
"""Keys of the other records that are about one build, such as the checksum of a wheel that was packed then."""
OF_CONDA = ("name", "version", "build", "subdir", "sha256", "files")
"""What of a conda package's record says what is installed; the rest is about the cache and the time."""

_TREE = re.compile(r"(\.torchstack/patches/.*)-[0-9a-f]{10}(\.\w+)\Z")


class Classified(NamedTuple):
    """Hold a class, and what is the matter where that is not plain."""

    kind: str
    detail: str = ""


class Sides(NamedTuple):
    """Hold the path masks of the two releases."""

    first: PathMasks
    second: PathMasks


def common_name(path: str) -> str:
    """Return what a file is called in every release: series' records are named after their tree's place."""
    return _TREE.sub(r"\1-*\2", path)


def classify(path: str, first: bytes, second: bytes, sides: Sides) -> Classified:
    """Classify how two contents differ."""
    if first == second:
        return Classified(SAME)
    if path.endswith(".pyc"):
        # Only the tree knows what became of the source.
        same = first[:4] == second[:4]
        return Classified(BYTECODE) if same else Classified(OTHER, "of another version of Python")
    if path.startswith(VOLATILE):
        return Classified(RECORDS)
    masked = sides.first.mask(first), sides.second.mask(second)
    if masked[0] == masked[1]:
        return Classified(PLACE)
    for fits, compare in _CLASSIFIERS:
        if fits(path, first, second):
            return compare(path, first, second, masked, sides)
    return Classified(OTHER, "%d and %d bytes" % (len(first), len(second)) if len(first) != len(second) else "content")


def _compare_json(path: str, first: bytes, second: bytes, masked: tuple[bytes, bytes], sides: Sides) -> Classified:
    try:
        found = [_without_volatile(json.loads(content.decode("utf-8")), path) for content in masked]
    except (ValueError, RecursionError):
        return Classified(OTHER, "no JSON")
    return Classified(RECORDS) if found[0] == found[1] else Classified(OTHER, "what it records")


def _without_volatile(value: Any, path: str) -> Any:
    """Remove from a record what is about one build."""
    if "/conda-meta/" in path and isinstance(value, Mapping):
        return {key: value.get(key) for key in OF_CONDA}
    if isinstance(value, Mapping):
        return {key: _without_volatile(item, "") for key, item in value.items() if key not in OF_ONE_BUILD}
    return [_without_volatile(item, "") for item in value] if isinstance(value, list) else value


def _compare_installed(path: str, first: bytes, second: bytes, masked: tuple[bytes, bytes], sides: Sides) -> Classified:
    """Compare installers' lists of files with their digests; the files are compared themselves."""
    names = [{line.partition(b",")[0] for line in content.splitlines()} for content in masked]
    if names[0] == names[1]:
        return Classified(RECORDS)
    other = sorted(names[0] ^ names[1])[0].decode("utf-8", "replace")
    return Classified(OTHER, "lists other files, such as %s" % other)


def _compare_history(path: str, first: bytes, second: bytes, masked: tuple[bytes, bytes], sides: Sides) -> Classified:
    """Compare conda's journal: the packages are compared by their records."""
    return Classified(RECORDS)


def _compare_elf(path: str, first: bytes, second: bytes, masked: tuple[bytes, bytes], sides: Sides) -> Classified:
    try:
        found = elf_sections.sections(first), elf_sections.sections(second)
    except ValueError as error:
        return Classified(OTHER, str(error))
    loaded = [
        [one for one in part if one.flags & elf_sections.LOADED and one.kind != elf_sections.NOTE] for part in found]
    names = [[one.name for one in part] for part in loaded]
    if names[0] != names[1]:
        return Classified(OTHER, "other sections")
    differing = [
        one.name.decode("ascii", "replace") for one, two in zip(*loaded)
        if (one.address, one.size) != (two.address, two.size)
        or sides.first.mask(one.content) != sides.second.mask(two.content)]
    if not differing:
        return Classified(ELF)
    layouts = [[(one.address, one.size) for one in part] for part in loaded]
    if layouts[0] == layouts[1] or not (sides.first.names_path(first) and sides.second.names_path(second)):
        return Classified(OTHER, "the content of %s" % ", ".join(differing[:4]))
    try:
        if _interface(first, found[0], sides.first) != _interface(second, found[1], sides.second):
            return Classified(OTHER, "the symbols, the libraries, the variables or the amount of code")
    except ValueError as error:
        return Classified(OTHER, str(error))
    if compare_code.machine(first) != compare_code.X86_64:
        return Classified(LAYOUT, "its code is not compared")
    if not compare_code.same_code(loaded[0], loaded[1], (sides.first.mask, sides.second.mask)):
        return Classified(OTHER, "the code")
    return Classified(LAYOUT)


def _interface(content: bytes, found: list[elf_sections.Section], places: PathMasks) -> tuple[Any, ...]:
    """Return what another layout leaves alone: amount of code, variables, and symbols."""
    code = [(one.name, one.size) for one in found if one.flags & elf_sections.CODE]
    texts = [sorted(places.mask(text) for text in one.content.split(b"\0")) for one in found if one.name == b".dynstr"]
    variables = [places.mask(one.content) for one in found if one.name == b".data"]
    return code, variables, texts, elf_sections.dynamic_symbols(content, found)


def _compare_archives(path: str, first: bytes, second: bytes, masked: tuple[bytes, bytes], sides: Sides) -> Classified:
    try:
        members = _members(first), _members(second)
        if members[0].keys() != members[1].keys():
            return Classified(OTHER, "other members, such as %s" % sorted(members[0].keys() ^ members[1].keys())[0])
        for name in sorted(members[0]):
            classified = classify(name, members[0][name](), members[1][name](), sides)
            if classified.kind == OTHER:
                return Classified(OTHER, "member %s: %s" % (name, classified.detail))
    except _NOT_UNPACKED as error:
        return Classified(OTHER, "it cannot be unpacked: %s" % error)
    return Classified(TIMES)


_NOT_UNPACKED = (ValueError, OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError, NotImplementedError)

Members = Dict[str, Callable[[], bytes]]
"""The members of an archive, which are read one after the other: those of a wheel of PyTorch hold gigabytes."""


def _members(content: bytes) -> Members:
    if content.startswith(b"PK"):
        return _zip_members(content)
    if content.startswith(b"!<arch>\n"):
        return _ar_members(content)
    try:
        return _tar_members(content)
    except tarfile.TarError:
        return {"content": functools.partial(_inflate, content)}


def _zip_members(content: bytes) -> Members:
    archive = zipfile.ZipFile(io.BytesIO(content))
    _refuse_large(entry.file_size for entry in archive.infolist())
    return {entry.filename: functools.partial(archive.read, entry) for entry in archive.infolist()}


def _ar_members(content: bytes) -> Members:
    """List members of a static library: headers of 60 bytes (ar(5)); names may be repeated."""
    found: Members = {}
    position = 8
    while position + 60 <= len(content):
        header = content[position:position + 60]
        begin, size = position + 60, int(header[48:58])
        name = header[:16].decode("ascii", "replace").strip()
        found["%d %s" % (len(found), name)] = functools.partial(_slice, content, begin, size)
        position = begin + size + size % 2
    return found


def _slice(content: bytes, begin: int, size: int) -> bytes:
    return content[begin:begin + size]


def _tar_members(content: bytes) -> Members:
    archive = tarfile.open(fileobj=io.BytesIO(content))  # noqa: SIM115  # its members are read later; it is memory
    _refuse_large(entry.size for entry in archive)
    return {entry.name: functools.partial(_tar_content, archive, entry) for entry in archive}


def _tar_content(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(entry) if entry.isreg() else None
    return stream.read() if stream else entry.type + entry.linkname.encode("utf-8")


def _inflate(content: bytes) -> bytes:
    """Unpack the content of a file that gzip has packed; its header has a time."""
    unpacker = zlib.decompressobj(31)
    plain = unpacker.decompress(content, MAX_UNPACKED)
    if unpacker.unconsumed_tail:
        raise ValueError("its content is too large")
    return plain


def _refuse_large(sizes: Iterable[int]) -> None:
    """Refuse, by ValueError, an archive that would unpack to more than a release holds."""
    if sum(sizes) > MAX_UNPACKED:
        raise ValueError("its members are too large")


Compare = Callable[[str, bytes, bytes, "tuple[bytes, bytes]", Sides], Classified]

_PACKED = (b"PK\x03\x04", b"!<arch>\n", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0")

_CLASSIFIERS: tuple[tuple[Callable[[str, bytes, bytes], bool], Compare], ...] = (
    (lambda path, first, second: path.endswith((".dist-info/RECORD", ".egg-info/installed-files.txt")),
     _compare_installed),
    (lambda path, first, second: path.endswith("conda-meta/history"), _compare_history),
    (lambda path, first, second: path.endswith((".dist-info/direct_url.json",)) or (
        path.endswith(".json") and (path.startswith(RECORD_DIRECTORY) or "conda-meta/" in path)), _compare_json),
    (lambda path, first, second: first[:4] == second[:4] == elf_sections.MAGIC, _compare_elf),
    (lambda path, first, second: first.startswith(_PACKED) and second.startswith(_PACKED), _compare_archives))
"""Who judges what, the first that fits."""
