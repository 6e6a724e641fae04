# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""``module load conda; conda activate base``, the habit of sites with conda modules, where conda's hook never ran.

With a stand-in that answers as conda does, and with a real one where TORCHSTACK_CONDA_PREFIX names its prefix, in which
no file is written but below ``etc/conda/torchstack``.
"""

from __future__ import annotations

import os
import pathlib
import shlex
import shutil
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import conda_command
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.description import normalise
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.layout import relative_path, render_each
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.module_system import is_bookkeeping
from support import conda_stand_in

SHELLS = {"bash": ("--norc", "--noprofile"), "zsh": ("-f",), "dash": (), "tcsh": ("-f",), "fish": ("--no-config",)}
MODULE = {
    "tcsh": "alias module 'eval `%s tcsh \\!*`'", "fish": "function module; %s fish $argv | source -; end",
    "dash": 'module() { eval "$(%s sh "$@")"; }'}
OF_SHELL = ("_", "SHLVL", "PWD", "OLDPWD", "TERM", "COLUMNS", "LINES", "HOST", "HOSTTYPE", "MACHTYPE", "OSTYPE",
            "VENDOR", "GROUP")
PROMPT = "CONDA_PROMPT_MODIFIER"


@pytest.fixture(params=["stand-in", "real"])
def release(request, tmp_path):
    """The release's directory, with a base in which conda is."""
    if request.param == "real":
        base = os.environ.get("TORCHSTACK_CONDA_PREFIX", "")
        if not base:
            pytest.skip("no real conda: TORCHSTACK_CONDA_PREFIX names the prefix, DIRECTORY/base, of one")
        return pathlib.Path(base).parent
    program = tmp_path / "release" / "base" / "bin" / "conda"
    program.parent.mkdir(parents=True)
    (tmp_path / "release" / "base" / "conda-meta").mkdir()
    text = pathlib.Path(conda_stand_in.__file__).read_text(encoding="utf-8")
    program.write_text(text.replace("/usr/bin/env python3", sys.executable, 1), encoding="utf-8")
    program.chmod(0o755)
    return tmp_path / "release"


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.skipif(
    not shutil.which(name), reason="not installed: " + name)) for name in SHELLS])
def terminal(request):
    """A shell that users have."""
    return request.param


@pytest.fixture()
def states(system, terminal, release, tmp_path, request):
    """Run lines in a shell, and return what is exported, and whether there is a conda, before and after each."""
    if terminal == "zsh" and "tcl-4" in request.node.name:
        pytest.skip("Environment Modules 4 leave functions out in zsh")
    description = normalise({
        "name": "torchstack", "version": "1", "prefix": str(release), "conda_command": True, "also_named": ["conda"],
        "prepend": [{"name": "PATH", "values": ["%s/base/bin" % release]}], "family": "python"})
    for files in render_each(description, "1").items():
        for syntax, text in files[1].items():
            path = tmp_path / relative_path(syntax, files[0], "1")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for name, text in conda_command.files("torchstack/1", "%s/base" % release).items():
        path = release / "base" / "etc" / "conda" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    (tmp_path / "other" / "conda-meta").mkdir(parents=True)
    (tmp_path / "other" / "conda-meta" / "history").touch()

    def run(*lines, says=""):
        module = MODULE.get(terminal, 'module() { eval "$(%%s %s "$@")"; }' % terminal) % " ".join(
            map(shlex.quote, system.words))
        show = "env -0; printf '\\001\\000'"
        program = "\n".join([module, show, *(one for line in lines for one in (line, show))])
        start = {
            "HOME": str(tmp_path), "PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "CONDA_EXE": "/u/conda",
            "MODULEPATH": "%s/modulefiles/%s" % (tmp_path, "lmod" if system.title == "Lmod" else "tcl")}
        done = subprocess.run(
            [terminal, *SHELLS[terminal], "-c", program], env=start, cwd=tmp_path, text=True, capture_output=True,
            check=False, timeout=300)
        assert says in done.stderr and bool(says) == bool(done.stderr), done.stderr
        found = [dict(line.split("=", 1) for line in one.split("\0") if "=" in line)
                 for one in done.stdout.split("\1\0")[:-1]]
        assert len(found) == len(lines) + 1, done.stdout
        return [{name: value for name, value in one.items()
                 if not is_bookkeeping(name) and name not in OF_SHELL and not name.startswith("__TORCHSTACK")}
                for one in found]

    return run


@pytest.mark.parametrize("module", ["torchstack/1", "conda/1"])
def test_activate_base_is_the_release_and_everything_goes_with_the_module(states, release, module):
    before, loaded, active, again, left, after = states(
        "module load " + module, "conda activate base", "conda activate %s/base" % release, "conda deactivate",
        "module unload " + module)
    base = "%s/base" % release
    assert loaded["CONDA_PREFIX"] == base and loaded["CONDA_EXE"] == base + "/bin/conda"
    assert loaded["PATH"] == "%s/bin:%s" % (base, before["PATH"])
    assert active == again == {**loaded, PROMPT: "(base) "}
    assert left == loaded
    assert after == before


def test_another_environment_by_its_path_takes_turns_with_the_release(states, release, tmp_path):
    other = str(tmp_path / "other")
    _before, loaded, inside, back, left, again = states(
        "module load torchstack/1", "conda activate " + other, "conda deactivate", "conda deactivate",
        "conda activate " + other)
    assert inside["CONDA_PREFIX"] == other and inside["CONDA_DEFAULT_ENV"] == other and inside["CONDA_SHLVL"] == "2"
    assert inside["PATH"] == loaded["PATH"].replace("%s/base/bin" % release, other + "/bin")
    assert back == {**loaded, PROMPT: "(base) "}
    assert left == loaded
    assert again == inside


def test_without_deactivate_only_the_prompt_stays_after_unload(states):
    before, _loaded, _active, after = states("module load conda/1", "conda activate base", "module unload conda/1")
    assert after == {**before, PROMPT: "(base) "}


def test_what_conda_refuses_changes_nothing(states):
    _before, loaded, refused = states(
        "module load torchstack/1", "conda activate /nowhere", says="Not a conda environment: /nowhere")
    assert refused == loaded
