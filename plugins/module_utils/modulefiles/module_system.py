# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The module system of a machine (Lmod or Environment Modules), and what loading modules does to an environment.

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
from .module_output import (
    ShellParts,
    parse_em_python,
    parse_lmod_python,
    parse_shell,
)

LMOD, EM, NONE = "lmod", "environment-modules", "none"
TITLES = {LMOD: "Lmod", EM: "Environment Modules"}

WELL_KNOWN = {
    LMOD: (
        "/usr/share/lmod/lmod/libexec/lmod",
        "/opt/cray/pe/lmod/lmod/libexec/lmod",
        "/opt/apps/lmod/lmod/libexec/lmod",
        "/usr/share/lmod/*/libexec/lmod",
    ),
    EM: (
        "/usr/share/Modules/libexec/modulecmd.tcl",
        "/usr/share/modules/libexec/modulecmd.tcl",
        "/usr/lib/*-linux-gnu/modulecmd.tcl",
        "/usr/local/Modules/libexec/modulecmd.tcl",
        "/opt/cray/pe/modules/default/bin/modulecmd",
        "/opt/modules/default/bin/modulecmd",
    ),
}
"""Where the packages of the distributions and of the vendors put the module command; patterns of glob(7)."""

# Lmod: plain text to stderr only, and no spider cache written into the account (LMOD_SHORT_TIME, its manual:
# "configuring Lmod"). Environment Modules: no colours, no pager, messages not redirected into what a shell evaluates.
QUIET = {
    LMOD: {"LMOD_COLORIZE": "no", "LMOD_PAGER": "none", "LMOD_REDIRECT": "no", "LMOD_SHORT_TIME": "86400"},
    EM: {"MODULES_COLOR": "never", "MODULES_PAGER": "", "MODULES_REDIRECT_OUTPUT": "0"},
}

_BOOKKEEPING = re.compile(
    r"LOADEDMODULES|_LMFILES_\w*|_ModuleTable\w*|__LMOD_.*|LMOD_.*|__MODULES_.*|MODULES_.*|MODULESHOME|\w+_modshare"
    r"|BASH_FUNC_.*"
)
_SHELL_OWN = ("_", "SHLVL", "PWD", "OLDPWD")
_UNKNOWN = (
    re.compile(r"module\(s\) are unknown:\s*((?:\"[^\"]+\"[\s,]*)+)"),
    re.compile(r"Unable to locate a modulefile for ('[^']+')"),
)


class ModuleSystem(NamedTuple):
    """A module command: which system it belongs to, and the words that call it."""

    kind: str
    words: tuple[str, ...]

    @property
    def command(self) -> str:
        """Path of its executable or Tcl script."""
        return self.words[-1] if self.words else ""

    @property
    def title(self) -> str:
        """Its name in a sentence."""
        return TITLES.get(self.kind, self.kind)


class Answer(NamedTuple):
    """What one module command did: the environment after it, and its parts that no environment can hold."""

    ok: bool
    environment: dict[str, str]
    shell: ShellParts
    messages: str


def is_bookkeeping(name: str) -> bool:
    """Whether a variable is the module system's own record of what it did."""
    return _BOOKKEEPING.fullmatch(name) is not None


