# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Histories of a step that a batch system runs: controllers are killed, at moments that count and at random ones.

What has to hold in each: there are never two builds at once, nor two jobs; a run completes the step, or says in a
sentence why not; and once all is well again, one run completes it, and the next one changes nothing.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import shlex
import signal
import subprocess
import time
from typing import Any, Callable, Mapping

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from support.batch_steps import BatchSteps
from support.polling import eventually

EXCLUSIVE = """
exec 9>> {root}/exclusive
flock -n 9 || {{ echo two builds at once > {root}/violation; exit 9; }}
echo {job} >> {root}/starts
until test -e {root}/gate; do sleep 0.1; done
"""

JOBS = {
    "slurm": "$SLURM_JOB_ID.$SLURMD_NODENAME", "flux": "$FLUX_ENCLOSING_ID", "pbs": "${PBS_JOBID%%.*}.$(hostname)",
}
"""What a build writes of its job, by batch system."""

MOMENTS = ("before", "after")
"""When a command that submits may be held: before it submits, or when it has and before it answers."""

RUNS = 4
"""So many runs a step may take when all is well again: what a lost node, or a deleted job, has ended is told by one."""


def exclusive(launcher: str, root: pathlib.Path) -> str:
    """A build that goes on once there is a gate, and of which two at once leave a violation."""
    return EXCLUSIVE.format(root=root, job=JOBS[launcher])


def lines_of(path: pathlib.Path) -> list[str]:
    """The words of a file, which may not be there yet."""
    return path.read_text().split() if path.exists() else []


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a controller, and nothing that it has started."""
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def kill_all(process: subprocess.Popen[str]) -> None:
    """Kill a controller together with all that it has started, such as the command by which it submits."""
    # Stopped first, so that it starts nothing meanwhile.
    os.kill(process.pid, signal.SIGSTOP)
    for pid in [process.pid, *_descendants(process.pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _descendants(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        children = pathlib.Path("/proc/%d/task/%d/children" % (pid, pid)).read_text().split()
        return [one for child in map(int, children) for one in (child, *_descendants(child))]
    return []


class HeldCommand:
    """A command that submits, in whose place a shell script waits before or after it.

    Args:
        place: a directory for what it leaves.
        command: the words of the real one.
    """

    def __init__(self, place: pathlib.Path, command: str) -> None:
        self.place, self.command = place, command

    def script(self, moment: str = "", also: str = "", pause: float = 0.0) -> str:
        """The text of the script.

        Args:
            moment: where it waits; empty: nowhere.
            also: a line of shell that sees the answer of the real one as ``$answer``.
            pause: seconds that pass before the real one, and before the answer.
        """
        words = [shlex.quote(str(self.place / name)) for name in ("held.new", "held", "go")]
        wait = "echo $$ > {0}; mv {0} {1}; until [ -e {2} ]; do sleep 0.05; done".format(*words)
        slow = "sleep %.1f" % pause if pause else ""
        lines = [wait if moment == "before" else slow, 'answer=$(%s "$@") || exit' % self.command, also,
                 wait if moment == "after" else slow, 'echo "$answer"']
        return "\n".join(line for line in lines if line)

    def held(self) -> int:
        """The process that waits; 0 as long as there is none."""
        path = self.place / "held"
        return int(path.read_text()) if path.exists() else 0

    def let_go(self) -> None:
        """End the waiting, of all that come as well."""
        (self.place / "go").touch()


Trouble = Callable[[random.Random], "contextlib.AbstractContextManager[None]"]


class BatchHistory:
    """A random history of one step.

    Args:
        steps: where it is built.
        root: a directory of its own, of this test.
        seed: decides what happens; when it does is the machine's.
        troubles: what may happen besides controllers that come and go, by name: each a context in which it lasts.
        **options: what the step asks its batch system for.
    """

    def __init__(
        self, steps: BatchSteps, root: pathlib.Path, seed: int, troubles: Mapping[str, Trouble],
        **options: Any,
    ) -> None:
        self.steps, self.root, self.troubles, self.options = steps, root, troubles, options
        self.random = random.Random(seed)
        self.script = exclusive(steps.launcher, root)
        self.told: list[str] = []
        """what happened, a line each"""

    def play(self) -> None:
        """Let controllers and trouble come and go."""
        for _round in range(self.random.choice((1, 2, 2, 3, 4))):
            name = self.random.choice(sorted(self.troubles)) if self.troubles and self.random.random() < 0.6 else ""
            with self.troubles[name](self.random) if name else contextlib.nullcontext():
                self._tell(name or "no trouble")
                self._controller()
            if self.random.random() < 0.1:
                self._tell("the build is let go")
                (self.root / "gate").touch()
            self._wait(1.5)

    def _controller(self) -> None:
        """Let a controller come, and perhaps go."""
        controller = self.steps.controller(self.script, options=self.options)
        # What a submission leaves behind at each of its moments is the riskiest.
        reached = self.random.choice((lambda: True, *3 * (self._is_about_to_submit,), self._has_submitted))
        eventually(lambda: controller.poll() is not None or reached(), "a controller's work", 300)
        time.sleep(self.random.random() * 1.5)
        if self.random.random() < 0.85 and controller.poll() is None:
            everything = self.random.random() < 0.5
            (kill_all if everything else kill)(controller)
            self._tell("killed a controller" + (" and what it had started" if everything else ""))

    def end_well(self) -> str:
        """When all is well again: complete the step, see that another run changes nothing, and return its digest."""
        (self.root / "gate").touch()
        for controller in list(self.steps.controllers):
            eventually(lambda one=controller: one.poll() is not None, "the end of a controller", 300)
        for _run in range(RUNS):
            try:
                result = self.steps.run(self.script, options=self.options)
            except StackError as error:
                self._tell("a run says: " + error.message)
                assert error.message.strip() and error.remedy.strip(), error.as_result()
                continue
            assert result["state"] in ("done", "unchanged"), result
            break
        else:
            raise AssertionError("it is not completed\n" + "\n".join(self.told))
        again = self.steps.begin(self.script, options=self.options)
        assert (again["state"], again["changed"]) == ("unchanged", False), "\n".join(self.told)
        assert not (self.root / "violation").exists(), "two builds at once\n" + "\n".join(self.told)
        return str(again["digest"])

    def _is_about_to_submit(self) -> bool:
        return self.steps.read("submission.json") is not None

    def _has_submitted(self) -> bool:
        return bool((self.steps.read("submission.json") or {}).get("job_id"))

    def _wait(self, most: float) -> None:
        time.sleep(self.random.random() ** 2 * most)

    def _tell(self, what: str) -> None:
        self.told.append("%.2f %s" % (time.monotonic(), what))
