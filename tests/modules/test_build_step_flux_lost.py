# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""build_step with a real Flux that loses a node, or is itself ended and started anew: never two builds at once."""

from __future__ import annotations

import pytest
from support import flux_instance
from support.batch_histories import exclusive, lines_of
from support.polling import eventually


@pytest.fixture(name="flux")
def one_instance(tmp_path_factory):
    with flux_instance.running(tmp_path_factory.mktemp("w")) as instance:
        yield instance


@pytest.fixture(name="steps")
def some_steps(flux, tmp_path, monkeypatch):
    with flux_instance.steps_on(flux, tmp_path / "steps", monkeypatch) as steps:
        yield steps


def test_a_node_that_is_lost_ends_a_build_or_moves_it(flux, steps, tmp_path):
    def starts_of(name):
        return lines_of(tmp_path / name / "starts")

    names = ("moved", "broken")
    for name in names:
        (tmp_path / name).mkdir()
    scripts = {name: exclusive("flux", tmp_path / name) for name in names}
    there = {"constraint": "-rank:0"}
    moved = steps.begin(scripts["moved"], "moved", {**there, "requeue": 1})
    node = eventually(lambda: flux.job(moved["job_id"]).get("nodelist"), "its node")
    broken = steps.begin(scripts["broken"], "broken", {"constraint": "host:" + node})
    for name in names:
        eventually((tmp_path / name / "starts").exists, name + " builds")
    flux.kill(int(node[1:]))

    failed = steps.failure(steps.finish, "broken")
    assert (failed["reason"], failed["node"], failed["job_id"]) == ("node_failed", node, broken["job_id"])
    assert "lost its node" in failed["msg"] and "node failure on " + node in failed["msg"]
    assert "'flux resource drain'" in failed["msg"]
    resumed = steps.begin(scripts["broken"], "broken", {"constraint": "-host:" + node})
    assert "lost its node" in resumed["resumed"]

    for name in names:
        eventually(lambda name=name: steps.query(name) and len(starts_of(name)) == 2, name + " builds again", 240)
    for name in names:
        (tmp_path / name / "gate").touch()
        assert steps.finish(name)["state"] == "done"
        assert not (tmp_path / name / "violation").exists()
        assert len(set(starts_of(name))) == 2
    assert [job["nodelist"] == node for job in flux.jobs("ts-moved-")] == [False, True]


def test_a_flux_that_is_started_anew_remembers_a_job_that_waits(flux, steps, monkeypatch):
    held = {"directives": ["--urgency=0"]}
    begun = steps.begin(steps.hello, options=held)
    flux.shut_down()
    for call in (steps.query, lambda: steps.begin(steps.hello, options=held)):
        assert steps.failure(call)["failed_step"] == "scheduler"
    flux.start()
    attached = steps.begin(steps.hello, options=held)
    assert (attached["attached"], attached["job_id"], attached["queue"]["state"]) == (True, begun["job_id"], "held")
    flux.run("job", "urgency", begun["job_id"], "default")
    assert steps.finish()["state"] == "done"
    assert len(flux.jobs("ts-s-")) == 1


def test_a_build_that_ends_with_its_flux_was_cancelled_and_is_resumed(flux, steps, tmp_path):
    steps.begin(exclusive("flux", tmp_path))
    eventually((tmp_path / "starts").exists, "the build")
    flux.shut_down()
    flux.start()
    assert steps.failure(steps.finish)["reason"] == "cancelled"
    (tmp_path / "gate").touch()
    resumed = steps.run(exclusive("flux", tmp_path))
    assert resumed["state"] == "done"
    assert not (tmp_path / "violation").exists()
