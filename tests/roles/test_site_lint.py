# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Every mistake in the data of a site is one sentence with its file and line, before anything is looked at."""

from __future__ import annotations

import os
import re
import shutil

import pytest
from support import linting, sites

TITLES = [re.sub(r"[^\w{}.:/-]+", " ", case["what"]).strip() for case in linting.WRONG]
INVENTORIES = [[sites.hosts_file(site)] for site in sites.SITES] + [
    [sites.hosts_file(hosts.parent.name), hosts]
    for hosts in sorted(sites.TOP.glob("inventories/rehearsal/*/hosts.yml"))]


@pytest.fixture(scope="module")
def wrong(tmp_path_factory, ansible_environment):
    """The file and the line of every mistake, and what is said of it; of no mistake first."""
    places, cases = [], [{"sources": [linting.SITE / "hosts.yml"]}]
    for case in linting.WRONG:
        directory = tmp_path_factory.mktemp("wrong")
        places.append((directory, *linting.written(directory, case)))
        options = {"only": case["only"]} if "only" in case else {}
        cases.append({"sources": [directory / "hosts.yml"], "options": options})
    sound, *found = linting.lint_all(cases, ansible_environment)
    return sound, [(*place, one) for place, one in zip(places, found)]


def test_a_site_in_which_nothing_is_wrong_has_no_problems(wrong):
    sound, _found = wrong
    assert sound == {"problems": [], "releases": ["source", "wheel"], "shown": [], "warnings": []}


def test_the_mistakes_of_the_document_and_more_are_there():
    assert len(linting.WRONG) >= linting.DOCUMENTED + 20
    assert len({case["what"] for case in linting.WRONG}) == len(linting.WRONG)


@pytest.mark.parametrize("number", range(len(linting.WRONG)), ids=TITLES)
def test_a_mistake_is_one_sentence_with_its_file_and_line(number, wrong):
    case, (directory, path, line, found) = linting.WRONG[number], wrong[1][number]
    if "harmless" in case:
        assert found["problems"] == []
        return
    (problem,) = found["problems"]
    told = problem["message"].replace(str(directory), "...")
    assert case["says"] in told and "\n" not in told
    assert problem["file"] == str(directory / case["file"] if "file" in case else path)
    assert problem["line"] == line, problem
    place = "%s:%d" % (problem["file"], line) if line else problem["file"]
    assert found["shown"] == ["%s: %s" % (place, problem["message"])]


@pytest.fixture(scope="module")
def linted(ansible_environment):
    """What is said of every site of the checkout and of its rehearsal, without any variable of theirs."""
    clean = {name: value for name, value in ansible_environment.items() if not name.startswith("TORCHSTACK_")}
    return linting.lint_all([{"sources": sources} for sources in INVENTORIES], clean)


@pytest.mark.parametrize("number", range(len(INVENTORIES)), ids=[
    str(sources[-1].parent.relative_to(sites.TOP / "inventories")) for sources in INVENTORIES])
def test_every_site_of_the_collection_is_clean_with_all_of_its_releases(number, linted):
    found, releases = linted[number], INVENTORIES[number][0].parent / "releases"
    assert found["problems"] == [] and found["warnings"] == []
    assert sorted(found["releases"]) == sorted(path.stem for path in releases.glob("*.yml"))


@pytest.fixture()
def several(tmp_path):
    """A site with a mistake in each of its files; those of the site and its release, and that of another release."""
    shutil.copytree(linting.SITE, tmp_path, dirs_exist_ok=True)
    for name, old, new in (
        ("group_vars/examplecluster.yml", "  per_node: 8", "  pernode: 8"),
        ("group_vars/examplecluster.yml", "  gpus: 8", "  gpu: 8"),
        ("releases/source.yml", "torch_nccl", "torch_ncll"), ("releases/wheel.yml", "  nccl: wheel", "  nccl: wheels"),
    ):
        path = tmp_path / name
        path.write_text(path.read_text().replace(old, new))
    begin = str(tmp_path) + "/"
    own = [
        begin + "group_vars/examplecluster.yml:38: Unknown key 'torchstack_ranks.pernode' in the data of site "
                "examplecluster; did you mean 'per_node'?",
        begin + "group_vars/examplecluster.yml:40: Unknown key 'node_health_expected.gpu' in the data of site "
                "examplecluster; did you mean 'gpus'?",
        begin + "releases/source.yml:61: 'acceptance.checks[2]' is 'torch_ncll', which is none of imports, devices, "
                "horovod, torch_gloo, torch_nccl, torch_mpi, mpi4py, cuda_graph_replay; did you mean 'torch_nccl'?",
    ]
    other = (begin + "releases/wheel.yml:30: 'horovod.nccl' is 'wheels', which is none of release, wheel; did you mean "
             "'wheel'?")
    return tmp_path, own, other


