# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""log_archive as Ansible runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile

import pytest

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git command")


@pytest.fixture()
def site(tmp_path):
    """A release's steps, and where their archive belongs."""
    for step in ("base", "pytorch"):
        (tmp_path / "steps" / step).mkdir(parents=True)
        (tmp_path / "steps" / step / "log").write_text("log of %s\n" % step)
        (tmp_path / "steps" / step / "script.sh").write_text("#!/bin/sh\n")
        (tmp_path / "steps" / step / "script.sh").chmod(0o755)
    (tmp_path / "records").mkdir()
    return tmp_path


def arguments(site, **more):
    return dict({"steps": str(site / "steps"), "archive": str(site / "records" / "logs.tar.gz")}, **more)


def bare_repository(site):
    subprocess.run(["git", "init", "-q", "--bare", str(site / "logs.git")], check=True)
    return {"repository": str(site / "logs.git"), "subdirectory": "mysite/2026-11-20", "branch": "main"}


def git(site, *words):
    return subprocess.check_output(["git", "-C", str(site / "logs.git"), *words], universal_newlines=True)


@needs_git
def test_s09_check_do_check_again_do_again(run_module, site):
    asked = arguments(site, **bare_repository(site))
    place = site / "records" / "logs.tar.gz"
    planned = run_module("log_archive", asked, check=True, diff=True)
    assert planned.changed and not planned.failed and planned["commit"] is None
    assert not place.exists() and git(site, "for-each-ref") == ""
    assert git(site, "count-objects").startswith("0 objects")
    done = run_module("log_archive", asked, diff=True)
    assert done.changed
    assert planned.shown_difference == done.shown_difference
    assert "+logs/base/log (12 bytes)" in done.shown_difference
    assert "+A mysite/2026-11-20/base/log" in done.shown_difference
    for key in ("digest", "archive_changed", "files", "branch", "committed"):
        assert planned[key] == done[key], key
    assert git(site, "rev-parse", "main").strip() == done["commit"]
    with tarfile.open(str(place)) as archive:
        assert archive.extractfile("logs/pytorch/log").read() == b"log of pytorch\n"
    before = os.stat(str(place)).st_mtime_ns
    for check in (True, False):
        again = run_module("log_archive", asked, check=check, diff=True)
        assert not again.changed and not again.failed and again.shown_difference == []
        assert (again["digest"], again["commit"], again["committed"]) == (done["digest"], done["commit"], [])
    assert os.stat(str(place)).st_mtime_ns == before


def test_without_a_repository_only_the_archive_is_kept(run_module, site):
    first = run_module("log_archive", arguments(site))
    assert first.changed and "commit" not in first
    (site / "steps" / "base" / "log").write_text("another log\n" * 2)
    second = run_module("log_archive", arguments(site), diff=True)
    assert second.changed and second["digest"] != first["digest"]
    assert second.shown_difference == ["-logs/base/log (12 bytes)", "+logs/base/log (24 bytes)"]


@needs_git
def test_a_path_that_is_no_repository_is_refused_with_a_remedy_and_the_archive_is_kept(run_module, site):
    asked = arguments(site, repository=str(site / "records"), subdirectory="mysite/2026-11-20")
    result = run_module("log_archive", asked)
    assert result.failed and result["failed_step"] == "commit the logs"
    assert "is neither a bare git repository nor the top of a working tree" in result["msg"]
    assert "git init --bare" in result["remedy"]
    assert (site / "records" / "logs.tar.gz").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"archive": "{site}/steps/logs.tar.gz"}, "lies in the directory of the steps"),
        ({"archive": "{site}/nothing/logs.tar.gz"}, "does not exist"),
        ({"archive": "{site}/records/logs.zip"}, "is not the absolute path of a .tar.gz file"),
        ({"repository": "{site}/records"}, "subdirectory"),
        ({"repository": "{site}/records", "subdirectory": "../x"}, "is no directory in a repository"),
    ],
)
def test_bad_input_is_refused_and_nothing_written(run_module, site, change, words):
    result = run_module("log_archive", arguments(site, **{key: v.format(site=site) for key, v in change.items()}))
    assert result.failed and words in result["msg"]
    assert os.listdir(str(site / "records")) == []


def test_a_plan_for_logs_that_an_earlier_step_writes_names_that_step(run_module, site):
    later = arguments(site, steps=str(site / "later"), planned_after="build")
    planned = run_module("log_archive", later, check=True)
    assert planned.changed and planned["planned_after"] == "build"
    assert run_module("log_archive", later).failed
