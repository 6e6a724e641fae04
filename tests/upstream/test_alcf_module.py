# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""ALCF's own conda/2023-10-04 and the module of that release as the role renders it, each over and after the other.

    make test-upstream MIRROR=DIRECTORY

In every real Lmod of the machine, and those that TORCHSTACK_LMOD names. MIRROR holds a bare clone of
argonne-lcf/conda_install_scripts. Both files are taken as they are but for paths below /soft, which are moved below a
directory of the test; the modules that they depend on and conda's start-up file are stand-ins.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import module_system
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.session import run_session
from support import site_modules, sites
from support.module_systems import module_systems, name_of

MIRROR = os.environ.get("TORCHSTACK_UPSTREAM", "")
REPOSITORY, COMMIT = "argonne-lcf/conda_install_scripts", "70e2279"
SITE, RELEASE = "polaris", "2023-10-04"
THEIRS, OURS = "conda/" + RELEASE, "torchstack/" + RELEASE
#: The last thing that an unload of theirs does is to unset every variable with CONDA in its name, whoever set it.
UNSET_BY_THEIRS = {"CONDA_PREFIX", "CONDA_DEFAULT_ENV"}
USER = {"LD_LIBRARY_PATH": "/home/u/lib", "PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONUSERBASE": "/home/u/base"}

pytestmark = pytest.mark.skipif(not MIRROR, reason="no mirror: make test-upstream MIRROR=DIRECTORY")


def their_file():
    """Their modulefile, from whichever form of clone there is."""
    owner, name = REPOSITORY.split("/")
    for place in ("%s/%s.git" % (owner, name), "%s.git" % name, "%s+%s/repo" % (owner, name)):
        if (pathlib.Path(MIRROR) / place / "objects").is_dir():
            clone = ["--git-dir", str(pathlib.Path(MIRROR).resolve() / place)]
            return subprocess.run(
                ["git", "-c", "safe.directory=*", *clone, "show", COMMIT + ":alcf_polaris/modulefiles/2023-10-04.lua"],
                text=True, check=True, stdout=subprocess.PIPE).stdout
    return pytest.skip("%s has no clone of %s" % (MIRROR, REPOSITORY))


@pytest.fixture(scope="module")
def our_file(ansible_environment, tmp_path_factory):
    """The project's modulefile, of the site's data and the release file."""
    data = sites.variables(SITE, site_modules.DATA, {**ansible_environment, "TORCHSTACK_ACCOUNT": "project"})
    return site_modules.render({SITE: RELEASE}, {SITE: data}, ansible_environment, tmp_path_factory.mktemp("r"))[SITE]


@pytest.fixture(params=module_systems(module_system.LMOD), ids=name_of)
def session(request, tmp_path, our_file):
    """Run module commands in bash with both modules, and return what is set before and after each."""
    system, top = request.param, str(tmp_path)
    files = {
        THEIRS + ".lua": their_file().replace("/soft/", top + "/soft/"),
        OURS + ".lua": our_file.replace("/soft/", top + "/soft/"),
        "PrgEnv-gnu/1.lua": 'setenv("PE_ENV", "GNU")\n',
        "cray-hdf5-parallel/1.12.1.3.lua": 'setenv("HDF5_DIR", "/opt/hdf5")\n'}
    for name, text in files.items():
        path = tmp_path / "modules" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    script = tmp_path / "soft/datascience/conda/2023-10-04/mconda3/etc/profile.d/conda.sh"
    script.parent.mkdir(parents=True)
    script.write_text(
        "export CONDA_EXE=x CONDA_SHLVL=0\nconda() { :; }\n__conda_activate() { :; }\n"
        "__conda_hashr() { :; }\n__conda_reactivate() { :; }\n", encoding="utf-8")

    def run(*commands):
        scratch = tmp_path / ("session-%d" % len(list(tmp_path.iterdir())))
        scratch.mkdir()
        start = {"HOME": "/home/u", "LC_ALL": "C.UTF-8", "MODULEPATH": top + "/modules", **USER}
        result = run_session(shutil.which("bash"), system, [words.split() for words in commands], start, str(scratch))
        assert set(result.statuses) == {0}, result.messages
        return [
            {name: value for name, value in snapshot.environment.items()
             if not module_system.is_bookkeeping(name) and name not in ("_", "SHLVL", "PWD", "OLDPWD")
             and not name.startswith("__TORCHSTACK_")}
            for snapshot in result.snapshots]

    return run


