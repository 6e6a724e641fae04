# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The script that loads the module and starts the ranks."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import output as acceptance_output
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import script as acceptance_script

SCRIPTED = {
    "module": "stack/1", "module_system": "auto", "module_init": [], "modulepaths": {"lmod": "/m o/lmod"},
    "environment": {}, "python": "python3",
}


def run_script(tmp_path, changes, launcher=("env", "echo", "launched"), functions=""):
    """Run the job's script with a ``module`` function of our own; its output."""
    start = tmp_path / "init.sh"
    start.write_text(functions)
    question = dict(SCRIPTED, module_init=[str(start)], **changes)
    script = tmp_path / "job.sh"
    script.write_text(acceptance_script.job_script(question, list(launcher), str(tmp_path), 60))
    process = subprocess.run(
        ["/bin/bash", "--noprofile", "--norc", str(script)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env={"PATH": os.path.dirname(sys.executable) + ":/usr/bin:/bin"}, check=False,
    )
    return process.returncode, process.stdout


LMOD = """
LMOD_VERSION=8.7
module() {
    if [ "$1" = use ]; then echo "used <$2>"; return; fi
    LOADEDMODULES=$2:gcc/12 _LMFILES_="/m o/lmod/$2.lua:/g.lua"
}
"""


def test_the_script_uses_the_module_path_of_the_system_it_finds(tmp_path):
    code, output = run_script(tmp_path, {}, functions=LMOD)
    assert code == 0, output
    assert "used </m o/lmod>" in output
    assert "%s through\tlmod" % acceptance_output.EVENT in output
    assert "modulefile\t/m o/lmod/stack/1.lua" in output
    assert output.splitlines()[-1].startswith("launched python3 ")


@pytest.mark.parametrize(("functions", "changes", "problem"), [
    (LMOD + "module() { return 1; }", {}, "module lmod cannot load stack/1"),
    (LMOD + "module() { :; }", {}, "module lmod did not load stack/1"),
    (LMOD + "module() { LOADEDMODULES=stack/1; _LMFILES_=/old/stack/1.lua; }", {},
     "module stack/1 was loaded from elsewhere than /m o/lmod"),
    ("MODULESHOME=/em; module() { :; }", {}, "module acceptance_modulepaths names no directory for environment-module"),
    ("", {"module_system": "lmod"}, "module no module system in a login of this user, where lmod is expected"),
    (LMOD, {"module_system": "environment-modules"},
     "module lmod is what module is in a login of this user, where environment-modules is expected"),
    (LMOD, {"python": "python-that-is-not-there"}, "python python-that-is-not-there is not on PATH"),
])
def test_the_script_says_what_kept_it_from_starting_the_ranks(tmp_path, functions, changes, problem):
    code, output = run_script(tmp_path, changes, functions=functions)
    assert code == 70
    assert "problem\t" + problem in output
    assert "launched" not in output


def test_the_ranks_of_one_acceptance_have_a_secret_that_no_other_one_has(tmp_path):
    tell = ["env", "bash", "-c", 'echo "<$TORCHSTACK_SEATS>"']
    found = [run_script(tmp_path, {}, launcher=tell, functions=LMOD)[1].splitlines()[-1] for _time in range(2)]
    assert all(re.fullmatch("<[0-9a-f]{32}>", secret) for secret in found) and found[0] != found[1]
    given = run_script(tmp_path, {"environment": {"TORCHSTACK_SEATS": "mine"}}, launcher=tell)[1]
    assert given.splitlines()[-1] == "<mine>"


def test_without_modules_the_environment_is_used_as_it_is_written(tmp_path):
    changes = {"environment": {"SECRET": "a b'$(false)\"", "N": 3}}
    code, output = run_script(tmp_path, changes, launcher=["env", "bash", "-c", 'echo "<$SECRET|$N>"'])
    assert code == 0, output
    assert "<a b'$(false)\"|3>" in output
    assert "without_module\tno module system on this host" in output
    _code, output = run_script(tmp_path, {"module_system": "none"}, functions=LMOD)
    assert "through\tenvironment" in output
