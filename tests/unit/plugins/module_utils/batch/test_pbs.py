# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Answers of qstat, as they are and as they should not be."""

from __future__ import annotations

import json
import pathlib

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.pbs import parse_jobs

RECORDS = pathlib.Path(__file__).parents[4] / "pbs" / "records"

ANSWER = """{
    "timestamp":1795266450,
    "pbs_version":"23.06.06",
    "pbs_server":"server",
    "Jobs":{
        "1.server":{
            "Job_Name":"first",
            "Resource_List":{
                "ncpus":1
            },
            "Variable_List":{
                "SPOILT":%s,
                "AFTER":"after"
            },
            "Exit_status":-29
        },
        "2.server":{
            "Job_Name":"second"
        }
    }
}"""


@pytest.mark.parametrize(
    "value",
    [
        '"fine"', '"a\\"', '"a\\\\" b"', '"a\\d"', '"\x1b[1m\x01"', "inf", "nan", "0x10", "00", ".5", "+1", '"a "b" c"',
        '"{"', '"},"', '"a","b":"c"', '"\u2028\x85\x0c"',
    ],
)
def test_one_spoilt_value_costs_no_other(value):
    jobs = parse_jobs(ANSWER % value)
    assert list(jobs) == ["1.server", "2.server"]
    assert jobs["1.server"]["Job_Name"] == "first"
    assert jobs["1.server"]["Resource_List"] == {"ncpus": 1}
    assert jobs["1.server"]["Variable_List"]["AFTER"] == "after"
    assert jobs["1.server"]["Exit_status"] == -29
    assert jobs["2.server"] == {"Job_Name": "second"}


def test_an_answer_without_jobs_is_an_answer():
    assert parse_jobs('{\n    "timestamp":1,\n    "pbs_version":"23.06.06",\n    "pbs_server":"server"\n}') == {}


@pytest.mark.parametrize("text", ["", "no server", "{}", "[]", "null", '{"timestamp": 1}', "Job id  Name"])
def test_what_is_no_answer_is_not_taken_for_one(text):
    assert parse_jobs(text) is None


def test_every_recorded_answer_is_understood():
    exchanges = [
        exchange for path in sorted(RECORDS.glob("*/*.json")) for exchange in json.loads(path.read_text())["exchanges"]
        if exchange["command"][0] == "qstat" and '"Jobs"' in exchange["stdout"]
    ]
    assert exchanges
    for exchange in exchanges:
        (job,) = parse_jobs(exchange["stdout"]).values()
        assert job["Job_Name"] == "@JOB_NAME@" and job["job_state"] in "QHRESF", exchange["moment"]


def test_the_records_hold_answers_that_are_no_json():
    def is_json(text):
        try:
            json.loads(text, strict=False)
        except ValueError:
            return False
        return True

    spoilt = json.loads((sorted(RECORDS.iterdir())[0] / "spoilt.json").read_text())["exchanges"]
    assert any(item["command"][0] == "qstat" and item["stdout"] and not is_json(item["stdout"]) for item in spoilt)
