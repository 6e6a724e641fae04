# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A real Slurm of one ordinary account, for tests: munged, slurmctld and a slurmd for each node, on one machine.

Slurm runs as any account that its configuration names (``SlurmUser``, ``SlurmdUser``; slurm.conf(5)), and then starts
jobs of that account only. Each slurmd has a host name of its own, where the kernel lets an ordinary account have user
and UTS namespaces; else all nodes bear the machine's name. There is no accounting: slurmdbd would need a database
server. The record of all jobs that a test judges by is that of ``jobcomp/filetxt`` and of slurmctld itself.

Everything lies below one directory and ends with :meth:`SlurmWorld.stop`.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import pwd
import random
import shlex
import shutil
import signal
import socket
import subprocess
from typing import Any, Iterator, Sequence

import pytest
from support.batch_steps import BatchSteps, quicken
from support.polling import eventually

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "sinfo")
SYSTEM_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"

CONFIGURATION = """\
ClusterName=world
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool.%n
TmpFS=/tmp
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={root}/completed
MpiDefault=none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1,bf_resolution=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
EnforcePartLimits=ALL
PropagateResourceLimits=NONE
MailProg=/bin/true
KillWait=5
MinJobAge={min_job_age}
SlurmdTimeout={slurmd_timeout}
SlurmctldTimeout=60
MessageTimeout=10
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=9
PartitionName=short Nodes=ALL MaxTime=10 State=UP
PartitionName=members Nodes=ALL AllowAccounts=proj1 State=UP
"""


def missing_programs() -> list[str]:
    """What of Slurm is not installed here."""
    return [name for name in PROGRAMS if shutil.which(name, path=SYSTEM_PATH) is None]


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, below those that the kernel gives to whoever connects to somebody."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as stream:
        end = max(12000, int(stream.read().split()[0]))
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(10000, end)
        with contextlib.suppress(OSError), socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
            found += [port] if port not in found else []
    return found


def namespaces_allowed() -> bool:
    """Whether this account may give a process a host name of its own."""
    command = ["unshare", "--map-current-user", "--keep-caps", "--uts", "hostname", "n1"]
    with contextlib.suppress(OSError):
        return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0
    return False


def as_host(name: str, command: list[str]) -> list[str]:
    """A command that runs a command on a machine that is called ``name``; without namespaces, the command itself."""
    if not namespaces_allowed():
        return command
    shell = 'hostname "$0" && exec "$@"'
    return ["unshare", "--map-current-user", "--keep-caps", "--uts", "sh", "-c", shell, name, *command]


@contextlib.contextmanager
def running(root: pathlib.Path, **how: Any) -> Iterator[SlurmWorld]:
    """A cluster for as long as somebody uses it; skips the tests where Slurm is not installed."""
    missing = missing_programs()
    if missing:
        pytest.skip("not installed: " + ", ".join(missing))
    world = SlurmWorld(root, **how)
    try:
        world.start()
        yield world
    finally:
        world.stop()


@contextlib.contextmanager
def steps_on(world: SlurmWorld, state: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BatchSteps]:
    """Steps below a directory whose jobs run on a cluster, on which no job is left afterwards."""
    quicken(monkeypatch)
    for key, value in world.environment.items():
        monkeypatch.setenv(key, value)
    steps = BatchSteps(state, "slurm", cores=1)
    # No other test's step has this digest, so that its jobs can be counted.
    steps.hello = "echo hi # %s" % state
    try:
        yield steps
    finally:
        world.run("scancel", "--user=" + world.user)
        steps.stop()
        eventually(lambda: not world.run("squeue", "--noheader").stdout, "the end of all jobs")


