# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What conda's activation sets as the module does, in real shells, which source the scripts as conda has them do."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import conda_activation
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.description import normalise

PREFIX = "/soft/ts/2026-11/base"
ODD = "a 'b' \"c\" $HOME `id` \\ x! ~ * [y]"
DESCRIPTION = normalise({
    "name": "torchstack", "version": "2026-11", "prefix": "/soft/ts/2026-11",
    "setenv": {"ENV_NAME": "ts", "ODD": ODD, "PYTHONUSERBASE": "${HOME}/.local/ts", "EMPTY": "",
               "CONDA_PREFIX": PREFIX, "CONDA_DEFAULT_ENV": PREFIX},
    "unsetenv": ["PYTHONSTARTUP"],
    "prepend": [{"name": "PATH", "values": [PREFIX + "/bin", "/soft/cuda/bin", "${HOME}/.local/ts/bin"]},
                {"name": "LD_LIBRARY_PATH", "values": ["/soft/ts/nccl/lib", "/soft/cuda/lib64"]}],
    "append": [{"name": "LD_LIBRARY_PATH", "values": ["/soft/a b/$x"]}, {"name": "MANPATH", "values": ["${HOME}/man"]}],
})
LOADED = {"LOADEDMODULES": "PrgEnv-gnu/8:torchstack/2026-11:cmake/3"}
MINE = {"ENV_NAME": "mine!", "ODD": "my 'own' \"one\" $HOME `x` \\", "EMPTY": "full", "PYTHONSTARTUP": "/u/my start.py",
        "LD_LIBRARY_PATH": "/u/lib:/soft/cuda/lib64", "MANPATH": ""}
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-c"], "sh"), "zsh": (["zsh", "-f", "-c"], "sh"),
    "dash": (["dash", "-c"], "sh"), "tcsh": (["tcsh", "-f", "-c"], "csh"),
    "fish": (["fish", "--no-config", "-c"], "fish"),
}
BOOKKEEPING = ("_", "PWD", "OLDPWD", "SHLVL", "VENDOR", "OSTYPE", "MACHTYPE", "HOSTTYPE", "GROUP", "HOST", "LOGNAME",
               "USER", "REMOTEHOST")


class Shell:
    """A shell that sources the scripts, and shows its environment."""

    def __init__(self, name, directory):
        self.words, suffix = SHELLS[name]
        self.home, self.name = directory, name
        for path, text in conda_activation.scripts(DESCRIPTION, PREFIX).items():
            place = directory / path
            place.parent.mkdir(exist_ok=True)
            place.write_text(text)
        source = "." if suffix == "sh" else "source"
        self.script = {word: "%s %s/%s.d/%s.%s" % (source, directory, kind, conda_activation.NAME, suffix)
                       for word, kind in (("act", "activate"), ("deact", "deactivate"))}
        self.path = {"bash": 'export PATH="%s"', "fish": "set -gx PATH %s"}.get(
            name, "setenv PATH %s" if suffix == "csh" else "export PATH=%s")
        self.set = {"sh": "export %s=%s", "csh": "setenv %s %s", "fish": "set -gx %s %s"}[suffix]

    def run(self, *words, **variables):
        """Run act, deact, show or a line of the shell; the environments that were shown, and what was complained."""
        show = "env -0; printf '\\001\\000'"
        lines = [show if word == "show" else self.script.get(word, word) for word in words]
        done = subprocess.run(
            [*self.words, "\n".join(lines) + "\n"], text=True, check=False, capture_output=True,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), **variables})
        assert done.returncode == 0, done.stderr
        found = [dict(line.split("=", 1) for line in one.split("\0") if line) for one in done.stdout.split("\1\0")[:-1]]
        return [{name: value for name, value in one.items() if name not in BOOKKEEPING} for one in found], done.stderr

    def shown(self, *words, **variables):
        """Run without any complaint; the environments."""
        found, complaint = self.run(*words, **variables)
        assert complaint == ""
        return found


@pytest.fixture(params=sorted(SHELLS))
def shell(request, tmp_path):
    if shutil.which(request.param) is None:
        pytest.skip("no %s on this machine" % request.param)
    return Shell(request.param, tmp_path)


def visible(environment):
    return {name: value for name, value in environment.items() if not name.startswith("TORCHSTACK_MODULE_")}


