# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What may be published, in which order, and how it is taken back.

Covers publication_facts, publication_plan, publication_rules and publication_summary, too.
"""

from __future__ import annotations

import json
import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import publication as subject
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.publication_changes import carry_out
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.publication_facts import (
    last_move,
    last_rollback,
    read_facts,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.publication_summary import summary_lines
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.layout import (
    MAKER,
    default_path,
    default_text,
    digest,
    relative_path,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.visible_text import Added
from ansible_collections.hpcml.torchstack.plugins.module_utils.release.states import all_publications

NAME = "torchstack"


@pytest.fixture(autouse=True)
def no_wait_for_a_disk(monkeypatch):
    """Flushes are shown where the power is cut, in tests/modules/test_modulefile_publish_faults.py."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


def put(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)


def release(root, version, passed=True, accepted=True, acceptance=None):
    """A staged, verified and accepted release as the roles before leave it."""
    stage = os.path.join(str(root), ".torchstack", version)
    files = {}
    for syntax in ("tcl", "lmod"):
        text = "%s %s %s\n" % (MAKER, syntax, version)
        put(os.path.join(stage, relative_path(syntax, NAME, version)), text)
        files[syntax] = {"sha256": digest(text.encode())}
    record = {"name": NAME, "version": version, "passed": passed, "files": files, "checked": [{"syntax": "lmod"}]}
    put(os.path.join(stage, "modulefile.json"), json.dumps(record))
    if accepted:
        put(os.path.join(stage, "acceptance.json"), json.dumps(acceptance or {"passed": True}))
    return stage


def plan(root, version, state="published", visible=True, default=False, reason="", **more):
    desired = subject.Desired(state, visible, default, reason, **more)
    return subject.make_plan(read_facts(str(root), version), desired)


def publish(root, version, state="published", **more):
    actions = plan(root, version, state, **more)
    undo = state in ("rolled_back", "withdrawn")
    carry_out(str(root), version, actions, {"without_acceptance": more.get("reason", ""), "undo": undo})
    return [(action.action, action.syntax) for action in actions]


def default_of(root, syntax):
    path = os.path.join(str(root), default_path(syntax, NAME))
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as stream:
        return stream.read()


def test_modulefiles_come_before_the_default_that_names_them(tmp_path):
    release(tmp_path, "1")
    assert publish(tmp_path, "1", default=True) == [
        ("show", "tcl"), ("show", "lmod"), ("default", "tcl"), ("default", "lmod")]


def test_publishing_again_does_nothing_and_adds_nothing_to_the_journal(tmp_path):
    stage = release(tmp_path, "1")
    publish(tmp_path, "1", default=True)
    with open(os.path.join(stage, "publish.jsonl"), "rb") as stream:
        before = stream.read()
    assert publish(tmp_path, "1", default=True) == []
    with open(os.path.join(stage, "publish.jsonl"), "rb") as stream:
        assert stream.read() == before


def test_visible_bytes_are_the_verified_bytes(tmp_path):
    stage = release(tmp_path, "1")
    publish(tmp_path, "1")
    for syntax in ("tcl", "lmod"):
        path = relative_path(syntax, NAME, "1")
        with open(os.path.join(stage, path), "rb") as one, open(os.path.join(str(tmp_path), path), "rb") as two:
            assert one.read() == two.read()
        assert os.stat(os.path.join(str(tmp_path), path)).st_mode & 0o777 == 0o644


def test_an_interrupted_publication_goes_on_where_it_stopped(tmp_path):
    release(tmp_path, "1")
    carry_out(str(tmp_path), "1", plan(tmp_path, "1", default=True)[:1], {})
    assert publish(tmp_path, "1", default=True) == [("show", "lmod"), ("default", "tcl"), ("default", "lmod")]


