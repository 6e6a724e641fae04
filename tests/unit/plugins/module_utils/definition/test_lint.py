# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""All that is wrong with plain data at once; tests/roles/test_site_lint.py goes through every kind of mistake."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import lint, lock_lines
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.lint_places import Places
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file as files

TOP = pathlib.Path(lint.__file__).parents[3]
RELEASE = TOP / "inventories" / "local" / "releases" / "2026-11-20.yml"
SITE = {
    "root": "/soft", "release": "2026-11-20", "site": "mine", "file": "2026-11-20.yml", "python": "", "account": "",
    "builds": "", "mirror": "", "proxy": {}, "conda_channels": [], "conda_mirrors": {}, "runtime_settings": [],
    "module_init": "", "module_path": [], "module_system": "auto",
    "compilers": [], "jobs": {}, "ranks": {}, "acceptance": {}, "images": "",
    "container": {}, "topology": {},
}


@pytest.fixture(scope="module")
def content():
    return files.read(RELEASE).content


def problems(content, name="2026-11-20", others=(), own_series="", **site):
    release = lint.Release("r.yml", name, content, lock_lines.Places({}, {"horovod": 7, "module": 9}))
    asked = lint.Asked(
        {**SITE, **site}, files.specified(), {}, {}, Places({"torchstack_jobs": 3}, {}, "s.yml", {}), [release], others,
        str(TOP / "roles"), own_series)
    return [problem.text for problem in lint.problems(asked)]


def test_a_release_and_a_site_without_mistakes_have_no_problems(content):
    assert problems(content) == []


def test_mistakes_of_site_and_release_are_told_together(content):
    found = problems(dict(content, horovd={}), jobs={"launcher": "slrum"})
    assert found == [
        "s.yml:3: 'torchstack_jobs.launcher' in the data of site mine is 'slrum', which is none of local, slurm, pbs, "
        "flux; did you mean 'slurm'?", "r.yml: Unknown key 'horovd'; did you mean 'horovod'?"]


def test_what_goes_with_the_site_is_told_of_the_release_once(content):
    setting = {"name": "A_B", "value": "1", "reason": "why"}
    module = {**content.get("module", {}), "setenv": {"A_B": "2"}}
    (found,) = problems(dict(content, module=module), runtime_settings=[setting])
    assert found == "r.yml:9: module.setenv and the run-time settings both set A_B; keep it in one of them."
    (found,) = problems(content, runtime_settings=[dict(setting, reason="")])
    assert "Run-time setting A_B has an empty reason" in found


def test_another_name_and_a_missing_series_are_told(content):
    (found,) = problems(content, name="2026-11-22")
    assert found.endswith("'release' is 2026-11-20, and the name of the file says 2026-11-22; they must be the same.")
    (found,) = problems(dict(content, horovod=dict(content["horovod"], series="0.0")))
    assert "'horovod.series' is 0.0, and there are 0.28.1, 0.28.1-cxx20: " in found


def test_series_of_the_sites_own_are_known_and_a_bad_patch_of_theirs_is_told(content, tmp_path):
    ours = dict(content, horovod=dict(content["horovod"], series="ours"))
    (tmp_path / "horovod" / "ours").mkdir(parents=True)
    patch = tmp_path / "horovod" / "ours" / "0001-ours.patch"
    patch.write_text("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n")
    assert problems(ours, own_series=str(tmp_path)) == []
    patch.write_text("no patch\n")
    assert problems(ours, own_series=str(tmp_path)) == [
        "r.yml: 0001-ours.patch, line 1: the file holds no unified diff."]
    (found,) = problems(dict(content, horovod=dict(content["horovod"], series="0.0")), own_series=str(tmp_path))
    assert found.startswith("r.yml:7: 'horovod.series' is 0.0, and there are 0.28.1, 0.28.1-cxx20, ours: ")


def test_a_step_of_a_release_that_is_not_judged_is_known(content):
    jobs = {"launcher": "slurm", "steps": {"nccl": {"cores": 4}}}
    assert any("no release of the site has a step 'nccl'" in text for text in problems(content, jobs=jobs))
    assert problems(content, jobs=jobs, others=[{"release": "other", "nccl": {}}]) == []


def test_what_could_not_be_filled_in_is_told_no_second_time(content):
    jobs = {"launcher": "slurm", "options": {"cores": lint.NOT_FILLED, "partition": lint.NOT_FILLED}}
    assert problems(content, jobs=jobs) == []


def test_directives_of_which_nothing_is_known_are_doubted():
    jobs = {"launcher": "slurm", "options": {"directives": ["--gres=gpu:1", "--mine"]}, "steps": {"x": {
        "directives": ["--gres=gpu:1", "--mine", "--own=1"]}}}
    assert [text.split("'")[1] for text in lint.doubts({**SITE, "jobs": jobs})] == ["--mine", "--own=1"]
    assert lint.doubts({**SITE, "jobs": "text"}) == [] and lint.doubts({**SITE, "jobs": {"launcher": "local"}}) == []


def test_a_step_that_drops_directives_of_the_site_is_told_and_one_that_says_none_is_not():
    jobs = {"launcher": "slurm", "options": {"directives": ["--licenses=home", "--comment=x"]}, "steps": {
        "nccl": {"directives": ["--constraint=a100", "--comment=x"]}, "pytorch": {"directives": []},
        "horovod": {"directives": ["--comment=x", "--licenses=home", "--tmp=1"]}}}
    (sentence,) = lint.doubts({**SITE, "jobs": jobs})
    assert sentence.startswith("'torchstack_jobs.steps.nccl.directives' replaces the site's as a whole, and leaves")
    assert sentence.endswith("leaves out --licenses=home; repeat what the step needs of it.")
