# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Following a job, played on a clock that passes only when somebody sleeps."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.clock import utc
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps import follow as follow_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.follow import Follow
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.poll import Snapshot

from .step_records import job_record

TODAY = "2026-11-20"
RUNNING = {
    "step": "horovod", "nonce": "n", "host": "login01", "pid": 7, "log": "/s/log", "state": "running", "seconds": 1.0,
    "progress": {"text": "horovod  1 s"}, "job_id": None,
}
QUEUE = {"job_id": "4711", "state": "pending", "reason": "Priority", "position": 3, "of": 17, "estimated_start": ""}
QUEUED = dict(RUNNING, host=None, pid=None, job_id="4711", queue=QUEUE)
STARTED = dict(RUNNING, host="nid001", job_id="4711", node="nid001")


def seen(beat, progress=None, ended=False, size=10**9, host="nid001", **more):
    return Snapshot(job_record(nonce="n", heartbeat=beat, host=host, **more), ended, size, progress)


class Play:
    """A job, how it shows itself, and who follows it."""

    def __init__(self, first, snapshot, answer=lambda now: STARTED):
        """Begin.

        Args:
            first: the first result.
            snapshot: what a poll shows at a second.
            answer: what the module finds at a second.
        """
        self.snapshot, self.answer = snapshot, answer
        self.now = 0.0
        self.follow = Follow(first, self.now)
        self.polled: list = []
        self.asked: list = []
        self.lines: list = []
        self.tell()

    def tell(self):
        self.lines += [(self.now, line) for line in self.follow.lines(self.now, TODAY)]

    def until(self, second):
        while self.now < second:
            self.now += self.follow.next_interval()
            self.polled.append(self.now)
            if self.follow.see(self.snapshot(self.now), self.now):
                self.asked.append(self.now)
                self.follow.learn(self.answer(self.now), self.now)
            self.tell()
        return self

    def gaps(self):
        return [after - before for before, after in zip(self.asked, self.asked[1:])]

    def said(self, text):
        return [now for now, line in self.lines if text in line]