def test_s10_the_default_goes_back_to_the_release_that_had_it(tmp_path):
    for version in ("1", "2"):
        release(tmp_path, version)
        publish(tmp_path, version, default=True)
    assert publish(tmp_path, "2", "rolled_back") == [("default", "tcl"), ("default", "lmod")]
    assert default_of(tmp_path, "tcl") == default_text("tcl", NAME, "1")
    assert default_of(tmp_path, "lmod") == default_text("lmod", NAME, "1")
    assert publish(tmp_path, "2", "rolled_back") == []
    assert os.path.exists(os.path.join(str(tmp_path), relative_path("tcl", NAME, "2")))


def test_s10_the_default_goes_away_where_there_was_none_before(tmp_path):
    release(tmp_path, "1")
    publish(tmp_path, "1", default=True)
    publish(tmp_path, "1", "rolled_back")
    assert default_of(tmp_path, "tcl") is None and default_of(tmp_path, "lmod") is None


def test_where_the_default_cannot_go_back_it_is_said_what_to_type(tmp_path):
    for version in ("1", "2"):
        release(tmp_path, version)
        publish(tmp_path, version, default=version == "1")
    with pytest.raises(StackError, match="There was no default before") as refused:
        publish(tmp_path, "1", "rolled_back")
    assert refused.value.remedy == (
        "Say which is to be the default, as in playbooks/publish.yml -e torchstack_release=2 -e publish_to=default.")


def test_who_goes_back_to_a_release_that_goes_is_told_of_one_that_stays(tmp_path):
    for version in ("1", "2", "3"):
        release(tmp_path, version)
        publish(tmp_path, version, default=version != "3")
    publish(tmp_path, "1", "deprecated", notice="It goes.")
    before = read_facts(str(tmp_path), "2")
    (said,) = subject.said_by_default(before, subject.facts_after(before, plan(tmp_path, "2", "rolled_back")))
    assert said == (
        "The default is torchstack/1 now, which is on its way out, and loading it says: It goes. To have torchstack/2: "
        "playbooks/publish.yml -e torchstack_release=2 -e publish_to=default.")


def test_a_release_is_named_whose_module_has_another_version(tmp_path):
    release(tmp_path, "1")
    release(tmp_path, "2")
    os.rename(os.path.join(str(tmp_path), ".torchstack", "2"), os.path.join(str(tmp_path), ".torchstack", "trial"))
    publish(tmp_path, "1", default=True)
    publish(tmp_path, "trial")
    with pytest.raises(StackError) as refused:
        publish(tmp_path, "1", "hidden", notice="x")
    assert "torchstack_release=trial " in refused.value.remedy


def test_the_default_does_not_go_back_to_a_release_that_is_hidden(tmp_path):
    for version in ("1", "2"):
        release(tmp_path, version)
        publish(tmp_path, version, default=True)
    publish(tmp_path, "1", "withdrawn")
    publish(tmp_path, "2", "rolled_back")
    assert default_of(tmp_path, "tcl") is None


def test_a_withdrawal_moves_the_default_before_it_hides_the_modulefiles(tmp_path):
    for version in ("1", "2"):
        release(tmp_path, version)
        publish(tmp_path, version, default=True)
    assert publish(tmp_path, "2", "withdrawn") == [
        ("default", "tcl"), ("default", "lmod"), ("remove", "tcl"), ("remove", "lmod")]
    assert publish(tmp_path, "2", "withdrawn") == []


def test_asking_for_neither_visible_nor_default_hides_nothing(tmp_path):
    release(tmp_path, "1")
    publish(tmp_path, "1", default=True)
    assert publish(tmp_path, "1", visible=False, default=False) == []
    assert os.path.exists(os.path.join(str(tmp_path), relative_path("tcl", NAME, "1")))


