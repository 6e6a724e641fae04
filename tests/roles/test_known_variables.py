# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Every playbook refuses names that nobody reads; what may be said is declared once, and what is said is declared."""

from __future__ import annotations

import json
import pathlib
import re

import pytest
import yaml
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import variable_names
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import given_variables
from support import sites

TOP = pathlib.Path(__file__).parents[2]
PLAYBOOKS = sorted((TOP / "playbooks").glob("*.yml"))
ROLES = given_variables.specifications()
KNOWN = variable_names.declared(ROLES.values())
NAME = re.compile(r"\btorchstack_[a-z_]+[a-z]\b(?![./-])")
INVENTORIES = [[hosts] for hosts in sorted(TOP.glob("inventories/*/hosts.yml"))] + [
    [TOP / "inventories" / hosts.parent.name / "hosts.yml", hosts]
    for hosts in sorted(TOP.glob("inventories/rehearsal/*/hosts.yml"))
]


def words_of(*patterns):
    """Words that look like variables of the collection, in files of these patterns."""
    found = set()
    for pattern in patterns:
        for path in TOP.glob(pattern):
            if path.suffix in (".yml", ".j2"):
                found |= set(NAME.findall(path.read_text()))
    return found


def test_every_variable_that_is_read_is_declared_and_the_other_way_round():
    others = {"torchstack_planned", "torchstack_mpi"}  # a fact that build_step keeps for the plan; a Python package
    read = words_of("roles/*/defaults/*", "roles/*/tasks/**/*", "roles/*/vars/*", "roles/*/templates/*", "playbooks/*")
    sites_own = words_of("inventories/*/group_vars/*")
    declared = {name for name in KNOWN if name.startswith("torchstack_")}
    assert read - others <= declared
    assert declared <= read | sites_own


@pytest.mark.parametrize(
    "sources", INVENTORIES, ids=lambda paths: str(paths[-1].parent.relative_to(TOP / "inventories")))
def test_every_variable_of_the_inventories_is_known(sources, ansible_environment, tmp_path):
    (tmp_path / "play.yml").write_text(json.dumps([{
        "hosts": "all", "gather_facts": False, "tasks": [{"hpcml.torchstack.known_variables": None}]}]))
    words = [word for path in sources for word in ("-i", str(path))]
    done = sites.ansible_command("ansible-playbook", [*words, str(tmp_path / "play.yml")], ansible_environment)
    assert done.returncode == 0 and "ok=1" in done.stdout, done.stdout + done.stderr


def test_every_variable_that_the_documentation_types_is_known():
    texts = [*TOP.glob("docs/**/*.md"), *TOP.glob("roles/*/README.md"), *PLAYBOOKS, TOP / "README.md"]
    typed = {name for path in texts for name in re.findall(r"-e ['\"{ ]*([a-z_]+)[=:]", path.read_text())}
    assert {"torchstack_release", "publish_to"} <= typed
    assert variable_names.unknown(typed, [], KNOWN, ROLES) == []


def test_no_variable_of_the_tests_or_of_a_modulefile_is_taken_for_a_slip():
    word = re.compile(r"\bTORCHSTACK_[A-Z]+(?:_[A-Z]+)*\b")
    places = ("tests/**/*.py", "tests/run", ".ci/run", "Makefile", "bench/*.py", "rehearsal/**/*", "roles/**/*")
    files = [path for place in places for path in TOP.glob(place) if path.is_file() and path != pathlib.Path(__file__)]
    named = {name for path in files for name in word.findall(path.read_text(errors="replace"))}
    assert "TORCHSTACK_PYTHONS" in named
    for site in TOP.glob("inventories/*/group_vars/*.yml"):
        read = {*word.findall(site.read_text()), *given_variables.OTHERS}
        assert "TORCHSTACK_ROOT" in read
        found = variable_names.unknown_in_environment(named, read)
        assert [sentence for sentence in found if "RELASE" not in sentence] == [], site


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda path: path.stem)
def test_every_playbook_looks_at_the_names_first(playbook):
    for play in plays_of(playbook):
        first = (play.get("pre_tasks") or play["tasks"])[0]
        while not {"hpcml.torchstack.known_variables", "hpcml.torchstack.site_lint"} & set(first):
            first = tasks_of(first)[0]


