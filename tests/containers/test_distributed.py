# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""conda-python-distributed under a real Slurm and a real Apptainer."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from support import slurm_cluster
from support.container_stack import Stack
from support.polling import eventually

NODES = ("nid001", "nid002", "nid003", "nid007", "nid001-a1", "nid001-a2", "nid005")

PROGRAM = """\
import json, os, signal, socket, sys, time

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
port = int(os.environ["MASTER_PORT"])
cache = os.environ["MIOPEN_USER_DB_PATH"]
job = os.environ["SLURM_JOB_ID"]
mode, end_of_rank_1 = sys.argv[2:]
open(os.path.join(cache, "of-rank-%d" % rank), "w").close()
heard = []
if rank == 0:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("", port))
        listener.listen(64)
        friends = [listener.accept()[0] for _other in range(size - 1)]
        heard = sorted(friend.makefile().readline().strip() for friend in friends)
        if mode == "wait for the other job":
            open(os.path.join(sys.argv[1], "up-" + job), "w").close()
            while sum(name.startswith("up-") for name in os.listdir(sys.argv[1])) < 2:
                time.sleep(0.02)
        for friend in friends:
            friend.sendall(b"all are there\\n")
else:
    deadline = time.monotonic() + 300
    while True:
        try:
            master = socket.create_connection((os.environ["MASTER_ADDR"], port))
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    master.sendall(("%d of job %s\\n" % (rank, job)).encode())
    heard = [master.makefile().readline().strip()]
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "ROCR_VISIBLE_DEVICES")
told = {name: os.environ.get(name) for name in names}
told.update(nodes=os.environ["SLURM_STEP_NODELIST"], host=os.uname().nodename, heard=heard, cache=cache, port=port)
told["seen"] = sorted(os.listdir(cache))
told["mode"] = oct(os.stat(os.path.dirname(cache)).st_mode & 0o7777)
told["one"] = cache == os.environ["MIOPEN_CUSTOM_CACHE_DIR"]
path = os.path.join(sys.argv[1], "%s-%d.json" % (job, rank))
with open(path + ".part", "w") as stream:
    json.dump(told, stream)
os.rename(path + ".part", path)
if rank == 1 and end_of_rank_1:
    os.kill(os.getpid(), signal.SIGKILL) if end_of_rank_1 == "dies" else sys.exit(int(end_of_rank_1))
if mode == "stay":
    time.sleep(600)
"""


@pytest.fixture(name="cluster", scope="module")
def one_cluster(tmp_path_factory):
    with slurm_cluster.running(tmp_path_factory.mktemp("w"), nodes=NODES) as world:
        yield world


@pytest.fixture(name="stack", scope="module")
def one_stack(small_image, tmp_path_factory):
    return Stack(tmp_path_factory.mktemp("s") / "stack", small_image())


