# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The acceptance loads the staged modulefile, whatever of the same name the login of its user can see."""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import output
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance.script import job_script
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.layout import SYNTAXES, stage_directory
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.module_system import EM, LMOD, QUIET
from support.published_release import change, stage

NAME = "torchstack/2"


@pytest.fixture()
def root(tmp_path):
    """Two releases that are published, the one to be accepted as the default."""
    for version in ("1", "2"):
        stage(tmp_path, version)
        change(tmp_path, version, default=version == "2")
    return str(tmp_path)


@pytest.fixture()
def load(root, system, tmp_path):
    """Log in with some commands of the site, load as the acceptance does, and return what was told."""

    def run(*login, told=None):
        init = tmp_path / "login.sh"
        words = shlex.join(system.words)
        settings = ["export %s=%s" % (key, shlex.quote(value)) for key, value in QUIET[system.kind].items()]
        init.write_text("\n".join([
            "export MODULEPATH=", *settings, "export LMOD_CMD=" if system.kind == EM else "export LMOD_CMD=" + words,
            'module() { eval "$(%s bash "$@")"; }' % words, *login, "",
        ]))
        staged = os.path.join(stage_directory(root, "2"), "modulefiles")
        question = {
            "module": NAME, "module_system": "auto", "module_init": [str(init)], "environment": {}, "python": "true",
            "modulepaths": {syntax: os.path.join(staged, syntax) for syntax in SYNTAXES},
            **(told or {}),
        }
        script = tmp_path / "job.sh"
        script.write_text(job_script(question, ["env", "true"], str(tmp_path), 60))
        done = subprocess.run(
            ["/bin/bash", "--noprofile", "--norc", str(script)], env={"HOME": root, "PATH": "/usr/bin:/bin"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )
        heard = output.parse_output(done.stdout)
        assert done.returncode == 0, done.stdout
        return heard.event("modulefile")

    return run


def published(root, system):
    return os.path.join(root, "modulefiles", "tcl" if system.kind == EM else "lmod")


def accepted(root, system):
    syntax, name = ("tcl", NAME) if system.kind == EM else ("lmod", NAME + ".lua")
    return os.path.join(stage_directory(root, "2"), "modulefiles", syntax, name)


def test_a_published_default_in_the_login_s_modulepath_is_not_what_is_accepted(load, root, system):
    assert load("module use " + published(root, system)) == accepted(root, system)


def test_nor_one_that_the_login_has_loaded_through_a_link(load, root, system):
    os.symlink(published(root, system), os.path.join(root, "modules"))
    login = ["export MODULEPATH=%s/modules:/nowhere" % root, "module load torchstack"]
    assert load(*login) == accepted(root, system)


def test_nor_another_release_that_the_login_has_loaded(load, root, system):
    assert load("module use " + published(root, system), "module load torchstack/1") == accepted(root, system)


def test_a_spider_cache_that_is_older_than_the_staged_file_does_not_hide_it(load, root, system):
    path = accepted(root, system)
    stages = os.path.dirname(os.path.dirname(path))
    old = ["mv %s %s.later" % (path, root), "export LMOD_SHORT_TIME=0 LMOD_CACHED_LOADS=yes",
           "module use %s %s" % (published(root, system), stages), "module -t avail", "module unuse " + stages]
    assert load(*old, "mv %s.later %s" % (root, path)) == path


def test_the_system_that_the_site_names_is_gone_through_whatever_the_login_has(load, root, system, other_system):
    """Both systems are in the login, as on nodes that have them side by side, and the site names one."""
    told = {"module_system": system.kind, "module_definition": defined(system)}
    login = ("module use " + published(root, system), "module load " + NAME, defined(other_system))
    assert load(*login, told=told) == accepted(root, system)


def defined(system):
    """Write the command as the system's own start-up file does."""
    words = shlex.join(system.words)
    if system.kind == LMOD:
        return 'export LMOD_CMD=%s LMOD_VERSION=8\nmodule() { eval "$($LMOD_CMD bash "$@")"; }' % words
    return 'module() { eval "$(%s bash "$@")"; }' % words
