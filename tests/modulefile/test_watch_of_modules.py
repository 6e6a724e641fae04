# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the search beside other modules lets pass, as no module can do it better, and the faults that it finds there.

That are the value that comes back and, with Environment Modules, the entry that stays where it was put.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.module_system import EM, LMOD
from support.module_runs import Runs, Watch
from support.module_worlds import Module, has_pushenv, write_world

PATH = "LD_LIBRARY_PATH"
A, B, USERS = "/soft/a/bin", "/soft/b/bin", "/u/x"


class Sequence(NamedTuple):
    """Commands in a world; ``faults`` are what takes the place of what in the text of the module ``faulty``, by system.

    Without one for a system, the sequence is not for that one. ``then`` are the commands after the one that goes wrong.
    """

    modules: tuple
    user: dict
    commands: str
    faults: dict | None = None
    faulty: str = "torchother"
    then: int = 0


def ours(name, *actions):
    return Module(name, "1", "", True, actions)


def plain(name, *actions):
    return Module(name, "1", "", False, actions)


def first(*entries):
    return tuple(("prepend", PATH, entry) for entry in entries)


def last(*entries):
    return tuple(("append", PATH, entry) for entry in entries)


# What a pushenv finds is what the module that goes in the same command had set: the plain one is right in the end.
VALUE = Sequence(
    (ours("torchstack", ("setenv", "ONE", "same")), plain("extra", ("setenv", "ONE", "same")),
     plain("site", ("pushenv", "ONE", "pushed")), plain("conda", ("setenv", "TWO", "any"))),
    {"ONE": "user's"}, "load torchstack/1; load extra/1; swap torchstack/1 site/1; swap site/1 conda/1; purge")
ENTRY = Sequence(
    (ours("torchother", *first(B, A)), ours("torchstack", *first(A)), plain("extra", *first(B))), {},
    "load torchother/1; load torchstack/1; load extra/1; unload torchother/1; unload torchstack/1; purge")
# What a pushenv had found of a plain module that Lmod takes away for ours: it gives that back without ours, too.
PUSHED = Sequence(
    (ours("torchother", ("setenv", "ONE", "other")),
     ours("torchstack", ("setenv", "ONE", "ours"))._replace(family="python"),
     plain("site", ("setenv", "ONE", "site's"))._replace(family="python"),
     plain("extra", ("pushenv", "ONE", "pushed"))), {},
    "load torchother/1; load site/1; swap torchother/1 extra/1; load torchstack/1; unload extra/1; purge")
# What a pushenv had found comes back though another plain module has set the variable by then, without ours, too.
PUSHED_BEFORE = Sequence(
    (ours("torchstack", ("setenv", "ONE", "ours")), plain("site", ("pushenv", "ONE", "pushed")),
     plain("extra", ("setenv", "ONE", "last"))), {"ONE": "user's"},
    "load torchstack/1; swap torchstack/1 site/1; load extra/1; unload site/1; purge")
# What a pushenv had found comes back over what one has set that came later, as it does over a plain one.
PUSHED_OVER = Sequence(
    (ours("torchother", ("setenv", "ONE", "other")), ours("torchstack", ("setenv", "ONE", "same")),
     plain("site", ("pushenv", "ONE", "same"))), {"ONE": "user's"},
    "load torchother/1; load site/1; swap torchother/1 torchstack/1; unload site/1; purge")
# So it does where ours goes for the one that pushes, and had set what was there: a plain one would leave nothing there.
PUSHED_AFTER = Sequence(
    (ours("torchother", ("setenv", "ONE", "same")), ours("torchstack", ("setenv", "ONE", "same")),
     plain("site", ("pushenv", "ONE", "pushed")), plain("extra", ("setenv", "ONE", "last"))), {},
    "load torchother/1; load torchstack/1; swap torchstack/1 site/1; load extra/1; unload site/1; purge")
# The restore of Lmod 8.6 leaves a value behind, and who comes then has found it.
LEFT = Sequence(
    (ours("torchother", ("unsetenv", "THREE", "")), ours("torchstack", ("setenv", "TWO", "same")),
     ours("torchextra", ("setenv", "TWO", "other"))), {},
    "load torchother/1; save mine; load torchstack/1; restore mine; swap torchother/1 torchextra/1; purge")
# A pushenv that comes for another one takes in what that one had pushed, and brings it back below ours: unloaded one by
# one, it is there already when ours goes, without ours, too.
PUSHED_FOR_ANOTHER = Sequence(
    (plain("site", ("pushenv", "TWO", "pushed")), ours("torchstack", ("setenv", "TWO", "same")),
     plain("conda", ("pushenv", "TWO", "same"))), {},
    "load site/1; load torchstack/1; swap site/1 conda/1; purge")
# With Lmod a plain module leaves nothing there, too.
NOTHING_BACK = {EM: ("         assign $name $before\n", "         assign $name {}\n")}
ALWAYS_BACK = {
    EM: (" && [settled $name] eq $given} {", "} {"),
    LMOD: ("if last and (now == given or value and not can_keep(value)) then", "if last then")}
