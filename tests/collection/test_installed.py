# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The collection as Galaxy has it: built, installed into an empty environment, and used from there."""

from __future__ import annotations

import pathlib
import re
import tarfile

import pytest
import yaml

TOP = pathlib.Path(__file__).parents[2]
PLAYBOOKS = sorted(TOP.glob("playbooks/*.yml"))
SHIPPED = {
    ".ansible-lint", "CHANGELOG.md", "FILES.json", "LICENSE", "MANIFEST.json", "Makefile", "README.md", "ansible.cfg",
    "bin", "changelogs", "docs", "inventories", "meta", "new-site", "playbooks", "plugins",
    "rehearsal", "requirements", "roles",
}
TARGETS = {"help", "env", "rollout", "plan", "mirror", "verify", "rehearse", "rehearse-down", "clean"}
(CLONED,) = re.findall(r"^CLONED := (.*)$", (TOP / "Makefile").read_text(), re.M)


def test_what_is_shipped_works_without_a_clone(tarball):
    with tarfile.open(tarball) as archive:
        names = [pathlib.PurePath(name) for name in archive.getnames()]
    assert {name.parts[0] for name in names} == SHIPPED
    assert sorted({name.name for name in names if name.parts[0] == "requirements" and len(name.parts) > 1}) == sorted(
        path.name for path in TOP.glob("requirements/rollout-*.txt"))


def test_every_playbook_names_its_hosts_so_that_a_missing_inventory_is_told():
    for playbook in PLAYBOOKS:
        plays = [play for play in yaml.safe_load(playbook.read_text()) if "hosts" in play]
        for hosts in {play["hosts"] for play in plays} - {"localhost"}:
            assert hosts.startswith("{{ lookup('hpcml.torchstack.site_hosts', "), playbook


@pytest.mark.parametrize(("playbook", "site"), [
    ("local", "local"), ("polaris", "polaris"), ("publish", "local"), ("mirror", "local"),
])
def test_a_playbook_without_inventory_ends_with_the_one_to_give(installed, playbook, site):
    code, said = installed.run("ansible-playbook", "hpcml.torchstack." + playbook)
    assert code != 0
    assert said.count(
        "The inventory has no host for '%s': give the site's, as in -i %s/inventories/%s/hosts.yml, or one of your own."
        % (site, installed.place, site)) == 1, said
    assert "PLAY" not in said


def test_a_host_that_is_typed_and_not_there_has_the_sites_listed(installed):
    code, said = installed.run("ansible-playbook", "hpcml.torchstack.drift", "-e", "torchstack_host=polarsi")
    assert code != 0
    assert "The inventory has no host for 'polarsi': give the hosts file of that site with -i;" in said, said


def test_with_that_inventory_the_playbook_runs_and_names_the_rehearsal(installed):
    hosts = installed.place / "inventories" / "polaris" / "hosts.yml"
    code, said = installed.run("ansible-playbook", "hpcml.torchstack.polaris", "-i", hosts, "--check")
    assert code == 2 and "is not the site polaris: " in said, said
    assert "run its rehearsal: make rehearse SITE=polaris." in said


def test_the_local_site_is_looked_at(installed):
    hosts = installed.place / "inventories" / "local" / "hosts.yml"
    code, said = installed.run(
        "ansible-playbook", "hpcml.torchstack.local", "-i", hosts, "--check",
        TORCHSTACK_ROOT=str(installed.home / "torchstack"), TORCHSTACK_RELEASE="1999-01-01")
    assert code == 2 and "1999-01-01" in said and "is not the site" not in said, said


@pytest.mark.parametrize("target", CLONED.split())
def test_a_target_that_cannot_work_says_that_it_needs_a_clone(installed, target):
    code, said = installed.run("make", target, "SITE=local", cwd=installed.place)
    assert code == 2
    sentence = "make %s works in a clone of the project only: git clone https://github.com/hpcml/torchstack. Stop."
    assert sentence % target in said


def test_help_shows_the_targets_that_work(installed):
    code, said = installed.run("make", "help", cwd=installed.place)
    assert code == 0 and set(re.findall(r"(\S+) (?=[A-Z]\S* )", said)) >= TARGETS, said
    assert not set(said.split()) & (set(CLONED.split()) - {"test", "lock", "quick"}), said


def test_targets_find_what_they_need(installed):
    code, said = installed.run("make", "-n", "rollout", cwd=installed.place)
    assert code == 0 and "--requirement requirements/rollout-" in said, said
    assert "ansible-playbook playbooks/local.yml" in said


def test_programs_run_by_themselves(installed):
    for name in ("verify", "compare", "node-health", "collectives", "new-site", "rehearse"):
        code, said = installed.run(installed.place / "bin" / name, "--help")
        assert code == 0 and said.startswith("usage: "), said
