# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A rollout moves the default once for a release, and against no decision; and says what users load."""

from __future__ import annotations

import json
import os
import random

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import publication as modulefile_publication
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import publication_changes, publication_first
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.publication_changes import DEFAULT, carry_out
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.publication_facts import read_facts
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.layout import (
    MAKER,
    SYNTAXES,
    default_path,
    default_text,
    digest,
    relative_path,
)

NAME = "torchstack"
TO_MOVE = " To move it: playbooks/publish.yml -e torchstack_release=%s -e publish_to=default."


@pytest.fixture(autouse=True)
def no_wait_for_a_disk(monkeypatch):
    """Flushes are shown where the power is cut, in tests/modules/test_modulefile_publish_faults.py."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A clock that goes on by a minute at every look, and somebody who works by it."""
    minutes = iter(range(10_000))
    monkeypatch.setattr(publication_changes, "now", lambda: at(next(minutes)))
    monkeypatch.setattr(publication_changes, "actor", lambda: "ann")
    return lambda: at(next(minutes))


def at(minute):
    return "2026-11-%02dT%02d:%02d:00Z" % (1 + minute // 1440, minute // 60 % 24, minute % 60)


def put(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)


def release(root, version, frozen_at):
    """A release that was verified, frozen and accepted."""
    top, files = os.path.join(str(root), ".torchstack", version), {}
    for syntax in SYNTAXES:
        text = "%s %s %s\n" % (MAKER, syntax, version)
        put(os.path.join(top, relative_path(syntax, NAME, version)), text)
        files[syntax] = {"sha256": digest(text.encode())}
    record = {"name": NAME, "version": version, "passed": True, "files": files, "checked": []}
    records = {"modulefile": record, "acceptance": {"passed": True}, "frozen": {"frozen_at": frozen_at}}
    for name, content in records.items():
        put(os.path.join(top, name + ".json"), json.dumps(content))


def change(root, version, stop=None, **wish):
    """Plan and do, as the module does; ``stop`` is after how many actions it is killed."""
    wish = modulefile_publication.Wish(**{"visible": True, **wish})
    actions = modulefile_publication.make_plan(read_facts(str(root), version), wish)
    carry_out(str(root), version, actions[:stop], {
        "undo": wish.state == "rolled_back",
        "first": wish.first_only and any(action.action == DEFAULT for action in actions),
    })
    return actions


def roll_out(root, version, stop=None):
    """What a rollout of a site does that makes releases the default."""
    return change(root, version, stop, default=True, first_only=True)


def roll_back(root, version):
    return change(root, version, state="rolled_back", visible=False)


def defaults(root, version):
    return set(read_facts(str(root), version).defaults.values())


def said(root, version, default=True, check_mode=False):
    """What a rollout says that has nothing to do any more."""
    facts = read_facts(str(root), version)
    return publication_first.users_load(
        modulefile_publication.candidate(facts), facts.defaults, modulefile_publication.listed(facts), default, True,
        check_mode)


def test_the_first_publication_makes_each_newer_release_the_default_once(tmp_path, clock):
    for version in ("2026-11-20", "2026-11-21"):
        release(tmp_path, version, clock())
        assert len(roll_out(tmp_path, version)) == 4
        assert defaults(tmp_path, version) == {version}
        assert said(tmp_path, version) == ["Users who load torchstack get %s, unchanged: it is the default." % version]
    for version in ("2026-11-20", "2026-11-21", "2026-11-20"):
        assert roll_out(tmp_path, version) == []
    assert defaults(tmp_path, "2026-11-20") == {"2026-11-21"}
    assert said(tmp_path, "2026-11-20") == [
        "Users who load torchstack get 2026-11-21, unchanged: it is newer than torchstack/2026-11-20."
        + TO_MOVE % "2026-11-20"]


def test_a_rollback_stands_against_rollouts_of_the_same_of_another_and_of_a_new_release(tmp_path, clock):
    for version in ("2026-11-20", "2026-11-21"):
        release(tmp_path, version, clock())
        roll_out(tmp_path, version)
    roll_back(tmp_path, "2026-11-21")
    when = read_facts(str(tmp_path), "2026-11-21").journal[-1]["time"]
    release(tmp_path, "2026-12-01", clock())
    assert [action.action for action in roll_out(tmp_path, "2026-12-01")] == ["show", "show"]
    for version in ("2026-11-21", "2026-12-01"):
        assert roll_out(tmp_path, version) == []
        assert defaults(tmp_path, version) == {"2026-11-20"}
        sentence = said(tmp_path, version)[0]
        assert sentence.startswith(
            "Users who load torchstack get 2026-11-20, unchanged: the rollback of 2026-11-21 by ann at ")
        assert sentence[-200:].endswith(" stands." + TO_MOVE % version) and when[:15] in sentence
    assert roll_out(tmp_path, "2026-11-20") == []
    # Whoever asks for it moves it, and from then on newer releases become the default again.
    change(tmp_path, "2026-12-01", default=True)
    assert defaults(tmp_path, "2026-12-01") == {"2026-12-01"}
    release(tmp_path, "2026-12-02", clock())
    roll_out(tmp_path, "2026-12-02")
    assert defaults(tmp_path, "2026-12-02") == {"2026-12-02"}


def test_a_rollback_to_no_default_stands_too(tmp_path, clock):
    release(tmp_path, "1", clock())
    roll_out(tmp_path, "1")
    roll_back(tmp_path, "1")
    release(tmp_path, "2", clock())
    roll_out(tmp_path, "2")
    assert defaults(tmp_path, "2") == {""}
    assert said(tmp_path, "2")[0].startswith(
        "Users who load torchstack get whichever listed version sorts last, as there is no default: the rollback of 1 ")


def test_an_older_release_that_is_published_later_does_not_become_the_default(tmp_path, clock):
    release(tmp_path, "2.10.0", clock())
    roll_out(tmp_path, "2.10.0")
    release(tmp_path, "2.9.1", clock())
    assert [action.action for action in roll_out(tmp_path, "2.9.1")] == ["show", "show"]
    assert defaults(tmp_path, "2.9.1") == {"2.10.0"}


def test_a_default_that_was_chosen_with_the_release_at_hand_stands(tmp_path, clock):
    release(tmp_path, "2026-11-20", clock())
    release(tmp_path, "2026-12-01", clock())
    change(tmp_path, "2026-11-20", default=True)
    assert [action.action for action in roll_out(tmp_path, "2026-12-01")] == ["show", "show"]
    assert "2026-11-20, unchanged: ann made it the default at 2026-11-01T00:0" in said(tmp_path, "2026-12-01")[0]


def test_a_release_that_was_published_without_the_default_is_made_it_by_whoever_asks(tmp_path, clock):
    release(tmp_path, "1", clock())
    change(tmp_path, "1", state="hidden")
    assert [action.action for action in roll_out(tmp_path, "1")] == ["list", "list"]
    assert "torchstack/1 was published before" in said(tmp_path, "1")[0]
    assert [action.action for action in change(tmp_path, "1", default=True)] == ["default", "default"]


@pytest.mark.parametrize("stop", range(5))
def test_a_first_publication_that_was_killed_is_completed(tmp_path, clock, stop):
    release(tmp_path, "1", clock())
    roll_out(tmp_path, "1")
    release(tmp_path, "2", clock())
    done = roll_out(tmp_path, "2", stop)
    assert len(roll_out(tmp_path, "2")) == len(done) - stop
    assert defaults(tmp_path, "2") == {"2"} and roll_out(tmp_path, "2") == []


def test_a_first_publication_is_completed_whose_last_entry_was_written_and_not_done(tmp_path, clock):
    release(tmp_path, "1", clock())
    roll_out(tmp_path, "1")
    release(tmp_path, "2", clock())
    roll_out(tmp_path, "2")
    path = os.path.join(str(tmp_path), default_path("lmod", NAME))
    put(path, default_text("lmod", NAME, "1"))
    assert [action.syntax for action in roll_out(tmp_path, "2")] == ["lmod"]
    # What somebody has written into the file is not what was there before.
    put(path, default_text("lmod", NAME, "0"))
    assert roll_out(tmp_path, "2") == []


def test_a_first_publication_that_was_killed_does_not_go_on_against_what_came_between(tmp_path, clock):
    for version in ("1", "2"):
        release(tmp_path, version, clock())
        roll_out(tmp_path, version)
    release(tmp_path, "3", clock())
    roll_out(tmp_path, "3", 2)
    roll_back(tmp_path, "2")
    assert roll_out(tmp_path, "3") == [] and defaults(tmp_path, "3") == {"1"}


def test_journals_of_before_that_was_written_down_count_as_published(tmp_path, clock):
    release(tmp_path, "1", clock())
    roll_out(tmp_path, "1", 2)
    path = os.path.join(str(tmp_path), ".torchstack", "1", "publish.jsonl")
    with open(path, encoding="utf-8") as stream:
        lines = [json.loads(line) for line in stream]
    put(path, "".join(json.dumps({key: line[key] for key in line if key != "first"}) + "\n" for line in lines))
    assert roll_out(tmp_path, "1") == []


def test_the_module_systems_are_named_apart_where_they_differ(tmp_path, clock):
    release(tmp_path, "1", clock())
    put(os.path.join(str(tmp_path), default_path("tcl", NAME)), default_text("tcl", NAME, "1"))
    assert said(tmp_path, "1", default=False) == [
        "Users of Environment Modules who load torchstack get 1, unchanged: it is the default.",
        "Users of Lmod who load torchstack get nothing, as no version of it is published."]


@pytest.mark.parametrize(("default", "first_only", "check_mode", "expected"), [
    (True, True, True, "would get 2: this publishes it for the first time. Before, they got 1."),
    (True, True, False, "get 2: this publishes it for the first time. Before, they got 1."),
    (True, False, False, "get 2: that was asked for. Before, they got 1."),
])
def test_it_is_said_why_the_default_moves(default, first_only, check_mode, expected):
    one = publication_first.Candidate(NAME, "2", "2", "", dict.fromkeys(SYNTAXES, "1"), [])
    found = publication_first.users_load(
        one, dict.fromkeys(SYNTAXES, "2"), dict.fromkeys(SYNTAXES, True), default, first_only, check_mode)
    assert found == ["Users who load torchstack " + expected]


@pytest.mark.parametrize("seed", range(40))
def test_whatever_was_done_a_rollout_moves_the_default_once_and_then_changes_nothing(tmp_path, seed):
    chance = random.Random(seed)
    steps = [
        (chance.choice(("roll_out", "default", "roll_back", "freeze")), chance.randint(1, 4)) for _step in range(12)]
    root, minutes, frozen = tmp_path, iter(range(5000, 10_000)), set()
    for what, number in steps:
        version = str(number)
        if what == "freeze" and version not in frozen:
            release(root, version, at(next(minutes)))
            frozen.add(version)
        elif version in frozen and what == "roll_out":
            journal = read_facts(str(root), version).journal
            moves = [action for action in roll_out(root, version) if action.action == DEFAULT]
            assert not (moves and version in {entry["release"] for entry in journal}), "once for a release"
        elif version in frozen and what == "default":
            change(root, version, default=True)
        elif version in frozen and what == "roll_back":
            try:
                roll_back(root, version)
            except modulefile_publication.StackError:
                continue
    for version in sorted(frozen):
        roll_out(root, version)
    for _round in range(2):
        for version in sorted(frozen):
            before = read_facts(str(root), version).defaults
            assert roll_out(root, version) == []
            assert read_facts(str(root), version).defaults == before
