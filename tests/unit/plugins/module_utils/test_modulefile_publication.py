# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What may be published, in which order, and how it is taken back."""

from __future__ import annotations

import json
import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils import modulefile_publication as subject
from ansible_collections.hpcml.torchstack.plugins.module_utils.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefile_layout import (
    MAKER,
    default_path,
    default_text,
    digest,
    relative_path,
)

NAME = "torchstack"


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


def publish(root, version, state="published", visible=True, default=False, reason=""):
    facts = subject.read_facts(str(root), version)
    actions = subject.make_plan(facts, state, visible, default, reason)
    subject.carry_out(facts, actions, reason)
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
    facts = subject.read_facts(str(tmp_path), "1")
    actions = subject.make_plan(facts, "published", True, True, "")
    subject.carry_out(facts, actions[:1], "")
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
        ("default", "tcl"), ("default", "lmod"), ("hide", "tcl"), ("hide", "lmod")]
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
        subject.read_facts(str(tmp_path), "1")
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
    assert subject.not_verified(subject.read_facts(str(tmp_path), "1")) == ["tcl"]


def test_an_acceptance_of_another_state_of_the_release_publishes_nothing(tmp_path):
    release(tmp_path, "1", acceptance={"passed": True, "subject": "sha256:1"})
    facts = subject.read_facts(str(tmp_path), "1", "sha256:2")
    with pytest.raises(StackError) as caught:
        subject.make_plan(facts, "published", True, True, "")
    assert caught.value.details["planned_after"] == "acceptance"
    same = subject.read_facts(str(tmp_path), "1", "sha256:1")
    assert len(subject.make_plan(same, "published", True, True, "")) == 4


def test_an_acceptance_that_failed_after_the_publication_is_refused_and_takes_nothing_away(tmp_path):
    stage = release(tmp_path, "1")
    publish(tmp_path, "1", default=True)
    put(os.path.join(stage, "acceptance.json"), json.dumps({"passed": False}))
    with pytest.raises(StackError, match="failed its"):
        publish(tmp_path, "1", default=True)
    assert os.path.exists(os.path.join(str(tmp_path), relative_path("tcl", NAME, "1")))
