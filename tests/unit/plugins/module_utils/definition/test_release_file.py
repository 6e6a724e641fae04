# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A release file as what it asks for: digests that stay, problems in one list; also the tests of patterns."""

from __future__ import annotations

import datetime
import hashlib
import json
import pathlib

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.canonical import digest_of
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import (
    base,
    container,
    context,
    recorded,
    release_file,
    site_data,
)
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file as files

CHECKOUT = pathlib.Path(__file__).parents[5]
KEYS = files.specified()["release_file"]["options"]
# Of the release files of the sites. Whoever changes one makes another release, and writes its new digests there.
RECORDED = json.loads((CHECKOUT / "tests" / "fixtures" / "definition" / "digests.json").read_text())
PATCH = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+%s\n"
SMALL = {
    "release": {"type": "str", "required": True},
    "base": {"type": "dict", "options": {"kind": {"type": "str", "default": "conda"}}},
    "known_problems": {"type": "list", "elements": "dict", "options": {"problem": {"type": "str", "required": True}}},
}
WRITTEN = {"release": "2026-11-20", "base": {"kind": "conda"}}
NOTHING = {"content": None, "frozen": None, "freezing": None, "thawed": None, "retired": None, "subject": None}


@pytest.fixture(params=sorted(RECORDED))
def known(request):
    """A release file of a site, with its name."""
    site, _slash, release = request.param.partition("/")
    return request.param, CHECKOUT / "inventories" / site / "releases" / (release + ".yml")


def test_a_release_file_asks_for_what_it_asked_for_when_it_was_written(known):
    name, path = known
    content, lines = files.read(path)[:2]
    assert release_file.problems(content, KEYS, path.name, lines) == []
    found = release_file.define(content, KEYS, str(files.ROLES))
    assert {"digest": found.digest, "definition": digest_of(found.definition)} == {
        key: RECORDED[name][key] for key in ("digest", "definition")}


def test_what_a_rollout_writes_of_it_is_what_it_wrote(known):
    """The text that is compared with the file of an opened release: another one would be a change."""
    name, path = known
    found = release_file.define(files.read(path)[0], KEYS, str(files.ROLES))
    image = "%s  %s" % ("a" * 64, (found.definition["base"].get("image") or {}).get("file", ""))
    found = recorded.compare(found, {}, NOTHING, image)
    resolved = context.resolve_release(
        site(path), files.specified(), found.definition, found.series, found.digest, MODULES, PREFLIGHT, 7)
    text = json.dumps(resolved)
    assert hashlib.sha256(text.encode()).hexdigest() == RECORDED[name]["resolved"]


MODULES = {
    "purged": {"loaded": [], "environment": {}, "set": {}, "unset": []},
    "loaded": {"environment": {}, "set": {
        name: "/opt/" + name for name in ("CRAY_MPICH_DIR", "CUDA_HOME", "MKLROOT", "NCAR_ROOT_CUDNN", "NVHPC_ROOT")
    }, "unset": []},
}
PREFLIGHT = {
    "python": {"executable": "/usr/bin/python3", "version": "3.12.3", "minor": "3.12", "tag": "cp312",
               "platform": "linux_x86_64", "externally_managed": True},
    "compilers": {"CC": "cc", "CXX": "c++"},
    "facts": {"compilers": {"CC": {"banner": "cc 12"}, "CXX": {}}},
    "mpi": {"provider": "named", "prefix": "/opt/mpich", "bin": "/opt/mpich/bin", "cc": "mpicc"},
}


def site(path):
    """A site's data."""
    return site_data.Site(
        root="/appl/stacks", release=path.stem, site="mysite", file=path.name, python="python3", account="-", builds="",
        mirror="", proxy={}, conda_channels=["conda-forge"], conda_mirrors={},
        runtime_settings=[{"name": "OMP_PLACES", "value": "cores", "reason": "Ranks share nodes."}], module_init="",
        module_path=[], compilers=[], jobs={}, ranks={}, acceptance={}, images="/appl/images",
        container={"binds": ["/appl"]}, topology={})


