# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Random module commands in a world of modules, and what is wrong after each of them.

The control is asked only where something is not as it should be, or where it alone knows what should be loaded.
"""

from __future__ import annotations

import itertools
import pathlib
import random
import shutil
from typing import Container, Mapping, NamedTuple, Sequence

from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import module_system
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.lua import KEPT
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.module_load import ask, loaded
from support.module_worlds import (
    PATHS,
    PLACE,
    USERS,
    VARIABLES,
    Module,
    differences,
    entries,
    expected,
    mark_of,
)

COLLECTION = "mine"


def random_command(source: random.Random, modules: Sequence[Module], now: Sequence[str], words: Sequence[str]) -> tuple:
    """Return a module command that a user may give while these modules are loaded; ``words`` are those to draw from."""
    others = [module for module in modules if module.full_name not in now]
    if not now or (others and source.random() < 0.5):
        return ("load", source.choice(others).full_name)
    word = source.choice([word for word in words if others or word not in ("swap", "switch")])
    if word in ("swap", "switch"):
        return (word, source.choice(now), source.choice(others).full_name)
    if word == "unload":
        return (word, source.choice(now))
    return (word, COLLECTION) if word in ("save", "restore") else (word,)


def is_plain(words: Sequence[str], modules: Sequence[Module], now: Sequence[str]) -> bool:
    """Tell whether a command has left those modules loaded which it says, without asking the control."""
    known = {module.full_name: module for module in modules}
    gone = {"unload": words[1:], "swap": words[1:2], "switch": words[1:2], "purge": now}
    come = {"load": words[1:], "swap": words[2:], "switch": words[2:]}
    families = [known[name].family for name in now if known[name].family]
    names = [known[name].name for name in now]
    return (words[0] in gone or words[0] in come) and not set(gone.get(words[0], ())) & set(now) and set(
        come.get(words[0], ())) <= set(now) and all(len(set(each)) == len(each) for each in (families, names))


class State(NamedTuple):
    """What a user has at one moment: the environment, and the collections below HOME by their paths."""

    environment: dict
    saved: dict


class Runs:
    """Module commands that were run, by the state before and the words: the same again has the same result.

    ``words`` are the module system's commands, as often as they are to be drawn.
    """

    def __init__(self, system, place) -> None:
        self.system, self.place, self.done, self.asked = system, pathlib.Path(place), {}, 0
        known = module_system.version(system, {"PATH": "/usr/bin:/bin"}, 60)
        self.words = ["swap", "switch", "swap", "switch", "unload", "unload", "unload", "purge", "save", "restore"]
        if system.kind == module_system.LMOD or tuple(map(int, known.split(".")[:2])) >= (5, 2):
            self.words.append("reset")

    def run(self, state: State, words: tuple) -> tuple[bool, State]:
        """Return whether a module command succeeds, and the state after it, which is the one before where it fails."""
        key = (frozenset(state.environment.items()), frozenset(state.saved.items()), words)
        self.asked += 1
        if key not in self.done:
            home = pathlib.Path(state.environment["HOME"])
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir()
            for name, content in state.saved.items():
                (home / name).parent.mkdir(parents=True, exist_ok=True)
                (home / name).write_bytes(content)
            answer = ask(self.system, state.environment, words, 60, shell=False)
            files = {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}
            self.done[key] = (answer.ok, State(answer.environment, files) if answer.ok else state)
        return self.done[key]


class Moves:
    """Keep which entries of search paths are where a plain module has put them that is gone.

    With Lmod, an entry that is there already goes to the front with a plain module, and stays there when that one is
    unloaded. With Environment Modules it stays where it is, also when the module is unloaded that had put it there.
    """

    def __init__(self, modules: Sequence[Module], stays: bool) -> None:
        self.known, self.stays = {module.full_name: module for module in modules}, stays
        self.moved: dict[str, dict[str, set]] = {path: {} for path in PATHS}
        self.left: dict[str, set] = {path: set() for path in PATHS}
        self.held: dict[str, dict[str, set]] = {path: {} for path in PATHS}

    def hold(self, before: Mapping, after: Mapping, start: Mapping[str, str]) -> dict[str, set]:
        """Return the pairs of entries that may be in this order, as a module that is gone has put one of them there.

        That is an entry which a loaded plain module has found there and left where it was. Where the user or an earlier
        module has it too, or a loaded module of the project's brings it, its place is for the project's to see to. So
        it is with the other one of the pair, where a module of the project's brings it that came since.
        """
        former, now = loaded(before), loaded(after)
        came = [name for name in now if name not in former]
        plain = [name for name in now if not self.known[name].ours]
        pairs: dict[str, set] = {}
        for path, held in self.held.items():
            for entry in self._found_there(path, former, now) - set(entries(start.get(path))):
                held[entry] = {pair for pair in itertools.combinations(entries(before.get(path)), 2) if entry in pair}
            for entry in set(held) - self._of(path, plain):
                del held[entry]
            there = set(entries(after.get(path))) - self._of(path, [name for name in came if self.known[name].ours])
            for entry in held:
                held[entry] = {pair for pair in held[entry] if set(pair) - {entry} <= there}
            mine = self._of(path, [name for name in now if self.known[name].ours])
            pairs[path] = {pair for entry in set(held) - mine for pair in held[entry]}
        return pairs

    def _found_there(self, path: str, former: Sequence[str], now: Sequence[str]) -> set[str]:
        """Return the entries of the project's modules that are gone now, which a later plain module has found there.

        Not those that a module which was loaded before them brings, too, and is loaded still.
        """
        found: set[str] = set()
        for place, name in enumerate(former if self.stays else ()):
            if name not in now and self.known[name].ours:
                later = [other for other in former[place + 1:] if not self.known[other].ours]
                earlier = [other for other in former[:place] if other in now]
                found |= self._of(path, [name]) & self._of(path, later) - self._of(path, earlier)
        return found

    def leave(self, after: Mapping, gone: Sequence[str], now: Sequence[str]) -> None:
        """Take in the modules that a command has unloaded, and those that are loaded after it.

        Where an entry is that a loaded module of the project's brings, too, is for that one to see to.
        """
        for path, left in self.left.items():
            if self.stays:
                left |= self._of(path, [name for name in gone if not self.known[name].ours])
            left -= self._of(path, [name for name in now if self.known[name].ours])
            left &= set(entries(after.get(path)))

    def _of(self, path: str, names: Sequence[str]) -> set[str]:
        """Return the entries of a search path that modules bring."""
        return {entry for name in names for _word, where, entry in self.known[name].actions if where == path}

    def add(self, before: Mapping, came: Sequence[str]) -> None:
        """Take in the modules that a command has loaded into an environment."""
        for module in (self.known[name] for name in came if not self.known[name].ours):
            for _command, path, entry in module.actions:
                if path in PATHS and entry in entries(before.get(path)):
                    self.moved[path].setdefault(entry, set()).add(module.full_name)

    def of_others_than(self, now: Sequence[str]) -> dict[str, set]:
        """Return the entries that are where modules have put them which are not loaded."""
        return {
            path: {entry for entry, names in each.items() if names - set(now)} | self.left[path]
            for path, each in self.moved.items()}


class Returns:
    """Keep which values have come back although a loaded plain module has set the variable to another one.

    Nobody can tell that it has, where the variable had that value already: from one that is unloaded by now. Kept are
    the variables, too, of which a pushenv has brought a value back over one of the project's modules that was loaded
    after it, and the values that it has brought back over those of plain ones.
    """

    def __init__(self, modules: Sequence[Module], start: Mapping[str, str]) -> None:
        self.modules, self.start, self.values, self.pushed, self.popped = modules, start, {}, {}, set()
        self.known = {module.full_name: module for module in modules}

    def add(self, former: Sequence[str], now: Sequence[str]) -> None:
        """Take in what a command has unloaded: of those that were loaded before it, in this order, and are not now."""
        for place, name in enumerate(former):
            before = expected(self.modules, former[:place], self.start)
            if name not in now and self.known[name].ours:
                for other in (other for other in former[place + 1:] if not self.known[other].ours):
                    for action in set(self.known[name].actions) & set(self.known[other].actions):
                        if action[0] == "setenv":
                            self.values[other, action[1]] = before[action[1]]
            elif name not in now:
                pushed = {variable for command, variable, _value in self.known[name].actions if command == "pushenv"}
                for other in former[place + 1:]:
                    over = {(other, action[1]) for action in self.known[other].actions if action[1] in pushed}
                    if self.known[other].ours:
                        self.popped |= over
                    else:
                        self.pushed.update((key, before[key[1]]) for key in over)
        self.values, self.pushed = (
            {key: value for key, value in values.items() if key[0] in now} for values in (self.values, self.pushed))
        self.popped = {key for key in self.popped if key[0] in now}

    def of(self, variable: str, now: Sequence[str], lost: Container[str] = ()) -> set:
        """Return the values of a variable that may be there instead of the last one that a loaded module has set.

        What a pushenv has brought back is among them for ``lost`` variables: those that plain modules alone lose, too.
        """
        known = [self.values, self.pushed] if variable in lost else [self.values]
        setters = [name for name in now for _word, where, _value in self.known[name].actions if where == variable]
        return {values[name, variable] for name in setters[-1:] for values in known if (name, variable) in values}


class Control:
    """The same commands with plain modules, which are run only when somebody asks for what came of them."""

    def __init__(self, runs: Runs, state: State) -> None:
        self.runs, self.state, self.waiting = runs, state, []

    def environment(self) -> dict:
        """Return the environment after all commands that were given until now."""
        for words in self.waiting:
            self.state = self.runs.run(self.state, words)[1]
        self.waiting = []
        return self.state.environment


def of_the_others(words: tuple, ours: Container[str], default: str = "") -> tuple:
    """Return what is left of a command for somebody who has none of these modules: nothing, where it is about them.

    ``default`` is what a reset loads.
    """
    if words == ("reset",) and default in ours:
        return ("purge",)
    if words[0] in ("swap", "switch"):
        gone, come = words[1:]
        if gone in ours:
            return () if come in ours else ("load", come)
        return ("unload", gone) if come in ours else words
    return () if words[0] in ("load", "unload") and words[1] in ours else words


def gone_for_ours(words: tuple, modules: Sequence[Module], now: Sequence[str]) -> list[str]:
    """Return the plain modules of these that Lmod unloads for one of the project's, as that is of the same family."""
    known = {module.full_name: module for module in modules}
    comes = known.get(words[-1]) if words[0] in ("load", "swap", "switch") else None
    if not (comes and comes.ours and comes.family):
        return []
    return [name for name in now if known[name].family == comes.family and not known[name].ours]


