# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The project's modules among others: whatever is loaded, swapped and unloaded, what is there is what is loaded.

TORCHSTACK_MODULE_SEQUENCES says how many random sequences there are for each module system, and TORCHSTACK_MODULE_SEED
which world is the first one; 20 sequences are in one world. Many of them are run in parts, by as many processes as the
machine has cores, with -k in one module system: 100 of Lmod 8.7, from world 500 on, are

    TORCHSTACK_MODULE_SEED=500 TORCHSTACK_MODULE_SEQUENCES=100 pytest -k "any_commands and lmod-8.7" THIS_FILE

That needs pytest, ansible-core and the module system, which TORCHSTACK_LMOD or TORCHSTACK_MODULECMD may name.
"""

from __future__ import annotations

import os
import random

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.module_load import ask, loaded
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.module_system import EM, LMOD, is_bookkeeping
from support.module_runs import Runs, play
from support.module_worlds import Module, has_pushenv, random_world, write_world

SEQUENCES = int(os.environ.get("TORCHSTACK_MODULE_SEQUENCES", "40"))
IN_ONE_WORLD = 20
FIRST = int(os.environ.get("TORCHSTACK_MODULE_SEED", "0"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEQUENCES // IN_ONE_WORLD))
def test_s41_after_any_commands_the_environment_is_that_of_the_modules_that_are_loaded(system, tmp_path, seed):
    source = random.Random(seed)
    modules = random_world(source, has_pushenv(system))
    directories = write_world(tmp_path, modules, system)
    runs = Runs(system, tmp_path)
    for _number in range(IN_ONE_WORLD):
        problems = play(runs, modules, directories, source, source.randint(2, 6))
        assert not problems, "\n".join([*problems, *map(str, modules)])


CONDA = Module("conda", "1", "python", False, (
    ("setenv", "ONE", "conda's"), ("setenv", "TWO", "conda's"), ("prepend", "PATH", "/soft/nccl/include"),
    ("prepend", "LD_LIBRARY_PATH", "/soft/nccl/lib"), ("prepend", "LD_LIBRARY_PATH", "/soft/cuda/lib64")))
OURS = (
    ("setenv", "ONE", "ours"), ("unsetenv", "THREE", ""), ("prepend", "PATH", "/soft/ours/bin"),
    ("prepend", "LD_LIBRARY_PATH", "/soft/cuda/lib64"))
TORCHSTACK, TORCHOTHER = (Module(name, "1", "python", True, OURS) for name in ("torchstack", "torchother"))
USER = {"HOME": "/u", "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "LD_LIBRARY_PATH": "/u/lib", "THREE": "user's"}
LOADED = {
    **USER, "ONE": "ours", "PATH": "/soft/ours/bin:/usr/bin:/bin", "LD_LIBRARY_PATH": "/soft/cuda/lib64:/u/lib"}
del LOADED["THREE"]


@pytest.fixture()
def say(system, tmp_path):
    """Give module commands in a world, and return what is set after each, without the module system's own."""

    def run(modules, *commands):
        real, _control = write_world(tmp_path, modules, system)
        environment, found = {**USER, "MODULEPATH": real}, []
        for command in commands:
            answer = ask(system, environment, command.split(), 60, shell=False)
            assert answer.ok, answer.messages
            environment = answer.environment
            found.append({
                name: value for name, value in environment.items()
                if name != "MODULEPATH" and not name.startswith("__TORCHSTACK") and not is_bookkeeping(name)})
            assert loaded(environment) or not [name for name in environment if name.startswith("__TORCHSTACK")]
        return found

    return run


@pytest.mark.parametrize("other", [CONDA, TORCHOTHER], ids=["site's", "ours"])
def test_s02_a_module_takes_the_place_of_another_one_of_its_family_and_nothing_of_that_stays(system, say, other):
    over = "load torchstack/1" if system.kind == LMOD else "swap %s/1 torchstack/1" % other.name
    _before, both, after = say([other, TORCHSTACK], "load %s/1" % other.name, over, "unload torchstack/1")
    assert both == LOADED
    assert after == USER


def test_a_module_may_have_the_name_of_the_site_s_and_takes_the_place_of_its_versions(system, say):
    ours = TORCHSTACK._replace(name="conda", version="2", family="")
    theirs = CONDA._replace(family="")
    over = "load conda/2" if system.kind == LMOD else "switch conda/1 conda/2"
    _before, both, after, theirs_again = say([theirs, ours], "load conda/1", over, "unload conda/2", "load conda/1")
    assert both == LOADED
    assert after == USER
    assert theirs_again["ONE"] == "conda's"


