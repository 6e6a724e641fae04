# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check the description of a modulefile: form, names, values and directories. Pure."""

from __future__ import annotations

import posixpath
import re
from typing import Iterable, Mapping

from . import module_ranges
from .description import DICT_KEYS, LIST_KEYS, PATH_KEYS, TEXT_KEYS, first_files, parse_value, search_paths
from .module_system import is_bookkeeping

COMPILER_FLAGS = frozenset((
    "CFLAGS", "CXXFLAGS", "CPPFLAGS", "FFLAGS", "FCFLAGS", "LDFLAGS", "LDLIBS", "LIBS", "NVCCFLAGS",
    "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"))
"""Variables that every later build of a user takes in silently; they belong to one build step."""

SEARCH_PATHS = frozenset((
    "PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "PYTHONPATH", "MANPATH", "INFOPATH", "CPATH", "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH", "PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH", "ACLOCAL_PATH", "XDG_DATA_DIRS"))
"""Variables that the user and other modules share: a module adds to them and never replaces them."""

NAME_LISTS = frozenset(("PE_PKGCONFIG_LIBS",))
"""Variables whose entries are not directories: here the packages that Cray's compiler wrappers ask pkg-config for."""

IDENTITY = frozenset(("HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "SHLVL", "_"))
"""Variables that say who and where the user is."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*\Z")
_MODULE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+/-]*\Z")
_EXTENSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*/[A-Za-z0-9][A-Za-z0-9._+!-]*\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_ALIAS = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_FAMILY = re.compile(r"[A-Za-z0-9_]+\Z")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def find_faults(description: Mapping) -> list[str]:
    """Tell what is wrong with a normalised description, one sentence each; empty when it can be rendered."""
    return list(_form_faults(description)) or list(_rule_faults(description))


def _form_faults(description: Mapping) -> Iterable[str]:
    for key, value, where in _texts(description):
        if isinstance(value, bool):
            yield "%s is a YAML boolean; put it in quotes, so that the text that arrives is the one you mean." % where
        elif isinstance(value, (list, dict)):
            yield "%s is a list or a mapping, where a text belongs." % where
        elif _CONTROL.search(str(value)):
            yield "%s holds a control character." % where
        elif "\n" in str(value) and key not in ("help", "load_message", "functions", "reasons"):
            yield (
                "%s holds a line break; module systems hand it to the shell as two lines, of which the second one "
                "would be run as a command." % where)
    for key in ("name", "version"):
        if not _NAME.match(str(description[key])) or description[key] == "default":
            yield "The %s of the module, %r, is not one plain word of letters, digits and . _ + -." % (
                key, description[key])
    for name in description.get("also_named", []):
        if not _NAME.match(str(name)) or name == "default":
            yield "%r in also_named is not one plain word of letters, digits and . _ + -." % name
        elif name == description["name"] or description["also_named"].count(name) > 1:
            yield "The module has the name %s already; take it out of also_named." % name
    for entry in description.get("extensions", []):
        if not _EXTENSION.match(str(entry)):
            yield "%r in extensions is not the name of a package, a slash and its version." % entry
    if not str(description["prefix"]).startswith("/") or not _is_normal(str(description["prefix"])):
        yield "The prefix %r is not an absolute path in its shortest form." % description["prefix"]
    if description["family"] and not _FAMILY.match(str(description["family"])):
        yield "The family %r is not one word of letters, digits and _." % description["family"]
    for key in ("conflicts", "depends_on"):
        for name in description[key]:
            yield from _module_faults(key, str(name))
    for name in _names(description):
        if not _VARIABLE.match(str(name)):
            yield "%r is not the name of a variable or a function." % name
    for name, value in description["aliases"].items():
        if not _ALIAS.match(name):
            yield "%r is not the name of an alias." % name
        if "'" in str(value):
            yield "The alias %s holds an apostrophe, which Lmod hands to csh unquoted." % name
    for name, body in description["functions"].items():
        if not body["sh"]:
            yield "The function %s has no body for sh; only functions that exist can be exported." % name
        for shell in ("csh", "fish"):
            if "'" in str(body.get(shell)):
                yield "The function %s holds an apostrophe for %s, which Lmod hands on unquoted." % (name, shell)


def _module_faults(key: str, name: str) -> Iterable[str]:
    wanted = module_ranges.parse(name) if key == "depends_on" else None
    if wanted and wanted.is_empty:
        yield "%r in depends_on is a range in which no version lies: %s comes before %s." % (
            name, wanted.high, wanted.low)
    elif not wanted and not _MODULE.match(name):
        yield "%r in %s is not the name of a module%s." % (
            name, key, "" if key != "depends_on" else "; what a user must not have loaded stands under conflicts"
            if name.startswith("-") else "; a range of versions is written as cudnn@9.1: (9.1 or newer) or cudnn@9.1:9 "
            "(9.1 to 9)" if re.search("[@<>=:]", name) else "")


def _rule_faults(description: Mapping) -> Iterable[str]:
    paths = search_paths(description)
    chosen = [name for entry in first_files(description) for name in entry["variables"]]
    changed = list(description["setenv"]) + list(description["unsetenv"]) + chosen
    for name in changed + list(paths):
        if name in COMPILER_FLAGS:
            yield "%s in a modulefile leaks into every build of a user; set it in the step that needs it." % name
        elif name in IDENTITY or name == "MODULEPATH" or is_bookkeeping(name):
            yield "%s belongs to the user or to the module system and is not for a modulefile to change." % name
    for name in description.get("reasons", {}):
        if name not in changed and name not in paths:
            yield "There is a reason for %s, which the module does not change." % name
    for name in sorted({name for name in changed if changed.count(name) > 1 or name in paths}):
        yield "%s is changed in two ways (setenv, first_file, unsetenv, prepend or append); say one." % name
    for name in [*description["setenv"], *chosen]:
        if name in SEARCH_PATHS:
            yield "setenv of %s throws away what the user and other modules put there; use prepend or append." % name
    for name, value in description["setenv"].items():
        yield from _value_faults(name, value, description)
    for entry in first_files(description):
        yield from _first_file_faults(entry, description)
    for name, (before, after) in paths.items():
        entries = before + after
        for value in entries:
            yield from _entry_faults(name, value, description)
        for value in sorted({value for value in entries if entries.count(value) > 1}):
            yield "%s has the entry %s twice." % (name, value)


def _first_file_faults(entry: Mapping, description: Mapping) -> Iterable[str]:
    name = ", ".join(entry["variables"]) or "of no variable"
    for key in ("variables", "candidates", "missing"):
        if not entry[key]:
            yield "The entry %s of first_file has no %s." % (name, key)
    for path in entry["candidates"]:
        if not path.startswith("/") or not _is_normal(path):
            yield "The candidate %s for %s is not an absolute path in its shortest form." % (path, name)
        else:
            yield from _place_faults(name, path, description)
    for path in sorted({path for path in entry["candidates"] if entry["candidates"].count(path) > 1}):
        yield "%s has the candidate %s twice." % (name, path)


def _value_faults(name: str, value: str, description: Mapping) -> Iterable[str]:
    try:
        parse_value(value)
    except ValueError as error:
        yield "The value of %s is not understood: %s." % (name, error)
        return
    if re.match(r"/[^:,;\s]*\Z", value):
        yield from _place_faults(name, value, description)
    if name == "PYTHONUSERBASE" and description["version"] not in value.split("/"):
        yield (
            "PYTHONUSERBASE has no directory %s; releases would share one user base, and packages built for one "
            "would be imported by another." % description["version"])


def _entry_faults(name: str, value: str, description: Mapping) -> Iterable[str]:
    if not value:
        yield "%s has an empty entry, which means the current directory." % name
        return
    if ":" in value:
        yield "The entry %s of %s holds a colon; give each directory as its own entry." % (value, name)
        return
    try:
        parse_value(value)
    except ValueError as error:
        yield "The entry %s of %s is not understood: %s." % (value, name, error)
        return
    if name in NAME_LISTS:
        if not _NAME.match(value):
            yield "The entry %s of %s is not the name of a package." % (value, name)
        return
    if not value.startswith(("/", "${")) or not _is_normal(value):
        yield "The entry %s of %s is not an absolute path in its shortest form." % (value, name)
        return
    yield from _place_faults(name, value, description)
    if name == "PATH" and "include" in value.split("/"):
        yield "The entry %s of PATH is an include directory, which holds no programs; CPATH may be meant." % value
    if name == "LD_LIBRARY_PATH" and value == posixpath.join(description["prefix"], "base", "lib"):
        yield (
            "The entry %s of LD_LIBRARY_PATH puts the libraries of the base before the system's for every program "
            "of the user; the base's own programs find them by their RPATH." % value)


def _place_faults(name: str, value: str, description: Mapping) -> Iterable[str]:
    if "stubs" in value.split("/"):
        yield (
            "%s leads to the stubs directory %s; stub libraries are for linking, and at run time they hide the "
            "driver." % (name, value))
    places = [description["prefix"], *description["external"]]
    if not any(value == place or value.startswith(place.rstrip("/") + "/") for place in places):
        yield "%s leads to %s, outside the prefix %s; list it in external if that is meant." % (
            name, value, description["prefix"])


def _is_normal(value: str) -> bool:
    return posixpath.normpath(value) == value and not value.startswith("//")


def _names(description: Mapping) -> list:
    names = list(search_paths(description)) + list(description["unsetenv"])
    for entry in first_files(description):
        names.extend(entry["variables"])
    for key in ("setenv", "functions"):
        names.extend(description[key])
    return names


def _texts(description: Mapping) -> Iterable[tuple]:
    """Return every text of a description as (key, text, how to name it)."""
    for key in TEXT_KEYS:
        yield key, description[key], key
    for key in LIST_KEYS:
        for index, value in enumerate(description[key]):
            yield key, value, "%s[%d]" % (key, index)
    for key in DICT_KEYS:
        for name, value in description.get(key, {}).items():
            bodies = list(value.values()) if key == "functions" else [value]
            for body in bodies:
                yield key, body, "%s.%s" % (key, name)
    for key in PATH_KEYS:
        for entry in description[key]:
            for value in entry["values"]:
                yield key, value, "an entry of %s for %s" % (key, entry["name"])
    for index, value in enumerate(description.get("also_named", [])):
        yield "also_named", value, "also_named[%d]" % index
    for index, value in enumerate(description.get("extensions", [])):
        yield "extensions", value, "extensions[%d]" % index
    for index, entry in enumerate(first_files(description)):
        for part in ("variables", "candidates"):
            for value in entry[part]:
                yield "first_file", value, "one of the %s of first_file[%d]" % (part, index)
        yield "first_file", entry["missing"], "missing of first_file[%d]" % index