def test_all_that_is_wrong_is_told_at_once():
    content = {"release": "a b", "relase": "x", "base": {"kind": "conda", "python": "3.11", "specs": ["pip"]},
               "horovod": {"nccl": "wheel"}, "toolchain": {"modules": ["a b"]}, "packages": [{"name": "a"}]}
    found = release_file.problems(content, KEYS, "a.yml")
    for words in ("Unknown key 'relase'", "'release' in a.yml is the text 'a b'; it must be letters", "no python",
                  "'horovod.nccl' in a.yml means nothing", "'toolchain.modules'", "Package 'a' in a.yml has no origin"):
        assert [sentence for sentence in found if words in sentence], words


def test_every_pattern_is_of_a_key_of_the_schema_and_of_one_place_only():
    rows = [path for row in release_file.components.COMPONENTS for path in row.patterns]
    assert not set(rows) & set(release_file.patterns.RELEASE)
    assert release_file.problems({}, KEYS), "the schema refuses a pattern for a key that it does not have"


def test_a_known_problem_that_comes_up_after_the_freeze_leaves_the_digest_as_it_is(tmp_path):
    found = {
        release_file.define(dict(WRITTEN, **more), SMALL, str(tmp_path)).digest
        for more in ({}, {"known_problems": []}, {"known_problems": [{"problem": "It hangs"}]})
    }
    assert len(found) == 1
    assert release_file.define(dict(WRITTEN, release="2026-11-21"), SMALL, str(tmp_path)).digest not in found


def test_known_problems_are_checked_without_the_rest():
    assert release_file.known_problem_problems({"anything": 1}, SMALL) == []
    (found,) = release_file.known_problem_problems({"known_problems": [{}]}, SMALL, "a.yml")
    assert "'known_problems[0].problem' is missing in a.yml" in found


def test_a_wrong_schema_and_data_that_are_not_plain_are_errors(tmp_path):
    with pytest.raises(ValueError, match="known are str"):
        release_file.resolve({}, {"a": {"type": "text"}})
    with pytest.raises(StackError, match="digested"):
        release_file.define({"release": datetime.date(2026, 11, 20)}, SMALL, str(tmp_path))


@pytest.fixture()
def roles(tmp_path):
    series = tmp_path / "horovod" / "files" / "series" / "0.28.1"
    series.mkdir(parents=True)
    (series / "0001-first.patch").write_text(PATCH % "b")
    return tmp_path


def test_a_changed_patch_changes_the_digest_of_its_component(roles):
    definition = {"release": "r", "horovod": {"series": "0.28.1"}, "mpi4py": {"version": "4"}}
    before = release_file.series_digests(definition, str(roles))
    (roles / "horovod" / "files" / "series" / "0.28.1" / "0001-first.patch").write_text(PATCH % "c")
    after = release_file.series_digests(definition, str(roles))
    assert list(before) == list(after) == ["horovod"]
    assert before != after


def test_a_series_of_the_sites_own_is_found_first_and_has_the_digest_of_its_patches(roles, tmp_path):
    definition, own = {"horovod": {"series": "0.28.1"}}, tmp_path / "own"
    before = release_file.series_digests(definition, str(roles), str(own))
    assert before == release_file.series_digests(definition, str(roles))
    (own / "horovod" / "0.28.1").mkdir(parents=True)
    (own / "horovod" / "0.28.1" / "0001-ours.patch").write_text(PATCH % "ours")
    (own / "horovod" / "ours").symlink_to("0.28.1")
    after = release_file.series_digests(definition, str(roles), str(own))
    assert before != after == release_file.series_digests({"horovod": {"series": "ours"}}, str(roles), str(own))
    assert release_file.series_directories(definition, str(roles), str(own)) == {
        "horovod": str(own / "horovod" / "0.28.1")}


def test_a_series_that_is_not_there_is_named(roles):
    with pytest.raises(StackError, match=r"files/series/9\.9"):
        release_file.series_digests({"horovod": {"series": "9.9"}}, str(roles))


def test_the_kinds_of_base_are_those_of_the_schema():
    kinds = KEYS["base"]["options"]["kind"]["choices"]
    assert sorted(kinds) == sorted([base.CONDA, base.OVERLAY, container.KIND])
