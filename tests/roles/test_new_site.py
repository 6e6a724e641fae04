# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The repository of a new site lints clean, whatever is answered, and can be planned where it is written."""

from __future__ import annotations

import itertools
import os
import pathlib
import subprocess
import sys

import pytest
import yaml
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch import registry
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.new_site import interview, questions, repository
from support import linting, sites

ASKED = questions.read(repository.HOME / "questions.yml")
BY_HAND = 150
"""How many lines of YAML a site may need that somebody has to write, without locks."""

INSTALLED = ("cpu overlay", "cpu conda", "cuda overlay", "cuda conda", "source")
SYSTEMS = (*registry.SYSTEMS, "none")
MODULES = ("lmod", "environment-modules", "none")


def covering():
    """Sets of answers in which each two of batch system, module system, PyTorch and its base meet."""
    for installed, batch in itertools.product(INSTALLED, SYSTEMS):
        number = INSTALLED.index(installed) + SYSTEMS.index(batch)
        pytorch, _space, base = installed.partition(" ")
        modules = MODULES[number % 3]
        found = {"site": "examplesite", "pytorch": pytorch, "batch": batch, "modules": modules}
        found.update({"base": base} if base else {})
        if pytorch != "source" and number % 2:
            found["horovod"] = "yes"
        if pytorch != "cpu":
            found.update(gpu_model="*A100*", fabric=("infiniband", "cxi", "net")[number % 3])
        if modules != "none":
            found.update(toolchain="gcc/13.2 openmpi/5.0 python/3.12", module_path="/sw/modulefiles")
        if batch != "none":
            found.update(account=("yes", "no")[number % 2], partition="gpu")
        if number % 2:
            found.update(connection="ssh", hostname_globs="login*", marker_paths="/sw", proxy="http://proxy:3128")
        if batch == "slurm" and pytorch == "cuda" and number % 2:
            found["gres"] = "gpu:a100"
        yield found
    for path in sorted((repository.HOME / "like").iterdir()):
        for modules in MODULES[:2]:
            yield {**interview.from_file(path), "site": "examplesite", "modules": modules}


CASES = list(covering())
TITLES = [
    "-".join([case["batch"], case["modules"], case["pytorch"], case.get("base", ""), str(number)])
    for number, case in enumerate(CASES)]


def written(directory, given):
    answers = interview.collect(ASKED, given, repository.further_context)
    repository.write(directory, repository.render(answers))
    return directory


@pytest.fixture(scope="module")
def repositories(tmp_path_factory):
    return [written(tmp_path_factory.mktemp("site") / "new", case) for case in CASES]


@pytest.fixture(scope="module")
def linted(repositories, ansible_environment):
    clean = {name: value for name, value in ansible_environment.items() if not name.startswith("TORCHSTACK_")}
    return linting.lint_all([{"sources": [path / "inventory" / "hosts.yml"]} for path in repositories], clean)


def test_each_two_choices_meet_in_some_case():
    chosen = [(case["batch"], case["modules"], " ".join([case["pytorch"], case.get("base", "")]).strip())
              for case in CASES]
    for (first, some), (second, others) in itertools.combinations(enumerate((SYSTEMS, MODULES, INSTALLED)), 2):
        assert {(case[first], case[second]) for case in chosen} == set(itertools.product(some, others))


@pytest.mark.parametrize("number", range(len(CASES)), ids=TITLES)
def test_what_is_written_lints_clean(number, linted):
    assert linted[number]["problems"] == [] and linted[number]["warnings"] == []
    (release, *others) = sorted(linted[number]["releases"], key=len)
    assert others == [] or others == [release + "-rehearsal"]


def of_hand(path):
    """The lines of a file of YAML but for comments and for the names of locks, which nobody writes by hand."""
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return [line for line in lines if "sha256:" not in line and not line.endswith(".txt")]


@pytest.mark.parametrize("number", range(len(CASES)), ids=TITLES)
def test_a_site_without_its_locks_has_few_lines(number, repositories):
    """What its rehearsal needs besides is not counted: nobody writes it by hand."""
    files = [
        path for place in ("inventory", "releases") for path in (repositories[number] / place).rglob("*.yml")
        if not path.stem.endswith("-rehearsal") and not path.parent.name.endswith("-rehearsal")]
    # Hosts, variables, the release, and its rules unless they are PyTorch's from source.
    assert len(files) in (3, 4)
    assert sum(len(of_hand(path)) for path in files) <= BY_HAND
    assert len(CASES[number]) <= len(ASKED) <= 40