def test_the_journal_says_what_was_the_default_before_and_survives_a_torn_line(tmp_path):
    release(tmp_path, "1")
    publish(tmp_path, "1", default=True)
    stage = release(tmp_path, "2")
    with open(os.path.join(stage, "publish.jsonl"), "w", encoding="utf-8") as stream:
        stream.write('{"action": "show", "synt')
    publish(tmp_path, "2", default=True)
    with open(os.path.join(stage, "publish.jsonl"), encoding="utf-8") as stream:
        lines = stream.read().splitlines()
    assert lines[0] == '{"action": "show", "synt'
    entries = [json.loads(line) for line in lines[1:]]
    assert [entry["previous"] for entry in entries if entry["action"] == "default"] == ["1", "1"]
    assert all(entry["time"].endswith("Z") for entry in entries)
    publish(tmp_path, "2", "rolled_back")
    assert default_of(tmp_path, "tcl") == default_text("tcl", NAME, "1")


@pytest.mark.parametrize(("arrange", "arguments", "words", "planned_after"), [
    ({"passed": False}, {}, "failed its verification", None),
    ({"accepted": False}, {}, "has not been accepted", "acceptance"),
    ({"acceptance": {"passed": False}}, {}, "failed its last acceptance", None),
    ({"acceptance": {"passed": "true"}}, {}, "failed its last acceptance", None),
    ({"acceptance": {"passed": True, "modulefiles": {"tcl": "0" * 64}}}, {}, "with another tcl modulefile", None),
    ({}, {"visible": False, "default": True}, "is not visible", None),
    ({"accepted": False}, {"reason": "  "}, "has not been accepted", "acceptance"),
])
def test_what_may_not_be_published_is_refused_before_anything_changes(
    tmp_path, arrange, arguments, words, planned_after
):
    stage = release(tmp_path, "1", **arrange)
    with pytest.raises(StackError, match=words) as caught:
        publish(tmp_path, "1", **arguments)
    assert caught.value.details.get("planned_after") == planned_after
    assert caught.value.remedy
    assert not os.path.exists(os.path.join(str(tmp_path), "modulefiles"))
    assert not os.path.exists(os.path.join(stage, "publish.jsonl"))


def test_a_named_reason_publishes_without_acceptance_and_is_written_down(tmp_path):
    stage = release(tmp_path, "1", accepted=False)
    publish(tmp_path, "1", reason="no GPU node until Monday")
    with open(os.path.join(stage, "publish.jsonl"), encoding="utf-8") as stream:
        assert {json.loads(line)["without_acceptance"] for line in stream} == {"no GPU node until Monday"}


def test_a_modulefile_changed_after_its_verification_is_refused(tmp_path):
    stage = release(tmp_path, "1")
    put(os.path.join(stage, relative_path("lmod", NAME, "1")), "something else")
    with pytest.raises(StackError, match="is not the file that was verified"):
        publish(tmp_path, "1")


def test_a_release_without_a_record_names_the_role_that_makes_it(tmp_path):
    with pytest.raises(StackError, match="no record of a verified modulefile") as caught:
        read_facts(str(tmp_path), "1")
    assert caught.value.details["planned_after"] == "modulefile"


@pytest.mark.parametrize("path", [
    relative_path("tcl", NAME, "1"), relative_path("lmod", NAME, "1"),
    default_path("tcl", NAME), default_path("lmod", NAME),
])
def test_a_file_that_somebody_else_wrote_is_never_replaced(tmp_path, path):
    release(tmp_path, "1")
    put(os.path.join(str(tmp_path), path), "by hand\n")
    with pytest.raises(StackError, match="was not written by this collection"):
        publish(tmp_path, "1", default=True)
    with open(os.path.join(str(tmp_path), path), encoding="utf-8") as stream:
        assert stream.read() == "by hand\n"


def test_a_syntax_that_nothing_loaded_is_named(tmp_path):
    release(tmp_path, "1")
    assert subject.not_verified(read_facts(str(tmp_path), "1")) == ["tcl"]


