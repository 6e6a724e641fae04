# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How far a rollout is: from its own records, and the durations of the release before."""

from __future__ import annotations

import calendar
import json
import time

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.clock import utc
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.command import progress, releases

NOW = calendar.timegm(time.strptime("2026-11-24 10:10:00", "%Y-%m-%d %H:%M:%S"))


def begun(root):
    root.release("2026-11-20", "2026-11-20T08:15:00Z", {"pytorch": {}, "mpi4py": {}, "horovod": {}})
    for name, seconds in (("base", 30.0), ("mpi4py", 60.0), ("pytorch", 300.0), ("horovod", 900.0)):
        root.step("2026-11-20", name, "2026-11-20T08:00:00Z", seconds)
    root.release("2026-11-24")
    root.lock("2026-11-24")
    root.step("2026-11-24", "base", "2026-11-24T10:00:00Z", 20.0)
    place = root.step("2026-11-24", "mpi4py", "2026-11-24T10:09:20Z")
    (place / "log").write_text("begin\n[ 40%] Building\n")
    return releases.read(str(root.place), "2026-11-24")


def test_it_counts_the_steps_that_this_release_has_and_not_those_of_the_other(root):
    found = progress.look(begun(root), NOW)
    assert (found["step"], found["steps"], found["to_come"]) == (2, 3, ["pytorch"])
    # 20 s of mpi4py, and PyTorch.
    assert found["left_seconds"] == 320.0 and found["expected_by"] == "2026-11-20"


def test_it_says_what_runs_where_for_how_long_and_the_last_line(root):
    said = progress.lines(progress.look(begun(root), NOW))
    assert said[0].startswith("Release 2026-11-24 of site local: in progress, since 2026-11-24 10:00:00 UTC by ")
    assert said[1].startswith("Step 2 of 3: mpi4py, running on ")
    assert said[1].endswith(" 40 % for 40 s, of about 1 min 0 s")
    assert said[2:] == [
        "  [ 40%] Building",
        "So far: 10 min 0 s; about 5 min 20 s more by the steps of release 2026-11-20. To come: pytorch"]


def test_from_another_login_node_a_step_is_said_to_run_where_it_gives_signs_of_life(root):
    root.release("2026-11-24")
    root.step("2026-11-24", "base", "2026-11-24T10:09:20Z", host="login9", boot_id="b9", heartbeat=utc(time.time()))
    said = progress.lines(progress.look(releases.read(str(root.place), "2026-11-24"), NOW))
    assert said[1] == "Step 1: base, running on login9 for 40 s"


def test_the_last_line_is_one_that_says_something(root):
    root.release("2026-11-24")
    place = root.step("2026-11-24", "base", "2026-11-24T10:09:20Z")
    (place / "log").write_text("a.cc:7:1: warning: unused\n    7 | int x;\n      |     ^~ x\n\n")
    found = progress.look(releases.read(str(root.place), "2026-11-24"), NOW)
    assert found["running"][0]["last_line"] == "a.cc:7:1: warning: unused"


def test_without_a_release_before_it_says_that_the_time_is_not_known(root):
    root.release("2026-11-24")
    root.lock("2026-11-24")
    root.step("2026-11-24", "base", "2026-11-24T10:09:20Z")
    found = progress.look(releases.read(str(root.place), "2026-11-24"), NOW)
    assert found["steps"] is None and "is not known" in progress.lines(found)[-1]


def test_a_step_whose_process_is_gone_is_not_said_to_run(root):
    root.release("2026-11-24")
    place = root.step("2026-11-24", "base", "2026-11-24T10:00:00Z")
    job = json.loads((place / "job.json").read_text())
    (place / "job.json").write_text(json.dumps(dict(job, start_time=job["start_time"] + 1)))
    found = progress.look(releases.read(str(root.place), "2026-11-24"), NOW)
    assert found["running"][0]["state"] == "killed" and found["state"] == "unfinished"


def test_a_failed_step_is_told_with_the_lines_that_say_why_and_the_log(root):
    root.release("2026-11-24")
    place = root.step("2026-11-24", "horovod", "2026-11-24T10:00:00Z")
    (place / "log").write_text("cc -c a.c\na.c:1:1: error: unknown type name 'foo'\nmake: *** [all] Error 1\n")
    (place / "exit").write_text(json.dumps({"reason": "exit", "code": 2, "nonce": "n"}))
    found = progress.look(releases.read(str(root.place), "2026-11-24"), NOW)
    said = progress.lines(found)
    assert found["state"] == "failed" and "Failed: Step horovod failed with exit code 2." in said
    assert any("unknown type name 'foo'" in line for line in said) and "Log: %s" % (place / "log") in said


def test_the_newest_release_is_the_one_that_is_rolled_out_now(root):
    root.release("2026-11-20")
    root.lock("2026-11-20")
    root.release("2026-11-24", "2026-11-24T08:15:00Z")
    assert progress.newest(str(root.place)).files.release == "2026-11-20"