def left_by_others(
    runs: Runs, state: State, commands: Sequence[tuple], modules: Sequence[Module], now: Sequence[str],
) -> dict:
    """Return what the same commands leave where nobody has the project's modules: the values of each variable.

    Nothing, where the modules that are then loaded are not those which are loaded beside the project's. What goes in
    Lmod for one of the project's of the same family, they unload: a pushenv may have kept its value by then.
    """
    ours = {module.full_name for module in modules if module.ours}
    for words in commands:
        left = of_the_others(words, ours, state.environment.get("LMOD_SYSTEM_DEFAULT_MODULES", ""))
        if left:
            state = runs.run(state, left)[1]
        if runs.system.kind == module_system.LMOD:
            for name in gone_for_ours(words, modules, loaded(state.environment)):
                state = runs.run(state, ("unload", name))[1]
    others = loaded(state.environment) == [name for name in now if name not in ours]
    return {name: {state.environment.get(name)} if others else set() for name in VARIABLES}


def left_behind(real: Mapping, modules: Sequence[Module], control: Control) -> list[str]:
    """Return the project's bookkeeping that is there with no module loaded, but for what a plain module leaves as well.

    That is of a module that the module system takes away without what its unload changes.
    """
    left = {name: value.partition(":")[0].partition(",")[0] for name, value in real.items() if name.startswith(KEPT)}
    gone = {module.name for module in modules if left and mark_of(module) in control.environment()}
    return ["%s is left" % name for name, owner in left.items() if owner not in gone]