def test_an_acceptance_of_another_state_of_the_release_publishes_nothing(tmp_path):
    release(tmp_path, "1", acceptance={"passed": True, "subject": "sha256:1"})
    facts = read_facts(str(tmp_path), "1", "sha256:2")
    with pytest.raises(StackError) as caught:
        subject.make_plan(facts, subject.Desired("published", True, True))
    assert caught.value.details["planned_after"] == "acceptance"
    same = read_facts(str(tmp_path), "1", "sha256:1")
    assert len(subject.make_plan(same, subject.Desired("published", True, True))) == 4


def test_an_acceptance_of_before_a_thaw_that_changed_files_publishes_nothing(tmp_path):
    release(tmp_path, "1", acceptance={"passed": True, "subject": "asked"})
    stage = os.path.join(str(tmp_path), ".torchstack", "1")
    for frozen, accepted in (({"digest": "asked"}, True), ({"digest": "asked", "thawed": 1, "manifest": {}}, False)):
        put(os.path.join(stage, "frozen.json"), json.dumps(frozen))
        if accepted:
            assert plan(tmp_path, "1")
        else:
            with pytest.raises(StackError, match="another state"):
                plan(tmp_path, "1")


def test_an_acceptance_of_before_a_thaw_publishes_nothing(tmp_path):
    stage = release(tmp_path, "1", acceptance={"passed": True, "subject": "d"})
    put(os.path.join(stage, "frozen.json"), json.dumps({"digest": "d", "manifest": {"digest": "m"}}))
    publish(tmp_path, "1")
    put(os.path.join(stage, "frozen.json"), json.dumps({"digest": "d", "manifest": {"digest": "n"}, "thawed": 1}))
    with pytest.raises(StackError, match="accepted in another state"):
        publish(tmp_path, "1", default=True)


def test_an_acceptance_that_failed_after_the_publication_is_refused_and_takes_nothing_away(tmp_path):
    stage = release(tmp_path, "1")
    publish(tmp_path, "1", default=True)
    put(os.path.join(stage, "acceptance.json"), json.dumps({"passed": False}))
    with pytest.raises(StackError, match="failed its"):
        publish(tmp_path, "1", default=True)
    assert os.path.exists(os.path.join(str(tmp_path), relative_path("tcl", NAME, "1")))


def test_a_site_with_partitions_publishes_what_is_accepted_on_each(tmp_path):
    stage = release(tmp_path, "1", accepted=False)
    partitions = {"a100": {}, "l40s": {}, "old": {"optional": "It goes."}, "new": {"left_out": "It comes."}}

    def accept(name, **changed):
        put(os.path.join(stage, "partitions", name, "acceptance.json"), json.dumps({"passed": True, **changed}))

    def actions(of=partitions):
        return subject.make_plan(read_facts(str(tmp_path), "1", "", of), subject.Desired("published", True, True))

    accept("a100")
    accept("old", passed=False)
    with pytest.raises(StackError, match="Release 1 has not been accepted on partition l40s") as caught:
        actions()
    assert caught.value.details["planned_after"] == "acceptance"
    accept("l40s", passed=False)
    with pytest.raises(StackError, match="Release 1 failed its last acceptance on partition l40s") as caught:
        actions()
    assert "planned_after" not in caught.value.details
    accept("l40s", modulefiles={"tcl": "another one"})
    with pytest.raises(StackError, match="accepted on partition l40s with another tcl modulefile"):
        actions()
    accept("l40s")
    assert len(actions()) == 4
    # Without the site at hand, those that were recorded; and a site without any has another record.
    put(os.path.join(stage, "partitions.json"), json.dumps({"a100": {}, "h100": {}}))
    with pytest.raises(StackError, match="has not been accepted on partition h100"):
        actions(None)
    with pytest.raises(StackError, match=r"has not been accepted: there is no .*/1/acceptance\.json"):
        actions({})


# On the way in and out


def states(root, version):
    facts = read_facts(str(root), version)
    return {facts.state(syntax) for syntax in ("tcl", "lmod")}


