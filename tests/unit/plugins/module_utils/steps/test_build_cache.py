# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import threading
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps import build_cache
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.build_cache import RECORD, origin_of, remove_unused
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.own_place import place_of
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.produced import examine

DIGEST = "ab" * 32
FACTS = {"step": "horovod", "release": "one", "host": "n1", "finished": "2026-11-20T02:12:09Z", "seconds": 12.5}


def nothing():
    """No heartbeat."""


class Release:
    """A release below a root, with a wheel, and a directory that has a program and a link."""

    def __init__(self, root, name):
        self.prefix = root / name
        self.place = place_of(str(self.prefix / ".torchstack" / "steps"))
        self.paths = [str(self.prefix / "wheels" / "a.whl"), str(self.prefix / "out put")]

    def make(self):
        (self.prefix / "wheels").mkdir(parents=True)
        (self.prefix / "wheels" / "a.whl").write_bytes(b"wheel")
        (self.prefix / "out put" / "bin").mkdir(parents=True)
        (self.prefix / "out put" / "bin" / "tool").write_bytes(b"#!/bin/sh\n")
        (self.prefix / "out put" / "bin" / "tool").chmod(0o755)
        (self.prefix / "out put" / "link").symlink_to("bin/tool")
        return self

    def examine(self):
        return examine(self.paths, self.place, [], nothing)

    def content(self):
        found = {}
        for path in sorted(self.prefix.rglob("*")):
            if path.is_symlink() or path.is_file():
                found[str(path.relative_to(self.prefix))] = (
                    os.readlink(str(path)) if path.is_symlink() else path.read_bytes(),
                    path.lstat().st_mode & 0o777 if not path.is_symlink() else 0)
        return found


@pytest.fixture(name="world")
def two_releases(tmp_path):
    """Where builds are kept, a release that has produced something, and one that has not."""
    root = tmp_path / "root"
    return str(root / ".torchstack" / "builds"), Release(root, "one").make(), Release(root, "two")


def keep(builds, release):
    return build_cache.store(builds, DIGEST, release.examine(), release.place, FACTS, nothing)


def take(builds, release, paths=None):
    return build_cache.restore(builds, DIGEST, paths or release.paths, release.place, nothing)


def test_what_was_kept_comes_to_another_release_as_it_was(world):
    builds, one, two = world
    assert keep(builds, one) == ""
    assert os.listdir(builds) == [DIGEST]
    produced, obstacle = take(builds, two)
    assert obstacle == ""
    assert two.content() == one.content()
    assert produced.digest == one.examine().digest == two.examine().digest
    assert origin_of(builds, DIGEST) == dict(FACTS, result=produced.digest)


def test_what_lies_there_of_an_earlier_attempt_goes(world):
    builds, one, two = world
    keep(builds, one)
    two.make()
    (two.prefix / "out put" / "stale").write_text("")
    (two.prefix / "wheels" / "other.whl").write_text("not this step's")
    assert take(builds, two)[1] == ""
    assert two.content() == dict(one.content(), **{"wheels/other.whl": (b"not this step's", 0o644)})


def damage_content(entry):
    (entry / "2").write_bytes(b"wheeL")


def damage_record(entry):
    (entry / RECORD).write_text("{")


def lose_file(entry):
    (entry / "2").unlink()


def lose_record(entry):
    (entry / RECORD).unlink()


def edit(change):
    def editor(entry):
        record = json.loads((entry / RECORD).read_text())
        change(record)
        (entry / RECORD).write_text(json.dumps(record))
    return editor


DAMAGES = {
    "content": damage_content, "no JSON": damage_record, "a file lost": lose_file, "no record": lose_record,
    "another path": edit(lambda record: record["files"][2].update(path="../b.whl")),
    "an absolute path": edit(lambda record: record["files"][2].update(path="/tmp/b.whl")),
    "a link elsewhere": edit(lambda record: record["files"][1].update(link="/etc/passwd")),
    "fewer files": edit(lambda record: record["files"].pop(0)),
    "no wheel": edit(lambda record: record["files"].pop(2)),
    "another digest": edit(lambda record: record.update(digest="cd" * 32)),
    "another result": edit(lambda record: record.update(result="cd" * 32)),
    "a program made one": edit(lambda record: record["files"][2].update(mode="0755")),
    "not a record": edit(lambda record: record.update(files="none")),
}


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_a_damaged_entry_is_never_used_not_even_in_part(world, tmp_path, damage):
    builds, one, two = world
    assert [entry["path"] for entry in one.examine().files] == ["out put/bin/tool", "out put/link", "wheels/a.whl"]
    keep(builds, one)
    DAMAGES[damage](tmp_path / "root" / ".torchstack" / "builds" / DIGEST)
    produced, obstacle = take(builds, two)
    assert produced is None and "was not taken over" in obstacle
    assert two.content() == {}


