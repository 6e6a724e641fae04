# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The MPI backend from PyTorch's real source, for a torch of that version with a backend of another MPI built in.

TORCHSTACK_TORCH_ROOT names the root directory of a Debian that has both, which podman runs, for Debian 13 made by
    mmdebstrap --variant=minbase --include=ansible-core,g++,git,libmpich-dev,libtorch-dev,mpich,patch,pybind11-dev,\
python3-pip,python3-torch trixie DIRECTORY
TORCHSTACK_TORCH_SOURCE names the unpacked source of that PyTorch: apt-get source --download-only pytorch, and tar.
Debian's torch has Open MPI; the backend is compiled with MPICH. So two implementations of MPI are in each process.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess

import pytest

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
C10D = "torch/csrc/distributed/c10d"
ROOT, SOURCE = os.environ.get("TORCHSTACK_TORCH_ROOT"), os.environ.get("TORCHSTACK_TORCH_SOURCE")
OPERATIONS = ["all_reduce", "broadcast", "all_gather", "reduce_scatter", "barrier"]
REFUSED = {
    "reduce_scatter_of_too_few": "Reduce scatter: number of input tensors should equal to the world size",
    "reduce_scatter_of_unequal": "Tensors are not equal in size or data type",
    "reduce_scatter_tensor": "Backend mpi does not support _reduce_scatter_base",
}
COLLECTION = "/collections/ansible_collections/hpcml/torchstack"
CALLS = {"MPI_Bcast": 1, "MPI_Allgather": 1, "MPI_Reduce_scatter_block": 2, "MPI_Barrier": 1}
PLAY = """
- hosts: localhost
  gather_facts: false
  vars:
    here: /work-area
    collection: /collections/ansible_collections/hpcml/torchstack
    definition:
      pytorch:
        version: "{{ version }}"
        mpi_backend:
          repository: file:///work-area/pytorch.git
          tag: ""
          commit: "{{ commit }}"
          series: 2.6.0
          name: "{{ called }}"
    release_context:
      frozen: false
      definition: "{{ definition }}"
      prefix: "{{ here }}/release"
      records: "{{ here }}/release/.torchstack"
      tools: "{{ here }}/tools"
      mirror: {}
      series: "{{ definition | series_digests(collection ~ '/roles') }}"
      compilers: {CC: gcc, CXX: g++}
      mpi: {provider: prefix, prefix: /usr, bin: /usr/bin, cc: mpicc.mpich, cxx: mpicxx.mpich, launcher: mpiexec.mpich}
      base:
        tag: cp313
        platform: linux_x86_64
        environment: {}
        run: /usr/bin/python3
        pip: {install: "/usr/bin/python3 -m pip install --no-deps --break-system-packages --root-user-action ignore"}
  tasks:
    - ansible.builtin.copy:
        src: "{{ collection }}/roles/python_tools/files/fetch-git"
        dest: "{{ here }}/tools/bin/"
        mode: "0755"
    - hpcml.torchstack.build_step:
        name: pytorch
        script: "true"
        state_dir: "{{ release_context.records }}/steps"
    - ansible.builtin.include_role:
        name: hpcml.torchstack.pytorch
        tasks_from: mpi_backend
"""

pytestmark = pytest.mark.skipif(
    not (ROOT and SOURCE and shutil.which("podman")),
    reason="no Debian with torch: set TORCHSTACK_TORCH_ROOT and TORCHSTACK_TORCH_SOURCE, see the head of this file",
)


def git(tree, *words):
    identity = ["-c", "user.name=tests", "-c", "user.email=tests@example.org"]
    return subprocess.run(["git", "-C", tree, *identity, *words], stdout=subprocess.PIPE, text=True, check=True).stdout