def told(root, version):
    return {read_facts(str(root), version).added(syntax) for syntax in ("tcl", "lmod")}


def test_testers_load_by_the_full_name_what_is_never_listed_before_it_is_hidden(tmp_path):
    release(tmp_path, "1")
    assert publish(tmp_path, "1", "hidden") == [("hide", "tcl"), ("hide", "lmod"), ("show", "tcl"), ("show", "lmod")]
    assert states(tmp_path, "1") == {"hidden"}
    assert publish(tmp_path, "1", "hidden") == []
    assert publish(tmp_path, "1") == [("list", "tcl"), ("list", "lmod")]
    assert states(tmp_path, "1") == {"visible"}
    assert publish(tmp_path, "1", "hidden") == [("hide", "tcl"), ("hide", "lmod")]


def test_what_testers_load_has_to_be_accepted_too(tmp_path):
    release(tmp_path, "1", accepted=False)
    with pytest.raises(StackError, match="has not been accepted"):
        publish(tmp_path, "1", "hidden")


def test_a_release_goes_by_steps_each_of_which_is_taken_once(tmp_path):
    for version in ("1", "2"):
        release(tmp_path, version)
        publish(tmp_path, version, default=version == "2")
    assert publish(tmp_path, "1", "deprecated", notice="goes\n soon") == [("deprecate", "tcl"), ("deprecate", "lmod")]
    assert told(tmp_path, "1") == {Added("goes soon")}
    assert publish(tmp_path, "1", "deprecated") == []
    assert publish(tmp_path, "1", "hidden", notice="goes now") == [
        ("deprecate", "tcl"), ("deprecate", "lmod"), ("hide", "tcl"), ("hide", "lmod")]
    assert publish(tmp_path, "1", "hidden") == []
    assert publish(tmp_path, "1", "gone", notice="is gone") == [("gone", "tcl"), ("gone", "lmod")]
    assert told(tmp_path, "1") == {Added("is gone", (), True)} and states(tmp_path, "1") == {"gone"}
    assert publish(tmp_path, "1", "gone") == []
    assert publish(tmp_path, "1", "withdrawn") == [
        ("remove", "tcl"), ("remove", "lmod"), ("list", "tcl"), ("list", "lmod")]
    assert states(tmp_path, "1") == {"none"}
    assert [publish(tmp_path, "1", state, notice="x") for state in ("deprecated", "hidden", "gone", "withdrawn")] == [
        [], [], [], []], "nobody sees it: there is nobody to tell"
    assert not os.path.exists(os.path.join(str(tmp_path), "modulefiles", "tcl", NAME, ".modulerc"))


def test_what_goes_at_once_is_hidden_before_it_stops_to_load(tmp_path):
    release(tmp_path, "1")
    publish(tmp_path, "1")
    assert publish(tmp_path, "1", "gone", notice="is gone") == [
        ("hide", "tcl"), ("hide", "lmod"), ("gone", "tcl"), ("gone", "lmod")]


@pytest.mark.parametrize("state", ["hidden", "gone"])
@pytest.mark.parametrize("syntax", ["tcl", "lmod"])
def test_the_default_of_any_module_system_is_never_hidden(tmp_path, state, syntax):
    for version in ("1", "2"):
        release(tmp_path, version)
        publish(tmp_path, version, default=version == "1")
    other = {"tcl": "lmod", "lmod": "tcl"}[syntax]
    put(os.path.join(str(tmp_path), default_path(other, NAME)), default_text(other, NAME, "2"))
    with pytest.raises(StackError, match="the default cannot be hidden") as refused:
        publish(tmp_path, "1", state, notice="x")
    assert refused.value.remedy == (
        "Give it back: playbooks/rollback.yml. Or make another one the default: "
        "playbooks/publish.yml -e torchstack_release=2 -e publish_to=default.")
    assert states(tmp_path, "1") == {"visible"}


