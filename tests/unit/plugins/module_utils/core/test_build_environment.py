# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.build_environment import handed_on, without_secrets
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.redaction import withheld

PLAIN = {
    "PATH": "/bin", "HOME": "/h", "LC_ALL": "C.UTF-8", "https_proxy": "http://u:p@x", "NO_PROXY": "h",
    "SSH_AUTH_SOCK": "/s", "MAX_JOBS": "4", "CMAKE_BUILD_PARALLEL_LEVEL": "8", "PIP_INDEX_URL": "https://h/simple",
    "PIP_CONFIG_FILE": "/c",
    "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "file:///m/pip", "TORCHSTACK_MIRROR": "/m",
    "PBS_JOBCOOKIE": "0123456789", "PMI_AUTH": "abcdef", "SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "0",
    "MODULEPATH": "/m", "LOADEDMODULES": "gcc/12", "_LMFILES_": "/m/gcc/12", "LMOD_CMD": "/l", "MODULESHOME": "/l",
    "_ModuleTable001_": "x", "__LMOD_REF_COUNT_PATH": "/bin:1", "BASH_FUNC_module%%": "() { x; }", "CRAYPE_DIR": "/opt",
    "PE_ENV": "GNU"}
SECRET = {"HF_TOKEN": "abcdefgh", "SLURM_JWT": "eyJ"}
SHAPING = [
    "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "CPATH", "LIBRARY_PATH", "CFLAGS", "USE_CUDA", "BUILD_TEST",
    "CMAKE_PREFIX_PATH", "HOROVOD_WITH_MPI", "TORCH_CUDA_ARCH_LIST", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP",
    "MPICH_CC", "OMPI_CC", "I_MPI_CC", "CC", "CXX", "MPICC", "LDSHARED", "AR", "NVCC_CCBIN", "PKG_CONFIG_PATH",
    "MAKEFILES", "MAKEFLAGS", "PERL5LIB", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_COUNT", "GIT_SSL_NO_VERIFY", "GIT_DIR",
    "GIT_EXEC_PATH", "PIP_CONSTRAINT", "PIP_TARGET", "PIP_USER", "PIP_NO_BINARY", "PIP_REQUIRE_HASHES", "TAR_OPTIONS",
    "CARGO_HOME", "RUSTFLAGS", "GOFLAGS", "SETUPTOOLS_USE_DISTUTILS", "BASH_ENV", "ENV", "SHELLOPTS",
    "BASH_FUNC_which%%", "BASH_FUNC_cc%%", "LESSOPEN", "SOMETHING",
]


def test_a_build_gets_of_its_caller_what_is_allowed_and_what_it_names():
    everything = {**PLAIN, **SECRET, **dict.fromkeys(SHAPING, "x")}
    assert withheld(everything) == sorted(SECRET)
    assert handed_on(everything) == PLAIN
    assert handed_on(everything, ["HF_TOKEN", "CFLAGS"]) == {**PLAIN, "HF_TOKEN": "abcdefgh", "CFLAGS": "x"}


def test_the_job_s_own_variables_are_known_by_that_of_its_identifier():
    of_job = {"TOY_JOB": "7", "TOY_RANKS": "2"}
    everything = {**of_job, "TOYS": "x", "CC": "cc", "TOY_TOKEN": "abcdefgh"}
    assert handed_on(everything, (), "TOY_JOB") == of_job
    assert handed_on(everything) == {}


def test_what_starts_a_build_gets_all_but_secrets():
    everything = {**PLAIN, **SECRET, **dict.fromkeys(SHAPING, "x")}
    assert without_secrets(everything) == {**PLAIN, **dict.fromkeys(SHAPING, "x")}
