# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The three modules through a real Ansible run: check, do, check again, do again; and what they refuse."""

from __future__ import annotations

import json
import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.module_system import EM, LMOD
from support.published_release import change, stage

RELEASE = "2026-11-20"


@pytest.fixture()
def place(tmp_path):
    """A root with nothing in it, and the arguments that every module takes."""
    return {"root": str(tmp_path / "root"), "release": RELEASE}


def description(place, **changes):
    prefix = os.path.join(place["root"], place["release"])
    return {
        "name": "torchstack", "version": place["release"], "prefix": prefix,
        "prepend": [{"name": "PATH", "values": [prefix + "/base/bin"]}],
        "setenv": {"PYTHONUSERBASE": "${HOME}/.local/torchstack/x/" + place["release"], "NCCL_NET": "AWS Libfabric"},
        "unsetenv": ["PYTHONSTARTUP"], **changes,
    }


@pytest.fixture()
def staged(run_module, place):
    """Stage and verify a release with bash alone, with an acceptance; return the arguments of its place."""

    def make(release=RELEASE, accepted=True):
        here = {**place, "release": release}
        result = run_module("modulefile", {**here, "description": description(here)})
        assert not result.failed, result.console
        result = run_module("modulefile_verify", {**here, "shells": ["bash"]})
        assert not result.failed, result.console
        if accepted:
            path = os.path.join(here["root"], ".torchstack", release, "acceptance.json")
            with open(path, "w", encoding="utf-8") as stream:
                json.dump({"passed": True}, stream)
        return here

    return make


def listing(root):
    found = []
    for directory, _directories, names in os.walk(root):
        found.extend(os.path.join(directory, name) for name in names)
    return sorted(found)


def test_staging_goes_through_check_and_do_twice(run_module, place):
    arguments = {**place, "description": description(place)}
    planned = run_module("modulefile", arguments, check=True, diff=True)
    assert planned.changed and len(planned["written"]) == 3 and listing(place["root"]) == []
    assert '+replace NCCL_NET "AWS Libfabric"' in planned.console
    done = run_module("modulefile", arguments)
    assert done.changed and sorted(done["written"]) == sorted(planned["written"]) == sorted(done["files"].values())
    assert all(os.stat(path).st_mode & 0o777 == 0o644 for path in done["written"])
    assert not run_module("modulefile", arguments, check=True).changed
    assert not run_module("modulefile", arguments).changed


def test_a_further_name_is_staged_verified_published_and_taken_away_with_the_module(run_module, place):
    arguments = {**place, "description": description(place, also_named=["conda"])}
    planned = run_module("modulefile", arguments, check=True)
    assert planned.changed and len(planned["written"]) == 5 and listing(place["root"]) == []
    assert run_module("modulefile", arguments)["written"] == planned["written"]
    assert not run_module("modulefile", arguments, check=True).changed
    verified = run_module("modulefile_verify", {**place, "shells": ["bash"]})
    assert {entry.get("name") for entry in verified["checked"]} == {None, "conda"}
    assert not run_module("modulefile_verify", {**place, "shells": ["bash"]}).changed
    publish = {**place, "visible": True, "default": True, "without_acceptance": "a test"}
    for check, count in ((True, 8), (False, 8), (True, 0), (False, 0)):
        done = run_module("modulefile_publish", publish, check=check)
        assert len(done["actions"]) == count and done.changed == bool(count)
        assert "The same holds for conda/%s." % RELEASE in done["summary"] or check
    reverified = run_module("modulefile_verify", {**place, "shells": ["bash"], "where": "published"})
    assert {entry.get("name") for entry in reverified["checked"]} == {None, "conda"}
    again = run_module("modulefile", {**place, "description": description(place)})
    assert len(again["written"]) == 3
    assert not run_module("modulefile_verify", {**place, "shells": ["bash"]}).failed
    gone = run_module("modulefile_publish", publish)
    assert {action["action"] for action in gone["actions"]} == {"also"}
    assert not [path for path in listing(place["root"] + "/modulefiles") if "/conda/" in path]