@pytest.mark.parametrize("state", ["deprecated", "gone"])
def test_users_are_never_sent_away_without_a_word(tmp_path, state):
    release(tmp_path, "1")
    publish(tmp_path, "1")
    with pytest.raises(StackError, match="It is not said what loading torchstack/1 shall say"):
        publish(tmp_path, "1", state, notice=" \n")


def test_a_rollout_that_is_run_again_does_not_bring_back_what_goes(tmp_path):
    release(tmp_path, "1")
    publish(tmp_path, "1")
    for state in ("deprecated", "hidden", "gone"):
        publish(tmp_path, "1", state, notice="goes")
        before = told(tmp_path, "1"), states(tmp_path, "1")
        assert publish(tmp_path, "1") == []
        with pytest.raises(StackError, match="on its way out"):
            publish(tmp_path, "1", default=True)
        with pytest.raises(StackError, match="on its way out"):
            publish(tmp_path, "1", visible=False, default=True, revive=True)
        assert (told(tmp_path, "1"), states(tmp_path, "1")) == before
    for state in ("deprecated", "hidden"):
        with pytest.raises(StackError, match="is gone already"):
            publish(tmp_path, "1", state, notice="goes")
    assert publish(tmp_path, "1", "hidden", notice="goes", revive=True) == [("deprecate", "tcl"), ("deprecate", "lmod")]
    assert publish(tmp_path, "1", revive=True, default=True) == [
        ("show", "tcl"), ("show", "lmod"), ("list", "tcl"), ("list", "lmod"), ("default", "tcl"), ("default", "lmod")]


@pytest.mark.parametrize("state", ["removing", "removed"])
def test_what_is_removed_comes_back_in_no_way(tmp_path, state):
    stage = release(tmp_path, "1")
    publish(tmp_path, "1")
    publish(tmp_path, "1", "gone", notice="is gone")
    put(os.path.join(stage, "retired.json"), json.dumps({"state": state}))
    for desired in ("published", "hidden", "deprecated"):
        with pytest.raises(StackError, match="its files are gone, or going"):
            publish(tmp_path, "1", desired, notice="x", revive=True)
    assert publish(tmp_path, "1", "gone", notice="is gone") == []
    publish(tmp_path, "1", "withdrawn")


def test_what_is_thawed_is_not_published_and_stays_visible(tmp_path):
    stage = release(tmp_path, "1")
    publish(tmp_path, "1")
    put(os.path.join(stage, "thawed.json"), json.dumps({"why": "a fix"}))
    with pytest.raises(StackError, match=r"is thawed \(a fix\)"):
        publish(tmp_path, "1", default=True)
    assert states(tmp_path, "1") == {"visible"}


def test_known_problems_stay_until_others_are_told(tmp_path):
    release(tmp_path, "1")
    assert publish(tmp_path, "1", known_problems=["one\n two", " "]) == [("show", "tcl"), ("show", "lmod")]
    assert publish(tmp_path, "1", "deprecated", notice="goes") == [("deprecate", "tcl"), ("deprecate", "lmod")]
    assert told(tmp_path, "1") == {Added("goes", ("one two",))}
    publish(tmp_path, "1", revive=True)
    assert told(tmp_path, "1") == {Added("", ("one two",))}
    assert publish(tmp_path, "1", known_problems=[]) == [("show", "tcl"), ("show", "lmod")]
    assert told(tmp_path, "1") == {Added()}


# Back


def roll_back(root):
    """The last move, as the module does it without a release."""
    move = last_move(all_publications(str(root)))
    return publish(root, move.release, "rolled_back") and default_of(root, "tcl")


