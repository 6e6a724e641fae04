# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Whether a release may be retired, and what its users are told.

Covers retire_checks, too.
"""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import retire, retire_checks
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.retire import Facts, Rules, Words
from ansible_collections.hpcml.torchstack.plugins.module_utils.release.states import ReleaseState
from ansible_collections.hpcml.torchstack.plugins.module_utils.standalone import removal

NOW = "2026-12-01T12:00:00Z"
EVERYWHERE, NOWHERE = {"tcl": True, "lmod": True}, {"tcl": False, "lmod": False}
QUIET = {
    "host": "login01", "in_use": False, "process_count": 0, "processes": [], "held_count": 0, "held": [], "unseen": [],
}
DAYS = Rules(minimum_age=30, notice_days=14)


def facts(record=None, **more):
    given = {
        "root": "/soft", "release": "2026-05-02", "prefix": "/soft/2026-05-02",
        "frozen": {"frozen_at": "2026-05-02T12:00:00Z"}, "name": "torchstack", "version": "2026-05-02",
        "visible": EVERYWHERE, "default": NOWHERE, "hidden": NOWHERE, "deprecated": "", "gone": NOWHERE,
        "retired": record, "thawed": None, "defaulted_at": "",
    }
    return Facts(ReleaseState(**dict(given, **more)), record or {}, "2026-11-20", removal.Amount())


TOLD = {"state": "deprecated", "since": "2026-11-01T12:00:00Z", "told_at": "2026-11-01T12:00:00Z",
        "until": "2026-11-15", "reason": "", "successor": "2026-11-20"}


def problems(of, to="removed", rules=DAYS, uses=(QUIET,)):
    return retire_checks.find_problems(of, to, rules, uses, NOW)


def test_a_release_whose_users_were_told_in_time_may_be_removed():
    assert problems(facts(TOLD)) == []


@pytest.mark.parametrize("to", ["deprecated", "hidden", "removed"])
def test_the_default_of_any_module_system_is_not_retired(to):
    (problem,) = problems(facts(TOLD, default={"tcl": False, "lmod": True}), to)
    assert problem.startswith("It is the default of Lmod:")


def test_a_young_release_is_not_retired():
    (problem,) = problems(facts(TOLD, frozen={"frozen_at": "2026-11-02T12:00:00Z"}))
    assert problem == "It was frozen at 2026-11-02T12:00:00Z, 29.0 days ago, and retire_minimum_age is 30 days."


def test_users_have_to_be_told_first():
    (problem,) = problems(facts())
    assert "have not been told" in problem
    assert "(playbooks/retire.yml -e torchstack_release=2026-05-02 -e retire_to=deprecated)" in problem


def test_users_are_given_their_time():
    (problem,) = problems(facts(dict(TOLD, told_at="2026-11-20T12:00:00Z")))
    assert "11.0 days ago, and retire_notice_days is 14" in problem


def test_users_are_given_the_time_that_they_were_told():
    (problem,) = problems(facts(dict(TOLD, until="2026-12-02")))
    assert "stays until 2026-12-02" in problem and "retire_notice_days=0" in problem
    assert problems(facts(dict(TOLD, until="2026-12-01"))) == []
    assert problems(facts(dict(TOLD, until="2026-12-02")), rules=Rules()) == []


@pytest.mark.parametrize("until", ["soon", "2026-13-01", "2026-12-4", "4.12.2026"])
def test_users_are_told_no_day_that_is_none(until):
    retire.require_date("")
    retire.require_date("2026-12-04")
    with pytest.raises(StackError, match="retire_until is '%s', which is no date" % until):
        retire.require_date(until)


def test_no_days_ask_for_nothing():
    assert problems(facts(frozen={"frozen_at": NOW}), rules=Rules()) == []


def test_a_release_that_nobody_sees_needs_no_notice_and_gets_none():
    unseen = facts(visible=NOWHERE)
    assert problems(unseen) == []
    (problem,) = problems(unseen, "deprecated")
    assert "retire_to=removed" in problem


def test_a_thawed_release_is_not_retired():
    (problem,) = problems(facts(TOLD, thawed={"at": "2026-11-30T08:00:00Z"}))
    assert problem.startswith("It is thawed since 2026-11-30T08:00:00Z")
    assert "(playbooks/thaw.yml -e torchstack_release=2026-05-02 -e thaw_state=refrozen)" in problem


def test_everything_against_it_is_said_at_once():
    used = dict(QUIET, in_use=True, held_count=1, held=["/soft/x"])
    found = problems(facts(default=EVERYWHERE, frozen={"frozen_at": NOW}), uses=(used,))
    assert [text.partition(" ")[0] for text in found] == ["It", "It", "Its", "On"]
    error = retire_checks.refusal_error(facts(), found)
    assert error.message.startswith(
        "Release 2026-05-02 is not retired. (1) It is the default of Environment Modules and Lmod")
    assert error.details["problems"] == found


USE = {
    "pid": 4711, "account": "alice", "command": "python3 train.py", "how": "mapped", "path": "/soft/2026-05-02/libx.so",
}


def test_who_uses_it_is_named():
    (problem,) = problems(facts(TOLD), uses=(dict(QUIET, in_use=True, process_count=1, processes=[USE], held_count=1),))
    assert problem == (
        "On login01, 1 process uses it: 4711 of alice, python3 train.py (mapped /soft/2026-05-02/libx.so).")


def test_its_use_does_not_keep_it_from_being_deprecated_or_hidden():
    used = dict(QUIET, in_use=True, process_count=1, processes=[USE])
    assert problems(facts(), "deprecated", uses=(used,)) == problems(facts(), "hidden", uses=(used,)) == []


def test_open_files_of_processes_that_are_not_seen_forbid_it_too():
    (problem,) = problems(facts(TOLD), uses=(dict(QUIET, in_use=True, held_count=2, held=["/soft/x", "/soft/y"]),))
    assert problem.startswith(
        "On login01, 2 of its files are open in processes that this account may not see, such as /soft/x")


@pytest.mark.parametrize("host", [
    dict(QUIET, unseen=["whether 214 processes of other accounts use it: its file system has no leases"]),
    {"item": "login01", "unreachable": True, "msg": "Failed to connect"},
    {"item": "login01", "failed": False, "msg": "MODULE FAILURE"},
])
def test_what_could_not_be_seen_forbids_it_unless_there_is_a_reason(host):
    (problem,) = problems(facts(TOLD), uses=(host,))
    assert "login01" in problem and "retire_unseen" in problem
    assert problems(facts(TOLD), rules=DAYS._replace(unseen="all users have gone"), uses=(host,)) == []


def test_no_reason_goes_for_what_was_seen():
    rules = DAYS._replace(unseen="all users have gone")
    assert problems(facts(TOLD), rules=rules, uses=(dict(QUIET, in_use=True, process_count=1, processes=[USE]),))


@pytest.mark.parametrize("record", [dict(TOLD, state="removed"), dict(TOLD, state="removing", deleting=True)])
def test_what_has_begun_to_go_is_completed_and_not_taken_back(record):
    late = facts(record, default=EVERYWHERE)
    assert problems(late) == []
    (problem,) = problems(late, "hidden")
    assert problem.endswith("since 2026-11-01T12:00:00Z, which nothing takes back.")


def test_a_mount_point_or_a_directory_of_another_account_forbids_it():
    found = facts(TOLD)
    found.amount.mounts += ["/soft/2026-05-02/data"]
    found.amount.foreign += ["/soft/2026-05-02/a", "/soft/2026-05-02/b"]
    first, second = problems(found)
    assert first.startswith("/soft/2026-05-02/data is a mount point")
    assert second.startswith("/soft/2026-05-02/a belongs to another account") and "(and 1 more)" in second


def record(of, to, reason=""):
    return retire.retirement_record(of, to, Words(reason=reason), DAYS, NOW)


def test_users_are_told_until_when_and_what_to_load():
    found = record(facts(), "deprecated", "CUDA 11 is no longer supported.")
    assert (found["told_at"], found["until"], found["successor"]) == (NOW, "2026-12-16", "2026-11-20")
    assert retire.load_message(facts(), found) == (
        "torchstack/2026-05-02 is deprecated and will be removed after 2026-12-16: CUDA 11 is no longer supported. "
        "Please load torchstack/2026-11-20 instead.")


def test_what_was_said_stays_when_it_is_said_again():
    assert record(facts(TOLD), "deprecated") == TOLD
    hidden = record(facts(TOLD), "hidden")
    assert hidden == dict(TOLD, state="hidden", since=NOW)


def test_the_last_word_is_that_it_was_retired():
    going = record(facts(TOLD), "removed")
    assert retire.load_message(facts(TOLD), going) == (
        "torchstack/2026-05-02 was retired on 2026-12-01. Please load torchstack/2026-11-20 instead.")


def test_a_release_is_not_its_own_successor():
    assert record(facts(version="2026-11-20"), "deprecated")["successor"] == ""


def test_a_site_s_own_sentence_is_taken():
    assert retire.load_message(facts(), record(facts(), "deprecated"), "Ask us.") == "Ask us."


@pytest.mark.parametrize("time, days, day", [
    ("2026-12-01T12:00:00Z", 14, "2026-12-16"), ("2026-12-01T00:00:00Z", 14, "2026-12-15"),
    ("2026-12-01T12:00:00Z", 0, "2026-12-02"),
])
def test_the_date_is_the_first_on_which_all_days_have_gone_by(time, days, day):
    assert retire.day_after(time, days) == day


def test_what_is_kept_has_no_record_any_more_and_nothing_speaks_against_it():
    assert record(facts(TOLD), "kept") == {} and problems(facts(TOLD, frozen={"frozen_at": NOW}), "kept") == []
    (problem,) = problems(facts(dict(TOLD, state="removed")), "kept")
    assert problem.startswith("It is removed since")
