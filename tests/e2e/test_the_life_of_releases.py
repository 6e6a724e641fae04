# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What comes after the build, for two releases of the local site: published, announced, rolled back, watched, retired.

The last tests of this directory, as the release on the conda base is gone at their end.
"""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from rollouts import find_module_system

NEW, OLD = "2026-11-20", "2026-11-21"
RELEASE = re.compile(r"\d{4}-\d\d-\d\d")


@pytest.fixture(scope="module")
def life(site):
    """The site, where the older release is the default and the newer one is not to be seen yet."""
    for release in (NEW, OLD):
        if not (site.root / ".torchstack" / release / "frozen.json").exists():
            pytest.skip("there is no release %s below %s" % (release, site.root))
    play(site, "publish", OLD, publish_to="default")
    play(site, "publish", NEW, publish_to="hidden")
    return site


def play(site, name, release="", **variables):
    """Run one of the playbooks."""
    words = [word for item in variables.items() for word in ("-e", "%s=%s" % item)]
    words += ["-e", "torchstack_release=" + release] if release else []
    return site.roll_out(*words, playbook="playbooks/%s.yml" % name)


def twice(site, name, release="", **variables):
    """Run one of the playbooks, and see that a second run changes nothing."""
    first = play(site, name, release, **variables)
    assert first.changed, first.text
    second = play(site, name, release, **variables)
    assert second.changed == 0, second.text
    return first


def users_see(site):
    """What each module system of this machine lists of the module, and what it loads without a version."""
    found = {}
    for name in ("lmod", "environment-modules"):
        system = find_module_system(name, site)
        if system:
            script = "module -t avail torchstack 2>&1; module load torchstack; echo loaded $_LMFILES_"
            command = ["bash", "-c", "%s; module use %s; %s" % (system.start, system.modulepath, script)]
            environment = {"HOME": "/nonexistent", "PATH": "/usr/bin:/bin"}
            said = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
            listed, _loaded, file = said.partition("loaded ")
            found[name] = (set(RELEASE.findall(listed.partition("torchstack/")[2])), RELEASE.findall(file)[-1])
    return found


def assert_users_see(site, listed, default):
    seen = users_see(site)
    assert seen == dict.fromkeys(seen, (listed, default))
    assert seen


def test_a_hidden_release_becomes_visible_and_the_default_stays(life):
    assert_users_see(life, {OLD}, OLD)
    twice(life, "publish", NEW, publish_to="visible")
    assert_users_see(life, {OLD, NEW}, OLD)


def test_the_default_moves_and_its_difference_is_announced(life):
    twice(life, "publish", NEW, publish_to="default")
    assert_users_see(life, {OLD, NEW}, NEW)
    twice(life, "notice", NEW)
    notice = (life.root / ".torchstack" / NEW / "notice.md").read_text()
    assert OLD in notice and NEW in notice


def test_the_default_goes_back_in_one_command_and_forward_again(life):
    twice(life, "rollback")
    assert_users_see(life, {OLD, NEW}, OLD)
    # The first one renews the report, which says what users see; there is nothing else to do.
    once = life.roll_out("-e", "torchstack_release=" + NEW)
    again = life.document("rollout", "local", NEW)
    assert once.changed <= 3 and "get %s, unchanged: the rollback of %s by " % (OLD, NEW) in once.text, once.text
    assert again["rc"] == 0 and again["finished"], again
    assert again["steps"] == again["changed"] == again["failures"] == []
    assert any("get %s, unchanged: the rollback of %s by " % (OLD, NEW) in line
               for said in again["messages"] for line in said["lines"]), again["messages"]
    assert_users_see(life, {OLD, NEW}, OLD)
    play(life, "publish", NEW, publish_to="default")
    assert_users_see(life, {OLD, NEW}, NEW)


def test_nothing_of_the_releases_has_drifted(life):
    assert twice(life, "drift", drift_level="quick").text


def test_the_default_is_not_retired(life):
    refused = life.start(
        "-e", "torchstack_release=" + NEW, "-e", "retire_to=deprecated", "-e", "retire_minimum_age=0",
        playbook="playbooks/retire.yml")
    assert refused.wait() != 0
    assert "default" in refused.message
    assert_users_see(life, {OLD, NEW}, NEW)


def test_the_former_default_is_retired_in_steps(life):
    now = {"retire_minimum_age": 0, "retire_notice_days": 0, "retire_rate": 0}
    twice(life, "retire", OLD, retire_to="deprecated", **now)
    assert_users_see(life, {OLD, NEW}, NEW)
    twice(life, "retire", OLD, retire_to="hidden", **now)
    assert_users_see(life, {NEW}, NEW)
    further = [word for item in now.items() for word in ("-e", "%s=%s" % item)]
    removed, again = (life.document("retire", "local", OLD, "--to", "removed", given=further) for _time in range(2))
    assert removed["rc"] == again["rc"] == 0 and removed["changed"] and again["changed"] == [], (removed, again)
    assert removed["failures"] == again["failures"] == []
    assert_users_see(life, {NEW}, NEW)
    assert not (life.root / OLD).exists()
    record = json.loads((life.root / ".torchstack" / OLD / "retired.json").read_text())
    assert record["state"] == "removed"


def test_the_report_says_what_users_see_now(life):
    twice(life, "report", NEW)
    report = json.loads((life.root / ".torchstack" / NEW / "report.json").read_text())
    moves = [(entry["syntax"], entry["version"]) for entry in report["published"] if entry["action"] == "default"]
    assert moves[-2:] == [("tcl", NEW), ("lmod", NEW)]
    assert ("tcl", OLD) in moves  # the rollback
