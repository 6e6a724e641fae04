# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""bin/collectives as an operator types it, and the one file that it makes, under real launchers.

MPICH and mpi4py come as wheels through pip. PyTorch is that of TORCHSTACK_TEST_STACK, an install prefix with mpiexec
and PyTorch; without it those tests are skipped.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

import pytest
from support.polling import eventually
from support.rank_programs import wheel

COMMAND = pathlib.Path(__file__).resolve().parents[2] / "bin" / "collectives"
STACK = os.environ.get("TORCHSTACK_TEST_STACK", "")
needs_stack = pytest.mark.skipif(not STACK, reason="TORCHSTACK_TEST_STACK names no prefix with torch")

OPERATIONS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"]

WITH_A_MISTAKE = """
import sys
sys.path.insert(0, sys.argv[1])
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import benchmark_cli as collectives_program
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import transport_mpi as rank_bandwidth_mpi
right = rank_bandwidth_mpi.MpiWork._broadcast


def broadcast(work):
    step = right(work)

    def wrong():
        step()
        if work.carrier.rank == 1 and len(work.source) == 65536:
            work.source[40003] ^= 1
    return wrong


rank_bandwidth_mpi.MpiWork._broadcast = broadcast
sys.exit(collectives_program.main(sys.argv[2:]))
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "collectives.pyz"
    subprocess.run([str(COMMAND), "--archive", str(path)], check=True)
    return path


@pytest.fixture(scope="module")
def mpi(tmp_path_factory):
    """The words that start two ranks, and their environment."""
    mpich, mpi4py = wheel("mpich", tmp_path_factory), wheel("mpi4py", tmp_path_factory)
    packages = next(mpi4py.glob("lib*/python3*/site-packages"))
    library = next(mpich.glob("lib*/libmpi.so.12"))
    environment = dict(os.environ, PYTHONPATH=str(packages), MPI4PY_LIBMPI=str(library))
    return [str(mpich / "bin" / "mpiexec"), "-n", "2", sys.executable], environment


def run(words, environment=None, cwd="/"):
    """The exit code, what was printed, and what was complained about."""
    done = subprocess.run(
        [*map(str, words)], env=environment, cwd=str(cwd), capture_output=True, text=True, check=False, timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


def table(printed):
    """Lines of figures: operation, bytes, what the last column says."""
    found, operation = [], ""
    for line in printed.splitlines():
        words = line.split()
        if " over " in line and line.endswith("GB/s"):
            operation = words[0]
        if words and words[0].isdigit():
            found.append((operation, int(words[0]), words[-1]))
    return found


def test_s30_two_ranks_of_mpi_measure_every_operation_and_its_values_are_right(mpi, archive, tmp_path):
    words, environment = mpi
    code, out, err = run([
        *words, archive, "--backend", "mpi", "--operations", ",".join(OPERATIONS), "--smallest", "256KiB", "--largest",
        "1 MiB", "--trials", "4", "--latency", "8,64KiB", "--iterations", "50", "--json", tmp_path / "out.json",
    ], environment)
    assert code == 0, err
    assert out.splitlines()[-1] == "values verified: yes"
    sizes = [256 << 10, 512 << 10, 1 << 20]
    assert table(out) == [(name, size, "ok") for name in OPERATIONS for size in sizes] + [
        ("messages", 8, "ok"), ("messages", 65536, "ok")
    ]
    record = json.loads((tmp_path / "out.json").read_text())
    assert record["verified"] is True and record["ended_early"] == ""
    assert record["hosts"] == [os.uname().nodename] and record["started"].endswith("Z")
    assert record["environment"]["mpi"].startswith("MPICH") and record["environment"]["launcher"] == "pmi"
    for group in record["measurements"]:
        assert (group["backend"], group["provider"], group["ranks"], group["nodes"]) == ("mpi", "mpi4py", 2, 1)
        for line in group["rows"]:
            times = line["microseconds"]
            assert 0 < times["min"] <= times["median"] <= times["max"] and line["trials"] == 4
            factor = 0.5 if group["operation"] in ("all_gather", "reduce_scatter", "all_to_all") else 1
            assert line["busbw"] == pytest.approx(factor * line["algbw"], rel=1e-3)
    assert [(line["bytes"], line["iterations"]) for line in record["latency"]] == [(8, 50), (65536, 50)]


def test_s30_one_wrong_bit_on_one_rank_at_one_size_is_exit_code_1(mpi, archive, tmp_path):
    words, environment = mpi
    (tmp_path / "mistake.py").write_text(WITH_A_MISTAKE)
    code, out, _err = run([
        *words, tmp_path / "mistake.py", archive, "--backend", "mpi", "--operations", "broadcast",
        "--largest", "128KiB",
    ], environment)
    assert code == 1
    assert [line.split()[-1] for line in out.splitlines() if " 32 KiB " in line or " 128 KiB " in line] == ["ok", "ok"]
    wrong = next(line for line in out.splitlines() if " 64 KiB " in line)
    assert "WRONG rank 1 on %s: index 10000: got " % os.uname().nodename in wrong
    assert out.splitlines()[-1] == "values verified: no"


WITH_A_FAILURE = WITH_A_MISTAKE.replace("work.source[40003] ^= 1", "raise MemoryError('no more')")


def test_s30_a_rank_that_fails_ends_them_all_and_leaves_what_was_measured(mpi, archive, tmp_path):
    words, environment = mpi
    (tmp_path / "failure.py").write_text(WITH_A_FAILURE)
    code, out, err = run([
        *words, tmp_path / "failure.py", archive, "--backend", "mpi", "--operations", "broadcast",
        "--largest", "128KiB", "--json", tmp_path / "out.json",
    ], environment)
    assert code == 1
    assert "rank 1 on %s:" % os.uname().nodename in err and "MemoryError: no more" in err
    assert table(out) == [("broadcast", 32 << 10, "ok")]
    record = json.loads((tmp_path / "out.json").read_text())
    assert [line["bytes"] for line in record["measurements"][0]["rows"]] == [32 << 10]
    assert record["ended_early"] == "it did not come to its end"


@pytest.mark.parametrize(("words", "said"), [
    (["--largest", "1 GB"], "collectives: --largest is '1 GB', which is not a size"),
    (["--operations", "reduce"], "collectives: --operations has reduce; known are all_reduce"),
    (["--smallest", "1GiB", "--largest", "1MiB"], "collectives: --smallest, 1 GiB, is more than"),
    (["--trials", "0"], "collectives: --trials is 0"),
])
def test_s30_what_cannot_be_measured_is_one_sentence_and_exit_code_2(words, said):
    code, out, err = run([COMMAND, *words])
    assert (code, out) == (2, "")
    assert err.startswith(said) and err.count("\n") == 1


def test_s30_a_file_that_cannot_be_written_is_said_before_anything_is_measured(tmp_path):
    code, out, err = run([COMMAND, "--json", tmp_path / "nowhere" / "out.json"])
    assert (code, out) == (2, "")
    assert err == "collectives: cannot write %s/nowhere/out.json: No such file or directory.\n" % tmp_path


def test_s30_a_backend_without_its_library_is_one_sentence_and_exit_code_2(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')\n")
    code, out, err = run([COMMAND, "--backend", "gloo"], dict(os.environ, PYTHONPATH=str(tmp_path)))
    assert (code, out) == (2, "")
    assert err.startswith("collectives: gloo is measured through PyTorch, which /")
    assert err.endswith(" cannot import; load the module of a release first, or start its Python.\n")
    assert err.count("\n") == 1


SMALL_TORCH = """
import types


