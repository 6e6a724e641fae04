# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.artefacts import RECORD, restore, store

DIGEST = "ab" * 32


def nothing():
    """No heartbeat."""


@pytest.fixture(name="place")
def cache_and_artefacts(tmp_path):
    """A cache directory, and two files that a step created."""
    out = tmp_path / "out put"
    out.mkdir()
    (out / "a.whl").write_bytes(b"wheel")
    (out / "tool").write_bytes(b"#!/bin/sh\n")
    (out / "tool").chmod(0o755)
    return str(tmp_path / "cache"), [str(out / "a.whl"), str(out / "tool")]


def remove(paths):
    for path in paths:
        os.unlink(path)


def test_what_was_stored_comes_back_with_its_mode(place):
    cache, paths = place
    assert store(cache, DIGEST, paths, nothing) is None
    assert os.listdir(cache) == [DIGEST]
    remove(paths)
    assert restore(cache, DIGEST, paths, nothing) is None
    with open(paths[0], "rb") as stream:
        assert stream.read() == b"wheel"
    assert os.stat(paths[1]).st_mode & 0o777 == 0o755
    assert sorted(os.listdir(os.path.dirname(paths[0]))) == ["a.whl", "tool"]


def test_it_comes_back_to_a_directory_that_has_gone(place):
    cache, paths = place
    store(cache, DIGEST, paths, nothing)
    remove(paths)
    os.rmdir(os.path.dirname(paths[0]))
    assert restore(cache, DIGEST, paths, nothing) is None


def damage_content(entry):
    (entry / "1").write_bytes(b"#!/bin/rm\n")


def damage_record(entry):
    (entry / RECORD).write_text("{")


def lose_file(entry):
    (entry / "1").unlink()


def lose_record(entry):
    (entry / RECORD).unlink()


def rename_file(entry):
    record = json.loads((entry / RECORD).read_text())
    record["files"][0]["name"] = "../b.whl"
    (entry / RECORD).write_text(json.dumps(record))


@pytest.mark.parametrize("damage", [damage_content, damage_record, lose_file, lose_record, rename_file])
def test_a_damaged_entry_is_never_used_not_even_in_part(place, tmp_path, damage):
    cache, paths = place
    store(cache, DIGEST, paths, nothing)
    remove(paths)
    damage(tmp_path / "cache" / DIGEST)
    assert "was not used" in restore(cache, DIGEST, paths, nothing)
    assert os.listdir(os.path.dirname(paths[0])) == []


def test_an_empty_cache_serves_nothing(place):
    cache, paths = place
    assert "nothing for this digest" in restore(cache, DIGEST, paths, nothing)


def test_other_artefacts_than_the_stored_ones_are_not_served(place):
    cache, paths = place
    store(cache, DIGEST, paths, nothing)
    assert "other files" in restore(cache, DIGEST, paths[:1], nothing)


def test_a_bad_entry_is_replaced_by_the_next_success(place, tmp_path):
    cache, paths = place
    store(cache, DIGEST, paths, nothing)
    damage_content(tmp_path / "cache" / DIGEST)
    assert store(cache, DIGEST, paths, nothing) is None
    remove(paths)
    assert restore(cache, DIGEST, paths, nothing) is None
    assert os.listdir(cache) == [DIGEST]


def test_only_plain_files_are_kept(place, tmp_path):
    cache, paths = place
    assert "not a plain file" in store(cache, DIGEST, [str(tmp_path)], nothing)
    (tmp_path / "link").symlink_to(paths[0])
    assert "not a plain file" in store(cache, DIGEST, [str(tmp_path / "link")], nothing)
    assert "creates no file" in store(cache, DIGEST, [], nothing)
    assert not os.path.exists(cache)


def test_a_cache_that_cannot_be_written_is_said_and_nothing_else(place, tmp_path):
    _cache, paths = place
    (tmp_path / "file").write_text("")
    assert "nothing was cached" in store(str(tmp_path / "file" / "cache"), DIGEST, paths, nothing)


def test_what_a_killed_store_left_is_removed_after_a_day(place, tmp_path):
    cache, paths = place
    old, new = (tmp_path / "cache" / (".incoming-%s-host-%d" % (DIGEST, number)) for number in (1, 2))
    old.mkdir(parents=True)
    new.mkdir()
    long_ago = time.time() - 90000
    os.utime(str(old), (long_ago, long_ago))
    store(cache, DIGEST, paths, nothing)
    assert sorted(os.listdir(cache)) == sorted([new.name, DIGEST])


def test_long_copies_keep_the_heartbeat(place):
    cache, paths = place
    beats = []
    store(cache, DIGEST, paths, lambda: beats.append(1))
    assert len(beats) == 2
