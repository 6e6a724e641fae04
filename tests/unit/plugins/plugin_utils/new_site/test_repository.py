# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What is written: every file, nothing over another one, and a mark where nobody said what is true."""

from __future__ import annotations

import json

import pytest
import yaml
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.new_site import interview, questions, repository
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.new_site.questions import AnswerError

ASKED = questions.read(repository.HOME / "questions.yml")
VARIABLES = "inventory/group_vars/examplesite.yml"
REHEARSAL = "rehearsal/group_vars/examplesite.yml"


def files(**given):
    return repository.render(interview.collect(ASKED, {"site": "examplesite", **given}, repository.further_context))


def test_the_repository_has_the_documented_files():
    page = (repository.TOP / "docs/how-to/your-site-in-your-repository.md").read_text()
    found = files(release="2026-12")
    locks = {name for name in found if name.endswith(".txt")}
    assert {name.rpartition("/")[0] for name in locks} == {"releases/2026-12", "releases/2026-12-rehearsal"}
    assert set(found) - locks == {
        "ansible.cfg", "requirements.yml", "README.md", ".gitignore", ".github/workflows/site.yml",
        "inventory/hosts.yml", VARIABLES, "releases/2026-12.yml", "series/README.md", "playbooks/rollout.yml",
        "rehearsal/hosts.yml", REHEARSAL, "releases/2026-12-rehearsal.yml", "releases/2026-12/verification.yml",
        "releases/2026-12-rehearsal/verification.yml"}
    assert found["releases/2026-12.yml"].count("\n") <= 80
    for name in {*set(found) - locks, "releases/2026-12/base.txt"}:
        assert "`%s`" % name.replace("examplesite", "<site>").replace("2026-12", "<release>") in page, name


def test_every_file_of_yaml_is_yaml_and_the_readme_has_a_dozen_lines():
    found = files()
    for name, text in found.items():
        if name.endswith(".yml"):
            assert text.startswith("---\n") and yaml.safe_load(text), name
        assert text.endswith("\n") and not text.endswith("\n\n") and "\n\n\n" not in text, name
    assert len(found["README.md"].splitlines()) <= 12


def test_what_somebody_said_is_not_marked_and_what_is_a_default_is():
    marked, said = files(), files(root="/sw/torchstack", cores="64")
    for line in ("torchstack_root", "    cores:"):
        (before,) = [text for text in marked[VARIABLES].splitlines() if text.startswith(line)][:1]
        (after,) = [text for text in said[VARIABLES].splitlines() if text.startswith(line)][:1]
        assert before.endswith("# unverified") and "unverified" not in after
    assert "release_expect: {}  # unverified" in marked[VARIABLES]


def test_only_the_module_system_that_users_have_is_tried():
    assert "torchstack_module_system: environment-modules" in files(modules="environment-modules")[VARIABLES]
    assert "torchstack_module_system: lmod" in files(modules="lmod")[VARIABLES]
    assert "modulefile_" not in files(modules="none")[VARIABLES]


def test_a_release_over_modules_has_a_family_that_none_of_them_can_have():
    release = yaml.safe_load(files(toolchain="gcc/13 python/3.12")["releases/pytorch-2.13.0.yml"])
    assert release["module"] == {"depends_on": ["gcc/13", "python/3.12"], "family": "pytorch"}


def test_the_build_of_pytorch_has_four_times_the_time():
    jobs = yaml.safe_load(files(pytorch="source", walltime="02:30:00")[VARIABLES])["torchstack_jobs"]
    assert jobs["steps"]["pytorch"]["walltime"] == "10:00:00"


def test_the_collection_is_asked_for_by_its_version_or_by_its_tarball():
    def wanted(**given):
        return yaml.safe_load(files(**given)["requirements.yml"])["collections"]

    assert wanted() == [{"name": "hpcml.torchstack", "version": repository.collection_version()}]
    assert wanted(collection="/soft/t.tar.gz") == [{"name": "/soft/t.tar.gz", "type": "file"}]
    assert wanted(collection="https://example.org/t.tar.gz") == [
        {"name": "https://example.org/t.tar.gz", "type": "url"}]


