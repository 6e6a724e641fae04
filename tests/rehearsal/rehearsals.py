# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Whole rehearsals on the tests' cluster, and the jobs that they submitted."""

from __future__ import annotations

import os
import subprocess
from typing import NamedTuple

from rehearsal.checkout import CHECKOUT

JOBS = (
    "sacct --allusers --allocations --noheader --parsable2 --starttime=now-2days "
    "--format=jobid,jobname%60,user,account,state,nodelist"
)


class Job(NamedTuple):
    """A job, as sacct(1) shows it."""

    name: str
    user: str
    account: str
    state: str
    nodes: str

    @property
    def step(self):
        """The step that it is for: its name, without digest and nonce."""
        return self.name.rsplit("-", 2)[0]


def jobs(cluster):
    """All jobs that accounting knows, by identifier."""
    rows = [row.split("|") for row in cluster.execute("login", *JOBS.split()).stdout.decode().splitlines()]
    return {row[0]: Job(*row[1:]) for row in rows}


def rehearse(cluster, site, *arguments):
    """Run `make rehearse` on a cluster; what it printed."""
    done = subprocess.run(
        ["make", "--silent", "rehearse", "SITE=" + site, *arguments],
        cwd=CHECKOUT, env={**os.environ, "REHEARSAL_NAME": cluster.names.cluster}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout
