# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A release file as the role release has it read: what is returned, and each refusal as one message."""

from __future__ import annotations

import pathlib
import shutil

import pytest
import yaml
from ansible_collections.hpcml.torchstack.plugins.action import release_definition
from ansible_collections.hpcml.torchstack.plugins.action.release_definition import define
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.control_action import RefusedError

RELEASES = pathlib.Path(__file__).parents[4] / "inventories" / "local" / "releases"
RELEASE = RELEASES / "2026-11-20.yml"


@pytest.fixture(scope="module")
def found():
    return define({"path": RELEASE, "release": "2026-11-20"})


def test_all_that_is_asked_for_is_returned(found):
    assert list(found) == ["definition", "series", "digest", "known_problems", "series_directories", "lock_files"]
    assert list(found["series"]) == ["horovod"] and found["definition"]["release"] == "2026-11-20"


def test_a_series_of_the_sites_own_is_taken_for_the_roles(found, tmp_path):
    theirs = found["series_directories"]["horovod"]
    assert theirs.endswith("roles/horovod/files/series/0.28.1")
    own = tmp_path / "horovod" / "0.28.1"
    shutil.copytree(theirs, own)
    next(own.glob("0003-*.patch")).unlink()
    ours = define({"path": RELEASE, "release": "2026-11-20", "own_series": str(tmp_path)})
    assert ours["series_directories"] == {"horovod": str(own)}
    assert ours["series"] != found["series"] and ours["digest"] != found["digest"]


def test_a_file_that_is_not_there_is_told_with_those_that_are():
    known = "2026-11-20, 2026-11-20-bundles, 2026-11-20-cuda"
    with pytest.raises(RefusedError, match=r"release file .*/nothing.yml. Site local has " + known):
        define({"path": RELEASES / "nothing.yml", "site": "local"})


def test_a_name_that_is_another_one_is_refused(tmp_path):
    shutil.copy(RELEASE, tmp_path / "a.yml")
    shutil.copytree(RELEASE.with_suffix(""), tmp_path / RELEASE.stem)
    with pytest.raises(RefusedError, match="says that it is release 2026-11-20, and its name says a: they must be"):
        define({"path": tmp_path / "a.yml", "release": "a"})


def test_a_mistake_has_file_line_and_column(tmp_path):
    (tmp_path / "a.yml").write_text('release: "a"\ntitle: "x\n')
    with pytest.raises(ValueError, match=r"a.yml has a mistake in line 2, column 8: a quote begins .*is: title: \"x"):
        define({"path": tmp_path / "a.yml"})
    (tmp_path / "a.yml").write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(ValueError, match="is not UTF-8 in line 2"):
        define({"path": tmp_path / "a.yml"})


def test_all_problems_are_one_message(tmp_path):
    (tmp_path / "a.yml").write_text("relase: a\nhorovd: {}\n")
    with pytest.raises(RefusedError, match=r"'relase' in releases/a.yml.* 'horovd'.* 'release' is missing"):
        define({"path": tmp_path / "a.yml"})


def test_known_problems_are_read_alone_also_of_a_file_that_has_others(tmp_path):
    (tmp_path / "a.yml").write_text("relase: a\nknown_problems: [{problem: It hangs}]\n")
    assert define({"path": tmp_path / "a.yml", "only": "known_problems"}) == {"known_problems": ["It hangs."]}


def test_a_releases_own_file_is_the_same_release_and_an_edited_one_is_refused(found, tmp_path):
    stored = {"release": "2026-11-20", "written": {}, **{key: found[key] for key in ("digest", "definition", "series")}}
    (tmp_path / "release.yml").write_text(yaml.safe_dump(stored))
    again = define({"path": tmp_path / "release.yml", "release": "2026-11-20"})
    not_asked_for = {"known_problems": [], "lock_files": {}}
    assert {**again, **not_asked_for} == {**found, **not_asked_for} and again["lock_files"] == {}
    with pytest.raises(RefusedError, match="what was asked for is other: they must be the same"):
        define({"path": tmp_path / "release.yml", "release": "other"})
    stored["definition"] = dict(stored["definition"], packages=[])
    (tmp_path / "release.yml").write_text(yaml.safe_dump(stored))
    with pytest.raises(RefusedError, match="is not as the rollout of 2026-11-20 wrote it"):
        define({"path": tmp_path / "release.yml", "release": "2026-11-20"})


def test_a_change_of_a_frozen_release_is_refused(found):
    record = {"digest": "x", "definition": dict(found["definition"], packages=[]), "series": found["series"]}
    records = {"content": yaml.safe_dump(record), "frozen": {"digest": "x", "frozen_at": "a day"}}
    with pytest.raises(RefusedError, match=r"is frozen since a day, and .* changed since \(definition.packages\)"):
        define({"path": RELEASE, "release": "2026-11-20", "records": records})
    assert define({"path": RELEASE, "release": "2026-11-20", "records": {"content": None}}) == found


def test_the_plugin_connects_to_no_host():
    assert release_definition.ActionModule._requires_connection is False
