# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Builds as jobs of a real Slurm with accounting, on nodes of their own: controllers killed, nodes lost and drained."""

from __future__ import annotations

import os
import secrets

import pytest
from controllers import MODULE, Step
from support.polling import eventually

from rehearsal.checkout import PLACE, make_environment, send_checkout
from rehearsal.nodes import LOGIN

WAITS = pytest.mark.skipif(
    not os.environ.get("TORCHSTACK_REHEARSE"),
    reason="waits for Slurm's own time limits; asked for by TORCHSTACK_REHEARSE=<site>",
)

PATIENCE = 600.0
"""Seconds until something that has to come is given up."""


CLEAR = """
scancel --user=rollout
for node in %s; do scontrol update nodename=$node state=resume 2> /dev/null; done
until [ "$(sinfo --noheader --partition=compute --format=%%t | sort -u)" = idle ]; do sleep 0.2; done
"""
"""Leaves no job in the queue, and all nodes ready for the next ones. A node that is ready refuses to be resumed."""


@pytest.fixture(scope="session")
def environment(cluster):
    """The checkout on the login node, with its environment."""
    send_checkout(cluster)
    make_environment(cluster)


@pytest.fixture()
def step(cluster, on, environment, tmp_path, request):
    """Makes a step that is named like the test; afterwards the queue is empty, and all nodes take jobs."""
    # Accounting remembers the jobs of earlier runs of the tests.
    words = request.node.originalname.split("_")[-4:]
    name = "-".join([*words, secrets.token_hex(2)])
    yield lambda **options: Step(cluster, on, tmp_path, name, **options)
    for node in cluster.names.compute:
        on(node, "systemctl start slurmd", user="root", check=False)
    cluster.up()
    on("control", CLEAR % " ".join(cluster.names.compute), user="root")


def drain(cluster, on):
    nodes = ",".join(cluster.names.compute)
    on("control", "scontrol update nodename=%s state=drain reason=maintenance" % nodes, user="root")


def resume(cluster, on):
    on("control", "scontrol update nodename=%s state=resume" % ",".join(cluster.names.compute), user="root")


def building(step):
    eventually(step.begun, "the script to begin", PATIENCE)


def test_a_build_is_one_job_on_a_compute_node_and_a_second_run_submits_nothing(step, cluster):
    built = step()
    built.let_go()
    assert built.start().succeed().changed == 1
    assert len(built.begun()) == 1
    assert built.begun()[0] in cluster.names.compute
    eventually(lambda: built.jobs("state") == [("COMPLETED",)], "accounting to know the end", PATIENCE)
    assert built.start().succeed().changed == 0
    assert built.jobs("state") == [("COMPLETED",)]


def test_a_build_is_looked_at_from_another_login_node(step, cluster, on):
    built = step()
    controller = built.start()
    building(built)
    on(LOGIN, "echo '{release: %s, site: local}' > %s/.torchstack/release.yml" % (built.name, built.top))
    look = "%s/.venv/bin/torchstack %%s --root %s %s" % (PLACE, *os.path.split(built.top))
    ((job, _state),) = built.queued().items()
    other = cluster.names.login[1]
    assert on(other, "hostname").text.strip() == other
    assert "Step 1: %s, running job %s on %s 50 %% for " % (
        built.name, job, built.begun()[0]) in on(other, look % "status").text
    built.let_go()
    assert "[2/2] let go" in on(other, look % "logs -f").text.splitlines()
    controller.succeed()
    assert "Steps done: 1" in on(other, look % "status").text


def test_a_controller_killed_before_it_submits_leaves_the_job_to_the_next(step):
    built = step()
    built.submit_by("touch asked; exec sleep 3600")
    first = built.start()
    eventually(lambda: built.has("asked"), "sbatch to be called", PATIENCE)
    first.kill(MODULE, "sleep 3600")
    assert built.jobs() == []
    del built.options["bin"]
    built.let_go()
    built.start().succeed()
    assert len(built.begun()) == 1
    eventually(lambda: built.jobs("state") == [("COMPLETED",)], "accounting to know the end of one job", PATIENCE)


def test_a_controller_killed_before_slurms_answer_is_taken_over_by_the_next(step):
    built = step()
    built.submit_by('/usr/bin/sbatch "$@" > answer; touch accepted; exec sleep 3600')
    first = built.start()
    eventually(lambda: built.has("accepted"), "the job to be accepted", PATIENCE)
    first.kill(MODULE, "sleep 3600")
    second = built.start()
    building(built)
    (job,) = built.queued()
    eventually(lambda: job in second.text, "the next controller to name the job", PATIENCE)
    built.let_go()
    second.succeed()
    assert len(built.begun()) == 1
    assert built.accounted() == [job]