@pytest.mark.parametrize("path", ["tcl/conda/" + RELEASE, "lmod/conda/%s.lua" % RELEASE])
def test_a_module_that_the_site_wrote_under_a_further_name_is_refused_in_the_plan(run_module, place, path):
    theirs = os.path.join(place["root"], "modulefiles", path)
    os.makedirs(os.path.dirname(theirs))
    with open(theirs, "w", encoding="utf-8") as stream:
        stream.write("theirs\n")
    before = listing(place["root"])
    for check in (True, False):
        named = {**place, "description": description(place, also_named=["conda"])}
        result = run_module("modulefile", named, check=check)
        assert result.failed and "%s was not written by this collection." % theirs in result["msg"]
        assert listing(place["root"]) == before


def test_a_finished_release_takes_a_further_name_and_keeps_its_own_bytes(run_module, place):
    run_module("modulefile", {**place, "description": description(place)})
    run_module("modulefile_verify", {**place, "shells": ["bash"]})
    published = {**place, "visible": True, "without_acceptance": "a test"}
    run_module("modulefile_publish", published)
    own = os.path.join(place["root"], ".torchstack", RELEASE, "modulefiles", "tcl", "torchstack", RELEASE)
    with open(own, "a", encoding="utf-8") as stream:
        stream.write("# as an older version of the collection wrote it\n")
    run_module("modulefile_verify", {**place, "shells": ["bash"]})
    finished = {**place, "finished": True, "description": description(place, also_named=["conda"])}
    done = run_module("modulefile", finished)
    assert done.changed and own not in done["written"]
    assert not run_module("modulefile", finished).changed
    reverified = run_module("modulefile_verify", {**place, "shells": ["bash"], "where": "published"})
    assert {entry.get("name") for entry in reverified["checked"]} == {None}


def test_a_description_with_faults_changes_nothing_and_names_them_all(run_module, place):
    bad = description(place, setenv={"CFLAGS": "-I/x", "CUDA_HOME": "/opt/cuda"})
    result = run_module("modulefile", {**place, "description": bad})
    assert result.failed and result["failed_step"] == "check the description" and len(result["faults"]) == 2
    assert listing(place["root"]) == []


def test_verification_goes_through_check_and_do_twice(run_module, place):
    first = run_module("modulefile_verify", place, check=True)
    assert first.changed and first["planned_after"] == "modulefile"
    assert run_module("modulefile_verify", place).failed
    run_module("modulefile", {**place, "description": description(place)})
    planned = run_module("modulefile_verify", place, check=True)
    record = os.path.join(place["root"], ".torchstack", RELEASE, "modulefile.json")
    assert planned.changed and not os.path.exists(record)
    done = run_module("modulefile_verify", place)
    assert done.changed and not done.failed and done["record"] == record
    assert all(entry["passed"] for entry in done["checked"])
    assert not run_module("modulefile_verify", place, check=True).changed
    again = run_module("modulefile_verify", place)
    assert not again.changed and again["checked"] == done["checked"]


def test_other_bytes_are_verified_anew(run_module, staged, place):
    staged()
    run_module("modulefile", {**place, "description": description(place, load_message="hello")})
    assert run_module("modulefile_verify", {**place, "shells": ["bash"]}).changed


def test_s33_verification_records_the_image_that_was_there_and_runs_anew_where_another_one_is(
    run_module, place, tmp_path, some_module_system
):
    images = [tmp_path / "copy.sif", tmp_path / "site.sif"]
    choice = {"variables": ["SIF"], "candidates": [str(path) for path in images], "missing": "There is no image."}
    text = description(place, external=[str(tmp_path)], first_file=[choice])
    run_module("modulefile", {**place, "description": text})
    arguments = {**place, "shells": ["bash"]}
    result = run_module("modulefile_verify", arguments)
    assert result.failed and "There is no image." in result["msg"]
    for image in reversed(images):
        image.write_text("")
        result = run_module("modulefile_verify", arguments)
        assert result.changed and result["chosen"] == {"SIF": str(image)}, result.console
        with open(result["record"], encoding="utf-8") as stream:
            assert json.load(stream)["chosen"] == {"SIF": str(image)}
    assert not run_module("modulefile_verify", arguments).changed


