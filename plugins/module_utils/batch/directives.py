# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find slips in the directives that a site adds to its jobs. Pure.

Sites have options of their own (SPANK, resources of PBS), so that an unknown one is refused only where it looks like a
known one; the rest is for people to look at.
"""

from __future__ import annotations

import re
from typing import Iterator, NamedTuple

from ..core.near_names import VERY_NEAR, nearest

_LONG = re.compile(r"--([A-Za-z][\w-]*)(?:[=\s]|\Z)")
_SHORT = re.compile(r"-([A-Za-z])")


class Directives(NamedTuple):
    """What the directives of one batch system look like; nothing is known of one that says nothing."""

    long: frozenset[str] = frozenset()
    """Its long options, without dashes."""
    short: str = ""
    """The letters of its short options."""
    example: str = ""

    def problems(self, line: str) -> Iterator[tuple[str, str]]:
        """Find what is wrong with one directive.

        Yields:
            What is the matter, and what to do.
        """
        if not self.short:
            return
        if not line.startswith("-"):
            name = re.split(r"[=\s]", line)[0]
            known = bool(nearest(name, self.long, VERY_NEAR))
            yield "one of the directives, %r, does not begin with a dash" % line, (
                "Write it with its dashes: --%s." % line if known else "Write it as in %s." % self.example)
            return
        found = _LONG.match(line)
        near = self._near(found.group(1)) if found else ""
        if found and near:
            yield "one of the directives, %r, is unknown" % line, "Did you mean --%s?" % near

    def unknown(self, line: str) -> bool:
        """Tell whether a directive, in which there is no problem, is one of which nothing is known."""
        if not self.short or not line.startswith("-"):
            return False
        long, short = _LONG.match(line), _SHORT.match(line)
        if long:
            return long.group(1) not in self.long
        return short is None or short.group(1) not in self.short

    def _near(self, name: str) -> str:
        if name in self.long:
            return ""
        return nearest(name, self.long, VERY_NEAR)


SLURM = Directives(
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

PBS = Directives(short="aAcCefGhIjJklmMnNoPpqrRSuvVWxXz", example="-l place=excl")
"""The options of qsub, as the manuals of PBS Professional 2022.1 and OpenPBS 23.06 have them."""
