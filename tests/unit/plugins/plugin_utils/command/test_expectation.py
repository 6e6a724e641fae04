# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What is expected of the steps of a rollout: how long they take, and which of them are taken over."""

from __future__ import annotations

import json

import pytest
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.command import expectation, progress, releases

HOROVOD = {"version": "0.28.1", "sha256": "h"}
BEFORE = {"base": {"kind": "venv"}, "pytorch": {"version": "2.13.0"}, "mpi4py": {}, "horovod": HOROVOD}
STEPS = {"pytorch": 300.0, "mpi4py": 60.0, "horovod": 900.0, "bytecode": 40.0}
NEEDS = {"horovod": {"pytorch": "pytorch-digest"}, "bytecode": {"horovod": "horovod-digest"}}


@pytest.fixture()
def rollout(root, tmp_path):
    """Begin a release after one whose steps are kept for others; what is expected of it."""
    def begin(kept=("pytorch", "mpi4py", "horovod"), **definition):
        root.release("2026-11-20", "2026-11-20T08:15:00Z", BEFORE)
        for name, seconds in STEPS.items():
            root.step("2026-11-20", name, "2026-11-20T08:00:00Z", seconds, digest=name + "-digest",
                      needs=NEEDS.get(name))
        for name in kept:
            (tmp_path / "cache" / (name + "-digest")).mkdir(parents=True)
            (tmp_path / "cache" / (name + "-digest") / "entry.json").write_text(json.dumps({"files": []}))
        root.release("2026-11-24", definition={**BEFORE, **definition})
        root.lock("2026-11-24")
        return lambda: expectation.taken_over(
            releases.read(str(root.place), "2026-11-24"),
            expectation.expected(releases.read(str(root.place), "2026-11-24")))
    return begin


def step(root, tmp_path, name, seconds=None, digest="", **more):
    root.step("2026-11-24", name, "2026-11-24T10:00:00Z", seconds, digest=digest or name + "-digest",
              cache=str(tmp_path / "cache"), **more)


def test_what_is_asked_for_as_before_and_kept_is_expected_to_be_taken_over_and_bytecode_never_is(
        root, tmp_path, rollout):
    over = rollout()
    assert over() == set(), "nothing says yet that this rollout keeps or takes anything"
    step(root, tmp_path, "pytorch", 1.0)
    assert over() == {"mpi4py", "horovod"}
    found = progress.look(releases.read(str(root.place), "2026-11-24"))
    assert found["left_seconds"] == 40.0 and found["taken_over"] == ["horovod", "mpi4py"]
    assert found["expected"] == {"mpi4py": 0.0, "horovod": 0.0, "bytecode": 40.0}


def test_what_is_built_on_a_step_that_came_out_otherwise_is_built(root, tmp_path, rollout):
    over = rollout(pytorch={"version": "2.14.0"})
    step(root, tmp_path, "pytorch", 300.0, digest="another")
    assert over() == {"mpi4py"}


def test_what_is_asked_for_otherwise_or_is_not_kept_any_more_is_built(root, tmp_path, rollout):
    over = rollout(kept=("pytorch", "horovod"), horovod={**HOROVOD, "environment": {"HOROVOD_WITHOUT_GLOO": "1"}})
    step(root, tmp_path, "pytorch", 1.0)
    assert over() == set()


@pytest.mark.parametrize(("changed", "others"), [
    ("io", {"package-io-wheel", "package-io-wheel-fetch"}), ("io-wheel", {"package-io", "package-io-fetch"})])
def test_a_package_whose_name_begins_with_that_of_another_one_is_not_taken_for_it(changed, others, root):
    def packages(**versions):
        return {"packages": [{"name": name, "version": versions.get(name, "1")} for name in ("io", "io-wheel")]}
    root.release("2026-11-20", "2026-11-20T08:15:00Z", packages())
    for name in ("package-io", "package-io-fetch", "package-io-wheel", "package-io-wheel-fetch"):
        root.step("2026-11-20", name, "2026-11-20T08:00:00Z", 1.0)
    root.release("2026-11-24", definition=packages(**{changed: "2"}))
    known = expectation.expected(releases.read(str(root.place), "2026-11-24"))
    assert set(known.seconds) - known.changed == others


@pytest.mark.parametrize(("digest", "expected"), [("horovod-digest", 0.0), ("another", 900.0)])
def test_of_a_step_that_runs_its_digest_says_whether_it_is_taken_over(digest, expected, root, tmp_path, rollout):
    rollout()
    step(root, tmp_path, "horovod", digest=digest)
    (running,) = progress.look(releases.read(str(root.place), "2026-11-24"))["running"]
    assert running["expected"] == expected


def test_a_step_that_the_release_before_took_over_is_expected_as_long_as_its_build_took(root, rollout):
    rollout()
    path = root.place / "2026-11-20" / ".torchstack" / "steps" / "horovod" / "stamp.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "seconds": 0.4, "from_cache": True, "taken_over": {
        "release": "2026-10-01", "seconds": 880.0}}))
    assert expectation.expected(releases.read(str(root.place), "2026-11-24")).seconds["horovod"] == 880.0