def differences(one, other):
    """The variables that differ, with both values."""
    return {name: (one.get(name), other.get(name)) for name in {*one, *other} if one.get(name) != other.get(name)}


SAME = {
    "CUDA_HOME", "CUDA_TOOLKIT_BASE", "HDF5_DIR", "MPICH_GPU_SUPPORT_ENABLED", "PE_ENV", "http_proxy", "https_proxy"}
OTHER = {"ENV_NAME", "PYTHONUSERBASE", "PATH", "LD_LIBRARY_PATH"}
THEIRS_ALONE = {
    "CFLAGS", "CONDA_EXE", "CONDA_SHLVL", "LDFLAGS", "MPI4JAX_USE_CUDA_MPI", "XLA_FLAGS",
    "XLA_PYTHON_CLIENT_PREALLOCATE"}
OURS_ALONE = {
    "CONDA_DEFAULT_ENV", "CONDA_PREFIX", "FI_CXI_DEFAULT_CQ_SIZE", "FI_CXI_DISABLE_HOST_REGISTER",
    "FI_MR_CACHE_MONITOR", "NCCL_COLLNET_ENABLE", "NCCL_CROSS_NIC", "NCCL_NET", "NCCL_NET_GDR_LEVEL",
    "NCCL_SOCKET_IFNAME", "no_proxy"}


def test_variable_by_variable_both_modules_set_what_the_page_of_the_site_says(session):
    before, theirs = session("load " + THEIRS)
    ours = session("load " + OURS)[-1]
    changed = {name for name in {*theirs, *ours} if {before.get(name)} != {theirs.get(name), ours.get(name)}}
    changed -= {name for name in changed if name.startswith("BASH_FUNC_")}
    assert {name for name in changed if theirs.get(name) == ours.get(name)} == SAME
    assert {name for name in changed if name not in ours} == THEIRS_ALONE
    assert {name for name in changed if name not in theirs} == OURS_ALONE
    assert {name for name in changed if name in theirs and name in ours} == SAME | OTHER
    assert theirs["PYTHONUSERBASE"].endswith("/.local/polaris/" + THEIRS)
    assert ours["PYTHONUSERBASE"].endswith("/.local/torchstack/polaris/" + RELEASE)
    # The same CUDA and cuDNN first; of NCCL and TensorRT nothing.
    libraries, site_s = (
        [one.partition("/soft/")[2] for one in each["LD_LIBRARY_PATH"].split(":") if "/soft/" in one]
        for each in (ours, theirs))
    assert libraries and set(libraries) < set(site_s)
    assert not [one for one in libraries if "nccl" in one or "trt" in one]


@pytest.mark.parametrize("commands", [
    ["load " + THEIRS, "load " + OURS], ["load " + THEIRS, "swap %s %s" % (THEIRS, OURS)],
    ["load " + THEIRS, "unload " + THEIRS, "load " + OURS]])
def test_s02_ours_over_alcf_s_is_as_if_theirs_had_never_been_loaded(session, commands):
    alone, mixed = session("load " + OURS)[-1], session(*commands, "unload " + OURS)
    found = differences(alone, mixed[-2])
    lost = UNSET_BY_THEIRS if len(commands) == 2 else set()
    # Of what both set, theirs had unset the user's own before ours came.
    assert set(found) - {"_CE_M", "_CE_CONDA", "PS1"} == lost, found
    left = differences(mixed[0], mixed[-1])
    assert set(left) - {"_CE_M", "_CE_CONDA", "PS1", "CONDA_SHLVL"} <= {"PYTHONUSERBASE"}, left


@pytest.mark.parametrize("commands", [
    ["load " + OURS, "load " + THEIRS], ["load " + OURS, "swap %s %s" % (OURS, THEIRS)],
    ["load " + OURS, "unload " + OURS, "load " + THEIRS]])
def test_alcf_s_over_ours_is_as_if_ours_had_never_been_loaded(session, commands):
    alone, mixed = session("load " + THEIRS, "unload " + THEIRS), session(*commands, "unload " + THEIRS)
    assert differences(alone[1], mixed[-2]) == {}
    assert differences(alone[-1], mixed[-1]) == {}
