# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Load modules through the module command, and describe what they do to an environment."""

from __future__ import annotations

import os
import re
from typing import Mapping, NamedTuple, Sequence

from ..core.errors import StackError
from . import available, module_ranges
from .module_output import (
    ShellParts,
    parse_em_python,
    parse_lmod_python,
    parse_shell,
)
from .module_system import LMOD, NONE, QUIET, ModuleSystem, is_bookkeeping, run_module_command, split_path

FORCE = "--force"
"""Before a command: also what the site has marked as sticky."""

_WORD = re.compile(r"[^\s\"',]+")
_UNKNOWN = (
    re.compile(r"module\(s\) are unknown:\s*((?:\"[^\"]+\"[\s,]*)+)"),
    re.compile(r"Unable to locate a modulefile for ('[^']+')"))


class Answer(NamedTuple):
    """What one module command did: the environment after it, and its parts that no environment can hold."""

    ok: bool
    environment: dict[str, str]
    shell: ShellParts
    messages: str


def ask(
    system: ModuleSystem, environment: Mapping[str, str], arguments: Sequence[str], timeout: float, shell: bool = True
) -> Answer:
    """Ask the module command what ``module <arguments>`` does, with ``shell`` also the parts that only a shell gets."""
    surroundings = {**environment, **QUIET[system.kind]}
    step = arguments[0]
    code, output, errors = run_module_command((*system.words, "python", *arguments), surroundings, timeout, step)
    variables = parse_lmod_python(output) if system.kind == LMOD else parse_em_python(output)
    messages = errors.decode("utf-8", "replace").strip()
    # modulecmd 3.2 has no verdict in its output, and marks its errors so.
    ok = code == 0 and (variables.status is not False) and not re.search(r"\bERROR:\d+:", messages)
    after = dict(environment)
    for name, value in variables.changes.items():
        if value is None:
            after.pop(name, None)
        else:
            after[name] = value
    parts = ShellParts({}, {}, [], [], [], False)
    if ok and shell:
        _code, output, _errors = run_module_command((*system.words, "bash", *arguments), surroundings, timeout, step)
        parts = parse_shell(output, variables.changes)
        ok = not parts.failed
    return Answer(ok, after, parts, messages)


def failure_message(messages: str) -> str:
    """Extract the module command's sentence about a failure, without its advice about other commands."""
    said = re.findall(r"following error:\s*(.*?)(?:\n\s*\n|\n\s*While processing|\Z)", messages, re.S)
    if not said:
        said = [messages.partition("ERROR: ")[2] or messages]
    sentence = " ".join(" ".join(said).split())[:600] or "it gave no message"
    return sentence if sentence.endswith((".", "!", "?")) else sentence + "."


def loaded(environment: Mapping[str, str]) -> list[str]:
    """Return the modules that an environment says are loaded, in load order."""
    return split_path(environment.get("LOADEDMODULES", ""))


def _diagnose(
    system: ModuleSystem, environment: Mapping[str, str], modules: Sequence[str], timeout: float
) -> tuple[list[str], list[str], dict[str, str]]:
    """Load modules one at a time, as one may become visible only through the one before it.

    Returned are the missing ones, those that exist and refuse, and the environment of the others.
    """
    missing: list[str] = []
    refused: list[str] = []
    current = dict(environment)
    for name in modules:
        answer = ask(system, current, ("load", name), timeout, shell=False)
        if answer.ok:
            current = answer.environment
            continue
        named = " ".join(part for pattern in _UNKNOWN for part in pattern.findall(answer.messages))
        if named:
            # A prerequisite that is missing makes its own name known, not that of the module that asked for it.
            known = name not in _WORD.findall(named)
        else:
            known = ask(system, current, ("is-avail", name), timeout, shell=False).ok
        (refused if known else missing).append(name)
    return missing, refused, current


def _load_failure(
    system: ModuleSystem, before: Mapping[str, str], modules: Sequence[str], answer: Answer, timeout: float
) -> StackError:
    missing, refused, reached = _diagnose(system, before, modules, timeout)
    path = before.get("MODULEPATH", "")
    absent = [directory for directory in split_path(path) if not os.path.isdir(directory)]
    if missing:
        remedy = "Check the name, or add the directory that has it with use (MODULEPATH is %s)." % (path or "empty")
        if absent:
            remedy += " These directories of it do not exist: %s." % ", ".join(absent)
    else:
        remedy = "Leave out what it conflicts with, load first what it needs, set purge, or correct the modulefile."
    lacking = _WORD.findall(" ".join(part for pattern in _UNKNOWN for part in pattern.findall(answer.messages)))
    return StackError(
        "%s cannot load %s: %s" % (
            system.title, " ".join(missing + refused) or " ".join(modules), failure_message(answer.messages)),
        "load", remedy, missing=missing, refused=refused, loaded=loaded(reached), messages=answer.messages.splitlines(),
        instead=available.instead(system, reached, dict.fromkeys([*missing, *lacking]), timeout))


def _nothing_in_range(
    system: ModuleSystem, environment: Mapping[str, str], wanted: module_ranges.Range, timeout: float
) -> StackError:
    there = available.versions(system, environment, wanted.name, timeout)
    return StackError(
        "There is no module %s: there is %s." % (wanted.described, ", ".join(there) or "none of that name"), "load",
        "Widen the range, or add the directory that has it with use (MODULEPATH is %s)." % (
            environment.get("MODULEPATH") or "empty"),
        missing=[wanted.described], refused=[], loaded=loaded(environment), messages=[],
        instead={wanted.described: there} if there else {})