def test_an_installed_collection_knows_its_version(monkeypatch, tmp_path):
    monkeypatch.setattr(repository, "TOP", tmp_path)
    (tmp_path / "MANIFEST.json").write_text(json.dumps({"collection_info": {"version": "9.8.7"}}))
    assert repository.collection_version() == "9.8.7"


def test_a_plan_needs_a_runner_on_the_machine_and_a_fork_never_gets_it():
    jobs = yaml.safe_load(files()[".github/workflows/site.yml"])["jobs"]
    assert jobs["lint"]["runs-on"] == "ubuntu-latest"
    assert jobs["lint"]["steps"][-1] == {"run": "ansible-playbook hpcml.torchstack.lint"}
    assert jobs["plan"]["runs-on"] == "${{ vars.TORCHSTACK_RUNNER }}"
    assert jobs["plan"]["if"] == "vars.TORCHSTACK_RUNNER != '' && github.event_name == 'push'"


def test_nothing_is_overwritten_and_a_fresh_clone_is_no_hindrance(tmp_path):
    (tmp_path / "new" / ".git").mkdir(parents=True)
    repository.write(tmp_path / "new", {"a/b": "text\n"})
    assert (tmp_path / "new" / "a" / "b").read_text() == "text\n"
    with pytest.raises(AnswerError, match="has a in it, and nothing is overwritten: name a new directory"):
        repository.write(tmp_path / "new", {"c": ""})
    (tmp_path / "file").touch()
    with pytest.raises(AnswerError, match="is no directory"):
        repository.write(tmp_path / "file", {"c": ""})
    assert not (tmp_path / "new" / "c").exists()


def test_where_nothing_can_be_written_one_sentence_says_so(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(AnswerError, match=r"file.* cannot be written: Not a directory"):
        repository.write(tmp_path / "file" / "new", {"a": ""})


def rehearsal_of(**given):
    found = files(release="2026-12", **given)
    return found, yaml.safe_load(found[REHEARSAL])


def test_a_rehearsal_has_the_modules_of_the_toolchain_at_the_site_s_own_places():
    found, data = rehearsal_of(
        toolchain="gcc/12.3.0 OpenMPI/4.1.6 site-tools", modules="environment-modules", module_path="/sw/modulefiles",
        mpi="${EBROOTOPENMPI}")
    dress = data["rehearsal_dress"]
    assert dress["syntax"] == "tcl" and dress["parts"][0]["sets"] == ["/sw/modulefiles"]
    assert dress["modules"] == {"/sw/modulefiles": {
        "gcc/12.3.0": None, "OpenMPI/4.1.6": {"like": "openmpi", "set": {"EBROOTOPENMPI": "{place}"}},
        "site-tools/1.0": {"empty": True}}}
    assert "mpirun" in data["torchstack_ranks"]["launcher"]
    # It has nothing that containers lack.
    assert "releases/2026-12-rehearsal.yml" not in found and "'2026-12'" in data["torchstack_release"]


@pytest.mark.parametrize("lacking", [
    {"pytorch": "cuda", "toolchain": "openmpi/4.1"}, {"pytorch": "source", "toolchain": "openmpi/4.1"},
    {"base": "conda", "toolchain": "openmpi/4.1"}, {"toolchain": ""},
])
def test_a_release_with_what_no_container_has_is_rehearsed_without_it(lacking):
    found, data = rehearsal_of(**lacking)
    release = yaml.safe_load(found["releases/2026-12-rehearsal.yml"])
    assert "cpu" in release["pytorch"] and release["base"]["kind"] == "python_overlay"
    assert "cuda" not in release and release["release"] == "2026-12-rehearsal"
    assert release.get("toolchain", {}).get("modules", []) == lacking["toolchain"].split()
    # Where no module brings an MPI, a wheel does.
    assert ("lock" in release["mpi"]) is (lacking["toolchain"] == "")
    assert "'2026-12-rehearsal'" in data["torchstack_release"]


def test_without_a_batch_system_there_is_no_rehearsal():
    assert not [name for name in files(batch="none") if "rehearsal" in name]
