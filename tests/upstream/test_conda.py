# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a real conda makes of a frozen release: another account uses it, and sees no warning.

TORCHSTACK_CONDA names the directory of an installation of conda, or of a checkout of its source; for a checkout,
TORCHSTACK_CONDA_PYTHON names an interpreter with what conda needs. Both must be readable for that account.
"""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

import pytest
from support import conda_channel

RELEASE = "2026-11-20"
PLAYBOOK = """
- hosts: localhost
  gather_facts: false
  vars:
    release_context: {root: "{{ top }}/root", release: "%s"}
    conda_base_prefix: "{{ release_context.root }}/{{ release_context.release }}/base"
    conda_base_cache: "{{ release_context.root }}/.torchstack/conda-pkgs"
    conda_base_channels: ["file://{{ top }}/channel"]
    conda_base_channel_priority: strict
    conda_base_link_method: copy
    conda_base_accept_defaults_licence: false
    conda_base_runtime_settings:
      - {name: TOY_RAILS, value: "1", reason: Two rails for each GPU.}
      - {name: TOY_ODD, value: "a 'b' $HOME\\n=c", reason: Values are text.}
    modulefile_root: "{{ release_context.root }}"
    modulefile_release: "{{ release_context.release }}"
    modulefile_site: toy
    modulefile_name: torchstack
    modulefile_description:
      external: [/soft/cuda]
      setenv: {OF_MODULE: "1", CONDA_PREFIX: "{{ conda_base_prefix }}"}
      prepend:
        - {name: PATH, values: ["{{ conda_base_prefix }}/bin", /soft/cuda/bin]}
        - {name: LD_LIBRARY_PATH, values: [/soft/cuda/lib64]}
  tasks:
    - hpcml.torchstack.conda_environment:
        prefix: "{{ conda_base_prefix }}"
        channels: "{{ conda_base_channels }}"
        specs: [python, pip, libtoy, toysettings]
        cache: "{{ conda_base_cache }}"
    - ansible.builtin.include_role:
        name: hpcml.torchstack.conda_base
        tasks_from: "{{ item }}"
      loop: [condarc, activation, cache]
    - ansible.builtin.include_role:
        name: hpcml.torchstack.modulefile
        tasks_from: conda
    - hpcml.torchstack.tree_permissions:
        path: "{{ release_context.root }}/{{ release_context.release }}"
        root: "{{ release_context.root }}"
        state: frozen
