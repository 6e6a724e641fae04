# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Random modules, random module commands, and what has to be there after each of them.

A world is some modules: plain ones, written by hand as any site does, and ones that the project renders. Each world is
there twice: in the control, a module of the project's is a plain one too, with what the module system offers for it.
What is not as it should be is a fault unless the control leaves the same: then it is the module system's own limit.
"""

from __future__ import annotations

import os
import random
from typing import Mapping, NamedTuple, Sequence

from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import module_system
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.description import normalise
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.layout import relative_path, render

VARIABLES = ("ONE", "TWO", "THREE")
PATHS = ("PATH", "LD_LIBRARY_PATH")
ENTRIES = ("/soft/cuda/lib64", "/soft/nccl/lib", "/soft/a/bin", "/soft/b/bin", "/soft/c/bin", "/home/u/.local/bin")
#: Of the user: our modules name it by the variable, in front of an entry.
PLACE = {"OF_THE_USER": "/home/u/.local"}
VALUES = ("same", "other", "it's \"odd\" $HOME \\ {a}", "ab?")
#: Of a value with a colon, the pushenv of Environment Modules gives a part back: nothing pushes this variable.
ADDRESS, ADDRESSES = "THREE", ("http://proxy:3128", "http://other:80", "same")
USERS = (
    {},
    {"ONE": "user's one", "LD_LIBRARY_PATH": "/home/u/lib:/opt/x"},
    {"ONE": "same", "TWO": "", "LD_LIBRARY_PATH": "/home/u/lib:/soft/cuda/lib64:/opt/x"},
    {"TWO": "\u00e9?", "LD_LIBRARY_PATH": "/home/u//lib:/opt/x:/home/u/lib/:",
     "PATH": "/usr/bin:/soft/a/bin:/bin:/usr/bin"},
    {"ONE": "other", "THREE": "http://proxy:3128", "PATH": "/usr/bin:/bin:/soft/b/bin"},
)


class Module(NamedTuple):
    """A module: what it does to variables, in order, each as (command, variable, value)."""

    name: str
    version: str
    family: str
    ours: bool
    actions: tuple

    @property
    def full_name(self) -> str:
        return "%s/%s" % (self.name, self.version)


def random_world(source: random.Random, pushes: bool = True) -> list[Module]:
    """Return some modules, of which at least one is the project's; without ``pushes``, none has a pushenv."""
    modules = []
    for name in ("torchstack", "torchother", "conda", "site", "extra"):
        ours = name.startswith("torch") or source.random() < 0.15
        family = "python" if source.random() < (0.7 if ours else 0.4) else ""
        for version in ("1", "2")[:source.choice((1, 1, 2))]:
            # Where Lmod replaces one of a family, its own pushenv brings back what the one that goes had set.
            actions = _random_actions(source, not (ours or family))
            if not pushes:
                actions = [("setenv" if action[0] == "pushenv" else action[0], *action[1:]) for action in actions]
            modules.append(Module(name, version, family, ours, tuple(actions)))
    return modules


def _random_actions(source: random.Random, may_push: bool) -> list[tuple]:
    actions = []
    for variable in VARIABLES:
        if source.random() < 0.6:
            pushes = ("pushenv",) if may_push and variable != ADDRESS else ()
            command = source.choice(("setenv", "setenv", "setenv", "unsetenv", *pushes))
            value = source.choice(ADDRESSES if variable == ADDRESS else VALUES)
            actions.append((command, variable, "" if command == "unsetenv" else value))
    for path in PATHS:
        for entry in source.sample(ENTRIES, source.choice((0, 1, 2, 2))):
            actions.append((source.choice(("prepend", "prepend", "append")), path, entry))
    return actions


def description_of(module: Module) -> dict:
    """Return a module as the project describes it."""
    raw: dict = {
        "name": module.name, "version": module.version, "prefix": "/soft", "family": module.family,
        "setenv": {name: value for command, name, value in module.actions if command == "setenv"},
        "unsetenv": [name for command, name, _value in module.actions if command == "unsetenv"]}
    for kind in ("prepend", "append"):
        raw[kind] = [
            {"name": path, "values": values} for path in PATHS
            if (values := [_by_variable(value) for command, name, value in module.actions
                           if (command, name) == (kind, path)])]
    return normalise(raw)


def _by_variable(entry: str) -> str:
    for name, value in PLACE.items():
        entry = entry.replace(value + "/", "${%s}/" % name)
    return entry


def mark_of(module: Module) -> str:
    """Return the variable that the control's plain module of one of the project's sets, and nothing else."""
    return "MARK_OF_%s_%s" % (module.name, module.version)


