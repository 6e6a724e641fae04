# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The command gpu-cpu-masks of a container's release, as a job script calls it."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.zipapp import program_text
from ansible_collections.hpcml.torchstack.plugins.module_utils.standalone import topology
from support import slurm_cluster

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
FILES = CHECKOUT / "roles" / "container" / "files"
TEXTS = CHECKOUT / "inventories" / "lumi" / "topology"
LUMI = ("--lscpu", str(TEXTS / "lscpu.txt"), "--gpus", str(TEXTS / "gpus.txt"))
MASKS = "0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000\n"
SYSTEM_PATH = "/usr/bin:/bin"


class Release:
    """A place with the command and what it reads, and a directory of programs that a node has."""

    def __init__(self, place):
        self.library = place / "runscripts" / "lib"
        self.library.mkdir(parents=True)
        (self.library / "topology.py").write_text(program_text(topology))
        shutil.copy(FILES / "runscripts" / "lib" / "gpu_cpu_masks.py", self.library)
        (place / "bin").mkdir()
        self.command = shutil.copy(FILES / "bin" / "gpu-cpu-masks", place / "bin")
        self.node = place / "node"
        self.node.mkdir()

    def has(self, name, shell, place=None):
        """Put a program onto PATH, or elsewhere."""
        program = (place or self.node) / name
        program.write_text("#!/bin/sh\n%s\n" % shell)
        program.chmod(0o755)

    def run(self, *words, path=""):
        """Run the command; the process."""
        return subprocess.run(
            [self.command, *words], env={"PATH": "%s%s:%s" % (path, self.node, SYSTEM_PATH)}, text=True,
            capture_output=True, check=False,
        )


@pytest.fixture
def release(tmp_path):
    return Release(tmp_path)


def own_cores():
    """This machine's lscpu, as the command reads it."""
    text = subprocess.run(["lscpu", "-p"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return topology.cores(text)


def test_s37_lumis_masks_as_srun_takes_them(release):
    ended = release.run(*LUMI, "--reserved", "first-of-cache")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, MASKS, "")


@pytest.mark.parametrize("form, expected", [
    ("map_cpu", "49,57,17,25,1,9,33,41\n"), ("gpu_bind", "4,5,2,3,6,7,0,1\n"), ("mask_cpu", MASKS),
])
def test_s37_every_form_has_the_cores_that_the_site_reserves_left_out(release, form, expected):
    (release.library / "reserved-cpus").write_text("# The CPUs that jobs do not get.\n0,8,16,24,32,40,48,56\n")
    assert release.run(*LUMI, "--form", form).stdout == expected
    assert release.run(*LUMI, "--reserved", "").stdout.startswith("0xff000000000000,")


def test_s37_both_hardware_threads_of_a_core(release):
    ended = release.run(*LUMI, "--reserved", "first-of-cache", "--threads", "all")
    assert ended.stdout.split(",")[4] == "0xfe00000000000000fe"


def test_the_table_says_where_each_gpu_is(release):
    ended = release.run(*LUMI, "--reserved", "first-of-cache", "--table")
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert lines[0] == ["GPU", "NUMA", "CACHE", "CORES", "CPUS", "MASK"]
    assert lines[5] == ["4", "0", "0", "7", "1-7", "0xfe"]
    assert len(lines) == 9


def test_s37_without_files_the_node_is_asked(release):
    release.has("rocm-smi", "echo 'GPU[0] : (Topology) Numa Affinity: %d'" % own_cores()[0].node)
    ended = release.run()
    assert ended.returncode == 0, ended.stderr
    allowed = sum(1 << cpu for cpu in os.sched_getaffinity(0))
    assert int(ended.stdout, 16) & allowed == int(ended.stdout, 16) > 0


def test_a_node_with_gpus_of_another_maker_is_asked_the_other_program(release):
    release.has("rocm-smi", "echo 'no device'; exit 1")
    table = "GPU0 CPU Affinity NUMA Affinity\nGPU0 X N/A %d" % own_cores()[0].node
    release.has("nvidia-smi", "echo '%s'" % table)
    assert release.run().returncode == 0


def test_a_program_of_the_node_never_gets_the_python_of_the_container(release):
    release.has("python3", "exit 9", place=pathlib.Path(release.command).parent)
    release.has("rocm-smi", "python3 -c 'print(\"GPU[0] : (Topology) Numa Affinity: %d\")'" % own_cores()[0].node)
    ended = release.run(path="%s:" % pathlib.Path(release.command).parent)
    assert ended.returncode == 0, ended.stderr


def test_a_job_that_has_a_part_of_its_node_is_warned(release):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this machine has one CPU")
    cpu = str(min(os.sched_getaffinity(0)))
    release.has("rocm-smi", "echo 'GPU[0] : (Topology) Numa Affinity: 0'")
    ended = subprocess.run(
        ["taskset", "-c", cpu, release.command], env={"PATH": "%s:%s" % (release.node, SYSTEM_PATH)}, text=True,
        capture_output=True, check=False,
    )
    assert "this process may use 1 of the node's %d cores" % len(own_cores()) in ended.stderr
    assert "--exclusive" in ended.stderr


@pytest.mark.parametrize("words, said", [
    (("--lscpu", "/nowhere/lscpu.txt"), "/nowhere/lscpu.txt cannot be read: No such file or directory."),
    ((*LUMI, "--reserved", "200"), "CPU 200 is reserved, and the machine's last one is CPU 127."),
    ((*LUMI[:2], "--gpus", str(TEXTS / "lscpu.txt")), "No GPU is named"),
    (LUMI[:2], "No GPU was found on this node. 'nvidia-smi topo -m' ended with status 9: No devices were found"),
])
def test_what_is_wrong_is_one_sentence_and_no_mask(release, words, said):
    release.has("nvidia-smi", "echo 'No devices were found'; exit 9")
    ended = release.run(*words)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("gpu-cpu-masks: ") and said in ended.stderr and ended.stderr.count("\n") == 1


def test_nothing_is_left_in_the_release(release):
    release.run(*LUMI)
    assert not list(release.library.glob("__pycache__"))


@pytest.fixture
def cluster(tmp_path_factory, monkeypatch):
    """A Slurm of one node, this machine, that really binds ranks."""
    node = own_cores()[0].node
    if os.sched_getaffinity(0) != set(range(os.cpu_count())) or sum(core.node == node for core in own_cores()) < 2:
        pytest.skip("this machine has one core for each NUMA node, or not all of it is given to tests")
    bound = slurm_cluster.CONFIGURATION.replace("TaskPlugin=task/none", "TaskPlugin=task/affinity")
    monkeypatch.setattr(slurm_cluster, "CONFIGURATION", bound)
    with slurm_cluster.running(tmp_path_factory.mktemp("w"), nodes=1, cores=os.cpu_count()) as world:
        yield world


def test_s37_s44_a_rank_of_srun_runs_where_its_mask_says(release, cluster, tmp_path):
    node = own_cores()[0].node
    affinities = ["echo 'GPU[%d] : (Topology) Numa Affinity: %d'" % (gpu, node) for gpu in range(2)]
    release.has("rocm-smi", "\n".join(affinities))
    job = tmp_path / "job.sh"
    job.write_text(
        "#!/bin/bash\n#SBATCH --exclusive --ntasks=2 --output=%s/out\nset -e\nexport PATH=%s:$PATH\nmasks=$(%s)\n"
        'srun --cpu-bind=mask_cpu:"$masks" bash -c \'echo "rank $SLURM_PROCID: $(taskset -cp $$)"\'\n'
        % (tmp_path, release.node, release.command))
    ended = cluster.run("sbatch", "--wait", str(job), check=False)
    said = (tmp_path / "out").read_text()
    assert ended.returncode == 0, said
    found = re.findall(r"^rank (\d): .*affinity list: (\S+)$", said, re.MULTILINE)
    shares = topology.binding(own_cores(), [topology.Gpu(frozenset([node]), frozenset())] * 2).shares
    assert sorted(found) == [(str(rank), topology.listed(share.cpus)) for rank, share in enumerate(shares)]
