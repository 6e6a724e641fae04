# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A site in a repository of its own, with nothing of the project but the installed collection."""

from __future__ import annotations

import os
import re
import shutil

import pytest

ANSWERS = """\
site: examplesite
title: Example Site
batch: none
modules: none
release: 2026-12
"""
FROM_RECORDS = ("report", "drift", "rollback", "retire", "notice")
"""Playbooks that work from what a root has recorded."""


class Repository:
    """What an operator has: a home with the installed collection, and the repository of a site."""

    def __init__(self, installed, directory, answers):
        self.installed, self.directory, self.root = installed, directory, directory.parent / "root"
        (directory.parent / "answers.yml").write_text(answers + "root: %s\n" % self.root)
        self.made, self.said = installed.run(
            installed.place / "bin" / "new-site", directory, "--answers", directory.parent / "answers.yml")

    def playbook(self, name, *words, **environment):
        environment = {"ANSIBLE_CONFIG": str(self.directory / "ansible.cfg"), "COLUMNS": "400", **environment}
        return self.installed.run("ansible-playbook", name, *words, cwd=self.directory, **environment)


@pytest.fixture(scope="module")
def repository(installed, tmp_path_factory):
    return Repository(installed, tmp_path_factory.mktemp("operator") / "examplesite", ANSWERS)


def test_the_program_writes_it_lints_it_and_says_the_next_two_commands(repository):
    assert repository.made == 0, repository.said
    assert re.search(r"Written: %s, \d+ files\. Lint finds nothing\." % repository.directory, repository.said)
    assert repository.said.endswith(
        "ansible-galaxy collection install -r requirements.yml -p collections ansible-playbook "
        "hpcml.torchstack.rollout --check --diff")


def test_a_second_time_it_refuses_to_overwrite_it(repository):
    code, said = repository.installed.run(
        repository.installed.place / "bin" / "new-site", repository.directory, "--defaults")
    assert code == 2 and "nothing is overwritten" in said


def test_it_is_linted_and_planned_from_there_without_naming_the_site(repository):
    code, said = repository.playbook("hpcml.torchstack.lint")
    assert code == 0, said
    code, said = repository.playbook("hpcml.torchstack.rollout", "--check", "--diff")
    assert code == 0 and "Plan for release 2026-12 of site examplesite: PyTorch" in said, said[-3000:]
    assert not repository.root.exists()


@pytest.mark.parametrize("words", [[], ["-e", "torchstack_host=examplesite"], ["-i", "inventory"]])
def test_the_site_may_be_named_and_so_may_its_inventory(repository, words):
    code, said = repository.playbook("hpcml.torchstack.lint", *words)
    assert code == 0 and "examplesite-login : ok=" in said and "WARNING" not in said, said


@pytest.mark.parametrize("name", ["accept", "publish"])
def test_a_release_that_was_not_rolled_out_is_neither_accepted_nor_published(repository, name):
    code, said = repository.playbook("hpcml.torchstack." + name)
    assert code == 2 and "Release 2026-12 was never opened below %s" % repository.root in said, said


@pytest.mark.parametrize("name", FROM_RECORDS)
def test_the_other_playbooks_find_the_site_and_its_root_by_themselves(repository, name):
    _code, said = repository.playbook("hpcml.torchstack." + name, "--check", "-v")
    assert "examplesite-login" in said and "no host for" not in said, said
    assert str(repository.root) in said or "2026-12" in said, said


def test_compare_takes_the_release_of_the_site(repository):
    code, said = repository.playbook("hpcml.torchstack.compare")
    assert code == 2 and "Say what %s/2026-12 is to be compared with" % repository.root in said, said


def test_the_mirror_is_asked_for_by_the_variable_of_the_site(repository):
    code, said = repository.playbook("hpcml.torchstack.mirror", "--check")
    assert code == 2 and "torchstack_mirror" in said and "examplesite-login" in said, said