def test_s10_the_last_move_of_the_default_is_taken_back_without_naming_a_release(tmp_path):
    assert last_move(all_publications(str(tmp_path))) is None
    for version in ("3", "1", "2"):
        release(tmp_path, version)
        publish(tmp_path, version, default=True)
    assert roll_back(tmp_path) == default_text("tcl", NAME, "1")
    assert last_move(all_publications(str(tmp_path)))._replace(time="", by="") == ("2", "1", "2", True, "", "")
    assert last_rollback(all_publications(str(tmp_path)), "2") and not last_rollback(
        all_publications(str(tmp_path)), "1")
    assert roll_back(tmp_path) == []
    publish(tmp_path, "2", default=True)
    assert roll_back(tmp_path) == default_text("tcl", NAME, "1")


def test_what_was_taken_back_does_not_come_again_when_more_is_taken_back(tmp_path):
    for version in ("1", "2", "3"):
        release(tmp_path, version)
        publish(tmp_path, version, default=True)
    publish(tmp_path, "3", "rolled_back")
    publish(tmp_path, "2", "rolled_back")
    assert default_of(tmp_path, "tcl") == default_text("tcl", NAME, "1")


@pytest.mark.parametrize("leave", [("withdrawn", ""), ("hidden", "goes"), ("gone", "is gone"), ("hidden", "")])
def test_a_rollback_passes_over_what_no_longer_loads_or_is_not_listed(tmp_path, leave):
    for version in ("1", "2", "3"):
        release(tmp_path, version)
        publish(tmp_path, version, default=True)
    publish(tmp_path, "2", leave[0], notice=leave[1])
    publish(tmp_path, "3", "rolled_back")
    assert default_of(tmp_path, "lmod").startswith(default_text("lmod", NAME, "1"))


def test_a_rollback_that_was_interrupted_is_completed_for_the_other_module_system(tmp_path):
    for version in ("1", "2"):
        release(tmp_path, version)
        publish(tmp_path, version, default=True)
    carry_out(str(tmp_path), "2", plan(tmp_path, "2", "rolled_back")[:1], {"undo": True})
    assert roll_back(tmp_path) == default_text("tcl", NAME, "1")
    assert default_of(tmp_path, "lmod") == default_text("lmod", NAME, "1")


def test_a_default_that_moved_in_one_module_system_only_is_taken_back_there(tmp_path):
    for version in ("1", "2"):
        release(tmp_path, version)
        publish(tmp_path, version, default=version == "1")
    carry_out(str(tmp_path), "2", plan(tmp_path, "2", default=True)[:1], {})
    assert roll_back(tmp_path) == default_text("tcl", NAME, "1")
    assert default_of(tmp_path, "lmod") == default_text("lmod", NAME, "1")


# Around


def test_entries_are_numbered_over_all_releases_and_say_who_and_why(tmp_path, monkeypatch):
    monkeypatch.setenv("SUDO_USER", "alice")
    for version in ("1", "2"):
        release(tmp_path, version)
    carry_out(str(tmp_path), "1", plan(tmp_path, "1", default=True), {"reason": "ticket 7"})
    carry_out(str(tmp_path), "2", plan(tmp_path, "2", default=True), {})
    entries = all_publications(str(tmp_path))
    assert [entry["seq"] for entry in entries] == list(range(1, 9))
    assert [entry["release"] for entry in entries] == ["1"] * 4 + ["2"] * 4
    assert {entry["by"] for entry in entries} == {"alice"} and entries[0]["reason"] == "ticket 7"


def test_what_a_killed_run_had_begun_to_write_is_taken_away_and_nothing_else(tmp_path):
    release(tmp_path, "1")
    directory = os.path.join(str(tmp_path), "modulefiles", "tcl", NAME)
    mine = [".hidden", ".modulerc.disabled", ".modulerc.lua", ".version.20260101", ".version.original"]
    for name in ("..version.abcdefg_", ".1.ab12cd34", "1.ab12cd34", *mine):
        put(os.path.join(directory, name), "")
    publish(tmp_path, "1")
    assert sorted(os.listdir(directory)) == [*mine, "1", "1.ab12cd34"]


