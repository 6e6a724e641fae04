# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What is asked for beside what is recorded: what is kept, and what is refused."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import recorded, release_file, stored_release

NOTHING = {"content": None, "frozen": None, "freezing": None, "thawed": None, "retired": None, "record": {}}
WRITTEN = {"release": "2026-11-20", "title": "A title", "mpi": {"prefix": "${CRAY_MPICH_DIR}"}}
IMAGE = {"release": "2.2.0", "base": {"kind": "container", "image": {"file": "a.sif"}}}


def defined(definition, series=None):
    digest = release_file.digest_of(definition, series or {}, definition)
    return release_file.Definition(definition, series or {}, digest, [])


def records(found, **more):
    record = {
        "release": "2026-11-20", "digest": found.digest, "series": found.series,
        "definition": dict(found.definition, mpi={"prefix": "/opt/mpich"}),
        "written": {"mpi.prefix": "${CRAY_MPICH_DIR}"},
    }
    return dict(NOTHING, content="text", record=record, frozen={"digest": found.digest, "frozen_at": "a day"}, **more)


def refusal(found, known):
    return recorded.refusal(found, known, "2026-11-20", "releases/2026-11-20.yml")


def test_a_release_without_records_and_one_that_asks_for_the_same_are_rolled_out():
    found = defined(WRITTEN)
    assert refusal(found, NOTHING) == refusal(found, records(found)) == ""
    assert recorded.compare(found, WRITTEN, NOTHING) == found


def test_a_change_of_a_frozen_release_is_named_by_its_path_and_another_title_is_none():
    frozen = records(defined(WRITTEN))
    titled = recorded.compare(defined(dict(WRITTEN, title="Another")), WRITTEN, frozen)
    assert refusal(titled, frozen) == ""
    changed = defined(dict(WRITTEN, mpi={"prefix": "/opt"}, title="Another"), {"horovod": "b"})
    said = refusal(recorded.compare(changed, WRITTEN, frozen), frozen)
    assert said.startswith(
        "Release 2026-11-20 is frozen since a day, and what is asked for has changed since "
        "(definition.mpi.prefix, series.horovod). Make a new release: copy releases/2026-11-20.yml to a file")


def test_a_release_that_was_frozen_with_its_title_keeps_its_digest():
    found = defined(WRITTEN)
    former = stored_release.digest_of(found.asked)
    frozen = records(found)
    frozen["record"]["digest"] = frozen["frozen"]["digest"] = former
    compared = recorded.compare(defined(dict(WRITTEN, title="Another")), WRITTEN, frozen)
    assert compared.digest == former != found.digest and refusal(compared, frozen) == ""


def test_a_name_that_a_retired_release_had_is_not_used_again():
    known = dict(NOTHING, retired={"state": "removed", "since": "2026-11-20T12:00:00Z"})
    assert refusal(defined(WRITTEN), known).startswith("Release 2026-11-20 was retired on 2026-11-20, and its name is")
    assert recorded.absence(known, "a", "/soft") == (
        "Release a was retired on 2026-11-20: there is nothing left of it below /soft.")
    assert "was never opened below /soft" in recorded.absence(NOTHING, "a", "/soft")
    assert recorded.absence(records(defined(WRITTEN)), "a", "/soft") == ""


def test_a_thawed_release_is_not_rolled_out():
    found = defined(WRITTEN)
    known = {**records(found), "thawed": {"at": "a day", "who": "ann", "why": "a fix"}}
    assert refusal(found, known) == (
        "Release 2026-11-20 is thawed since a day by ann (a fix), and is not rolled out meanwhile. Freeze it again "
        "first: playbooks/thaw.yml -e torchstack_release=2026-11-20 -e thaw_state=refrozen.")


@pytest.mark.parametrize("sums, kept, expected", [
    ("%s  a.sif\n" % ("a" * 64), {"file": "a.sif", "sha256": "b" * 64}, "a" * 64),
    ("", {"file": "a.sif", "sha256": "b" * 64}, "b" * 64),
    ("", {"file": "other.sif", "sha256": "b" * 64}, ""),
    ("", {}, ""),
])
def test_the_checksum_of_an_image_is_the_listed_one_else_the_one_that_a_built_release_has(sums, kept, expected):
    known = dict(NOTHING, content="text", freezing={"digest": "x"}, record={"definition": {"base": {"image": kept}}})
    found = recorded.compare(defined(IMAGE), IMAGE, known, sums)
    assert found.definition["base"]["image"] == {"file": "a.sif", "sha256": expected}
    assert found.digest != defined(IMAGE).digest
    open_still = recorded.compare(defined(IMAGE), IMAGE, dict(known, freezing=None))
    assert open_still.definition["base"]["image"]["sha256"] == ""


@pytest.mark.parametrize(
    "before, after, expected",
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1, "site": "x"}, {"a": 1}, []),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, ["a.b"]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, ["a.c"]),
        ({"a": {}}, {"a": {"b": None}}, ["a.b"]),
        ({"a": [1, 2]}, {"a": [2, 1]}, ["a"]),
        ({"a": {"b": 1}}, {"a": 3}, ["a"]),
    ],
)
def test_what_changed_is_named_by_its_path(before, after, expected):
    assert recorded.changed_keys(before, after) == expected
