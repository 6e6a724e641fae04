# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the tests for ReFrame are told of a release.

tests/modules/test_release_reframe.py runs reframe_files, and tests/reframe/test_reframe.py reframe_judge.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import reframe_files, reframe_tests
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError

OPTIONS = {
    "release": "2026-11-20", "prefix": "/soft/2026-11-20", "shared": None, "module": "torchstack/2026-11-20",
    "modulepaths": {"lmod": "/soft/lmod", "tcl": None}, "environment": {"OMP_NUM_THREADS": 1}, "nodes": 2, "ranks": 8,
    "launcher": ["srun", "--nodes={nodes}", "--ntasks={ranks}"], "job": {"options": {"cores": 64, "gpus": 4}},
    "python": "python3", "imports": ["torch"], "checks": ["imports", "torch_gloo", "mpi4py"],
    "where_possible": ["torch_nccl", "torch_mpi", "cuda_graph_replay"],
    "transport": {"networks": ["*libfabric*", "OFI"]},
    "import_ceiling": 30.0, "measure": {"largest": "1 GiB"}, "sizes": ["1 GiB", "1 MiB"], "tolerance": 0.05,
    "timeout": 600,
}
FLOOR = {"backend": "nccl", "operation": "all_reduce", "bytes": "1 GiB", "busbw": 36, "source": "measured", "nodes": 2}


def described(**changed):
    return reframe_tests.describe_release(dict(OPTIONS, **changed))


def test_a_release_is_described_by_plain_figures():
    found = described()
    assert (found["name"], found["nodes"], found["per_node"], found["cores"], found["gpus"]) == (
        "2026_11_20", 2, 4, 64, 4)
    assert found["sizes"] == [1 << 20, 1 << 30] and found["measure"]["largest"] == 1 << 30
    assert found["modulepaths"] == {"lmod": "/soft/lmod"} and found["environment"] == {"OMP_NUM_THREADS": "1"}
    assert found["question"]["transport"] == {"networks": ["*libfabric*", "OFI"]} and "shared" not in found["question"]
    assert described(shared=["/opt"])["question"]["shared"] == ["/opt"]
    assert reframe_tests.render(found) == reframe_tests.render(described())


def test_backends_follow_from_the_checks_and_a_required_one_must_run():
    assert described()["backends"] == {"gloo": True, "mpi": True, "nccl": False}
    assert described(checks=["torch_nccl"], where_possible=["torch_nccl"])["backends"] == {"nccl": True}
    assert described(measure={"backends": ["nccl"]})["backends"] == {"nccl": False}
    assert described(measure={})["backends"] == {}


def test_floors_and_ceilings_are_named_as_reframe_logs_them():
    ceiling = {"backend": "mpi", "bytes": 8, "microseconds": 4}
    found = described(measure={"floors": {"bandwidth": [FLOOR], "latency": [ceiling]}})
    assert found["limits"] == [
        {"name": "all_reduce_1GiB", "backend": "nccl", "kind": "bandwidth", "value": 36.0, "nodes": 2},
        {"name": "latency_8bytes", "backend": "mpi", "kind": "latency", "value": 4.0},
    ]


@pytest.mark.parametrize(("words", "kept"), [
    (["srun", "--nodes={nodes}", "--ntasks={ranks}", "--cpus-per-task=7"], ["--nodes={nodes}", "--cpus-per-task=7"]),
    (["mpiexec", "-n", "{ranks}", "--ppn", "{per_node}", "--cpu-bind", "depth"],
     ["--ppn", "{per_node}", "--cpu-bind", "depth"]),
    (["mpiexec", "-n{ranks}"], []),
    (["torchrun", "--standalone", "--nproc-per-node={ranks}", "--no-python"], ["--standalone", "--no-python"]),
])
def test_reframe_says_itself_how_many_ranks_to_start(words, kept):
    assert reframe_tests.launcher_options(words) == kept


@pytest.mark.parametrize(("changed", "sentence"), [
    ({"launcher": ["mpiexec", "-n", "{rank}"]}, "'acceptance_launcher' has the placeholder {rank}"),
    ({"ranks": 7}, "7 ranks cannot be spread evenly over 2 nodes."),
    ({"sizes": ["1 GB"]}, "KB, MB and GB mean different things to different people"),
    ({"measure": {"floors": {"bandwidth": [{"backend": "nccl"}]}}}, "measure.floors.bandwidth[0] lacks"),
])
def test_what_cannot_be_understood_is_refused_in_a_sentence(changed, sentence):
    with pytest.raises(StackError) as refused:
        described(**changed)
    assert sentence in refused.value.message and refused.value.remedy


def test_the_judge_is_whole_and_says_why_a_release_would_not_be_accepted(tmp_path):
    question = dict(described()["question"], ranks=8, nodes=2, patience=1)
    files = reframe_files.make_files(described(), "import reframe")
    assert sorted(files) == ["collectives.pyz", "judge.pyz", "ranks.pyz", "release.json", "torchstack_2026_11_20.py"]
    (tmp_path / "judge.pyz").write_bytes(files["judge.pyz"])
    (tmp_path / "question.json").write_bytes(reframe_tests.render(question))
    (tmp_path / "output").write_text("mpiexec: cannot find python3\n")
    words = [sys.executable, "-I", "judge.pyz", "question.json", "output", "127"]
    done = subprocess.run(words, cwd=str(tmp_path), stdout=subprocess.PIPE, check=True)
    assert json.loads(done.stdout.decode()) == ["ranks: 8 ranks were asked for, 0 reported"]


def test_only_files_that_differ_are_written_and_everybody_may_read_them(tmp_path):
    files, directory = {"a": b"1", "b": b"2"}, tmp_path / "records" / "reframe"
    assert reframe_files.list_differing(str(directory), files) == ["a", "b"]
    reframe_files.write_files(str(directory), files, ["a", "b"])
    assert reframe_files.list_differing(str(directory), files) == []
    assert reframe_files.list_differing(str(directory), dict(files, b=b"3")) == ["b"]
    assert os.stat(str(directory / "a")).st_mode & 0o777 == 0o644


def packed(name):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("__main__.py", "print('%s')\n" % name * 20)
    return content.getvalue()


def test_the_programs_stay_those_of_the_acceptance_while_they_are_whole_and_asked_the_same(tmp_path):
    old = {"judge.pyz": packed("old"), "ranks.pyz": packed("old"), "release.json": b"{}"}
    new = {**old, "judge.pyz": packed("new")}
    reframe_files.write_files(str(tmp_path), old, sorted(old))
    assert reframe_files.list_differing(str(tmp_path), new) == []
    assert reframe_files.list_differing(str(tmp_path), {**new, "release.json": b"[]"}) == ["judge.pyz", "release.json"]
    damaged = bytearray(old["ranks.pyz"])
    damaged[60] ^= 255
    for content in (bytes(damaged), old["ranks.pyz"][:80], b""):
        (tmp_path / "ranks.pyz").write_bytes(content)
        assert reframe_files.list_differing(str(tmp_path), new) == ["judge.pyz", "ranks.pyz"]
    (tmp_path / "ranks.pyz").unlink()
    assert reframe_files.list_differing(str(tmp_path), new) == ["judge.pyz", "ranks.pyz"]
