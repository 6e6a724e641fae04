# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Which directories are frozen releases of ours, and what users see of each."""

from __future__ import annotations

import json
import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.layout import (
    SYNTAXES,
    listing_files,
    relative_path,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.visible_text import Added, visible_bytes
from ansible_collections.hpcml.torchstack.plugins.module_utils.release import states as subject


def put(path, content):
    os.makedirs(os.path.dirname(str(path)), exist_ok=True)
    text = content if isinstance(content, (bytes, str)) else json.dumps(content)
    with open(path, "wb") as stream:
        stream.write(text if isinstance(text, bytes) else text.encode())


def release(root, name, frozen_at="2026-11-20T00:00:00Z", module=True):
    afterwards = root / ".torchstack" / name
    put(afterwards / "frozen.json", {"frozen_at": frozen_at, "digest": "d"})
    put(root / name / ".torchstack" / "release.yml", "release: x\n")
    if module:
        put(afterwards / "modulefile.json", {"name": "torchstack", "version": name})
    return afterwards


def listed(root, default, hidden=()):
    for syntax in SYNTAXES:
        for path, content in listing_files(syntax, "torchstack", default, hidden).items():
            if content is not None:
                put(root / path, content)


def show(root, name, *told):
    added = Added(*told)
    for syntax in SYNTAXES:
        put(root / relative_path(syntax, "torchstack", name), visible_bytes(syntax, b"#%Module1.0\n", added))


def both(value):
    return {"tcl": value, "lmod": value}


def test_releases_come_in_the_order_of_their_freeze(tmp_path):
    release(tmp_path, "b", "2026-01-01T00:00:00Z")
    release(tmp_path, "a", "2026-02-01T00:00:00Z")
    put(tmp_path / ".torchstack" / "tools" / "x.json", {})
    put(tmp_path / ".torchstack" / "publish.lock.json", {})
    put(tmp_path / "open" / ".torchstack" / "release.yml", "")
    assert [state.release for state in subject.all_releases(str(tmp_path))] == ["b", "a"]
    assert subject.all_releases(str(tmp_path / "none")) == []


def test_each_state_of_a_module_is_told_from_the_others(tmp_path):
    for name in ("1", "2", "3", "4", "5", "6"):
        release(tmp_path, name, module=name != "6")
    show(tmp_path, "1")
    show(tmp_path, "2", "goes")
    show(tmp_path, "3", "goes")
    show(tmp_path, "4", "gone", (), True)
    listed(tmp_path, "1", ["3", "4"])
    found = {state.release: state for state in subject.all_releases(str(tmp_path))}
    seen = {name: [state.visible, state.hidden, state.gone].index(both(True)) if both(True) in (
        state.visible, state.hidden, state.gone) else None for name, state in found.items()}
    assert seen == {"1": 0, "2": 0, "3": 1, "4": 2, "5": None, "6": None}
    assert [name for name, state in found.items() if state.is_default] == ["1"] and found["1"].default == both(True)
    assert {name: state.deprecated for name, state in found.items() if state.deprecated} == {"2": "goes", "3": "goes"}
    assert (found["6"].name, found["6"].version) == ("", "")


def test_the_records_of_a_release_are_handed_on(tmp_path):
    afterwards = release(tmp_path, "1")
    put(afterwards / "retired.json", {"state": "deprecated"})
    put(afterwards / "thawed.json", {"why": "fix"})
    put(afterwards / "publish.jsonl", "\n".join(json.dumps(entry) for entry in [
        {"action": "default", "version": "1", "time": "2026-01-01T00:00:00Z"},
        {"action": "default", "version": "0", "time": "2026-01-02T00:00:00Z", "undo": True},
    ]) + "\n")
    state = subject.one_release(str(tmp_path), "1")
    assert (state.retired, state.thawed) == ({"state": "deprecated"}, {"why": "fix"})
    assert state.defaulted_at == "2026-01-01T00:00:00Z" and state.frozen["digest"] == "d"
    assert state.as_dict()["is_default"] is False


@pytest.mark.parametrize("name", ["", ".", "..", ".torchstack", "a/b", "../x", "/etc", "-x", "a b", "a\n"])
def test_what_leads_elsewhere_is_no_name_of_a_release(tmp_path, name):
    with pytest.raises(StackError, match="is not the name of a release"):
        subject.one_release(str(tmp_path), name)


def test_a_path_that_is_not_a_release_is_refused_with_those_that_are(tmp_path):
    release(tmp_path, "1")
    (tmp_path / "home").mkdir()
    put(tmp_path / ".torchstack" / "frozen-only" / "frozen.json", {})
    (tmp_path / "link").symlink_to(tmp_path / "1")
    (tmp_path / ".torchstack" / "link").symlink_to(tmp_path / ".torchstack" / "1")
    for name, why in (("home", "no .*frozen.json"), ("frozen-only", "no .*release.yml"), ("link", "symbolic link")):
        with pytest.raises(StackError, match=why) as caught:
            subject.one_release(str(tmp_path), name)
        assert "Give one that is: 1." in caught.value.remedy
    with pytest.raises(StackError, match="no absolute path"):
        subject.one_release("relative", "1")


@pytest.mark.parametrize(("state", "counts"), [("removing", True), ("removed", True), ("hidden", False)])
def test_a_release_whose_files_are_gone_is_found_where_that_is_asked(tmp_path, state, counts):
    afterwards = tmp_path / ".torchstack" / "1"
    put(afterwards / "frozen.json", {})
    put(afterwards / "retired.json", {"state": state})
    assert subject.all_releases(str(tmp_path)) == []
    assert [found.release for found in subject.all_releases(str(tmp_path), removed=True)] == ["1"] * counts
    with pytest.raises(StackError):
        subject.one_release(str(tmp_path), "1")


@pytest.mark.parametrize("content", ["{", "[]"])
def test_a_damaged_record_is_named(tmp_path, content):
    path = release(tmp_path, "1") / "thawed.json"
    put(path, content)
    with pytest.raises(StackError, match=r"thawed\.json cannot be read"):
        subject.all_releases(str(tmp_path))


def test_journals_of_all_releases_are_one_in_the_order_of_what_happened(tmp_path):
    lines = {
        "a": [{"time": "2026-01-02"}, {"seq": 4}, {"seq": 1}], "b": [{"time": "2026-01-01"}, {"seq": 3}, {"seq": "x"}],
    }
    for name, entries in lines.items():
        put(release(tmp_path, name) / "publish.jsonl", "".join(json.dumps(entry) + "\n" for entry in entries))
    found = subject.all_publications(str(tmp_path))
    assert [(entry["release"], entry.get("seq", entry.get("time"))) for entry in found] == [
        ("b", "x"), ("b", "2026-01-01"), ("a", "2026-01-02"), ("a", 1), ("b", 3), ("a", 4)]
