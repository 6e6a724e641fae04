# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The journal: before or after, whatever happens in between. Whole runs that are killed are in tests/modules.

Covers transaction, series_record and source_files, too.
"""

from __future__ import annotations

import os
import stat

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches import journal, series_record, transaction
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.journal import Change, Journal
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.series_record import Place
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.source_files import (
    TreeFile,
    directories_of,
    directories_to_drop,
    missing_directories,
    open_directory,
    read_tree_file,
)

WISH = {"series_digest": "x", "state": "present", "strip": 1}
RECORD = {"format": series_record.FORMAT, "applied": 1}


@pytest.fixture()
def place(tmp_path):
    src = tmp_path / "src"
    (src / "old").mkdir(parents=True)
    (src / "edit").write_bytes(b"before\n")
    (src / "old" / "gone").write_bytes(b"gone\xff\n")
    for path in ("edit", "old/gone"):
        (src / path).chmod(0o640)
    found = Place(str(src), str(tmp_path / "a" / "state"))
    with series_record.locked(found):
        return found


def sample_journal(previous=None):
    return Journal(
        "0123456789ab", WISH,
        (
            Change(b"edit", TreeFile(b"before\n", 0o640), TreeFile(b"after\n", 0o750)),
            Change(b"new/\xe9", None, TreeFile(b"new\n", 0o644)),
            Change(b"old/gone", TreeFile(b"gone\xff\n", 0o640), None),
        ),
        ((b"new", 0o755),), ((b"old", 0o750),), RECORD, previous,
    )


def write_record(place, record):
    with open_directory(place.state_dir, b"") as directory:
        series_record.stage_record(directory, place, record)
        series_record.commit_record(directory, place, record)


def entries(place):
    """Every path below the tree with its content and mode."""
    found = {}
    for folder, folders, files in os.walk(place.src):
        for name in folders + files:
            path = os.path.join(folder, name)
            content = None
            if name in files:
                with open(path, "rb") as stream:
                    content = stream.read()
            found[os.path.relpath(path, place.src)] = (content, stat.S_IMODE(os.lstat(path).st_mode))
    return found


AFTER = {b"edit": (b"after\n", 0o750), b"new": (None, 0o755), b"new/\xe9": (b"new\n", 0o644)}


def is_open(place):
    return journal.has_open_journal(os.fsdecode(place.src), os.fsdecode(place.state_dir))


def test_a_change_is_carried_out_recorded_and_closed(place):
    transaction.commit(place, sample_journal())
    assert entries(place) == AFTER
    assert series_record.read_record(place) == RECORD
    assert not is_open(place)


def test_a_journal_survives_the_disk_byte_for_byte(place):
    journal.write_journal(place, sample_journal(RECORD))
    assert is_open(place)
    assert journal.read_journal(place) == sample_journal(RECORD)


@pytest.mark.parametrize("desired, direction", [(WISH, "forward"), (dict(WISH, state="absent"), "back")])
@pytest.mark.parametrize("torn", [[], [b"edit"], [b"edit", b"new/\xe9"]])
def test_an_open_journal_is_completed_for_the_same_wish_and_undone_for_another(place, desired, direction, torn):
    os.chmod(os.path.join(place.src, b"old"), 0o750)
    before = entries(place)
    previous = dict(RECORD, applied=0)
    write_record(place, previous)
    journal.write_journal(place, sample_journal(previous))
    os.mkdir(os.path.join(place.src, b"new"))
    for path in torn:
        with open(os.path.join(place.src, path), "wb") as stream:
            stream.write({b"edit": b"after\n", b"new/\xe9": b"new\n"}[path])
    with open(os.path.join(place.src, b".torchstack-0123456789ab-0"), "wb") as stream:
        stream.write(b"half")
    half = entries(place)
    report, reconciled, record = transaction.recover(place, desired, check=True)
    assert entries(place) == half and is_open(place)
    assert transaction.recover(place, desired, check=False) == (report, reconciled, record)
    assert report == {"direction": direction, "files": ["edit", "new/\\xe9", "old/gone"]}
    assert entries(place) == (AFTER if direction == "forward" else before)
    assert series_record.read_record(place) == record == (RECORD if direction == "forward" else previous)
    assert not is_open(place)
    assert transaction.recover(place, desired, check=False) == (None, {}, record)


def test_undoing_the_very_first_change_leaves_no_record(place):
    journal.write_journal(place, sample_journal())
    write_record(place, RECORD)
    transaction.recover(place, {}, check=False)
    assert series_record.read_record(place) is None


def test_a_file_that_is_neither_before_nor_after_stops_everything_untouched(place):
    journal.write_journal(place, sample_journal())
    with open(os.path.join(place.src, b"old/gone"), "wb") as stream:
        stream.write(b"by hand\n")
    half = entries(place)
    with pytest.raises(StackError, match="old/gone is neither what it was") as caught:
        transaction.recover(place, WISH, check=False)
    assert place.journal in caught.value.remedy
    assert entries(place) == half and is_open(place)


def test_a_directory_with_something_else_in_it_stays(place):
    with open(os.path.join(place.src, b"old/other"), "wb") as stream:
        stream.write(b"mine\n")
    transaction.commit(place, sample_journal())
    assert b"old/other" in entries(place)


@pytest.mark.parametrize("name", ["journal", "record"])
@pytest.mark.parametrize("text", ["{", "[]", '{"format": 99}'])
def test_what_is_not_a_record_of_ours_is_refused_with_its_path(place, name, text):
    path = getattr(place, name)
    with open(path, "w") as stream:
        stream.write(text)
    with pytest.raises(StackError) as caught:
        transaction.recover(place, WISH, check=True)
    assert caught.value.path == path and caught.value.remedy


def test_trees_that_share_a_state_dir_do_not_share_a_journal(tmp_path):
    places = [Place(str(tmp_path / name / "src"), str(tmp_path / "state")) for name in ("one", "two")]
    assert places[0].journal != places[1].journal
    (tmp_path / "link").symlink_to(tmp_path / "one")
    assert Place(str(tmp_path / "link" / "src"), str(tmp_path / "state")).journal == places[0].journal


def test_a_second_run_is_kept_out_and_leavings_of_a_killed_one_are_cleared(place):
    leaving = os.path.join(place.state_dir, b"." + place.stem + b".journal.x1y2z3")
    with open(leaving, "wb"):
        pass
    with series_record.locked(place):
        assert not os.path.exists(leaving)
        with pytest.raises(StackError, match="Another run is patching"), series_record.locked(place):
            raise AssertionError("two runs at once")
    with series_record.locked(place):
        pass


@pytest.mark.parametrize("path", [b"link", b"dirlink/file", b"real"])
def test_links_and_directories_are_no_files_to_patch(tmp_path, path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("real/file")
    (tmp_path / "dirlink").symlink_to("real")
    with pytest.raises(StackError) as caught:
        read_tree_file(os.fsencode(str(tmp_path)), path)
    assert caught.value.failed_step == "read tree" and caught.value.details["file"] == path.decode()


def test_what_is_not_there_is_none_also_below_a_file(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    src = os.fsencode(str(tmp_path))
    assert [read_tree_file(src, path) for path in (b"none", b"no/ne", b"file/below")] == [None] * 3
    assert read_tree_file(src, b"file").content == b"x"


def test_directories_that_hold_only_created_files_are_the_series_own(tmp_path):
    for path in ("n/m/x", "n/y", "mixed/x", "mixed/other"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"")
    src = os.fsencode(str(tmp_path))
    created = [b"n/m/x", b"n/y", b"mixed/x"]
    assert directories_of(src, created) == [b"n", b"n/m"]
    assert [path for path, _mode in directories_to_drop(src, [b"n", b"n/m"], [b"n/y"])] == [b"n/m"]
    assert missing_directories(src, [b"n/y", b"p/q/r"]) == [(b"p", 0o755), (b"p/q", 0o755)]
