# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""extend-venv-activate: users' virtual environments that load a release's module, in real shells and module systems.

TORCHSTACK_PYTHONS names further interpreters. Of those, one shell and one module system are tried; all where
TORCHSTACK_WHOLE_MATRIX is set.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import shutil
import stat
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import module_system
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.description import normalise
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.description_checks import find_faults
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.layout import relative_path, render
from support.role_plays import play_tasks

ROLES = pathlib.Path(__file__).parents[2] / "roles"
PROGRAM = ROLES / "python_overlay" / "files" / "extend_venv.py"
NAME = "torchstack"
TREES = {module_system.LMOD: "lmod", module_system.EM: "tcl"}
SHELLS = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"]}
FUNCTIONS = {"bash": "declare -f", "zsh": "functions"}
ASK = "import json, sys, shared, release_only; print(json.dumps([sys.prefix, shared.origin, release_only.origin]))"

# What the script of a site that this command replaces leaves behind, as often as it was called.
FORMER_LOAD = """

module -s load pytorch/2.3.1-gpu

PYTHONUSERSITEPKGS=%s/lib/${MINICONDA3_PYTHON_LABEL}/site-packages
if [[ ${PYTHONPATH} != *"${PYTHONUSERSITEPKGS}"* ]]; then
  export PYTHONPATH=${PYTHONUSERSITEPKGS}:${PYTHONPATH}
fi

"""
FORMER_UNLOAD = """

        export PYTHONPATH=`echo ${PYTHONPATH} | sed "s:${PYTHONUSERSITEPKGS}\\:::g"`
        module -s unload pytorch/2.3.1-gpu"""


def own_python():
    """The interpreter that the tests' own environment was made from."""
    return getattr(sys, "_base_executable", sys.executable)


