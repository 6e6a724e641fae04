# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""conda_environment where something fails: packages, channels, file systems, or the run itself.

TORCHSTACK_ALL_KILLS=1 kills a transaction at every change that it makes to the file system; without it, at a part of
them.
"""

from __future__ import annotations

import os
import shutil
import signal

import pytest
from support import conda_prefixes, faults
from support.conda_prefixes import answer, names, prefix_of, tree

ALL_KILLS = bool(os.environ.get("TORCHSTACK_ALL_KILLS"))
ERRORS = ("ENOSPC", "EDQUOT", "EROFS", "EIO")


@pytest.mark.parametrize("kind", ["another package", "truncated", "missing"])
def test_a_damaged_package_is_named_and_the_prefix_stays_as_it_was(drive, place, channel, tmp_path, kind):
    bad = conda_prefixes.spoil(channel, kind, tmp_path)
    cold = str(tmp_path / "cold")
    arguments = place(channels=[bad.url], cache=cold)
    result = answer(drive(arguments))
    assert result["failed"] and result["failed_step"] == "fetch the packages"
    assert bad.package("libtoy").name in result["msg"] if kind != "missing" else "libtoy-2.1.0" in result["msg"]
    assert not prefix_of(arguments).exists()
    answer(drive(place("toydata ==1.0.0", channels=[bad.url], cache=cold)))
    before = tree(prefix_of(arguments))
    assert answer(drive(arguments))["failed"]
    assert tree(prefix_of(arguments)) == before
    shutil.rmtree(bad.directory)
    shutil.copytree(channel.directory, bad.directory)
    answer(drive(arguments))
    assert answer(drive(arguments))["changed"] is False


def test_a_lock_with_another_digest_than_the_package_is_refused(drive, place, tmp_path):
    lock = tmp_path / "lock"
    text = answer(drive(place("toydata")))["lock"]
    url, _mark, digest = text.splitlines()[-1].partition("#sha256:")
    lock.write_text("@EXPLICIT\n%s#%s\n" % (url, digest[::-1]))
    arguments = place(specs=None, channels=None, lock=str(lock), prefix=str(tmp_path / "release" / "other"))
    result = answer(drive(arguments))
    assert result["failed_step"] == "fetch the packages" and digest in result["msg"] and digest[::-1] in result["msg"]
    assert not prefix_of(arguments).exists()


@pytest.mark.parametrize("damage", ["changed", "missing", "half extracted", "without its note"])
def test_a_damaged_cache_entry_is_extracted_anew(drive, place, tmp_path, damage):
    cache = tmp_path / "cache"
    answer(drive(place("toydata ==1.0.0", cache=str(cache))))
    entry = cache / "toydata-1.0.0-0"
    if damage == "changed":
        (entry / "share" / "toydata" / "version").write_text("9.9.9\n")
    elif damage == "missing":
        (entry / "share" / "toydata" / "version").unlink()
    elif damage == "half extracted":
        shutil.rmtree(entry / "info")
    else:
        (cache / "toydata-1.0.0-0.lock").unlink()
        (entry / "share" / "toydata" / "version").write_text("9.9.9\n")
    other = place("toydata ==1.0.0", cache=str(cache), prefix=str(tmp_path / "release" / "other"))
    answer(drive(other))
    assert (prefix_of(other) / "share" / "toydata" / "version").read_text() == "1.0.0\n"


@pytest.mark.parametrize("verify, damage", [("files", "missing"), ("contents", "changed")])
def test_a_damaged_file_of_the_prefix_is_found_and_linked_again(drive, place, verify, damage):
    arguments = place("libtoy", verify=verify)
    answer(drive(arguments))
    before = tree(prefix_of(arguments))
    program = prefix_of(arguments) / "bin" / "toy"
    program.unlink()
    if damage == "changed":
        program.write_text("broken")
    planned = answer(drive(arguments, check=True))
    assert names(planned["repaired"]) == ["libtoy"] and planned["changed"]
    assert names(answer(drive(arguments))["repaired"]) == ["libtoy"]
    after = tree(prefix_of(arguments))
    assert {path for path in after if after[path] != before.get(path)} <= {"conda-meta/history"}
    assert not answer(drive(arguments))["changed"]


def points(total, count=6):
    """At which changes of a run something is done to it."""
    return range(1, total + 1) if ALL_KILLS else range(1, total + 1, max(1, total // count))


def changes_of(drive, fault_library, arguments, tmp_path, calls=faults.CHANGES):
    """How many changes to the file system one run makes below the release, in all its processes."""
    log = tmp_path / "log"
    log.write_text("")
    process = drive(arguments, faults.variables(
        fault_library, "none", calls, tmp_path / "release", log=log, counter=tmp_path / "counter"
    ))
    assert answer(process)["changed"]
    return len(log.read_text().splitlines())


def killed(drive, fault_library, arguments, tmp_path, at):
    (tmp_path / "counter").unlink(missing_ok=True)
    return drive(arguments, faults.variables(
        fault_library, "kill", faults.CHANGES, tmp_path / "release", at=at, counter=tmp_path / "counter"
    ))


def test_a_creation_killed_at_any_change_is_completed_by_the_next_run(drive, fault_library, place, tmp_path):
    arguments = place("libtoy", "toysettings")
    release = prefix_of(arguments).parent
    answer(drive(arguments))
    shutil.rmtree(release)
    release.mkdir()
    total = changes_of(drive, fault_library, arguments, tmp_path)
    wanted = tree(release)
    died = 0
    for at in points(total):
        shutil.rmtree(release)
        release.mkdir()
        died += killed(drive, fault_library, arguments, tmp_path, at).returncode == -signal.SIGKILL
        answer(drive(arguments))
        found = tree(release)
        assert found == wanted, (at, {path for path in {*found, *wanted} if found.get(path) != wanted.get(path)})
        assert answer(drive(arguments))["changed"] is False
    assert died >= len(points(total)) - 1


def test_a_change_killed_at_any_change_is_completed_by_the_next_run(drive, fault_library, place, tmp_path):
    first, second = place("libtoy", "toydata ==1.0.0"), place("toysettings", "toydata ==2.0.0")
    release = prefix_of(first).parent
    saved = tmp_path / "saved"
    answer(drive(first))
    (prefix_of(first) / "share" / "users-own").write_text("kept")
    shutil.copytree(release, saved, symlinks=True)
    total = changes_of(drive, fault_library, second, tmp_path)
    wanted = tree(release)
    assert wanted["base/share/users-own"][1] == b"kept"
    died = 0
    for at in points(total):
        shutil.rmtree(release)
        shutil.copytree(saved, release, symlinks=True)
        died += killed(drive, fault_library, second, tmp_path, at).returncode == -signal.SIGKILL
        answer(drive(second))
        found = tree(release)
        assert found == wanted, (at, {path for path in {*found, *wanted} if found.get(path) != wanted.get(path)})
    assert died >= len(points(total)) - 1


def test_a_removal_killed_at_any_change_is_completed_by_the_next_run(drive, fault_library, place, tmp_path):
    arguments = place("toysettings")
    release = prefix_of(arguments).parent
    saved = tmp_path / "saved"
    answer(drive(arguments))
    shutil.copytree(release, saved, symlinks=True)
    wanted = tree(release)
    gone = dict(arguments, state="absent", specs=None)
    total = changes_of(drive, fault_library, gone, tmp_path)
    for at in points(total):
        for following in (gone, arguments) if ALL_KILLS else (gone,) if at % 2 else (arguments,):
            shutil.rmtree(release)
            shutil.copytree(saved, release, symlinks=True)
            assert killed(drive, fault_library, gone, tmp_path, at).returncode == -signal.SIGKILL
            answer(drive(following))
            assert tree(release) == wanted if following is arguments else not prefix_of(arguments).exists()


@pytest.mark.parametrize("error", ERRORS)
def test_a_file_system_that_fails_gives_an_error_and_no_half_prefix(drive, fault_library, place, error):
    arguments = place("libtoy", "toysettings")
    result = answer(drive(arguments, faults.variables(
        fault_library, "error:" + error, ("create", "write", "rename"), prefix_of(arguments) / "share"
    )))
    assert result["failed"] and result["failed_step"] == "link" and "Nothing is left" in result["msg"]
    assert not prefix_of(arguments).exists()
    assert answer(drive(arguments))["changed"] is True


def updated_by_hand(drive, place):
    """A prefix with a hot fix and a file of its own, and what it shall become."""
    first, second = place("libtoy", "toydata ==1.0.0"), place("toysettings", "toydata ==2.0.0")
    answer(drive(first))
    (prefix_of(first) / "share" / "toydata" / "version").write_text("hot fix\n")
    (prefix_of(first) / "share" / "own").write_text("kept")
    return first, second


def times(prefix):
    """When the content of each file was changed last, but for the records of packages."""
    return {path: path.lstat().st_mtime_ns for path in prefix.rglob("*") if path.is_file() and path.suffix != ".json"}


def files_of(found):
    """Records by name only: after an error that it got over, py-rattler notes other sizes in them."""
    return {path: "" if path.startswith("conda-meta/") and path.endswith(".json") else found[path] for path in found}


@pytest.mark.parametrize("onwards", [False, True])
def test_an_update_that_fails_anywhere_leaves_the_prefix_as_it_was_or_says_that_it_is_half(
    drive, fault_library, place, tmp_path, onwards
):
    first, second = updated_by_hand(drive, place)
    release, saved = place.release, tmp_path / "saved"
    shutil.copytree(release, saved, symlinks=True)
    total = changes_of(drive, fault_library, second, tmp_path, ("create", "write"))
    wanted, before = tree(release / "base"), tree(saved / "base")
    undone = half = 0
    for number, at in enumerate(points(total)):
        shutil.rmtree(release)
        shutil.copytree(saved, release, symlinks=True)
        when = times(prefix_of(first))
        (tmp_path / "counter").unlink(missing_ok=True)
        result = answer(drive(second, faults.variables(
            fault_library, "error:" + ERRORS[number % 2], ("create", "write"), release, at=at, onwards=onwards,
            counter=tmp_path / "counter",
        )))
        found = tree(release / "base")
        if not result.get("failed"):
            assert files_of(found) == files_of(wanted), at
        elif "half changed" in result["msg"]:
            half += 1
        else:
            undone += "as it was before" in result["msg"]
            assert (found, times(prefix_of(first))) == (before, when), (at, result["msg"])
        answer(drive(second))
        assert files_of(tree(release / "base")) == files_of(wanted), at
        assert not answer(drive(dict(second, verify="contents")))["changed"], at
    # One error leaves nothing in the way back; where all later calls fail, linking fails too.
    assert undone if onwards else not half


def test_a_resumed_update_that_fails_goes_back_to_the_prefix_before_the_first(drive, fault_library, place, tmp_path):
    first, second = updated_by_hand(drive, place)
    before = tree(prefix_of(first))
    died = drive(second, faults.variables(
        fault_library, "kill", ("create",), prefix_of(first) / "share" / "toysettings", at=1,
        counter=tmp_path / "counter",
    ))
    assert died.returncode == -signal.SIGKILL and tree(prefix_of(first)) != before
    result = answer(drive(second, faults.variables(
        fault_library, "error:ENOSPC", ("create", "write"), prefix_of(first) / "share" / "toysettings"
    )))
    assert "as it was before" in result["msg"]
    assert tree(prefix_of(first)) == before
    assert not answer(drive(first))["changed"]
    assert sorted(path.name for path in place.release.iterdir()) == [".base.conda.json", ".base.conda.lock", "base"]


def test_what_scripts_did_is_not_undone_and_the_error_says_that_the_next_run_completes(drive, fault_library, place):
    first, second = updated_by_hand(drive, place)
    second["link_scripts"] = True
    result = answer(drive(second, faults.variables(
        fault_library, "error:ENOSPC", ("create", "write"), prefix_of(first) / "share" / "toysettings"
    )))
    assert "half changed, and the next run completes it" in result["msg"]
    done = answer(drive(second))
    assert done["resumed"] and names(done["packages"]) == ["toydata", "toysettings"]
    assert not answer(drive(second))["changed"]


def test_an_extraction_into_the_cache_killed_anywhere_hurts_no_later_prefix(drive, fault_library, place, tmp_path):
    cache, log = tmp_path / "cache", tmp_path / "log"
    arguments = place("libtoy", "toysettings", cache=str(cache))
    log.write_text("")
    counted = drive(arguments, faults.variables(
        fault_library, "none", faults.CHANGES, cache, log=log, counter=tmp_path / "counter"
    ))
    assert answer(counted)["changed"]
    wanted = tree(prefix_of(arguments))
    for at in points(len(log.read_text().splitlines()), 4):
        shutil.rmtree(cache)
        shutil.rmtree(place.release)
        place.release.mkdir()
        (tmp_path / "counter").unlink(missing_ok=True)
        drive(arguments, faults.variables(
            fault_library, "kill", faults.CHANGES, cache, at=at, counter=tmp_path / "counter"
        ))
        answer(drive(arguments))
        assert tree(prefix_of(arguments)) == wanted, at
        assert not answer(drive(dict(arguments, verify="contents")))["changed"], at