def playbook(name, words, environment):
    """Run a playbook of the collection on the site; its exit code and the lines that it printed."""
    words = [*words, str(sites.TOP / "playbooks" / (name + ".yml"))]
    done = sites.ansible_command(
        "ansible-playbook", words, dict(environment, ANSIBLE_CALLBACK_RESULT_FORMAT="yaml", COLUMNS="400"))
    return done.returncode, [line.strip() for line in (done.stdout + done.stderr).splitlines()]


def test_lint_and_rollout_say_the_same_all_at_once_one_to_a_line(several, ansible_environment):
    directory, own, other = several
    inventory = ["-i", str(directory / "hosts.yml")]
    code, said = playbook("lint", inventory, ansible_environment)
    assert code == 2 and [line for line in said if line.startswith(str(directory))] == [*own, other]
    assert any("Site examplecluster has 4 mistakes, which are said above." in line for line in said)
    for check in ([], ["--check"]):
        words = [*inventory, "-e", "torchstack_host=examplecluster", *check]
        code, said = playbook("rollout", words, ansible_environment)
        # Ansible says it before the result and in it.
        assert code == 2 and list(dict.fromkeys(line for line in said if line.startswith(str(directory)))) == own
        assert "Nothing was done, as there are 3 mistakes:" in " ".join(said)
        assert not any("See whether this machine is the site" in line for line in said)


def test_a_release_that_is_typed_is_linted_alone(several, ansible_environment):
    directory, own, other = several
    words = ["-i", str(directory / "hosts.yml"), "-e", "torchstack_release=wheel"]
    code, said = playbook("lint", words, ansible_environment)
    assert code == 2 and [line for line in said if line.startswith(str(directory))] == [*own[:2], other]


@pytest.mark.parametrize("words", [["-e", "torchstack_host=examplclustr"], ["-i", os.devnull]])
def test_a_pattern_that_no_host_matches_is_an_error(words, ansible_environment):
    inventory = [] if "-i" in words else ["-i", str(linting.SITE / "hosts.yml")]
    code, said = playbook("lint", [*inventory, *words], ansible_environment)
    assert code != 0 and any("The inventory has no host for '" in line for line in said), said


def test_what_is_typed_is_linted_and_stands_in_no_file(ansible_environment):
    words = ["-i", str(linting.SITE / "hosts.yml"), "-e", "torchstack_relase=x", "-e", '{"acceptance_ranks": "many"}',
             "-e", "torchstack_publish_visible=yes"]
    code, said = playbook("lint", words, ansible_environment)
    assert code == 2
    assert "torchstack_relase: there is no such variable; did you mean torchstack_release?" in said
    assert [line for line in said if line.startswith("'acceptance_ranks'")] == [
        "'acceptance_ranks' in the data of site examplecluster must be a whole number, but it is the text 'many'; "
        "write it without quotes."]
    assert any("has 2 mistakes" in line for line in said)


def test_a_directive_that_nobody_knows_is_only_a_warning(tmp_path, ansible_environment):
    change = {"in": "group_vars/examplecluster.yml", "old": "--gres=gpu:8", "new": "--burst-mode=on"}
    linting.written(tmp_path, change)
    (found,) = linting.lint_all([{"sources": [tmp_path / "hosts.yml"]}], ansible_environment)
    assert found["problems"] == []
    assert found["warnings"] == [
        "The directive '--burst-mode=on' is none that Slurm is known to have; if the site has it, leave it."]


def test_release_files_outside_of_an_inventory_that_is_a_directory_are_found(several, ansible_environment):
    directory, own, other = several
    inventory = directory / "inventory"
    inventory.mkdir()
    for name in ("hosts.yml", "group_vars"):
        shutil.move(directory / name, inventory / name)
    variables = inventory / "group_vars" / "examplecluster.yml"
    variables.write_text(variables.read_text() + 'torchstack_releases: "{{ inventory_dir }}/../releases"\n')
    code, said = playbook("lint", ["-i", str(inventory)], ansible_environment)
    told = [
        line.replace("inventory/../", "").replace("inventory/", "") for line in said if line.startswith(str(directory))]
    assert code == 2 and told == [*own, other]
    assert not [line for line in said if "WARNING" in line]


def test_the_directory_of_a_site_of_the_checkout_is_an_inventory_in_which_release_files_are_none(ansible_environment):
    environment = dict(ansible_environment, ANSIBLE_CONFIG=str(sites.TOP / "ansible.cfg"))
    for site in sites.SITES:
        words = ["-i", str(sites.hosts_file(site).parent), "--list"]
        done = sites.ansible_command("ansible-inventory", words, environment)
        assert done.returncode == 0 and done.stderr == ""
