# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What is announced of a release, from two releases on disk.

Covers notice_document, notice_phrases and notice_render of module_utils/lifecycle, too.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import notice_document
from support import faults, installed_release, notice_releases, published_release

OLD, NEW = notice_releases.OLD, notice_releases.NEW


def gathered(root, release, resolved, resolved_since=None, since="", problems=(None, None), check_mode=False):
    found = notice_document.compared_releases(str(root), release, since)
    return notice_document.write_notice(found, (resolved, resolved_since or {}), problems, "", check_mode)


def arguments(root, resolved, since, **more):
    return {"root": str(root), "release": NEW, "resolved": resolved, "resolved_since": since, **more}


def test_s10_the_notice_has_exactly_the_build_options_and_packages_that_differ(tmp_path):
    new, old = notice_releases.make_both(tmp_path)
    facts = gathered(tmp_path, NEW, new, old)["facts"]
    keys = ("component", "name", "change", "before", "after")
    assert {tuple(row[key] for key in keys) for row in facts["flags"]} == notice_releases.DIFFERENT_FLAGS
    assert len(facts["flags"]) == len(notice_releases.DIFFERENT_FLAGS)
    packages = {(row["name"], row["change"], row["before"], row["after"]) for row in facts["packages"]}
    assert packages == notice_releases.DIFFERENT_PACKAGES
    assert len(facts["packages"]) == len(notice_releases.DIFFERENT_PACKAGES)
    assert facts["components"] == facts["settings"] == facts["compatibility"] == facts["files"] == []


def test_files_of_the_sites_that_are_new_gone_or_changed_are_named(tmp_path):
    new, old = notice_releases.make_both(tmp_path)
    for version, resolved, files in ((OLD, old, {"bin/tool": "1", "etc/old": "", "etc/fixed": "x"}),
                                     (NEW, new, {"bin/tool": "2", "site-packages/new.py": "", "etc/fixed": "x"})):
        for path, content in files.items():
            installed_release.site_file(tmp_path / version, resolved, path, content)
    found = gathered(tmp_path, NEW, new, old)["facts"]
    assert [(row["name"], row["change"]) for row in found["files"]] == [
        ("bin/tool", "changed"), ("etc/old", "removed"), ("site-packages/new.py", "added")]
    # A hot fix of the former release, and what was given to both is the same.
    (tmp_path / OLD / "base" / "etc" / "fixed").write_text("y")
    found = gathered(tmp_path, NEW, new, old)["facts"]
    assert ("etc/fixed", "changed") in {(row["name"], row["change"]) for row in found["files"]}


def test_the_facts_are_planned_written_and_left_alone(run_module, tmp_path):
    new, old = notice_releases.make_both(tmp_path)
    known = [{"problem": "It hangs", "workaround": "Wait", "url": ""}]
    wanted = arguments(tmp_path, new, old, known_problems=known)
    path = tmp_path / ".torchstack" / NEW / "notice.json"
    planned = run_module("release_notice", wanted, check=True)
    assert planned.changed and not path.exists()
    written = run_module("release_notice", wanted)
    assert written.changed and json.loads(path.read_text()) == written["facts"] == planned["facts"]
    assert written["since"] == OLD and written["facts"]["known_problems"] == known
    content, time = path.read_bytes(), path.stat().st_mtime_ns
    assert not run_module("release_notice", wanted, check=True).changed
    assert not run_module("release_notice", wanted).changed
    assert (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode & 0o777) == (content, time, 0o644)


def test_the_play_is_told_which_release_was_before_and_given_both_release_files(run_module, tmp_path):
    new, old = notice_releases.make_both(tmp_path)
    found = run_module("release_notice", {"root": str(tmp_path), "release": NEW, "state": "found"})
    assert not found.changed and found["since"] == OLD
    assert [json.loads(found[key]) for key in ("content", "content_since")] == [new, old]


def test_a_release_that_is_not_frozen_is_planned_for_later_and_refused_in_earnest(run_module, tmp_path):
    wanted = {"root": str(tmp_path), "release": "2026-12-01", "state": "found"}
    assert run_module("release_notice", wanted, check=True)["planned_after"] == "freeze"
    refused = run_module("release_notice", wanted)
    assert refused["failed"] and "2026-12-01 is not a frozen release" in refused["msg"]