def pythons():
    """The interpreters of this machine that can make environments, one of each minor version, the tests' own first."""
    found = {}
    for name in [own_python(), *os.environ.get("TORCHSTACK_PYTHONS", "").split()]:
        path = shutil.which(name)
        minor = path and subprocess.run(
            [path, "-c", "import venv, ensurepip, sys; print('%d.%d' % sys.version_info[:2])"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout.strip()
        if minor:
            found.setdefault(minor, path)
    return found


PYTHONS = pythons()
OWN = next(iter(PYTHONS))


def installed_systems():
    found = {}
    for kind in TREES:
        try:
            found[kind] = module_system.find_system(dict(os.environ), kind)
        except StackError:
            continue
    return found


SYSTEMS = installed_systems()
PLACES = [(kind, shell) for kind in SYSTEMS for shell in SHELLS if shutil.which(shell)]
MATRIX = [
    (minor, kind, shell, strict)
    for minor in PYTHONS for kind, shell in PLACES for strict in (False, True)
    if minor == OWN or os.environ.get("TORCHSTACK_WHOLE_MATRIX") or (kind, shell, strict) == (*PLACES[0], False)
]


class Release:
    """A release with one package of its own and one that users may have too, and its modulefiles."""

    def __init__(self, top, version, minor, home=""):
        self.top, self.module = top, "%s/%s" % (NAME, version)
        prefix = top / version
        packages = prefix / "base" / "lib" / ("python" + minor) / "site-packages"
        packages.mkdir(parents=True)
        (packages / "shared.py").write_text("origin = 'release'\n")
        (packages / "release_only.py").write_text("origin = 'release %s'\n" % version)
        (prefix / "base" / "site").mkdir()
        shutil.copy(ROLES / "python_tools" / "files" / "sitecustomize.py", prefix / "base" / "site")
        (prefix / "base" / "bin").mkdir()
        (prefix / "base" / "bin" / "python3").write_text("#!/bin/sh\nexit 66\n")
        (prefix / "base" / "bin" / "python3").chmod(0o755)
        description = normalise({
            "name": NAME, "version": version, "prefix": str(prefix), "family": "python", "unsetenv": ["PYTHONSTARTUP"],
            "prepend": [{"name": "PATH", "values": [str(prefix / "base" / "bin")]},
                        {"name": "PYTHONPATH", "values": [str(prefix / "base" / "site")]}],
            "setenv": {"NCCL_NET": "AWS Libfabric"},
        })
        assert find_faults(description) == []
        for syntax, text in render(description, version).items():
            path = top / relative_path(syntax, NAME, version)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.told = {
            "module": self.module, "minor": minor, "home": home,
            "command": str(prefix / "base" / "bin" / "extend-venv-activate"),
            "module_paths": {tree: str(top / "modulefiles" / tree) for tree in TREES.values()},
        }

    def extend(self, *words):
        """Call the command; its status and what it said."""
        process = subprocess.run(
            [own_python(), "-I", PROGRAM, json.dumps(self.told), *map(str, words)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return process.returncode, process.stdout


class Venv:
    """A virtual environment without pip, and its activate script."""

    def __init__(self, path, python):
        self.path, self.activate = path, path / "bin" / "activate"
        subprocess.run([python, "-m", "venv", "--without-pip", str(path)], check=True)
        self.plain = self.activate.read_text()

    @property
    def text(self):
        return self.activate.read_text()


@pytest.fixture()
def release(tmp_path):
    """Make releases of which the Python has the version of the tests' own, or another one."""
    return lambda version="1", minor=OWN, home="": Release(tmp_path / "root", version, minor, home)


@pytest.fixture()
def venv(tmp_path):
    """Make environments with the Python of the tests, or another one."""
    return lambda name="my venv", minor=OWN: Venv(tmp_path / name, PYTHONS[minor])


@pytest.fixture()
def session(tmp_path):
    """Run lines of a shell with a module command, and return its status, its output, and the snapshots by name.

    ``snapshot NAME`` in a line of its own is a snapshot: all exported variables and all functions.
    """

    def run(kind, shell, lines, strict=False, tree="", **environment):
        system, scratch = SYSTEMS[kind], tmp_path / "session"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        if kind == module_system.LMOD:
            init = ". %s/init/%s" % (pathlib.Path(os.path.realpath(system.command)).parents[1], shell)
        else:
            init = 'eval "$(%s %s autoinit)"' % (shlex.join(system.words), shell)
        # A shell that is not interactive has no prompt, and venv would leave its own behind.
        text = [init, "PS1='$ '; export PS1", "set -eu" if strict else ""]
        for line in lines:
            word, _space, name = line.partition(" ")
            if word == "snapshot":
                out = scratch / name
                line = "env -0 > %s.env; %s > %s.functions; set > %s.set" % (out, FUNCTIONS[shell], out, out)
            text.append(line)
        (scratch / "script").write_text("\n".join(text) + "\n")
        start = {
            "HOME": str(scratch), "PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8",
            "PYTHONPATH": "/home/u/a:/home/u/b", "NCCL_NET": "mine", "PYTHONDONTWRITEBYTECODE": "1",
            "MODULEPATH": tree or str(tmp_path / "root" / "modulefiles" / TREES[kind]), **module_system.QUIET[kind],
            **environment,
        }
        process = subprocess.run(
            [shell, *SHELLS[shell], str(scratch / "script")], env=start, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, check=False)
        snapshots = {path.stem: snapshot(scratch, path.stem) for path in scratch.glob("*.env")}
        return process, snapshots

    return run


def snapshot(scratch, name):
    """The variables that are no bookkeeping of the module system or the shell, the functions, and our own leftovers."""
    entries = (scratch / (name + ".env")).read_text().split("\0")
    everything = dict(entry.split("=", 1) for entry in entries if "=" in entry)
    variables = {
        key: value for key, value in everything.items()
        if key not in ("_", "SHLVL") and not module_system.is_bookkeeping(key)
    }
    variables["LOADEDMODULES"] = everything.get("LOADEDMODULES", "")
    rest = [line for line in (scratch / (name + ".set")).read_text().splitlines()
            if line.startswith(("_OLD_VIRTUAL", "_torchstack"))]
    return variables, (scratch / (name + ".functions")).read_text(), rest


def source(venv):
    return ". " + shlex.quote(str(venv.activate))


@pytest.mark.skipif(not PLACES, reason="no module system")
@pytest.mark.parametrize(("minor", "kind", "shell", "strict"), MATRIX)
def test_s25_activate_and_deactivate_leave_the_shell_as_it_was(release, venv, session, minor, kind, shell, strict):
    here, own = release("1", minor), venv("my venv", minor)
    assert here.extend(own.path)[0] == 0
    (own.path / "lib" / ("python" + minor) / "site-packages" / "shared.py").write_text("origin = 'mine'\n")
    ask = "python3 -c %s" % shlex.quote(ASK)
    process, taken = session(kind, shell, [
        "snapshot start", source(own), "snapshot active", ask, "deactivate", "snapshot first",
        source(own), source(own), "snapshot twice", ask, "deactivate", "snapshot second",
        "module load " + here.module, "snapshot loaded", source(own), ask, "deactivate", "snapshot still",
    ], strict)
    assert (process.returncode, process.stderr) == (0, "")
    assert [json.loads(line) for line in process.stdout.splitlines()] == [[str(own.path), "mine", "release 1"]] * 3
    for name in ("active", "twice"):
        variables = taken[name][0]
        assert variables["LOADEDMODULES"] == here.module and variables["NCCL_NET"] == "AWS Libfabric"
        entries = variables["PATH"].split(":")
        assert entries.index(str(own.path / "bin")) < entries.index(str(here.top / "1" / "base" / "bin"))
    assert taken["first"] == taken["second"] == taken["start"]
    assert taken["still"] == taken["loaded"] and taken["loaded"][0]["LOADEDMODULES"] == here.module


@pytest.mark.parametrize(("kind", "shell"), PLACES)
def test_s25_what_cannot_be_loaded_is_said_in_one_sentence_and_nothing_is_activated(
    release, venv, session, kind, shell
):
    here, own = release(), venv()
    other = release("2")
    here.extend(own.path)
    gone = ["unset -f module ml >/dev/null 2>&1", "unset MODULES_CMD LMOD_CMD"]
    missing = "rm %s" % (here.top / relative_path(TREES[kind], NAME, "1"))
    in_the_way = "replace %s" % other.module if kind == module_system.LMOD else "cannot be loaded"
    cases = [
        ([], ["module load " + other.module], in_the_way),
        ([missing], [], "%s cannot be loaded (module load %s says why)" % (here.module, here.module)),
        (gone, [], "this shell has no command module to load %s with" % here.module),
    ]
    for before, modules, words in cases:
        process, taken = session(kind, shell, [
            *before, *modules, "snapshot start", "failed=0", source(own) + " || failed=$?", "snapshot refused",
            'echo "$failed ${VIRTUAL_ENV:-none}"',
        ], strict=True)
        assert (process.returncode, process.stdout) == (0, "1 none\n"), process.stderr
        (said,) = process.stderr.splitlines()
        assert said.startswith("%s is not activated: " % own.path) and words in said
        assert taken["refused"] == taken["start"]


@pytest.mark.parametrize("kind", SYSTEMS)
def test_s25_another_environment_s_release_takes_the_place_of_the_former_one_s(release, venv, session, kind):
    first, second, one, two = release("1"), release("2"), venv("one"), venv("two")
    first.extend(one.path)
    second.extend(two.path)
    process, taken = session(kind, "bash", [
        "snapshot start", source(one), source(two), "snapshot two", "deactivate", "snapshot end"], strict=True)
    assert (process.returncode, process.stderr) == (0, "")
    assert taken["two"][0]["LOADEDMODULES"] == second.module
    assert taken["end"] == taken["start"]


@pytest.mark.parametrize("kind", SYSTEMS)
def test_s25_a_module_that_was_unloaded_by_hand_leaves_nothing_either(release, venv, session, kind):
    here, own = release(), venv()
    here.extend(own.path)
    process, taken = session(kind, "bash", [
        "snapshot start", source(own), "module purge", "deactivate", "snapshot end"], strict=True)
    assert (process.returncode, process.stderr) == (0, "")
    assert taken["end"] == taken["start"]


@pytest.mark.parametrize("kind", SYSTEMS)
def test_s25_a_module_tree_that_a_shell_does_not_search_is_searched_while_the_environment_is_active(
    release, venv, session, tmp_path, kind
):
    here, own = release(), venv()
    here.extend(own.path)
    (tmp_path / "tree").mkdir()
    lines = ["snapshot start", source(own), "snapshot active", "deactivate", "snapshot end"]
    process, taken = session(kind, "bash", lines, tree=str(tmp_path / "tree"))
    assert (process.returncode, process.stderr) == (0, "")
    assert taken["active"][0]["LOADEDMODULES"] == here.module
    assert taken["end"] == taken["start"]


@pytest.mark.parametrize("minor", PYTHONS)
def test_s25_twice_is_once_and_remove_gives_back_every_byte(release, venv, minor):
    here, own = release("1", minor), venv("my venv", minor)
    own.activate.chmod(0o640)
    assert here.extend("--check", own.path)[0] == 1 and own.text == own.plain
    status, said = here.extend(own.path)
    assert status == 0 and said.startswith("changed: ") and "activate.csh, activate.fish are not changed" in said
    extended = own.text
    assert extended != own.plain and stat.S_IMODE(own.activate.stat().st_mode) == 0o640
    status, said = here.extend(own.path)
    assert status == 0 and said.startswith("ok: ") and own.text == extended
    assert here.extend("--check", own.path)[0] == 0
    assert here.extend("--remove", "--check", own.path)[0] == 1 and own.text == extended
    assert here.extend("--remove", own.path)[0] == 0 and own.text == own.plain
    assert sorted(os.listdir(own.activate.parent)) == sorted(set(os.listdir(own.activate.parent)) - {".activate-"})


@pytest.mark.parametrize("mark", ["you cannot run it directly", "You cannot run it directly"])
def test_s25_whatever_case_the_comment_has_and_whoever_wrote_it(release, venv, mark):
    here, own = release(), venv()
    plain = own.plain.replace("you cannot run", "You cannot run").replace("# You cannot run it directly", "# " + mark)
    for times in (0, 1, 2):
        former = plain.replace("# " + mark, "# " + mark + FORMER_LOAD % own.path * times)
        own.activate.write_text(former.replace("unset -f deactivate", "unset -f deactivate" + FORMER_UNLOAD * times))
        status, said = here.extend(own.path)
        assert status == 0 and ("the lines of a former script are taken out" in said) == bool(times)
        assert "PYTHONUSERSITEPKGS" not in own.text and "pytorch/2.3.1-gpu" not in own.text
        assert here.extend("--remove", own.path)[0] == 0 and own.text == plain


def test_s25_an_environment_of_another_release_is_moved_to_this_one(release, venv):
    first, second, own = release("1"), release("2"), venv()
    second.extend(own.path)
    wanted = own.text
    second.extend("--remove", own.path)
    first.extend(own.path)
    assert second.extend(own.path)[1].startswith("changed: ") and own.text == wanted


UNKNOWN = "its bin/activate is not what venv or virtualenv write"
FOREIGN = [
    (lambda text: text.replace("deactivate nondestructive\n", ""), UNKNOWN),
    (lambda text: text + "deactivate nondestructive\n", UNKNOWN),
    (lambda text: text.replace('= "nondestructive"', '= "x"'), UNKNOWN),
    (lambda text: "", UNKNOWN),
    (lambda text: text + "module load gcc\n", "its bin/activate has the line 'module load gcc' of somebody else"),
    (lambda text: text + "# >>> extend-venv-activate >>>\n", "has lost its other half"),
]


def test_s25_a_text_that_is_not_understood_stays_as_it_is(release, venv):
    here, own, good = release(), venv(), venv("good")
    for change, words in FOREIGN:
        before = change(own.plain)
        own.activate.write_text(before)
        status, said = here.extend(good.path, own.path)
        assert status == 2 and words in said and len(said.splitlines()) == 1
        assert own.text == before and good.text == good.plain


def test_s25_an_environment_that_would_not_see_the_release_is_refused(release, venv, tmp_path):
    own = venv()
    status, said = release("1", "3.1").extend(own.path)
    assert status == 2 and "its Python is %s, that of torchstack/1 is 3.1" % OWN in said and own.text == own.plain
    conda = release("2", OWN, "/soft/2/base/bin")
    status, said = conda.extend(own.path)
    assert status == 2 and "not by the one of torchstack/2 in /soft/2/base/bin" in said and own.text == own.plain
    status, said = conda.extend(tmp_path)
    assert status == 2 and "it is no virtual environment" in said
    home = os.path.dirname(os.path.realpath(own.path / "bin" / "python3"))
    assert release("3", OWN, home).extend(own.path)[0] == 0


def test_s25_a_file_that_cannot_be_written_is_named(release, venv):
    if os.geteuid() == 0:
        pytest.skip("root writes everywhere")
    here, own = release(), venv()
    own.activate.parent.chmod(0o555)
    try:
        status, said = here.extend(own.path)
    finally:
        own.activate.parent.chmod(0o755)
    assert status == 2 and "cannot be written (Permission denied)" in said and own.text == own.plain


def test_s25_environments_of_virtualenv_are_extended_too(release, session, tmp_path):
    if subprocess.run([sys.executable, "-m", "virtualenv", "--version"], capture_output=True, check=False).returncode:
        pytest.skip("virtualenv is not installed")
    here, path = release(), tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "virtualenv", "-q", "--no-pip", "-p", own_python(), str(path)], check=True)
    activate = path / "bin" / "activate"
    plain = activate.read_text()
    assert here.extend(path)[0] == 0
    for kind, shell in PLACES:
        process, taken = session(kind, shell, [
            "snapshot start", ". %s" % activate, "snapshot active", "deactivate", "snapshot end"], strict=True)
        assert (process.returncode, process.stderr) == (0, "")
        assert taken["active"][0]["LOADEDMODULES"] == here.module
        assert taken["end"] == taken["start"]
    assert here.extend("--remove", path)[0] == 0 and activate.read_text() == plain


def test_s25_the_role_installs_the_command_and_applies_it(release, venv, tmp_path, ansible_environment):
    here, own, other = release(), venv(), venv("other")
    prefix = here.top / "1" / "base"
    command = prefix / "bin" / "extend-venv-activate"
    base = {"kind": "python_overlay", "prefix": str(prefix), "python": own_python(), "minor": OWN}

    def play(venvs, *options):
        """Install and apply; the number of changes."""
        variables = {
            "release_context": {"base": base, "release": "1", "root": str(here.top)},
            "torchstack_root": str(here.top), "torchstack_release": "1",
            "python_overlay_venvs": [str(one.path) for one in venvs],
        }
        process = play_tasks(
            "python_overlay", "{{ case.do }}", variables, [{"do": "command"}, {"do": "extend_venv"}],
            ansible_environment, tmp_path, *options)
        assert process.returncode == 0, process.stdout
        return int(re.search(r"changed=(\d+)", process.stdout).group(1))

    # A plan before everything: the directory of the program, and to call the command that is not there.
    assert play([own], "--check") == 2 and not command.exists()
    assert play([own]) == 4 and own.text != own.plain
    assert play([own, other], "--check") == 1 and other.text == other.plain
    said = subprocess.run([command, "--check", own.path], stdout=subprocess.PIPE, text=True, check=False)
    assert said.returncode == 0 and said.stdout.startswith("ok: %s loads torchstack/1" % own.path)


KERNEL = """import json, sys, shared, release_only
print(json.dumps([sys.prefix, shared.origin, release_only.origin, sys.argv[1:]]))
"""
"""In place of ipykernel: what a kernel could import, and how it was started."""


@pytest.mark.parametrize("kind", SYSTEMS)
def test_s25_the_kernel_of_the_page_works_from_a_process_that_has_loaded_no_module(release, venv, tmp_path, kind):
    page = (ROLES.parent / "docs" / "how-to" / "add-your-own-packages.md").read_text()
    (lines,) = re.findall(r"^(mkdir -p ~/\.local/share/jupyter.*?^END)$", page, re.M | re.S)
    home = tmp_path / "home"
    here, own = release(), venv("home/venvs/mine")
    packages = own.path / "lib" / ("python" + OWN) / "site-packages"
    (packages / "ipykernel_launcher.py").write_text(KERNEL)
    system = SYSTEMS[kind]
    init = ". %s/init/bash" % pathlib.Path(os.path.realpath(system.command)).parents[1]
    if kind != module_system.LMOD:
        init = 'eval "$(%s bash autoinit)"' % shlex.join(system.words)
    (home / ".bash_profile").write_text(init + "\n")
    bare = {"HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    subprocess.run(["bash", "-c", lines], env=bare, check=True)
    spec = json.loads((home / ".local/share/jupyter/kernels/mine/kernel.json").read_text())

    def started():
        words = [word.replace("{connection_file}", "/run/user/kernel 1.json") for word in spec["argv"]]
        return subprocess.run(words, env=bare, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    # Without extend-venv-activate it is as with what ipykernel writes itself.
    assert "No module named 'shared'" in started().stderr
    assert here.extend(own.path)[0] == 0
    kernel = started()
    assert (kernel.returncode, kernel.stderr) == (0, "")
    assert json.loads(kernel.stdout) == [str(own.path), "release", "release 1", ["-f", "/run/user/kernel 1.json"]]