def plain_text(module: Module, kind: str) -> str:
    """Return a module as people write it by hand. Of several entries, the first one is to be found first."""
    actions = [action for action in module.actions if action[0] != "prepend"]
    if module.ours:
        actions.append(("setenv", mark_of(module), "1"))
    actions += [action for action in reversed(module.actions) if action[0] == "prepend"]
    if kind == module_system.LMOD:
        words = {"prepend": "prepend_path", "append": "append_path"}
        lines = ['family("%s")' % module.family] if module.family else []
        for command, name, value in actions:
            quoted = value.replace("\\", "\\\\").replace('"', '\\"')
            lines.append('%s("%s"%s)' % (
                words.get(command, command), name, "" if command == "unsetenv" else ', "%s"' % quoted))
        return "\n".join(lines) + "\n"
    words = {"prepend": "prepend-path", "append": "append-path"}
    lines = ["#%Module1.0", "conflict " + module.name]
    if module.family:
        lines += ["if {[llength [info commands family]]} {", "   family " + module.family, "} else {",
                  "   conflict " + module.family, "}"]
    for command, name, value in actions:
        quoted = "".join("\\" + char if char in '\\"$[]{}' else char for char in value)
        text = {"unsetenv": "", "append": " " + value}.get(command, ' "%s"' % quoted)
        lines.append("%s %s%s" % (words.get(command, command), name, text))
    return "\n".join(lines) + "\n"


def has_pushenv(system) -> bool:
    """Whether a module system has pushenv, and families."""
    if system.kind == module_system.LMOD:
        return True
    return not module_system.version(system, dict(os.environ), 60).startswith("4.")


def write_world(place, modules: Sequence[Module], system) -> tuple[str, str]:
    """Write the modulefiles of a world, as they are and as the control has them; return both directories."""
    syntax = "lmod" if system.kind == module_system.LMOD else "tcl"
    for top, control in (("real", False), ("control", True)):
        for module in modules:
            path = place / top / relative_path(syntax, module.name, module.version)
            path.parent.mkdir(parents=True, exist_ok=True)
            ours = module.ours and not control
            text = render(description_of(module), "r")[syntax] if ours else plain_text(module, system.kind)
            path.write_text(text, encoding="utf-8")
    return tuple(str(place / top / "modulefiles" / syntax) for top in ("real", "control"))


def expected(modules: Sequence[Module], now: Sequence[str], start: Mapping[str, str], moves: bool = True) -> dict:
    """Return what has to be there while these modules are loaded, in this order: the user's, and then theirs.

    Without ``moves``, a plain module leaves an entry that is there already where it is, as in Environment Modules.
    """
    known = {module.full_name: module for module in modules}
    result: dict = {name: start.get(name) for name in VARIABLES}
    result.update({path: start.get(path) for path in PATHS})
    for name in now:
        actions = known[name].actions
        for command, variable, value in actions:
            if command in ("setenv", "pushenv", "unsetenv"):
                result[variable] = None if command == "unsetenv" else value
        for path in PATHS:
            own = {kind: [value for command, where, value in actions if (command, where) == (kind, path)]
                   for kind in ("prepend", "append")}
            if own["prepend"] or own["append"]:
                before = (result[path] or "").split(":") if result[path] else []
                if not (moves or known[name].ours):
                    own = {kind: [entry for entry in own[kind] if entry not in before] for kind in own}
                middle = [entry for entry in before if entry not in own["prepend"] + own["append"]]
                result[path] = ":".join([*own["prepend"], *middle, *own["append"]])
    return result


def entries(text: str | None) -> list[str]:
    """Return the entries of a search path, each once and in its shortest form."""
    found = []
    for entry in (text or "").split(":"):
        shortest = "/" + "/".join(part for part in entry.split("/") if part)
        if entry and shortest not in found:
            found.append(shortest)
    return found


def differences(
    models: Sequence[Mapping], real: Mapping, control: Mapping, displaced: Mapping[str, set], still: Mapping[str, set],
    strays: Mapping[str, set] | None = None,
) -> list[str]:
    """Tell what is wrong and would not be wrong with a plain module, one sentence each.

    ``displaced`` are entries of each search path that plain modules have moved which are gone: nobody moves them back.
    ``still`` are pairs of entries that may be in this order, as a plain module leaves one of them where it was.
    ``strays`` are values of each variable that plain modules alone leave: who comes then takes them for the user's.
    """
    model = models[0]
    found = []
    for name in VARIABLES:
        if real.get(name) not in {model[name], control.get(name), *(strays or {}).get(name, ())}:
            found.append("%s is %r, not %r (plain: %r)" % (name, real.get(name), model[name], control.get(name)))
    for path in PATHS:
        if real.get(path) in (model[path], control.get(path)):
            continue
        mine, plain = entries(real.get(path)), entries(control.get(path))
        rights = [entries(each[path]) for each in models]
        wrong = [entry for entry in {*mine, *rights[0]} if (entry in mine) not in (entry in rights[0], entry in plain)]
        wrong += [
            "%s before %s" % (first, second) for place, first in enumerate(mine) for second in mine[place + 1:]
            if not {first, second} & displaced[path] and (first, second) not in still[path] and not any(
                first not in other or second not in other or other.index(first) < other.index(second)
                for other in (*rights, plain))]
        if wrong:
            found.append("%s is %r, not %r (plain: %r): %s" % (
                path, real.get(path), model[path], control.get(path), ", ".join(wrong)))
    return found