def plays_of(playbook):
    """What a playbook stands for, with those that it imports."""
    for play in yaml.safe_load(playbook.read_text()):
        imported = play.get("ansible.builtin.import_playbook")
        yield from plays_of(playbook.parent / imported) if imported else [play]


def tasks_of(task):
    """What a task stands for: a block, an imported file of tasks, or a role."""
    if "block" in task:
        return task["block"]
    for word in ("import_tasks", "include_tasks"):
        if "ansible.builtin." + word in task:
            return yaml.safe_load((TOP / "playbooks" / task["ansible.builtin." + word]).read_text())
    role = task["ansible.builtin.import_role"]["name"].rpartition(".")[2]
    return yaml.safe_load((TOP / "roles" / role / "tasks" / "main.yml").read_text())


@pytest.mark.parametrize("playbook", ["local", "publish", "mirror"])
def test_a_slip_ends_the_run_before_anything_is_looked_at(playbook, ansible_environment, tmp_path):
    words = [
        "-i", str(sites.hosts_file("local")), "-e", "torchstack_relase=2026-11-21", "-e", '{"publish_too": "hidden"}',
        str(TOP / "playbooks" / (playbook + ".yml"))]
    environment = {**ansible_environment, "TORCHSTACK_ROOT": str(tmp_path / "root"), "TORCHSTACK_PYTHN": "python3"}
    done = sites.ansible_command("ansible-playbook", words, environment)
    said = " ".join(done.stdout.split())
    assert done.returncode == 2 and "See whether" not in said and "Read the release file" not in said
    assert (
        "publish_too: there is no such variable; did you mean publish_to? "
        "torchstack_relase: there is no such variable; did you mean torchstack_release? "
        "TORCHSTACK_PYTHN in the environment: there is no such variable; did you mean TORCHSTACK_PYTHON?") in said
    assert not (tmp_path / "root").exists()


def test_a_slip_in_an_inventory_is_refused_and_what_tasks_have_set_is_not(ansible_environment, tmp_path):
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "mine.yml").write_text(
        "torchstack_own: 1\ntorchstack_jobs: {x: '{{ torchstack_own }}'}\ncontainer_runtime: podman\nhorovod_job: 4\n")
    (tmp_path / "hosts.yml").write_text("mine: {hosts: {here: {ansible_connection: local}}}\n")
    (tmp_path / "play.yml").write_text(json.dumps([{"hosts": "mine", "gather_facts": False, "tasks": [
        {"ansible.builtin.set_fact": {"release_something": 1}},
        {"hpcml.torchstack.known_variables": {"others": ["container_runtime"]}},
    ]}]))
    words = ["-i", str(tmp_path / "hosts.yml"), str(tmp_path / "play.yml")]
    done = sites.ansible_command("ansible-playbook", words, ansible_environment)
    said = " ".join(done.stdout.split())
    assert done.returncode == 2
    assert "In the inventory, horovod_job: there is no such variable; did you mean horovod_jobs?" in said
    assert "container_runtime:" not in said and "release_something" not in said and "torchstack_own:" not in said
    (tmp_path / "group_vars" / "mine.yml").write_text("horovod_jobs: 4\n")
    words += ["-e", "container_runtime=x"]
    assert sites.ansible_command("ansible-playbook", words, ansible_environment).returncode == 0


def test_what_another_site_reads_of_the_environment_is_no_slip_of_what_the_tests_read():
    known = given_variables.read_by_sites()
    assert {"TORCHSTACK_PYTHON", "TORCHSTACK_ROOT"} <= known
    assert variable_names.unknown_in_environment({"TORCHSTACK_PYTHON"}, known | given_variables.OTHERS) == []
    assert variable_names.unknown_in_environment({"TORCHSTACK_PYTHON"}, given_variables.OTHERS) != []
