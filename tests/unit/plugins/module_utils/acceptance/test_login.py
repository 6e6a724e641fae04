# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The fresh login in which ranks are started."""

from __future__ import annotations

import subprocess
import sys

from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import login as acceptance_login


def test_a_fresh_login_has_nothing_of_the_rollout_s_environment_but_what_was_named():
    account = acceptance_login.Account("tester", 1002, "/home/tester", "/bin/bash", True)
    current = {"PYTHONPATH": "/x", "PBS_JOBID": "7", "PBS_NODEFILE": "/n", "TOKEN": "t", "BASH_FUNC_x%%": "() { :; }",
               "SITE_TOKEN": "t", "SLURM_JWT": "t"}
    environment = acceptance_login.login_environment(account, ["PBS_*", "BASH_FUNC*", "SITE_*", "SLURM_*"], current)
    assert environment == {
        "HOME": "/home/tester", "USER": "tester", "LOGNAME": "tester", "SHELL": "/bin/bash", "LANG": "C.UTF-8",
        "PATH": "/usr/local/bin:/usr/bin:/bin", "TMPDIR": "/tmp", "PBS_JOBID": "7", "PBS_NODEFILE": "/n",
    }
    words = acceptance_login.fresh_words(account, ["sudo", "-n", "-u", "{user}", "--"], {"A": "b"})
    assert words[:7] == ["sudo", "-n", "-u", "tester", "--", "/usr/bin/env", "-i"]
    assert "sudo" not in acceptance_login.fresh_words(account._replace(other=False), ["sudo"], {})


def test_the_supervisor_takes_an_interpreter_that_the_account_can_run(tmp_path):
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    program = ["-c", "import sys; print(sys.executable, sys.flags.isolated)"]
    nobody_s = str(tmp_path / "python")
    for pythons, said in (([nobody_s, sys.executable], "%s 1" % sys.executable), ([nobody_s], "not %s." % nobody_s)):
        command = [*acceptance_login.python_words(pythons), *program]
        process = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        assert process.stdout.strip().endswith(said)


def test_the_fresh_login_of_a_job_keeps_what_tells_it_of_the_job_and_what_the_site_names():
    lines = acceptance_login.kept_in_job(["SLURM_*", "FABRIC", "$(false)", "A B"])
    script = "set -euo pipefail\n%s\nenv -i ${kept[@]+\"${kept[@]}\"} /usr/bin/env -0\n" % "\n".join(lines)
    environment = {"SLURM_JOB_ID": "7", "SLURM_X": "a 'b'\n*", "SLURMD_X": "1", "FABRIC": "", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["/bin/bash", "-c", script], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    assert sorted(filter(None, done.stdout.split("\0"))) == ["FABRIC=", "SLURM_JOB_ID=7", "SLURM_X=a 'b'\n*"]
