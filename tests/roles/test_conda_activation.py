# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The run-time settings of a conda base in real shells: scripts are sourced within a function, as conda does."""

from __future__ import annotations

import hashlib
import os
import pathlib
import shlex
import shutil
import subprocess

import pytest
from support.role_plays import play_tasks

ODD = "a 'b' \"c\" $HOME ${HOME} `id` $(id) \\ !x ~ *\n  second line\n"
SETTINGS = [
    {"name": "TOY_RAILS", "value": "1", "reason": "Two rails for each GPU.\nSeen with $(touch intruder)."},
    {"name": "TOY_ODD", "value": ODD, "reason": "Values are text."},
    {"name": "TOY_EMPTY", "value": "", "reason": "Empty is a value, too."},
]
OTHER = [
    {"name": "TOY_RAILS", "value": "other", "reason": "Another release wants another value."},
    {"name": "TOY_ONLY", "value": "=other", "reason": "Only there."},
]
VARIABLES = {"conda_base_prefix": "{{ case.prefix }}", "conda_base_runtime_settings": "{{ case.settings }}"}
# As conda's own function does: it evaluates lines such as these, which name the scripts one by one.
FUNCTIONS = """
act() { eval "$(for one in "$1"/etc/conda/activate.d/*.sh; do echo ". '$one'"; done)"; }
deact() { eval "$(for one in "$1"/etc/conda/deactivate.d/*.sh; do echo ". '$one'"; done | sort -r)"; }
show() { env -0; printf '\\001\\000'; }
"""
SHELLS = {"bash": ["bash", "--norc", "--noprofile"], "zsh": ["zsh", "-f"], "dash": ["dash"]}
BOOKKEEPING = ("_", "PWD", "OLDPWD", "SHLVL")


def play(ansible_environment, tmp_path, places, *options):
    return play_tasks("conda_base", "activation", VARIABLES, places, ansible_environment, tmp_path, *options)


@pytest.fixture(scope="module")
def prefixes(ansible_environment, tmp_path_factory):
    """Two prefixes with scripts of the role, beside one that a package brought."""
    top = tmp_path_factory.mktemp("bases")
    places = [
        {"prefix": str(top / "one" / "base"), "settings": SETTINGS},
        {"prefix": str(top / "two" / "base"), "settings": OTHER},
    ]
    done = play(ansible_environment, top, places)
    assert done.returncode == 0, done.stdout
    for place in places:
        for kind, line in (("activate", "export TOY_RAILS=package"), ("deactivate", "unset TOY_RAILS")):
            path = pathlib.Path(place["prefix"], "etc", "conda", kind + ".d", "toysettings.sh")
            if place["settings"] is OTHER:
                path.write_text(line + "\n")
    return pathlib.Path(places[0]["prefix"]), pathlib.Path(places[1]["prefix"])


@pytest.fixture(params=sorted(SHELLS))
def shell(request, tmp_path):
    """Run lines in a shell: what ``show`` printed, one environment each, and nothing else was printed."""
    if shutil.which(request.param) is None:
        pytest.skip("no %s here" % request.param)

    def run(text, **variables):
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **variables}
        done = subprocess.run(
            [*SHELLS[request.param], "-c", FUNCTIONS + text], env=environment, cwd=tmp_path, text=True, check=False,
            capture_output=True,
        )
        assert (done.returncode, done.stderr) == (0, "")
        found = [dict(line.split("=", 1) for line in one.split("\0") if line) for one in done.stdout.split("\1\0")[:-1]]
        return [{name: value for name, value in one.items() if name not in BOOKKEEPING} for one in found]

    run.name = request.param
    return run


def test_s18_values_are_literal_text_whatever_is_in_them(prefixes, shell, tmp_path):
    (active,) = shell("act '%s'; show" % prefixes[0])
    assert {name: active.get(name) for name in ("TOY_RAILS", "TOY_ODD", "TOY_EMPTY")} == {
        "TOY_RAILS": "1", "TOY_ODD": ODD, "TOY_EMPTY": "",
    }
    assert not (tmp_path / "intruder").exists()


@pytest.mark.parametrize("mine", [
    pytest.param({}, id="unset"),
    pytest.param({"TOY_RAILS": "mine", "TOY_ODD": "x" + ODD, "TOY_EMPTY": ""}, id="set"),
    pytest.param({"TOY_RAILS": "", "TOY_EMPTY": "not empty\n\n"}, id="partly set"),
    pytest.param({"TOY_RAILS": "s TOY_RAILS=x", "TOY_ODD": " -x= $(touch intruder) "}, id="values like records"),
])
def test_s18_deactivating_restores_what_was_there(prefixes, shell, mine, tmp_path):
    before, active, after = shell("show; act '{0}'; show; deact '{0}'; show".format(prefixes[0]), **mine)
    assert active["TOY_RAILS"] == "1"
    assert after == before
    assert not (tmp_path / "intruder").exists()


