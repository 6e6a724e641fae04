# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Hot fixes on a frozen release: only the named paths, who and why, and the release is frozen again.

Covers thaw, thaw_release, thaw_close, thaw_difference, thaw_files, thaw_bytecode and thaw_log of
module_utils/lifecycle, too.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import thaw, thaw_log
from ansible_collections.hpcml.torchstack.plugins.module_utils.release import records as release_records
from support.frozen_release import CACHED, FIX, LIBRARY, OTHER, RELEASE, SHARED, SITE, World


@pytest.fixture()
def world(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    yield World(root)
    subprocess.run(["chmod", "-R", "u+rwX", str(root)], check=True)


def run(world, state="open", apply=True, **more):
    return thaw.carry_out(world.request(state, **more), apply)


def corrections(world):
    """Why files were changed, as users are told."""
    return [entry["why"] for entry in thaw_log.Records(str(world.root), RELEASE).corrections()]


def refused(world, state="open", apply=True, **more):
    with pytest.raises(StackError) as caught:
        run(world, state, apply, **more)
    return caught.value


def test_only_the_named_file_becomes_writable(world):
    before = {name: world.mode(name) for name in (OTHER, SITE, LIBRARY, SHARED, ".torchstack", ".")}
    done = run(world)
    assert done["changed"] and done["open"] and done["thawed"] == [FIX]
    assert world.mode(FIX) == 0o644
    assert {name: world.mode(name) for name in before} == before
    record = world.read("thawed.json")
    assert (record["paths"], record["why"], record["thaw"]) == ([FIX], "the answer is wrong", 1)
    assert record["who"] and record["at"].endswith("Z")
    assert not run(world)["changed"]


def test_a_fix_is_compiled_frozen_recorded_and_needs_another_acceptance(world):
    frozen = world.read("frozen.json")
    assert release_records.subject_of(frozen) == "asked"
    run(world)
    world.path(FIX).write_text("ANSWER = 42\n")
    os.utime(str(world.path(FIX)), (1, 1))
    done = run(world, "refrozen")
    assert done["changed"] and not done["open"]
    assert [(entry["path"], entry["change"]) for entry in done["difference"]] == [(CACHED, "changed"), (FIX, "changed")]
    assert (world.mode(FIX), world.mode(CACHED)) == (0o444, 0o444)
    assert world.imported() == "42"
    assert world.compared()["matches"]
    after = world.read("frozen.json")
    assert after["manifest"]["digest"] == world.compared()["digest"] == done["digest"]
    assert done["digest"] != frozen["manifest"]["digest"]
    assert (after["digest"], after["frozen_at"], after["thawed"]) == ("asked", frozen["frozen_at"], 1)
    assert done["subject"] == release_records.subject_of(after)
    assert done["subject"] not in ("", "asked")
    opened, closed = world.journal()
    assert (opened["action"], opened["paths"], opened["why"]) == ("thawed", [FIX], "the answer is wrong")
    assert (closed["action"], closed["manifest"]["before"]) == ("refrozen", frozen["manifest"]["digest"])
    assert closed["difference"] == done["difference"]
    assert corrections(world) == ["the answer is wrong"]
    assert closed["difference"][1]["before"]["sha256"] != closed["difference"][1]["after"]["sha256"]
    assert world.read("thawed.json") is None and not (world.afterwards / "thaw").exists()
    before = world.snapshot()
    assert not run(world, "refrozen")["changed"]
    assert world.snapshot() == before


def test_a_file_with_further_names_is_replaced_and_the_sibling_release_keeps_its_own(world):
    run(world, paths=[SITE])
    world.path(SHARED).write_text("SHARED = 2\n")
    assert world.sibling.read_text() == "SHARED = 1\n"
    assert (world.sibling.stat().st_mode & 0o777, world.sibling.stat().st_nlink) == (0o444, 1)
    run(world, "refrozen")
    assert world.sibling.read_text() == "SHARED = 1\n"
    assert world.imported("shared", "SHARED") == "2"


def test_a_process_that_has_the_old_file_open_keeps_it(world):
    with world.path(LIBRARY).open() as old:
        run(world, paths=[LIBRARY])
        world.path(LIBRARY).write_text("\x7fELF other")
        assert old.read() == "\x7fELF small"
    assert run(world, "refrozen")["objects"] == [LIBRARY]


def test_files_that_are_sent_are_put_into_place_and_the_second_run_changes_nothing(world):
    told = {"path": FIX, "sha256": "0" * 64}
    waiting = run(world, files=[told], only_for_files=True)
    assert waiting["open"] and [file["path"] for file in waiting["wanted"]] == [FIX]
    file = world.send(FIX, "ANSWER = 43\n")
    assert run(world, files=[file])["put"] == [FIX]
    assert run(world, "refrozen", files=[file])["difference_total"] == 2
    assert world.imported() == "43"
    again = run(world, files=[file], only_for_files=True)
    assert not again["changed"] and not again["open"]
    assert not run(world, "refrozen", files=[file])["changed"]


def test_two_fixes_of_the_same_size_in_one_second_both_reach_the_bytecode(world):
    for answer in ("42", "43"):
        run(world)
        world.path(FIX).write_text("ANSWER = %s\n" % answer)
        os.utime(str(world.path(FIX)), (1000000000, 1000000000))
        run(world, "refrozen")
        assert world.imported() == answer
    assert world.read("frozen.json")["thawed"] == 2
    assert [entry["thaw"] for entry in world.journal()] == [1, 1, 2, 2]


def test_files_come_and_go_in_a_named_directory_with_their_bytecode(world):
    run(world, paths=[SITE])
    world.path(SITE + "/new.py").write_text("NEW = 1\n")
    world.path(OTHER).unlink()
    done = run(world, "refrozen")
    changes = {os.path.basename(entry["path"]): entry["change"] for entry in done["difference"]}
    tag = sys.implementation.cache_tag
    assert changes == {
        "new.py": "added", "new.%s.pyc" % tag: "added", "other.py": "removed", "other.%s.pyc" % tag: "removed"}
    assert world.compared()["matches"] and world.mode(SITE + "/new.py") == 0o444


def test_a_fix_that_python_cannot_compile_is_not_frozen(world):
    run(world)
    world.path(FIX).write_text("ANSWER =\n")
    error = refused(world, "refrozen")
    assert "cannot be compiled" in error.message and FIX in error.message
    assert world.mode(FIX) == 0o644 and world.read("thawed.json")
    world.path(FIX).write_text("ANSWER = 44\n")
    assert run(world, "refrozen")["changed"]


def test_what_changed_elsewhere_is_named_and_nothing_is_frozen(world):
    run(world)
    world.path(FIX).write_text("ANSWER = 42\n")
    for name, text in ((OTHER, "OTHER = 2\n"), (LIBRARY, "\x7fELF SMALL")):  # of the same size, so not seen quickly
        world.path(name).chmod(0o644)
        world.path(name).write_text(text)
        world.path(name).chmod(0o444)
    for apply in (False, True):
        error = refused(world, "refrozen", apply)
        assert error.details["outside"] == sorted([OTHER, LIBRARY]) and OTHER in error.message
    assert world.read("thawed.json") and world.read("frozen.json").get("thawed") is None
    run(world, paths=[OTHER, LIBRARY], reason="these too")
    assert run(world, "refrozen")["difference_total"] == 5
    assert [entry["why"] for entry in world.journal()] == ["the answer is wrong", "these too", "the answer is wrong"]


def test_a_release_that_differs_elsewhere_already_is_not_thawed(world):
    world.path(OTHER).chmod(0o600)
    error = refused(world)
    assert error.details["outside"] == [OTHER] and "drift.yml" in error.remedy
    assert world.read("thawed.json") is None


def test_a_thaw_without_a_change_is_abandoned_and_leaves_everything_as_it_was(world):
    manifest = world.path(".torchstack/manifest.json").read_bytes()
    run(world, paths=[SITE + "/package", FIX])
    done = run(world, "abandoned")
    assert done["changed"] and done["difference"] == []
    assert world.compared()["matches"] and world.path(".torchstack/manifest.json").read_bytes() == manifest
    assert world.read("frozen.json").get("thawed") is None and done["subject"] == "asked"
    assert [entry["action"] for entry in world.journal()] == ["thawed", "abandoned"]
    run(world)
    assert run(world, "refrozen")["difference"] == [] and corrections(world) == []
    assert not run(world, "abandoned")["changed"]


def test_a_thaw_with_a_change_is_not_abandoned(world):
    run(world)
    world.path(FIX).write_text("ANSWER = 42\n")
    error = refused(world, "abandoned")
    assert FIX in error.message and "refrozen" in error.remedy
    assert world.mode(FIX) == 0o644


@pytest.mark.parametrize("path, says", [
    ("", "no path"), ("/etc/passwd", "no path"), ("../other", "not inside"), ("base/../../x", "no path"),
    (".", "not inside"), (".torchstack/release.yml", "records of the build"), (SITE + "/link.py", "symbolic link"),
    (SITE + "/*.py", "There is no"), (FIX + "/x", "There is no"), ("base/lib/missing", "There is no"),
])
def test_what_cannot_be_thawed_is_refused_in_a_sentence_and_changes_nothing(world, path, says):
    before = world.snapshot()
    assert says in refused(world, paths=[OTHER, path]).message
    assert world.snapshot() == before


def test_a_way_through_a_link_is_refused(world):
    world.root.joinpath("elsewhere").mkdir()
    world.prefix.chmod(0o755)
    world.path("out").symlink_to(world.root / "elsewhere")
    world.root.joinpath("elsewhere", "x").write_text("")
    assert "symbolic link" in refused(world, paths=["out/x"]).message


def test_a_reason_and_a_path_have_to_be_given(world):
    assert "No reason" in refused(world, reason=" ").message
    assert "Nothing is named" in refused(world, paths=[]).message


def test_files_go_nowhere_else_than_into_what_is_thawed(world):
    assert "not among" in refused(world, files=[{"path": OTHER, "sha256": "0" * 64}]).message


def test_a_password_in_the_reason_is_not_kept(world):
    run(world, reason="fixed as https://me:hunter2secret@example.org/x says")
    for record in ("thawed.json", "thaw.jsonl"):
        assert "hunter2secret" not in (world.afterwards / record).read_text()


def test_a_path_that_is_no_release_is_refused(world):
    for release in ("2026-10-01", "..", "nothing"):
        with pytest.raises(StackError):
            thaw.carry_out(world.request()._replace(release=release), True)


def test_check_do_check_again_do_again(run_module, world):
    arguments = {"root": str(world.root), "release": RELEASE, "paths": [FIX], "reason": "why", "python": sys.executable}
    for more, fix in (({}, "ANSWER = 42\n"), ({"state": "refrozen"}, "")):
        before = world.snapshot()
        planned = run_module("release_thaw", dict(arguments, **more), check=True, diff=True)
        assert planned.changed and not planned.failed, planned.console
        assert world.snapshot() == before
        done = run_module("release_thaw", dict(arguments, **more), diff=True)
        assert done.changed and not done.failed, done.console
        assert planned["difference_total"] == done["difference_total"] and planned["thawed"] == done["thawed"]
        assert done.shown_difference
        for check in (True, False) if fix else (False,):
            again = run_module("release_thaw", dict(arguments, **more), check=check)
            assert not again.changed and not again.failed
        if fix:
            world.path(FIX).write_text(fix)
