# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write a release as an easyconfig, whose module sets what its own module sets. Pure.

EasyBuild's generator of modules quotes values only in part: it escapes no backslash, and takes ``$NAME`` for a
variable. What it would not carry as it is goes into the footers, in the words of our own generators; so does what it
has no parameter for. Paths of the installation are templates, so that the same easyconfig serves a user's own
directory.
"""

from __future__ import annotations

import re
from typing import Any, Mapping

from ..modulefiles.description import comment_lines, normalise
from ..modulefiles.lua import KEPT, render_lua, whatis_lines
from ..modulefiles.lua import quoted as lua_quoted
from ..modulefiles.module_system import is_bookkeeping
from ..modulefiles.session import starting_environment
from ..modulefiles.tcl import quoted as tcl_quoted
from ..modulefiles.tcl import render_tcl
from .container import versions

INSTALLATION = "%(installdir)s"
"""EasyBuild's template for the directory of an installation."""

GUESSED = ("CMAKE_PREFIX_PATH", "XDG_DATA_DIRS")
"""Search paths to which EasyBuild adds an installation by itself, which nobody compiles against; PATH is wanted."""

OWN_RECORDS = ("EBDEVEL", "EBEXTSLIST")
"""How the names of variables begin that EasyBuild sets for itself, besides EBROOT and EBVERSION."""

_CARRIED = re.compile(r"[A-Za-z0-9 _./:,;=@+-]*\Z")
_TEMPLATE = re.compile(r"(%+)(?=\(\w+\)s)")


def parameters(raw: Mapping[str, Any], base: Mapping[str, Any], release: str) -> dict[str, Any]:
    """Derive what an easyconfig says of a release that is a container, from its module and its base.

    Returns:
        ``file``, the name of the easyconfig without its suffix; and as literals of Python ``name``, ``version``,
        ``versionsuffix``, ``description``, ``whatis`` (a list), ``variables`` (each with ``name``, ``value`` and
        ``reasons``, the lines of a comment), ``lua`` and ``tcl``, the footers. Also ``start``, an environment in which
        all that the module does can be seen.
    """
    description = normalise(raw)
    version, suffix = versions(release)
    carried, rest = _shared(description, base)
    footers = _footers(rest, base["prefix"])
    return {
        "file": "%s-%s" % (base["name"], release),
        "name": literal(base["name"]), "version": literal(version), "versionsuffix": literal(suffix),
        "description": literal(_resolvable(description["help"] or "%s %s" % (base["name"], version), base["prefix"])),
        "whatis": [
            literal(_resolvable("%s: %s" % pair, base["prefix"])) for pair in sorted(description["whatis"].items())],
        "variables": [
            {
                "name": literal(name), "value": literal(_resolvable(value, base["prefix"])),
                "reasons": comment_lines(description, name)}
            for name, value in sorted(carried.items())],
        "lua": literal(footers["lua"]), "tcl": literal(footers["tcl"]),
        "start": _start(description),
    }


def _start(description: Mapping[str, Any]) -> dict[str, str]:
    """Return what a user has before the module is loaded: what it refers to and takes away."""
    found = starting_environment(description, "clean", {}, "/nonexistent", [])
    found.update((name, "/lived-in/" + name) for name in description["unsetenv"])
    return found


def _shared(description: Mapping[str, Any], base: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Divide variables: those that EasyBuild's parameters carry, and the description of the rest."""
    own = [name for name in description["setenv"] if re.match("EB(ROOT|VERSION)[A-Z0-9]*$", name)]
    carried = {
        name: value for name, value in description["setenv"].items() if name not in own and _CARRIED.match(value)}
    rest = dict(description, help="", category="", keywords=[], whatis={}, setenv={
        name: value for name, value in description["setenv"].items() if name not in own and name not in carried})
    if description["prepend"] == [{"name": "PATH", "values": [base["prefix"] + "/bin"]}]:
        rest["prepend"] = []
    return carried, rest


def _footers(rest: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Write the end of EasyBuild's module in both syntaxes: our modulefile without its head."""
    head = len(whatis_lines(rest))
    lua = ["remove_path(%s, %s)" % (lua_quoted(variable), lua_quoted(prefix + place)) for variable, place in _guesses()]
    lua += render_lua(rest, "").splitlines()[head:]
    tcl = ["remove-path %s %s" % (variable, tcl_quoted(prefix + place)) for variable, place in _guesses()]
    tcl += render_tcl(rest, "").splitlines()[head + 1:]
    return {key: _resolvable("\n".join(lines) + "\n", prefix) for key, lines in (("lua", lua), ("tcl", tcl))}


def _guesses() -> list[tuple[str, str]]:
    return [(variable, "/share" if variable == "XDG_DATA_DIRS" else "") for variable in GUESSED]


def _resolvable(text: str, prefix: str) -> str:
    """Write a text for EasyBuild's templates: the installation is one, and nothing else."""
    escaped = _TEMPLATE.sub(r"\1\1", text)
    return re.sub(re.escape(prefix) + r"(?![\w.+-])", lambda _match: INSTALLATION, escaped)


def literal(text: str) -> str:
    """Write a text as Python reads it, on lines of its own if it has several."""
    if "\n" not in text:
        return repr(text)
    return "'''\\\n%s'''" % text.replace("\\", "\\\\").replace("'''", "\\'\\'\\'")


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Find what EasyBuild's module does otherwise than ours, one sentence each, from answers of module_environment."""
    found = []
    for what, key in (("", "set"), ("the function ", "functions"), ("the alias ", "aliases")):
        first, second = _variables(ours, key), _variables(theirs, key)
        for name in sorted({*first, *second}):
            if first.get(name) != second.get(name):
                found.append("EasyBuild's module sets %s%s %s, the release's own %s." % (
                    what, name, _shown(second.get(name)), _shown(first.get(name))))
    for name in sorted({*ours["unset"]} ^ {*theirs["unset"]}):
        found.append("Only %s takes %s away." % (
            "the release's own module" if name in ours["unset"] else "EasyBuild's module", name))
    return found


def _variables(answer: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return what a module sets for users; MODULEPATH is what was put there to find it.

    What is kept of the values before is the modules' own: EasyBuild sets some variables itself, and keeps nothing.
    """
    found = answer["set"] if key == "set" else answer["not_captured"][key]
    return {
        name: value for name, value in found.items()
        if name != "MODULEPATH" and not is_bookkeeping(name) and not name.startswith((*OWN_RECORDS, KEPT))}


def _shown(value: Any) -> str:
    return "not at all" if value is None else "to '%s'" % value
