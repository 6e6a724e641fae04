# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find the module command of a machine: Lmod or Environment Modules.

A module command is asked twice for the same thing: in its Python output for the variables, exactly, and in its bash
output for what only a shell can take (functions, aliases, commands, completions), as text. Nothing that it prints is
executed. A modulefile is evaluated by the module command itself both times: a command that a modulefile runs while it
is evaluated (Tcl's exec, Lua's capture) runs twice.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from typing import Callable, Mapping, NamedTuple, Sequence

from ..core.errors import StackError
from ..core.processes import run_program

LMOD, EM, NONE = "lmod", "environment-modules", "none"
TITLES = {LMOD: "Lmod", EM: "Environment Modules"}

WELL_KNOWN = {
    LMOD: (
        "/usr/share/lmod/lmod/libexec/lmod",
        "/opt/cray/pe/lmod/lmod/libexec/lmod",
        "/opt/apps/lmod/lmod/libexec/lmod",
        "/usr/share/lmod/*/libexec/lmod"),
    EM: (
        "/usr/share/Modules/libexec/modulecmd.tcl",
        "/usr/share/modules/libexec/modulecmd.tcl",
        "/usr/lib/*-linux-gnu/modulecmd.tcl",
        "/usr/local/Modules/libexec/modulecmd.tcl",
        "/opt/cray/pe/modules/default/bin/modulecmd",
        "/opt/modules/default/bin/modulecmd"),
}
"""Where the packages of the distributions and of the vendors put the module command; patterns of glob(7)."""

# Lmod: plain text to stderr only, and no spider cache written into the account (LMOD_SHORT_TIME, its manual:
# "configuring Lmod"). Environment Modules: no colours, no pager, messages not redirected into what a shell evaluates.
QUIET = {
    LMOD: {"LMOD_COLORIZE": "no", "LMOD_PAGER": "none", "LMOD_REDIRECT": "no", "LMOD_SHORT_TIME": "86400"},
    EM: {"MODULES_COLOR": "never", "MODULES_PAGER": "", "MODULES_REDIRECT_OUTPUT": "0"}}

_BOOKKEEPING = re.compile(
    r"LOADEDMODULES|_LMFILES_\w*|_ModuleTable\w*|__LMOD_.*|LMOD_.*|__MODULES_.*|MODULES_.*|MODULESHOME|\w+_modshare"
    r"|BASH_FUNC_.*")


class ModuleSystem(NamedTuple):
    """A module command: which system it belongs to, and the words that call it."""

    kind: str
    words: tuple[str, ...]

    @property
    def command(self) -> str:
        """Return path of its executable or Tcl script."""
        return self.words[-1] if self.words else ""

    @property
    def title(self) -> str:
        """Return its name in a sentence."""
        return TITLES.get(self.kind, self.kind)


def is_bookkeeping(name: str) -> bool:
    """Tell whether a variable is the module system's own record of what it did."""
    return _BOOKKEEPING.fullmatch(name) is not None


def _from_environment(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the module commands that an initialised shell names, the most specific variable first."""
    home = environment.get("MODULESHOME", "")
    return [
        (LMOD, environment.get("LMOD_CMD", "")),
        (LMOD, os.path.join(environment.get("LMOD_PKG", ""), "libexec", "lmod")),
        (EM, environment.get("MODULES_CMD", "")),
        (LMOD, os.path.join(home, "libexec", "lmod")),
        (EM, os.path.join(home, "libexec", "modulecmd.tcl")),
        (EM, os.path.join(home, "bin", "modulecmd")),
    ]


def _command_words(kind: str, command: str) -> tuple[str, ...]:
    """Tell how to call a module command: a Tcl script without the execute bit goes through tclsh."""
    if kind == EM and not os.access(command, os.X_OK):
        shell = shutil.which("tclsh") or shutil.which("tclsh8.6")
        if shell:
            return (shell, command)
    return (command,)


def _given_command(system: str, command: str, exists: Callable[[str], bool]) -> ModuleSystem:
    """Return the module system behind a module command that the operator names."""
    step = "find the module system"
    name = os.path.basename(command)
    kind = system if system != "auto" else LMOD if name == "lmod" else EM if name.startswith("modulecmd") else ""
    if not exists(command):
        raise StackError(
            "The module command %s does not exist." % command, step, "Correct command, or leave it out.", command)
    if not kind:
        raise StackError(
            "The name of %s does not tell whose module command it is." % command, step,
            "Set system to lmod or environment-modules.", command)
    return ModuleSystem(kind, _command_words(kind, command))


def find_system(
    environment: Mapping[str, str], system: str = "auto", command: str | None = None,
    exists: Callable[[str], bool] = os.path.isfile, expand: Callable[[str], list[str]] = glob.glob,
) -> ModuleSystem:
    """Find the module command: ``command``, else what ``environment`` names, else a known place.

    Raises StackError: there is none, or both systems are installed and nothing says which one is in use.
    """
    step = "find the module system"
    if system == NONE:
        return ModuleSystem(NONE, ())
    if command:
        return _given_command(system, command, exists)
    wanted = (LMOD, EM) if system == "auto" else (system,)
    for kind, path in _from_environment(environment):
        if kind in wanted and os.path.isabs(path) and exists(path):
            return ModuleSystem(kind, _command_words(kind, path))
    found = {}
    for kind in wanted:
        paths = [path for pattern in WELL_KNOWN[kind] for path in sorted(expand(pattern)) if exists(path)]
        if paths:
            found[kind] = paths[0]
    if len(found) > 1:
        raise StackError(
            "Both Lmod (%s) and Environment Modules (%s) are installed, and the environment does not tell which one is "
            "in use." % (found[LMOD], found[EM]), step, "Set system, or init to the start-up file that users get.")
    for kind, path in found.items():
        return ModuleSystem(kind, _command_words(kind, path))
    raise StackError(
        "No module system was found: LMOD_CMD, LMOD_PKG, MODULES_CMD and MODULESHOME in the environment lead to none, "
        "and %s is not at a known place." % " or ".join(TITLES[kind] for kind in wanted), step,
        "Set command to the path of lmod or modulecmd.tcl, or system: none on a machine without modules.")


def run_module_command(
    words: Sequence[str], environment: Mapping[str, str], timeout: float, step: str
) -> tuple[int, bytes, bytes]:
    """Return exit status, output and errors of the module command. Raises StackError: it does not run or end."""
    try:
        process = run_program(
            list(words), env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout)
    except OSError as error:
        raise StackError(
            "Cannot run %s: %s." % (words[0], error.strerror), step, "Correct command, or the file's mode.", words[0]
        ) from error
    except subprocess.TimeoutExpired as error:
        raise StackError(
            "%s did not finish within %g seconds." % (" ".join(words), timeout), step,
            "Run it by hand to see where it waits, or raise timeout.", words[0]) from error
    return process.returncode, process.stdout, process.stderr


def version(system: ModuleSystem, environment: Mapping[str, str], timeout: float) -> str:
    """Return the module command's own version, or an empty text where it does not tell."""
    _code, output, errors = run_module_command(
        (*system.words, "python", "--version"), {**environment, **QUIET[system.kind]}, timeout, "find the module system"
    )
    match = re.search(r"(?:Version|Release|VERSION)[ =]+(\S+)", (errors + output).decode("utf-8", "replace"))
    return match.group(1) if match else ""


def split_path(value: str) -> list[str]:
    return [part for part in value.split(":") if part]
