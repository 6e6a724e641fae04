# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The command torchstack as it is typed: in the checkout, through the link of make env, completed by shells."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from support.command_environment import link_command

TOP = pathlib.Path(__file__).parents[2]
SITES = sorted(path.parent.name for path in TOP.glob("inventories/*/hosts.yml"))


@pytest.fixture()
def link(tmp_path):
    """An environment whose Python is this one, with the command as make env links it."""
    return link_command(tmp_path)


def run(*words, **environment):
    """Run a program; its exit code and what it printed."""
    done = subprocess.run(
        [str(word) for word in words], cwd=TOP, env={**os.environ, **environment}, text=True, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def test_make_env_links_the_command_into_the_environment():
    assert 'ln -sfn "$(CURDIR)/bin/torchstack" $(VENV)/bin/torchstack' in (TOP / "Makefile").read_text()


def test_through_its_link_it_needs_nothing_on_path(link):
    code, said = run(link, "--dry-run", "rollout", "polaris", PATH="/usr/bin:/bin")
    assert (code, said) == (0, "ansible-playbook playbooks/polaris.yml\n")


@pytest.mark.parametrize("program", ["lock", "matrix", "new-site", "rehearse", "show-release", "torchstack"])
def test_each_program_of_the_control_node_starts_the_same_way(program):
    text = (TOP / "bin" / program).read_text()
    assert len(text.splitlines()) == 7 and '/with-ansible" "$0" ' in text
    code, said = run(TOP / "bin" / program, "--help")
    assert code == 0 and said.lower().startswith("usage: "), said


def proposals(link, *typed):
    """What bash gets to choose from behind these words, the last of which is not complete."""
    words = " ".join(["torchstack", *typed])
    _code, said = run(link, _TORCHSTACK_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(len(typed)))
    return [line.partition(",")[2] for line in said.splitlines()]


def test_sites_and_then_the_releases_of_that_site_are_proposed(link):
    assert set(SITES) <= set(proposals(link, "publish", "''"))
    assert proposals(link, "publish", "pol") == ["polaris"]
    assert proposals(link, "publish", "polaris", "2026") == ["2026-11-21"]
    assert proposals(link, "pub") == ["publish"]


def test_steps_are_those_of_the_release_that_is_meant(link, tmp_path):
    for step in ("base", "horovod", "horovod-install"):
        (tmp_path / "root/2026-11-20/.torchstack/steps" / step).mkdir(parents=True)
    (tmp_path / "root/2026-11-20/.torchstack/release.yml").write_text("{release: 2026-11-20, site: local}\n")
    typed = ["logs", "--root", str(tmp_path / "root"), "horo"]
    assert proposals(link, *typed) == ["horovod", "horovod-install"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_a_shell_evaluates_is_the_completion_of_that_shell(shell, link, tmp_path):
    code, said = run(link, "completion", shell)
    assert code == 0 and "_TORCHSTACK_COMPLETE=%s_complete" % shell in said
    if not shutil.which(shell):
        pytest.skip("there is no %s" % shell)
    script = tmp_path / "completion"
    script.write_text(said)
    assert run(shell, "-n", script) == (0, "")


def test_in_a_real_bash_the_tabulator_completes(link):
    script = (
        'eval "$(torchstack completion bash)"; COMP_WORDS=(torchstack publish pol); COMP_CWORD=2; '
        '$(complete -p torchstack | sed "s/.*-F \\([^ ]*\\).*/\\1/") torchstack pol publish; echo "${COMPREPLY[@]}"')
    code, said = run("bash", "-c", script, PATH="%s:%s" % (link.parent, os.environ["PATH"]))
    assert code == 0 and said.split() == ["polaris"], said


def test_an_unknown_word_is_answered_and_nothing_is_run(link):
    code, said = run(link, "rollaut", "local")
    assert code == 2 and re.search("did you mean 'rollout'", said), said


def played(link, *words):
    """Play a word for a program; its exit code, its document, and what stands on standard error."""
    done = subprocess.run(
        [str(link), *words, "--json"], cwd=TOP, text=True, check=False, stdin=subprocess.DEVNULL, capture_output=True)
    return done.returncode, json.loads(done.stdout), done.stderr


def test_with_json_standard_output_is_one_document_and_lines_are_on_standard_error(link):
    code, found, said = played(link, "lint", "local")
    assert code == found["rc"] == 0 and found["finished"], said
    assert (found["word"], found["site"], found["failures"], found["changed"]) == ("lint", "local", [], [])
    assert "Find all mistakes in the data of a site" in said
    (of_site,) = [one["data"] for one in found["results"] if "2026-11-20" in one["data"]["releases"]]
    assert of_site["problems"] == []


def test_a_mistake_is_data_with_its_place_and_the_failure_has_its_sentence(link, tmp_path):
    file = tmp_path / "2027-01-01.yml"
    file.write_text("---\npytorhc: {}\n")
    done = subprocess.run(
        [str(link), "lint", "local", "--json", "--", "-e", "release_file=%s" % file], cwd=TOP, text=True, check=False,
        stdin=subprocess.DEVNULL, capture_output=True)
    found = json.loads(done.stdout)
    assert done.returncode == found["rc"] == 2, done.stderr
    problems = [problem for one in found["results"] for problem in one["data"]["problems"]]
    (unknown,) = [problem for problem in problems if problem["message"].startswith("Unknown key 'pytorhc'")]
    assert (unknown["file"], unknown["line"]) == (str(file), 2)
    assert found["failures"][0]["message"].startswith("Site local has ")
