# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a step has made is what others are judged by, and another release takes it over."""

from __future__ import annotations

import json
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.cancel import forget
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.files import step_files
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.needs import took_over
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.status import query
from ansible_collections.hpcml.torchstack.plugins.modules import build_step


class Site:
    """A root with releases, whose steps are built as a play does: what the module calls, one step after the other."""

    def __init__(self, root):
        self.root = root
        self.builds = root / ".torchstack" / "builds"
        self.root.mkdir()

    def play(self, release, steps, check=False):
        """Build steps of a release; name to result."""
        defaults = {key: spec.get("default") for key, spec in build_step.ARGUMENTS.items()}
        planned, results = {}, {}
        for name, given in steps.items():
            filled = json.loads(json.dumps(given).replace("PREFIX", str(self.root / release)))
            state_dir = str(self.root / release / ".torchstack" / "steps")
            files = step_files(state_dir, name)
            if filled.get("state") == "absent":
                results[name] = forget(files, check)
                continue
            own = {"name": name, "state_dir": state_dir, "planned": planned}
            result = build_step.present({**defaults, **own, **filled}, check, False)
            while result["state"] == "running":
                time.sleep(0.05)
                result = query(files, result["nonce"])
            if result["state"] == "planned":
                planned[name] = {key: result[key] for key in ("result", "ground")}
            results[name] = result
        return results

    def states(self, *arguments):
        return {name: result["state"] for name, result in self.play(*arguments).items()}

    def log(self, release, step):
        return (self.root / release / ".torchstack" / "steps" / step / "log").read_text()

    def file(self, release, name):
        return (self.root / release / name).read_text()


@pytest.fixture(name="site")
def one_site(tmp_path):
    return Site(tmp_path / "the root")


def fetched(site, **changes):
    """What is fetched, installed, and built on: each script appends its name to a list."""
    ran = "echo %%s >> '%s'; " % (site.root / "ran")
    steps = {
        "base": {"script": ran % "base" + "rm -rf 'PREFIX/base'; mkdir -p 'PREFIX/base'", "foundation": True},
        "fetch": {"script": ran % "fetch" + "mkdir -p 'PREFIX/src'; cp '%s' 'PREFIX/src/wheel'" % (site.root / "index"),
                  "produces": ["PREFIX/src/wheel"], "cache": str(site.builds)},
        "install": {"script": ran % "install" + "cp 'PREFIX/src/wheel' 'PREFIX/base/torch'", "needs": ["base", "fetch"],
                    "judged_by": ["fetch"]},
        "build": {"script": ran % "build" + "echo \"built on $(cat 'PREFIX/base/torch')\" > 'PREFIX/horovod.whl'",
                  "needs": ["install"], "produces": ["PREFIX/horovod.whl"], "cache": str(site.builds)},
        "installed": {"script": ran % "installed" + "cp 'PREFIX/horovod.whl' 'PREFIX/base/horovod'",
                      "needs": ["build"]},
    }
    for name, change in changes.items():
        steps[name] = dict(steps[name], **change)
    return steps


def ran(site):
    path = site.root / "ran"
    words = path.read_text().split() if path.exists() else []
    path.write_text("")
    return words


ALL = ["base", "fetch", "install", "build", "installed"]


def test_a_wheel_of_another_build_has_everything_on_it_built_again_and_the_same_one_nothing(site):
    (site.root / "index").write_text("cuda\n")
    steps = fetched(site)
    site.play("one", steps)
    assert ran(site) == ALL
    again = {"fetch": {"state": "absent"}}
    site.play("one", again)
    planned = site.play("one", steps, True)
    assert {name: found["state"] for name, found in planned.items()} == {
        "base": "unchanged", "fetch": "planned", "install": "planned", "build": "planned", "installed": "planned"}
    assert planned["fetch"]["taken_over"] is None, "a step that was to run again runs by itself"
    assert planned["install"]["planned_after"] == "fetch"
    assert site.states("one", steps) == {
        "base": "unchanged", "fetch": "done", "install": "unchanged", "build": "unchanged", "installed": "unchanged"}
    assert ran(site) == ["fetch"]
    site.play("one", again)
    (site.root / "index").write_text("cpu\n")
    site.play("one", steps)
    assert ran(site) == ["fetch", "install", "build", "installed"]
    assert site.file("one", "base/horovod") == "built on cpu\n"
    assert set(site.states("one", steps).values()) == {"unchanged"}


def test_what_was_installed_on_a_foundation_is_installed_again_after_it_and_what_was_built_is_not(site):
    (site.root / "index").write_text("cpu\n")
    steps = fetched(site)
    site.play("one", steps)
    ran(site)
    site.play("one", {"base": {"state": "absent"}})
    assert site.states("one", steps, True) == {
        "base": "planned", "fetch": "unchanged", "install": "planned", "build": "unchanged", "installed": "planned"}
    site.play("one", steps)
    assert ran(site) == ["base", "install", "installed"]
    assert site.file("one", "base/horovod") == "built on cpu\n"