@pytest.mark.parametrize(("one", "own", "other"), [(LMOD, "lmod", "tcl"), (EM, "tcl", "lmod")])
def test_a_site_with_one_module_system_never_sees_a_file_of_the_other(
    run_module, place, kinds_at_hand, one, own, other
):
    stage_of = os.path.join(place["root"], ".torchstack", RELEASE, "modulefiles")
    arguments = {**place, "description": description(place)}
    assert not run_module("modulefile", arguments).failed
    assert sorted(os.listdir(stage_of)) == ["description.json", "lmod", "tcl"]
    told = {"module_system": one}
    planned = run_module("modulefile", {**arguments, **told}, check=True)
    assert planned.changed and [path.startswith(os.path.join(stage_of, other)) for path in planned["written"]] == [True]
    assert run_module("modulefile", {**arguments, **told}).changed
    assert sorted(os.listdir(stage_of)) == sorted(["description.json", own])
    assert not run_module("modulefile", {**arguments, **told}).changed
    done = run_module("modulefile_verify", {**place, **told, "shells": ["bash"]})
    assert not done.failed, done.console
    assert {entry["syntax"] for entry in [*done["checked"], *done["not_checked"]]} == {own}
    publish = {**place, **told, "visible": True, "default": True, "without_acceptance": "x"}
    done = run_module("modulefile_publish", publish)
    assert not done.failed, done.console
    assert done["states"] == {own: "visible"} and sorted(os.listdir(place["root"] + "/modulefiles")) == [own]
    assert other not in "".join(done["summary"])
    # Where the machine lacks that system, it is said that nobody has loaded the module.
    assert done["not_verified"] == ([] if one in kinds_at_hand else [own])
    assert not run_module("modulefile_publish", publish).changed


@pytest.mark.parametrize("one", [LMOD, EM])
def test_a_finished_release_stays_as_it_is_when_the_site_says_later_what_users_have(run_module, staged, place, one):
    staged()
    path = os.path.join(place["root"], ".torchstack", RELEASE, "frozen.json")
    with open(path, "w", encoding="utf-8") as stream:
        json.dump({"digest": "sha256:1"}, stream)
    publish = {**place, "visible": True, "default": True}
    assert run_module("modulefile_publish", publish).changed
    before = listing(place["root"])
    told = {"module_system": one}
    for module, arguments in (
        ("modulefile", {**place, "description": description(place)}),
        ("modulefile_verify", {**place, "shells": ["bash"]}),
        ("modulefile_publish", publish),
    ):
        result = run_module(module, {**arguments, **told})
        assert not result.failed and not result.changed, (module, result.console)
    assert listing(place["root"]) == before


def test_a_modulefile_that_does_not_load_is_recorded_and_not_published(run_module, place, system):
    key = "modulecmd_command" if system.kind == EM else "lmod_command"
    told = {"module_system": system.kind}
    run_module("modulefile", {**place, **told, "description": description(place, depends_on=["not-there/1"])})
    arguments = {**place, "shells": ["bash"], key: system.command, "module_system": system.kind}
    result = run_module("modulefile_verify", arguments)
    assert result["failed_step"] == "load and unload the modulefile" and "not-there" in result["msg"]
    with open(os.path.join(place["root"], ".torchstack", RELEASE, "modulefile.json"), encoding="utf-8") as stream:
        assert json.load(stream)["passed"] is False
    result = run_module("modulefile_publish", {**place, "visible": True, "without_acceptance": "a test"})
    assert result.failed and "failed its verification" in result["msg"]


def test_publishing_goes_through_check_and_do_twice(run_module, staged):
    here = staged()
    arguments = {**here, "visible": True, "default": True}
    planned = run_module("modulefile_publish", arguments, check=True, diff=True)
    assert planned.changed and not os.path.exists(os.path.join(here["root"], "modulefiles"))
    assert '+set ModulesVersion "2026-11-20"' in planned.console
    done = run_module("modulefile_publish", arguments)
    assert done.changed and done["actions"] == planned["actions"]
    assert [action["action"] for action in done["actions"]] == ["show", "show", "default", "default"]
    assert not run_module("modulefile_publish", arguments, check=True).changed
    assert not run_module("modulefile_publish", arguments).changed