class cuda:
    is_available, device_count, set_device = (lambda: True), (lambda: 1), (lambda index: None)

    @staticmethod
    def get_device_properties(index):
        return types.SimpleNamespace(name="card", uuid="GPU-1", pci_domain_id=0, pci_bus_id=1, pci_device_id=0)


distributed = types.SimpleNamespace(is_available=lambda: True)
__version__, version = "0", types.SimpleNamespace(cuda="0")
"""


def test_s07_ranks_that_share_a_gpu_are_refused_in_one_sentence(archive, tmp_path):
    (tmp_path / "torch.py").write_text(SMALL_TORCH)
    place = dict(
        os.environ, PYTHONPATH=str(tmp_path), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=a_port(),
    )
    words = [sys.executable, str(archive), "--backend", "nccl"]
    ranks = [
        subprocess.Popen(
            words, env=dict(place, RANK=rank, LOCAL_RANK=rank), text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) for rank in "01"
    ]
    said = [process.communicate(timeout=60)[1] for process in ranks]
    assert [process.returncode for process in ranks] == [2, 2]
    assert said == ["collectives: ranks 0 and 1 use the same GPU GPU-1.\n", ""]


def a_port():
    """A port on which nobody listens now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


def test_the_archive_is_the_same_bytes_each_time(archive, tmp_path):
    run([COMMAND, "--archive", tmp_path / "again.pyz"])
    assert (tmp_path / "again.pyz").read_bytes() == archive.read_bytes()


