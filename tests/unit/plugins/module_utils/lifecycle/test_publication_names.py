# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Further names of a module follow its own through everything that a release may go through, without a state."""

from __future__ import annotations

import itertools
import json
import os
import random

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import publication
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.publication_changes import carry_out
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.publication_facts import read_facts
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.description import normalise
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.layout import (
    SYNTAXES,
    default_path,
    digest,
    hidden_path,
    relative_path,
    render_each,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.visible_text import read_added
from ansible_collections.hpcml.torchstack.plugins.module_utils.release.states import default_of, hidden_of

OWN, OTHER = "torchstack", "conda"


@pytest.fixture(autouse=True)
def no_wait_for_a_disk(monkeypatch):
    """Flushes are shown where the power is cut, in tests/modules/test_modulefile_publish_faults.py."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


def put(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as stream:
        stream.write(content)


def release(root, version, *names):
    """A staged, verified and accepted release with further names."""
    stage = os.path.join(str(root), ".torchstack", version)
    description = normalise(
        {"name": OWN, "version": version, "prefix": "/soft/" + version, "also_named": list(names)})
    files = {}
    for name, texts in render_each(description, version).items():
        files[name] = {}
        for syntax, text in texts.items():
            path = relative_path(syntax, name, version)
            put(os.path.join(stage, path), text.encode())
            files[name][syntax] = {"path": path, "sha256": digest(text.encode())}
    record = {"name": OWN, "version": version, "passed": True, "files": files.pop(OWN), "checked": []}
    put(os.path.join(stage, "modulefile.json"), json.dumps({**record, "also": files} if files else record).encode())
    put(os.path.join(stage, "acceptance.json"), b'{"passed": true}')


def plan(root, version, state="published", visible=True, default=False, **more):
    return publication.make_plan(
        read_facts(str(root), version), publication.Desired(state, visible, default, **more))


def change(root, version, state="published", stop=None, **more):
    """Plan and do, or only so many actions as a run that is killed."""
    actions = plan(root, version, state, **more)[:stop]
    undo = state in ("rolled_back", "withdrawn")
    carry_out(str(root), version, actions, {"undo": undo})
    return actions


def seen(root, name):
    """What users see under a name: of each version whether it is there, what it says, is hidden, is the default."""
    found = {}
    for syntax in SYNTAXES:
        directory = os.path.dirname(os.path.join(str(root), relative_path(syntax, name, "1")))
        versions = {}
        for version in "123":
            path = os.path.join(str(root), relative_path(syntax, name, version))
            if os.path.exists(path):
                with open(path, "rb") as stream:
                    versions[version] = read_added(stream.read())
        assert versions or not os.path.exists(directory) or os.listdir(directory) == []
        found[syntax] = versions, default_of(str(root), syntax, name), hidden_of(str(root), syntax, name)
    return found


STEPS = [
    ("published", {"revive": True}), ("published", {"default": True, "revive": True}), ("rolled_back", {}),
    ("withdrawn", {}), ("hidden", {}), ("hidden", {"notice": "It goes."}), ("deprecated", {"notice": "It goes."}),
    ("gone", {"notice": "It is gone."}),
]


@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_done_to_releases_users_see_the_same_under_both_names(tmp_path, seed):
    chance = random.Random(seed)
    for version in "123":
        release(tmp_path, version, OTHER)
    for _number in range(12):
        version, (state, more) = chance.choice("123"), chance.choice(STEPS)
        try:
            if chance.random() < 0.3:
                change(tmp_path, version, state, stop=chance.randint(0, 4), **more)
            change(tmp_path, version, state, **more)
        except StackError as error:
            assert OTHER not in str(error)
            # What a killed run had begun is completed by the next one that may.
            change(tmp_path, version, "published", visible=True, revive=True)
        assert seen(tmp_path, OTHER) == seen(tmp_path, OWN), (version, state, more)


def test_each_change_of_a_further_name_comes_right_before_that_of_the_module(tmp_path):
    release(tmp_path, "1", OTHER)
    done = [(action.action, action.path) for action in change(tmp_path, "1", default=True)]
    assert done == list(itertools.chain.from_iterable(
        (("also", path(syntax, OTHER)), (action, path(syntax, OWN)))
        for action, path in (("show", lambda syntax, name: relative_path(syntax, name, "1")), ("default", default_path))
        for syntax in SYNTAXES))
    assert change(tmp_path, "1", default=True) == []


def test_a_name_that_is_given_later_is_published_and_one_that_is_taken_away_goes(tmp_path):
    release(tmp_path, "1")
    change(tmp_path, "1", default=True)
    release(tmp_path, "1", OTHER)
    assert {action.action for action in change(tmp_path, "1", default=True)} == {"also"}
    assert seen(tmp_path, OTHER) == seen(tmp_path, OWN)
    release(tmp_path, "1")
    assert {action.action for action in change(tmp_path, "1", default=True)} == {"also"}
    assert all(versions == {} and default == "" for versions, default, _hidden in seen(tmp_path, OTHER).values())


def test_a_release_without_the_name_leaves_its_default_until_the_version_goes(tmp_path):
    for version, names in (("1", [OTHER]), ("2", [OTHER]), ("3", [])):
        release(tmp_path, version, *names)
        change(tmp_path, version, default=True)
    assert {default for _versions, default, _hidden in seen(tmp_path, OTHER).values()} == {"2"}
    change(tmp_path, "2", "deprecated", notice="It goes.")
    change(tmp_path, "2", "gone", notice="It is gone.")
    assert {default for _versions, default, _hidden in seen(tmp_path, OTHER).values()} == {""}


@pytest.mark.parametrize("path", [
    relative_path("tcl", OTHER, "1"), relative_path("lmod", OTHER, "1"), default_path("tcl", OTHER),
    default_path("lmod", OTHER), hidden_path("tcl", OTHER)])
def test_a_module_that_somebody_else_wrote_is_never_touched(tmp_path, path):
    release(tmp_path, "1", OTHER)
    put(os.path.join(str(tmp_path), path), b"#%Module\n")
    with pytest.raises(StackError, match="was not written by this collection"):
        for state, more in (("hidden", {}), ("published", {"default": True})):
            plan(tmp_path, "1", state, **more)
    assert {action.action for action in plan(tmp_path, "1", "withdrawn")} <= {"remove"}


def test_a_module_of_another_release_keeps_its_place(tmp_path):
    release(tmp_path, "1", OTHER)
    stage = os.path.join(str(tmp_path), ".torchstack", "1", relative_path("tcl", OTHER, "1"))
    with open(stage, "rb") as stream:
        text = stream.read()
    put(os.path.join(str(tmp_path), relative_path("tcl", OTHER, "1")), text.replace(b"release 1,", b"release 9,"))
    with pytest.raises(StackError, match="is the module of release 9"):
        plan(tmp_path, "1")


def test_bytes_that_were_not_verified_are_published_under_no_name(tmp_path):
    release(tmp_path, "1", OTHER)
    put(os.path.join(str(tmp_path), ".torchstack", "1", relative_path("lmod", OTHER, "1")), b"setenv()\n")
    with pytest.raises(StackError, match="is not the file that was verified"):
        plan(tmp_path, "1")
