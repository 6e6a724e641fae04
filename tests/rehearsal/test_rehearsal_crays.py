# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""`make rehearse` of the Cray sites to its end: nodes dressed as theirs, and a release built of small stand-ins."""

from __future__ import annotations

import json
import os

import pytest
import rehearsals
import yaml
from support.console import changed_in

from rehearsal.checkout import CHECKOUT, make_environment, send_checkout
from rehearsal.dress import dress
from rehearsal.dress_data import dress_of

SITES = ("polaris", "derecho")
ASKED_FOR = os.environ.get("TORCHSTACK_REHEARSE", "")
CHECKED = ("derecho", ASKED_FOR)
"""Sites whose playbook is checked before anything is built."""

BUILT = ("polaris", ASKED_FOR)
"""Sites that are rolled out. TORCHSTACK_REHEARSE=<site> asks for both of another one, which take minutes."""

STEPS = ("nccl", "nccl-plugin", "mpi4py", "mpi4py-install", "pytorch", "pytorch-install")
"""What is compiled or tried out, each in a job of its own."""

ASKED = """
import json, os
import torch, mpi4py.MPI
print(json.dumps({
    "environment": dict(os.environ), "ranks": mpi4py.MPI.COMM_WORLD.size, "torch": torch.__file__,
    "nccl": torch.cuda.nccl.version(), "mpi": torch.distributed.is_mpi_available(),
    "takes GPU buffers": torch._C._mpi_takes_gpu_buffers(),
}))
"""


def rehearsal_data(site):
    """What a site's rehearsal replaces."""
    return yaml.safe_load((CHECKOUT / "inventories/rehearsal" / site / "group_vars" / (site + ".yml")).read_text())


def site_data(site):
    """What the site says of itself."""
    return yaml.safe_load((CHECKOUT / "inventories" / site / "group_vars" / (site + ".yml")).read_text())


def release_data(site):
    """What the site's rehearsal releases."""
    return yaml.safe_load((CHECKOUT / "inventories" / site / "releases" / "rehearsal.yml").read_text())


def settings(site):
    """The site's own run-time settings, but for those that are made of other variables."""
    found = {setting["name"]: setting["value"] for setting in site_data(site)["torchstack_runtime_settings"]}
    return {name: value for name, value in found.items() if "{{" not in value}


@pytest.fixture(scope="module", params=SITES)
def site(request):
    """Each of the sites; all tests of one run before those of the next, as the nodes wear one dress at a time."""
    return request.param


@pytest.fixture(scope="module")
def planned(cluster, site):
    """What a check of the site's playbook printed before anything was built; empty where it is not checked."""
    if site not in CHECKED:
        return ""
    before = rehearsals.jobs(cluster)
    printed = rehearsals.rehearse(cluster, site, "ARGS=--check --diff")
    assert rehearsals.jobs(cluster) == before
    return printed


@pytest.fixture(scope="module")
def rehearsed(cluster, site, planned):
    """What the first rehearsal printed, and the jobs that it submitted."""
    if site not in BUILT:
        pytest.skip("asked for by TORCHSTACK_REHEARSE=" + site)
    before = rehearsals.jobs(cluster)
    printed = rehearsals.rehearse(cluster, site)
    return printed, [job for number, job in rehearsals.jobs(cluster).items() if number not in before]


def test_a_check_shows_the_full_plan_and_leaves_nothing(site, on, planned):
    if not planned:
        pytest.skip("asked for by TORCHSTACK_REHEARSE=" + site)
    assert "failed=0" in planned
    assert changed_in(planned) > 20
    for planned_step in ("fetch-git", "src.build", "./configure", "setup.py bdist_wheel", "NCCL_SOCKET_IFNAME"):
        assert planned_step in planned, planned_step
    assert on("login", "ls -A " + rehearsal_data(site)["torchstack_root"]).text.split() == []