def test_a_release_under_the_site_s_name_and_under_our_own_take_turns_in_one_tree(system, say):
    alias = TORCHSTACK._replace(name="conda")

    def over(first, second):
        return "load %s/1" % second if system.kind == LMOD else "swap %s/1 %s/1" % (first, second)

    found = say([alias, TORCHSTACK], "load conda/1", over("conda", "torchstack"), over("torchstack", "conda"),
                "swap conda/1 torchstack/1", "unload torchstack/1", "load conda/1", "purge")
    assert found[1:4] == [found[0]] * 3 and found[0] == LOADED
    assert found[4] == found[6] == USER and found[5] == LOADED


def test_environment_modules_say_which_module_of_the_family_is_loaded_and_what_to_type(system, tmp_path):
    if system.kind != EM or not has_pushenv(system):
        pytest.skip("Lmod swaps modules of a family, and version 4 knows no family")
    real, _control = write_world(tmp_path, [CONDA, TORCHSTACK], system)
    environment = ask(system, {**USER, "MODULEPATH": real}, ("load", "conda/1"), 60, shell=False).environment
    answer = ask(system, environment, ("load", "torchstack/1"), 60, shell=False)
    assert not answer.ok and "module switch conda torchstack/1" in answer.messages
    switched = ask(system, environment, ("switch", "conda", "torchstack/1"), 60, shell=False)
    assert switched.ok and "Of the family" not in switched.messages


def test_a_collection_and_a_reset_bring_back_what_was_loaded(system, say, tmp_path, monkeypatch):
    monkeypatch.setitem(USER, "HOME", str(tmp_path))
    site = Module("site", "1", "", False, (("setenv", "TWO", "site's"), ("prepend", "PATH", "/soft/site/bin")))
    found = say(
        [site, TORCHSTACK, CONDA], "load site/1", "load torchstack/1", "save mine", "purge", "load conda/1", "purge",
        "restore mine", "purge")
    assert found[6] == found[1] and found[1]["ONE"] == "ours" and found[1]["TWO"] == "site's"
    assert found[7] == {name: value for name, value in USER.items() if name != "TWO"}


def test_a_value_that_the_user_has_changed_since_is_left_to_the_user(system, say, tmp_path):
    real, _control = write_world(tmp_path, [TORCHSTACK], system)
    environment = ask(system, {**USER, "MODULEPATH": real}, ("load", "torchstack/1"), 60, shell=False).environment
    environment["ONE"] = "mine"
    after = ask(system, environment, ("unload", "torchstack/1"), 60, shell=False).environment
    assert after["ONE"] == "mine" and after["THREE"] == "user's"


def test_what_a_module_loaded_later_unsets_too_does_not_come_back(system, say):
    ours = Module("torchstack", "1", "", True, (("unsetenv", "THREE", ""),))
    site = Module("site", "1", "", False, (("unsetenv", "THREE", ""), ("prepend", "PATH", "/soft/site/bin")))
    found = say([ours, site], "load torchstack/1", "load site/1", "unload torchstack/1")
    assert [("THREE" in each) for each in found] == [False, False, False]
    found = say([ours, site], "load site/1", "unload site/1", "load torchstack/1", "unload torchstack/1")
    assert found[3] == found[1]


def test_what_a_module_that_is_gone_has_unset_does_not_come_back_over_one_that_is_loaded_and_sets_it(system, say):
    ours = Module("torchstack", "1", "", True, (("unsetenv", "THREE", ""),))
    sets, unsets = (Module(name, "1", "", False, ((word, "THREE", value), ("prepend", "PATH", "/soft/%s/bin" % name)))
                    for name, word, value in (("conda", "setenv", "conda's"), ("site", "unsetenv", "")))
    found = say([ours, sets, unsets], "load torchstack/1", "load conda/1", "load site/1", "unload site/1",
                "unload torchstack/1")
    assert found[4].get("THREE") == found[3].get("THREE")


def test_an_entry_goes_back_where_most_of_its_neighbours_agree_though_a_plain_module_has_moved_one(system, say):
    if system.kind != EM:
        pytest.skip("a plain module of Lmod moves an entry that is there already")
    name = "LD_LIBRARY_PATH"
    ours = Module(
        "torchstack", "1", "", True, (("prepend", name, "/soft/a/bin"), ("prepend", name, "/soft/cuda/lib64")))
    conda = Module("conda", "1", "", False, (("append", name, "/soft/c/bin"), ("append", name, "/soft/a/bin")))
    site = Module("site", "1", "", False, (("append", name, "/soft/a/bin"), ("prepend", name, "/soft/c/bin")))
    found = say(
        [ours, conda, site], "load conda/1", "load torchstack/1", "switch conda/1 site/1", "unload torchstack/1")
    assert found[3][name].split(":") == ["/soft/c/bin", "/u/lib", "/soft/a/bin"]


@pytest.mark.parametrize(("users", "front", "wanted"), [
    ("a:cuda:nccl:b:c:d", ("b", "nccl"), "b:nccl:a:cuda:c:d"), ("a:cuda:nccl", ("nccl",), "nccl:a:cuda")])
