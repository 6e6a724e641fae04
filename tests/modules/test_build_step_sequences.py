# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""build_step in random histories of runs, kills, changes and losses; step_histories.py says what has to hold.

TORCHSTACK_STEP_SEQUENCES says how many are played (15; 1000 take about half an hour), TORCHSTACK_STEP_SEED where they
begin. One is replayed with TORCHSTACK_STEP_SEED=<seed> TORCHSTACK_STEP_SEQUENCES=1: its decisions are the same, its
timing is the machine's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from support import step_histories

SEED = int(os.environ.get("TORCHSTACK_STEP_SEED", "1"))
SEQUENCES = int(os.environ.get("TORCHSTACK_STEP_SEQUENCES", "15"))
LANES = 3
"""Worlds that are played at the same time: most of their time is sleep."""


@pytest.fixture(name="play")
def play_worlds(fault_library, tmp_path):
    """Play numbers in a world with faults planted in the product; returns what was found, at least one number each."""

    def play(first, count, *changes, how=()):
        place = tmp_path / ("play-%d" % len(list(tmp_path.iterdir())))
        copy = step_histories.copy_collection(place / "copy", *changes)
        environment = dict(os.environ, PYTHONPATH=str(copy))
        lanes = []
        for lane in range(min(LANES, count)):
            scratch = place / str(lane)
            scratch.mkdir()
            numbers = [str(first + lane), str(count - lane), str(LANES)]
            command = [sys.executable, step_histories.__file__, str(scratch), str(fault_library), *numbers, *how]
            lanes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
        answers = []
        for lane in lanes:
            output = lane.communicate()[0]
            assert lane.returncode == 0
            answers += [json.loads(line) for line in output.splitlines()]
        return answers

    return play


def bad(answers):
    """What was found, readable; a seed with its whole history."""
    return [
        "\n".join([
            "number %d:" % answer["seed"], *answer["found"], "-- history", *answer["history"], "-- journal",
            *answer["journal"],
        ])
        for answer in answers if answer["found"]
    ]


def test_any_history_of_runs_kills_and_changes_ends_well(play):
    answers = play(SEED, SEQUENCES)
    assert not bad(answers), "\n\n".join(bad(answers))
    assert len(answers) == SEQUENCES
    assert SEQUENCES < 50 or sum(answer["killed"] for answer in answers) > SEQUENCES / 4, "kills must meet something"


@pytest.mark.parametrize("who, action", [
    ("controller", "kill"), ("supervisor", "kill"), ("controller", "torn"), ("supervisor", "torn"),
])
def test_killed_at_any_change_of_a_file_the_next_run_completes_the_step(play, who, action):
    count = play(0, 1, how=(who, action))[0]["changes"]
    assert count >= 5
    # Heartbeats come when they come, so that the numbers of two runs differ a little.
    answers = play(1, count + 2, how=(who, action))
    assert not bad(answers), "\n\n".join(bad(answers))
    assert len(answers) == count + 2


EARLY = ("steps/supervisor", "            outcome = self.attempt()\n", """\
            self.keep(self.files.stamp, stamp_of(self.job, Outcome("done"), "", None)._asdict(), 0)
            outcome = self.attempt()
""")
WHATEVER_THE_OUTCOME = (
    "steps/supervisor", 'if outcome.reason == "done":\n            made = self.produced',
    "if True:\n            made = self.produced",
)
NO_DIGEST = ("steps/records", " and self.stamp.digest == digest", "")
NO_FLOCK = ("steps/lock", "fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)\n", "pass\n")
NO_CLAIM = ("steps/lock", "os.link(mine, self.claim)", "os.stat(mine)")
NO_OWNER = (
    ("steps/supervised_job", "if job is None or job.nonce != nonce:", "if job is None:"),
    ("steps/supervised_job", "if not self.job.is_same(record):", "if record is None:"),
)
LINGERING = ("steps/start", "nonce, warnings = launch_attempt(", "time.sleep(0.5); nonce, warnings = launch_attempt(")
NO_CLEARING = ("steps/start", 'if found.state.name == "leftover" and job', "if False and job")


@pytest.mark.parametrize("changes, expected", [
    ([EARLY], "which has not ended well"),
    ([WHATEVER_THE_OUTCOME], "which has not ended well"),
    ([NO_DIGEST], "is unchanged"),
], ids=["stamps-early", "stamps-any-outcome", "compares-no-digest"])
def test_a_planted_fault_is_found_out_by_random_histories(play, changes, expected):
    found = [text for answer in play(1, 60, *changes) for text in answer["found"]]
    assert any(expected in text for text in found)


STORIES = pytest.mark.parametrize("story, changes", [
    ("together", [NO_FLOCK, NO_CLAIM, *NO_OWNER, LINGERING]), ("orphan", [NO_CLEARING]),
], ids=["locks-nothing", "leaves-old-jobs"])


@STORIES
def test_a_history_known_to_be_a_trap_ends_well(play, story, changes):
    answers = play(1, 3, how=(story,))
    assert not bad(answers), "\n\n".join(bad(answers))


@STORIES
def test_a_planted_fault_is_found_out_by_the_history_that_is_its_trap(play, story, changes):
    """The planted fault keeps its door open for half a second; on a busy machine that may take more than one try."""
    found = [text for answer in play(1, 60, *changes, how=(story,)) for text in answer["found"]]
    assert any("two jobs at once" in text for text in found)