# --- with a real PyTorch ---------------------------------------------------------------------------------------------


@pytest.fixture()
def stack(tmp_path):
    """The environment of the real stack, and its Python."""
    packages = next(pathlib.Path(STACK).glob("lib/python3*/site-packages"))
    environment = {"PATH": "%s/bin:/usr/bin:/bin" % STACK, "PYTHONPATH": str(packages), "HOME": str(tmp_path)}
    return "python3", environment


@needs_stack
def test_s30_gloo_under_mpiexec_and_under_torchrun(stack, archive, tmp_path):
    python, environment = stack
    wanted = ["--operations", ",".join(OPERATIONS), "--largest", "32KiB", "--trials", "2"]
    wanted += ["--latency", "--iterations", "20", "--json"]
    for number, words in enumerate((
        ["mpiexec", "-n", "2", python, archive, "--backend", "gloo"],
        ["torchrun", "--standalone", "--nproc-per-node=2", archive, "--backend", "gloo"],
    )):
        path = tmp_path / ("out%d.json" % number)
        code, out, err = run([*words, *wanted, path], environment)
        assert code == 0, err
        assert out.splitlines()[-1] == "values verified: yes"
        record = json.loads(path.read_text())
        assert [(group["operation"], group["provider"], group["left_out"], len(group["rows"]))
                for group in record["measurements"]] == [(name, "torch", "", 1) for name in OPERATIONS]


@needs_stack
def test_s30_an_interrupt_leaves_what_was_measured(stack, archive, tmp_path):
    python, environment = stack
    ranks, port = [], a_port()
    for rank in range(2):
        place = dict(
            environment, RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
        )
        with open(str(tmp_path / ("out%d" % rank)), "wb") as output:
            ranks.append(subprocess.Popen(
                [python, str(archive), "--backend", "gloo", "--trials", "100000", "--json", str(tmp_path / "out.json"),
                 "--seconds", "20"], env=place, stdout=output, stderr=subprocess.STDOUT,
            ))
    try:
        eventually(lambda: table((tmp_path / "out0").read_text()), "a first size is measured")
        ranks[0].send_signal(signal.SIGINT)
        assert ranks[0].wait(60) == 128 + signal.SIGINT
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    printed = (tmp_path / "out0").read_text()
    assert printed.splitlines()[-2:] == ["interrupted by SIGINT", "values verified: yes"]
    record = json.loads((tmp_path / "out.json").read_text())
    assert record["ended_early"] == "interrupted by SIGINT"
    shown = [size for _name, size, _ok in table(printed)]
    assert [line["bytes"] for line in record["measurements"][0]["rows"]] == shown