@pytest.mark.parametrize(("state", "more", "check", "expected"), [
    ("published", {"default": True}, False, [
        "Users of Environment Modules and Lmod see torchstack/2 in 'module avail'.",
        "The default for Environment Modules and Lmod is torchstack/2, and was torchstack/1 before.",
        "It changed, in this order: modulefiles/tcl/torchstack/.version, modulefiles/lmod/torchstack/.modulerc.lua."]),
    ("hidden", {"notice": "goes"}, True, [
        "This is a plan, and nothing was done: what follows is how it would be.",
        "Users of Environment Modules and Lmod can load torchstack/2 by its full name, "
        "and 'module avail' does not list it.",
        "Loading it says: goes", "The default for Environment Modules and Lmod is torchstack/1.",
        "It would change, in this order: modulefiles/tcl/torchstack/2, modulefiles/lmod/torchstack/2.lua, "
        "modulefiles/tcl/torchstack/.modulerc, modulefiles/lmod/torchstack/.modulerc.lua."]),
    ("rolled_back", {}, False, [
        "Users of Environment Modules and Lmod see torchstack/2 in 'module avail'.",
        "The default for Environment Modules and Lmod is torchstack/1.",
        "Nothing was changed: torchstack/2 is not the default."]),
    ("published", {}, False, [
        "Users of Environment Modules and Lmod see torchstack/2 in 'module avail'.",
        "The default for Environment Modules and Lmod is torchstack/1.",
        "Nothing was changed: users saw that before."]),
])
def test_the_summary_says_what_users_see_and_what_was_done(tmp_path, state, more, check, expected):
    for version in ("1", "2"):
        release(tmp_path, version)
        publish(tmp_path, version, default=version == "1")
    before, actions = read_facts(str(tmp_path), "2"), plan(tmp_path, "2", state, **more)
    assert summary_lines(before, subject.facts_after(before, actions), actions, state, "", check) == expected


def test_the_summary_names_the_module_systems_apart_where_they_differ(tmp_path):
    stage = release(tmp_path, "1")
    put(os.path.join(stage, "thawed.json"), json.dumps({"why": "a fix"}))
    put(os.path.join(str(tmp_path), default_path("tcl", NAME)), default_text("tcl", NAME, "1"))
    facts = read_facts(str(tmp_path), "1")
    assert summary_lines(facts, facts, [], "rolled_back", "2026-11-20T08:15:00Z", False) == [
        "Users of Environment Modules and Lmod do not see torchstack/1.",
        "The default for Environment Modules is torchstack/1.",
        "There is no default for Lmod: 'module load torchstack' takes the highest version.",
        "Nothing was changed: the default was taken back from torchstack/1 at 2026-11-20T08:15:00Z.",
        "Release 1 is thawed: freeze it again, and accept it."]


def test_a_release_does_not_take_away_the_module_of_another_one_with_the_same_version(tmp_path):
    stage = release(tmp_path, "1")
    os.rename(stage, stage + "b")
    stage = release(tmp_path, "1")
    for directory, name in ((stage, "1"), (stage + "b", "1b")):
        record = {"name": NAME, "version": "1", "passed": True, "files": {}, "checked": []}
        for syntax in ("tcl", "lmod"):
            text = "# %s/1, release %s, %s.\n" % (NAME, name, MAKER)
            put(os.path.join(directory, relative_path(syntax, NAME, "1")), text)
            record["files"][syntax] = {"sha256": digest(text.encode())}
        put(os.path.join(directory, "modulefile.json"), json.dumps(record))
    publish(tmp_path, "1", default=True)
    for state in ("deprecated", "gone", "rolled_back", "withdrawn"):
        assert plan(tmp_path, "1b", state, notice="It goes.") == []
    assert [action.action for action in plan(tmp_path, "1", "withdrawn")] == ["default", "default", "remove", "remove"]
