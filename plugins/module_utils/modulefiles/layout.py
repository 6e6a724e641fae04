# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Name the files of a modulefile, staged and visible, and render what is in them.

A staged file lies under ``<root>/.torchstack/<release>/modulefiles``, which is in nobody's MODULEPATH: no ``module
avail`` shows it, and whoever adds that directory loads exactly the bytes that publishing makes visible later under
``<root>/modulefiles``.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from typing import Mapping, Sequence

from ..core.errors import StackError
from ..core.files import read_json, write_atomic
from .description import under_each_name
from .lua import quoted as lua_quoted
from .lua import render_lua
from .tcl import quoted as tcl_quoted
from .tcl import render_tcl

MAKER = "made by the Ansible collection hpcml.torchstack"
"""The words by which a file of ours is known; every other file in the module tree is somebody else's."""

RECORD = "modulefile.json"
DESCRIPTION = os.path.join("modulefiles", "description.json")
JOURNAL = "publish.jsonl"
PARTITIONS = "partitions"
ACCEPTANCE = "acceptance.json"

_RELEASE_LINE = re.compile((r", release (\S+), %s" % MAKER).encode("ascii"))

_SUFFIX = {"tcl": "", "lmod": ".lua"}
SYNTAXES = tuple(_SUFFIX)
"""In the order of visible changes: a user of Environment Modules sees one a moment before a user of Lmod."""

_DEFAULT_FILE = {"tcl": ".version", "lmod": ".modulerc.lua"}
_HIDDEN_FILE = {"tcl": ".modulerc", "lmod": ".modulerc.lua"}
_DEFAULT_LINE = {
    "tcl": re.compile(r'^set ModulesVersion "([^"]+)"$', re.M),
    "lmod": re.compile(r'^module_version\("[^"/]+/([^"]+)", "default"\)$', re.M)}
_HIDDEN_LINE = {
    "tcl": re.compile(r'^   module-hide "[^"/]+/([^"]+)"$', re.M),
    "lmod": re.compile(r'^hide_version\("[^"/]+/([^"]+)"\)$', re.M)}


def stage_directory(root: str, release: str, partition: str = "") -> str:
    """Return ``<root>/.torchstack/<release>``, which has what happens to a release after its build.

    What happens on one partition of the site is below that, in a directory of its own with the same names.
    """
    return os.path.join(root, ".torchstack", release, *([PARTITIONS, partition] if partition else []))


def relative_path(syntax: str, name: str, version: str) -> str:
    """Return path of a modulefile, below the staging directory as below the root."""
    return os.path.join("modulefiles", syntax, name, version + _SUFFIX[syntax])


def default_path(syntax: str, name: str) -> str:
    """Return path of the file that says which version ``module load NAME`` means, below the root."""
    return os.path.join("modulefiles", syntax, name, _DEFAULT_FILE[syntax])


def default_text(syntax: str, name: str, version: str) -> str:
    """Return content of that file."""
    if syntax == "tcl":
        return "#%%Module1.0\n# The default version of %s, %s.\nset ModulesVersion %s\n" % (
            name, MAKER, tcl_quoted(version))
    return "-- The default version of %s, %s.\nmodule_version(%s, \"default\")\n" % (
        name, MAKER, lua_quoted("%s/%s" % (name, version)))


def hidden_path(syntax: str, name: str) -> str:
    """Return the path of the file that names versions not listed; for Lmod it is :func:`default_path`."""
    return os.path.join("modulefiles", syntax, name, _HIDDEN_FILE[syntax])


def visible_versions(root: str, syntax: str, name: str) -> list[str]:
    """Return the versions of a module that have a modulefile in the module tree, whatever is in it."""
    directory, suffix = os.path.split(os.path.join(root, relative_path(syntax, name, "")))
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    return sorted(
        entry[:len(entry) - len(suffix)] for entry in names if entry.endswith(suffix) and not entry.startswith("."))


def hidden_text(syntax: str, name: str, versions: Sequence[str]) -> str:
    """Return the lines that keep versions out of ``module avail``; each still loads by its full name.

    Environment Modules hide since version 4.6; an older one lists what is hidden from others.
    """
    mark = {"tcl": "#", "lmod": "--"}[syntax]
    lines = ["%s Versions of %s that load by their full name and are not listed, %s." % (mark, name, MAKER)]
    if syntax == "tcl":
        lines.extend(["if {[llength [info commands module-hide]]} {",
                      *("   module-hide %s" % tcl_quoted("%s/%s" % (name, version)) for version in versions), "}"])
    else:
        lines.extend("hide_version(%s)" % lua_quoted("%s/%s" % (name, version)) for version in versions)
    return "\n".join(lines) + "\n"


def hidden_versions(syntax: str, text: str) -> list[str]:
    """Return the versions that a file with :func:`hidden_text` names; none where it is not such a file."""
    return _HIDDEN_LINE[syntax].findall(text) if MAKER in text else []