def test_an_entry_goes_back_though_the_module_that_comes_instead_has_moved_what_came_after_it(
        system, say, monkeypatch, users, front, wanted):
    if system.kind == EM:
        pytest.skip("a plain module of Environment Modules leaves an entry where it is")
    name = "LD_LIBRARY_PATH"
    monkeypatch.setitem(USER, name, ":".join("/soft/" + entry for entry in users.split(":")))
    ours = TORCHSTACK._replace(actions=(("append", name, "/soft/cuda"),))
    conda = CONDA._replace(actions=tuple(("prepend", name, "/soft/" + entry) for entry in front))
    found = say([ours, conda], "load torchstack/1", "load conda/1")
    assert found[1][name] == ":".join("/soft/" + entry for entry in wanted.split(":"))


@pytest.mark.parametrize("words", [("prepend", "append"), ("append", "prepend")], ids=" and ".join)
@pytest.mark.parametrize("site", [(), ("load site/1",)], ids=["the user's", "a module's"])
def test_an_entry_that_two_of_ours_have_moved_is_where_it_was_when_both_are_gone(
        system, say, monkeypatch, site, words):
    name, cuda = "LD_LIBRARY_PATH", "/soft/cuda/lib64"
    if not site:
        monkeypatch.setitem(USER, name, "/u/lib:%s:/u/opt" % cuda)
    first, second = (Module(each, "1", "", True, ((word, name, cuda),))
                     for each, word in zip(("torchother", "torchstack"), words))
    plain = Module("site", "1", "", False, (("prepend", name, "/soft/a/lib"), ("prepend", name, cuda)))
    found = say([first, second, plain], *site, "load torchother/1", "load torchstack/1", "unload torchother/1",
                "unload torchstack/1")
    assert found[-1][name] == ("/soft/a/lib:%s:/u/lib" % cuda if site else USER[name])


def test_an_entry_goes_back_though_the_module_that_comes_instead_has_moved_its_neighbour(system, say, monkeypatch):
    name = "LD_LIBRARY_PATH"
    monkeypatch.setitem(USER, name, "/u/lib:/soft/cuda/lib64:/u/opt")
    ours = TORCHSTACK._replace(actions=(("prepend", name, "/soft/b/bin"), ("prepend", name, "/soft/cuda/lib64")))
    other = TORCHOTHER._replace(actions=(("append", name, "/soft/b/bin"),))
    over = "load torchother/1" if system.kind == LMOD else "swap torchstack/1 torchother/1"
    found = say([ours, other], "load torchstack/1", over, "unload torchother/1")
    assert found[1][name] == USER[name] + ":/soft/b/bin"
    assert found[2] == USER


def test_a_value_of_a_module_that_is_gone_does_not_come_back(system, say):
    ours, site = Module("torchstack", "1", "", True, OURS), CONDA._replace(name="site", family="")
    same = Module("same", "1", "", False, (("setenv", "ONE", "ours"),))
    found = say(
        [ours, site, same], "load site/1", "load torchstack/1", "unload site/1", "load same/1", "unload torchstack/1")
    assert found[4].get("ONE") != "conda's" and "TWO" not in found[4]


@pytest.mark.parametrize("value", ["another", "ours"])
def test_what_a_plain_module_has_set_between_two_of_ours_comes_back_when_both_are_gone(system, say, value):
    first, second = (Module(name, "1", "", True, (("setenv", "TWO", each),)) for name, each in (
        ("torchother", "ours"), ("torchstack", value)))
    site = Module("site", "1", "", False, (("setenv", "TWO", "site's"),))
    found = say([first, second, site], "load torchother/1", "load site/1", "load torchstack/1", "unload torchother/1",
                "unload torchstack/1")
    assert [each.get("TWO") for each in found[2:]] == [value, value, "site's"]


def test_what_a_module_has_unset_between_two_of_ours_does_not_come_back_while_it_is_loaded(system, say):
    first, second = (Module(name, "1", "", True, ((word, "THREE", value),)) for name, word, value in (
        ("torchother", "unsetenv", ""), ("torchstack", "setenv", "ours")))
    site = Module("site", "1", "", False, (("unsetenv", "THREE", ""), ("prepend", "PATH", "/soft/site/bin")))
    found = say([first, second, site], "load torchother/1", "load site/1", "load torchstack/1", "unload torchother/1",
                "unload torchstack/1")
    assert found[3]["THREE"] == "ours" and "THREE" not in found[4]