def test_s18_what_the_user_changed_meanwhile_is_restored_too(prefixes, shell):
    before, after = shell(
        "show; act '{0}'; TOY_RAILS=changed; unset TOY_ODD; deact '{0}'; show".format(prefixes[0]), TOY_RAILS="mine",
        TOY_ODD="mine",
    )
    assert after == before


def test_s18_a_prefix_that_is_activated_twice_is_active_until_the_second_deactivation(prefixes, shell):
    before, twice, once, after, again = shell(
        "show; act '{0}'; act '{0}'; show; deact '{0}'; show; deact '{0}'; show; deact '{0}'; show".format(prefixes[0]),
        TOY_RAILS="mine",
    )
    assert twice["TOY_RAILS"] == once["TOY_RAILS"] == "1" and once["TOY_ODD"] == ODD
    assert after == before
    assert again == before


def test_s18_nested_prefixes_each_give_back_what_they_found(prefixes, shell):
    steps = ["act '{0}'", "act '{1}'", "act '{0}'", "deact '{0}'", "deact '{1}'", "deact '{0}'"]
    line = "; show; ".join(["true", *steps, "true"])
    shown = shell(line.format(*prefixes), TOY_RAILS="mine", TOY_ONLY="mine")
    assert [one.get("TOY_RAILS") for one in shown[:5]] == ["mine", "1", "other", "1", "other"]
    # The package's own script of the second prefix does not restore what it replaced, but what comes after it does not
    # make that worse, and everything else is as it was.
    assert shown[5]["TOY_ONLY"] == "mine" and shown[5]["TOY_ODD"] == ODD
    assert shown[6] == shown[0]


def test_s18_the_sites_settings_win_over_those_of_packages(prefixes, shell):
    (active,) = shell("act '%s'; show" % prefixes[1])
    assert active["TOY_RAILS"] == "other"


def test_s18_an_inner_shell_goes_on_where_the_outer_one_was(prefixes, shell):
    inner = FUNCTIONS + "deact '{0}'; show; act '{0}'".format(prefixes[0])
    line = "show; act '{0}'; {1} -c {2}; deact '{0}'; show"
    command = " ".join(SHELLS[shell.name])
    before, within, after = shell(line.format(prefixes[0], command, shlex.quote(inner)), TOY_RAILS="mine")
    assert within == before
    assert after == before


def test_s18_strict_shells_are_not_harmed(prefixes, shell):
    line = "set -eu; show; act '{0}'; act '{1}'; deact '{1}'; deact '{0}'; deact '{0}'; show"
    before, after = shell(line.format(prefixes[0], prefixes[0]))
    assert after == before


@pytest.mark.parametrize("shell", ["zsh"], indirect=True)
def test_s18_unusual_options_of_zsh_do_no_harm(prefixes, shell):
    options = "no_unset err_return ksh_arrays sh_word_split glob_subst warn_create_global posix_builtins"
    line = "setopt " + options + "; IFS=0123; show; act '{0}'; show; deact '{0}'; show"
    before, active, after = shell(line.format(prefixes[0]), TOY_RAILS="mine")
    assert active["TOY_ODD"] == ODD
    assert after == before


@pytest.mark.parametrize("shell", ["bash", "zsh"], indirect=True)
def test_s18_a_variable_that_was_not_exported_is_not_exported_afterwards(prefixes, shell):
    line = "TOY_RAILS=' own'; show; act '{0}'; show; deact '{0}'; show; export SEEN=\"$TOY_RAILS\"; show"
    before, active, after, seen = shell(line.format(prefixes[0]))
    assert "TOY_RAILS" not in before and active["TOY_RAILS"] == "1"
    assert after == before
    assert seen["SEEN"] == " own"


def test_s18_a_broken_count_counts_as_none(prefixes, shell):
    count = "TORCHSTACK_KEPT_" + hashlib.sha256(str(prefixes[0]).encode()).hexdigest()[:8]
    for broken in ("x[$(touch intruder)]", "-1", "007", ""):
        active, after = shell("act '{0}'; show; deact '{0}'; show".format(prefixes[0]), **{count: broken})
        assert active["TOY_RAILS"] == "1" and active[count] == "1"
        assert not [name for name in after if name.startswith(("TOY_", "TORCHSTACK_"))]


def test_s18_no_function_and_no_variable_of_the_scripts_stays(prefixes, shell):
    names = "set | grep -c ^__torchstack" + "; typeset -f | grep -c ^__torchstack" * (shell.name != "dash")
    line = "act '{0}' && deact '{0}'; left=$({1}); export left; show"
    (after,) = shell(line.format(prefixes[0], names))
    assert set(after["left"].split()) == {"0"}


def test_s18_the_scripts_give_each_reason(prefixes):
    text = (prefixes[0] / "etc/conda/activate.d/zz-torchstack.sh").read_text()
    assert "# Two rails for each GPU.\n# Seen with $(touch intruder).\n__torchstack_set TOY_RAILS '1'\n" in text


