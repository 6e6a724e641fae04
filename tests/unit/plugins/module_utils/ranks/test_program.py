# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The program of a rank: that it travels whole, and what it does where hardware or a library is missing."""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import time
import zipfile

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import output as acceptance_output
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.zipapp import program_archive
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import output as rank_output
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import program as rank_program
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks.rank_errors import Refused, Unusable

ALONE = {"PMI_RANK": "0", "PMI_SIZE": "1", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}
QUESTION = {"prefix": "/r", "imports": [], "checks": [], "where_possible": [], "patience": 5}


def parts():
    with zipfile.ZipFile(io.BytesIO(program_archive(rank_program))) as bundle:
        return {name: bundle.read(name).decode("utf-8") for name in bundle.namelist()}


def test_the_program_compiles_on_the_oldest_python_of_a_target():
    for name, source in parts().items():
        ast.parse(source, name, feature_version=(3, 8))
        assert "removeprefix" not in source and "removesuffix" not in source, name


def test_the_same_program_is_the_same_file_so_that_the_same_question_is_known_again():
    assert program_archive(rank_program) == program_archive(rank_program)


def test_the_archive_has_all_that_it_imports_and_reports_without_pytorch(tmp_path):
    program, question = tmp_path / "ranks.pyz", tmp_path / "question.json"
    program.write_bytes(program_archive(rank_program))
    question.write_text(json.dumps(dict(QUESTION, where_possible=["torch_nccl", "mpi4py"])))
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(program), str(question), str(time.time() + 60)], capture_output=True,
        text=True, check=False, env={**ALONE, "TMPDIR": str(tmp_path)},
    )
    heard = acceptance_output.hear(done.stdout)
    assert done.returncode == 0 and len(heard.reports) == 1, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["question.json", "ranks.pyz"], "NCCL's log is removed"
    assert [(entry["name"], entry["status"]) for entry in heard.reports[0]["checks"]] == [
        ("placement", "passed"), ("imports", "passed"), ("start", "passed"), ("devices", "passed"),
        ("torch_nccl", "skipped"), ("mpi4py", "skipped"),
    ]


def rank(**place):
    made = rank_program.Rank(QUESTION, time.time() + 60)
    made.report.update({"rank": 0, "size": 2, "host": "n1"}, **place)
    return made


class Meeting:
    def __init__(self, *devices):
        self.everyone = [{"host": "n1", "rank": number, "device": device} for number, device in enumerate(devices)]

    def exchange(self, thing):
        return self.everyone


GPU = {"kind": "gpu", "index": 0, "bus": "0000:07:00", "uuid": "u-0"}
CORES = {"kind": "cpu", "cpus": "0", "numa": "0"}


@pytest.mark.parametrize(("devices", "used", "said"), [
    ((GPU, dict(GPU, uuid="u-1")), True, []),
    ((GPU, GPU), False, ["ranks 0 and 1 use the same GPU u-0"]),
    ((GPU, dict(GPU, uuid="u-1"), dict(GPU, uuid="u-1")), False, []),
    ((CORES, GPU), False, ["it has no GPU, others have"]),
    ((GPU, CORES), False, []),
    ((CORES, CORES), False, []),
])
def test_s07_gpus_are_used_only_where_every_rank_has_one_and_each_says_what_is_wrong_with_its_own(devices, used, said):
    one = rank(device=devices[0])
    one.meeting = Meeting(*devices)
    one.meet()
    assert (one.gpu, one.problems) == (used, said)


def test_a_rank_that_has_met_nobody_refuses_to_exchange():
    with pytest.raises(Refused):
        rank().met()


def test_s40_without_a_gpu_a_graph_is_not_replayed_and_the_reason_is_said():
    one = rank()
    one.check("cuda_graph_replay", one.cuda_graph_replay)
    assert (one.entry["status"], one.entry["note"]) == ("skipped", "no rank has a GPU")
    with pytest.raises(Unusable):
        one.torch_nccl()


def test_s40_a_stream_that_cannot_be_captured_fails_the_check_with_what_cuda_says():
    def capture():
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    one = rank()
    with pytest.raises(RuntimeError):
        one.check("cuda_graph_replay", capture)
    assert one.entry["status"] == "failed"
    assert one.entry["problems"] == ["RuntimeError: CUDA error: operation not permitted when stream is capturing"]


def test_what_a_backend_lacks_is_kept_beside_its_note():
    one = rank()
    one.check("horovod", lambda: one.keep(rank_program.rank_collectives.Outcome("n", {"send_recv": "it has none"})))
    assert one.entry["note"] == "n" and one.entry["lacks"] == {"send_recv": "it has none"}


@pytest.mark.parametrize(("measure", "backend", "asked"), [
    ({}, "gloo", False), ({"operations": ["all_reduce"]}, "gloo", True), ({"backends": ["nccl"]}, "gloo", False),
    ({"backends": []}, "gloo", True),
])
def test_a_backend_is_measured_where_the_question_asks_for_it(monkeypatch, measure, backend, asked):
    seen = []

    def measure_in_group(*given, **more):
        seen.append(given)
        return {"measurements": [1], "latency": [2], "latency_left_out": "there is one rank"}

    monkeypatch.setattr(rank_program.rank_bandwidth, "measure_in_group", measure_in_group)
    one = rank()
    one.question = dict(QUESTION, measure=measure)
    one.entry, one.modules["torch"] = {"name": "torch_gloo"}, "torch"
    one.measure(backend, "cpu")
    assert seen == ([("torch", "gloo", "cpu", 0, 2, measure)] if asked else [])
    left = ["The latency over gloo was not measured: there is one rank."]
    assert one.report["measured"] == ({"measurements": [1], "latency": [2], "left_out": left} if asked else {})


def test_messages_of_other_kinds_are_heard_in_order_and_a_broken_one_is_not(capfd):
    output = rank_output.Output({"host": "n1", "pid": 7, "rank": 0})
    for number in range(3):
        output.say("round", {"number": number, "pad": "x%d" % number * 400})
    text = capfd.readouterr().out
    heard = acceptance_output.hear("0: " + text.replace("\n", "\n0: "))
    assert [message["number"] for message in heard.messages["round"]] == [0, 1, 2]
    assert acceptance_output.readable(text).strip() == ""
    first = text.splitlines()[0]
    heard = acceptance_output.hear(text.replace(first, first.replace("@torchstack:", "@torchstick:")))
    assert [message["number"] for message in heard.messages["round"]] == [1, 2] and heard.reports == []