""" % RELEASE

pytestmark = pytest.mark.skipif(
    not os.environ.get("TORCHSTACK_CONDA"),
    reason="no real conda: set TORCHSTACK_CONDA to the directory of an installation or of a checkout",
)


@pytest.fixture(scope="module")
def conda():
    """How conda is called, and the variables that it needs."""
    directory = pathlib.Path(os.environ["TORCHSTACK_CONDA"])
    if os.access(directory / "bin" / "conda", os.X_OK):
        return [str(directory / "bin" / "conda")], {}
    assert (directory / "conda" / "__main__.py").exists(), "%s is neither an installation nor a checkout" % directory
    python = os.environ.get("TORCHSTACK_CONDA_PYTHON", "")
    assert python, "TORCHSTACK_CONDA is a checkout: set TORCHSTACK_CONDA_PYTHON to an interpreter that can run it"
    # The solver that conda prefers is a program of its own, which a checkout does not have.
    return [python, "-m", "conda"], {"PYTHONPATH": str(directory), "CONDA_SOLVER": "classic"}


class Place:
    """A root with a frozen release, its channel, and another account that uses them."""

    def __init__(self, top, user, command, variables):
        self.top = top
        self.user = user
        self.command = command
        self.prefix = top / "root" / RELEASE / "base"
        self.home = pathlib.Path(self.run("mktemp", "-d").strip())
        # A conda in the prefix finds the file there by itself; this one is elsewhere.
        self.variables = {"CONDARC": str(self.prefix / ".condarc"), **variables}

    def run(self, *command, quiet=True, **variables):
        """Run a program as the other account; it must succeed and, where it is quiet, warn of nothing."""
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
        if hasattr(self, "home"):
            environment.update(HOME=str(self.home), **self.variables)
        environment.update(variables)
        given = ["%s=%s" % item for item in environment.items()]
        done = subprocess.run(
            ["sudo", "-n", "-u", self.user, "env", "-i", *given, *map(str, command)], cwd="/", text=True, check=False,
            capture_output=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        if quiet:
            assert done.stderr == ""
        return done.stdout

    def conda(self, *arguments, **variables):
        """Run conda as the other account, with the prefix's configuration."""
        return self.run(*self.command, *arguments, **variables)

    def seen(self):
        """Everything below the root, releases and cache, as far as a write would change it."""
        return sorted(
            (str(path), found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
            for path in (self.top / "root").rglob("*") for found in [os.lstat(path)]
        )

    def own_packages(self):
        """The packages that the account had to fetch for itself."""
        listed = self.run("sh", "-c", "ls -d %s/.conda/pkgs/*-*-* 2>/dev/null || :" % self.home)
        return [os.path.basename(path) for path in listed.split()]


@pytest.fixture(scope="module")
def place(conda, ordinary_user, ansible_environment):
    lacking = conda_channel.needed_tools()
    if lacking:
        pytest.skip("no channel can be built: missing " + ", ".join(lacking))
    top = pathlib.Path(tempfile.mkdtemp(prefix="torchstack-upstream-"))
    found = None
    try:
        top.chmod(0o755)
        conda_channel.build(top / "channel", top / "stages")
        for directory in (top / "root", top / "root" / RELEASE):
            directory.mkdir(mode=0o755)
        (top / "play.yml").write_text(PLAYBOOK)
        program = os.path.join(os.path.dirname(sys.executable), "ansible-playbook")
        done = subprocess.run(
            [program, "-i", "localhost,", "-c", "local", "-e", json.dumps({"top": str(top)}), str(top / "play.yml")],
            env=ansible_environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )
        assert done.returncode == 0, done.stdout
        found = Place(top, ordinary_user, *conda)
        yield found
    finally:
        if found is not None:
            found.run("rm", "-rf", found.home)
        subprocess.run(["chmod", "-R", "u+w", str(top)], check=True)
        shutil.rmtree(top)


@pytest.fixture(autouse=True)
def untouched(place):
    """Whatever a test does as the other account, nothing of the release and the cache changes."""
    before = place.seen()
    yield
    assert place.seen() == before


@pytest.fixture()
def without_channel(place):
    """The channel is gone, as a network is."""
    os.rename(place.top / "channel", place.top / "aside")
    yield
    os.rename(place.top / "aside", place.top / "channel")


def test_conda_itself_runs_and_says_which_one_it_is(place):
    version = place.conda("--version").strip()
    print(version)
    assert version.startswith("conda ")


def test_the_configuration_of_the_prefix_is_the_one_that_counts(place):
    found = json.loads(place.conda("config", "--show", "--json"))
    expected = {
        "channels": ["file://%s/channel" % place.top],
        "default_channels": [],
        "channel_priority": "strict",
        "env_prompt": "(2026-11-20/{default_env}) ",
        "pkgs_dirs": ["%s/root/.torchstack/conda-pkgs" % place.top, "%s/.conda/pkgs" % place.home],
        "always_copy": True,
        "auto_update_conda": False,
        "notify_outdated_conda": False,
        "report_errors": False,
    }
    assert {key: found[key] for key in expected} == expected
    assert found["envs_dirs"][0] == "%s/.conda/envs" % place.home


def test_s04_listing_the_packages_of_a_frozen_prefix(place):
    found = json.loads(place.conda("list", "-p", place.prefix, "--json"))
    assert {package["name"] for package in found} == {"libtoy", "pip", "python", "toydata", "toysettings"}
    assert "toydata-2.0.0-0.conda" in place.conda("list", "-p", place.prefix, "--explicit")
    assert "+toydata-2.0.0" in place.conda("list", "-p", place.prefix, "--revisions")


def test_s04_exporting_a_frozen_prefix(place):
    assert "toydata=2.0.0=0" in place.conda("env", "export", "-p", place.prefix)
    wanted = place.conda("env", "export", "-p", place.prefix, "--from-history")
    assert all("- " + spec in wanted for spec in ("libtoy", "pip", "python", "toysettings"))


def test_s04_cloning_a_frozen_prefix_without_network(place, without_channel):
    place.conda("create", "--yes", "--quiet", "--offline", "-p", place.home / "clone", "--clone", place.prefix)
    assert place.run(place.home / "clone" / "bin" / "toy") == "42 %s/clone\n" % place.home
    assert "pip " in place.run(place.home / "clone" / "bin" / "python", "-m", "pip", "--version")
    assert place.own_packages() == []


def test_s04_creating_from_the_same_cache_without_network(place, without_channel):
    listed = place.conda("list", "-p", place.prefix, "--explicit")
    place.run("sh", "-c", 'printf %%s "$1" > %s/list' % place.home, "sh", listed)
    place.conda("create", "--yes", "--quiet", "--offline", "-p", place.home / "copy", "--file", place.home / "list")
    assert place.run(place.home / "copy" / "bin" / "toy") == "42 %s/copy\n" % place.home
    assert place.own_packages() == []


def test_s04_creating_by_specs_from_the_same_cache(place):
    place.conda("create", "--yes", "--quiet", "-n", "new", "libtoy")
    assert place.run(place.home / ".conda" / "envs" / "new" / "bin" / "toy").startswith("42 ")
    assert place.own_packages() == []


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_s18_conda_itself_activates_and_deactivates(place, shell):
    if shutil.which(shell) is None:
        pytest.skip("no %s here" % shell)
    conda = " ".join(shlex.quote(word) for word in place.command)
    activate = 'eval "$(%s shell.posix activate %s)"' % (conda, place.prefix)
    lines = [
        "show() { env -0 | tr '\\0\\n' '\\n ' | grep ^TOY_ | sort; echo .; }",
        "show", activate, "show", activate, "show", 'eval "$(%s shell.posix deactivate)"' % conda, "show",
    ]
    shown = place.run(shell, "-c", "\n".join(lines), TOY_RAILS="mine")
    before, active, again, after = [part.strip().splitlines() for part in shown.split("\n.\n")][:4]
    assert before == after == ["TOY_RAILS=mine"]
    assert active == again
    assert "TOY_ODD=a 'b' $HOME =c" in active and "TOY_RAILS=1" in active
    assert "TOY_SETTING=%s/share" % place.prefix in active


SHELLS = {"bash": ("posix", 'eval "$(%s)"'), "zsh": ("posix", 'eval "$(%s)"'), "tcsh": ("csh", 'eval "`%s`"'),
          "fish": ("fish", "eval (%s)")}
OF_MODULE = ("OF_MODULE", "LD_LIBRARY_PATH", "PYTHONUSERBASE", "PYTHONSTARTUP", "PATH", "CONDA_PREFIX")


def states(place, shell, command, words, **variables):
    """What the module's variables are before and after each call of conda, in one shell."""
    kind, line = SHELLS[shell]
    conda = " ".join(shlex.quote(str(word)) for word in command)
    calls = [line % ("%s shell.%s %s" % (conda, kind, word)) for word in words]
    program = "\n".join(one for call in ["true", *calls] for one in (call, "env -0; printf '\\001\\000'"))
    said = place.run(shell, *(["-f"] if shell == "tcsh" else []), "-c", program, **variables)
    found = [dict(line.split("=", 1) for line in one.split("\0") if line) for one in said.split("\1\0")[:-1]]
    for one in found:
        # conda puts its own command there, and leaves it.
        one["PATH"] = ":".join(entry for entry in one["PATH"].split(":") if not entry.endswith("/condabin"))
    # In shells of the Bourne family conda leaves its own variables empty.
    return [{name: one[name] for name in OF_MODULE if one.get(name)} for one in found]


def entries(place):
    """What the module puts into PATH behind the prefix's own."""
    return "/soft/cuda/bin:%s/.local/torchstack/toy/%s/bin" % (place.home, RELEASE)


def expected(place, before):
    return {"OF_MODULE": "1", "LD_LIBRARY_PATH": "/soft/cuda/lib64:/u/lib", "CONDA_PREFIX": str(place.prefix),
            "PYTHONUSERBASE": "%s/.local/torchstack/toy/%s" % (place.home, RELEASE),
            "PATH": "%s/bin:%s:%s" % (place.prefix, entries(place), before["PATH"])}


MINE = {"LD_LIBRARY_PATH": "/u/lib", "PYTHONSTARTUP": "/u/start.py", "OF_MODULE": "mine"}


@pytest.mark.parametrize("shell", sorted(SHELLS))
def test_conda_activates_what_the_module_sets_and_gives_back_what_was_there(place, shell):
    if shutil.which(shell) is None:
        pytest.skip("no %s here" % shell)
    before, active, again, after = states(
        place, shell, place.command, ["activate %s" % place.prefix, "activate %s" % place.prefix, "deactivate"], **MINE)
    assert active == again == expected(place, before)
    assert after == before


@pytest.mark.parametrize("shell", sorted(SHELLS))
def test_another_environment_in_between_has_nothing_of_the_release_but_its_entries_in_path(place, shell):
    if shutil.which(shell) is None:
        pytest.skip("no %s here" % shell)
    other = place.home / "other"
    place.run("mkdir", "-p", other / "conda-meta", other / "bin")
    place.run("touch", other / "conda-meta" / "history")
    before, active, between, back, after = states(
        place, shell, place.command, ["activate %s" % place.prefix, "activate %s" % other, "deactivate", "deactivate"],
        **MINE)
    # conda has computed PATH before the scripts ran.
    assert between == {**before, "CONDA_PREFIX": str(other), "PATH": "%s/bin:%s:%s" % (
        other, entries(place), before["PATH"])}
    assert {**back, "PATH": sorted(back["PATH"].split(":"))} == {**active, "PATH": sorted(active["PATH"].split(":"))}
    assert after == before


def test_a_conda_of_the_release_activates_it_as_base(place):
    variables = dict(place.variables)
    if "PYTHONPATH" in variables:
        # A checkout: run by the release's Python, it takes that prefix for its own.
        beside = subprocess.run(
            [place.command[0], "-c", "import sysconfig; print(sysconfig.get_path('purelib'), "
             "sysconfig.get_python_version())"], text=True, check=True, capture_output=True).stdout.split()
        if beside[1] != "%d.%d" % sys.version_info[:2]:
            pytest.skip("TORCHSTACK_CONDA_PYTHON is no Python %d.%d" % sys.version_info[:2])
        command = ["env", "PYTHONPATH=%s:%s" % (variables["PYTHONPATH"], beside[0]), place.prefix / "bin" / "python3",
                   "-m", "conda"]
    else:
        pytest.skip("an installed conda has a base of its own")
    before, active, after = states(place, "bash", command, ["activate base", "deactivate"], **MINE)
    assert active == expected(place, before)
    assert after == before