class Watch:
    """Give module commands in a world, and tell after each what is wrong.

    ``directories`` are those of the modules as they are and of the control, ``start`` is what the user has at first.
    """

    def __init__(self, runs: Runs, modules: Sequence[Module], directories: Sequence[str], start: Mapping) -> None:
        self.runs, self.modules, self.directories, self.start = runs, modules, directories, start
        self.state, self.plain = (
            State({**start, "HOME": str(runs.place / name), "MODULEPATH": place}, {})
            for name, place in zip(("home", "control-home"), directories))
        self.control = Control(runs, self.plain)
        self.alone: list[State] = []
        self.moves = Moves(modules, runs.system.kind != module_system.LMOD)
        self.returns = Returns(modules, start)
        self.left: dict[str, set] = {name: set() for name in VARIABLES}
        self.said: list[tuple] = []

    @property
    def now(self) -> list[str]:
        """The modules that are loaded."""
        return loaded(self.state.environment)

    def give(self, words: tuple) -> list[str]:
        """Run a module command; return what is wrong after it."""
        before, former = self.state.environment, self.now
        if former and not any(module.ours for module in self.modules if module.full_name in former):
            self.alone.append(self.state)
        succeeded, self.state = self.runs.run(self.state, words)
        self.control.waiting.append(words)
        self.said.append(words)
        now, real = self.now, self.state.environment
        came = [name for name in now if name not in former] if words[0] != "restore" else now
        self.moves.add(before, came)
        self.moves.leave(real, [name for name in former if name not in now or name in came], now)
        self.returns.add(former, now)
        excused = self.moves.of_others_than(now), self.moves.hold(before, real, self.start)
        models = [expected(self.modules, now, self.start, moves) for moves in (True, False)]
        found = differences(models, real, models[0], *excused)
        if found:
            plain = self.control.environment()
            lost = {name for name in VARIABLES if plain.get(name) != models[0][name]}
            for name, values in self.left.items():
                values |= {real.get(name)} & {plain.get(name)} - {models[0][name]}
            found = differences(models, real, plain, *excused, self._strays(now, lost))
        if found and words[0] in ("purge", "reset") and self._is_right_one_by_one(former):
            found = []
        if not (succeeded and is_plain(words, self.modules, now)) and now != loaded(self.control.environment()):
            found.append("loaded are %s, not %s" % (now, loaded(self.control.environment())))
        if not now:
            found += left_behind(real, self.modules, self.control)
        said = "; ".join(map(" ".join, self.said))
        return ["user %s: %s" % (self.start, said), "loaded: %s" % now, *found] if found else []

    def _is_right_one_by_one(self, former: Sequence[str]) -> bool:
        """Tell whether its steps, given one by one, leave what a purge or reset has left, and nothing wrong on the way.

        What a plain module's unload brings back below one of the project's is there for a moment only where all go.
        """
        single = Watch(self.runs, self.modules, self.directories, self.start)
        steps = [("unload", name) for name in reversed(former)] + [("load", name) for name in self.now]
        return not any([single.give(words) for words in (*self.said[:-1], *steps)]) and all(
            single.state.environment.get(name) == self.state.environment.get(name) for name in (*VARIABLES, *PATHS))

    def _strays(self, now: Sequence[str], lost: set[str]) -> dict[str, set]:
        """Return the values of each variable that plain modules alone leave, or have left: who came then took them in.

        Of one that a loaded module of the project's sets only where it is ``lost`` with a plain one in its place, too,
        or a pushenv has brought another value back over it.
        """
        gone = lost | {name for _module, name in self.returns.popped}
        ends = [self.runs.run(each, ("purge",))[1].environment for each in self.alone]
        there = [(module.ours, where) for module in self.modules if module.full_name in now
                 for _word, where, _value in module.actions]
        alike = left_by_others(self.runs, self.plain, self.said, self.modules, now)
        strays = {
            name: self.returns.of(name, now, lost) if name in {where for _ours, where in there} else
            {end.get(name) for end in ends} | self.left[name] for name in VARIABLES}
        return {
            name: values if (True, name) in there and name not in gone else values | alike[name]
            for name, values in strays.items()}


def play(runs: Runs, modules, directories, source: random.Random, length: int) -> list[str]:
    """Run one random sequence in a world; return what is wrong after the first command that leaves something wrong."""
    start = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", **PLACE, **source.choice(USERS)}
    if source.random() < 0.3:
        # What a login has, and what reset goes back to.
        start["LMOD_SYSTEM_DEFAULT_MODULES"] = source.choice(modules).full_name
    watch = Watch(runs, modules, directories, start)
    for turn in range(length + 1):
        words = random_command(source, modules, watch.now, runs.words) if turn < length else ("purge",)
        found = watch.give(words)
        if found:
            return found
    return []
