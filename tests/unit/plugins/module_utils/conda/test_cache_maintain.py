# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A shared package cache: who may do what with it, what conda knows of it, and what is removed when."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda import cache_maintain as conda_cache_keeping
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import rollout_lock as lock
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError

DIGEST = "ab" * 32
LEFT = ".scipy-1.0-0aB3dE9"


@pytest.fixture()
def root(tmp_path):
    """A root with a release that uses numpy, and a cache that holds scipy, too."""
    root = tmp_path / "root"
    for stem in ("numpy-1.26-0", "scipy-1.0-0"):
        entry(root, stem)
    record(root / "2026-11-20" / "base", "numpy-1.26-0")
    return root


def cache_of(root):
    return root / ".torchstack" / "conda-pkgs"


def entry(root, stem, digest=DIGEST):
    """An entry as py-rattler leaves it, with this collection's note."""
    cache = cache_of(root)
    for directory in (cache / stem / "info", cache / stem / "lib", cache / ".checked"):
        directory.mkdir(parents=True, exist_ok=True)
    (cache / stem / "info" / "index.json").write_text("{}")
    (cache / stem / "lib" / "data").write_bytes(b"x" * 1000)
    (cache / ".checked" / stem).write_text(digest)
    (cache / (stem + ".lock")).write_bytes(b"\0" * 8 + bytes.fromhex(digest))


def record(prefix, stem, **more):
    """The record of an installed package."""
    name, version, build = stem.rsplit("-", 2)
    (prefix / "conda-meta").mkdir(parents=True, exist_ok=True)
    found = {
        "name": name, "version": version, "build": build, "sha256": DIGEST, "url": "file:///c/%s.conda" % stem,
        "channel": "file:///c", "files": ["lib/data"], "paths_data": {"paths": []}, "link": {"source": "x"},
        "requested_spec": name,
    }
    found.update(more)
    (prefix / "conda-meta" / (stem + ".json")).write_text(json.dumps(found))


def left_over(root, name=LEFT):
    (cache_of(root) / name / "lib").mkdir(parents=True)
    (cache_of(root) / name / "lib" / "half").write_bytes(b"y" * 500)


def keep(root, leftovers=True, unused=True, days=0, apply=True, release="2026-11-20"):
    cache = conda_cache_keeping.Cache(str(cache_of(root)), str(root), release, apply)
    return conda_cache_keeping.as_result(cache.keep(leftovers, unused, days))