@pytest.fixture(scope="module")
def debian(tmp_path_factory):
    """Runs a command in the Debian; what is installed there while the tests last is gone afterwards."""
    area = tmp_path_factory.mktemp("area")
    tree = area / "pytorch.git"
    shutil.copytree(pathlib.Path(SOURCE) / C10D, tree / C10D)
    shutil.copy(pathlib.Path(SOURCE) / "version.txt", tree)
    git(tree, "init", "--quiet")
    git(tree, "add", ".")
    git(tree, "commit", "--quiet", "--message", "PyTorch")
    shutil.copy(CHECKOUT / "tests/fixtures/mpi_backend/collectives.py", area)
    (area / "play.yml").write_text(PLAY)
    name = "torchstack-mpi-backend-%d" % os.getpid()
    subprocess.run(
        ["podman", "run", "--detach", "--rm", "--name", name, "--network", "none",
         "--volume", "%s:/work-area" % area,
         "--volume", "%s:/collections/ansible_collections/hpcml/torchstack:ro" % CHECKOUT,
         "--rootfs", ROOT + ":O", "sleep", "infinity"],
        stdout=subprocess.DEVNULL, check=True,
    )

    def run(*words):
        settings = {"LC_ALL": "C.UTF-8", "ANSIBLE_COLLECTIONS_PATH": "/collections", "OMP_NUM_THREADS": "1",
                    "ANSIBLE_FILTER_PLUGINS": COLLECTION + "/tests/support/filter_plugins"}
        return subprocess.run(
            ["podman", "exec", *("--env=%s=%s" % item for item in settings.items()), name, *words],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )

    run.area, run.commit = area, git(tree, "rev-parse", "HEAD").strip()
    try:
        yield run
    finally:
        subprocess.run(["podman", "rm", "--force", "--time", "0", name], stdout=subprocess.DEVNULL, check=False)


def rollout(debian, *options, **variables):
    said = dict({"commit": debian.commit, "version": "2.6.0"}, **variables)
    words = ["-i", "localhost,", "-c", "local", "-e", json.dumps(said), *options]
    return debian("ansible-playbook", *words, "/work-area/play.yml")


@pytest.fixture(scope="module")
def backend(debian):
    process = rollout(debian, called="torchstack_mpi")
    assert process.returncode == 0, process.stdout
    return debian


def test_check_mode_plans_all_of_it_and_makes_nothing(debian):
    process = rollout(debian, "--check", called="torchstack_mpi")
    assert process.returncode == 0 and "changed=7 " in process.stdout, process.stdout
    assert not (debian.area / "release").exists()


def test_the_name_of_a_built_in_backend_is_refused_before_compiling(debian):
    process = rollout(debian, called="mpi")
    assert process.returncode != 0
    assert "has an MPI backend of its own, named mpi. Nothing was compiled." in " ".join(process.stdout.split())
    assert not list((debian.area / "release").glob("wheels/*.whl"))


def test_a_second_run_of_the_role_changes_nothing(backend):
    process = rollout(backend, called="torchstack_mpi")
    assert "changed=0 " in process.stdout, process.stdout


@pytest.mark.parametrize("size", [2, 4])
def test_the_collectives_are_right_and_served_by_the_mpi_of_the_release(backend, size):
    process = backend(
        "mpiexec.mpich", "-n", str(size), "python3", "/work-area/collectives.py", "torchstack_mpi",
        "/work-area/meeting%d" % size, *OPERATIONS, *REFUSED, "group_of_some",
    )
    assert process.returncode == 0, process.stdout
    ranks = [json.loads(path.read_text()) for path in sorted(backend.area.glob("meeting%d.*.json" % size))]
    assert [rank["rank"] for rank in ranks] == list(range(size))
    for rank in ranks:
        assert rank["size"] == size
        assert rank["right"] == dict.fromkeys([*OPERATIONS, "group_of_some"], True)
        assert rank["refused"] == REFUSED
        assert rank["built in"], "Debian's torch has a backend that could have answered"
        assert any("libmpi.so.40" in path for path in rank["maps"]), "and its Open MPI is loaded"
        assert rank["type"] == "torchstack_mpi._backend.ProcessGroupMPI"
        assert rank["library"]["version"].startswith("MPICH")
        assert "libmpich.so.12" in rank["library"]["path"]
        assert {name: rank["calls"].get(name) for name in CALLS} == CALLS
        assert rank["calls"]["MPI_Allreduce"] == (2 if rank["rank"] in (0, size - 1) else 1)


def test_the_library_offers_no_symbol_of_a_process_group(backend):
    where = "python3 -c 'import torchstack_mpi; print(torchstack_mpi._load().__file__)' | tail -n 1"
    symbols = backend("sh", "-c", "nm -D --defined-only $(%s)" % where)
    assert [line.split()[-1] for line in symbols.stdout.splitlines() if " T " in line] == ["PyInit__backend"]