def test_a_value_that_others_bring_back_without_ours_they_bring_back_beside_ours_too(system, say):
    if system.kind == EM:
        pytest.skip("Environment Modules refuse a second version of a module")
    ours = Module("torchstack", "1", "", True, (("setenv", "TWO", "ours"),))
    pushes = Module("extra", "1", "", False, (("pushenv", "TWO", "pushed"),))
    first, second = (Module("site", version, "", False, ((("setenv", "TWO", "site's"),) if version == "2" else ()))
                     for version in ("1", "2"))
    commands = ("load site/2", "load extra/1", "load site/1", "purge")
    alone = say([pushes, first, second], *commands)[-1]
    beside = say([ours, pushes, first, second], "load torchstack/1", *commands)[-1]
    assert alone == beside == {**USER, "TWO": "site's"}


def test_a_pushenv_brings_back_what_was_there_as_it_does_without_ours_though_its_module_went_for_ours(system, say):
    if system.kind == EM:
        pytest.skip("Environment Modules load nothing over a module of the same family")
    site = Module("site", "1", "python", False, (("setenv", "TWO", "site's"),))
    pushes = Module("extra", "1", "", False, (("pushenv", "TWO", "pushed"),))
    theirs = Module("conda", "1", "python", False, (("setenv", "TWO", "conda's"),))
    ours = Module("torchstack", "1", "python", True, (("setenv", "TWO", "ours"),))
    alone, without, beside = (
        say([site, pushes, theirs, ours], "load site/1", "load extra/1", command, "purge")[-1]
        for command in ("load conda/1", "unload site/1", "load torchstack/1"))
    assert alone == without == beside == {**USER, "TWO": "site's"}


def test_what_comes_instead_of_ours_is_not_what_a_push_before_it_had_found(system, say):
    if system.kind == EM:
        pytest.skip("Environment Modules load nothing over a module of the same family")
    ours, other = (Module(name, "1", "python", True, (("setenv", "TWO", value),))
                   for name, value in (("torchstack", "ours"), ("torchother", "other's")))
    pushes = Module("extra", "1", "", False, (("pushenv", "TWO", "ours"),))
    found = say([ours, other, pushes], "load torchstack/1", "load extra/1", "load torchother/1", "purge")
    assert found[-1] == USER


def test_what_another_module_has_pushed_over_ours_and_a_third_one_it_takes_back_after_ours_is_gone(system, say):
    if not has_pushenv(system):
        pytest.skip("this version has no pushenv")
    ours, site = Module("torchstack", "1", "", True, OURS), CONDA._replace(name="site", family="")
    pushes = Module("extra", "1", "", False, (("pushenv", "ONE", "pushed"),))
    found = say([ours, site, pushes], "load torchstack/1", "load site/1", "load extra/1", "unload torchstack/1",
                "unload extra/1")
    assert found[3]["ONE"] == "pushed" and found[4]["ONE"] == "conda's"


@pytest.mark.parametrize("pushed", ["other", "ours"])
@pytest.mark.parametrize("commands", [
    ("purge", "load extra/1", "purge"), ("unload extra/1", "unload torchstack/1", "load extra/1", "unload extra/1"),
    ("unload torchstack/1", "unload extra/1"), ("unload extra/1", "load extra/1", "purge")], ids=" ".join)
def test_what_a_push_has_kept_of_ours_does_not_come_back_when_both_are_gone(system, say, pushed, commands):
    if not has_pushenv(system):
        pytest.skip("this version has no pushenv")
    ours = Module("torchstack", "1", "", True, (("setenv", "TWO", "ours"),))
    pushes = Module("extra", "1", "", False, (("pushenv", "TWO", pushed),))
    assert say([ours, pushes], "load torchstack/1", "load extra/1", *commands)[-1] == USER


def test_what_is_pushed_over_ours_once_more_leaves_ours_there_when_it_goes(system, say):
    if not has_pushenv(system):
        pytest.skip("this version has no pushenv")
    ours = Module("torchstack", "1", "", True, (("setenv", "TWO", "ours"),))
    pushes = Module("extra", "1", "", False, (("pushenv", "TWO", "pushed"),))
    found = say([ours, pushes], "load torchstack/1", "load extra/1", "purge", "load torchstack/1", "load extra/1",
                "unload extra/1")
    assert found[2] == USER and found[5] == found[0]


def test_what_another_module_has_pushed_stays_as_long_as_that_is_loaded_though_ours_had_set_the_same(
        system, say, monkeypatch):
    if not has_pushenv(system):
        pytest.skip("this version has no pushenv")
    monkeypatch.setitem(USER, "TWO", "user's")
    ours = Module("torchstack", "1", "", True, (("setenv", "TWO", "same"),))
    pushes = Module("extra", "1", "", False, (("pushenv", "TWO", "same"),))
    found = say([ours, pushes], "load torchstack/1", "load extra/1", "unload torchstack/1", "unload extra/1")
    assert found[2]["TWO"] == "same" and found[3] == USER


