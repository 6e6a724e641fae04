# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The records of a release on disk."""

from __future__ import annotations

import json
import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.release import records as release_records
from ansible_collections.hpcml.torchstack.plugins.module_utils.release.records import ReleaseFiles


@pytest.fixture()
def files(tmp_path):
    return ReleaseFiles(str(tmp_path), "2026-11-20")


def test_a_root_without_the_release_has_no_records(files):
    assert release_records.read(files) == {
        "content": None, "frozen": None, "freezing": None, "thawed": None, "retired": None, "subject": "",
        "partitions": {},
    }


def test_an_opened_release_has_its_directories_and_its_text(files):
    missing = release_records.planned_directories(files)
    release_records.open_release(files, "release: x\n", missing)
    assert release_records.planned_directories(files) == []
    assert release_records.read(files)["content"] == "release: x\n"


def test_a_freeze_is_read_back(files):
    os.makedirs(files.afterwards)
    release_records.record_freeze(files, {"digest": "d"})
    assert release_records.read(files)["frozen"] == {"digest": "d"}


def test_a_freeze_that_began_is_known_until_it_is_recorded(files):
    os.makedirs(files.afterwards)
    release_records.begin_freeze(files, {"digest": "d"})
    assert release_records.read(files)["freezing"] == {"digest": "d"}
    release_records.record_freeze(files, {"digest": "d"})
    assert release_records.read(files)["freezing"] is None
    assert os.listdir(files.afterwards) == ["frozen.json"]


def test_a_release_that_is_opened_again_forgets_a_freeze_that_began(files):
    release_records.open_release(files, "x", release_records.planned_directories(files))
    release_records.begin_freeze(files, {"digest": "d"})
    release_records.open_release(files, "y", [])
    found = release_records.read(files)
    assert (found["content"], found["frozen"], found["freezing"]) == ("y", None, None)


def test_a_freeze_that_cannot_be_recorded_says_what_was_changed(files):
    with pytest.raises(StackError) as caught:
        release_records.begin_freeze(files, {"digest": "d"})
    assert "nothing of the release was changed" in caught.value.remedy


def test_a_broken_record_is_refused_and_named(files):
    os.makedirs(files.afterwards)
    with open(files.frozen, "w") as stream:
        stream.write("{")
    with pytest.raises(StackError) as caught:
        release_records.read(files)
    assert caught.value.path == files.frozen
    assert caught.value.remedy


def test_a_file_where_the_release_should_be_stops_the_opening(files):
    with open(files.prefix, "w") as stream:
        stream.write("")
    with pytest.raises(StackError) as caught:
        release_records.open_release(files, "x", release_records.planned_directories(files))
    assert caught.value.failed_step == "open"


def test_records_of_steps_and_roles_are_collected_long_ones_in_short_and_broken_ones_named(files):
    release_records.open_release(files, "x", release_records.planned_directories(files))
    for path, text in {
        "%s/.torchstack/steps/horovod/stamp.json" % files.prefix: '{"seconds": 3}',
        "%s/.torchstack/pytorch.json" % files.prefix: '{"version": "2"}',
        "%s/acceptance.json" % files.afterwards: '{"passed": true}',
        "%s/broken.json" % files.afterwards: "{",
        "%s/.torchstack/manifest.json" % files.prefix: '{"entries": []}',
        "%s/.torchstack/verification.json" % files.prefix: '{"objects": {"a": {"needed": {}}}, "rules": {}}',
        "%s/.torchstack/imports.json" % files.prefix: '{"modules": []}',
    }.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as stream:
            stream.write(text)
    found = release_records.collect(files)
    unreadable = found.pop("unreadable")
    assert [os.path.basename(said.split()[0]) for said in unreadable] == ["imports.json", "broken.json"]
    assert "not as it was written" in unreadable[0]
    assert found == {
        "steps": {"horovod": {"seconds": 3}},
        "build": {"pytorch": {"version": "2"}, "verification": {"objects": 1, "providers": [], "allowed": []}},
        "afterwards": {"acceptance": {"passed": True}},
    }


def test_of_many_nodes_a_summary_gets_what_was_found_and_not_what_was_seen(files):
    os.makedirs(files.afterwards)
    node = {"host": "n1", "facts": {"gpus": ["much"] * 8}, "findings": [], "not_seen": []}
    texts = {
        "node_health": {"passed": True, "nodes": [node], "findings": []},
        "sweep": {"hosts": ["n1", "n2"], "measured": [["n1", "n2", 20.0]], "repeated": [], "slow_nodes": []},
        "report": {"title": "much"},
    }
    for name, record in texts.items():
        with open(os.path.join(files.afterwards, name + ".json"), "w", encoding="utf-8") as stream:
            json.dump(record, stream)
    found = release_records.collect(files)["afterwards"]
    assert found["node_health"]["nodes"] == [{"host": "n1", "findings": [], "not_seen": []}]
    assert found["sweep"] == {"hosts": ["n1", "n2"], "measured": 1, "slow_nodes": []}
    assert found["report"] == {"there": True}


