# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""When a compute node is asked what it is like, and how its answer comes back (with steps/remote_query)."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight import node_query
from ansible_collections.hpcml.torchstack.plugins.module_utils.release.records import ReleaseFiles
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps import remote_query

DAY = node_query.FRESH_SECONDS


@pytest.fixture()
def files(tmp_path):
    release = ReleaseFiles(str(tmp_path), "r1")
    os.makedirs(release.afterwards)
    os.makedirs(release.prefix)
    return node_query.Files.of(release)


@pytest.mark.parametrize(("record", "now", "reason"), [
    (None, 0, "no compute node was looked at yet"),
    ([], 0, "no compute node was looked at yet"),
    ({"digest": "b", "judged": 1000}, 1000, "the site's data has changed"),
    ({"digest": "a", "judged": 1000}, 1000, ""),
    ({"digest": "a", "judged": 1000}, 1000 + DAY - 1, ""),
    ({"digest": "a", "judged": 1000}, 1000 + DAY, "the last look was more than a day ago"),
    ({"digest": "a", "judged": 1000}, 999, "the last look was more than a day ago"),
    ({"digest": "a"}, DAY, "the last look was more than a day ago"),
])
def test_a_look_holds_for_a_day_and_for_the_same_data(record, now, reason):
    assert node_query.reason_to_ask(record, "a", now) == reason


def test_the_same_question_is_asked_until_it_is_judged(files):
    first = node_query.ask(files, "a")
    assert node_query.ask(files, "a") == first
    other = node_query.ask(files, "b")
    assert other["nonce"] != first["nonce"] and not os.path.exists(files.nonce(first["nonce"]))
    node_query.forget(files)
    assert os.listdir(files.directory) == []
    assert node_query.ask(files, "b")["nonce"] != other["nonce"]


def test_a_question_whose_file_was_lost_or_torn_is_asked_anew(files):
    first = node_query.ask(files, "a")
    os.unlink(files.nonce(first["nonce"]))
    second = node_query.ask(files, "a")
    assert second != first
    with open(files.request, "w", encoding="utf-8") as stream:
        stream.write('{"nonce": "')
    assert node_query.ask(files, "a") != second


def test_the_step_of_build_step_is_kept_when_questions_are_forgotten(files):
    node_query.ask(files, "a")
    os.mkdir(os.path.join(files.directory, "compute-preflight"))
    node_query.forget(files)
    assert os.listdir(files.directory) == ["compute-preflight"]


def test_the_script_asks_in_any_shell_and_the_answer_comes_back(files, tmp_path):
    asked = node_query.ask(files, "a")
    node = {"tmpdir": str(tmp_path), "module_init": "module() { :; }; x='it is $HOME'", "modules": []}
    wanted = {"prefix": str(tmp_path / "r1"), "node": node, "programs": {"CC": "cc"}, "wait": 0}
    script = node_query.script(files, asked["nonce"], wanted, sys.executable)
    shell = ["/bin/sh", "-euc", script]
    done = subprocess.run(shell, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    facts = node_query.wait_for_answer(files, asked["nonce"], 0)
    assert facts["shared"]["nonce"] == asked["nonce"] and facts["tmpdirs"][-1]["path"] == str(tmp_path)


@pytest.mark.parametrize("content", [None, "", '{"nonce": "', "[]", json.dumps({"nonce": "another one"})])
def test_an_answer_that_is_not_seen_is_waited_for_and_then_refused(files, content):
    asked = node_query.ask(files, "a")
    if content is not None:
        with open(files.answer(asked["nonce"]), "w", encoding="utf-8") as stream:
            stream.write(content)
    with pytest.raises(StackError, match="what it wrote is not seen here after") as raised:
        node_query.wait_for_answer(files, asked["nonce"], 0.3)
    assert "login and compute nodes share" in raised.value.remedy


def test_an_answer_that_is_late_is_waited_for(files, monkeypatch):
    asked = node_query.ask(files, "a")

    def appear(_seconds):
        with open(files.answer(asked["nonce"]), "w", encoding="utf-8") as stream:
            json.dump({"nonce": asked["nonce"]}, stream)

    monkeypatch.setattr(remote_query.time, "sleep", appear)
    assert node_query.wait_for_answer(files, asked["nonce"], 600) == {"nonce": asked["nonce"]}


def test_the_digest_covers_all_that_an_answer_depends_on():
    asked = {"launcher": "slurm", "options": {"cores": 2}, "node": {}, "prefix": "/soft/r1"}
    digests = {node_query.fingerprint(dict(asked, **change)) for change in (
        {}, {"launcher": "pbs"}, {"options": {"cores": 3}}, {"node": {"cores": 3}}, {"prefix": "/soft/r2"})}
    assert len(digests) == 5
