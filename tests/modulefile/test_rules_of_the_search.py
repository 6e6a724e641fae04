# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the search beside other modules lets pass after each command, and no more than that; see support/module_runs.py.

What a module system makes of the same is in test_watch_of_modules.py.
"""

from __future__ import annotations

import pytest
from support.module_runs import Moves, Returns, gone_for_ours, is_plain, of_the_others
from support.module_worlds import PATHS, VARIABLES, Module, differences

PATH = "LD_LIBRARY_PATH"
A, B, C = "/soft/a/bin", "/soft/b/bin", "/soft/c/bin"


def module(name, *actions):
    """Return a module; it is the project's where its name says so."""
    return Module(name, "1", "", name.startswith("torch"), actions)


def names(text):
    return [name + "/1" for name in text.split()]


SET, UNSET, OTHER = ("setenv", "ONE", "same"), ("unsetenv", "ONE", ""), ("setenv", "ONE", "other")
USERS = {"ONE": "user's"}


def came_back(modules, *turns):
    """Return the values of ONE that may be there, when after each turn these modules are loaded, in this order."""
    returns = Returns(modules, USERS)
    for former, now in zip(turns, turns[1:]):
        returns.add(names(former), names(now))
    return returns.of("ONE", names(turns[-1]))


def test_the_value_before_ours_may_come_back_over_a_plain_module_that_has_set_the_very_same():
    modules = [module("torchstack", SET), module("extra", SET)]
    assert came_back(modules, "torchstack extra", "extra") == {"user's"}
    assert came_back([module("site", OTHER), *modules], "site torchstack extra", "site extra") == {"other"}


SAME, ALIKE = module("torchstack", SET), module("extra", SET)
NO_VALUE = {
    "another value": ([SAME, module("extra", OTHER)], "torchstack extra", "extra"),
    "both unset it": ([module("torchstack", UNSET), module("extra", UNSET)], "torchstack extra", "extra"),
    "ours sees to its own": ([SAME, module("torchother", SET)], "torchstack torchother", "torchother"),
    "a plain one is gone": ([module("site", SET), ALIKE], "site extra", "extra"),
    "it was there before": ([SAME, ALIKE], "extra torchstack", "extra"),
    "another one has set it since": (
        [SAME, ALIKE, module("site", OTHER)], "torchstack extra", "extra", "extra site"),
    "it was loaded once more": ([SAME, ALIKE], "torchstack extra", "extra", "", "extra"),
}


@pytest.mark.parametrize("modules, turns", [(each[0], each[1:]) for each in NO_VALUE.values()], ids=NO_VALUE)
def test_no_other_value_may_come_back(modules, turns):
    assert came_back(modules, *turns) == set()


PUSHES = module("site", ("pushenv", "ONE", "pushed"))


@pytest.mark.parametrize("others, turns, wanted", [
    (SAME, "site torchstack, torchstack", [("torchstack/1", "ONE")]),
    (SAME, "site torchstack, torchstack, torchstack extra", [("torchstack/1", "ONE")]),
    (SAME, "torchstack site, torchstack", []), (SAME, "site torchstack, site", []),
    (SAME, "site torchstack, torchstack, extra", []), (module("torchstack", ("setenv", "TWO", "same")),
     "site torchstack, torchstack", []), (ALIKE, "site extra, extra", [])], ids=[
    "below ours", "and still", "above ours", "ours is gone", "gone since", "another variable", "no one of ours"])
def test_a_push_below_ours_that_is_taken_back_brings_back_what_was_there_before_ours(others, turns, wanted):
    returns = Returns([PUSHES, SAME._replace(name="extra", ours=False), others], USERS)
    for former, now in zip(turns.split(", "), turns.split(", ")[1:]):
        returns.add(names(former), names(now))
    assert returns.popped == set(wanted)


def test_what_a_push_had_found_may_come_back_over_a_plain_module_where_plain_ones_lose_it_too():
    returns = Returns([SAME, PUSHES, module("extra", OTHER)], USERS)
    returns.add(names("torchstack site extra"), names("torchstack extra"))
    assert returns.of("ONE", names("torchstack extra"), {"ONE"}) == {"same"}
    assert returns.of("ONE", names("torchstack extra"), {"TWO"}) == set()
    returns.add(names("torchstack extra"), names("torchstack"))
    assert returns.of("ONE", names("torchstack extra"), {"ONE"}) == set()


def brings(name, *entries):
    return module(name, *(("prepend", PATH, entry) for entry in entries))


OURS, PLAIN = brings("torchother", B), brings("extra", B)
NEXT, THEIRS = brings("torchstack", B), brings("site", B)


def environment(turn):
    """Return what is there after a turn: the modules that are loaded, and the entries of the path."""
    loaded, *entries = turn
    return {"LOADEDMODULES": ":".join(names(loaded)), PATH: ":".join(entries)}