def beats(now, offset=1700000000.0):
    """A heartbeat every five seconds, by a clock of its own."""
    return utc(offset + now // 5 * 5)


def test_a_plain_build_is_polled_only():
    play = Play(RUNNING, lambda now: seen(beats(now))).until(3600)
    assert play.asked == []
    assert len(play.polled) < 3600 / follow_module.MAX_INTERVAL + 10


def test_a_job_that_builds_is_asked_about_now_and_then():
    """Its scheduler may have given up a node that still beats."""
    play = Play(STARTED, lambda now: seen(beats(now))).until(3600)
    calm, late = follow_module.CALM_SECONDS, follow_module.MAX_INTERVAL + 0.1
    assert len(play.asked) > 10
    assert all(calm <= gap <= calm + late for gap in play.gaps())


def test_seventeen_minutes_of_queue_ask_the_scheduler_rarely_and_are_few_lines():
    play = Play(QUEUED, lambda now: seen("b", phase="starting"), lambda now: QUEUED).until(17 * 60)
    gaps = play.gaps()
    assert play.asked[0] >= 10
    assert min(gaps) >= 10
    assert 55 < gaps[-1] < 75, "sixty seconds and up to one interval between polls"
    assert len(play.asked) < 25
    assert len(play.lines) < 10
    assert play.lines[0] == (0.0, "horovod  job 4711 pending (Priority), position 3 of 17")


def test_a_change_in_the_queue_is_shown_with_the_answer_that_brings_it():
    held = dict(QUEUED, queue=dict(QUEUE, state="held", reason="JobHeldUser"))
    play = Play(QUEUED, lambda now: seen("b", phase="starting"), lambda now: held if now > 300 else QUEUED).until(600)
    (shown,) = {now for now, line in play.lines if "held (JobHeldUser)" in line and now < 400}
    assert shown in play.asked


def test_the_start_is_seen_by_a_poll_and_progress_follows():
    def snapshot(now):
        if now < 200:
            return seen("b", phase="starting", host="login01")
        return seen(beats(now), {"percent": int(now - 200) // 10})

    play = Play(QUEUED, snapshot, lambda now: QUEUED).until(400)
    (started,) = play.said("job 4711 started on nid001")
    assert not play.said("started again")
    assert 200 <= started <= 200 + follow_module.MAX_QUEUE_INTERVAL
    assert not [now for now in play.asked if now > started]
    times = [line.split("  ")[-1] for now, line in play.lines if now > started]
    assert times[0] in ("%d s" % second for second in range(10, 17)), "counted from the start, not from the submission"
    assert play.lines[-1][1].startswith("horovod  19 %  3 min")
    assert play.follow.whereabouts().startswith("Step horovod goes on without the controller on host nid001 (pid 7")


def test_the_start_is_known_from_the_module_too():
    play = Play(QUEUED, lambda now: seen("b", phase="starting"), lambda now: STARTED).until(60)
    assert len(play.said("job 4711 started on nid001")) == 1


def test_a_job_that_is_put_back_waits_again_until_its_next_supervisor_speaks():
    """The record of its first start stays until the second one."""
    def snapshot(now):
        if now < 100:
            return seen(beats(now), {"percent": 80})
        if now < 700:
            return seen(beats(100), {"percent": 80})
        return seen(beats(now), {"percent": 5} if now > 720 else None, host="nid002")

    requeued = dict(QUEUED, host="nid001", queue=dict(QUEUE, state="requeued", reason="NODE_FAIL"))
    play = Play(STARTED, snapshot, lambda now: requeued).until(900)
    assert play.lines[0] == (0.0, "horovod  job 4711 runs on nid001")
    (again,) = {now for now, line in play.lines if "requeued (NODE_FAIL)" in line and now < 150}
    assert again - 100 < follow_module.STALE_SECONDS + 2 * follow_module.MAX_INTERVAL
    (started,) = play.said("started on nid002")
    assert 700 <= started <= 710
    assert not [line for now, line in play.lines if now > started and "80 %" in line]
    assert play.said("5 %")
    assert len(play.asked) < 20


def test_a_lost_node_that_still_beats_is_not_where_the_job_starts_again():
    """Slurm gives the job to nid002, whose supervisor waits for the one of nid001, which the scheduler has lost."""
    def answer(now):
        if now < 150:
            return dict(QUEUED, host="nid001", pid=7, queue=dict(QUEUE, state="requeued", reason="NodeFail"))
        return dict(STARTED, host="nid001", node="nid001", pid=7)

    def snapshot(now):
        return seen(beats(now) if not 60 < now < 110 else beats(60), host="nid001" if now < 400 else "nid002")

    play = Play(STARTED, snapshot, answer).until(500)
    assert play.said("requeued (NodeFail)")
    assert play.said("job 4711 starting")
    assert not play.said("started on nid001")
    (started,) = play.said("started on nid002")
    assert 400 <= started < 420


AGAIN = dict(STARTED, node=None, queue={"job_id": "4711", "state": "starting", "node": "nid002", "former": "nid001"})


@pytest.mark.parametrize("first", [STARTED, AGAIN], ids=["followed", "attached-to"])
def test_a_job_that_has_started_again_says_where_and_what_it_waits_for(first):
    """Not the node of the record, which is that of the former build, until the new one has written its own."""
    def snapshot(now):
        return seen(beats(20)) if now < 120 else seen(beats(now), host="nid002")

    play = Play(first, snapshot, lambda now: AGAIN).until(300)
    waits = play.said("job 4711 started again on nid002 and waits until its former build on nid001 is surely gone")[0]
    (started,) = play.said("job 4711 started on nid002")
    assert waits < 60 < 120 <= started
    assert not [line for now, line in play.lines if now >= waits and "on nid001" in line and "former" not in line]


@pytest.mark.parametrize("ended", [False, True], ids=["by-a-poll", "by-the-module"])
def test_a_job_that_starts_again_at_once_says_so(ended):
    """The module looks where the first start has left the record of its end."""
    def snapshot(now):
        if now < 100:
            return seen(beats(now))
        return seen(beats(now), ended=ended and now < 110, host="nid002")

    play = Play(STARTED, snapshot, lambda now: dict(STARTED, host="nid002", node="nid002")).until(200)
    (again,) = play.said("job 4711 started again on nid002")
    assert 100 <= again < 100 + 2 * follow_module.MAX_INTERVAL
    assert bool(play.asked) == ended


def test_a_job_that_is_attached_to_says_where_it_runs():
    assert Play(STARTED, lambda now: seen(beats(now))).lines == [(0.0, "horovod  job 4711 runs on nid001")]
    assert Play(RUNNING, lambda now: seen(beats(now))).lines == []


@pytest.mark.parametrize("hours", [-9, 0, 9])
def test_a_live_job_whose_clock_is_hours_off_is_polled_only_and_its_length_is_right(hours):
    begun = 1700000000.0 + 3600 * hours

    def snapshot(now):
        return seen(beats(now, begun), {"percent": int(now) % 100}, begun=utc(begun))

    play = Play(dict(RUNNING, seconds=abs(3600.0 * hours)), snapshot).until(1000)
    assert play.asked == []
    assert play.lines[-1][1].endswith("16 min")


@pytest.mark.parametrize("hours", [-9, 0, 9])
def test_a_dead_job_whose_clock_is_hours_off_is_asked_about_soon(hours):
    last = utc(1700000000.0 + 3600 * hours)
    play = Play(RUNNING, lambda now: seen(last), lambda now: RUNNING).until(600)
    assert follow_module.STALE_SECONDS <= play.asked[0] < follow_module.STALE_SECONDS + 10
    assert play.gaps()[-1] <= follow_module.DOUBT.longest + follow_module.MAX_INTERVAL
    assert play.follow.unchanged(play.now) > 590


def test_a_file_system_that_shows_every_change_a_minute_late_is_not_asked_about_for_ever():
    play = Play(RUNNING, lambda now: seen(beats(now // 60 * 60)), lambda now: RUNNING).until(3600)
    assert len(play.asked) < 10
    assert max(play.asked) < 130


def test_the_record_of_an_end_is_asked_about_at_once():
    play = Play(RUNNING, lambda now: seen(beats(now), ended=now > 60)).until(66)
    assert 60 < play.asked[0] < 60 + follow_module.MAX_INTERVAL + 0.1


def test_an_end_in_the_queue_is_asked_about_at_once():
    play = Play(QUEUED, lambda now: seen("b", phase="starting", ended=now > 300), lambda now: QUEUED).until(320)
    assert [now for now in play.asked if 300 < now <= 300 + follow_module.MAX_QUEUE_INTERVAL]


def test_what_stays_in_doubt_is_asked_about_ever_more_rarely():
    play = Play(RUNNING, lambda now: None, lambda now: RUNNING).until(600)
    assert play.asked[0] == follow_module.FIRST_INTERVAL
    gaps = play.gaps()
    assert all(after > before - follow_module.MAX_INTERVAL for before, after in zip(gaps, gaps[1:]))
    assert gaps[-1] >= follow_module.DOUBT.longest


def test_a_scheduler_that_does_not_answer_ends_nothing_for_half_an_hour():
    follow = Follow(QUEUED, 0.0)
    now, asked = 0.0, []
    while True:
        now += follow.next_interval()
        if follow.see(seen("b", phase="starting"), now):
            asked.append(now)
            if not follow.unanswered(now):
                break
    assert follow_module.SCHEDULER_PATIENCE <= now < follow_module.SCHEDULER_PATIENCE + 80
    assert len(asked) < 40
    assert "waits in the queue as job 4711" in follow.whereabouts()


def test_marks_of_an_attempt_whose_place_in_the_log_is_not_known_yet_do_not_count():
    follow = Follow(RUNNING, 0.0)
    assert not follow.see(seen("a", {"percent": 99}, log_offset=500), 1.0)
    assert "percent" not in follow.progress
    assert follow.log_start == 500
    assert not follow.see(seen("a", {"percent": 3}, log_offset=500), 2.0)
    assert follow.progress["percent"] == 3


def test_a_log_that_is_seen_to_shrink_is_an_older_view_of_it():
    follow = Follow(RUNNING, 0.0)
    shown = []
    for now, (size, percent) in enumerate([(10, 1), (500, 60), (200, 20), (0, None), (499, 59), (900, 90)]):
        follow.see(seen("a", percent and {"percent": percent}, size=size), float(now))
        shown.append(follow.progress.get("percent"))
    assert shown == [1, 60, 60, 60, 60, 90]
