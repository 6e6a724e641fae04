# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write the batch script of a step for Slurm, by sbatch(1). Pure."""

from __future__ import annotations

import re
import shlex
from typing import Any, Mapping, Sequence

from ..core.errors import StackError
from .directives import Directives
from .options import batch_system_requeues

DIRECTIVES = Directives(
    long=frozenset(re.findall(r"\S+", """
        account acctg-freq array batch bb bbf begin bell chdir clusters cluster-constraint comment constraint
        container container-id contiguous core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task
        deadline delay-boot dependency distribution error exclude exclusive export export-file extra
        extra-node-info get-user-env gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task
        gres gres-flags hint hold ignore-pbs immediate input job-name kill-on-invalid-dep licenses mail-type
        mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nice no-bell no-kill
        no-requeue nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node
        ntasks-per-socket open-mode output overcommit oversubscribe parsable partition power prefer priority
        profile propagate qos quiet reboot requeue reservation resv-ports segment share signal
        sockets-per-node spread-job stepmgr switches test-only thread-spec threads-per-core time time-min tmp
        tres-bind tres-per-task uid use-min-nodes usage verbose version wait wait-all-nodes wckey wrap x11
    """)),
    short="AabBcCdDeFGhHiIJkLmMnNopqQsStvVwWx", example="--constraint=a100",
)
"""The options of sbatch, as its manual of Slurm 24.05 has them."""

_PLAIN = re.compile(r"[A-Za-z0-9_/.,:+@=-]+\Z")

_OPTIONS = (
    ("account", "--account=%s"), ("partition", "--partition=%s"), ("qos", "--qos=%s"), ("walltime", "--time=%s"),
    ("constraint", "--constraint=%s"), ("reservation", "--reservation=%s"), ("licenses", "--licenses=%s"),
    ("nodes", "--nodes=%s"), ("memory", "--mem=%s"), ("memory_per_gpu", "--mem-per-gpu=%s"), ("hint", "--hint=%s"),
)


def batch_script(name: str, options: Mapping[str, Any], log: str, command: Sequence[str]) -> str:
    """Write the script; see :meth:`.scheduler.BatchSystem.script`.

    The interpreter is sh: bash would read the file that ``BASH_ENV`` names. The environment is that of whoever submits:
    ``--export=NONE`` would make Slurm run a login shell. Of two equal directives, the site's first, the last wins.
    """
    directives = [
        *resource_directives(options), "--requeue" if batch_system_requeues(options) else "--no-requeue",
        "--export=ALL", "--job-name=" + name, "--chdir=/", "--output=" + output_pattern(log), "--open-mode=append",
    ]
    return "\n".join([
        "#!/bin/sh",
        *("#SBATCH " + line for line in directives),
        "# Written by hpcml.torchstack.build_step. The step itself is in script.sh, next to this file.",
        "umask 022",
        "exec " + " ".join(map(shlex.quote, command)),
        "",
    ])


def resource_directives(options: Mapping[str, Any]) -> list[str]:
    """Return the directives for what a site asks of Slurm, without ``#SBATCH``."""
    directives = list(options.get("directives", []))
    directives += [form % _quoted(options[key]) for key, form in _OPTIONS if options.get(key)]
    if options.get("exclusive"):
        directives.append("--exclusive" if options["exclusive"] is True else "--exclusive=%s" % options["exclusive"])
    if options.get("gpus"):
        directives.append("--gpus-per-node=%s" % ":".join(
            str(options[key]) for key in ("gpu_type", "gpus") if options.get(key)))
    # One task where nothing else is said, so that a build's own srun sees all cores of the node.
    tasks = options.get("tasks", 1)
    if options.get("cores") or tasks > 1:
        directives.append("--ntasks-per-node=%d" % tasks)
    if options.get("cores"):
        directives.append("--cpus-per-task=%d" % max(1, options["cores"] // tasks))
    return directives


def _quoted(value: object) -> object:
    """Quote a text in which sbatch would read more than one word; it takes double quotes in directives."""
    return '"%s"' % value if isinstance(value, str) and not _PLAIN.match(value) else value


def output_pattern(path: str) -> str:
    """Write a path as ``--output`` has to name it: quoted, and with its percent signs doubled.

    StackError: it holds a backslash, which turns the patterns off, or a line break.
    """
    if "\\" in path or "\n" in path:
        raise StackError(
            "%r cannot be the output of a Slurm job." % path, "options",
            "Use a state_dir without backslashes and line breaks.", path,
        )
    path = path.replace("%", "%%")
    return path if _PLAIN.match(path) else '"%s"' % path.replace('"', '\\"')
