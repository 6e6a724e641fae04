# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What is typed behind make: one dialect for all targets, and nothing that is passed over."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess

import pytest

TOP = pathlib.Path(__file__).parents[2]
SITES = "cirrus derecho local lumi polaris"
RELEASE = "-e torchstack_release=2026-11-21"


@pytest.fixture()
def venv(tmp_path):
    """An environment that counts as made, with an ansible that knows one release."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "rollout").touch()
    program = tmp_path / "bin" / "ansible"
    program.write_text(
        "#!/bin/sh\nprintf '%s\\n' \"$*\" >&2\nprintf '{\\n    \"msg\": \"/nowhere/2026-11-21\"\\n}\\n'\n")
    program.chmod(0o755)
    return tmp_path


def text_of_all():
    return "".join((TOP / name).read_text() for name in ("Makefile", "tests/targets.mk"))


def make(*words, **environment):
    """Run make; its exit code and all that it printed."""
    # Of a make that runs the tests it would tell its directory.
    ours = ("RELEASE", "SITE", "PREFIX", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "ANSIBLE_STDOUT_CALLBACK")
    clean = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run(
        ["make", *words], cwd=TOP, env={**clean, **environment}, text=True, check=False, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


@pytest.mark.parametrize(("words", "expected"), [
    (["rollout"], "ansible-playbook playbooks/local.yml"),
    (["rollout", "RELEASE=2026-11-21", "SITE=polaris"], "ansible-playbook playbooks/polaris.yml " + RELEASE),
    (["plan", "RELEASE=2026-11-21", "SITE=polaris"], "playbooks/polaris.yml --check " + RELEASE),
    (["rollout", "RELEASE=inventories/local/releases/2026-11-21.yml", "ARGS=-v"],
     "playbooks/local.yml %s -e release_file=%s/inventories/local/releases/2026-11-21.yml -v" % (RELEASE, TOP)),
    (["lint-site", "SITE=polaris"], "ansible-playbook playbooks/lint.yml -e torchstack_host=polaris"),
    (["lint-site", "RELEASE=2026-11-21"], "playbooks/lint.yml -e torchstack_host=local " + RELEASE),
    (["mirror", "TO=/m", "RELEASE=2026-11-21", "SITE=lumi"], "playbooks/mirror.yml -e torchstack_host=lumi " + RELEASE),
    (["verify", "RELEASE=2026-11-21", "SITE=polaris"], 'bin/verify "/nowhere/2026-11-21"'),
    (["matrix", "MATRIX=m/cpu.yml"], 'bin/matrix rollout "m/cpu.yml" --'),
    (["matrix", "MATRIX=m/cpu.yml", "DO=mirror", "TO=/m", "ARGS=-v"], 'bin/matrix mirror "m/cpu.yml" --to "/m" -- -v'),
    (["verify", "PREFIX=/usr"], 'bin/verify "/usr"'),
])
def test_release_and_site_mean_the_same_behind_every_target(words, expected, venv):
    code, said = make("-n", *words, "VENV=%s" % venv)
    assert code == 0, said
    assert expected in " ".join(said.split())


@pytest.mark.parametrize(("environment", "callback"), [
    ({}, "hpcml.torchstack.steps"), ({"ANSIBLE_STDOUT_CALLBACK": "default"}, "default")])
@pytest.mark.parametrize("target", ["rollout", "plan"])
def test_a_rollout_prints_a_line_for_each_step_unless_another_callback_is_wanted(target, environment, callback, venv):
    program = venv / "bin" / "ansible-playbook"
    program.write_text('#!/bin/sh\necho "printed by $ANSIBLE_STDOUT_CALLBACK"\n')
    program.chmod(0o755)
    code, said = make(target, "VENV=%s" % venv, **environment)
    assert (code, said.splitlines()[-1]) == (0, "printed by " + callback)


def test_a_rehearsal_takes_the_same_words():
    code, said = make("-n", "rehearse", "RELEASE=2026-11-21", "SITE=polaris")
    assert code == 0 and re.search(r'-m rehearsal roll-out --release "2026-11-21" .*"polaris"', said), said
    code, said = make("-n", "rehearse", "SITE=polaris", "SCHEDULER=pbs")
    assert code == 0 and "pbs" in said.splitlines()[-1], said


@pytest.mark.parametrize(("words", "expected"), [
    (["quick"], "tests/run quick"),
    (["dev"], "tests/run dev"),
    (["test"], "tests/run all"),
    (["lint"], "tests/run lint"),
    (["importer"], "tests/run importer"),
    (["molecule", "SCENARIO=horovod"], "tests/run molecule horovod"),
    (["molecule"], "tests/run molecule"),
])
def test_the_parts_of_the_tests_are_targets(words, expected):
    code, said = make("-n", *words)
    assert code == 0 and said.split() == expected.split()


def test_help_shows_every_target():
    code, said = make("help")
    phony = " ".join(re.findall(r"^\.PHONY: (.*)$", text_of_all(), re.M)).split()
    assert code == 0 and all(re.search(r"^  ([a-z-]+ )*%s " % re.escape(name), said, re.M) for name in phony), said


def test_what_only_a_clone_has_is_listed_in_the_makefile():
    (listed,) = re.findall(r"^CLONED := (.*)$", (TOP / "Makefile").read_text(), re.M)
    (phony,) = re.findall(r"^\.PHONY: (.*)$", (TOP / "tests/targets.mk").read_text(), re.M)
    assert listed.split() == phony.split()


def test_verify_asks_the_site_where_the_release_lies(venv):
    code, said = make("verify", "RELEASE=2026-11-21", "SITE=polaris", "VENV=%s" % venv)
    assert code == 2 and "Cannot look at /nowhere/2026-11-21" in said
    assert "polaris -m ansible.builtin.debug -a msg={{ torchstack_root }}/{{ torchstack_release }} " + RELEASE in said


@pytest.mark.parametrize(("words", "sentence"), [
    (["rollout", "RELASE=x"],
     "make rollout reads no RELASE (did you mean RELEASE?); it reads ARGS, PYTHON, RELEASE, SITE, VENV."),
    (["plan", "RELEASE=x", "PREFIX=/x", "SIT=y"],
     "make plan reads no PREFIX, no SIT (did you mean SITE?); it reads ARGS, PYTHON, RELEASE, SITE, VENV."),
    (["lint-site", "SITES=x"],
     "make lint-site reads no SITES (did you mean SITE?); it reads ARGS, PYTHON, RELEASE, SITE, VENV."),
    (["clean", "RELEASE=x"], "make clean reads no RELEASE."),
    (["quick", "SCENARIO=x"], "make quick reads no SCENARIO."),
    (["molecule", "SCENARO=x"], "make molecule reads no SCENARO (did you mean SCENARIO?); it reads SCENARIO."),
    (["FOO=x"], "make help reads no FOO."),
    (["rollout", "SITE=polarsi"], "There is no site 'polarsi': give SITE=local or another one of %s." % SITES),
    (["verify", "PREFIX=/usr", "SITE=local"], "Give PREFIX, or RELEASE and SITE, not both."),
    (["verify"], "Say what to verify: make verify RELEASE=2026-11-20 [SITE=local], or PREFIX=/path/to/release"),
])
def test_what_a_target_does_not_read_is_refused_with_what_was_meant(words, sentence, venv):
    code, said = make(*words, *(["VENV=%s" % venv] if words[0] in ("rollout", "plan", "verify", "lint-site") else []))
    assert code == 2 and sentence in said, said
    assert "ansible-playbook" not in said


def test_variables_of_the_environment_are_not_typed():
    assert make("-n", "clean", RELASE="x", PREFIX="/x")[0] == 0


def test_variables_of_the_collection_reach_it_through_make(venv):
    assert make("-n", "rollout", "TORCHSTACK_ROOT=/x", "VENV=%s" % venv)[0] == 0


def test_an_interpreter_that_is_not_there_is_named(tmp_path):
    code, said = make("rollout", "PYTHON=python3.99", "VENV=%s" % (tmp_path / "venv"))
    assert code == 2 and "There is no Python by the name 'python3.99': name one from 3.11 on, as in" in said
    assert "No rule" not in said


def test_every_variable_that_recipes_read_can_be_typed():
    text = text_of_all()
    lists = re.findall(r"^READS_\S+ := (.*)$", text, re.M)
    typed = {name for line in lists for name in re.findall(r"\b[A-Z_]+\b", line)}
    recipes = "\n".join(re.findall(r"^(?:\t.*|RELEASE_ARGUMENTS(?:.*\\\n)*.*|PLAYBOOK.*)$", text, re.M))
    read = set(re.findall(r"\$[({]([A-Z_]+)\b", recipes))
    made = set(re.findall(r"^([A-Z_]+) :?= ", text, re.M)) | {"MAKEFILE_LIST", "MAKECMDGOALS", "CURDIR"}
    assert read - made <= typed
    rehearsal = "\n".join(path.read_text() for path in (TOP / "rehearsal").glob("*.py"))
    assert {name for name in typed if name.startswith("REHEARSAL_")} == set(re.findall(r"REHEARSAL_[A-Z_]+", rehearsal))
