# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A real PBS of one ordinary account, for tests: server, scheduler, comm and a mom on each node, on one machine.

PBS wants to be root. Here it is root of a user name space of this account (unshare(1), subuid(5)), in which the account
bears its own number too, so that jobs are its own. Every host is a set of name spaces with processes, a network and a
host name of its own; hosts meet on a bridge. What PBS writes, and its programs, lie in the memory of these name spaces:
nothing is left on the machine, and a host that is killed takes all its processes with it, as one does that loses power.

TORCHSTACK_TEST_PBS names the directory of a PBS that was installed for the prefix /opt/pbs.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import pwd
import signal
import subprocess
from typing import Any, Iterator, NamedTuple

import pytest
from support.polling import eventually

VARIABLE = "TORCHSTACK_TEST_PBS"
PREFIX = "/opt/pbs"
SERVER = "pbs"
NETWORK = "10.77.0.%d"
DATABASE_USER = "postgres"
"""The account of its database, unless PBS was built for another one."""

DATABASE_ID = 900
OTHER_IDS = 1000
"""How many accounts the name space has beside this one; root is the first."""

SYSTEM_PATH = "%s/bin:%s/sbin:/usr/sbin:/sbin:/usr/bin:/bin" % (PREFIX, PREFIX)
DAEMONS = {
    "server": "pbs_server.bin", "scheduler": "pbs_sched", "comm": "pbs_comm", "mom": "pbs_mom", "database": "postgres",
}
"""What processes are called."""

FIRST_HOST = r"""
set -eu
tree=$1 place=$2
mount --rbind /opt "$place/opt"
mount -t tmpfs -o mode=755 tmpfs /opt
for there in "$place"/opt/*/; do
  name=$(basename "$there")
  [ "$name" != pbs ] || continue
  mkdir "/opt/$name"
  mount --rbind "$there" "/opt/$name"
done
cp -r "$tree" /opt/pbs
chmod 4755 /opt/pbs/sbin/pbs_iff /opt/pbs/sbin/pbs_rcp
mkdir /opt/homes
mkdir -m 1777 /opt/tmp
mount -t tmpfs tmpfs /run
mkdir -m 1777 /run/postgresql
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
for name in passwd shadow hosts; do mount --bind "$place/$name" "/etc/$name"; done
hostname pbs
ip link set lo up
ip link add hosts type bridge
ip addr add 10.77.0.1/24 dev hosts
ip link set hosts up
"""

STAYS = "echo ready\ncat > /dev/null\n"
"""The first process of a host: it ends, and everything of the host with it, when nobody holds its input any more."""

SET_UP = """\
create queue closed queue_type=Execution, enabled=False, started=True
set server flatuid=True
set server job_history_enable=True
set server job_requeue_timeout=5
set server node_fail_requeue=3
set server scheduler_iteration=20
set server acl_roots=root@*
set server managers=root@*
"""

FAILED = ("down", "state-unknown", "offline", "initializing", "stale", "unresolvable")


class Accounted(NamedTuple):
    """A line of the accounting log that counts."""

    kind: str
    """``Q`` for an accepted job, ``S`` for a start, ``R`` for one that is put back, ``E`` and ``D`` for an end"""
    job_id: str
    name: str


def tree() -> pathlib.Path:
    """The directory of the PBS that tests are to start."""
    return pathlib.Path(os.environ.get(VARIABLE, ""))


def is_named() -> bool:
    """Whether there is a PBS for tests to start."""
    return tree().is_absolute()


def missing() -> str:
    """Why no PBS can be started here; empty where one can."""
    if not is_named():
        return "%s names no directory of an installed PBS (docs/reference/pbs.md)" % VARIABLE
    for name in ("bin/qsub", "sbin/pbs_server", "sbin/pbs_mom", "libexec/pbs_habitat"):
        if not (tree() / name).is_file():
            return "%s is no installed PBS: it has no %s" % (tree(), name)
    if _subordinate("uid") is None or _subordinate("gid") is None:
        return "this account has no range of %d subordinate ids (usermod --add-subuids)" % OTHER_IDS
    return ""


@contextlib.contextmanager
def running(root: pathlib.Path, **how: Any) -> Iterator[PbsCluster]:
    """A cluster for as long as somebody uses it; skips the tests where none can be started."""
    why = missing()
    if why:
        pytest.skip(why)
    cluster = PbsCluster(root, **how)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