class SlurmWorld:
    """One cluster.

    Args:
        root: where it lies; a directory of this account, on a path that nobody else may write.
        nodes: how many nodes it has, ``n1``, ``n2``, ..., or their names.
        min_job_age: seconds after which slurmctld forgets a job that is over; at least 2.
        slurmd_timeout: seconds after which a node that does not answer is down.
        cores, memory, gpus: what each node is believed to have; memory in MB.
        partitions: further partitions by their names, each with the names of its nodes.
    """

    def __init__(
        self, root: pathlib.Path, nodes: int | Sequence[str] = 2, min_job_age: int = 300, slurmd_timeout: int = 60,
        cores: int = 2, memory: int = 1000, gpus: int = 0, partitions: dict[str, str] | None = None,
    ) -> None:
        self.root = root
        self.nodes = ["n%d" % (number + 1) for number in range(nodes)] if isinstance(nodes, int) else list(nodes)
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self.configuration = root / "slurm.conf"
        self.completed = root / "completed"
        self.node = "CPUs=%d RealMemory=%d%s" % (cores, memory, " Gres=gpu:%d" % gpus if gpus else "")
        self.gpus = gpus
        self.partitions = "".join(
            "PartitionName=%s Nodes=%s MaxTime=INFINITE State=UP\n" % pair for pair in (partitions or {}).items())
        self.ages = {"min_job_age": min_job_age, "slurmd_timeout": slurmd_timeout}
        self.environment = {"SLURM_CONF": str(self.configuration), "PATH": SYSTEM_PATH}
        self.slurmds: dict[str, int] = {}

    def start(self) -> None:
        """Bring it up, until all nodes are idle."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o755)
        (self.root / "state").mkdir()
        key = self.root / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        port, *ports = free_ports(1 + len(self.nodes))
        lines = [
            "NodeName=%s NodeHostname=%s NodeAddr=127.0.0.1 Port=%d %s State=UNKNOWN"
            % (name, name, port, self.node) for name, port in zip(self.nodes, ports)
        ]
        lines += self._gpu_lines()
        self.configuration.write_text(
            CONFIGURATION.format(root=self.root, user=self.user, port=port, nodes="\n".join(lines), **self.ages)
            + self.partitions
        )
        self._daemon(
            "munged", "--force", "--key-file=%s" % key, "--socket=%s" % (self.root / "munge.socket"),
            "--pid-file=%s" % (self.root / "munged.pid"), "--log-file=%s" % (self.root / "munged.log"),
            "--seed-file=%s" % (self.root / "munged.seed"), "--num-threads=2",
        )
        self.start_controller()
        for name in self.nodes:
            self.start_node(name)
        self.wait_for_nodes("idle")

    def _gpu_lines(self) -> list[str]:
        """The lines without which nodes have no GPUs; Slurm counts these by their devices."""
        devices = [self.root / ("gpu%d" % number) for number in range(self.gpus)]
        for device in devices:
            device.touch()
        (self.root / "gres.conf").write_text("".join("Name=gpu File=%s\n" % device for device in devices))
        return ["GresTypes=gpu"] if devices else []

    def start_controller(self) -> None:
        """Start slurmctld, with what it remembers."""
        self._daemon("slurmctld")
        eventually(lambda: self.run("scontrol", "ping", check=False).stdout.count("is UP"), "slurmctld answers")

    def start_node(self, name: str) -> None:
        """Start the slurmd of a node."""
        (self.root / ("spool." + name)).mkdir(exist_ok=True)
        self._daemon(*as_host(name, ["slurmd", "-N", name]))

    def wait_for_nodes(self, state: str) -> None:
        """Wait until every node is in a state, such as ``idle``."""
        def all_are() -> bool:
            seen = self.run("sinfo", "--noheader", "--Node", "--partition=main", "--format=%T", check=False).stdout
            return seen.split() == [state] * len(self.nodes)

        eventually(all_are, "all nodes are " + state)

    def _daemon(self, *command: str) -> None:
        ended = subprocess.run(
            command, env=dict(os.environ, **self.environment), cwd="/", stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
        )
        assert ended.returncode == 0, "%s: %s" % (shlex.join(command), ended.stdout)

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess:
        """Run a command of Slurm."""
        return subprocess.run(
            command, env=dict(os.environ, **self.environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=check,
        )

    def submit(self, *words: str) -> str:
        """Submit a job that is not a step's, such as ``--wrap "sleep 9"``; its identifier."""
        return self.run("sbatch", "--parsable", "--output=/dev/null", *words).stdout.strip()

    def state_of(self, job_id: str) -> str:
        """What squeue calls the state of a job."""
        return self.run("squeue", "--noheader", "--states=all", "--jobs=" + job_id, "--format=%T").stdout.strip()

    def show(self, job_id: str) -> dict[str, str]:
        """The fields of ``scontrol show job``."""
        text = self.run("scontrol", "--oneliner", "show", "job", job_id).stdout
        return dict(word.partition("=")[::2] for word in text.split() if "=" in word)

    def update(self, *words: str) -> None:
        """``scontrol update``: this account is the cluster's administrator."""
        self.run("scontrol", "update", *words)

    def jobs(self, name: str = "") -> list[dict[str, str]]:
        """Every job that slurmctld or the record of completed jobs knows, each once.

        Args:
            name: only jobs whose name begins like this.
        """
        seen = self.run("scontrol", "--oneliner", "show", "job", check=False).stdout.splitlines()
        seen += self.completed.read_text().splitlines() if self.completed.exists() else []
        jobs: dict[str, dict[str, str]] = {}
        for line in seen:
            fields = dict(word.partition("=")[::2] for word in line.split() if "=" in word)
            if "JobId" in fields:
                job = {"id": fields["JobId"], "name": fields.get("JobName") or fields.get("Name", "")}
                jobs.setdefault(job["id"], dict(job, state=fields.get("JobState", "")))
        return [job for job in jobs.values() if job["name"].startswith(name)]

    def pid_of(self, daemon: str) -> int | None:
        """The process of a daemon, such as ``slurmctld`` or ``slurmd.n1``."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.root / (daemon + ".pid")).read_text())
        return None

    def kill(self, daemon: str, signum: int = signal.SIGKILL) -> None:
        """End a daemon and wait until it is gone."""
        pid = self.pid_of(daemon)
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signum)
            eventually(lambda: not _lives(pid), "the end of " + daemon)
        with contextlib.suppress(OSError):
            (self.root / (daemon + ".pid")).unlink()

    def stop(self) -> None:
        """End all jobs and all daemons, whatever has gone wrong before."""
        for daemon in ("slurmctld", *("slurmd." + name for name in self.nodes), "munged"):
            self.kill(daemon)
        # Without their slurmd, the keepers of jobs stay; they bear the configuration in their environment.
        eventually(self._no_process_is_left, "the end of all processes of the cluster")

    def _no_process_is_left(self) -> bool:
        mark, left = ("SLURM_CONF=%s" % self.configuration).encode(), False
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != os.getpid():
                with contextlib.suppress(OSError):
                    environment = pathlib.Path("/proc", entry, "environ").read_bytes().split(b"\0")
                    if mark in environment and _lives(int(entry)):
                        left = True
                        os.kill(int(entry), signal.SIGKILL)
        return not left


def _lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False