def test_a_controller_killed_while_its_job_is_queued_is_taken_over_by_the_next(step, cluster, on):
    built = step()
    drain(cluster, on)
    first = built.start()
    eventually(built.queued, "the job to be in the queue", PATIENCE)
    first.kill()
    (waiting,) = built.queued()
    second = built.start()
    eventually(lambda: waiting in second.text, "the next controller to name the job", PATIENCE)
    assert list(built.queued()) == [waiting]
    built.let_go()
    resume(cluster, on)
    second.succeed()
    assert len(built.begun()) == 1
    assert built.accounted() == [waiting]


def test_a_controller_killed_during_the_build_is_taken_over_by_the_next(step):
    built = step()
    first = built.start()
    building(built)
    first.kill()
    nonce = built.status()["nonce"]
    second = built.start()
    eventually(lambda: built.name in second.text, "the next controller to follow", PATIENCE)
    built.let_go()
    second.succeed()
    assert built.status()["nonce"] == nonce
    assert len(built.begun()) == 1
    assert len(built.accounted()) == 1


def test_a_node_that_is_drained_during_the_build_lets_it_end(step, cluster, on):
    built = step()
    controller = built.start()
    building(built)
    drain(cluster, on)
    built.let_go()
    controller.succeed()
    assert len(built.begun()) == 1
    assert len(built.accounted()) == 1


def lose_power(cluster, podman, on, node):
    podman.ask("kill", cluster.names.container(node))


def lose_slurmd(cluster, podman, on, node):
    """The jobs that it has started live on."""
    on(node, "systemctl kill --kill-who=main --signal=KILL slurmd", user="root")


def lose_the_node(built, lose, cluster, podman, on):
    """Take away the node on which the step is built, and let Slurm know."""
    (lost,) = built.begun()
    lose(cluster, podman, on, lost)
    on("control", "scontrol update nodename=%s state=down reason=lost" % lost, user="root")
    return lost


def test_a_slurmd_that_is_killed_and_comes_back_costs_a_build_nothing(step, cluster, podman, on):
    built = step()
    controller = built.start()
    building(built)
    (node,) = built.begun()
    lose_slurmd(cluster, podman, on, node)
    on(node, "systemctl restart slurmd", user="root")
    built.let_go()
    controller.succeed()
    assert len(built.begun()) == 1
    eventually(lambda: built.jobs("state") == [("COMPLETED",)], "accounting to know the end of one job", PATIENCE)


@WAITS
@pytest.mark.parametrize("lose", [lose_power, lose_slurmd])
def test_a_job_of_a_lost_node_is_put_back_and_built_on_another(step, cluster, podman, on, lose):
    built = step(requeue=1)
    controller = built.start()
    building(built)
    lost = lose_the_node(built, lose, cluster, podman, on)
    (job,) = built.queued()
    eventually(lambda: built.queued()[job][0] == "PENDING", "the job to be put back", PATIENCE)
    # Slurm lets a job that it put back wait for two minutes.
    on("control", "scontrol update jobid=%s starttime=now" % job, user="root")
    eventually(lambda: len(built.begun()) == 2, "the script to begin on another node", PATIENCE)
    built.let_go()
    controller.succeed()
    assert len(set(built.begun())) == 2
    assert "two builds at once" not in built.log()
    assert "started on %s" % lost not in controller.message.partition("requeued")[2]
    assert built.accounted() == [job]


@WAITS
def test_a_job_of_a_lost_node_that_may_not_be_put_back_is_reported_as_that(step, cluster, podman, on):
    built = step(requeue=0)
    controller = built.start()
    building(built)
    lost = lose_the_node(built, lose_power, cluster, podman, on)
    controller.fail()
    assert "NODE_FAIL" in controller.message
    assert lost in controller.message
    built.let_go()
    built.start().succeed()
    assert len(built.begun()) == 2


def test_a_cancelled_job_is_reported_as_that_and_resumed_by_the_next_run(step, on):
    built = step()
    controller = built.start()
    building(built)
    on(LOGIN, "scancel " + next(iter(built.queued())))
    controller.fail()
    assert "CANCELLED" in controller.message
    built.let_go()
    built.start().succeed()
    assert len(built.begun()) == 2


def test_an_account_that_may_not_be_charged_is_said_in_slurms_words(step):
    built = step(account="nobodys")
    refused = built.start().fail()
    assert "Invalid account" in refused.message
    assert built.jobs() == []
    assert built.begun() == []
