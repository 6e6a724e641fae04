# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The look at nodes: the module on this machine and with a launcher, and its role in jobs of a real Slurm."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
import yaml
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import processes
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import site_jobs
from ansible_collections.hpcml.torchstack.plugins.modules import node_health
from support import slurm_cluster
from support.polling import eventually
from support.role_plays import play_tasks

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = CHECKOUT / "tests" / "fixtures" / "health"
THRESHOLDS = yaml.safe_load((CHECKOUT / "roles/node_health/vars/main.yml").read_text())["__node_health_thresholds"]

QUIET = {name: rule for name, rule in THRESHOLDS.items() if name != "kernel_messages" and "metadata" not in name}
GONE = processes.Process(0, "", "X", 0, 0, 0, 0)

SMI = """\
#!/bin/sh
# A stand-in for nvidia-smi, which says what one of a real machine has said; on the node named in `sick`, of a sick GPU.
here=${0%%/*}
node=${SLURMD_NODENAME:-$(uname -n)}
case "$*" in
    "-q -x")
        . "$here/first"
        if [ "$node" = "$(cat "$here/sick" 2> /dev/null)" ]; then
            exec sed 's/<remapped_row_failure>No/<remapped_row_failure>Yes/' %(fixtures)s/q.xml
        fi
        exec cat %(fixtures)s/q.xml ;;
    "nvlink -s") exec cat %(fixtures)s/nvlink-s.txt ;;
    "nvlink -e") exec cat %(fixtures)s/nvlink-e.txt ;;
    *) exec cat %(fixtures)s/remapped-rows.csv ;;
esac
"""


@pytest.fixture()
def machine(tmp_path):
    """A directory with a stand-in for nvidia-smi that tells of two H200; ``first`` is what it does before that."""
    directory = tmp_path / "bin"
    directory.mkdir()
    (directory / "first").write_text("")
    (directory / "nvidia-smi").write_text(SMI % {"fixtures": FIXTURES / "h200-580"})
    (directory / "nvidia-smi").chmod(0o755)
    return directory


@pytest.fixture()
def site(tmp_path, machine):
    """The arguments of the module for a release that is to be accepted on this machine."""
    (tmp_path / "root").mkdir()
    return {
        "root": str(tmp_path / "root"), "release": "r1", "subject": "s1", "python": sys.executable,
        "expected": {"gpus": 2, "gpu_model": "*H200*", "nvlinks": 18}, "thresholds": QUIET, "files": 5,
        "directories": [str(tmp_path)], "environment": {"PATH": "%s:/usr/bin:/bin" % machine}, "wait": 5,
    }


@pytest.fixture()
def look(site):
    """Call the module's work with a site's arguments, in this process; the result, or the error's."""
    missing = {name: rule.get("default") for name, rule in node_health.SPEC.items()}

    def run(check=False, **more):
        try:
            return node_health.check_nodes(dict(missing, **dict(site, **more)), check)
        except StackError as error:
            return dict(error.as_result(), failed=True)

    return run


def state(site):
    return pathlib.Path(site["root"], ".torchstack", "r1")


def accept(site):
    """What an acceptance leaves that has passed."""
    (state(site) / "acceptance.json").write_text(json.dumps({"passed": True, "subject": site["subject"]}))


def test_s29_check_do_check_again_do_again(run_module, site, tmp_path):
    planned = run_module("node_health", site, check=True)
    assert not planned.failed and not planned.changed and planned["passed"] is None
    assert planned["reason"] == "the nodes were not looked at yet"
    assert planned["command"] == "env -u PYTHONPATH -u PYTHONHOME %s node_health.pyz" % sys.executable
    assert not state(site).exists()
    done = run_module("node_health", site)
    assert not done.failed and not done.changed and done["passed"] is True, done.console
    record = json.loads((state(site) / "node_health.json").read_text())
    (node,) = record["nodes"]
    assert record["passed"] and record["subject"] == "s1" and node["host"] == os.uname().nodename
    assert [gpu["nvlinks"]["up"] for gpu in node["facts"]["gpus"]] == [18, 18]
    # What the machine that runs this is really like may be a warning.
    assert all(finding["severity"] != "failure" for finding in node["findings"])
    assert node["facts"]["storage"][0]["files"] == 5
    assert done["table"].splitlines()[1].split()[1:5] == ["2", "NVIDIA", "H200", "580.159.04"]
    accept(site)
    for check in (True, False):
        held = run_module("node_health", site, check=check)
        assert held["reason"] == "" and not held.changed and held["passed"] is True and held["summary"]
    assert len((state(site) / "node_health.jsonl").read_text().splitlines()) == 1


