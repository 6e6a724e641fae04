# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A rehearsal cluster of the tests' own, beside one that somebody may look around on."""

from __future__ import annotations

import pathlib
import sys

import pytest

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))

import rehearsals

from rehearsal.cluster import Cluster
from rehearsal.nodes import names_of_the_cluster
from rehearsal.podman import Podman
from rehearsal.trouble import MissingError


@pytest.fixture(scope="session")
def podman():
    """Podman as root; tests are skipped where it is not to be had."""
    found = Podman()
    try:
        assert found.words
    except MissingError as missing:
        pytest.skip(str(missing))
    return found


@pytest.fixture(scope="session")
def cluster(podman):
    """The cluster, up for all tests, and removed after them; they are skipped where its image cannot be made."""
    names = names_of_the_cluster(rehearsals.NAME, login=rehearsals.LOGIN_NODES)
    with rehearsals.lent(Cluster(podman, names), rehearsals.KEPT) as made:
        yield made


@pytest.fixture()
def on(cluster):
    """Run a line of shell on a node as an account: ``on("compute1", "hostname", user="rollout")``."""

    def run(node, line, user="rollout", check=True):
        done = cluster.execute(node, "bash", "-c", line, user=user)
        text = (done.stdout + done.stderr).decode(errors="replace")
        assert not check or done.returncode == 0, "%s on %s: %s" % (line, node, text)
        done.text = text
        return done

    return run