def listing_files(syntax: str, name: str, default: str, hidden: Sequence[str]) -> dict[str, bytes | None]:
    """Return the files that name the default (or none) and hidden versions: path to content, None for no file."""
    first = default_text(syntax, name, default) if default else ""
    second = hidden_text(syntax, name, sorted(hidden)) if hidden else ""
    if syntax == "lmod":
        texts = {default_path(syntax, name): first + second}
    else:
        texts = {default_path(syntax, name): first, hidden_path(syntax, name): second and "#%Module1.0\n" + second}
    return {path: text.encode("utf-8") or None for path, text in texts.items()}


def release_of(content: bytes | None) -> str:
    """Return the release whose modulefile this is, by its header; empty where that does not say it."""
    match = _RELEASE_LINE.search(content or b"")
    return match.group(1).decode("utf-8", "replace") if match else ""


def read_own(root: str, release: str, path: str) -> bytes | None:
    """Return the content of a release's visible modulefile; None for none, or another release's of the same version."""
    content = read_bytes(os.path.join(root, path))
    if release_of(content) in ("", release):
        return content
    # A release may have been given another name since.
    staged = read_bytes(os.path.join(stage_directory(root, release), path))
    return content if release_of(content) == release_of(staged) else None


def default_version(syntax: str, text: str) -> str:
    """Return the version that a file of :func:`default_text` names; empty where it is not such a file."""
    match = _DEFAULT_LINE[syntax].search(text) if MAKER in text else None
    return match.group(1) if match else ""


def render(description: Mapping, release: str) -> dict[str, str]:
    """Render both modulefiles of a description without faults, by syntax; always the same text for the same one."""
    title = "%s/%s, release %s" % (description["name"], description["version"], release)
    return render_under(description, title, "the description of the release")


def render_each(description: Mapping, release: str) -> dict[str, dict[str, str]]:
    """Render the modulefiles of all names of a description without faults: those of :func:`render`, by name."""
    return {name: render(one, release) for name, one in under_each_name(description).items()}


def render_under(description: Mapping, title: str, source: str) -> dict[str, str]:
    """Render both under a header, which says what the file is (``title``) and what it is written from."""
    header = "%s, %s.\nChanges made here are lost: the file is written anew from %s." % (title, MAKER, source)
    return {"tcl": render_tcl(description, header), "lmod": render_lua(description, header)}


def verified_texts(stage: str) -> dict[str, dict[str, str]]:
    """Return staged modulefiles that are byte for byte those that were verified with success, by name and syntax."""
    record = read_json(os.path.join(stage, RECORD))
    found: dict[str, dict[str, str]] = {}
    if isinstance(record, dict) and record.get("passed") is True:
        for name, files in {record["name"]: record["files"], **record.get("also", {})}.items():
            for syntax, entry in files.items():
                content = read_bytes(os.path.join(stage, entry["path"]))
                if content is not None and digest(content) == entry["sha256"]:
                    found.setdefault(name, {})[syntax] = content.decode("utf-8")
    return found


def require_ours(root: str, path: str, content: bytes | None, step: str) -> None:
    """Refuse to change a file in the module tree that somebody else wrote; ``content`` is None for no file."""
    if content is not None and MAKER.encode() not in content:
        where = os.path.join(root, path)
        raise StackError(
            "%s was not written by this collection." % where, step,
            "Move it away, or choose another name for the module.", where)


def require_free(root: str, release: str, path: str, content: bytes | None, step: str) -> None:
    """Refuse to take the place of a modulefile, ``path`` below the root, that is not this release's own.

    Raises StackError: somebody else wrote it, or it is another release's.
    """
    require_ours(root, path, content, step)
    where = os.path.join(root, path)
    if release_of(content) not in ("", release):
        raise StackError(
            "%s is the module of release %s." % (where, release_of(content)), step,
            "Choose another name in module.also_named.", where)


def digest(content: bytes) -> str:
    """Return the SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def read_bytes(path: str) -> bytes | None:
    """Return a file's content, or None where there is none. Raises StackError: it exists and cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        # The last one where a record names it by what no file can be called.
        return None
    except OSError as error:
        raise StackError(
            "Cannot read %s: %s." % (path, error.strerror), "read", "Run as the account that owns the root.", path
        ) from error


def write_file(path: str, content: bytes) -> None:
    """Write one file for everybody to read, its directory included. Raises StackError: the system refuses."""
    try:
        make_directory(os.path.dirname(path))
        write_atomic(path, content, 0o644)
    except OSError as error:
        raise StackError(
            "Cannot write %s: %s." % (path, error.strerror), "write", "Run as the account that owns the root.", path
        ) from error


def make_directory(path: str) -> None:
    """Create a directory and its parents with mode 0755 whatever the umask; a setgid bit is kept."""
    if os.path.isdir(path):
        return
    make_directory(os.path.dirname(path) or ".")
    os.mkdir(path)
    os.chmod(path, 0o755 | (os.stat(path).st_mode & stat.S_ISGID))