def test_each_step_is_built_in_a_job_on_a_compute_node(cluster, site, rehearsed):
    printed, submitted = rehearsed
    assert "failed=0" in printed
    assert {job.state for job in submitted} == {"COMPLETED"}
    steps = {job.step: job for job in submitted}
    assert len(steps) == len(submitted)
    assert {"ts-" + step for step in STEPS} <= set(steps)
    acceptance = steps.pop("ts-acceptance")
    assert (acceptance.user, acceptance.account, acceptance.nodes) == ("researcher", "science", "compute[1-2]")
    health = steps.pop("ts-node_health")
    assert (health.user, health.account, health.nodes) == ("rollout", "staff", acceptance.nodes)
    assert {(job.user, job.account) for job in steps.values()} == {("rollout", "staff")}
    assert {job.nodes for job in steps.values()} <= set(cluster.names.compute)


def test_a_second_rehearsal_changes_nothing_and_submits_nothing(cluster, site, rehearsed):
    before = rehearsals.jobs(cluster)
    assert changed_in(rehearsals.rehearse(cluster, site)) == 0
    assert rehearsals.jobs(cluster) == before


def test_the_ordinary_user_loads_the_release_with_the_sites_settings(site, on, rehearsed):
    line = "module load torchstack/rehearsal && python3 -c %s" % json.dumps(ASKED).replace("\\n", "\n")
    found = json.loads(on("compute2", line, user="researcher").text.splitlines()[-1])
    environment = found.pop("environment")
    assert {name: environment.get(name) for name in settings(site)} == settings(site)
    assert environment["CRAY_MPICH_DIR"].startswith("/opt/cray/pe/mpich/")
    assert found.pop("torch").startswith(rehearsal_data(site)["torchstack_root"] + "/rehearsal/")
    assert found == {"ranks": 1, "nccl": [2, 21, 5], "mpi": True, "takes GPU buffers": True}


def test_s41_the_module_is_there_by_the_site_s_own_name_and_one_takes_the_place_of_the_other(site, on, rehearsed):
    names = release_data(site)["module"].get("also_named") or pytest.skip("the release has one name")
    asked = " 2>/dev/null; echo =; echo $_LMFILES_ | tr : '\\n' | grep rehearsal; "
    asked += "python3 -c 'import torch; print(torch.__file__)'; "
    base = rehearsal_data(site)["torchstack_root"] + "/rehearsal/base/"
    for name in names:
        line = "module load " + name + asked + "module load torchstack" + asked
        said = on("compute1", line, user="researcher").text
        first, second = (part.split() for part in said.split("=\n")[1:])
        assert [path.rpartition("lmod/")[2] for path in (first[0], second[-2])] == [
            name + "/rehearsal.lua", "torchstack/rehearsal.lua"], said
        assert first[1] == second[-1] and first[1].startswith(base), said
        seen = on("login", "module -t avail 2>&1; module -t spider %s 2>&1" % name, user="researcher").text
        assert seen.count(name + "/rehearsal") >= 2, seen


def test_files_of_the_site_s_own_are_there_and_the_release_s_python_runs_its_sitecustomize(site, on, rehearsed):
    files = {os.path.basename(file["path"]): file["path"] for file in release_data(site).get("files", [])}
    if not files:
        pytest.skip("the release has none")
    base = rehearsal_data(site)["torchstack_root"] + "/rehearsal/base/"
    kernel = on("compute1", "cat " + base + files["kernel.json"], user="researcher").text
    assert json.loads(kernel)["display_name"] == "PyTorch 2.3.1 of rehearsal" and "torchstack/rehearsal &&" in kernel
    line = "module load torchstack/rehearsal; SITE_USAGE=~/usage python3 -c 'import torch, xxhash'; cat ~/usage"
    assert on("compute1", line, user="researcher").text.splitlines()[-1] == "torch xxhash"
    for path in files.values():
        refused = on("compute1", "echo x >> %s%s" % (base, path.replace("site-packages", "lib/python*/site-packages")),
                     check=False)
        assert refused.returncode != 0, path


