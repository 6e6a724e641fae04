# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The record of an end, and the sentence about it; of jobs it is that of batch/outcomes."""

from __future__ import annotations

import json

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.files import step_files
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.outcome import (
    Outcome,
    describe_outcome,
    outcome_of_status,
)


@pytest.mark.parametrize(
    "end, words",
    [
        (Outcome.of("signal", signal=9), "signal 9"),
        (Outcome.of("timeout", limit=2.5), "after 2.5 s (timeout)"),
        (Outcome.of("no_output_timeout", limit=60.0), "nothing for 60 s"),
        (Outcome.of("stopped", signal=15), "asked to by signal 15"),
        (Outcome.of("creates", missing=["/a", "/b"]), "did not create /a, /b"),
        (Outcome.of("error", error="disk full"), "disk full"),
    ],
    ids=str,
)
def test_every_end_has_its_words(end, words):
    assert words in describe_outcome("s", end)


def test_an_end_that_a_scheduler_reports_is_described_in_its_terms():
    end = Outcome.of("node_failed", job_id="12", scheduler="PBS", words="job_state F", detail="", node="n1", advice="")
    assert describe_outcome("s", end) == "job 12 of step s lost its node (PBS: job_state F, node n1)"
    end = Outcome.of("requeued", job_id="12", scheduler="slurm", count=2, limit=1)
    assert "put back 2 times, and requeue allows 1" in describe_outcome("s", end)


def test_a_wait_status_is_an_end():
    assert outcome_of_status(0) == Outcome.of("done", code=0)
    assert outcome_of_status(3 << 8) == Outcome.of("exit", code=3)
    assert outcome_of_status(9) == Outcome.of("signal", signal=9)


def test_an_end_is_written_with_its_facts_beside_it_and_read_again(tmp_path):
    files = step_files(str(tmp_path), "s")
    (tmp_path / "s").mkdir()
    end = Outcome.of("killed", code=None, signal=9, words="FAILED", scheduler="Slurm")
    end._replace(finished="2026-11-20T00:00:00Z", seconds=1.5).write(files, "n1")
    text = (tmp_path / "s" / "exit").read_text()
    assert text == json.dumps({
        "code": None, "finished": "2026-11-20T00:00:00Z", "nonce": "n1", "reason": "killed", "scheduler": "Slurm",
        "seconds": 1.5, "signal": 9, "words": "FAILED",
    }, indent=2) + "\n"
    read = Outcome.read(files)
    assert (read.reason, read.nonce, read.seconds, read.facts["code"]) == ("killed", "n1", 1.5, None)
    read.write(files, "n1")
    assert (tmp_path / "s" / "exit").read_text() == text


def test_facts_can_be_added_to_an_end_and_may_replace_its_reason():
    end = Outcome.of("stopped", signal=15).with_facts(reason="cancelled", words="on request")
    assert end == Outcome("cancelled", {"signal": 15, "words": "on request"})