def test_a_notice_is_the_same_before_the_default_moves_as_after_but_for_who_is_the_default(tmp_path):
    old, new = notice_releases.make(tmp_path, OLD), notice_releases.make(tmp_path, NEW)
    published_release.change(tmp_path, OLD, default=True)
    before = gathered(tmp_path, NEW, new, old)["facts"]
    published_release.change(tmp_path, NEW, default=True)
    after = gathered(tmp_path, NEW, new, old)["facts"]
    assert [facts.pop("release")["standing"] for facts in (before, after)] == ["staged", "default"]
    assert [facts["outgoing"].pop("standing") for facts in (before, after)] == ["default", "visible"]
    assert before == after


def test_of_a_first_release_its_parts_are_told(tmp_path):
    facts = gathered(tmp_path, OLD, notice_releases.make(tmp_path, OLD))["facts"]
    assert facts["outgoing"] is None and facts["known_problems"] is None
    assert {"key": "pytorch", "name": "PyTorch", "version": "2.3.1"} in facts["contents"]
    assert {"key": "python", "name": "Python", "version": "3.11.9"} in facts["contents"]


def test_another_release_can_be_named_and_not_the_same(tmp_path):
    new, old = notice_releases.make_both(tmp_path)
    facts = gathered(tmp_path, OLD, old, new, since=NEW)["facts"]
    assert ("einops", "down") in {(row["name"], row["change"]) for row in facts["packages"]}
    with pytest.raises(StackError, match="Nothing can differ between 2026-11-02 and itself"):
        gathered(tmp_path, NEW, new, since=NEW)


def test_a_release_before_whose_files_are_gone_is_named_and_not_compared(tmp_path):
    new, _old = notice_releases.make_both(tmp_path)
    (tmp_path / OLD).rename(tmp_path / "elsewhere")
    (tmp_path / ".torchstack" / OLD / "retired.json").write_text('{"state": "removed"}')
    facts = gathered(tmp_path, NEW, new)["facts"]
    assert facts["outgoing"]["name"] == OLD and not facts["compared"] and facts["packages"] == []


def test_what_was_announced_stays_when_the_release_before_has_been_removed(tmp_path):
    new, old = notice_releases.make_both(tmp_path)
    announced = gathered(tmp_path, NEW, new, old)["facts"]
    path = tmp_path / ".torchstack" / NEW / "notice.json"
    # An earlier version did not tell of files.
    path.write_text(json.dumps({key: value for key, value in announced.items() if key != "files"}))
    (tmp_path / OLD).rename(tmp_path / "elsewhere")
    (tmp_path / ".torchstack" / OLD / "retired.json").write_text('{"state": "removed"}')
    problems = [{"problem": "A new one.", "workaround": "", "url": ""}]
    facts = gathered(tmp_path, NEW, new, since=OLD, problems=(problems, None))["facts"]
    assert announced["packages"] and facts["packages"] == announced["packages"] and facts["compared"]
    assert facts["known_problems"] == problems
    assert not gathered(tmp_path, NEW, new, since=OLD, problems=(problems, None))["changed"]


PROGRAM = """
import json, sys
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import notice_document
root, release, resolved, since = json.loads(sys.argv[1])
found = notice_document.compared_releases(root, release, "")
print(notice_document.write_notice(found, (resolved, since), (None, None), "", False)["changed"])
"""


@pytest.mark.skipif(faults.compiler() is None, reason="needs a C compiler")
def test_an_announcement_that_is_killed_at_any_write_is_the_old_one_until_the_next_run_makes_it_the_new(
    tmp_path, ansible_environment,
):
    root = tmp_path / "root"
    new, old = notice_releases.make_both(root)
    library = faults.build(tmp_path)
    path = root / ".torchstack" / NEW / "notice.json"
    path.write_text("the old one")
    words = [sys.executable, "-c", PROGRAM, json.dumps([str(root), NEW, new, old])]
    environment = dict(ansible_environment, PYTHONPATH=ansible_environment["ANSIBLE_COLLECTIONS_PATH"])
    killed = 0
    while True:
        fault = faults.variables(library, "kill", faults.CHANGES, root, at=killed + 1)
        process = subprocess.run(
            words, env=dict(environment, **fault), stdout=subprocess.PIPE, text=True, check=False)
        if process.returncode != -signal.SIGKILL:
            break
        killed += 1
        # A kill behind the rename, when the directory is flushed, finds the new one there.
        assert path.read_text() == "the old one" or json.loads(path.read_text())["format"] == 1
        path.write_text("the old one")
    assert killed >= 4 and process.stdout == "True\n"
    assert json.loads(path.read_text())["outgoing"]["name"] == OLD