class Ranks:
    """Programs as ranks, started by a user who has loaded the module."""

    def __init__(self, cluster, stack, directory):
        self.stack, self.directory = stack, directory
        self.program = directory / "program.py"
        self.program.write_text(PROGRAM)
        self.temporary = directory / "tmp"
        self.temporary.mkdir()
        self.log = directory / "log"
        hosts = directory / "hosts"
        hosts.write_text("127.0.0.1 localhost %s\n" % " ".join(NODES))
        self.environment = dict(stack.environment(), **{
            "SLURM_CONF": cluster.environment["SLURM_CONF"], "TORCHSTACK_NODE_TMP": str(self.temporary),
        })
        self.environment["PATH"] = "%s:%s" % (stack.runscripts, self.environment["PATH"])
        self.environment["SINGULARITY_BIND"] += ",%s:/etc/hosts" % hosts
        self.started = []

    def start(self, words, mode="", end_of_rank_1=""):
        """Start ranks; the process.

        Args:
            words: of the launcher.
            mode: ``stay``: the ranks do not end by themselves; ``wait for the other job``: two jobs listen at once.
            end_of_rank_1: an exit code, or ``dies``.
        """
        command = [*words, "conda-python-distributed", str(self.program), str(self.directory), mode, end_of_rank_1]
        with open(self.log, "a") as log:
            self.started.append(subprocess.Popen(
                command, env=self.environment, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        return self.started[-1]

    def run(self, words, **how):
        """Start ranks and wait for their end: the exit code, and what was said."""
        code = self.start(words, **how).wait()
        return code, self.log.read_text()

    def told(self):
        """What the ranks have written, by job and rank."""
        found = {}
        for path in self.directory.glob("*-*.json"):
            job, rank = path.stem.split("-")
            found.setdefault(job, {})[int(rank)] = json.loads(path.read_text())
        return found


@pytest.fixture()
def ranks(cluster, stack, tmp_path):
    mine = Ranks(cluster, stack, tmp_path)
    yield mine
    for process in mine.started:
        process.kill()
        process.wait()
    cluster.run("scancel", "--user=" + cluster.user)
    eventually(lambda: not cluster.run("squeue", "--noheader").stdout, "the end of all jobs")


def caches_go(ranks):
    """Wait for them, unless what serves the image ended with the step, so that nothing could be removed."""
    if "Bus error" in ranks.log.read_text():
        pytest.skip("this Slurm ends squashfuse with its step, which Apptainer needs without its set-uid part")
    eventually(lambda: not list(ranks.temporary.iterdir()), "the caches are gone")


def place(ranks, rank):
    said = ranks[rank]
    return (said["host"], *(said[name] for name in ("LOCAL_RANK", "WORLD_SIZE", "NODE_RANK", "MASTER_ADDR")))


@pytest.mark.parametrize(("words", "expected"), [
    (["srun", "--distribution=block", "--nodelist=nid[002-003,007]", "--nodes=3", "--ntasks=5"], [
        ("nid002", "0", "5", "0", "nid002"), ("nid002", "1", "5", "0", "nid002"),
        ("nid003", "0", "5", "1", "nid002"), ("nid003", "1", "5", "1", "nid002"),
        ("nid007", "0", "5", "2", "nid002"),
    ]),
    (["srun", "--nodelist=nid001-a[1-2]", "--nodes=2", "--ntasks=2"], [
        ("nid001-a1", "0", "2", "0", "nid001-a1"), ("nid001-a2", "0", "2", "1", "nid001-a1"),
    ]),
    # A step on some nodes of its job.
    (["salloc", "--quiet", "--nodelist=nid001,nid003,nid001-a[1-2],nid005", "--nodes=5", "--ntasks=5",
      "srun", "--nodelist=nid001-a[1-2],nid005", "--nodes=3", "--ntasks=3"], [
        ("nid001-a1", "0", "3", "0", "nid001-a1"), ("nid001-a2", "0", "3", "1", "nid001-a1"),
        ("nid005", "0", "3", "2", "nid001-a1"),
    ]),
])
def test_s35_ranks_know_their_place_and_meet(ranks, words, expected):
    code, said = ranks.run(words)
    assert code == 0, said
    (told,) = ranks.told().values()
    assert [place(told, rank) for rank in sorted(told)] == expected, said
    assert {"--nodelist=" + rank["nodes"] for rank in told.values()} == {words[-3]}
    heard = [rank["heard"] for _number, rank in sorted(told.items())]
    assert [len(heard[0]), heard[1:]] == [len(expected) - 1, [["all are there"]] * (len(expected) - 1)]
    assert all(rank["ROCR_VISIBLE_DEVICES"] == rank["LOCAL_RANK"] for rank in told.values())
    line = r"^Rank (\d+) --> pid \d+'s current affinity mask: [0-9a-f]+ \((\S+), local rank (\d+), ROCR_"
    bound = re.findall(line, said, re.MULTILINE)
    assert sorted(bound) == [(str(rank), one[0], one[1]) for rank, one in enumerate(expected)]


def test_s36_two_jobs_on_one_node_do_not_meet(ranks):
    words = ["srun", "--nodelist=nid001", "--ntasks=2", "--overcommit"]
    both = [ranks.start(words, mode="wait for the other job") for _job in range(2)]
    codes = [process.wait() for process in both]
    said = ranks.log.read_text()
    assert codes == [0, 0], said
    told = ranks.told()
    assert len(told) == 2
    for job, of_job in told.items():
        assert of_job[0]["heard"] == ["1 of job " + job]
        assert of_job[1]["heard"] == ["all are there"]
    assert len({of_job[0]["port"] for of_job in told.values()}) == 2
    assert len({of_job[0]["cache"] for of_job in told.values()}) == 2


def test_s38_ranks_of_a_node_share_caches_that_are_gone_at_the_end(ranks):
    code, said = ranks.run(["srun", "--nodelist=nid002,nid003", "--nodes=2", "--ntasks=4", "--distribution=block"])
    assert code == 0, said
    ((_job, told),) = ranks.told().items()
    assert told[0]["cache"] == told[1]["cache"] != told[2]["cache"] == told[3]["cache"]
    # Rank 0 goes on when all have been heard, which have made their files before.
    assert told[0]["seen"] == ["of-rank-0", "of-rank-1"]
    assert {rank["mode"] for rank in told.values()} == {"0o700"}
    assert all(rank["one"] for rank in told.values())
    assert list(ranks.temporary.iterdir()) == []


def test_s35_a_rank_that_fails_says_which_one_it_is_and_the_others_go_on(ranks):
    code, said = ranks.run(["srun", "--nodelist=nid[002-003,007]", "--nodes=3", "--ntasks=3"], end_of_rank_1="7")
    assert code == 7, said
    failed = [line for line in said.splitlines() if line.startswith("conda-python-distributed:")]
    assert failed == ["conda-python-distributed: rank 1 of 3 on nid003 ended with exit code 7."]
    (told,) = ranks.told().values()
    assert sorted(told) == [0, 1, 2]
    assert list(ranks.temporary.iterdir()) == []


def test_s35_s38_srun_ends_the_others_where_it_is_told_to(ranks):
    words = ["srun", "--kill-on-bad-exit", "--nodelist=nid[001-002]", "--nodes=2", "--ntasks=4", "--distribution=block"]
    code, said = ranks.run(words, mode="stay", end_of_rank_1="dies")
    assert code, said
    assert "conda-python-distributed: rank 1 of 4 on nid001 was ended by SIGKILL." in said.splitlines()
    caches_go(ranks)


def test_s38_a_cancelled_job_leaves_no_caches(cluster, ranks):
    process = ranks.start(["srun", "--nodelist=nid001", "--ntasks=2"], mode="stay")
    (job,) = eventually(lambda: [job for job, told in ranks.told().items() if len(told) == 2], "both ranks are there")
    cluster.run("scancel", job)
    assert process.wait() != 0
    caches_go(ranks)
