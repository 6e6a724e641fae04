# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The example job scripts of a container, rendered for sites of several kinds."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.zipapp import program_text
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import site_jobs
from ansible_collections.hpcml.torchstack.plugins.module_utils.standalone import topology
from support import slurm_cluster

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
ROLE = CHECKOUT / "roles" / "container"
SCRIPTS = sorted(path.name[:-3] for path in (ROLE / "templates" / "examples").glob("*.slurm.j2"))
TEXTS = CHECKOUT / "inventories" / "lumi" / "topology"
MASKS = "0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000"

JOBS = {"partition": "main", "cores": 56, "memory": "480G", "gpus": 8, "walltime": "05:00:00", "account": "builders"}
SRUN = ["/opt/slurm/bin/srun", "--nodes={nodes}", "--ntasks={ranks}", "--ntasks-per-node={per_node}", "--mpi=none"]
SITES = {
    # What a site of eight GPUs says; its own binding gives way to the masks of its topology.
    "topology": {
        "jobs": JOBS, "ranks": {"launcher": [*SRUN, "--cpu-bind", "mask_cpu:0x1", "-c7"], "per_node": 8, "nodes": 4},
        "topology": {"lscpu": (TEXTS / "lscpu.txt").read_text(), "gpus": (TEXTS / "gpus.txt").read_text(),
                     "reserved": "first-of-cache"},
        "base": {"gpu": "amd"}, "path": "/soft/it's here/modulefiles/lmod",
    },
    "node": {
        "jobs": {"queue": "main", "cores": 64, "directives": ["--gres=gpu:4", "--exclusive", "--account=builders"]},
        "ranks": {"launcher": ["mpiexec", "-n", "{ranks}"], "per_node": 4}, "topology": {},
        "base": {"gpu": "nvidia"}, "path": "",
    },
    "processors": {"jobs": {}, "ranks": {}, "topology": {}, "base": {"gpu": "none"}, "path": ""},
}


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    """The directory of each site's scripts."""
    place = tmp_path_factory.mktemp("examples")
    cases = []
    for name, site in SITES.items():
        context = site_jobs.describe({
            "torchstack_jobs": {"launcher": "slurm", "options": site["jobs"]}, "torchstack_ranks": site["ranks"]})
        cases += [dict(site, context=context, src=str(ROLE / "templates" / "examples" / (script + ".j2")),
                       dest=str(place / name / script)) for script in SCRIPTS]
        (place / name).mkdir()
    variables = {
        "__container_examples": "{{ item.context | hpcml.torchstack.example_jobs(item.topology) }}",
        "container_base": "{{ item.base }}", "container_module": "stack/2.2.0",
        "container_module_path": "{{ item.path }}",
    }
    task = {"ansible.builtin.template": {"src": "{{ item.src }}", "dest": "{{ item.dest }}", "mode": "0644"},
            "vars": variables, "loop": "{{ cases }}", "loop_control": {"label": "{{ item.dest }}"}}
    playbook = place / "play.yml"
    playbook.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": [task]}]))
    (place / "cases.json").write_text(json.dumps({"cases": cases}))
    command = [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), "-i", "localhost,", "-c", "local"]
    ended = subprocess.run([*command, "-e", "@%s" % (place / "cases.json"), str(playbook)], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert ended.returncode == 0, ended.stdout
    return place


def read(rendered, site, script):
    return (rendered / site / script).read_text()


def directives(text):
    return re.findall(r"^#SBATCH (.*)$", text, re.MULTILINE)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A Slurm that believes in nodes as large as those of the sites."""
    root = tmp_path_factory.mktemp("cluster", numbered=True)
    with slurm_cluster.running(root, nodes=4, cores=128, memory=500000, gpus=8) as world:
        yield world


def test_there_are_the_three_examples():
    assert SCRIPTS == ["debug.slurm", "distributed.slurm", "smoke.slurm"]


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("script", SCRIPTS)
def test_an_example_is_shell_that_bash_and_shellcheck_accept(rendered, site, script):
    path = str(rendered / site / script)
    subprocess.run(["bash", "-n", path], check=True)
    if shutil.which("shellcheck") is None:
        pytest.skip("not installed: shellcheck")
    checked = subprocess.run(["shellcheck", path], text=True, stdout=subprocess.PIPE, check=False)
    assert checked.returncode == 0, checked.stdout


def test_slurm_would_take_every_example(rendered, cluster):
    for script in sorted(rendered.glob("*/*.slurm")):
        asked = cluster.run("sbatch", "--test-only", str(script), check=False)
        assert asked.returncode == 0, "%s: %s" % (script, asked.stdout)
        assert "to start at" in asked.stdout


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module with the real gpu-cpu-masks, and a run script that says what it was given."""
    place = tmp_path / "module"
    library = place / "runscripts" / "lib"
    library.mkdir(parents=True)
    (library / "topology.py").write_text(program_text(topology))
    shutil.copy(ROLE / "files" / "runscripts" / "lib" / "gpu_cpu_masks.py", library)
    shutil.copytree(ROLE / "files" / "bin", place / "bin")
    shutil.copytree(ROLE / "files" / "examples", place / "share" / "examples")
    run_script = place / "runscripts" / "conda-python-distributed"
    run_script.write_text('#!/bin/sh\necho "rank $SLURM_PROCID on $SLURMD_NODENAME, $SLURM_CPU_BIND_LIST: $*"\n')
    run_script.chmod(0o755)
    (place / "load.sh").write_text(
        "export CONTAINERROOT={0} RUNSCRIPTS={0}/runscripts\n"
        "gpu-cpu-masks() {{ {0}/bin/gpu-cpu-masks --lscpu {1}/lscpu-p.txt --gpus {1}/nvidia-smi.txt; }}\n".format(
            place, CHECKOUT / "tests" / "fixtures" / "topology" / "a100"))
    # Of Lmod, which would have a job's shell define its own.
    monkeypatch.delenv("BASH_ENV", raising=False)
    monkeypatch.setenv("BASH_FUNC_module%%", "() { . " + str(place / "load.sh") + "\n}")


@pytest.mark.parametrize("script, output", [
    ("distributed.slurm", "distributed-{}.out"), ("debug.slurm", "debug-{}-*.txt"),
])
@pytest.mark.usefixtures("module")
def test_s37_slurm_hands_the_masks_to_a_rank_for_each_gpu(rendered, cluster, tmp_path, script, output):
    path = str(rendered / "node" / script)
    ended = cluster.run("sbatch", "--parsable", "--wait", "--chdir=%s" % tmp_path, path, check=False)
    job = ended.stdout.split()[0]
    assert ended.returncode == 0, [path.read_text() for path in tmp_path.glob("*-%s*" % job)]
    said = "".join(path.read_text() for path in tmp_path.glob(output.format(job)))
    found = {int(rank): (node, [int(mask, 16) for mask in masks.split(",")], words) for rank, node, masks, words
             in re.findall(r"^rank (\d+) on (\w+), (\S*): (.*)$", said, re.MULTILINE)}
    masks = [0xFFFF << 48, 0xFFFF << 32, 0xFFFF << 16, 0xFFFF]
    assert found == {rank: ("n%d" % (rank // 4 + 1), masks, "-u all_reduce.py") for rank in range(8)}
    assert (tmp_path / "all_reduce.py").exists()


def test_s37_s44_the_masks_of_the_sites_nodes_are_in_its_examples(rendered):
    for script in ("distributed.slurm", "debug.slurm"):
        text = read(rendered, "topology", script)
        assert "\nmasks=%s\n" % MASKS in text
        assert 'mask_cpu:"$masks"' in text
        assert "gpu-cpu-masks)\n" not in text.replace("On other nodes: masks=$(gpu-cpu-masks)", "")
        assert text.count("--cpu-bind=") == 1 and "0x1 " not in text


def test_s37_s44_without_a_topology_the_node_is_asked(rendered):
    text = read(rendered, "node", "distributed.slurm")
    assert "\nmasks=$(gpu-cpu-masks)\n" in text
    assert 'mask_cpu:"$masks"' in text


def test_without_gpus_nothing_is_bound(rendered):
    for script in SCRIPTS:
        text = read(rendered, "processors", script)
        assert "mask" not in text and "cuda" not in text


def test_an_example_asks_for_what_the_site_asks_for_and_charges_nobody(rendered):
    found = directives(read(rendered, "topology", "distributed.slurm"))
    assert {"--partition=main", "--mem=480G", "--gpus-per-node=8", "--nodes=4", "--ntasks-per-node=8",
            "--cpus-per-task=7", "--exclusive", "--time=00:10:00", "--account=your_project"} <= set(found)
    found = directives(read(rendered, "node", "smoke.slurm"))
    assert {"--partition=main", "--gres=gpu:4", "--nodes=1", "--cpus-per-task=64"} <= set(found)
    assert [line for line in found if "exclusive" in line] == ["--exclusive"]
    assert "builders" not in "".join(read(rendered, site, script) for site in SITES for script in SCRIPTS)


def test_ranks_are_started_by_the_sites_srun_on_as_many_nodes_as_the_job_has(rendered):
    assert (
        '/opt/slurm/bin/srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$((SLURM_JOB_NUM_NODES * 8))" '
        '--ntasks-per-node=8 --mpi=none --cpus-per-task=7 --cpu-bind=mask_cpu:"$masks" \\\n'
    ) in read(rendered, "topology", "distributed.slurm")
    assert (
        '\nsrun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$((SLURM_JOB_NUM_NODES * 4))" --ntasks-per-node=4 '
        "--cpus-per-task=16 --cpu-bind"
    ) in read(rendered, "node", "distributed.slurm")


def test_the_module_is_loaded_from_where_it_is(rendered):
    assert "\nmodule use '/soft/it'\"'\"'s here/modulefiles/lmod'\nmodule load stack/2.2.0\n" in read(
        rendered, "topology", "smoke.slurm")
    assert "module use" not in read(rendered, "node", "smoke.slurm")


def test_debugging_reaches_the_container(rendered):
    text = read(rendered, "topology", "debug.slurm")
    assert "\nexport SINGULARITYENV_NCCL_DEBUG=INFO\n" in text
    assert '--output="debug-$SLURM_JOB_ID-%t.txt"' in text


def test_no_template_names_a_site():
    names = {path.name for path in (CHECKOUT / "inventories").iterdir()} - {"rehearsal", "local"}
    for path in (ROLE / "templates" / "examples").iterdir():
        assert not names & set(re.findall(r"[a-z0-9]+", path.read_text().lower())), path