def playbook(directory, name, *words, environment):
    """Run a playbook in a repository with its own ansible.cfg, as its operator does."""
    program = os.path.join(os.path.dirname(sys.executable), "ansible-playbook")
    environment = {**environment, "ANSIBLE_CONFIG": str(directory / "ansible.cfg")}
    environment.pop("ANSIBLE_PYTHON_INTERPRETER")
    done = subprocess.run(
        [program, name, *words], cwd=directory, env=environment, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, " ".join(done.stdout.split())


def test_a_mistake_in_it_is_found_from_there_with_its_file_and_line(tmp_path, ansible_environment):
    directory = written(tmp_path / "new", {"site": "examplesite"})
    path = directory / "inventory" / "group_vars" / "examplesite.yml"
    path.write_text(path.read_text().replace("torchstack_jobs:", "torchstack_job:"))
    line = next(number for number, text in enumerate(path.read_text().splitlines(), 1) if "torchstack_job:" in text)
    code, said = playbook(directory, "hpcml.torchstack.lint", environment=ansible_environment)
    assert code != 0
    place = "inventory/group_vars/examplesite.yml:%d: " % line
    assert place + "In the inventory, torchstack_job: there is no such variable; did you mean torchstack_jobs?" in said


def test_a_series_of_the_sites_own_lints_clean_and_a_missing_one_is_told_with_those_that_are(
        tmp_path, ansible_environment):
    directory = written(tmp_path / "new", {"site": "examplesite", "batch": "none", "modules": "none", "horovod": "yes"})
    (release,) = (directory / "releases").glob("*.yml")
    release.write_text(release.read_text().replace("series: 0.28.1", "series: ours"))
    case = {"sources": [directory / "inventory" / "hosts.yml"]}
    (problem,) = linting.lint_all([case], ansible_environment)[0]["problems"]
    said = "'horovod.series' is ours, and there are 0.28.1, 0.28.1-cxx20: "
    assert problem["message"].startswith(said) and problem["line"]
    (directory / "series" / "horovod" / "ours").mkdir(parents=True)
    (directory / "series" / "horovod" / "ours" / "0001-a.patch").write_text("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n")
    assert linting.lint_all([case], ansible_environment)[0]["problems"] == []


PATCHES = {"pytorch": "ProcessGroupMPI.cpp", "horovod": "f"}
"""What the site's own series ``ours`` of a role has a patch of."""

BACKEND = """\
  mpi_backend:
    repository: https://github.com/pytorch/pytorch
    tag: v2.13.0
    commit: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
    series: ours
    allow_unverified_series: true
mpi4py:
"""


def test_it_is_planned_to_the_last_step_with_its_own_patches_and_nothing_is_done(tmp_path, ansible_environment):
    root = tmp_path / "releases-of-examplesite"
    answers = {"site": "examplesite", "batch": "none", "modules": "none", "release": "2026-12", "root": str(root)}
    directory = written(tmp_path / "new", {**answers, "horovod": "yes"})
    release = directory / "releases" / "2026-12.yml"
    text = release.read_text().replace("series: 0.28.1", "series: ours").replace("\nmpi4py:\n", "\n" + BACKEND)
    release.write_text(text)
    for role, name in PATCHES.items():
        patch = directory / "series" / role / "ours" / ("0001-of-%s.patch" % role)
        patch.parent.mkdir(parents=True)
        patch.write_text("--- a/%s\n+++ b/%s\n@@ -1 +1 @@\n-a\n+b\n" % (name, name))
    code, said = playbook(directory, "playbooks/rollout.yml", "--check", environment=ansible_environment)
    assert code == 0 and "failed=0" in said, said[-3000:]
    assert "PLAY [Roll out a release of examplesite]" in said
    assert "Plan for release 2026-12 of site examplesite: PyTorch 2.13.0 for CPUs" in said
    assert "mpi4py-install would run" in said and "horovod-install would run" in said and not root.exists()
    # What a copy would bring is named by its item, or not at all where it is a directory.
    assert "changed: [examplesite-login] => (item=0001-of-pytorch.patch)" in said


def test_on_another_machine_the_plan_is_one_sentence_that_names_lint(tmp_path, ansible_environment):
    directory = written(tmp_path / "new", {"site": "examplesite", "marker_paths": "/nowhere/of/examplesite"})
    code, said = playbook(directory, "hpcml.torchstack.rollout", "--check", environment=ansible_environment)
    assert code == 2 and "is not the site examplesite: it has no /nowhere/of/examplesite." in said
    assert "Run it there; the playbook lint looks for mistakes in the site's data on any machine." in said


def test_its_data_are_read_by_the_names_that_the_collection_has():
    text = pathlib.Path(repository.HOME / "repository" / "group_vars.yml.j2").read_text()
    named = {line.partition(":")[0] for line in text.splitlines() if line.partition(":")[0].isidentifier()}
    known = {*sites.SPECIFIED["site"]["options"], *sites.SPECIFIED["main"]["options"]}
    assert named and {name for name in named if name.startswith(("torchstack_", "release_"))} - known == {
        "torchstack_jobs", "torchstack_ranks", "torchstack_acceptance"}
    hosts = yaml.safe_load((repository.HOME / "files.yml").read_text())["inventory/hosts.yml"]
    assert hosts["template"] == "hosts.yml.j2"
