# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Records of a step that had secrets are its owner's only, where the site says so: built, frozen, archived."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import types

import pytest

SECRET = "hunter2hunter2"


def mode(path):
    return stat.S_IMODE(os.lstat(str(path)).st_mode)


@pytest.fixture()
def release(run_module, tmp_path):
    """Run steps of a release, and freeze and archive it as the role freeze does."""
    prefix = tmp_path / "root" / "2026-11-20"
    steps = prefix / ".torchstack" / "steps"
    steps.mkdir(parents=True)
    (tmp_path / "records").mkdir()

    def step(name, **options):
        result = run_module(
            "build_step", {"name": name, "state_dir": str(steps), "script": "echo built", **options},
            environment={"MODEL_TOKEN": SECRET})
        assert "| FAILED! =>" not in result.console, result.console
        return result

    def freeze(check=False):
        return run_module("tree_permissions", {
            "path": str(prefix), "root": str(prefix.parent), "state": "frozen",
            "keep_private": [".torchstack/steps/*"]}, check=check)

    def archive(**more):
        return run_module(
            "log_archive", {"steps": str(steps), "archive": str(tmp_path / "records" / "logs.tar.gz"), **more})

    yield types.SimpleNamespace(
        prefix=prefix, steps=steps, step=step, freeze=freeze, archive=archive,
        packed=tmp_path / "records" / "logs.tar.gz", top=tmp_path)
    subprocess.run(["chmod", "-R", "u+rwX", str(tmp_path)], check=True)


def test_a_step_with_secrets_is_its_owners_only_from_its_first_line_on(release):
    seen = release.top / "seen"
    release.step(
        "model", secrets=["MODEL_TOKEN"], private_logs=True,
        script="stat -c %%a %s > %s" % (release.steps / "model", seen))
    assert seen.read_text().strip() == "700" and mode(release.steps / "model") == 0o700


def test_where_the_site_does_not_say_so_and_without_secrets_everybody_reads_the_log(release):
    release.step("model", secrets=["MODEL_TOKEN"])
    release.step("plain", private_logs=True)
    assert [mode(release.steps / name) for name in ("model", "plain")] == [0o755, 0o755]
    release.freeze()
    assert release.archive()["private"] == [] and mode(release.packed) == 0o644


def test_who_reads_the_log_is_no_part_of_the_digest(release):
    first = release.step("model", secrets=["MODEL_TOKEN"])
    again = release.step("model", secrets=["MODEL_TOKEN"], private_logs=True)
    assert not again.changed and again["digest"] == first["digest"]


def test_a_release_is_frozen_for_everybody_but_for_such_a_step(release):
    release.step("model", secrets=["MODEL_TOKEN"], private_logs=True)
    release.step("plain")
    planned = release.freeze(check=True)
    done = release.freeze()
    assert done.changed and planned["drift"] == done["drift"] and not done.failed
    assert ".torchstack/steps/model/script.sh" in {entry["path"] for entry in done["drift"]}
    model, plain = release.steps / "model", release.steps / "plain"
    assert (mode(model), mode(model / "log"), mode(model / "script.sh")) == (0o500, 0o400, 0o500)
    assert (mode(plain), mode(plain / "log"), mode(plain / "script.sh")) == (0o555, 0o444, 0o555)
    again = release.freeze()
    assert not again.changed and again["files"] == done["files"] and again["directories"] == done["directories"]
    (model / "log").chmod(0o644)
    repaired = release.freeze()
    assert repaired["drift"] == [{"path": ".torchstack/steps/model/log", "from": "0644", "to": "0400"}]
    assert mode(model / "log") == 0o400


def test_an_archive_with_such_a_step_is_its_owners_only(release):
    release.step("plain")
    assert release.archive().changed and mode(release.packed) == 0o644
    release.step("model", secrets=["MODEL_TOKEN"], private_logs=True)
    done = release.archive()
    assert done["private"] == ["model"] and mode(release.packed) == 0o600
    release.packed.chmod(0o644)
    assert release.archive()["archive_changed"] and mode(release.packed) == 0o600
    assert not release.archive().changed


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git command")
def test_the_repository_of_logs_does_not_get_such_a_step(release):
    release.step("plain")
    release.step("model", secrets=["MODEL_TOKEN"], private_logs=True)
    repository = release.top / "logs.git"
    subprocess.run(["git", "init", "-q", "--bare", str(repository)], check=True)
    done = release.archive(repository=str(repository), subdirectory="mysite/x", branch="main")
    assert not done.failed and done["files"] > 0
    listed = subprocess.check_output(["git", "-C", str(repository), "ls-tree", "-r", "--name-only", "main"], text=True)
    assert "mysite/x/plain/log" in listed and "model" not in listed


def test_another_account_reads_neither(release, ordinary_user):
    release.step("model", secrets=["MODEL_TOKEN"], private_logs=True)
    release.step("plain")
    release.freeze()
    release.archive()
    for path in (release.top, release.top / "records", *release.prefix.parents):
        if path.owner() == release.top.owner():
            path.chmod(mode(path) | 0o055)
    for path, readable in (
            (release.steps / "plain" / "log", True), (release.steps / "model" / "log", False), (release.packed, False)):
        process = subprocess.run(
            ["sudo", "-n", "-u", ordinary_user, "cat", str(path)], capture_output=True, check=False)
        assert (process.returncode == 0) is readable, (path, process.stderr)