NOT_MOVED_BACK = {EM: ("      give_back $name $kept $own $moved\n", "")}
OTHER_WAY_ROUND = {EM: (
    "      if {![llength $layer]} {\n         return\n",
    "      reorder $name [join [lreverse [entries_of [lindex [held $name] 0]]] \":\"]\n"
    "      if {![llength $layer]} {\n         return\n")}
AT_THE_END = {EM: ("[concat $entries $after]", "[concat [lrange $entries [llength $before] end] $before $after]")}
FOUND = {
    "a value that does not come back at all": VALUE._replace(
        faults=NOTHING_BACK, faulty="torchstack", then=1),
    "a value that stays where all go by one command": Sequence(
        (ours("torchstack", ("setenv", "ONE", "ours")), plain("extra", ("setenv", "TWO", "any"))), {},
        "load torchstack/1; load extra/1; purge", {EM: (NOTHING_BACK[EM][0], "")}, "torchstack"),
    "a value that a loaded module does not set": Sequence(
        (ours("torchstack", ("setenv", "ONE", "ours")),), {"ONE": "user's"}, "load torchstack/1",
        {EM: ('replace ONE "ours"', ""), LMOD: ('replace("ONE", "ours")', "")}, "torchstack"),
    "a value that comes back over another module's": Sequence(
        (ours("torchstack", ("setenv", "ONE", "same")), plain("extra", ("setenv", "ONE", "other"))),
        {"ONE": "user's"}, "load torchstack/1; load extra/1; unload torchstack/1", ALWAYS_BACK, "torchstack"),
    "an entry that is moved when a module goes": Sequence(
        (ours("torchother", *first(B)), plain("extra", *first(B))), {PATH: USERS},
        "load torchother/1; load extra/1; unload torchother/1", OTHER_WAY_ROUND),
    "a new entry that is not before one which stays": Sequence(
        (ours("torchother", *first(B)), plain("site", *last(A)), plain("extra", *first(B)),
         ours("torchstack", *first(A))), {},
        "load torchother/1; load site/1; load extra/1; unload torchother/1; unload site/1; load torchstack/1",
        AT_THE_END, "torchstack"),
    "the user's entry that is not moved back": Sequence(
        (ours("torchother", *last(B)), plain("extra", *first(B))), {PATH: "%s:%s" % (B, USERS)},
        "load torchother/1; load extra/1; unload torchother/1", NOT_MOVED_BACK),
    "an earlier module's entry that is not moved back": Sequence(
        (plain("site", *first(B)), ours("torchother", *last(B)), plain("extra", *first(B))), {PATH: USERS},
        "load site/1; load torchother/1; load extra/1; unload torchother/1", NOT_MOVED_BACK),
    "an entry of a loaded module that is not first": Sequence(
        (ours("torchzero", *first(B)), ours("torchother", *last(B)), plain("extra", *first(B)),
         ours("torchstack", *first(B))), {PATH: USERS},
        "load torchzero/1; load torchother/1; load extra/1; unload torchzero/1; unload torchother/1; load torchstack/1",
        AT_THE_END, "torchstack"),
}


@pytest.fixture()
def play(system, tmp_path):
    """Give the commands of a sequence; return after how many there is something wrong, and what."""
    def run(sequence):
        if not has_pushenv(system) and any(
                action[0] == "pushenv" for module in sequence.modules for action in module.actions):
            pytest.skip("this version has no pushenv")
        directories = write_world(tmp_path, sequence.modules, system)
        if sequence.faults:
            fault = sequence.faults.get(system.kind) or pytest.skip("this is of the other module system")
            (path,) = (tmp_path / "real").rglob(sequence.faulty + "/1*")
            text = path.read_text(encoding="utf-8")
            assert text.count(fault[0]) == 1
            path.write_text(text.replace(*fault), encoding="utf-8")
        watch = Watch(Runs(system, tmp_path), sequence.modules, directories, {
            "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", **sequence.user})
        commands = sequence.commands.split("; ")
        for number, command in enumerate(commands, 1):
            problems = watch.give(tuple(command.split()))
            if problems:
                return len(commands) - number, problems
        return len(commands), []

    return run


@pytest.mark.parametrize("sequence", [
    VALUE, ENTRY, PUSHED, PUSHED_BEFORE, PUSHED_OVER, PUSHED_AFTER, LEFT, PUSHED_FOR_ANOTHER], ids=[
    "value", "entry", "pushed", "pushed before", "pushed over", "pushed after", "left by a restore",
    "pushed for another"])
def test_what_no_module_can_know_of_a_plain_one_beside_it_passes(play, sequence):
    assert play(sequence)[1] == []


@pytest.mark.parametrize("sequence", FOUND.values(), ids=FOUND.keys())
def test_a_fault_beside_what_passes_is_found_when_it_happens(play, sequence):
    left, problems = play(sequence)
    assert problems and left == sequence.then, problems
    assert play(sequence._replace(faults=None))[1] == []
