# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Tell what follows from the module system that a site's users have: its files, and the shell that has its command."""

from __future__ import annotations

import os
import shlex

from ..core.files import read_json
from ..core.lenient_json import mapping
from .layout import RECORD, SYNTAXES, stage_directory
from .module_system import EM, LMOD

AUTO = "auto"
"""Users have the one or the other: files for both, and a login decides."""

SYSTEMS = {"lmod": LMOD, "tcl": EM}
"""Directory of the modulefiles below ``modulefiles``, and the module system that reads it."""

OPTION: dict[str, dict] = {"module_system": {"type": "str", "choices": [AUTO, LMOD, EM], "default": AUTO}}
"""The option that plugins/doc_fragments/_sessions.py documents."""

# Both functions tell by their text whose they are; what a site has wrapped around one does not.
_FIND = """through=environment; reason='no module system on this host'
if [ "$(type -t module)" = function ]; then
    case $(declare -f module _module_raw 2> /dev/null) in
        *LMOD_CMD*) through=%(lmod)s ;;
        *modulecmd*|*MODULES_CMD*) through=%(em)s ;;
        *) if [ -n "${LMOD_VERSION:-}${LMOD_CMD:-}" ]; then through=%(lmod)s; else through=%(em)s; fi ;;
    esac
fi""" % {"lmod": LMOD, "em": EM}

# What one system has loaded, the other one can neither read nor unload.
_FORGET = """    unset -f module ml _module_raw 2> /dev/null
    unset -v LOADEDMODULES _LMFILES_ MODULEPATH MODULESHOME \\
        ${!LMOD_@} ${!__LMOD_@} ${!_ModuleTable@} ${!MODULES_@} ${!__MODULES_@}"""


def syntaxes_of(system: str) -> tuple[str, ...]:
    """Return the kinds of modulefile that users of a module system read; both for :data:`AUTO`."""
    return tuple(syntax for syntax in SYNTAXES if system in (AUTO, SYSTEMS[syntax]))


def release_syntaxes(root: str, release: str, system: str) -> tuple[str, ...]:
    """Return the kinds of modulefile of a release: those it was frozen with, else those of the site's module system."""
    stage = stage_directory(root, release)
    recorded: object = {}
    if os.path.isfile(os.path.join(stage, "frozen.json")):
        try:
            recorded = mapping(read_json(os.path.join(stage, RECORD))).get("files")
        except (OSError, ValueError):
            recorded = {}
    files = mapping(recorded)
    return tuple(syntax for syntax in SYNTAXES if syntax in files) or syntaxes_of(system)


def finding_lines() -> list[str]:
    """Write lines of bash that set ``through`` to the system whose command ``module`` is, or to ``environment``."""
    return _FIND.split("\n")


def defining_lines(system: str, definition: str) -> list[str]:
    """Write lines of bash that define ``module`` of a system where :func:`finding_lines` found none, or another one's.

    ``definition`` is the absolute path of a file, or shell text; without it, nothing is written.
    """
    if system == AUTO or not definition:
        return []
    is_file = definition.startswith("/") and "\n" not in definition
    return [
        'if [ "$through" != %s ]; then' % system, *_FORGET.split("\n"),
        "    . " + shlex.quote(definition) if is_file else definition, *finding_lines(), "fi"]


def requiring_lines(system: str) -> list[str]:
    """Write lines of bash that end the script where ``module`` is another system's."""
    told = 'echo "module is of $through here, and the site\'s users have %s: %s" >&2' % (
        system, "torchstack_module_init has to define that.")
    return [*finding_lines(), '[ "$through" = %s ] || { %s; exit 1; }' % (system, told)]


def sourcing_lines(text: str, what: str) -> list[str]:
    """Write lines of bash that source a file, or are shell text, and end the script where the last command fails."""
    ended = "|| { echo %s >&2; exit 1; }" % shlex.quote(what + " failed")
    if text.startswith("/") and "\n" not in text:
        return [". %s %s" % (shlex.quote(text), ended)]
    return ["{", text, "} " + ended]


def setup_lines(setup: str) -> list[str]:
    """Write lines of bash that source the set-up of a toolchain; none for none."""
    return sourcing_lines(setup, "toolchain.setup") if setup else []


def unloading_lines(name: str) -> list[str]:
    """Write lines of bash that unload a module where it is loaded, and end the script where it stays.

    Lmod says that it has unloaded a sticky module and loads it again, and Environment Modules refuse to.
    """
    case = 'case ":${LOADEDMODULES:-}:" in *:%s:*|*:%s/*) ' % (shlex.quote(name), shlex.quote(name))
    return [
        case + "module unload %s > /dev/null 2>&1 ;; esac" % shlex.quote(name),
        case + "module --force unload %s ;; esac" % shlex.quote(name),
        case + "echo %s >&2; exit 1 ;; esac" % shlex.quote("module unload %s failed" % name)]