def held(modules, *turns, user="", stays=True):
    """Return the pairs of entries that may be in this order after the last turn."""
    moves = Moves(modules, stays)
    for before, after in zip(turns, turns[1:]):
        found = moves.hold(environment(before), environment(after), {PATH: user})
    return found[PATH]


def test_an_entry_that_a_plain_module_has_found_there_may_stay_where_the_one_of_ours_that_is_gone_had_put_it():
    assert held([OURS, PLAIN], ("torchother extra", A, B, C), ("extra", A, B, C)) == {(A, B), (B, C)}
    assert held([OURS, PLAIN], ("torchother extra", A, B, C), ("extra", B, C)) == {(B, C)}


BOTH = ("torchother extra", B, A)
NO_PAIR = {
    "the user's": ([OURS, PLAIN], BOTH, ("extra", B, A), {"user": B}),
    "with Lmod": ([OURS, PLAIN], BOTH, ("extra", B, A), {"stays": False}),
    "found by ours": ([OURS, NEXT], ("torchother torchstack", B, A), ("torchstack", B, A)),
    "found by ours, and brought by a plain one that comes instead": (
        [OURS, NEXT, PLAIN], ("torchother torchstack", B, A), ("extra", B, A)),
    "of ours again": ([OURS, PLAIN, NEXT], BOTH, ("extra", B, A), ("extra torchstack", B, A)),
    "put there by a plain one": ([THEIRS, PLAIN], ("site extra", B, A), ("extra", B, A)),
    "put there by a plain one before": ([OURS, THEIRS], ("site torchother", B, A), ("site", B, A)),
    "not there any more when the plain one came": (
        [OURS, THEIRS, PLAIN], ("site torchother", B, A), ("extra", B, A)),
    "the plain one is gone": ([OURS, PLAIN], BOTH, ("extra", B, A), ("", A), ("extra", B, A)),
    "a new neighbour": ([OURS, PLAIN, brings("torchstack", A)], BOTH, ("extra", B, A), ("extra torchstack", B, A)),
    "a neighbour that came again": ([OURS, PLAIN], BOTH, ("extra", B, A), ("extra", B), ("extra", B, A)),
}


@pytest.mark.parametrize("modules, turns", [(each[0], each[1:]) for each in NO_PAIR.values()], ids=NO_PAIR)
def test_no_other_entry_may_stay(modules, turns):
    *turns, last = turns
    more = last if isinstance(last, dict) else {}
    assert held(modules, *turns, *([] if more else [last]), **more) == set()


def displaced(modules, *turns, stays=True):
    """Return the entries that are where plain modules have put them which are not loaded after the last turn."""
    moves = Moves(modules, stays)
    for before, after in zip(turns, turns[1:]):
        former, now = names(before[0]), names(after[0])
        moves.add(environment(before), [name for name in now if name not in former])
        moves.leave(environment(after), [name for name in former if name not in now], now)
    return moves.of_others_than(now)[PATH]


LEFT = (("", A), ("site", B, A), ("", B, A))


def test_what_a_plain_module_that_is_gone_has_left_is_nobody_s_to_move():
    assert displaced([THEIRS], *LEFT) == {B}
    # With Lmod it goes with the module, unless it was there before.
    assert displaced([THEIRS], ("", A, B), ("site", B, A), ("", B, A), stays=False) == {B}


NOTHING_LEFT = {
    "it is ours again": (*LEFT, ("torchother", B, A)),
    "it went, and came again": (*LEFT, ("", A), ("", B, A)),
    "ours had brought it": (("", A), ("torchother", B, A), ("", B, A)),
}


@pytest.mark.parametrize("turns", NOTHING_LEFT.values(), ids=NOTHING_LEFT)
def test_no_other_entry_is_nobody_s(turns):
    assert displaced([THEIRS, OURS], *turns) == set()


def test_with_lmod_an_entry_of_a_plain_module_alone_goes_with_it():
    assert displaced([THEIRS], *LEFT, stays=False) == set()
    assert displaced([THEIRS], ("", A, B), ("site", B, A), stays=False) == set()


def judged(there, model, plain=None, displaced=(), still=(), strays=(), also=None):
    """Return what is wrong of LD_LIBRARY_PATH, or of ONE where a text has no slash; ``also`` is another model."""
    def as_environment(value):
        return {**dict.fromkeys([*VARIABLES, *PATHS]), PATH if "/" in (value or "") else "ONE": value}

    none = {path: set() for path in PATHS}
    models = [as_environment(model), *([as_environment(also)] if also else [])]
    return differences(
        models, as_environment(there), as_environment(model if plain is None else plain),
        {**none, PATH: set(displaced)}, {**none, PATH: set(still)}, {"ONE": set(strays)})