def test_the_module_unloads_without_a_trace(on, site, rehearsed):
    line = "module list 2>&1; before=$(env | grep -v LMOD | sort); module load torchstack/rehearsal; module unload %s; "
    line += 'diff <(echo "$before") <(env | grep -v LMOD | sort) | grep -v "_ModuleTable\\|LOADEDMODULES\\|_LMFILES_"'
    assert "torchstack" not in on("login", line % "torchstack/rehearsal", user="researcher", check=False).text


def test_s08_the_toolkits_module_brings_its_headers_and_the_accelerators_module(site, on, rehearsed):
    toolkits = site_data(site).get("torchstack_toolkits") or pytest.skip("the toolkits of the site are its own modules")
    loaded = "module load PrgEnv-gnu cudatoolkit/%s craype-accel-nvidia80 && " % toolkits[0]["version"]
    line = loaded + "echo '#include <cuda_runtime.h>' | g++ -x c++ -fsyntax-only - && echo $CRAY_ACCEL_TARGET"
    assert on("login", line, user="researcher").text.split() == ["nvidia80"]


@pytest.fixture(scope="module")
def dressed(cluster):
    """The nodes in the dress of Polaris."""
    send_checkout(cluster)
    make_environment(cluster)
    dress(cluster, dress_of({"host": rehearsal_data("polaris")}))


@pytest.mark.usefixtures("dressed")
class TestTheDressOfPolaris:
    """What the nodes wear, seen by whoever types commands there."""

    def test_the_accelerators_module_loads_only_beside_a_toolkit(self, on):
        refused = on("login", "module load craype-accel-nvidia80 2>&1; echo $CRAY_ACCEL_TARGET").text
        assert "cudatoolkit" in refused
        assert "nvidia80" not in refused.splitlines()[-1]
        loaded = on("login", "module load PrgEnv-nvhpc craype-accel-nvidia80 && echo $CRAY_ACCEL_TARGET").text
        assert loaded.split() == ["nvidia80"]

    def test_s05_a_compiler_whose_link_is_resolved_does_not_work(self, on):
        line = "module load PrgEnv-gnu; gcc=$(command -v gcc); $gcc --version; $(readlink -f $gcc) --version"
        said = on("login", line, check=False)
        assert said.returncode != 0
        assert "Free Software Foundation" in said.text
        assert "snos/bin/redirect" in said.text

    def test_s42_mpi_ends_a_program_without_the_transport_layer_that_it_was_asked_for(self, on):
        program = "#include <mpi.h>\nint main(int n, char **w) { return MPI_Init(&n, &w) || MPI_Finalize(); }"
        on("login", "cd && mkdir -p gtl && cd gtl && cat > a.c <<'END'\n%s\nEND\nmodule load PrgEnv-gnu; "
                    "cc -o without a.c && cc -target-accel=nvidia80 -o with a.c" % program)
        lines = "cd ~/gtl; module load PrgEnv-gnu; %s./without; MPICH_GPU_SUPPORT_ENABLED=1 ./%s"
        assert on("compute1", lines % ("", "with")).text == ""
        ended = on("compute1", lines % ("", "without"), check=False)
        assert ended.returncode != 0
        assert "GTL library is not linked" in ended.text

    # The last one, as other tests are about nodes that wear nothing.
    def test_nodes_that_wear_it_are_left_alone_and_undressed_for_a_site_without_one(self, cluster, on):
        worn = rehearsal_data("polaris")
        assert dress(cluster, dress_of({"host": worn})) is False
        nodes = ("login", *cluster.names.compute)
        assert [on(node, "test -e /opt/cray; module load gcc; command -v gcc").text for node in nodes] == [
            "/opt/cray/pe/gcc/11.2.0/bin/gcc\n" for node in nodes
        ]
        assert dress(cluster, None) is True
        assert [on(node, "! test -e /opt/cray; module load gcc; command -v gcc").text for node in nodes] == [
            "/usr/bin/gcc\n" for node in nodes
        ]
        assert dress(cluster, None) is False