def test_the_subject_of_acceptances_stays_until_a_thaw_has_changed_files(files):
    frozen = {"digest": "asked", "manifest": {"digest": "m1", "files": 3}}
    assert release_records.subject_of(None) == ""
    assert release_records.subject_of(frozen) == release_records.subject_of(dict(frozen, last_thaw=1)) == "asked"
    once = release_records.subject_of(dict(frozen, thawed=1, manifest={"digest": "m2"}))
    twice = release_records.subject_of(dict(frozen, thawed=2, manifest={"digest": "m3"}))
    assert len({"asked", once, twice}) == 3


def test_a_thaw_that_is_open_is_read_back(files):
    os.makedirs(files.afterwards)
    with open(files.thawed, "w", encoding="utf-8") as stream:
        json.dump({"paths": ["x"]}, stream)
    assert release_records.read(files)["thawed"] == {"paths": ["x"]}


@pytest.mark.parametrize(("error", "words"), [
    (PermissionError(13, "Permission denied"), "Run this as the account that owns the root, or name another root."),
    (NotADirectoryError(20, "Not a directory"), "Name a root that is a directory."),
])
def test_records_that_this_account_may_not_read_are_not_damaged(files, monkeypatch, error, words):
    def refuse(*_arguments, **_options):
        raise error

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(StackError) as caught:
        release_records.read(files)
    assert caught.value.remedy == words and error.strerror + "." in caught.value.message


def test_a_damaged_record_is_restored_or_the_release_is_removed(files):
    os.makedirs(files.afterwards)
    with open(files.frozen, "w", encoding="utf-8") as stream:
        stream.write("{")
    with pytest.raises(StackError) as caught:
        release_records.read(files)
    assert "remove the release" in caught.value.remedy


def test_the_partitions_of_a_site_are_recorded_once_and_what_happened_on_each_is_collected(files):
    wanted = {"a100": {}, "l40s": {"optional": "It is new."}}
    assert not release_records.write_partitions(files, {}, check=False) and not os.path.exists(files.afterwards)
    assert release_records.write_partitions(files, wanted, check=True) and not os.path.exists(files.afterwards)
    assert release_records.write_partitions(files, wanted, check=False)
    assert not release_records.write_partitions(files, wanted, check=False)
    os.makedirs(os.path.join(files.afterwards, "partitions", "a100"))
    with open(os.path.join(files.afterwards, "partitions", "a100", "acceptance.json"), "w") as stream:
        stream.write('{"passed": true}')
    found = release_records.collect(files)
    assert found["partitions"] == {"a100": {"acceptance": {"passed": True}}} and not found["unreadable"]
    assert found["afterwards"] == {"partitions": wanted}
    assert release_records.write_partitions(files, {}, check=False) and not os.path.exists(files.partitions)


def frozen_release(root, name, when, **steps):
    """A frozen release whose steps have these stamps."""
    afterwards = root / ".torchstack" / name
    afterwards.mkdir(parents=True)
    (afterwards / "frozen.json").write_text(json.dumps({"digest": "d", "frozen_at": when}))
    for step, stamp in steps.items():
        place = root / name / ".torchstack" / "steps" / step
        place.mkdir(parents=True)
        (place / "stamp.json").write_text(stamp if isinstance(stamp, str) else json.dumps(stamp))


def test_how_long_steps_take_is_told_by_the_release_that_was_frozen_last_and_by_what_it_took_over(tmp_path, files):
    assert release_records.last_durations(files) == {}
    frozen_release(tmp_path, "2026-09-01", "2026-09-02T00:00:00Z", horovod={"seconds": 1.0})
    frozen_release(
        tmp_path, "2026-08-01", "2026-10-02T00:00:00Z", pytorch={"seconds": 20.5}, base="damaged",
        mpi={"seconds": None}, horovod={
            "seconds": 0.0, "from_cache": True, "taken_over": {"release": "2026-09-01", "seconds": 473.0}})
    frozen_release(tmp_path, files.release, "2026-11-20T00:00:00Z", horovod={"seconds": 2.0})
    frozen_release(tmp_path, "removed", "2026-11-19T00:00:00Z")
    assert release_records.last_durations(files) == {
        "release": "2026-08-01", "seconds": {"pytorch": 20.5, "horovod": 473.0}}