def load_modules(
    system: ModuleSystem, environment: Mapping[str, str], modules: Sequence[str], use: Sequence[str] = (),
    purge: bool = False, timeout: float = 120,
) -> tuple[dict[str, str], list[ShellParts], list[str]]:
    """Tell what ``module purge; module use ...; module load ...`` does; the first of ``use`` ends up first.

    Of ``modules``, those behind a dash are unloaded where they are loaded.

    Returns:
        the environment after, the shell's parts of each command, and the messages of the commands.

    Raises:
        StackError: a command failed; for ``load`` with ``missing``, ``refused`` and ``loaded`` in its details.
    """
    current = dict(environment)
    parts: list[ShellParts] = []
    messages: list[str] = []
    if system.kind == NONE:
        if modules or use or purge:
            raise StackError(
                "system is none, and there are modules to load: %s." % " ".join(modules or use or ["purge"]), "load",
                "Leave them out on a machine without a module system, or name the system.")
        return current, parts, messages
    commands: list[tuple[str, ...]] = [("purge",)] if purge else []
    commands += [("use", directory) for directory in reversed(use)]
    commands += _of_modules(modules)
    while commands:
        command = commands.pop(0)
        if command[0] == "unload" and not is_loaded(current, command[-1]):
            continue
        wanted = module_ranges.parse(command[-1]) if command[0] == "load" else None
        if wanted:
            found = available.of_range(system, current, wanted, loaded(current), timeout)
            if not found:
                raise _nothing_in_range(system, current, wanted, timeout)
            command = ("load", found)
        answer = ask(system, current, command, timeout, shell=command[0] != "use")
        if not answer.ok and command[0] == "load":
            raise _load_failure(system, current, command[1:], answer, timeout)
        if command[0] == "unload" and _stays(command, answer):
            commands.insert(0, (FORCE, *command))
            continue
        if _stays(command, answer) and not (command[0] == "purge" and _only_sticky(answer.messages)):
            raise StackError(
                "%s failed at module %s: %s" % (system.title, " ".join(command), failure_message(answer.messages)),
                command[-2] if command[0] == FORCE else command[0], "Run it by hand in a fresh login to see it.",
                loaded=loaded(current), messages=answer.messages.splitlines())
        current = answer.environment
        parts.append(answer.shell)
        messages += [line.rstrip() for line in answer.messages.splitlines() if line.strip()]
    return current, parts, messages


def is_loaded(environment: Mapping[str, str], name: str) -> bool:
    """Tell whether a module is loaded, whose version may be left out."""
    return any(one == name or one.startswith(name.rstrip("/") + "/") for one in loaded(environment))


def _of_modules(modules: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the commands of a list of modules: neighbours are loaded together, and of a range one is chosen then."""
    commands: list[tuple[str, ...]] = []
    for name in modules:
        if name.startswith("-"):
            commands.append(("unload", name[1:]))
        elif commands and commands[-1][0] == "load" and not any(map(module_ranges.parse, (name, commands[-1][-1]))):
            commands[-1] += (name,)
        else:
            commands.append(("load", name))
    return commands


def _stays(command: Sequence[str], answer: Answer) -> bool:
    """Tell whether a command failed, also one that unloads a module and leaves it.

    Lmod says that it has unloaded a sticky module and loads it again, and Environment Modules refuse to.
    """
    return not answer.ok or ("unload" in command[:2] and is_loaded(answer.environment, command[-1]))


def _only_sticky(messages: str) -> bool:
    """Tell whether Environment Modules complain of nothing but what the site has marked as sticky, which stays."""
    said = re.findall(r"ERROR: (.*)", messages)
    return bool(said) and all("sticky" in sentence for sentence in said)


def _is_text(name: str, value: str) -> bool:
    """Tell whether a variable can be written as UTF-8; other bytes are lone surrogates in Python's texts."""
    try:
        (name + value).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def describe(before: Mapping[str, str], after: Mapping[str, str], parts: Sequence[ShellParts]) -> dict[str, object]:
    """Return the difference of two environments, and what no environment can hold, as plain data."""
    texts = {name: value for name, value in after.items() if _is_text(name, value)}
    changed = {name: value for name, value in texts.items() if before.get(name) != value}
    removed = sorted(name for name in before if name not in after and _is_text(name, ""))
    bookkeeping: dict[str, str | None] = {name: value for name, value in changed.items() if is_bookkeeping(name)}
    bookkeeping.update((name, None) for name in removed if is_bookkeeping(name))
    functions: dict[str, str | None] = {}
    aliases: dict[str, str | None] = {}
    for part in parts:
        functions.update(part.functions)
        aliases.update(part.aliases)
    not_captured = {
        "functions": functions,
        "aliases": aliases,
        "commands": [text for part in parts for text in part.commands],
        "completions": [text for part in parts for text in part.completions],
        "differing": sorted({
            name for part in parts for name in part.differing if name in changed and not is_bookkeeping(name)}),
        "not_text": sorted(ascii(name)[1:-1] for name in after if name not in texts),
    }
    return {
        "set": {name: value for name, value in changed.items() if not is_bookkeeping(name)},
        "unset": [name for name in removed if not is_bookkeeping(name)],
        "bookkeeping": bookkeeping,
        "not_captured": not_captured,
        "exact": not any(not_captured.values()),
        "loaded": loaded(after),
        "modulefiles": split_path(after.get("_LMFILES_", "")),
        "environment": texts,
    }
