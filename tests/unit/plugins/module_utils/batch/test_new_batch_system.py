# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A new batch system is one file and its registration: a toy one builds a step in a copy of the collection."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch import registry

PLUGINS = pathlib.Path(registry.__file__).resolve().parents[2]

TOY = '''
"""A batch system that runs every job at once, and knows it by its process."""

from __future__ import annotations

import os
import subprocess

from .options import OptionRules
from .scheduler import ENDED, RUNNING, BatchSystem, JobStatus


class Toy(BatchSystem):
    name = "toy"
    title = "the toy"
    job_id_variable = "TOY_JOB"
    job_variables = ("TOY_*",)
    options = OptionRules(synonyms={"queue": "partition"}, instead={"qos": "directives"})

    def __init__(self, bin_directory=""):
        self.jobs = os.environ["TOY_JOBS"]

    def script(self, name, options, log, command):
        return "#!/bin/sh\\n#TOY %s\\numask 022\\nexec %s >> '%s' 2>&1\\n" % (name, " ".join(command), log)

    def submit(self, path, options, keep, secrets=()):
        with open(path) as stream:
            name = stream.read().split("#TOY ")[1].split()[0]
        process = subprocess.Popen(["/bin/sh", path], env=dict(os.environ, TOY_JOB="7"), start_new_session=True)
        with open(os.path.join(self.jobs, name), "w") as stream:
            stream.write(str(process.pid))
        return "7"

    def find(self, name):
        try:
            with open(os.path.join(self.jobs, name)) as stream:
                pid = int(stream.read())
        except FileNotFoundError:
            return []
        try:
            os.waitpid(pid, os.WNOHANG)
            os.kill(pid, 0)
        except (ChildProcessError, ProcessLookupError):
            return [JobStatus("7", name, ENDED, end="done", exit_code=0)]
        return [JobStatus("7", name, RUNNING)]

    def cancel(self, job_id):
        pass
'''
REGISTRATION = (
    ("def _slurm()", "def _toy():\n    from .toy import Toy\n    return Toy\n\n\ndef _slurm()"),
    ('{"slurm": _slurm,', '{"toy": _toy, "slurm": _slurm,'),
)

PLAY = """
import json, sys, time
from ansible_collections.hpcml.torchstack.plugins.modules import build_step
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch import registry
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import site_jobs

options = registry.check_options("toy", {"queue": "short"})
defaults = {key: spec.get("default") for key, spec in build_step.ARGUMENTS.items()}
asked = {"name": "s", "state_dir": sys.argv[1], "launcher": "toy", "launcher_options": {"queue": "short"}}
result = first = build_step.choose({**defaults, **asked, "script": "echo job $TOY_JOB > made"}, False, False)
while result["state"] == "running":
    time.sleep(0.1)
    result = build_step.choose({**defaults, **asked, "follow": first["nonce"]}, False, False)
print(json.dumps({
    "options": options, "choices": build_step.ARGUMENTS["launcher"]["choices"], "state": result["state"],
    "job_id": result["job_id"], "problems": registry.problems("toy", {"qos": "long"}),
    "context": site_jobs.describe({"torchstack_jobs": {"launcher": "toy", "options": {"queue": "short"}}})["jobs"],
}))
"""


@pytest.fixture(name="copy")
def copy_of_the_collection(tmp_path):
    plugins = tmp_path / "ansible_collections" / "hpcml" / "torchstack" / "plugins"
    for kind in ("modules", "module_utils"):
        shutil.copytree(str(PLUGINS / kind), str(plugins / kind), ignore=shutil.ignore_patterns("__pycache__"))
    return plugins


def test_a_new_batch_system_is_one_file_and_its_registration(copy, tmp_path):
    batch, changed = copy / "module_utils" / "batch", ["toy.py"]
    (batch / "toy.py").write_text(TOY)
    text = (batch / "registry.py").read_text()
    for old, new in REGISTRATION:
        assert text.count(old) == 1
        text = text.replace(old, new)
    (batch / "registry.py").write_text(text)
    changed.append("registry.py")
    assert len(changed) == 2
    (tmp_path / "jobs").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PLAY, str(tmp_path / "steps")], stdout=subprocess.PIPE, check=True, text=True,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]), TOY_JOBS=str(tmp_path / "jobs")),
    )
    said = json.loads(done.stdout.splitlines()[-1])
    assert (said["state"], said["job_id"]) == ("done", "7")
    assert (tmp_path / "steps" / "s" / "made").read_text() == "job 7\n"
    record = json.loads((tmp_path / "steps" / "s" / "job.json").read_text())
    assert (record["launcher"], record["job_id"], record["restarts"]) == ("toy", "7", None)
    assert said["choices"] == ["local", "toy", *registry.SYSTEMS]
    assert said["options"]["partition"] == said["context"]["options"]["partition"] == "short"
    assert said["problems"] == ["launcher_options: the toy has no qos. Say what is meant with directives."]
