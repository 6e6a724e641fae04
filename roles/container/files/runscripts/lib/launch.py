# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The work of conda-python-distributed: run Python as one rank of a distributed program, in a container.

Which rank this is comes from the launcher's variables (ranks.py). The ranks of a node meet before they begin, so that
their GPUs are awake and their caches have a place, and the last one takes that place away. Signals go on to Python, and
its end is the end of this process: the same exit code, or the same signal.
"""

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import time

import node
import ranks

FORWARDED = ("HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "TSTP", "CONT", "XCPU")
TWICE = 0.2
"""Seconds within which a signal is the same one again: a batch system may send it to all processes of a step, and what
runs the container hands it on besides."""
WAKE_SECONDS = 120


class Trouble(Exception):
    """This rank cannot begin; a sentence."""


class Ended(Exception):
    """A signal came before Python ran."""

    def __init__(self, signum):
        super().__init__(signum)
        self.signum = signum


def main(arguments):
    """Run Python, the words in ``arguments``, as a rank; its exit code."""
    environment, signals = dict(os.environ), Signals()
    try:
        found, hint = place_of(environment)
        who = "rank %d of %d on %s" % (found.rank, found.size, host(environment))
        code, ended = as_rank(arguments, environment, found, hint, who, signals)
    except (Trouble, ValueError) as error:
        say(str(error))
        return 2
    except Ended as error:
        code, ended = 1, error.signum
    if ended is not None:
        die_of(ended)
    return code


def as_rank(arguments, environment, found, hint, who, signals):
    """Run a program as a rank: its exit code, and the signal that it died of, or None."""
    meeting = None
    try:
        meeting = meet(environment, found, hint)
        program = variables(environment, found, hint, meeting)
        begin(environment, found, hint, meeting, who)
        warn(binding(found, program))
        code, ended = signals.run(arguments, program)
        if ended is None and code:
            say("%s ended with exit code %d." % (who, code))
        elif ended is not None and ended not in signals.seen:
            say("%s was ended by %s." % (who, signal.Signals(ended).name))
        return code, ended
    except (Trouble, node.MeetingError) as error:
        say("%s did not begin: %s." % (who, error))
        return 1, None
    finally:
        signals.hold()
        if meeting:
            meeting.leave()


# --- which rank, where ---------------------------------------------------------------------------------------------


def place_of(environment):
    """The rank's place, and where the ranks meet.

    Raises:
        Trouble: there is no launcher, or it does not tell enough.
        ValueError: what launchers say makes no sense.
    """
    found = ranks.placement(environment)
    if found.source == "none":
        raise Trouble(
            "this is no rank of srun or another launcher: start it as `srun ... conda-python-distributed program.py`, "
            "or use conda-python-simple for a single process.")
    hint = ranks.rendezvous(environment, found, first_line)
    address, port = environment.get("MASTER_ADDR") or hint.address, environment.get("MASTER_PORT") or hint.port
    if found.size == 1:
        address = address or "127.0.0.1"
    if not address or not port:
        raise Trouble("nothing tells where the ranks meet: set MASTER_ADDR to the host of rank 0, and MASTER_PORT.")
    if not str(port).isdigit() or not 0 < int(port) < 65536:
        raise Trouble("MASTER_PORT is %r, not a port." % port)
    return found, ranks.Hint(address, int(port))


def first_line(path):
    """The first line of a file; empty where it cannot be read."""
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as stream:
        return stream.readline()
    return ""


def host(environment):
    """What this node is called."""
    return environment.get("SLURMD_NODENAME") or os.uname().nodename


def variables(environment, found, hint, meeting):
    """The environment of the program.

    Args:
        environment: that of this process.
        found: from :func:`place_of`.
        hint: from :func:`place_of`.
        meeting: the node's, or None.
    """
    values = dict(environment)
    values.update(ranks.variables(found, hint))
    if found.node is not None:
        values["NODE_RANK"] = str(found.node)
    name = environment.get("TORCHSTACK_GPU_VARIABLE")
    if name:
        choice = environment.get("TORCHSTACK_VISIBLE_GPUS") or "one"
        if choice not in ("one", "all"):
            raise Trouble("TORCHSTACK_VISIBLE_GPUS is %r, neither `one` nor `all`" % choice)
        if choice == "one":
            values[name] = own_gpu(environment.get(name, ""), found.local_rank)
    for name in filter(None, environment.get("TORCHSTACK_CACHE_VARIABLES", "").split(",")):
        if meeting and not environment.get(name):
            values[name] = os.path.join(meeting.path, "cache")
    return values


def own_gpu(visible, local_rank):
    """The GPU of a rank.

    Args:
        visible: those that the batch system shows, with commas between them; empty where it says nothing.
        local_rank: the number of the rank on its node. Ranks beyond the number of GPUs share them.
    """
    names = [name.strip() for name in visible.split(",") if name.strip()]
    return names[local_rank % len(names)] if names else str(local_rank)


def binding(found, program):
    """What this rank may use, as taskset(1) says it for CPUs."""
    mask = sum(1 << cpu for cpu in os.sched_getaffinity(0))
    name = program.get("TORCHSTACK_GPU_VARIABLE", "")
    shown = "%s=%s" % (name, program.get(name, "")) if name else "no GPU"
    return "Rank %d --> pid %d's current affinity mask: %x (%s, local rank %d, %s)" % (
        found.rank, os.getpid(), mask, host(program), found.local_rank, shown)


# --- before Python runs --------------------------------------------------------------------------------------------


def meet(environment, found, hint):
    """Come to the meeting of the node; None where nothing is to be shared or waited for."""
    if not environment.get("TORCHSTACK_CACHE_VARIABLES") and not environment.get("TORCHSTACK_GPU_WAKE"):
        return None
    # A requeued job has its number again.
    identity = [ranks.identity(environment, found.source) or "port%d" % hint.port]
    identity += [environment.get("SLURM_RESTART_COUNT", ""), host(environment)]
    meeting = node.Meeting(
        environment.get("TORCHSTACK_NODE_TMP") or "/tmp", "-".join(filter(None, identity)), found.local_rank,
        found.local_size)
    meeting.enter(seconds(environment))
    return meeting


def begin(environment, found, hint, meeting, who):
    """Do what this rank does for the others, and wait for what they do.

    Raises:
        Trouble: the port is taken, or a setting is wrong.
        node.MeetingError: the ranks of this node do not meet.
    """
    try:
        if found.rank == 0 and not environment.get("MASTER_ADDR"):
            check_port(hint.port)
        if meeting:
            with contextlib.suppress(FileExistsError):
                os.mkdir(os.path.join(meeting.path, "cache"), 0o700)
            if found.local_rank == 0:
                wake(environment.get("TORCHSTACK_GPU_WAKE", ""), who)
            meeting.arrive(ready=found.local_rank == 0)
            meeting.wait(seconds(environment))
    except Trouble:
        if meeting:
            meeting.fail()
        raise


def seconds(environment):
    """How long ranks of a node wait for each other."""
    text = environment.get("TORCHSTACK_NODE_WAIT") or "300"
    try:
        return float(text)
    except ValueError:
        raise Trouble("TORCHSTACK_NODE_WAIT is %r, not a number of seconds" % text) from None


def check_port(port):
    """See that rank 0 can listen where the others will look for it.

    Raises:
        Trouble: it cannot.
    """
    with socket.socket() as listener:
        # As what has just ended here does not matter, and as torch's own listener does.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
            listener.listen(1)
        except OSError as error:
            raise Trouble("port %d is not free there (%s): set MASTER_PORT to another one before srun, such as %d" % (
                port, error.strerror, other_port(port))) from error


def other_port(port):
    """Another port of those that the kernel does not give away by itself."""
    low, high = ranks.PORTS
    return low + (port - low + 1) % (high - low)


def wake(program, who):
    """Run a program that wakes the node's GPUs; whatever comes of it, the rank goes on."""
    if not program:
        return
    try:
        done = subprocess.run(
            [program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=WAKE_SECONDS,
            check=False)
    except FileNotFoundError:
        warn("%s goes on without waking the GPUs: there is no %s in the image." % (who, program))
    except (OSError, subprocess.TimeoutExpired) as error:
        warn("%s goes on although the GPUs may sleep: %s." % (who, error))
    else:
        if done.returncode:
            last = done.stdout.decode("utf-8", "replace").strip().rpartition("\n")[2]
            warn("%s goes on although %s ended with exit code %d: %s" % (who, program, done.returncode, last))


# --- while it runs -------------------------------------------------------------------------------------------------


class Signals:
    """What comes for this process: on to Python, or the end of the wait for it."""

    def __init__(self):
        self.process = None
        self.seen = {}
        self.own_group = not any(os.isatty(descriptor) for descriptor in range(3))
        numbers = [getattr(signal, "SIG" + name) for name in FORWARDED]
        # What the caller has set aside, as nohup(1) does, stays so, here and in Python.
        self.numbers = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
        for number in self.numbers:
            signal.signal(number, self._take)

    def run(self, arguments, environment):
        """Run a program to its end: its exit code and None, or 1 and the signal that it died of."""
        signal.pthread_sigmask(signal.SIG_BLOCK, self.numbers)
        # From a terminal, keys reach a whole group of processes, and only the one in front may read.
        group = {"setpgroup": 0} if self.own_group else {}
        defaults = [signal.SIGPIPE, signal.SIGXFSZ, *self.numbers]
        self.process = os.posix_spawn(
            arguments[0], arguments, environment, setsigmask=[], setsigdef=defaults, **group)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self.numbers)
        _process, status = os.waitpid(self.process, 0)
        if os.WIFSIGNALED(status):
            return 1, os.WTERMSIG(status)
        return os.WEXITSTATUS(status), None

    def hold(self):
        """From now on nothing comes between."""
        signal.pthread_sigmask(signal.SIG_BLOCK, self.numbers)

    def _take(self, number, _frame):
        now = time.monotonic()
        again = now - self.seen.get(number, now - 2 * TWICE) < TWICE
        self.seen[number] = now
        if self.process is None:
            if number not in (signal.SIGCONT, signal.SIGTSTP):
                raise Ended(number)
        elif not again and (self.own_group or number not in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process, number)


def die_of(number):
    """End this process as its program ended, without another core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)


def say(sentence):
    """Say what went wrong."""
    warn("conda-python-distributed: " + sentence)


def warn(line):
    """Say a line in one piece, as other ranks speak too."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