def test_what_is_pushed_stays_though_a_third_module_came_between_it_and_ours_of_the_same_value(system, say):
    if not has_pushenv(system):
        pytest.skip("this version has no pushenv")
    ours = Module("torchstack", "1", "", True, (("setenv", "THREE", "same"),))
    site = Module("site", "1", "", False, (("setenv", "THREE", "site's"),))
    pushes = Module("extra", "1", "", False, (("pushenv", "THREE", "same"),))
    found = say([ours, site, pushes], "load torchstack/1", "load site/1", "load extra/1", "unload torchstack/1",
                "unload extra/1")
    assert found[3]["THREE"] == "same" and found[4]["THREE"] == "site's"


def test_an_empty_value_of_another_module_stays_where_ours_had_none(system, say):
    ours = Module("torchstack", "1", "", True, (("unsetenv", "THREE", ""),))
    site = Module("site", "1", "", False, (("setenv", "THREE", ""), ("prepend", "PATH", "/soft/site/bin")))
    found = say([ours, site], "load torchstack/1", "load site/1", "unload torchstack/1")
    assert found[2].get("THREE") == found[1].get("THREE")
    assert say([ours, site], "load torchstack/1", "load site/1", "purge")[-1] == USER


def test_what_a_push_has_kept_of_ours_is_gone_also_where_its_module_goes_in_the_same_command(system, say):
    if system.kind == EM:
        pytest.skip("a setenv of Environment Modules takes away what a pushenv has kept")
    first, second = (Module(name, "1", "", True, (("setenv", "TWO", "same"),)) for name in ("torchother", "torchstack"))
    pushes = Module("extra", "1", "", False, (("pushenv", "TWO", "same"),))
    found = say([first, second, pushes], "load torchother/1", "load extra/1", "load torchstack/1",
                "unload torchother/1", "purge")
    assert found[-1] == USER


@pytest.mark.parametrize("later", [(), ("load conda/1",)], ids=["the last one", "with another one after it"])
def test_what_a_push_before_ours_has_found_is_not_of_ours_though_it_is_the_very_same(system, say, later):
    if system.kind == EM:
        pytest.skip("a setenv of Environment Modules takes away what a pushenv has kept")
    site, last = (Module(name, "1", "", False, (("setenv", "TWO", value),)) for name, value in (
        ("site", "same"), ("conda", "last")))
    pushes = Module("extra", "1", "", False, (("pushenv", "TWO", "pushed"),))
    ours = Module("torchstack", "1", "", True, (("setenv", "TWO", "same"),))
    found = say([site, last, pushes, ours], "load site/1", "load extra/1", "load torchstack/1", *later,
                "unload torchstack/1", "unload extra/1")
    assert found[-1]["TWO"] == "same"


def test_an_empty_value_of_the_user_s_keeps_no_other_module_from_unloading(system, say, monkeypatch):
    if not has_pushenv(system):
        pytest.skip("this version has no pushenv")
    monkeypatch.setitem(USER, "THREE", "")
    ours = Module("torchstack", "1", "", True, (("setenv", "THREE", "ours"),))
    other = Module("extra", "1", "", False, (("pushenv", "THREE", "pushed"), ("prepend", "PATH", "/soft/extra/bin")))
    found = say([ours, other], "load torchstack/1", "load extra/1", "unload torchstack/1", "unload extra/1")
    assert found[3]["PATH"] == USER["PATH"] and not found[3].get("THREE")


def test_an_entry_that_another_module_has_moved_before_one_of_ours_stays_there(system, say):
    if system.kind == EM:
        pytest.skip("a plain module of Environment Modules leaves an entry where it is")
    ours = Module("torchstack", "1", "", True, (("prepend", "PATH", "/soft/a/bin"), ("prepend", "PATH", "/soft/b/bin")))
    before, extra, site = (Module(name, "1", "", False, (("prepend", "PATH", "/soft/%s/bin" % entry),))
                           for name, entry in (("before", "b"), ("extra", "a"), ("site", "b")))
    found = say([ours, before, extra, site], "load before/1", "load torchstack/1", "load extra/1", "load site/1",
                "unload torchstack/1")
    assert found[4]["PATH"] == "/soft/b/bin:/soft/a/bin:/usr/bin:/bin"


def test_an_entry_that_a_later_module_has_moved_before_one_of_ours_that_goes_stays_there(system, say):
    if system.kind == EM:
        pytest.skip("a plain module of Environment Modules leaves an entry where it is")
    ours = Module("torchstack", "1", "", True, (("prepend", "PATH", "/soft/a/bin"), ("prepend", "PATH", "/soft/b/bin")))
    # Not as the entry is written by then, as where a site's module makes it of parts.
    first, second = (Module("conda", version, "", False, ((word, "PATH", "/soft//b/bin"),))
                     for version, word in (("1", "append"), ("2", "prepend")))
    found = say([ours, first, second], "load conda/1", "load torchstack/1", "load conda/2", "unload torchstack/1")
    assert found[2]["PATH"] == "/soft/b/bin:/soft/a/bin:/usr/bin:/bin"
    assert found[3]["PATH"] == "/soft/b/bin:/usr/bin:/bin"