@pytest.mark.parametrize("mine", [{}, MINE], ids=["nothing set", "all set"])
def test_activation_sets_what_the_module_sets_and_deactivation_gives_back_what_was_there(shell, mine):
    before, active, after = shell.shown("show", "act", "show", "deact", "show", **mine)
    home = str(shell.home)
    own = {"ENV_NAME": "ts", "ODD": ODD, "PYTHONUSERBASE": home + "/.local/ts", "EMPTY": ""}
    own["PATH"] = "/soft/cuda/bin:%s/.local/ts/bin:%s" % (home, before["PATH"])
    own["MANPATH"] = home + "/man"
    own["LD_LIBRARY_PATH"] = (
        "/soft/ts/nccl/lib:/u/lib:/soft/cuda/lib64:/soft/a b/$x" if mine else
        "/soft/ts/nccl/lib:/soft/cuda/lib64:/soft/a b/$x")
    expected = {**before, **own}
    expected.pop("PYTHONSTARTUP", None)
    assert visible(active) == expected
    assert after == before


def test_the_user_s_own_programs_come_behind_those_of_the_prefix_and_before_the_system_s(shell):
    """conda has put the prefix's in front before the scripts, and takes it away before they run again."""
    path, more = os.environ["PATH"], "/soft/cuda/bin:%s/.local/ts/bin" % shell.home
    before, active, after = shell.shown(
        "show", shell.path % ("/first:%s/bin:%s" % (PREFIX, path)), "act", "show",
        shell.path % ("/first:%s:%s" % (more, path)), "deact", shell.path % path, "show")
    assert active["PATH"] == "/first:%s/bin:%s:%s" % (PREFIX, more, path)
    assert after == before


def test_what_conda_and_the_user_change_in_a_search_path_meanwhile_stays(shell):
    change = shell.set % ("LD_LIBRARY_PATH", '"/new:$LD_LIBRARY_PATH"')
    before, after = shell.shown("show", "act", change, "deact", "show", LD_LIBRARY_PATH="/u/lib")
    assert after == {**before, "LD_LIBRARY_PATH": "/new:/u/lib"}


def test_where_conda_goes_over_to_another_prefix_its_later_path_is_put_right_by_the_last_deactivation(shell):
    path = os.environ["PATH"]
    own = shell.path
    with_bin, without = (own % ("/soft/cuda/bin:%s" % rest) for rest in (PREFIX + "/bin:" + path, path))
    before, between, after = shell.shown(
        "show", own % (PREFIX + "/bin:" + path), "act", "deact", with_bin, "act", "deact", without, "show", "act",
        with_bin, without, "deact", "show")
    assert visible(between)["PATH"] == "/soft/cuda/bin:" + path and "LD_LIBRARY_PATH" not in between
    assert after == before


def test_a_prefix_that_is_activated_twice_is_active_until_the_second_deactivation(shell):
    before, twice, once, after, again = shell.shown(
        "show", "act", "act", "show", "deact", "show", "deact", "show", "deact", "show", **MINE)
    assert visible(twice) == visible(once) and once["ENV_NAME"] == "ts"
    assert after == again == before


def test_beside_the_loaded_module_nothing_is_touched(shell):
    before, active, after = shell.shown("show", "act", "show", "deact", "show", **{**MINE, **LOADED})
    assert before == active == after
    other = {"LOADEDMODULES": "torchstack/2026-1:xtorchstack/2026-11"}
    (active,) = shell.shown("act", "show", **other)
    assert active["ENV_NAME"] == "ts"


def test_a_module_that_was_loaded_meanwhile_keeps_its_variables_and_the_user_is_told(shell):
    load = shell.set % ("LOADEDMODULES", "torchstack/2026-11")
    (active, after), complaint = shell.run("act", "show", load, "deact", "show")
    assert visible(after) == {**visible(active), "LOADEDMODULES": "torchstack/2026-11"}
    assert not [name for name in after if name.startswith("TORCHSTACK_MODULE_")]
    assert complaint == ("torchstack/2026-11 was loaded after conda activate: its variables stay. Next time unload it "
                         "before conda deactivate.\n")


def test_strict_shells_are_not_harmed(shell):
    if shell.script["act"].startswith("source"):
        pytest.skip("only shells of the Bourne family can be strict")
    before, after = shell.shown("set -eu", "show", "act", "act", "deact", "deact", "deact", "show",
                                LD_LIBRARY_PATH="/u")
    assert after == before


def test_a_backslash_at_the_end_and_a_line_break_are_text(shell):
    description = normalise({**DESCRIPTION, "setenv": {"ODD": "one\ntwo\\"}, "unsetenv": []})
    for path, text in conda_activation.scripts(description, PREFIX).items():
        (shell.home / path).write_text(text)
    before, active, after = shell.shown("show", "act", "show", "deact", "show")
    assert active["ODD"] == "one\ntwo\\" and after == before