def everything(root):
    """Each path with what must not change in check mode."""
    return sorted(
        (str(path), found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
        for path in root.rglob("*") for found in [os.lstat(path)]
    )


def test_a_cache_is_made_readable_for_all_and_writable_for_its_owner_whatever_the_umask(tmp_path):
    (tmp_path / ".torchstack").mkdir()
    old = os.umask(0o077)
    try:
        assert keep(tmp_path, apply=False)["made"] and not cache_of(tmp_path).exists()
        assert keep(tmp_path)["made"]
    finally:
        os.umask(old)
    assert stat.S_IMODE(cache_of(tmp_path).stat().st_mode) == 0o755
    assert not keep(tmp_path)["changed"]


def test_the_cache_takes_setgid_from_the_root_and_keeps_it(tmp_path):
    (tmp_path / ".torchstack").mkdir()
    os.chmod(tmp_path / ".torchstack", 0o2775)
    keep(tmp_path)
    assert stat.S_IMODE(cache_of(tmp_path).stat().st_mode) == 0o2755
    os.chmod(cache_of(tmp_path), 0o2770)
    assert keep(tmp_path)["changed_directories"] == 1
    assert stat.S_IMODE(cache_of(tmp_path).stat().st_mode) == 0o2755


def test_others_lose_what_they_may_write_and_get_what_they_may_read(root):
    keep(root)
    cache = cache_of(root)
    lib = cache / "numpy-1.26-0" / "lib"
    (lib / "tool").write_text("")
    for path, mode in (
        (cache, 0o777), (lib, 0o700), (lib / "data", 0o660), (lib / "tool", 0o770), (cache / "scipy-1.0-0.lock", 0o600)
    ):
        os.chmod(path, mode)
    planned = keep(root, apply=False)
    assert (planned["changed_files"], planned["changed_directories"]) == (3, 2)
    assert stat.S_IMODE(cache.stat().st_mode) == 0o777
    assert keep(root)["changed"]
    found = [
        stat.S_IMODE(path.stat().st_mode)
        for path in (cache, lib, lib / "data", lib / "tool", cache / "scipy-1.0-0.lock")
    ]
    assert found == [0o755, 0o755, 0o644, 0o755, 0o644]
    assert not keep(root)["changed"]


def test_files_that_a_frozen_release_shares_stay_frozen(root):
    keep(root)
    shared = cache_of(root) / "numpy-1.26-0" / "lib" / "data"
    os.link(shared, root / "2026-11-20" / "base" / "data")
    os.chmod(shared, 0o444)
    assert not keep(root)["changed"]
    assert stat.S_IMODE(shared.stat().st_mode) == 0o444


def test_a_cache_that_is_a_link_is_refused(root, tmp_path):
    os.rename(cache_of(root), tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", cache_of(root))
    with pytest.raises(StackError, match="is a symbolic link"):
        keep(root)


def test_a_cache_that_is_a_file_is_refused(root):
    shutil.rmtree(cache_of(root))
    cache_of(root).write_text("")
    with pytest.raises(StackError, match=r"Cannot keep .*conda-pkgs in order"):
        keep(root)
    assert cache_of(root).read_text() == ""


def test_conda_learns_where_each_used_entry_came_from(root):
    assert keep(root, apply=False)["described"] == ["urls.txt", "numpy-1.26-0"]
    assert keep(root)["described"] == ["urls.txt", "numpy-1.26-0"]
    found = json.loads((cache_of(root) / "numpy-1.26-0" / "info" / "repodata_record.json").read_text())
    assert found == {
        "name": "numpy", "version": "1.26", "build": "0", "sha256": DIGEST, "url": "file:///c/numpy-1.26-0.conda",
        "channel": "file:///c",
    }
    assert (cache_of(root) / "urls.txt").read_text() == ""
    assert not (cache_of(root) / "scipy-1.0-0" / "info" / "repodata_record.json").exists()
    assert keep(root)["described"] == []


def test_an_entry_that_is_another_archive_than_the_releases_is_not_described(root):
    record(root / "2026-11-20" / "base", "numpy-1.26-0", sha256="cd" * 32)
    assert keep(root)["described"] == ["urls.txt"]
    record(root / "2026-12-01" / "base", "numpy-1.26-0")
    assert keep(root)["described"] == ["numpy-1.26-0"]


def test_what_no_release_needs_is_listed_with_sizes_and_kept_unless_asked(root):
    left_over(root)
    for kept in (keep(root, apply=False), keep(root), keep(root)):
        assert (kept["entries"], kept["used"]) == (2, 1)
        assert kept["unused"] == [{"name": "scipy-1.0-0", "bytes": 2 + 1000 + 64 + 40, "days": 0}]
        assert kept["leftovers"] == [{"name": LEFT, "bytes": 500, "days": 0}]
        assert kept["removed"] == [] and kept["postponed"] == ""
    assert not kept["changed"]


def test_check_mode_says_what_it_would_remove_and_writes_nothing(root):
    left_over(root)
    before = everything(root)
    planned = keep(root, leftovers=False, unused=False, apply=False)
    assert [item["name"] for item in planned["removed"]] == [LEFT, "scipy-1.0-0"]
    assert planned["removed_bytes"] == 500 + 1106 and planned["changed"]
    assert everything(root) == before


def test_removing_takes_all_of_an_entry_and_nothing_of_the_others(root):
    left_over(root)
    (cache_of(root) / "scipy-1.0-0.conda").write_text("archive")
    (cache_of(root) / "numpy-1.26-0.conda").write_text("archive")
    (cache_of(root) / "torch-2.0-0.conda.partial").write_text("half")
    (cache_of(root) / "repodata").mkdir()
    (cache_of(root) / ".checked" / ".numpy-1.26-0.x7a_b2c9").write_text("half")
    done = keep(root, leftovers=False, unused=False)
    assert {item["name"] for item in done["removed"]} == {
        LEFT, "scipy-1.0-0", "torch-2.0-0.conda.partial", ".checked/.numpy-1.26-0.x7a_b2c9",
    }
    assert sorted(path.name for path in cache_of(root).iterdir()) == [
        ".cache.lock", ".checked", "numpy-1.26-0", "numpy-1.26-0.conda", "numpy-1.26-0.lock", "repodata", "urls.txt",
    ]
    assert sorted(path.name for path in (cache_of(root) / ".checked").iterdir()) == ["numpy-1.26-0"]
    assert not keep(root, leftovers=False, unused=False)["changed"]


def test_an_archive_without_entry_is_unused_too(root):
    shutil.rmtree(cache_of(root) / "scipy-1.0-0")
    (cache_of(root) / "old-1-0.tar.bz2").write_text("archive")
    done = keep(root, unused=False)
    assert [item["name"] for item in done["removed"]] == ["old-1-0"]


def test_the_packages_of_every_release_below_the_root_are_in_use(root):
    record(root / "2026-12-01", "scipy-1.0-0")
    assert keep(root, unused=False)["removed"] == []
    shutil.rmtree(root / "2026-12-01")
    assert [item["name"] for item in keep(root, unused=False)["removed"]] == ["scipy-1.0-0"]


def test_young_packages_are_kept_as_long_as_the_policy_says(root):
    assert keep(root, unused=False, days=1)["removed"] == []
    assert len(keep(root, unused=False, days=0)["removed"]) == 1


def held(root, release, **changes):
    """Another rollout's lock, by this living process."""
    directory = root / ".torchstack" / release
    directory.mkdir(parents=True, exist_ok=True)
    holder = dict(lock.describe_process(os.getpid(), "site.yml"), **changes)
    lock.acquire(str(directory / "lock.json"), holder, lock.this_place())


@pytest.mark.parametrize("changes", [{}, {"host": "login-02"}], ids=["alive", "on another host"])
def test_nothing_is_removed_while_another_release_is_rolled_out(root, changes):
    held(root, "2026-12-01", **changes)
    left_over(root)
    before = everything(root)
    for apply in (False, True):
        kept = keep(root, leftovers=False, unused=False, apply=apply)
        assert kept["removed"] == []
        assert "Nothing was removed" in kept["postponed"] and "release 2026-12-01 is being rolled out by" in kept[
            "postponed"
        ]
        if not apply:
            assert everything(root) == before
    assert (cache_of(root) / LEFT).is_dir() and (cache_of(root) / "scipy-1.0-0").is_dir()


def test_the_own_rollout_and_one_that_died_do_not_count(root):
    held(root, "2026-11-20")
    held(root, "2026-12-01", start_time="1")
    assert len(keep(root, unused=False)["removed"]) == 1


def test_a_lock_that_cannot_be_read_counts_as_another_rollout(root):
    (root / ".torchstack" / "2026-12-01").mkdir()
    (root / ".torchstack" / "2026-12-01" / "lock.json").write_text("{")
    assert "cannot be read" in keep(root, unused=False)["postponed"]


def test_nothing_is_removed_while_packages_are_installed_out_of_the_cache(root):
    with open(cache_of(root) / ".cache.lock", "w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        for apply in (False, True):
            kept = keep(root, unused=False, apply=apply)
            assert kept["removed"] == [] and "being installed out of it" in kept["postponed"]
    assert len(keep(root, unused=False)["removed"]) == 1


def test_an_interrupted_removal_leaves_a_left_over_and_never_half_an_entry(root, monkeypatch):
    def killed(_path):
        raise KeyboardInterrupt

    monkeypatch.setattr(conda_cache_keeping.shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        keep(root, unused=False)
    monkeypatch.undo()
    assert not (cache_of(root) / "scipy-1.0-0").exists()
    again = keep(root, leftovers=False)
    assert [item["bytes"] for item in again["removed"]] == [1002]
    assert sorted(path.name for path in cache_of(root).iterdir()) == [
        ".cache.lock", ".checked", "numpy-1.26-0", "numpy-1.26-0.lock", "urls.txt",
    ]


def test_a_release_whose_records_cannot_be_read_is_an_error_before_anything_is_removed(root):
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    os.chmod(root / "2026-11-20" / "base" / "conda-meta", 0)
    with pytest.raises(StackError, match=r"Cannot read .*conda-meta"):
        keep(root, unused=False)
    os.chmod(root / "2026-11-20" / "base" / "conda-meta", 0o755)
    assert (cache_of(root) / "numpy-1.26-0").is_dir() and (cache_of(root) / "scipy-1.0-0").is_dir()


def test_the_difference_shows_modes_what_conda_learns_and_what_goes(root):
    keep(root)
    left_over(root)
    os.chmod(cache_of(root) / "numpy-1.26-0", 0o775)
    cache = conda_cache_keeping.Cache(str(cache_of(root)), str(root), "", False)
    shown = conda_cache_keeping.render(cache.path, cache.keep(False, True, 0))
    assert shown["before"] == "0775 numpy-1.26-0\n%s (500 bytes)\n" % LEFT
    assert shown["after"] == "0755 numpy-1.26-0\n"