def test_an_entry_stays_where_a_later_module_wants_it_as_one_of_ours_did(system, say):
    if system.kind == EM:
        pytest.skip("a plain module of Environment Modules leaves an entry where it is")
    ours = Module("torchstack", "1", "", True, (("prepend", "PATH", "/soft/b/bin"),))
    last, first = (Module("site", version, "", False, ((word, "PATH", "/soft/b/bin"),))
                   for version, word in (("1", "append"), ("2", "prepend")))
    found = say([ours, last, first], "load site/1", "load torchstack/1", "load site/2", "unload torchstack/1")
    assert found[-1] == {**USER, "PATH": "/soft/b/bin:/usr/bin:/bin"}


def test_an_entry_of_ours_that_another_module_has_moved_away_tells_nothing_of_the_one_beside_it(
        system, say, monkeypatch):
    monkeypatch.setitem(USER, "PATH", "/usr/bin:/soft/b/bin:/bin")
    ours = Module("torchstack", "1", "", True, (("prepend", "PATH", "/soft/a/bin"), ("prepend", "PATH", "/soft/b/bin")))
    site = Module("site", "1", "", False, (("append", "PATH", "/soft/a/bin"),))
    found = say([ours, site], "load torchstack/1", "load site/1", "unload site/1", "unload torchstack/1")
    assert found[-1] == USER


def test_an_entry_of_ours_that_another_module_has_moved_away_keeps_none_at_the_other_end_from_its_place(
        system, say, monkeypatch):
    if system.kind == EM:
        pytest.skip("a plain module of Environment Modules leaves an entry where it is")
    monkeypatch.setitem(USER, "PATH", "/soft/a/bin:/soft/b/bin:/usr/bin")
    ours = Module("torchstack", "1", "", True, (("prepend", "PATH", "/soft/a/bin"), ("append", "PATH", "/soft/b/bin")))
    site = Module("site", "1", "", False, (("append", "PATH", "/soft/a/bin"),))
    found = say([ours, site], "load torchstack/1", "load site/1", "unload torchstack/1")
    assert found[2]["PATH"] == "/soft/b/bin:/usr/bin:/soft/a/bin"


def test_an_entry_that_ours_has_not_moved_stays_though_what_was_before_it_has_come_after_it_since(
        system, say, monkeypatch):
    monkeypatch.setitem(USER, "PATH", "/usr/bin:/bin:/soft/b/bin")
    first, second = (Module(name, "1", "", True, ((word, "PATH", "/soft/%s/bin" % entry),)) for name, word, entry in (
        ("torchother", "prepend", "a"), ("torchstack", "append", "b")))
    conda, site = (Module(name, "1", "", False, (("append", "PATH", "/soft/%s/bin" % entry),)) for name, entry in (
        ("conda", "c"), ("site", "a")))
    found = say([first, second, conda, site], "load torchother/1", "load torchstack/1", "unload torchother/1",
                "load conda/1", "load site/1", "unload torchstack/1")
    assert found[-1]["PATH"] == "/usr/bin:/bin:/soft/b/bin:/soft/c/bin:/soft/a/bin"


def test_an_entry_does_not_go_back_beside_one_that_a_later_module_has_moved(system, say, monkeypatch):
    monkeypatch.setitem(USER, "PATH", "/usr/bin:/bin:/soft/b/bin:/soft/a/bin")
    ours = Module("torchstack", "1", "", True, (("prepend", "PATH", "/soft/b/bin"),))
    site = Module("site", "1", "", False, (("append", "PATH", "/soft/c/bin"), ("append", "PATH", "/soft/a/bin")))
    found = say([ours, site], "load torchstack/1", "load site/1", "unload torchstack/1")
    # Environment Modules leave an entry that is there already where it is.
    ends = "/soft/c/bin:/soft/a/bin" if system.kind == LMOD else "/soft/a/bin:/soft/c/bin"
    assert found[-1]["PATH"] == "/usr/bin:/bin:/soft/b/bin:" + ends


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "a plain one"])
def test_an_entry_does_not_go_back_beside_one_that_has_gone_and_come_with_another_module_since(
        system, say, monkeypatch, ours):
    monkeypatch.setitem(USER, "PATH", "/usr/bin:/bin:/soft/b/bin")
    other = Module("torchother", "1", "", ours, (("append", "PATH", "/soft/nccl/lib"),))
    stack = Module("torchstack", "1", "", True, (("prepend", "PATH", "/soft/b/bin"),))
    site = Module("site", "1", "", False, (("append", "PATH", "/soft/c/bin"), ("append", "PATH", "/soft/nccl/lib")))
    found = say([other, stack, site], "load torchother/1", "load torchstack/1", "unload torchother/1", "load site/1",
                "unload torchstack/1")
    assert found[-1]["PATH"] == "/usr/bin:/bin:/soft/b/bin:/soft/c/bin:/soft/nccl/lib"


