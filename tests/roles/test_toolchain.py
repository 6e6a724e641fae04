# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A release that is compiled with the modules of a site, up to its first steps."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
import yaml
from support import sites

CHECKOUT = pathlib.Path(__file__).parents[2]
INITS = ("/usr/share/lmod/lmod/init/bash", "/usr/share/modules/init/bash", "/usr/share/Modules/init/bash")
MODULEFILE = """#%%Module
prepend-path PATH %(here)s/bin
setenv TOY_MPI_DIR %(here)s/mpi
setenv CFLAGS -DOF_THE_MODULE
"""
PLAYBOOK = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.include_role:
        name: hpcml.torchstack.release
    - hpcml.torchstack.build_step:
        name: probe
        state_dir: "{{ release_context.records }}/steps"
        script: command -v "$CC" > found; printf '%s' "${CFLAGS-unset} $PLACE" > seen
        modules: "{{ toolchain.modules }}"
        module_init: "{{ toolchain.module_init }}"
        environment: "{{ toolchain.environment | combine(toolchain.compilers) }}"
        unset: "{{ toolchain.unset }}"
      vars:
        toolchain: "{{ release_context | hpcml.torchstack.step_toolchain('mpi4py') }}"
    - ansible.builtin.include_role:
        name: hpcml.torchstack.mpi
      when: ansible_check_mode
    - ansible.builtin.include_role:
        name: hpcml.torchstack.horovod
    - ansible.builtin.include_role:
        name: hpcml.torchstack.release
        tasks_from: summary
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory, ansible_environment):
    """A site with a module that brings compilers of their own names, and an MPI without wrappers."""
    init = next((path for path in INITS if os.path.exists(path)), None)
    if init is None:
        pytest.skip("neither Lmod nor Environment Modules is installed")
    here = tmp_path_factory.mktemp("site")
    for name, command in (("toycc", "cc"), ("toyCC", "c++")):
        program = here / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text('#!/bin/sh\nexec %s -I%s/mpi/include "$@"\n' % (command, here))
        program.chmod(0o755)
    (here / "mpi" / "include").mkdir(parents=True)
    (here / "mpi" / "include" / "mpi.h").write_text('#define MPICH_VERSION "4.0"\n')
    (here / "modulefiles" / "toy").mkdir(parents=True)
    (here / "modulefiles" / "toy" / "1.0").write_text(MODULEFILE % {"here": here})
    (here / "simple" / "pip").mkdir(parents=True)
    (here / "simple" / "pip" / "index.html").write_text('<a href="pip-1-py3-none-any.whl">pip-1-py3-none-any.whl</a>')
    return Site(here, init, ansible_environment)


class Site:
    """The site, and rollouts there."""

    def __init__(self, here, init, environment):
        self.here, self.environment = here, environment
        self.variables = {
            "torchstack_root": str(here / "root"), "torchstack_site": "mysite", "torchstack_release": "toy",
            "torchstack_required_bytes": 1, "torchstack_required_inodes": 1, "release_file": str(here / "toy.yml"),
            "torchstack_module_init": init, "torchstack_module_path": [str(here / "modulefiles")],
        }

    def roll_out(self, toolchain, *options, **variables):
        """Run the playbook for a release with this toolchain; what it printed, on one line."""
        release = sites.load_release(CHECKOUT / "inventories/local/releases/2026-11-20.yml")
        del release["horovod"], release["verification"]
        release.update(release="toy", packages=[], toolchain=toolchain)
        release["mpi"] = {"prefix": "${TOY_MPI_DIR}", "cc": "toycc", "cxx": "toyCC"}
        release["mpi4py"]["environment"] = {"MPICC": "toycc -shared -target-accel=nvidia80"}
        (self.here / "toy.yml").write_text(yaml.safe_dump(release))
        (self.here / "play.yml").write_text(PLAYBOOK)
        ansible = os.path.join(os.path.dirname(sys.executable), "ansible-playbook")
        process = subprocess.run(
            [ansible, "-i", "localhost,", "-c", "local", "-e", json.dumps({**self.variables, **variables}), *options,
             str(self.here / "play.yml")],
            env={**self.environment, "PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": (self.here / "simple").as_uri()},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )
        return process.returncode, " ".join(process.stdout.split())


TOOLCHAIN = {
    "modules": ["toy/1.0"], "environment": {"PLACE": "${TOY_MPI_DIR}/lib"}, "unset": ["CFLAGS"],
    "compilers": {"CC": "toycc", "CXX": "toyCC"}, "steps": {"horovod": {"environment": {"A": "1"}}},
}


def test_s05_steps_call_the_compilers_of_the_modules_as_they_are_typed(site):
    code, said = site.roll_out(TOOLCHAIN)
    assert code == 0, said[-6000:]
    records = site.here / "root" / "toy" / ".torchstack"
    assert (records / "steps/probe/found").read_text().strip() == str(site.here / "bin/toycc")
    assert (records / "steps/probe/seen").read_text() == "unset %s/mpi/lib" % site.here
    assert "module load toy/1.0" in (records / "steps/probe/script.sh").read_text()
    resolved = yaml.safe_load((records / "release.yml").read_text())
    assert resolved["compilers"] == {"CC": "toycc", "CXX": "toyCC"}
    assert (resolved["mpi"]["cc"], resolved["mpi"]["version"]) == ("toycc", "4.0")
    assert resolved["definition"]["mpi"]["prefix"] == str(site.here / "mpi")
    assert resolved["written"]["mpi.prefix"] == "${TOY_MPI_DIR}"
    assert "Left out: Horovod" in said
    assert "Not used: toolchain.steps speaks of horovod, which is no step of this release" in said


def test_s42_the_release_files_mpicc_wins_over_the_wrapper_of_the_mpi(site):
    code, said = site.roll_out(TOOLCHAIN, "--check", "--diff")
    assert code == 0, said[-6000:]
    assert "export MPICC='toycc -shared -target-accel=nvidia80'" in said
    assert "horovod-source" not in said


def test_a_module_that_does_not_load_is_told_before_anything_is_built(site):
    code, said = site.roll_out(dict(TOOLCHAIN, steps={"nccl": {"modules": ["toy/9.9"]}}), "--check")
    assert code != 0
    assert "The modules under toolchain in toy.yml do not load here, and nothing was built" in said
    assert "toy/9.9" in said


def test_a_machine_that_is_not_the_site_hears_only_that(site):
    expect = {"paths": ["/nonexistent/site"], "rehearsal": "make rehearse SITE=mysite"}
    code, said = site.roll_out(dict(TOOLCHAIN, modules=["toy/9.9"]), "--check", "--diff", release_expect=expect)
    assert code != 0
    assert "run its rehearsal: make rehearse SITE=mysite" in said
    assert "toy/9.9" not in said
