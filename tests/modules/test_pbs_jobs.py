# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Jobs of PBS through the adapter: on a real PBS, or on the recorded answers of one.

See tests/pbs/world.py for the choice, and tests/pbs/record.py for the records.
"""

from __future__ import annotations

import os
import shlex
import uuid

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch import scheduler
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.pbs import Pbs
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.registry import check_options
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from pbs.replay.answers import Answers
from pbs.world import MANAGED, RECORDS, TOO_MANY_CORES, World
from pbs.world import server as started
from support.polling import eventually


@pytest.fixture(name="server", scope="module")
def one_server(tmp_path_factory):
    """The PBS that is started for tests, if one is."""
    with started(tmp_path_factory.mktemp("pbs")) as cluster:
        yield cluster


@pytest.fixture(name="world")
def one_world(server, tmp_path):
    """A PBS."""
    world = World(tmp_path / "pbs", server)
    yield world
    world.end()


@pytest.fixture(name="batch")
def jobs_of_a_test(world, tmp_path):
    """Submit programs through the adapter; what is left of them is deleted."""

    batch = Batch(Pbs(str(world.bin)), tmp_path)
    yield batch
    for name in batch.names:
        for job_id in world.job_ids(name):
            world.run("qdel", job_id)


class Batch:
    """Jobs of a test."""

    def __init__(self, pbs, place):
        self.pbs, self.place, self.names = pbs, place, []
        self.log = place / "the log"

    def submit(self, program, name="", **options):
        """Name and identifier of a job that runs a shell program."""
        name = name or "ts-test-" + uuid.uuid4().hex[:12]
        self.names.append(name)
        script = self.pbs.script(name, check_options("pbs", options), str(self.log), ["/bin/sh", "-c", program])
        path = self.place / (name + ".sh")
        path.write_text(script)
        return name, self.pbs.submit(str(path), options, ())

    def status(self, name):
        """The job as the product sees it."""
        return scheduler.current_job(self.pbs.find(name))

    def until(self, name, state):
        """Wait until the job is in a state, and return how it is seen there."""
        return eventually(lambda: self._in_state(name, state), "job %s is %s" % (name, state), 300)

    def _in_state(self, name, state):
        status = self.status(name)
        return status if status is not None and status.state == state else None


def test_a_job_that_ends_well_is_done(batch):
    name, job_id = batch.submit("echo built")
    status = batch.until(name, scheduler.ENDED)
    assert (status.job_id, status.name, status.end, status.exit_code) == (job_id, name, "done", 0)
    assert batch.log.read_text() == "built\n"


def test_a_failed_job_has_its_exit_code(batch):
    name, _job_id = batch.submit("exit 3")
    status = batch.until(name, scheduler.ENDED)
    assert (status.end, status.exit_code, status.signal) == ("failed", 3, None)
    assert "Exit_status 3" in status.native_state


def test_a_job_that_is_ended_by_a_signal_names_it(batch):
    name, _job_id = batch.submit("kill -9 $$")
    status = batch.until(name, scheduler.ENDED)
    assert (status.end, status.exit_code, status.signal) == ("failed", None, 9)


def test_a_job_beyond_its_walltime_has_reached_its_time_limit(batch):
    name, _job_id = batch.submit("exec sleep 600", walltime="00:00:01")
    status = batch.until(name, scheduler.ENDED)
    assert status.end == "time_limit"
    assert "Exit_status -29" in status.native_state and "walltime" in status.reason
    assert "longer walltime" in status.advice


def test_a_log_that_cannot_be_opened_is_named(batch, tmp_path):
    batch.log = tmp_path / "nowhere" / "log"
    name, _job_id = batch.submit("true")
    status = batch.until(name, scheduler.ENDED)
    assert (status.end, status.exit_code) == ("failed", 73)
    assert "could not open the log" in status.advice


def test_s03_the_umask_of_pbs_does_not_reach_the_job(batch):
    name, _job_id = batch.submit("umask; grep Umask /proc/self/status")
    batch.until(name, scheduler.ENDED)
    assert batch.log.read_text().split() == ["0022", "Umask:", "0022"]


def test_a_job_starts_without_login_files(batch):
    name, _job_id = batch.submit('echo "$0"; tr "\\0" " " < /proc/$PPID/cmdline; echo; env')
    batch.until(name, scheduler.ENDED)
    lines = batch.log.read_text().splitlines()
    assert not lines[1].startswith("-"), "a login shell started it"
    assert not any(line.startswith(("BASH_ENV=", "LMOD_", "MODULESHOME=")) for line in lines)


def test_the_log_is_appended_to(batch):
    batch.log.write_text("what was there\n")
    name, _job_id = batch.submit("echo more; echo and more >&2")
    batch.until(name, scheduler.ENDED)
    assert batch.log.read_text() == "what was there\nmore\nand more\n"


def test_a_held_job_waits_until_it_is_released(world, batch):
    name, job_id = batch.submit("true", directives=["-h"])
    status = batch.until(name, scheduler.PENDING)
    assert status.held and status.position is None
    assert status.advice == "It is held: 'qrls %s' lets it go on." % job_id
    world.run("qrls", job_id)
    assert batch.until(name, scheduler.ENDED).end == "done"


def test_a_waiting_job_says_why_in_the_words_of_pbs(batch):
    name, _job_id = batch.submit("true", cores=TOO_MANY_CORES)
    status = eventually(lambda: (seen := batch.status(name)) and seen.reason and seen, "PBS says why it waits", 300)
    assert status.state == scheduler.PENDING and not status.held
    assert "ncpus" in status.reason
    assert status.position is not None and 1 <= status.position <= status.of


def test_a_job_that_is_deleted_in_the_queue_was_cancelled(batch):
    name, job_id = batch.submit("true", cores=TOO_MANY_CORES)
    batch.until(name, scheduler.PENDING)
    batch.pbs.cancel(job_id)
    status = batch.until(name, scheduler.ENDED)
    assert (status.end, status.exit_code, status.signal) == ("cancelled", None, None)


def test_a_running_job_that_is_deleted_was_cancelled(batch):
    name, job_id = batch.submit("exec sleep 600")
    assert batch.until(name, scheduler.RUNNING).nodes
    batch.pbs.cancel(job_id)
    assert batch.until(name, scheduler.ENDED).end == "cancelled"
    batch.pbs.cancel(job_id)


def test_among_jobs_of_one_name_all_are_seen_and_the_living_one_counts(world, batch):
    name, first = batch.submit("true", directives=["-h"])
    _name, second = batch.submit("true", name, directives=["-h"])
    assert {status.job_id for status in batch.pbs.find(name)} == {first, second}
    world.run("qdel", first)
    assert eventually(lambda: batch.status(name).job_id == second, "the second one counts")


def test_a_job_that_never_was_is_not_found_and_not_cancelled(batch):
    assert batch.pbs.find("ts-test-" + uuid.uuid4().hex) == []
    batch.pbs.cancel("999999")


@pytest.mark.parametrize(
    ("options", "words", "remedy"),
    [
        ({"queue": "no-such-queue"}, "Unknown queue", "qstat -Q"),
        ({"directives": ["-l no_such_thing=1"]}, "Unknown resource", "directives"),
        pytest.param({"account": "nobodys"}, "Account nobodys is not known at this site", "account", marks=MANAGED),
    ],
)
def test_a_refusal_is_told_in_the_words_of_pbs(batch, options, words, remedy):
    with pytest.raises(StackError) as caught:
        batch.submit("true", **options)
    assert caught.value.failed_step == "submit"
    assert words in caught.value.message
    assert remedy in caught.value.remedy


@pytest.fixture(name="silence")
def silent_server(world, monkeypatch):
    """Nothing answers from now on."""
    if world.real:
        monkeypatch.setenv("PBS_SERVER", "localhost")
        monkeypatch.setenv("PBS_BATCH_SERVICE_PORT", "9")
    else:
        world.set(up=False)


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("action", ["submit", "find", "cancel"])
def test_a_silent_server_is_never_an_answer(batch, action):
    actions = {
        "submit": lambda: batch.submit("true"), "find": lambda: batch.pbs.find("ts-any"),
        "cancel": lambda: batch.pbs.cancel("1"),
    }
    with pytest.raises(StackError) as caught:
        actions[action]()
    assert caught.value.failed_step == "scheduler"
    assert "PBS did not answer" in caught.value.message


@MANAGED
def test_a_submission_whose_answer_is_lost_is_not_taken_for_refused(world, batch):
    lost = Answers(str(RECORDS)).find("answer_lost", "lost", "qsub")
    assert lost["status"] and not lost["stdout"]
    world.install("qsub", "echo %s >&2; exit %d" % (shlex.quote(lost["stderr"]), lost["status"]))
    with pytest.raises(StackError) as caught:
        batch.submit("true")
    assert caught.value.failed_step == "scheduler"


def test_commands_that_are_missing_are_no_answer(tmp_path):
    with pytest.raises(StackError) as caught:
        Pbs(str(tmp_path)).find("ts-any")
    assert caught.value.failed_step == "scheduler"


def test_nothing_of_qsub_holds_the_lock_after_the_submission(world, batch, tmp_path):
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        script = batch.pbs.script("ts-test-lock", check_options("pbs", {"directives": ["-h"]}), "/dev/null", ["true"])
        (tmp_path / "script").write_text(script)
        batch.names.append("ts-test-lock")
        job_id = batch.pbs.submit(str(tmp_path / "script"), {}, [writer])
        os.close(writer)
        writer = -1
        assert os.read(reader, 1) == b"", "somebody holds it still"
        world.run("qdel", job_id)
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)


@MANAGED
def test_a_job_that_was_put_back_runs_again(world, batch, tmp_path):
    flag = tmp_path / "first"
    program = "if [ -e '%s' ]; then exit 0; fi; touch '%s'; exec sleep 600" % (flag, flag)
    name, job_id = batch.submit(program, requeue=1)
    eventually(flag.exists, "it runs")
    assert batch.until(name, scheduler.RUNNING).restarts == 0
    world.set(starts=False)
    world.run("qrerun", job_id)
    assert batch.until(name, scheduler.PENDING).restarts == 1
    world.set(starts=True)
    status = batch.until(name, scheduler.ENDED)
    assert (status.end, status.restarts) == ("done", 1)


@MANAGED
def test_a_lost_node_is_told_from_a_failed_job(world, batch):
    name, job_id = batch.submit("exec sleep 600")
    batch.until(name, scheduler.RUNNING)
    world.lose_node_of(job_id)
    status = batch.until(name, scheduler.ENDED)
    assert status.end == "node_failed"
    assert "pbsnodes -l" in status.advice


@MANAGED
def test_without_history_a_job_that_is_over_is_unknown(world, batch):
    world.set(history=False)
    name, job_id = batch.submit("true")
    eventually(lambda: not batch.pbs.find(name), "it is gone")
    batch.pbs.cancel(job_id)