def test_a_plan_before_the_acceptance_says_that_it_comes_first(run_module, staged):
    here = staged(accepted=False)
    planned = run_module("modulefile_publish", {**here, "visible": True}, check=True)
    assert planned.changed and planned["planned_after"] == "acceptance"
    result = run_module("modulefile_publish", {**here, "visible": True})
    assert result.failed and "has not been accepted" in result["msg"]
    assert not os.path.exists(os.path.join(here["root"], "modulefiles"))


def test_s10_publish_move_the_default_and_roll_back(run_module, staged):
    first, second = staged("1"), staged("2")
    run_module("modulefile_publish", {**first, "visible": True, "default": True})
    moved = run_module("modulefile_publish", {**second, "visible": True, "default": True})
    assert moved["previous_default"] == {"tcl": "1", "lmod": "1"}
    back = run_module("modulefile_publish", {**second, "state": "rolled_back"})
    assert back.changed and {action["version"] for action in back["actions"]} == {"1"}
    hidden = run_module("modulefile_publish", {**second, "state": "withdrawn"})
    assert [action["action"] for action in hidden["actions"]] == ["remove", "remove"]
    assert not run_module("modulefile_publish", {**second, "state": "withdrawn"}).changed


def test_a_rollout_leaves_a_rollback_and_a_newer_default_alone_and_says_so(run_module, place):
    desired = {"root": place["root"], "visible": True, "default": True, "first_only": True}
    planned = run_module("modulefile_publish", {**desired, "release": "1"}, check=True)
    assert planned["planned_after"] == "modulefile" and planned["users_load"] == [
        "Users who load torchstack would get 1: this publishes it for the first time. Before, there was no default."]
    for release in ("1", "2"):
        stage(place["root"], release, frozen_at="2999-01-01T00:00:00Z")
        planned = run_module("modulefile_publish", {**desired, "release": release}, check=True)
        done = run_module("modulefile_publish", {**desired, "release": release})
        assert done.changed and done["default"] == planned["default"] == {"tcl": release, "lmod": release}
        assert planned["users_load"] == [line.replace(" get ", " would get ") for line in done["users_load"]]
    for check in (True, False):
        again = run_module("modulefile_publish", {**desired, "release": "1"}, check=check)
        assert not again.changed and again["users_load"][0].startswith(
            "Users who load torchstack get 2, unchanged: it is newer than torchstack/1.")
    run_module("modulefile_publish", {"root": place["root"], "state": "rolled_back"})
    stage(place["root"], "3", frozen_at="2999-01-01T00:00:00Z")
    for release in ("2", "3"):
        for check in (True, False):
            kept = run_module("modulefile_publish", {**desired, "release": release}, check=check)
            assert kept["default"] == {"tcl": "1", "lmod": "1"}
            assert "get 1, unchanged: the rollback of 2 by " in kept["users_load"][0]
    planned = run_module("modulefile_publish", {**desired, "release": "4"}, check=True)
    assert "get 1, unchanged: the rollback of 2 by " in planned["users_load"][0]
    unasked = run_module("modulefile_publish", {**desired, "release": "3", "visible": False, "default": False})
    assert not unasked.changed and "get 1, unchanged: no other default" in unasked["users_load"][0]


@pytest.fixture()
def root(place):
    """Two releases that users see, the second of which became the default after the first."""
    for release in ("1", "2"):
        stage(place["root"], release)
        change(place["root"], release, default=True)
    return place["root"]


def test_s10_a_rollback_names_no_release_and_the_second_one_says_when(run_module, root):
    arguments = {"root": root, "state": "rolled_back"}
    planned = run_module("modulefile_publish", arguments, check=True, diff=True)
    assert planned.changed and planned["release"] == "2" and planned["default"] == {"tcl": "1", "lmod": "1"}
    assert '+set ModulesVersion "1"' in planned.shown_difference
    back = run_module("modulefile_publish", arguments)
    assert back["actions"] == planned["actions"]
    for check in (True, False):
        again = run_module("modulefile_publish", arguments, check=check)
        assert not again.changed and "was taken back from torchstack/2 at 20" in again["summary"][-1]
        mistyped = run_module("modulefile_publish", {**arguments, "release": "22"}, check=check)
        assert mistyped.failed and "Release 22 has no record" in mistyped["msg"]