def test_a_release_that_is_not_accepted_yet_has_its_nodes_looked_at_each_time(look, site):
    assert look()["passed"] is True
    assert look(check=True)["reason"] == "the release is not accepted yet, and nodes change"
    accept(site)
    assert look()["reason"] == ""
    refused = look(expected={"gpus": 4})
    assert refused["failed_step"] == "gpu_count" and "2 GPUs are seen" in refused["msg"] and refused["failures"]
    assert look()["reason"] == "the last look found failures"


def test_s29_nvidia_smi_that_hangs_is_a_finding_and_nothing_waits_for_it(look, machine):
    (machine / "first").write_text("sleep 600\n")
    done = look(timeout=6)
    assert done["failed"] and done["failed_step"] == "collector"
    assert "Looking at nvidia brought nothing: it did not end within" in done["msg"]
    (machine / "nvidia-smi").chmod(0o644)
    assert "nvidia-smi -q -x may not be run by this account" in look()["msg"]


def test_a_look_that_is_stopped_leaves_nothing_running(machine, tmp_path):
    (machine / "first").write_text("echo $$ > %s/pid; sleep 600\n" % tmp_path)
    environment = dict(os.environ, PATH="%s:%s" % (machine, os.environ["PATH"]))
    with subprocess.Popen([CHECKOUT / "bin" / "node-health"], env=environment, stdout=subprocess.DEVNULL) as program:
        try:
            asked = tmp_path / "pid"
            pid = int(eventually(lambda: asked.exists() and asked.read_text().strip(), "nvidia-smi was not asked"))
        finally:
            program.terminate()
    assert program.returncode == 143
    eventually(lambda: (processes.read_process(pid) or GONE).ended, "nvidia-smi still runs")


def launcher(tmp_path, hosts):
    """A launcher that starts one process after the other, each on a node of another name."""
    path = tmp_path / "launch"
    path.write_text("#!/bin/sh\nshift\nfor node in %s; do SLURMD_NODENAME=$node \"$@\"; done\n" % hosts)
    path.chmod(0o755)
    return [str(path), "{ranks}"]


def test_s29_one_sick_node_of_several_is_named(look, site, machine, tmp_path):
    site.update(nodes=3, launcher=launcher(tmp_path, "n1 n2 n3"))
    (machine / "sick").write_text("n2")
    done = look()
    assert done["failed"] and done["failed_step"] == "remapped_rows"
    assert "n2 gpu 0 (0000:00:06.0): A row could not be remapped" in done["msg"] and "n1 gpu" not in done["msg"]
    assert [entry["host"] for entry in done["findings"] if entry["severity"] == "failure"] == ["n2", "n2"]
    assert len(done["table"].splitlines()) == 4
    (machine / "sick").unlink()
    assert "nodes: 3 of 4 nodes have answered: n1, n2, n3 (threshold 4: node_health_nodes)." in look(nodes=4)["msg"]
    assert "3 nodes are to be looked at, and there is no launcher." in look(launcher=[])["msg"]


def test_the_python_of_the_system_does_not_see_what_is_for_that_of_the_release(look, site, tmp_path):
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "argparse.py").write_text("raise ImportError('of another Python')\n")
    site["environment"].update(PYTHONPATH=str(tmp_path / "foreign"), PYTHONHOME="/nowhere")
    assert look()["passed"] is True