def test_scripts_are_planned_written_changed_and_taken_away(ansible_environment, tmp_path):
    base = tmp_path / "base"
    script = base / "etc" / "conda" / "activate.d" / "zz-torchstack.sh"
    place = {"prefix": str(base), "settings": SETTINGS}
    assert "changed=1" in play(ansible_environment, tmp_path, [place], "--check", "--diff").stdout
    assert not base.exists()
    assert "changed=2" in play(ansible_environment, tmp_path, [place, place]).stdout
    assert script.stat().st_mode & 0o777 == 0o644
    changed = dict(place, settings=[dict(SETTINGS[0], value="4")])
    planned = play(ansible_environment, tmp_path, [place, changed], "--check", "--diff").stdout
    assert "-__torchstack_set TOY_RAILS '1'" in planned and "+__torchstack_set TOY_RAILS '4'" in planned
    assert "changed=1" in planned and "TOY_RAILS '1'" in script.read_text()
    refused = dict(place, settings=[{"name": "PATH", "value": "/x", "reason": "x"}])
    gone = play(ansible_environment, tmp_path, [dict(place, settings=[]), refused])
    assert gone.returncode != 0
    said = " ".join(gone.stdout.split())
    assert "Run-time setting PATH would throw away what the user and other modules put there." in said
    assert [path for path in base.rglob("*") if path.is_file()] == []


MODULE = {
    "modulefile_root": "{{ case.root }}", "modulefile_release": "2026-11", "modulefile_site": "toy",
    "modulefile_name": "torchstack", "modulefile_description": "{{ case.description }}"}


def test_what_the_module_sets_is_written_for_conda_once_and_a_plan_writes_nothing(ansible_environment, tmp_path):
    base = tmp_path / "root" / "2026-11" / "base"
    paths = {"LD_LIBRARY_PATH": "/soft/cuda/lib64", "PATH": "%s/bin" % base}
    description = {"setenv": {"TOY_RAILS": "1", "CONDA_PREFIX": "/soft/cuda/x"}, "external": ["/soft/cuda"],
                   "prepend": [{"name": name, "values": [entry]} for name, entry in paths.items()]}
    cases = [{"root": str(tmp_path / "root"), "description": description}]

    def play(*options):
        done = play_tasks("modulefile", "conda", MODULE, cases, ansible_environment, tmp_path, *options)
        assert done.returncode == 0, done.stdout
        return done.stdout

    play("--check")
    assert not base.exists()
    play()
    found = sorted(str(path.relative_to(base / "etc/conda")) for path in base.rglob("*") if path.is_file())
    assert found == ["%s.d/zz-torchstack-module.%s" % (kind, shell) for kind in ("activate", "deactivate")
                     for shell in ("csh", "fish", "sh")]
    assert "changed=0" in play("--check") and "changed=0" in play()
    line = ". %s/etc/conda/activate.d/zz-torchstack-module.sh; echo $TOY_RAILS $LD_LIBRARY_PATH $PYTHONUSERBASE $PATH"
    done = subprocess.run(["sh", "-c", line % base], text=True, check=True, capture_output=True,
                          env={"HOME": "/u", "PYTHONSTARTUP": "x", "PATH": "%s/bin:/usr/bin:/bin" % base})
    user_base = "/u/.local/torchstack/toy/2026-11"
    assert done.stdout == "1 /soft/cuda/lib64 %s %s/bin:%s/bin:/usr/bin:/bin\n" % (user_base, base, user_base)


def test_a_description_that_no_module_could_have_is_one_sentence(ansible_environment, tmp_path):
    cases = [{"root": str(tmp_path / "root"), "description": {"setenv": {"TOY": "${"}}}]
    done = play_tasks("modulefile", "conda", MODULE, cases, ansible_environment, tmp_path)
    assert done.returncode != 0 and "only ${NAME} may follow a ${" in " ".join(done.stdout.split())


def test_the_command_conda_is_written_where_the_release_has_conda_and_goes_with_the_key(ansible_environment, tmp_path):
    base = tmp_path / "root" / "2026-11" / "base"
    command = base / "etc" / "conda" / "torchstack"

    def play(wanted, *options):
        cases = [{"root": str(tmp_path / "root"), "description": {"conda_command": True} if wanted else {}}]
        done = play_tasks("modulefile", "conda", MODULE, cases, ansible_environment, tmp_path, *options)
        return done.returncode, " ".join(done.stdout.split())

    assert play(True, "--check")[0] == 0 and not base.exists()
    failed, said = play(True)
    sentence = "module.conda_command is true, and %s/bin/conda is not there: add conda to base.specs" % base
    assert failed and sentence in said
    (base / "bin").mkdir()
    (base / "bin" / "conda").touch()
    assert play(True)[0] == 0
    assert sorted(path.name for path in command.iterdir()) == ["conda.csh", "conda.fish", "conda.sh"]
    assert "changed=0" in play(True, "--check")[1] and "changed=0" in play(True)[1]
    assert "changed=1" in play(False, "--check")[1] and command.exists()
    assert "changed=1" in play(False)[1] and not command.exists()
    assert "changed=0" in play(False)[1]
