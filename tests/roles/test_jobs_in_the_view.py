# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Steps that are jobs of PBS or Flux, as torchstack status and the view show them: job, place in the queue, node.

PBS answers as tests/pbs/world.py says, Flux as a real one did (tests/flux/records); the records are the product's.
"""

from __future__ import annotations

import json
import pathlib
import shlex
import sys
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.clock import utc
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.files import step_files
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.records import JobRecord, Submission
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.command import progress, releases, view
from pbs.world import TOO_MANY_CORES, World, steps_on
from pbs.world import server as started
from support.polling import eventually

RELEASE = "2026-11-24"
FLUX = pathlib.Path(__file__).parents[1] / "flux" / "records" / "0.88.0.json"
REPLAY = """import json, sys
given = [word for word in sys.argv[2:] if not word.startswith("/")]
for exchange in json.load(open(sys.argv[1]))[%r]:
    if exchange["command"][1:] == given:
        sys.stdout.write(exchange["output"])
        sys.stderr.write(exchange["complaint"])
        sys.exit(exchange["status"])
sys.exit("no record of %%s" %% given)
"""


@pytest.fixture(name="root")
def a_root(tmp_path):
    """A root with a release that is rolled out."""
    root = tmp_path / "root"
    (root / ".torchstack" / RELEASE).mkdir(parents=True)
    (root / RELEASE / ".torchstack" / "steps").mkdir(parents=True)
    resolved = {"release": RELEASE, "site": "mysite", "definition": {}}
    (root / RELEASE / ".torchstack" / "release.yml").write_text(json.dumps(resolved))
    return root


def shown(root):
    """What is known of the step that was begun, what status says of it, and its line in the view with what is below."""
    found = progress.look(releases.read(str(root), RELEASE))
    (running,) = found["running"]
    drawn = view.lines(found, time.time(), 200, 50)
    return running, progress.lines(found)[1:3], [line.strip() for line in drawn[1:3]]


@pytest.fixture(name="world", scope="module")
def one_world(tmp_path_factory):
    """A PBS."""
    place = tmp_path_factory.mktemp("pbs")
    with started(place) as cluster:
        world = World(place / "commands", cluster)
        yield world
        world.end()


def test_a_job_of_pbs_waits_with_its_place(world, root, monkeypatch):
    with steps_on(world, root / RELEASE / ".torchstack", monkeypatch) as steps:
        begun = steps.begin(steps.gated, name="waits", options={"cores": TOO_MANY_CORES})
        eventually(lambda: "position" in shown(root)[0]["waits"], "a place in the queue")
        running, status, drawn = shown(root)
        job = begun["job_id"]
        assert (running["state"], running["job_id"]) == ("queued", job)
        # Where it was submitted from is no place that it is at.
        assert status[0].startswith("Step 1: waits, queued job %s for " % job), status
        assert drawn[0].split()[:2] == ["waits", "waits"] and drawn[0].endswith("in job %s" % job), drawn
        assert drawn[1] == status[1].strip() and drawn[1].startswith("waits  job %s pending (" % job), drawn
        world.run("qdel", job)


def test_a_job_of_pbs_that_runs_is_told_with_its_node(world, root, monkeypatch):
    with steps_on(world, root / RELEASE / ".torchstack", monkeypatch) as steps:
        job = steps.begin(steps.gated, name="runs")["job_id"]
        eventually(lambda: shown(root)[0]["state"] == "elsewhere", "the job's begin")
        running, status, drawn = shown(root)
        assert status[0].startswith("Step 1: runs, running job %s on %s" % (job, running["host"])), status
        assert drawn[0].split()[:2] == ["runs", "runs"] and "in job %s on %s" % (job, running["host"]) in drawn[0]
        steps.gate.touch()
        steps.finish("runs")


def job_of_flux(root, place, scenario, **job):
    """Leave the records of a step that is the job of a recorded scenario, and a flux that answers as in it."""
    (place / "flux.py").write_text(REPLAY % scenario)
    (place / "flux").write_text("#!/bin/sh\nexec %s \"$@\"\n" % shlex.join(
        [sys.executable, str(place / "flux.py"), str(FLUX)]))
    (place / "flux").chmod(0o755)
    ((entry, *_others),) = [json.loads(exchange["output"])["jobs"] for exchange in
                            json.loads(FLUX.read_text())[scenario][:1]]
    files = step_files(str(root / RELEASE / ".torchstack" / "steps"), "horovod")
    pathlib.Path(files.directory).mkdir()
    now = utc(time.time())
    record = JobRecord.from_json({
        "nonce": "n", "digest": "d", "launcher": "flux", "host": "login1", "boot_id": "b", "started": now,
        "heartbeat": now, "phase": "starting", "pid": None, "start_time": None, "options": {"bin": str(place)}, **job})
    record.write(files)
    Submission("n", entry["name"], entry["jobid"]).write(files)
    return entry["jobid"]


@pytest.mark.parametrize(("scenario", "said"), [
    ("held", "held"), ("depends", "depends on after-success="), ("stopped", "position 2 of 2"),
])
def test_a_job_of_flux_waits_with_its_place(scenario, said, root, tmp_path):
    job = job_of_flux(root, tmp_path, scenario)
    running, status, drawn = shown(root)
    assert (running["state"], running["job_id"]) == ("queued", job), running
    assert drawn[0].split()[:2] == ["waits", "horovod"] and drawn[0].endswith("in job %s" % job), drawn
    assert drawn[1] == status[1].strip() and said in drawn[1], drawn


def test_a_job_of_flux_that_runs_is_told_with_its_node(root, tmp_path):
    job = job_of_flux(root, tmp_path, "running", phase="running", host="n0", begun=utc(time.time()))
    _running, status, drawn = shown(root)
    assert status[0].startswith("Step 1: horovod, running job %s on n0" % job), status
    assert drawn[0].split()[:2] == ["runs", "horovod"] and "in job %s on n0" % job in drawn[0], drawn