def _from_environment(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """The module commands that an initialised shell names, the most specific variable first."""
    home = environment.get("MODULESHOME", "")
    return [
        (LMOD, environment.get("LMOD_CMD", "")),
        (LMOD, os.path.join(environment.get("LMOD_PKG", ""), "libexec", "lmod")),
        (EM, environment.get("MODULES_CMD", "")),
        (LMOD, os.path.join(home, "libexec", "lmod")),
        (EM, os.path.join(home, "libexec", "modulecmd.tcl")),
        (EM, os.path.join(home, "bin", "modulecmd")),
    ]


def _words(kind: str, command: str) -> tuple[str, ...]:
    """How to call a module command: a Tcl script without the execute bit goes through tclsh."""
    if kind == EM and not os.access(command, os.X_OK):
        shell = shutil.which("tclsh") or shutil.which("tclsh8.6")
        if shell:
            return (shell, command)
    return (command,)


def _given_command(system: str, command: str, exists: Callable[[str], bool]) -> ModuleSystem:
    """The module system behind a module command that the operator names."""
    step = "find the module system"
    name = os.path.basename(command)
    kind = system if system != "auto" else LMOD if name == "lmod" else EM if name.startswith("modulecmd") else ""
    if not exists(command):
        raise StackError(
            "The module command %s does not exist." % command, step, "Correct command, or leave it out.", command
        )
    if not kind:
        raise StackError(
            "The name of %s does not tell whose module command it is." % command, step,
            "Set system to lmod or environment-modules.", command,
        )
    return ModuleSystem(kind, _words(kind, command))


def find_system(
    environment: Mapping[str, str],
    system: str = "auto",
    command: str | None = None,
    exists: Callable[[str], bool] = os.path.isfile,
    expand: Callable[[str], list[str]] = glob.glob,
) -> ModuleSystem:
    """Find the module command.

    Args:
        environment: variables of the shell that would use it; an initialised shell names its module command there.
        system: ``auto``, ``lmod``, ``environment-modules`` or ``none``.
        command: the executable, where the operator names it.
        exists: whether a path is a file.
        expand: the paths that a pattern stands for.

    Raises:
        StackError: there is none, or both systems are installed and nothing says which one is in use.
    """
    step = "find the module system"
    if system == NONE:
        return ModuleSystem(NONE, ())
    if command:
        return _given_command(system, command, exists)
    wanted = (LMOD, EM) if system == "auto" else (system,)
    for kind, path in _from_environment(environment):
        if kind in wanted and os.path.isabs(path) and exists(path):
            return ModuleSystem(kind, _words(kind, path))
    found = {}
    for kind in wanted:
        paths = [path for pattern in WELL_KNOWN[kind] for path in sorted(expand(pattern)) if exists(path)]
        if paths:
            found[kind] = paths[0]
    if len(found) > 1:
        raise StackError(
            "Both Lmod (%s) and Environment Modules (%s) are installed, and the environment does not tell which one is "
            "in use." % (found[LMOD], found[EM]), step, "Set system, or init to the start-up file that users get.",
        )
    for kind, path in found.items():
        return ModuleSystem(kind, _words(kind, path))
    raise StackError(
        "No module system was found: LMOD_CMD, LMOD_PKG, MODULES_CMD and MODULESHOME in the environment lead to none, "
        "and %s is not at a known place." % " or ".join(TITLES[kind] for kind in wanted), step,
        "Set command to the path of lmod or modulecmd.tcl, or system: none on a machine without modules.",
    )


def _run(words: Sequence[str], environment: Mapping[str, str], timeout: float, step: str) -> tuple[int, bytes, bytes]:
    try:
        process = run_program(
            list(words), env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout
        )
    except OSError as error:
        raise StackError(
            "Cannot run %s: %s." % (words[0], error.strerror), step, "Correct command, or the file's mode.", words[0]
        ) from error
    except subprocess.TimeoutExpired as error:
        raise StackError(
            "%s did not finish within %g seconds." % (" ".join(words), timeout), step,
            "Run it by hand to see where it waits, or raise timeout.", words[0],
        ) from error
    return process.returncode, process.stdout, process.stderr


def source_init(
    environment: Mapping[str, str], files: Sequence[str], timeout: float, text: str = ""
) -> dict[str, str]:
    """The environment after bash has read start-up files in it.

    Args:
        environment: the variables that bash starts with.
        files: paths, in order; what they print and return does not matter, as in a login.
        timeout: seconds.
        text: shell text that it runs after them.

    Raises:
        StackError: a file is missing, or bash did not get to the end.
    """
    step = "init"
    for path in files:
        if not os.path.isfile(path):
            raise StackError("The start-up file %s does not exist." % path, step, "Correct init.", path)
    script = 'for torchstack_init in "$@"; do . "$torchstack_init"; done >&2; %sexec env -0' % (
        "{\n%s\n} >&2\n" % text if text else "")
    code, output, errors = _run(
        ("/bin/bash", "--noprofile", "--norc", "-c", script, "init", *files), environment, timeout, step
    )
    if code or not output:
        raise StackError(
            "bash ended with exit status %d while it read %s: %s" % (
                code, ", ".join(files) or "the text of init_script",
                " ".join(errors.decode("utf-8", "replace").split())[-300:],
            ), step, "Run it by hand: bash --noprofile --norc -c '. FILE; env'.",
        )
    pairs = (entry.decode("utf-8", "surrogateescape").partition("=") for entry in output.split(b"\0") if entry)
    after = {name: value for name, _equals, value in pairs if name not in _SHELL_OWN}
    after.update((name, environment[name]) for name in _SHELL_OWN if name in environment)
    return after


def version(system: ModuleSystem, environment: Mapping[str, str], timeout: float) -> str:
    """The module command's own version, or an empty text where it does not tell."""
    _code, output, errors = _run(
        (*system.words, "python", "--version"), {**environment, **QUIET[system.kind]}, timeout, "find the module system"
    )
    match = re.search(r"(?:Version|Release|VERSION)[ =]+(\S+)", (errors + output).decode("utf-8", "replace"))
    return match.group(1) if match else ""


def ask(
    system: ModuleSystem, environment: Mapping[str, str], arguments: Sequence[str], timeout: float, shell: bool = True
) -> Answer:
    """Ask the module command what ``module <arguments>`` does in an environment.

    Args:
        system: from :func:`find_system`; not ``none``.
        environment: the variables before.
        arguments: the sub-command and its words.
        timeout: seconds for each call.
        shell: ask for the parts that only a shell gets, too.
    """
    surroundings = {**environment, **QUIET[system.kind]}
    step = arguments[0]
    code, output, errors = _run((*system.words, "python", *arguments), surroundings, timeout, step)
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
        _code, output, _errors = _run((*system.words, "bash", *arguments), surroundings, timeout, step)
        parts = parse_shell(output, variables.changes)
        ok = not parts.failed
    return Answer(ok, after, parts, messages)


def own_words(messages: str) -> str:
    """The module command's own sentence about a failure, on one line, without its advice about other commands."""
    said = re.findall(r"following error:\s*(.*?)(?:\n\s*\n|\n\s*While processing|\Z)", messages, re.S)
    if not said:
        said = [messages.partition("ERROR: ")[2] or messages]
    sentence = " ".join(" ".join(said).split())[:600] or "it gave no message"
    return sentence if sentence.endswith((".", "!", "?")) else sentence + "."


def _split(value: str) -> list[str]:
    return [part for part in value.split(":") if part]


def loaded(environment: Mapping[str, str]) -> list[str]:
    """The modules that an environment says are loaded, in load order."""
    return _split(environment.get("LOADEDMODULES", ""))


def _diagnose(
    system: ModuleSystem, environment: Mapping[str, str], modules: Sequence[str], timeout: float
) -> tuple[list[str], list[str], dict[str, str]]:
    """Load modules one at a time: which are missing, which exist and refuse, and the environment of the others.

    One at a time, because a module may become visible only through the one loaded before it.
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
            known = name not in re.findall(r"[^\s\"',]+", named)
        else:
            known = ask(system, current, ("is-avail", name), timeout, shell=False).ok
        (refused if known else missing).append(name)
    return missing, refused, current


def _load_failure(
    system: ModuleSystem, before: Mapping[str, str], modules: Sequence[str], answer: Answer, timeout: float
) -> StackError:
    missing, refused, reached = _diagnose(system, before, modules, timeout)
    path = before.get("MODULEPATH", "")
    absent = [directory for directory in _split(path) if not os.path.isdir(directory)]
    if missing:
        remedy = "Check the name, or add the directory that has it with use (MODULEPATH is %s)." % (path or "empty")
        if absent:
            remedy += " These directories of it do not exist: %s." % ", ".join(absent)
    else:
        remedy = "Leave out what it conflicts with, load first what it needs, set purge, or correct the modulefile."
    return StackError(
        "%s cannot load %s: %s" % (
            system.title, " ".join(missing + refused) or " ".join(modules), own_words(answer.messages)
        ),
        "load", remedy, missing=missing, refused=refused, loaded=loaded(reached), messages=answer.messages.splitlines(),
    )


def load_modules(
    system: ModuleSystem,
    environment: Mapping[str, str],
    modules: Sequence[str],
    use: Sequence[str] = (),
    purge: bool = False,
    timeout: float = 120,
) -> tuple[dict[str, str], list[ShellParts], list[str]]:
    """What ``module purge; module use ...; module load ...`` does.

    Args:
        system: from :func:`find_system`.
        environment: the variables before.
        modules: names in load order.
        use: directories to put before MODULEPATH; the first one ends up first.
        purge: unload everything before.
        timeout: seconds for each call of the module command.

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
                "Leave them out on a machine without a module system, or name the system.",
            )
        return current, parts, messages
    commands: list[tuple[str, ...]] = [("purge",)] if purge else []
    commands += [("use", directory) for directory in reversed(use)]
    if modules:
        commands.append(("load", *modules))
    for command in commands:
        answer = ask(system, current, command, timeout, shell=command[0] != "use")
        if not answer.ok and command[0] == "load":
            raise _load_failure(system, current, modules, answer, timeout)
        if not answer.ok:
            raise StackError(
                "%s failed at module %s: %s" % (system.title, " ".join(command), own_words(answer.messages)),
                command[0], "Run it by hand in a fresh login to see it.", loaded=loaded(current),
                messages=answer.messages.splitlines(),
            )
        current = answer.environment
        parts.append(answer.shell)
        messages += [line.rstrip() for line in answer.messages.splitlines() if line.strip()]
    return current, parts, messages


def _is_text(name: str, value: str) -> bool:
    """Whether a variable can be written down: bytes that are not UTF-8 are lone surrogates in Python's texts."""
    try:
        (name + value).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def describe(before: Mapping[str, str], after: Mapping[str, str], parts: Sequence[ShellParts]) -> dict[str, object]:
    """The difference of two environments, and what no environment can hold, as plain data."""
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
            name for part in parts for name in part.differing if name in changed and not is_bookkeeping(name)
        }),
        "not_text": sorted(ascii(name)[1:-1] for name in after if name not in texts),
    }
    return {
        "set": {name: value for name, value in changed.items() if not is_bookkeeping(name)},
        "unset": [name for name in removed if not is_bookkeeping(name)],
        "bookkeeping": bookkeeping,
        "not_captured": not_captured,
        "exact": not any(not_captured.values()),
        "loaded": loaded(after),
        "modulefiles": _split(after.get("_LMFILES_", "")),
        "environment": texts,
    }