def test_s29_a_job_is_asked_and_judged(look, site, machine, tmp_path):
    site.update(nodes=2, launcher=launcher(tmp_path, "n1 n2"), job={"launcher": "slurm", "options": {}})
    planned = look(check=True)
    assert planned["needed"] and planned["inputs"]["nonce"] == "planned" and not state(site).exists()
    assert "No compute node was asked this." in look(state="judged")["msg"]
    asked = look()
    assert asked["needed"] and asked["passed"] is None and asked["state_dir"] == str(state(site) / "node_health")
    subprocess.run(["/bin/bash", "-euc", asked["script"]], stdout=subprocess.DEVNULL, check=True)
    judged = look(state="judged")
    assert judged["passed"] is True and len(judged["table"].splitlines()) == 3
    assert not list((state(site) / "node_health").glob("asked.*"))
    accept(site)
    assert look()["needed"] is False


def test_what_a_prologue_has_recorded_is_judged(look, site, machine, tmp_path):
    recorded = tmp_path / "recorded"
    recorded.mkdir()
    assert "There is no file .json in" in look(recorded=str(recorded))["msg"]
    environment = dict(os.environ, PATH="%s:%s" % (machine, os.environ["PATH"]))
    for host in ("n1", "n2"):
        command = [CHECKOUT / "bin" / "node-health", "--output", recorded / (host + ".json")]
        subprocess.run(command, env=dict(environment, SLURMD_NODENAME=host), check=True)
    assert look(recorded=str(recorded), check=True)["passed"] is True and not state(site).exists()
    done = look(recorded=str(recorded))
    assert done["passed"] is True and len(done["table"].splitlines()) == 3
    assert (state(site) / "node_health.json").exists()
    (recorded / "n3.json").write_text("{}")
    assert "What the node answered cannot be read" in look(recorded=str(recorded))["msg"]


@pytest.mark.parametrize("change, said", [
    ({"thresholds": {"xid": {"failure": [79]}}}, "The threshold xid has no source."),
    ({"nodes": 2, "launcher": ["srun", "{hosts}"]}, "node_health_launcher has the placeholder {hosts}"),
    ({"root": "/no/such/place"}, "The root /no/such/place does not exist."),
    ({"job": {"launcher": "local"}}, "There is no batch system for the step node_health: its launcher is local."),
])
def test_bad_input_is_one_sentence(look, change, said):
    assert said in look(**change)["msg"]


# --- with a real Slurm -----------------------------------------------------------------------------------------------

JOBS = {"launcher": "slurm", "options": {"partition": "main", "python": sys.executable}}
WORDS = ["srun", "--nodes={nodes}", "--ntasks={ranks}", "--ntasks-per-node={per_node}"]
RANKS = {"launcher": WORDS, "nodes": 2, "per_node": 2}


def test_s29_nodes_are_looked_at_in_one_job_before_the_release_is_accepted(
    site, machine, ansible_environment, tmp_path, tmp_path_factory
):
    with slurm_cluster.running(tmp_path_factory.mktemp("w")) as cluster:
        context = {
            "release": "r1", "root": site["root"], "digest": "s1",
            **site_jobs.describe({"torchstack_jobs": JOBS, "torchstack_ranks": RANKS}),
        }
        variables = {
            "release_context": context, "node_health_module": "", "node_health_expected": site["expected"],
            "node_health_python": sys.executable,
            "node_health_environment": {"PATH": "%s:%s" % (machine, slurm_cluster.SYSTEM_PATH)},
        }
        path = os.path.dirname(sys.executable) + ":" + slurm_cluster.SYSTEM_PATH
        whole = {**ansible_environment, **cluster.environment, "PATH": path}
        done = play_tasks("node_health", "main", variables, [{}], whole, tmp_path)
        assert done.returncode == 0 and len(cluster.jobs("ts-node_health-")) == 1, done.stdout
        record = json.loads((state(site) / "node_health.json").read_text())
        assert record["passed"] and len({node["host"] for node in record["nodes"]}) == 2
        assert record["question"]["launcher"][2] == "--ntasks=2"
        accept(site)
        done = play_tasks("node_health", "main", variables, [{}], whole, tmp_path)
        assert done.returncode == 0 and len(cluster.jobs("ts-node_health-")) == 1 and "changed=0" in done.stdout