def test_a_release_on_its_way_out_goes_through_check_and_do_twice(run_module, root):
    arguments = {
        "root": root, "release": "1", "state": "hidden", "notice": "It goes.", "reason": "https://me:secret99@example.org/"}
    planned = run_module("modulefile_publish", arguments, check=True, diff=True)
    for line in ('if mode() == "load" then LmodMessage("It goes.") end', 'hide_version("torchstack/1")'):
        assert "+" + line in planned.shown_difference
    done = run_module("modulefile_publish", arguments)
    assert done["states"] == planned["states"] == {"tcl": "hidden", "lmod": "hidden"} and done["notice"] == "It goes."
    assert planned.changed and done["actions"] == planned["actions"]
    for check in (True, False):
        assert not run_module("modulefile_publish", arguments, check=check).changed
    left = run_module("modulefile_publish", {"root": root, "release": "1", "visible": True})
    assert not left.changed and "revive brings it back" in " ".join(left.console.split())
    with open(os.path.join(root, ".torchstack", "1", "publish.jsonl"), encoding="utf-8") as stream:
        journal = stream.read()
    assert "example.org" in journal and "secret99" not in journal


def test_the_releases_of_a_root_are_listed_with_what_users_see(run_module, root):
    stage(root, "3")
    with open(os.path.join(root, ".torchstack", "3", "retired.json"), "w", encoding="utf-8") as stream:
        json.dump({"state": "removed"}, stream)
    found = run_module("releases_info", {"root": root})
    assert not found.changed and not found.failed, found.console
    assert [entry["release"] for entry in found["releases"]] == ["1", "2"] and found["removed"] == ["3"]
    assert (found["default"], found["previous_default"]) == ("2", "1")
    assert [entry["is_default"] for entry in found["releases"]] == [False, True]
    refused = run_module("releases_info", {"root": root, "release": "none"})
    assert refused.failed and "is not a frozen release" in refused["msg"]


def test_the_cache_is_renewed_once_for_a_module_tree(run_module, root, tmp_path):
    counted = tmp_path / "counted"
    arguments = {"root": root, "command": ["sh", "-c", "echo >> %s" % counted]}
    for changed in (True, False):
        for check in (True, False):
            result = run_module("module_cache", arguments, check=check, diff=True)
            assert result.changed is changed and bool(result.shown_difference) is changed, result.console
    assert counted.read_text() == "\n" and result["renewed_at"]


def test_s45_a_published_release_is_verified_against_today_s_system(run_module, staged, some_lmod):
    here = staged()
    assert run_module("modulefile_verify", {**here, "where": "published"}).failed
    run_module("modulefile_publish", {**here, "visible": True})
    result = run_module("modulefile_verify", {**here, "where": "published", "shells": ["bash"]})
    assert not result.failed and not result.changed
    path = os.path.join(here["root"], "modulefiles", "lmod", "torchstack", RELEASE + ".lua")
    with open(path, "a", encoding="utf-8") as stream:
        stream.write('setenv("PYTHONSTARTUP", "/x")\n')
    broken = run_module("modulefile_verify", {**here, "where": "published", "shells": ["bash"]})
    assert broken.failed and "PYTHONSTARTUP" in broken["msg"]


def test_a_family_that_is_the_name_of_a_module_further_below_is_the_cause(run_module, place, system, tmp_path):
    if system.kind != EM:
        pytest.skip("Lmod keeps families and names of modules apart")
    for name, text in (("python/3.11", ""), ("mpi/4.1", "module load python/3.11\n")):
        path = tmp_path / "below" / name
        path.parent.mkdir(parents=True)
        path.write_text("#%Module1.0\n" + text)
    told = {"module_system": EM}
    stack = description(place, family="python", depends_on=["mpi/4.1"])
    assert not run_module("modulefile", {**place, **told, "description": stack}).failed
    arguments = {
        **place, **told, "shells": ["bash"], "modulecmd_command": system.command,
        "module_path": [str(tmp_path / "below")]}
    result = run_module("modulefile_verify", arguments)
    assert "Its family is python" in result["msg"] and "give module.family another name" in result["msg"], result["msg"]
    stack = description(place, family="pytorch", depends_on=["mpi/4.1"])
    assert not run_module("modulefile", {**place, **told, "description": stack}).failed
    assert not run_module("modulefile_verify", arguments).failed