def test_an_entry_stays_where_it_is_though_the_one_that_was_beside_it_goes_in_front_with_the_next_of_ours(
        system, say, monkeypatch):
    name, lib, bins = "LD_LIBRARY_PATH", "/soft/nccl/lib", "/soft/b/bin"
    monkeypatch.delitem(USER, name)
    conda = Module("conda", "1", "", False, (("append", name, lib), ("append", name, bins)))
    first, second = (Module(*each[:1], "1", "python", True, (each[1:],)) for each in (
        ("torchother", "append", name, lib), ("torchstack", "prepend", name, bins)))
    site = Module("site", "1", "", False, (("prepend", name, "/soft/c/bin"), ("append", name, bins)))
    over = "load torchstack/1" if system.kind == LMOD else "swap torchother/1 torchstack/1"
    found = say([conda, first, site, second], "load conda/1", "load torchother/1", "load site/1", over)
    assert found[-1][name] == ":".join([bins, "/soft/c/bin", lib])


def test_an_entry_goes_back_beside_one_though_a_later_module_has_another_one_that_ends_like_it(
        system, say, monkeypatch):
    monkeypatch.setitem(USER, "PATH", "/usr/bin:/bin:/soft/b/bin")
    monkeypatch.setitem(USER, "OF_THE_USER", "/home/u/.local")
    first, second = (Module(name, "1", "", True, ((word, "PATH", entry),)) for name, word, entry in (
        ("torchother", "prepend", "/soft/b/bin"), ("torchstack", "append", "/home/u/.local/bin")))
    found = say([first, second], "load torchother/1", "load torchstack/1", "unload torchother/1")
    assert found[-1]["PATH"] == USER["PATH"] + ":/home/u/.local/bin"


def test_an_entry_goes_back_though_the_next_one_of_ours_has_put_another_one_beyond_it(system, say, monkeypatch):
    monkeypatch.setitem(USER, "PATH", "/usr/bin:/soft/b/bin:/bin")
    first, second = (Module(name, "1", "", True, (("append", "PATH", "/soft/%s/bin" % entry),)) for name, entry in (
        ("torchother", "c"), ("torchstack", "b")))
    site = Module("site", "1", "", False, (("prepend", "PATH", "/soft/c/bin"),))
    found = say([first, second, site], "load site/1", "load torchother/1", "load torchstack/1", "unload torchother/1",
                "unload torchstack/1")
    assert found[3]["PATH"] == "/soft/c/bin:/usr/bin:/bin:/soft/b/bin"
    assert found[4]["PATH"] == "/soft/c/bin:" + USER["PATH"]


def test_an_entry_that_ours_has_not_moved_stays_where_all_that_was_before_it_is_elsewhere(system, say, monkeypatch):
    name = "LD_LIBRARY_PATH"
    monkeypatch.delitem(USER, name)
    conda = Module("conda", "1", "", False, (("prepend", name, "/soft/cuda"), ("append", name, "/soft/b")))
    first = Module("torchother", "1", "", True, (("append", name, "/soft/a"), ("append", name, "/soft/b")))
    site = Module("site", "1", "", False, (("prepend", name, "/soft/a"),))
    second = Module("torchstack", "1", "", True, (("prepend", name, "/soft/cuda"),))
    found = say([conda, first, site, second], "load conda/1", "load torchother/1", "load site/1", "load torchstack/1",
                "unload torchother/1")
    assert found[-1][name] == "/soft/cuda:/soft/a:/soft/b"


def test_an_entry_goes_back_in_what_each_later_one_of_ours_has_found(system, say, monkeypatch):
    monkeypatch.setitem(USER, "PATH", "/usr/bin:/bin:/soft/b/bin")
    first, second, third = (
        Module(name, "1", "", True, ((word, "PATH", "/soft/%s/bin" % entry),)) for name, word, entry in (
            ("torchother", "prepend", "b"), ("torchextra", "prepend", "a"), ("torchstack", "append", "b")))
    found = say([first, second, third], "load torchother/1", "load torchextra/1", "load torchstack/1",
                "unload torchother/1", "unload torchstack/1", "unload torchextra/1")
    assert found[-2]["PATH"] == "/soft/a/bin:" + USER["PATH"] and found[-1] == USER