def test_another_release_takes_over_what_has_the_same_inputs_and_says_of_whom(site):
    (site.root / "index").write_text("cpu\n")
    steps = fetched(site)
    first = site.play("one", steps)
    ran(site)
    planned = site.play("two", steps, True)
    assert [planned[name]["taken_over"]["release"] for name in ("fetch", "build")] == ["one", "one"]
    assert not (site.root / "two").exists()
    second = site.play("two", steps)
    assert {name: found["state"] for name, found in second.items()} == {
        "base": "done", "fetch": "cached", "install": "done", "build": "cached", "installed": "done"}
    assert ran(site) == ["base", "install", "installed"]
    assert second["build"]["digest"] == first["build"]["digest"] == planned["build"]["digest"]
    assert site.file("two", "base/horovod") == "built on cpu\n"
    sentence = took_over(second["build"]["taken_over"])
    assert sentence.startswith("taken over from release one: same inputs, built 20") and sentence.endswith(" in 0 s")
    assert sentence in site.log("two", "build")
    stamp = json.loads(site.file("two", ".torchstack/steps/build/stamp.json"))
    assert stamp["from_cache"] and stamp["taken_over"]["step"] == "build"
    assert json.loads(site.file("two", ".torchstack/steps/build/result.json"))["files"][0]["path"] == "horovod.whl"
    assert set(site.states("two", steps).values()) == {"unchanged"}


@pytest.mark.parametrize(
    ("changes", "not_taken"),
    [
        ({"build": {"environment": {"CFLAGS": "-O3"}}}, ["build"]),
        ({"build": {"inputs": {"compilers": {"CC": "gcc 13"}}}}, ["build"]),
        ({"build": {"modules": [], "unset": ["LDFLAGS"]}}, ["build"]),
        ({"fetch": {"environment": {"TORCH": "other"}}}, ["fetch"]),
    ],
    ids=["other CFLAGS", "other compiler", "other environment", "other lock, same wheel"],
)
def test_other_inputs_are_built_anew(site, changes, not_taken):
    (site.root / "index").write_text("cpu\n")
    site.play("one", fetched(site))
    ran(site)
    site.play("two", fetched(site, **changes))
    assert [name for name in ran(site) if name in ("fetch", "build")] == not_taken


def test_another_torch_is_built_on_anew(site):
    (site.root / "index").write_text("cpu\n")
    site.play("one", fetched(site))
    ran(site)
    (site.root / "index").write_text("cuda\n")
    site.play("two", fetched(site, fetch={"environment": {"TORCH": "other"}}))
    assert [name for name in ran(site) if name in ("fetch", "build")] == ["fetch", "build"]
    assert site.file("two", "base/horovod") == "built on cuda\n"


def test_what_was_tampered_with_is_refused_in_a_sentence_and_built(site):
    (site.root / "index").write_text("cpu\n")
    steps = fetched(site)
    entry = site.builds / site.play("one", steps)["build"]["digest"]
    (entry / "0").write_text("built by somebody\n")
    ran(site)
    built = site.play("two", steps)["build"]
    assert built["state"] == "done"
    sentence = "%s was not taken over: horovod.whl is not what was stored: its sha256 differs" % entry
    assert built["warnings"] == [sentence]
    assert sentence in site.log("two", "build")
    assert site.file("two", "horovod.whl") == "built on cpu\n" == (entry / "0").read_text()


def test_what_names_its_release_is_not_kept_and_the_log_says_why(site):
    steps = {"build": {"script": "echo \"prefix='PREFIX/base'\" > 'PREFIX/a.pc'", "produces": ["PREFIX/a.pc"],
                       "cache": str(site.builds)}}
    assert site.play("one", steps)["build"]["state"] == "done"
    assert "not kept for other releases: a.pc has the release's directory in its text" in site.log("one", "build")
    assert site.states("two", steps) == {"build": "done"}
    assert "'%s/base'" % (site.root / "two") in site.file("two", "a.pc")


def test_a_script_can_keep_what_it_made_to_itself(site):
    steps = {"build": {"script": "echo x > a; touch keep-to-itself", "produces": ["PREFIX/.torchstack/steps/build/a"],
                       "cache": str(site.builds)}}
    site.play("one", steps)
    assert site.states("two", steps) == {"build": "done"}


def test_a_supervisor_that_is_killed_between_keeping_and_recording_has_not_built_in_vain(site):
    (site.root / "index").write_text("cpu\n")
    steps = fetched(site)
    site.play("one", steps)
    ran(site)
    for name in ("stamp.json", "exit"):
        (site.root / "one" / ".torchstack" / "steps" / "build" / name).unlink()
    assert site.states("one", steps)["build"] == "cached"
    assert ran(site) == []