def test_an_empty_directory_serves_nothing(world):
    builds, _one, two = world
    assert take(builds, two) == (None, "nothing is kept of another release for these inputs")
    assert origin_of(builds, DIGEST) is None


def test_what_another_step_produced_is_not_served(world):
    builds, one, two = world
    keep(builds, one)
    assert "other files" in take(builds, two, two.paths[:1])[1]
    assert "it lacks more" in take(builds, two, [*two.paths, str(two.prefix / "more")])[1]
    assert two.content() == {}


def test_a_bad_entry_is_replaced_by_the_next_success(world):
    builds, one, two = world
    keep(builds, one)
    lose_record(one.prefix.parent / ".torchstack" / "builds" / DIGEST)
    assert keep(builds, one) == ""
    assert take(builds, two)[1] == ""
    assert os.listdir(builds) == [DIGEST]


def test_what_changes_while_it_is_kept_is_not_kept(world):
    builds, one, _two = world
    produced = one.examine()
    (one.prefix / "wheels" / "a.whl").write_bytes(b"another")
    said = build_cache.store(builds, DIGEST, produced, one.place, FACTS, nothing)
    assert said == "nothing was kept for other releases: wheels/a.whl was changed meanwhile"
    assert os.listdir(builds) == []


def test_a_directory_that_cannot_be_written_is_said_and_nothing_else(world):
    _builds, one, _two = world
    (one.prefix / "file").write_text("")
    assert "nothing was kept" in keep(str(one.prefix / "file" / "builds"), one)


def test_what_a_killed_store_left_is_removed_after_a_day(world):
    builds, one, _two = world
    old, new = (os.path.join(builds, ".incoming-%s-host-%d" % (DIGEST, number)) for number in (1, 2))
    os.makedirs(old)
    os.makedirs(new)
    long_ago = time.time() - 90000
    os.utime(old, (long_ago, long_ago))
    keep(builds, one)
    assert sorted(os.listdir(builds)) == sorted([os.path.basename(new), DIGEST])


def test_many_that_keep_and_take_the_same_at_once_see_whole_entries_only(world, monkeypatch):
    builds, one, _two = world
    others = [Release(one.prefix.parent, "n%d" % number) for number in range(4)]
    said, taken = [], []
    # As if each were a process of its own.
    monkeypatch.setattr(build_cache.os, "getpid", threading.get_ident)

    def work(release):
        said.append(keep(builds, one))
        produced, obstacle = take(builds, release)
        taken.append((release, produced, obstacle))

    for _round in range(5):
        threads = [threading.Thread(target=work, args=(release,)) for release in others]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for release, produced, obstacle in taken:
        # An entry may be replaced under somebody who reads it; he builds then, and has nothing of it.
        assert produced is None or (produced.digest == one.examine().digest and obstacle == "")
        assert release.content() in ({}, one.content())
    assert any(produced is not None for _release, produced, _obstacle in taken)
    assert set(said) == {""}
    assert os.listdir(builds) == [DIGEST]


def test_an_entry_that_no_release_has_goes_when_nobody_has_used_it_for_a_month(world):
    builds, one, two = world
    root = str(one.prefix.parent)
    keep(builds, one)
    now = time.time()
    assert remove_unused(builds, root, now + 29 * 86400) == []
    stamp = one.prefix / ".torchstack" / "steps" / "horovod" / "stamp.json"
    stamp.parent.mkdir(parents=True)
    stamp.write_text(json.dumps({"digest": DIGEST}))
    assert remove_unused(builds, root, now + 31 * 86400) == []
    stamp.unlink()
    old = now - 40 * 86400
    os.utime(os.path.join(builds, DIGEST), (old, old))
    take(builds, two)
    assert remove_unused(builds, root, time.time()) == [], "to take it over is to use it"
    os.utime(os.path.join(builds, DIGEST), (old, old))
    assert remove_unused(builds, str(one.prefix), now) == [], "another root's"
    assert remove_unused(builds, root, now) == [DIGEST]
    assert os.listdir(builds) == []


def test_long_copies_keep_the_heartbeat(world):
    builds, one, two = world
    beats = []
    build_cache.store(builds, DIGEST, one.examine(), one.place, FACTS, lambda: beats.append(1))
    assert len(beats) == 2
    build_cache.restore(builds, DIGEST, two.paths, two.place, lambda: beats.append(1))
    assert len(beats) == 4
