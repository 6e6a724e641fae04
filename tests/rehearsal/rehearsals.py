# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Whole rehearsals on the tests' cluster, and the jobs that they submitted."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from typing import NamedTuple

import pytest
from support.polling import eventually

from rehearsal.checkout import CHECKOUT
from rehearsal.trouble import MissingError

NAME = os.environ.get("TORCHSTACK_TEST_REHEARSAL", "torchstack-rehearsal-test")
"""What the tests call their cluster."""

LOGIN_NODES = 2
"""Of the tests' cluster."""

KEPT = bool(os.environ.get("TORCHSTACK_TEST_REHEARSAL"))
"""Whether the cluster was named from outside and is left up, for tests that are written on it."""

SLURM_JOBS = (
    "sacct --allusers --allocations --noheader --parsable2 --starttime=now-2days "
    "--format=jobid,jobname%60,user,account,state,nodelist"
)
PBS_JOBS = "/opt/pbs/bin/qstat -x -f -F json"
PBS_ACCOUNTING = "grep -hE '^[^;]*;[SE];' /var/spool/pbs/server_priv/accounting/*"
"""Every start and every end of a job."""


class Job(NamedTuple):
    """A job, as accounting knows it, in the words of sacct(1)."""

    name: str
    user: str
    account: str
    state: str
    nodes: str

    @property
    def step(self):
        """The step that it is for: its name, without digest and nonce."""
        return self.name.rsplit("-", 2)[0]


@contextlib.contextmanager
def lent(cluster, kept):
    """Bring a cluster up, and remove it at the end; skip where this machine lacks what it is made with.

    Args:
        cluster: the cluster.
        kept: it is taken as it is, and left up.
    """
    try:
        cluster.system.check()
        if not kept:
            cluster.down()
        cluster.up()
    except MissingError as missing:
        pytest.skip(str(missing))
    yield cluster
    if not kept:
        cluster.down()


def jobs(cluster):
    """All jobs that accounting knows, by identifier."""
    return {"slurm": jobs_of_slurm, "pbs": jobs_of_pbs}[cluster.system.name](cluster)


def jobs_of_slurm(cluster):
    rows = [row.split("|") for row in cluster.execute("login", *SLURM_JOBS.split()).stdout.decode().splitlines()]
    return {row[0]: Job(*row[1:]) for row in rows}


def jobs_of_pbs(cluster):
    """Those of the accounting log; qstat(1) has to know the same ones, and each was started once and ended once."""
    # A step is over before PBS has written that its job is.
    starts, ends = eventually(lambda: _records_of_ended_jobs(cluster), "each job to have ended")
    known = json.loads(cluster.execute("login", *PBS_JOBS.split()).stdout, strict=False).get("Jobs", {})
    assert sorted(starts) == sorted(ends) == sorted(known)
    return ends


def _records_of_ended_jobs(cluster):
    """The identifiers of all starts, and the jobs that have ended; nothing as long as one has not."""
    lines = cluster.execute("control", "sh", "-c", PBS_ACCOUNTING).stdout.decode().splitlines()
    records = [line.split(";", 3)[1:] for line in lines]
    starts = [number for kind, number, _ in records if kind == "S"]
    ends = {number: _ended(text) for kind, number, text in records if kind == "E"}
    return None if set(starts) - set(ends) else (starts, ends)


def _ended(text):
    """A job by the record of its end, which is words like ``user=rollout``."""
    known = dict(word.split("=", 1) for word in text.split() if "=" in word)
    state = "COMPLETED" if known["Exit_status"] == "0" else "FAILED"
    # As in exec_host=compute1/0*64+compute2/0*64.
    nodes = ",".join(part.split("/")[0] for part in known["exec_host"].split("+"))
    return Job(known["jobname"], known["user"], known["account"].strip('"'), state, nodes)


def rehearse(cluster, site, *arguments):
    """Run `make rehearse` on a cluster; what it printed."""
    done = subprocess.run(
        ["make", "--silent", "rehearse", "SITE=" + site, *arguments],
        cwd=CHECKOUT, stdin=subprocess.DEVNULL,
        env={**os.environ, "REHEARSAL_NAME": cluster.names.cluster,
             "REHEARSAL_LOGIN_NODES": str(len(cluster.names.login))},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout
