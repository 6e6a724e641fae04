# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""`make rehearse SITE=lumi` to its end: a real Apptainer on all nodes, and ranks of a real PyTorch in a small image."""

from __future__ import annotations

import json
import shlex

import pytest
import rehearsals
from support import sites, use_page
from support.console import changed_in

SITE = "lumi"
OVER = sites.load(sites.TOP / "inventories/rehearsal/lumi/group_vars/lumi.yml")
RELEASE = sites.load_release(sites.TOP / "inventories/lumi/releases/rehearsal.yml")
ROOT = OVER["torchstack_root"]
CENTRAL = sites.load(sites.TOP / "inventories/lumi/group_vars/lumi.yml")["torchstack_images"]
IMAGE = RELEASE["base"]["image"]["file"]
BASE = ROOT + "/rehearsal/base"
LOADED = "module load PyTorch/rehearsal && "

RANKS = """
import json, os, socket, torch
import torch.distributed as ranks
ranks.init_process_group("gloo")
value = torch.arange(3.0) + ranks.get_rank()
ranks.all_reduce(value)
names = "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR"
print(json.dumps({"sum": value.tolist(), "node": socket.gethostname(), **{name: os.environ[name] for name in names}}))
ranks.destroy_process_group()
"""


@pytest.fixture(scope="module")
def rehearsed(cluster):
    """What the first rehearsal printed, and the jobs that it submitted."""
    before = rehearsals.jobs(cluster)
    printed = rehearsals.rehearse(cluster, SITE)
    return printed, [job for number, job in rehearsals.jobs(cluster).items() if number not in before]


@pytest.fixture()
def researcher(on, rehearsed):
    """Run a line as the ordinary user on the login node, with the module loaded; what it printed."""
    return lambda line: on("login", LOADED + line, user="researcher").text


def test_the_release_is_accepted_as_an_ordinary_user_on_two_nodes(rehearsed):
    printed, submitted = rehearsed
    assert "failed=0" in printed
    assert {job.state for job in submitted} == {"COMPLETED"}
    acceptance = {job.step: job for job in submitted}["ts-acceptance"]
    assert (acceptance.user, acceptance.account, acceptance.nodes) == ("researcher", "science", "compute[1-2]")
    assert "Checked: imports, devices, torch_gloo on 2 ranks as researcher" in printed


def test_a_second_rehearsal_changes_nothing_and_submits_nothing(cluster, rehearsed):
    before = rehearsals.jobs(cluster)
    assert changed_in(rehearsals.rehearse(cluster, SITE)) == 0
    assert rehearsals.jobs(cluster) == before


def test_s35_ranks_on_two_nodes_know_their_places_and_add_up(researcher):
    line = "srun -N2 --ntasks-per-node=2 --input=none singularity -q exec $SIF conda-python-distributed -u -c %s"
    said = researcher(line % shlex.quote(RANKS))
    found = [json.loads(row) for row in said.splitlines() if row.startswith("{")]
    found.sort(key=lambda rank: int(rank["RANK"]))
    assert [(rank["RANK"], rank["node"], rank["NODE_RANK"], rank["LOCAL_RANK"]) for rank in found] == [
        ("0", "compute1", "0", "0"), ("1", "compute1", "0", "1"),
        ("2", "compute2", "1", "0"), ("3", "compute2", "1", "1"),
    ]
    assert {(rank["WORLD_SIZE"], rank["LOCAL_WORLD_SIZE"], rank["MASTER_ADDR"]) for rank in found} == {
        ("4", "2", "compute1")
    }
    assert {tuple(rank["sum"]) for rank in found} == {(6.0, 10.0, 14.0)}


def test_s34_the_module_has_the_documented_variables_and_files(researcher):
    asked = "python3 -c 'import json, os; print(json.dumps(dict(os.environ)))'; ls $EBROOTPYTORCH/share/*"
    environment, listed = researcher("singularity -q exec $SIF " + asked).split("\n", 1)
    inside = json.loads(environment)
    assert inside["SIF"] == inside["SIFPYTORCH"]
    assert inside["SIF"].startswith(ROOT + "/images/") and inside["SIF"].endswith("/" + IMAGE)
    assert inside["RUNSCRIPTS"] == inside["RUNSCRIPTSPYTORCH"] == inside["EBROOTPYTORCH"] + "/runscripts"
    assert inside["EBROOTPYTORCH"] == BASE
    assert inside["PATH"].startswith("/runscripts:/user-software/venv/pytorch/bin:")
    assert inside["SINGULARITY_BIND"].split(",")[: len(OVER["torchstack_container"]["binds"])] == (
        OVER["torchstack_container"]["binds"])
    assert inside["WITH_CONDA"].endswith("/activate pytorch")
    assert RELEASE["base"]["image"]["definition"] in listed
    assert ".slurm" in listed


def test_the_wrappers_run_the_images_python_without_a_container_of_ones_own(researcher):
    assert researcher("python -c 'import torch; print(torch.__version__)' 2> /dev/null").startswith("2.13.0")


def test_the_page_for_users_is_followed_to_the_letter_to_a_job_in_a_real_queue(on, rehearsed):
    page = on("login", "cat %s/.torchstack/rehearsal/use.md" % ROOT, user="researcher").text
    # sbatch waits for the job where it is told to.
    line = 'export SBATCH_WAIT=1 && cd "$(mktemp -d -p ~)" && %s\ncat slurm-*.out' % use_page.script(page, "science")
    said = on("login", line, user="researcher").text
    assert "PyTorch 2.13.0" in said and said.count("summed over 2 ranks on cpu") == 2, said


# The last one: the copy is gone then.
def test_s33_a_deleted_copy_is_replaced_by_the_central_image_when_the_module_is_loaded_again(researcher, on):
    copy = researcher("echo $SIF").strip()
    on("login", LOADED + "rm -f $SIF")
    assert researcher("echo $SIF").split() == [CENTRAL + "/" + IMAGE]
    assert researcher("singularity -q exec $SIF conda-python-simple -c 'import torch; print(torch.__version__)'")
    on("login", "! test -e " + copy)
