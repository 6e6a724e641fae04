# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Load and unload a modulefile in a real shell, and compare the environments."""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import Mapping, NamedTuple, Sequence

from ..core.errors import StackError
from ..core.processes import run_program
from .description import (
    expand,
    first_files,
    parse_value,
    search_paths,
)
from .module_load import failure_message
from .module_system import QUIET, ModuleSystem, is_bookkeeping

SHELLS = {"bash": ("--norc", "--noprofile"), "zsh": ("-f",), "tcsh": ("-f",)}
"""The shells that a session runs in, each with the options that keep start-up files away."""

STATES = ("clean", "lived-in")
"""``clean``: nothing that the module changes is set before. ``lived-in``: the user has a value of all of it."""

TIMEOUT = 120.0
"""Seconds for one session; a module command answers within a few."""

_SHELL_OWN = frozenset(("_", "SHLVL", "PWD", "OLDPWD"))

_SH = {
    "snapshot": "env -0 > %(out)s.env; alias > %(out)s.names; %(functions)s >> %(out)s.names",
    "do": "%(words)s > %(out)s.code; . %(out)s.code; echo $? > %(out)s.status"}
_CSH = {
    "snapshot": "env -0 > %(out)s.env; alias > %(out)s.names",
    "do": "%(words)s > %(out)s.code\nsource %(out)s.code\necho $status > %(out)s.status"}
_FUNCTIONS = {"bash": "declare -F", "zsh": "print -l ${(ok)functions}", "tcsh": ""}


class Snapshot(NamedTuple):
    """A shell at one moment: its exported variables, and its aliases and functions by name."""

    environment: dict
    names: tuple


class Session(NamedTuple):
    """The snapshots of a session, one before everything and one after each command."""

    snapshots: tuple
    statuses: tuple
    messages: str


def script(shell: str, system: ModuleSystem, commands: Sequence[Sequence[str]], scratch: str) -> str:
    """Return the text that a shell runs: a snapshot in ``scratch``, called 0, and one after each module command."""
    text = _CSH if shell == "tcsh" else _SH
    lines = [text["snapshot"] % {"out": shlex.quote(os.path.join(scratch, "0")), "functions": _FUNCTIONS[shell]}]
    for number, command in enumerate(commands, 1):
        out = shlex.quote(os.path.join(scratch, str(number)))
        words = " ".join(shlex.quote(word) for word in (*system.words, shell, *command))
        lines.append(text["do"] % {"words": words, "out": out})
        lines.append(text["snapshot"] % {"out": out, "functions": _FUNCTIONS[shell]})
    return "\n".join(lines) + "\n"


