# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Where the files of a modulefile lie, staged and visible, and what is in them.

A staged file lies under ``<root>/.torchstack/<release>/modulefiles``, which is in nobody's MODULEPATH: no ``module
avail`` shows it, and whoever adds that directory loads exactly the bytes that publishing makes visible later under
``<root>/modulefiles``.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from typing import Mapping

from ansible_collections.hpcml.torchstack.plugins.module_utils.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.files import write_atomic
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefile_lua import quoted as lua_quoted
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefile_lua import render_lua
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefile_tcl import quoted as tcl_quoted
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefile_tcl import render_tcl

MAKER = "made by the Ansible collection hpcml.torchstack"
"""The words by which a file of ours is known; every other file in the module tree is somebody else's."""

RECORD = "modulefile.json"
DESCRIPTION = os.path.join("modulefiles", "description.json")
JOURNAL = "publish.jsonl"
ACCEPTANCE = "acceptance.json"

_SUFFIX = {"tcl": "", "lmod": ".lua"}
SYNTAXES = tuple(_SUFFIX)
"""In the order of visible changes: a user of Environment Modules sees one a moment before a user of Lmod."""

_DEFAULT_FILE = {"tcl": ".version", "lmod": ".modulerc.lua"}
_DEFAULT_LINE = {
    "tcl": re.compile(r'^set ModulesVersion "([^"]+)"$', re.M),
    "lmod": re.compile(r'^module_version\("[^"/]+/([^"]+)", "default"\)$', re.M),
}


def stage_directory(root: str, release: str) -> str:
    """``<root>/.torchstack/<release>``: what happens to a release after its build."""
    return os.path.join(root, ".torchstack", release)


def relative_path(syntax: str, name: str, version: str) -> str:
    """Path of a modulefile, below the staging directory as below the root."""
    return os.path.join("modulefiles", syntax, name, version + _SUFFIX[syntax])


def default_path(syntax: str, name: str) -> str:
    """Path of the file that says which version ``module load NAME`` means, below the root."""
    return os.path.join("modulefiles", syntax, name, _DEFAULT_FILE[syntax])


def default_text(syntax: str, name: str, version: str) -> str:
    """Content of that file."""
    if syntax == "tcl":
        return "#%%Module1.0\n# The default version of %s, %s.\nset ModulesVersion %s\n" % (
            name, MAKER, tcl_quoted(version))
    return "-- The default version of %s, %s.\nmodule_version(%s, \"default\")\n" % (
        name, MAKER, lua_quoted("%s/%s" % (name, version)))


def default_version(syntax: str, text: str) -> str:
    """The version that a file of :func:`default_text` names; empty where it is not such a file."""
    match = _DEFAULT_LINE[syntax].search(text) if MAKER in text else None
    return match.group(1) if match else ""


def render(description: Mapping, release: str) -> dict[str, str]:
    """Both modulefiles of a description without faults, by syntax.

    The same description gives the same text, whenever and wherever.

    Args:
        description: normalised, see :mod:`modulefile_description`.
        release: the release's name, for the header.
    """
    title = "%s/%s, release %s" % (description["name"], description["version"], release)
    return render_under(description, title, "the description of the release")


def render_under(description: Mapping, title: str, source: str) -> dict[str, str]:
    """Both modulefiles of a description without faults, by syntax, under the words that say what they are.

    Args:
        description: normalised, see :mod:`modulefile_description`.
        title: what the file is.
        source: what it is written from.
    """
    header = "%s, %s.\nChanges made here are lost: the file is written anew from %s." % (title, MAKER, source)
    saved = saved_prefix(description["name"])
    return {"tcl": render_tcl(description, header, saved), "lmod": render_lua(description, header, saved)}


def saved_prefix(name: str) -> str:
    """The start of the names under which the module ``name`` keeps what the user had."""
    return "__%s_SAVED_" % re.sub(r"[^A-Z0-9]", "_", name.upper())


def digest(content: bytes) -> str:
    """sha256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def read_bytes(path: str) -> bytes | None:
    """A file's content, or None where there is none.

    Raises:
        StackError: it exists and cannot be read.
    """
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StackError(
            "Cannot read %s: %s." % (path, error.strerror), "read", "Run as the account that owns the root.", path
        ) from error


def write_file(path: str, content: bytes) -> None:
    """Write one file for everybody to read, its directory included.

    Raises:
        StackError: the system refuses.
    """
    try:
        make_directory(os.path.dirname(path))
        write_atomic(path, content, 0o644)
    except OSError as error:
        raise StackError(
            "Cannot write %s: %s." % (path, error.strerror), "write", "Run as the account that owns the root.", path
        ) from error


def make_directory(path: str) -> None:
    """Create a directory and its missing parents with mode 0755 whatever the umask; a setgid bit is kept.

    Raises:
        OSError: as the system reports it.
    """
    if os.path.isdir(path):
        return
    make_directory(os.path.dirname(path) or ".")
    os.mkdir(path)
    os.chmod(path, 0o755 | (os.stat(path).st_mode & stat.S_ISGID))