class PbsCluster:
    """One PBS.

    Args:
        root: a directory of this account for its settings.
        nodes: how many nodes it has, which are called ``n1``, ``n2``, ...
        cores: what each is believed to have.
    """

    def __init__(self, root: pathlib.Path, nodes: int = 3, cores: int = 4) -> None:
        self.root, self.cores = root, cores
        self.nodes = ["n%d" % (number + 1) for number in range(nodes)]
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self._hosts: dict[str, subprocess.Popen[str]] = {}
        self._inits: dict[str, int] = {}

    def start(self) -> None:
        """Bring it up, until all nodes are free."""
        self._write_settings()
        self._start_host(SERVER, [*_new_user_name_space(), "--mount"], FIRST_HOST, str(tree()), str(self.root))
        self.run(SERVER, "pbs_habitat", root=True, program=PREFIX + "/libexec/pbs_habitat")
        eventually(lambda: not self.pids("server") + self.pids("database"), "the end of what has made the database")
        for daemon in ("comm", "server", "scheduler"):
            self.start_daemon(daemon)
        for name in self.nodes:
            self.start_node(name)
        lines = SET_UP + "".join(
            "create node %s\nset node %s resources_available.ncpus=%d\n" % (name, name, self.cores)
            for name in self.nodes)
        self.manage(lines)
        self.wait_for_nodes()

    def _write_settings(self) -> None:
        (self.root / "opt").mkdir(parents=True)
        account = "%s:x:%d:%d::%s:/bin/sh\n" % (DATABASE_USER, DATABASE_ID, DATABASE_ID, "/tmp")
        kept = [line for line in pathlib.Path("/etc/passwd").read_text().splitlines(True)
                if not line.startswith(DATABASE_USER + ":")]
        (self.root / "passwd").write_text("".join(kept) + account)
        # The machine's own can be read by its root only.
        names = [line.partition(":")[0] for line in [*kept, account]]
        (self.root / "shadow").write_text("".join("%s:*:19000:0:99999:7:::\n" % name for name in names))
        hosts = [SERVER, *self.nodes]
        lines = ["127.0.0.1 localhost", *("%s %s" % (self._address(name), name) for name in hosts)]
        (self.root / "hosts").write_text("".join(line + "\n" for line in lines))
        for name in hosts:
            serves = int(name == SERVER)
            (self.root / (name + ".conf")).write_text("".join("%s=%s\n" % pair for pair in (
                ("PBS_EXEC", PREFIX), ("PBS_HOME", "/opt/homes/" + name), ("PBS_SERVER", SERVER),
                ("PBS_TMPDIR", "/opt/tmp"),
                ("PBS_START_SERVER", serves), ("PBS_START_SCHED", serves), ("PBS_START_COMM", serves),
                ("PBS_START_MOM", 1 - serves),
            )))

    def _address(self, host: str) -> str:
        return NETWORK % ([SERVER, *self.nodes].index(host) + 1)

    # -- hosts --------------------------------------------------------------------------------------------------------

    def _start_host(self, name: str, words: list[str], script: str, *arguments: str) -> None:
        """Start the first process of a host, which sets the host up and stays."""
        command = [
            *words, "--net", "--uts", "--ipc", "--pid", "--mount-proc", "--fork", "--kill-child",
            "sh", "-c", script + STAYS, "sh", *arguments,
        ]
        with open(self.root / (name + ".log"), "ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd="/",
                start_new_session=True,
            )
        self._hosts[name] = process
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said == "ready\n", "host %s does not start: %s" % (name, (self.root / (name + ".log")).read_text())
        children = pathlib.Path("/proc/%d/task/%d/children" % (process.pid, process.pid)).read_text().split()
        self._inits[name] = int(children[0])

    def kill_host(self, name: str) -> None:
        """Take a host away with all its processes."""
        process = self._hosts.pop(name)
        os.kill(self._inits.pop(name), signal.SIGKILL)
        process.communicate()

    def start_node(self, name: str) -> None:
        """Start a node's host, where it is not there, and its mom."""
        if name not in self._hosts:
            script = "set -eu\nhostname %s\nip link set lo up\n" % name
            self._start_host(name, [*self._entering(SERVER, root=True, whole=False), "unshare"], script)
            number, init = self._address(name).rpartition(".")[2], str(self._inits[name])
            self.run(SERVER, "ip", "link", "add", "to" + number, "type", "veth", "peer", "name", "eth0", "netns", init,
                     root=True, whole=False)
            self.run(SERVER, "ip", "link", "set", "to" + number, "master", "hosts", "up", root=True)
            self.run(name, "ip", "addr", "add", self._address(name) + "/24", "dev", "eth0", root=True)
            self.run(name, "ip", "link", "set", "eth0", "up", root=True)
        home = "/opt/homes/" + name
        if self.run(SERVER, "test", "-e", home, root=True, check=False).returncode != 0:
            self.run(name, "pbs_habitat", root=True, program=PREFIX + "/libexec/pbs_habitat")
            lines = "$clienthost %s\n$usecp *:/ /\n$min_check_poll 1\n$max_check_poll 2\n" % SERVER
            self.run(name, "tee", home + "/mom_priv/config", root=True, given=lines)
        self.start_daemon("mom", name)

    def start_daemon(self, daemon: str, host: str = SERVER) -> None:
        """Start a daemon that does not run, with what it remembers, until it answers."""
        def runs() -> bool:
            if not self.pids(daemon, host):
                self.run(host, DAEMONS[daemon].partition(".")[0], root=True)
            if daemon != "server":
                return bool(self.pids(daemon, host))
            return self.run(SERVER, "qstat", "-B", check=False).returncode == 0

        # A server that is killed takes its database with it, and one that comes too soon meets that one's end.
        eventually(runs, "%s on %s answers" % (daemon, host), 240)

    def pids(self, daemon: str, host: str = SERVER) -> list[str]:
        """The processes of a daemon, by their numbers on their host."""
        return self.run(host, "pgrep", "-x", DAEMONS[daemon], root=True, check=False).stdout.split()

    def kill(self, daemon: str, host: str = SERVER, signum: int = signal.SIGKILL) -> None:
        """Send a signal to a daemon; to one that ends, wait until it is gone."""
        pids = self.pids(daemon, host)
        assert pids, "there is no %s on %s" % (daemon, host)
        self.run(host, "kill", "-%d" % signum, *pids, root=True, check=False)
        if signum not in (signal.SIGSTOP, signal.SIGCONT):
            eventually(lambda: not self.pids(daemon, host), "the end of " + daemon)

    def wait_for_nodes(self) -> None:
        """Wait until every node takes jobs."""
        def all_do() -> bool:
            answer = self.run(SERVER, "pbsnodes", "-a", "-F", "json", check=False)
            known = json.loads(answer.stdout, strict=False).get("nodes", {}) if answer.returncode == 0 else {}
            fit = [name for name, node in known.items() if not any(word in node["state"] for word in FAILED)]
            return set(fit) == set(self.nodes)

        eventually(all_do, "all nodes take jobs", 240)

    # -- commands -----------------------------------------------------------------------------------------------------

    def _entering(self, host: str, root: bool = False, whole: bool = True) -> list[str]:
        """The words before a command that runs on a host.

        Args:
            root: as root of it, and not as this account.
            whole: with its processes; a command then is the child of one that has entered.
        """
        spaces = ["--user", "--mount", "--net", "--uts", "--ipc"] + (["--pid"] if whole else [])
        who = ["--setuid", "0", "--setgid", "0"] if root else ["--preserve-credentials"]
        return ["nsenter", "--target", str(self._inits[host]), *spaces, *who, "--"]

    def command(self, name: str, root: bool = False) -> list[str]:
        """The words by which this account runs a command of PBS; the process that begins with them becomes it."""
        settings = ["env", "PBS_CONF_FILE=%s/%s.conf" % (self.root, SERVER)]
        return [*settings, *self._entering(SERVER, root, whole=False), PREFIX + "/bin/" + name]

    def run(
        self, host: str, *words: str, root: bool = False, whole: bool = True, check: bool = True, given: str = "",
        program: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host."""
        environment = {
            "PATH": SYSTEM_PATH, "LC_ALL": "C", "HOME": "/", "PBS_CONF_FILE": "%s/%s.conf" % (self.root, host),
        }
        command = [*self._entering(host, root, whole), program or words[0], *words[1:]]
        # Files, as daemons keep open what they were started with.
        with open(self.root / "said", "w+b") as said:
            ended = subprocess.run(
                command, env=environment, cwd="/", input=given.encode(), stdout=said, stderr=subprocess.STDOUT,
                check=False)
            said.seek(0)
            text = said.read().decode(errors="replace")
        assert not check or ended.returncode == 0, "%s on %s: %s" % (" ".join(words), host, text)
        return subprocess.CompletedProcess(words, ended.returncode, text, "")

    def manage(self, lines: str) -> None:
        """Give the server commands of qmgr(8B)."""
        self.run(SERVER, "qmgr", root=True, given=lines)

    # -- what there was -----------------------------------------------------------------------------------------------

    def accounting(self, prefix: str = "") -> list[Accounted]:
        """What the accounting log says of jobs whose name begins like this, in its order."""
        place = "/opt/homes/%s/server_priv/accounting" % SERVER
        lines = self.run(SERVER, "sh", "-c", "cat %s/*" % place, root=True, check=False).stdout.splitlines()
        parts = [line.split(";", 3) for line in lines if line.count(";") >= 3]
        names: dict[str, str] = {}
        for _time, _kind, job_id, message in parts:
            fields = dict(word.partition("=")[::2] for word in message.split() if "=" in word)
            names.setdefault(job_id, "")
            names[job_id] = fields.get("jobname", names[job_id])
        return [
            Accounted(kind, job_id, names[job_id]) for _time, kind, job_id, _message in parts
            if kind in "QSEDR" and names[job_id].startswith(prefix)
        ]

    def show(self, job_id: str) -> dict[str, Any]:
        """What ``qstat -x -f`` shows of a job."""
        answer = self.run(SERVER, "qstat", "-x", "-f", "-F", "json", job_id, check=False)
        if answer.returncode != 0:
            return {}
        jobs = json.loads(answer.stdout, strict=False).get("Jobs", {})
        return dict(next(iter(jobs.values()), {}))

    def node_of(self, job_id: str) -> str:
        """The node that runs a job."""
        return str(self.show(job_id)["exec_host"]).partition("/")[0]

    def jobs(self, prefix: str = "") -> dict[str, dict[str, Any]]:
        """All jobs that the server knows, those that are over too, by their identifiers."""
        job_ids = self.run(SERVER, "qselect", "-x").stdout.split()
        shown = {job_id: self.show(job_id) for job_id in job_ids}
        return {job_id: job for job_id, job in shown.items() if str(job.get("Job_Name", "")).startswith(prefix)}

    def clear(self) -> None:
        """Delete what is left in the queue, and make all daemons and nodes well again."""
        for daemon in ("comm", "server", "scheduler"):
            self.start_daemon(daemon)
        for name in self.nodes:
            self.start_node(name)
        self.wait_for_nodes()

        def is_empty() -> bool:
            left = self.run(SERVER, "qselect").stdout.split()
            if left:
                self.run(SERVER, "qdel", "-W", "force", *left, root=True, check=False)
            return not left

        eventually(is_empty, "the end of all jobs", 240)

    def stop(self) -> None:
        """End everything, whatever has gone wrong before."""
        for name in [*self.nodes, SERVER]:
            if name in self._inits:
                self.kill_host(name)
        for process in self._hosts.values():
            process.kill()
            process.communicate()


def _subordinate(kind: str) -> int | None:
    """The first of this account's subordinate ids (subuid(5)), where it has enough."""
    entry = pwd.getpwuid(os.geteuid())
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/etc/sub" + kind).read_text().splitlines():
            owner, first, count = line.split(":")
            if owner in (entry.pw_name, str(entry.pw_uid)) and int(count) >= OTHER_IDS:
                return int(first)
    return None


def _new_user_name_space() -> list[str]:
    """The words that make a name space in which this process is root, and this account has its own number too."""
    users, groups = _subordinate("uid"), _subordinate("gid")
    return [
        "unshare", "--user", "--map-user=%d" % os.geteuid(), "--map-group=%d" % os.getegid(),
        "--map-users=%d,0,%d" % (users or 0, OTHER_IDS), "--map-groups=%d,0,%d" % (groups or 0, OTHER_IDS),
        "--setuid", "0", "--setgid", "0",
    ]