def run_session(
    shell: str, system: ModuleSystem, commands: Sequence[Sequence[str]], environment: Mapping[str, str], scratch: str
) -> Session:
    """Run module commands one after the other in one real shell, a path, with an empty ``scratch``.

    Raises StackError: the shell did not come to its end.
    """
    name = os.path.basename(shell)
    path = os.path.join(scratch, "session")
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(script(name, system, commands, scratch))
    step = "load and unload the modulefile"
    try:
        process = run_program(
            (shell, *SHELLS[name], path), env={**environment, **QUIET[system.kind]}, cwd=scratch, timeout=TIMEOUT,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired as error:
        raise StackError(
            "%s with %s did not finish within %d seconds." % (name, system.title, TIMEOUT), step,
            "Load the module by hand to see where it waits.", system.command) from error
    messages = process.stdout.decode("utf-8", "replace")
    try:
        snapshots = tuple(_read_snapshot(scratch, number) for number in range(len(commands) + 1))
        statuses = tuple(_read_status(scratch, number) for number in range(1, len(commands) + 1))
    except (OSError, ValueError) as error:
        raise StackError(
            "%s with %s ended early: %s" % (name, system.title, " ".join(messages.split())[-400:]), step,
            "Load the module by hand in that shell.", system.command) from error
    return Session(snapshots, statuses, messages)


def _read_snapshot(scratch: str, number: int) -> Snapshot:
    with open(os.path.join(scratch, "%d.env" % number), "rb") as stream:
        pairs = (entry.decode("utf-8", "surrogateescape").partition("=") for entry in stream.read().split(b"\0"))
        environment = {name: value for name, equals, value in pairs if equals}
    with open(os.path.join(scratch, "%d.names" % number), "rb") as stream:
        names = tuple(sorted(set(stream.read().decode("utf-8", "surrogateescape").splitlines())))
    return Snapshot(environment, names)


def _read_status(scratch: str, number: int) -> int:
    with open(os.path.join(scratch, "%d.status" % number), encoding="ascii") as stream:
        return int(stream.read())


def starting_environment(
    description: Mapping, state: str, base: Mapping[str, str], home: str, module_path: Sequence[str]
) -> dict:
    """Tell what the shell of a session starts with; ``base`` has PATH and the variables that values refer to."""
    environment = {
        "HOME": home, "LC_ALL": "C.UTF-8", "USER": base.get("USER", "nobody"),
        "PATH": base.get("PATH", "/usr/bin:/bin"), "MODULEPATH": ":".join(module_path)}
    values = list(description["setenv"].values())
    for before, after in search_paths(description).values():
        values.extend(before + after)
    for name in sorted({name for value in values for kind, name in parse_value(value) if kind == "variable"}):
        environment.setdefault(name, base.get(name) or "/lived-in/%s" % name)
    if state == "lived-in":
        for name in [*description["setenv"], *description["unsetenv"], *resolve_first_files(description)]:
            environment[name] = "the user's own \"%s\" $HOME {a:b} \\ `c`" % name
        for name, (before, after) in search_paths(description).items():
            own = [expand(value, environment) for value in before + after]
            first = environment[name].split(":") if name == "PATH" else ["/lived-in/first"]
            environment[name] = ":".join([*first, *own[-1:], "/lived-in/last"])
    return environment


def resolve_first_files(description: Mapping) -> dict[str, str]:
    """Return the file that each variable of ``first_file`` names on this machine; empty for none."""
    return {
        name: next((path for path in entry["candidates"] if os.path.isfile(path)), "")
        for entry in first_files(description) for name in entry["variables"]}


def missing_settings(description: Mapping, before: Mapping[str, str], loaded: Mapping[str, str]) -> list[str]:
    """Tell what the description declares and the loaded environment lacks, one sentence each."""
    found = []
    declared = {name: expand(value, before) for name, value in description["setenv"].items()}
    for name, wanted in sorted({**declared, **resolve_first_files(description)}.items()):
        if loaded.get(name) != wanted:
            found.append("%s is %s after load, not %s." % (name, _shown(loaded.get(name)), _shown(wanted)))
    for name in sorted(description["unsetenv"]):
        if name in loaded:
            found.append("%s is %s after load, not unset." % (name, _shown(loaded[name])))
    for name, (first, last) in search_paths(description).items():
        entries = loaded.get(name, "").split(":")
        front, back = ([expand(value, before) for value in part] for part in (first, last))
        if entries[:len(front)] != front or (back and entries[-len(back):] != back):
            found.append("%s is %s after load; it does not begin with %s and end with %s." % (
                name, _shown(loaded.get(name)), ":".join(front) or "anything", ":".join(back) or "anything"))
    return found


def leftovers(before: Snapshot, after: Snapshot) -> list[str]:
    """Tell what load and unload left behind besides the module system's own bookkeeping, one sentence each."""
    found = []
    for name in sorted(set(before.environment) | set(after.environment)):
        if is_bookkeeping(name) or name in _SHELL_OWN:
            continue
        old, new = before.environment.get(name), after.environment.get(name)
        if old != new:
            found.append("%s was %s before load and is %s after unload." % (name, _shown(old), _shown(new)))
    for name in sorted(set(before.names) ^ set(after.names)):
        found.append("The alias or function %s was %s by load and unload." % (
            " ".join(name.split()), "taken away" if name in before.names else "left behind"))
    return found


def judge(description: Mapping, session: Session) -> list[str]:
    """Tell what is wrong with a session of load and unload, one sentence each."""
    before, loaded, after = session.snapshots
    for status, word in zip(session.statuses, ("load", "unload")):
        if status:
            return ["module %s failed: %s" % (word, failure_message(session.messages))]
    return missing_settings(description, before.environment, loaded.environment) + leftovers(before, after)


def _shown(value: object) -> str:
    return "unset" if value is None else "'%s'" % value