AB, BA = A + ":" + B, B + ":" + A
RIGHT = {
    "the model": ("ours", "ours", {"plain": "other"}),
    "a plain module's": ("other", "ours", {"plain": "other"}),
    "a stray": ("other", "ours", {"strays": ["other"]}),
    "the model's path": (AB, AB, {"plain": BA}),
    "a plain module's path": (BA, AB, {"plain": BA}),
    "a plain module's entry too many": (A + ":" + AB + ":" + C, AB, {"plain": AB + ":" + C}),
    "a plain module's entry too few": (A, AB, {"plain": A + ":" + C}),
    "a plain module's order beside an entry of its own": (BA, AB, {"plain": BA + ":" + C}),
    "another model's order": (BA + ":" + C, AB, {"plain": AB + ":" + C, "also": BA}),
    "moved by a plain module": (BA, AB, {"displaced": [A]}),
    "where a plain module leaves it": (BA, AB, {"still": [(B, A)]}),
    "written otherwise": (AB.replace("/a/", "/a//"), AB, {}),
}
WRONG = {
    "a value": ("other", "ours", {"plain": "third", "strays": ["fourth"]}),
    "a value that stays away": (None, "ours", {}),
    "an entry too many": (AB + ":" + C, AB, {}),
    "an entry too many, moved": (AB + ":" + C, AB, {"displaced": [C]}),
    "an entry too few": (A, AB, {}),
    "an entry too few, moved": (A, AB, {"displaced": [B], "still": [(B, A), (A, B)]}),
    "an order": (BA, AB, {}),
    "an order where another one is moved": (BA + ":" + C, AB + ":" + C, {"displaced": [C]}),
    "an order of two that are not neighbours": (
        B + ":" + C + ":" + A, A + ":" + C + ":" + B, {"still": [(B, C), (C, A)]}),
    "an order other than the one that stays": (BA, AB, {"still": [(A, B)]}),
    "an order that only two models together have": (
        C + ":" + BA, AB + ":" + C, {"also": BA + ":" + C}),
}


@pytest.mark.parametrize("there, model, more", RIGHT.values(), ids=RIGHT)
def test_what_is_as_it_should_be_or_as_plain_modules_leave_it_is_no_difference(there, model, more):
    assert judged(there, model, **more) == []


@pytest.mark.parametrize("there, model, more", WRONG.values(), ids=WRONG)
def test_anything_else_is_a_difference(there, model, more):
    assert len(judged(there, model, **more)) == 1


def test_a_command_is_judged_without_the_control_only_where_it_says_itself_what_is_loaded():
    family = [Module(name, "1", family, False, ()) for name, family in (("a", "f"), ("b", "f"), ("c", ""))]
    modules = [*family, family[2]._replace(version="2")]
    for command, now in (
            ("load a/1", "a/1 c/1"), ("swap a/1 b/1", "b/1"), ("switch a/1 b/1", "c/1 b/1"), ("unload a/1", "b/1"),
            ("purge", "")):
        assert is_plain(tuple(command.split()), modules, now.split())
    for command, now in (
            ("load a/1", "c/1"), ("load a/1", "a/1 b/1"), ("load c/1", "c/1 c/2"), ("swap a/1 b/1", "a/1 b/1"),
            ("swap a/1 b/1", ""), ("unload a/1", "a/1"), ("purge", "a/1"), ("restore mine", "a/1"),
            ("save mine", "a/1"), ("reset", "")):
        assert not is_plain(tuple(command.split()), modules, now.split())


def test_who_has_none_of_ours_gives_what_is_left_of_a_command():
    for command, left in (
            ("load x", ""), ("load y", "load y"), ("unload x", ""), ("unload y", "unload y"), ("swap x z", ""),
            ("swap x y", "load y"), ("switch y x", "unload y"), ("swap y w", "swap y w"), ("purge", "purge"),
            ("save mine", "save mine"), ("reset", "reset")):
        assert of_the_others(tuple(command.split()), {"x", "z"}, "y") == tuple(left.split())
    assert of_the_others(("reset",), {"x", "z"}, "x") == ("purge",)


def test_who_has_none_of_ours_unloads_what_goes_for_one_of_its_family():
    modules = [module(name)._replace(family=family) for name, family in (
        ("torchstack", "python"), ("torchother", "python"), ("torchfree", ""), ("site", "python"), ("extra", ""),
        ("other", "mpi"), ("conda", "python"))]
    now = names("extra torchother site other")

    def gone(command, now=now):
        return gone_for_ours(tuple(command.split()), modules, now)

    for command in ("load torchstack/1", "swap extra/1 torchstack/1", "switch torchother/1 torchstack/1"):
        assert gone(command) == ["site/1"]
    for command in ("load torchfree/1", "load conda/1", "swap torchstack/1 conda/1", "unload torchstack/1", "purge",
                    "save mine", "restore mine", "reset"):
        assert gone(command) == []
    assert gone("load torchstack/1", names("extra torchother other")) == []