def test_an_entry_that_a_plain_module_has_found_there_stays_where_one_of_ours_has_put_it(system, say):
    if system.kind != EM:
        pytest.skip("Lmod moves an entry that is there already to where a plain module wants it")
    first, second = (
        Module(name, "1", "", True, tuple(("prepend", "PATH", "/soft/%s/bin" % entry) for entry in entries))
        for name, entries in (("torchother", "b"), ("torchstack", "a")))
    extra = Module("extra", "1", "", False, (("prepend", "PATH", "/soft/b/bin"),))
    found = say([first, second, extra], "load torchother/1", "load torchstack/1", "load extra/1", "unload torchother/1",
                "unload torchstack/1", "unload extra/1")
    assert found[2]["PATH"] == found[3]["PATH"] == "/soft/a/bin:/soft/b/bin:/usr/bin:/bin"
    assert found[4]["PATH"] == "/soft/b/bin:/usr/bin:/bin" and found[5] == USER


def test_a_value_comes_back_though_another_module_has_set_the_same_as_ours(system, say):
    ours = Module("torchstack", "1", "", True, (("setenv", "THREE", "same"),))
    extra = Module("extra", "1", "", False, (("setenv", "THREE", "same"),))
    found = say([ours, extra], "load torchstack/1", "load extra/1", "unload torchstack/1")
    assert found[1]["THREE"] == "same" and found[2]["THREE"] == USER["THREE"]


def test_what_another_module_has_pushed_away_of_ours_does_not_come_back_when_ours_is_gone(system, say):
    if not has_pushenv(system):
        pytest.skip("this version has no pushenv")
    ours = Module("torchstack", "1", "", True, (("setenv", "THREE", "ours"), ("setenv", "TWO", "ours")))
    other = Module("extra", "1", "", False, (("pushenv", "THREE", "pushed"), ("pushenv", "TWO", "pushed")))
    found = say([ours, other], "load torchstack/1", "load extra/1", "unload torchstack/1", "unload extra/1")
    assert (found[2]["THREE"], found[2]["TWO"]) == ("pushed", "pushed")
    assert "ours" not in (found[3].get("THREE"), found[3].get("TWO"))
    if system.kind == LMOD:
        assert found[3] == USER


def test_a_module_that_a_restore_has_taken_away_leaves_the_next_one_nothing_to_stumble_over(
        system, say, tmp_path, monkeypatch):
    monkeypatch.setitem(USER, "HOME", str(tmp_path))
    conda = CONDA._replace(actions=(("unsetenv", "ONE", ""),))
    ours = TORCHSTACK._replace(actions=(("setenv", "ONE", "ours"),))
    found = say([conda, ours], "load conda/1", "save mine", "swap conda/1 torchstack/1", "restore mine",
                "swap conda/1 torchstack/1", "unload torchstack/1")
    assert found[4]["ONE"] == "ours"
    assert found[5] == USER


@pytest.mark.parametrize("gone", [TORCHSTACK, TORCHOTHER], ids=["itself", "another one"])
def test_what_a_module_has_kept_that_is_gone_without_its_unload_is_of_no_use_to_a_later_one(
        system, say, tmp_path, monkeypatch, gone):
    real, _control = write_world(tmp_path, [gone], system)
    former = {**USER, "LD_LIBRARY_PATH": "/soft/cuda/lib64:/u/lib", "MODULEPATH": real}
    left = ask(system, former, ("load", gone.full_name), 60, shell=False).environment
    before = dict(USER)
    for name in [name for name in left if name.startswith("__TORCHSTACK")]:
        monkeypatch.setitem(USER, name, left[name])
    found = say([TORCHSTACK], "load torchstack/1", "unload torchstack/1")
    assert found == [LOADED, before]


def test_the_order_of_a_path_that_is_unset_by_now_is_of_no_use_to_a_later_load(system, say, tmp_path, monkeypatch):
    name, ours = "LD_LIBRARY_PATH", TORCHSTACK._replace(actions=(("prepend", "LD_LIBRARY_PATH", "/soft/cuda/lib64"),))
    real, _control = write_world(tmp_path, [ours], system)
    former = {**USER, name: "/soft/c/lib:/soft/cuda/lib64", "MODULEPATH": real}
    left = ask(system, former, ("load", ours.full_name), 60, shell=False).environment
    before = {key: value for key, value in USER.items() if key != name}
    monkeypatch.delitem(USER, name)
    for kept in [kept for kept in left if kept.startswith("__TORCHSTACK")]:
        monkeypatch.setitem(USER, kept, left[kept])
    # Lmod reads it so where a module makes it of parts.
    cuda = "/soft/cuda/lib64" if system.kind == EM else "/soft//cuda/lib64"
    site = Module("site", "1", "", False, (("append", name, cuda), ("append", name, "/soft/c/lib")))
    found = say([ours, site], "load torchstack/1", "load site/1", "unload torchstack/1", "unload site/1")
    assert found[1][name] == found[2][name] == "/soft/cuda/lib64:/soft/c/lib"
    assert found[3] == before