def test_requirements_install_the_tarball_into_the_repository_and_that_is_used(installed, tarball, tmp_path):
    other = Repository(installed, tmp_path / "own", ANSWERS + "collection: %s\n" % tarball)
    assert other.made == 0, other.said
    elsewhere = {"ANSIBLE_COLLECTIONS_PATH": str(other.directory / "collections")}
    code, said = installed.run(
        "ansible-galaxy", "collection", "install", "--offline", "-r", "requirements.yml", "-p", "collections",
        cwd=other.directory, **elsewhere)
    assert code == 0, said
    assert (other.directory / "collections/ansible_collections/hpcml/torchstack/bin/new-site").is_file()
    environment = dict(installed.environment)
    del environment["ANSIBLE_COLLECTIONS_PATH"]
    other.installed = type(installed)(installed.home)
    other.installed.environment = environment
    code, said = other.playbook("hpcml.torchstack.lint")
    assert code == 0, said


def test_a_rehearsal_says_what_is_wrong_with_the_data_before_it_asks_for_podman(installed, tmp_path):
    """Podman is not on this PATH: that would be the next sentence."""
    made = Repository(installed, tmp_path / "examplesite", "site: examplesite\ntoolchain: gcc/12.3.0 openmpi/4.1.6\n")
    assert made.made == 0 and "Written: %s, " % made.directory in made.said, made.said
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "basename", "cut", "dirname", "head", "readlink", "test"):
        os.symlink(shutil.which(name), programs / name)
    ansible = shutil.which("ansible-playbook", path=installed.environment["PATH"])
    path = "%s:%s" % (os.path.dirname(ansible), programs)
    words = (installed.place / "bin" / "rehearse", made.directory)
    code, said = installed.run(*words, PATH=path)
    assert code == 1 and "Looking at the site's data" in said and "There is no " in said and "install it" in said, said
    data = made.directory / "rehearsal/group_vars/examplesite.yml"
    text = data.read_text()
    data.write_text(text + "torchstack_job: {launcher: slurm}\n")
    code, said = installed.run(*words, PATH=path)
    assert code == 1 and "PLAY" not in said and "fatal" not in said, said
    assert "torchstack_job: there is no such variable; did you mean torchstack_jobs?" in said, said
    assert "rehearsal: rehearsal/group_vars/examplesite.yml:%d: " % (text.count("\n") + 1) in said, said
    data.write_text(text.replace("openmpi/4.1.6:", "opnmpi/4.1.6:"))
    code, said = installed.run(*words, PATH=path)
    assert code == 1, said
    assert "'opnmpi/4.1.6' is like none of rehearsal/dress/modules.yml; did you mean 'openmpi'?" in said, said


def test_the_command_of_the_installed_collection_takes_the_site_of_the_repository(repository):
    program = repository.installed.place / "bin" / "torchstack"
    code, said = repository.installed.run(program, "--dry-run", "rollout", "2026-12", cwd=repository.directory)
    assert (code, said) == (
        0, "ansible-playbook playbooks/rollout.yml -e torchstack_host=examplesite -e torchstack_release=2026-12")
    code, said = repository.installed.run(program, "lint", cwd=repository.directory)
    assert code == 0 and "examplesite-login : ok=" in said and "TASK" not in said, said
    code, said = repository.installed.run(program, "list", cwd=repository.directory)
    assert (code, said) == (0, "Releases below %s: none yet" % repository.root)
    code, said = repository.installed.run(program, "publish", "--to", "visible", cwd=repository.directory)
    assert code == 2 and "Release 2026-12 was never opened below" in said and "TASK" not in said, said


def test_without_ansible_the_program_says_what_it_needs(installed, tmp_path):
    for name in ("sh", "head", "sed", "test", "basename", "dirname", "readlink"):
        os.symlink(shutil.which(name), tmp_path / name)
    code, said = installed.run(installed.place / "bin" / "new-site", tmp_path / "new", PATH=str(tmp_path))
    assert code == 2 and said.startswith("new-site: needs the Python that Ansible runs in, from 3.11 on"), said
