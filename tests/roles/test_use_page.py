# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The page that tells users how a release is used says what this release has, and nothing that it has not."""

from __future__ import annotations

import pytest
from support import role_plays, use_page

SLURM = {"jobs": {"launcher": "slurm", "options": {"account": "ops", "partition": "gpu"}, "steps": {}},
         "ranks": {"launcher": ["srun"], "nodes": 2, "per_node": 4}}
PLAIN = {"base": {"kind": "python_overlay"}, "definition": {}}
MPI_ONLY = {"horovod": {"environment": {"HOROVOD_WITH_MPI": "1"}, "expect": {"controllers": ["MPI"]}}}
WITH_GLOO = {"horovod": {"environment": {"HOROVOD_WITH_GLOO": "1"}}}


def image(checks=(), **base):
    return {"base": {"kind": "container", "wrappers": ["python"], "gpu": "none", **base},
            "definition": {"acceptance": {"checks": list(checks)}}}


CASES = {
    "plain": PLAIN,
    "mpi4py": {**PLAIN, "definition": {"mpi4py": {}}},
    "horovod": {**PLAIN, "definition": MPI_ONLY},
    "horovod in jobs": {**PLAIN, **SLURM, "definition": MPI_ONLY},
    "horovod with gloo in jobs": {**PLAIN, **SLURM, "definition": WITH_GLOO},
    "image": image(),
    "image with torchrun": image(wrappers=["python", "torchrun"]),
    "accepted image in jobs": {**image(["imports", "torch_gloo"], gpu="amd"), **SLURM},
}


@pytest.fixture(scope="module")
def pages(ansible_environment, tmp_path_factory):
    """The page of each case, by its name."""
    top = tmp_path_factory.mktemp("pages")
    cases = [{"name": name, "context": {"release": "1", **context}} for name, context in CASES.items()]
    for case in cases:
        (top / case["name"]).mkdir()
    variables = {
        "torchstack_root": str(top), "torchstack_release": "1", "torchstack_notice": {"name": "My Site"},
        "release_context": "{{ case.context }}",
        "report_gathered": {"path": str(top) + "/{{ case.name }}/report.json", "facts": {
            "release": {"module": "torchstack/1"}, "versions": [{"name": "PyTorch", "version": "2.13.0"}],
            "packages": []}},
    }
    done = role_plays.play_tasks("notice", "use", variables, cases, ansible_environment, top)
    assert done.returncode == 0, done.stdout
    return {name: (top / name / "use.md").read_text() for name in CASES}


def test_horovodrun_is_spoken_of_where_the_release_has_it_and_it_works(pages):
    found = {
        name: [line for line in page.splitlines() if line.startswith("horovodrun")] for name, page in pages.items()}
    assert {name: lines for name, lines in found.items() if lines} == {
        "horovod": ["horovodrun -np 2 python3 ranks.py"],
        # There is no mpirun that could start ranks from a login node.
        "horovod with gloo in jobs": ["horovodrun --gloo -np 2 python3 ranks.py"],
    }
    assert "Horovod" not in pages["mpi4py"] and "mpiexec -n 2 python3 ranks.py" in pages["mpi4py"]


def test_torchrun_is_spoken_of_where_an_image_is_known_to_have_it(pages):
    words = {name: page[: page.index(" --standalone")].splitlines()[-1] for name, page in pages.items()
             if " --standalone" in page}
    assert words == {name: "torchrun" for name in CASES if name not in ("image", "accepted image in jobs")} | {
        "accepted image in jobs": "python3 -m torch.distributed.run"}


def test_a_kernel_for_jupyter_is_written_on_top_of_whatever_has_virtual_environments(pages):
    lines = 'exec python -m ipykernel_launcher -f \\"\\$0\\""'
    assert {name for name, page in pages.items() if lines in page} == {
        name for name, case in CASES.items() if case["base"]["kind"] != "container"}


def test_a_job_has_the_directives_and_the_program_of_its_site_and_release(pages):
    jobs = {name: page for name, page in pages.items() if "sbatch job.sh\n" in use_page.blocks(page)}
    assert set(jobs) == {name for name in CASES if name.endswith("in jobs")}
    for page in jobs.values():
        assert "#SBATCH --partition=gpu\n" in page and "`your_project`" in page and "ops" not in page
    image = pages["accepted image in jobs"]
    assert "\nmodule load torchstack/1\nexport TORCHSTACK_VISIBLE_GPUS=all " in image
    assert "\nsrun $RUNSCRIPTS/conda-python-distributed sum.py\nEND\n" in image
    assert "module load torchstack/1\nsrun python3 ranks.py\nEND\n" in pages["horovod in jobs"]


def test_every_block_is_closed(pages):
    for page in pages.values():
        assert use_page.blocks(page)[0].endswith("module load torchstack/1\n")
