# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What record.py does with a real PBS, one function for each record."""

from __future__ import annotations

import re
import tempfile
import threading
import time

from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.pbs_script import batch_script, submission

FOREVER = "sleep 600"
FINISHED = r"job_state = F"
RUNNING = r"job_state = R(.|\n)*substate = 42"

IGNORES_TERM = "trap 'exit 0' TERM; sleep 600 & wait"

TOO_MANY_CORES = 4096

SLOW_HOOK = """import pbs
import time
time.sleep(6)
pbs.event().accept()
"""

HOOK = """import pbs
event = pbs.event()
if event.job.Account_Name == "nobodys":
    event.reject("Account nobodys is not known at this site")
event.accept()
"""


def needs(*actions):
    """Mark a scenario that needs commands of the command line."""

    def mark(scenario):
        scenario.needs = actions
        return scenario

    return mark


def command(name, options, program):
    """The qsub command by which the adapter submits a shell program."""
    log = options.pop("log", "/dev/null")
    return submission(batch_script(name, options, log, ["/bin/sh", "-c", program]))


def end(recorder, pattern=FINISHED, moment="finished"):
    """Wait for the end, and ask once more."""
    recorder.wait(pattern, moment)
    recorder.look(moment)


def add_hook(recorder, text):
    """A hook that every submission passes."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as stream:
        stream.write(text)
        stream.flush()
        recorder.manage("qmgr", "-c", "create hook ts_hook event=queuejob")
        recorder.manage("qmgr", "-c", "import hook ts_hook application/x-python default " + stream.name)


def done(recorder):
    """A job that ends well; then qdel of a job that is over."""
    job_id = recorder.submit("done", "sleep 4")
    recorder.wait(RUNNING, "running")
    recorder.look("running")
    end(recorder)
    recorder.run("finished", "qdel", job_id)


def failed(recorder):
    """A job whose program exits with 3."""
    recorder.submit("failed", "exit 3")
    end(recorder)


def log_missing(recorder):
    """A job whose log cannot be opened on the node."""
    recorder.submit("failed", "exit 0", log="/nowhere/at/all/log")
    end(recorder)


def signalled(recorder):
    """A job whose program is ended by a signal."""
    recorder.submit("signalled", "kill -9 $$")
    end(recorder)


def walltime(recorder):
    """A job that runs longer than its walltime."""
    recorder.submit("walltime", FOREVER, walltime="00:00:03")
    end(recorder)


def walltime_obeyed(recorder):
    """A job that ends with 0 on the SIGTERM that its walltime brings."""
    recorder.submit("walltime", IGNORES_TERM, walltime="00:00:03")
    end(recorder)


def held(recorder):
    """A job that its owner holds and then releases."""
    job_id = recorder.submit("held", "true", directives=["-h"])
    recorder.wait("job_state = H", "held")
    recorder.look("held")
    recorder.run("released", "qrls", job_id)
    end(recorder)


def held_by_the_site(recorder):
    """A job that the manager holds, and that is deleted then."""
    job_id = recorder.submit("held", "true", cores=TOO_MANY_CORES)
    recorder.manage("qhold", "-h", "s", job_id)
    recorder.wait("job_state = H", "held")
    recorder.look("held")
    recorder.run("deleted", "qdel", job_id)
    end(recorder)


def queued(recorder):
    """A job that asks for more than there is; deleted while it waits."""
    job_id = recorder.submit("queued", "true", cores=TOO_MANY_CORES)
    recorder.wait(r"comment = (Not Running|Can Never)", "the scheduler's comment")
    recorder.look("queued")
    recorder.run("queued", "qselect", "-s", "Q", "-q", "workq")
    recorder.run("deleted", "qdel", job_id)
    end(recorder)


def not_started(recorder):
    """A job that waits for others, one that waits behind it, and a scheduler that does not look."""
    recorder.manage("qmgr", "-c", "set server scheduling = false")
    recorder.submit("waits", "true")
    recorder.look("queued")
    recorder.manage("qmgr", "-c", "set server scheduling = true")
    end(recorder)


def cancelled(recorder):
    """A running job that is deleted, asked for until it is over."""
    job_id = recorder.submit("cancelled", FOREVER)
    recorder.wait(RUNNING, "running")
    recorder.run("deleted", "qdel", job_id)
    recorder.look("exiting")
    end(recorder)
    recorder.run("finished", "qdel", job_id)


def cancelled_obeyed(recorder):
    """A running job that is deleted and ends with 0 on its SIGTERM."""
    job_id = recorder.submit("cancelled", IGNORES_TERM)
    recorder.wait(RUNNING, "running")
    recorder.run("deleted", "qdel", job_id)
    end(recorder)


def cancelled_by_force(recorder):
    """A running job that the manager deletes with -W force."""
    job_id = recorder.submit("cancelled", FOREVER)
    recorder.wait(RUNNING, "running")
    recorder.manage("qdel", "-W", "force", job_id)
    end(recorder)


def requeued(recorder):
    """A running job that the manager puts back; it runs again and ends well."""
    job_id = recorder.submit("requeued", "sleep 6", requeue=1, requeue_on=["preempted"])
    recorder.wait(RUNNING, "running")
    recorder.manage("qmgr", "-c", "set server scheduling = false")
    recorder.manage("qrerun", job_id)
    recorder.wait(r"job_state = Q(.|\n)*substate = 10", "back in the queue")
    recorder.look("requeued")
    recorder.manage("qmgr", "-c", "set server scheduling = true")
    recorder.wait(RUNNING, "running again")
    recorder.look("running again")
    end(recorder)


def preempted(recorder):
    """A running job that a job of an express queue suspends, and after a change of preempt_order puts back."""
    # Left over where an earlier run was stopped.
    recorder.manage("qmgr", "-c", "create queue ts-express", check=False)
    recorder.manage("qmgr", "-c", "set queue ts-express queue_type=e,enabled=t,started=t,priority=200")
    try:
        for order, moment in (("S", "suspended"), ("R", "requeued"), ("D", "deleted")):
            recorder.manage("qmgr", "-c", 'set sched preempt_order = "%s"' % order)
            cores = recorder.manage("pbsnodes", "-av", "-F", "json").stdout
            count = max(int(found) for found in re.findall(r'"ncpus":\s*(\d+)', cores))
            first = recorder.submit("preempted", FOREVER, cores=count, requeue=1, requeue_on=["preempted"])
            recorder.wait(RUNNING, "running")
            kept = recorder.last
            express = recorder.submit("express", FOREVER, moment="express", cores=count, queue="ts-express")
            recorder.last = kept
            recorder.wait(r"job_state = [SQF]", moment)
            recorder.look(moment)
            for job_id in (first, express):
                recorder.manage("qdel", job_id, check=False)
            end(recorder, moment=moment + ", finished")
    finally:
        recorder.manage("qmgr", "-c", "unset sched preempt_order")
        time.sleep(2)
        recorder.manage("qmgr", "-c", "delete queue ts-express", check=False)


def refused(recorder):
    """Submissions that the server refuses."""
    recorder.submit("refused", "true", moment="unknown queue", queue="no-such-queue")
    recorder.submit("refused", "true", moment="unknown resource", directives=["-l no_such_thing=1"])
    recorder.submit("refused", "true", moment="malformed resource", directives=["-l walltime=soon"])
    recorder.submit("refused", "true", moment="unknown option", directives=["-Y"])
    recorder.run("long name", "qsub", "-f", "-N", "r" * 231, "--", "/bin/true")
    recorder.run("malformed name", "qsub", "-f", "-N", "7 of 9", "--", "/bin/true")
    recorder.manage("qmgr", "-c", "create queue ts-closed queue_type=e,enabled=f,started=t")
    recorder.submit("refused", "true", moment="closed queue", queue="ts-closed")
    recorder.manage("qmgr", "-c", "delete queue ts-closed")
    recorder.manage(
        "qmgr", "-c", "create queue ts-short queue_type=e,enabled=t,started=f,resources_max.walltime=00:10:00"
    )
    recorder.submit("refused", "true", moment="over the limit", queue="ts-short", walltime="01:00:00")
    recorder.manage("qmgr", "-c", "set queue ts-short max_queued = [u:PBS_GENERIC=1]")
    first = recorder.submit("first", "true", moment="queue not started", queue="ts-short")
    time.sleep(3)
    recorder.look("queue not started")
    recorder.submit("refused", "true", moment="too many jobs", queue="ts-short")
    recorder.manage("qdel", first)
    recorder.manage("qmgr", "-c", "set queue ts-short acl_user_enable=true")
    recorder.submit("refused", "true", moment="no access", queue="ts-short")
    recorder.manage("qmgr", "-c", "delete queue ts-short")


def refused_account(recorder):
    """PBS itself takes any account; a site's hook does not."""
    job_id = recorder.submit("account", FOREVER, moment="any account", account="nobodys")
    recorder.manage("qdel", job_id)
    add_hook(recorder, HOOK)
    try:
        recorder.submit("account", "true", moment="account refused by a hook", account="nobodys")
    finally:
        recorder.manage("qmgr", "-c", "delete hook ts_hook")


@needs("other_account")
def unauthorized(recorder):
    """qdel of a job of somebody else."""
    submit = ("qsub", "-f", "-l", "select=1:ncpus=%d" % TOO_MANY_CORES, "--", "/bin/true")
    job_id = recorder.manage("runuser", "-u", recorder.arguments.other_account, "--", *submit).stdout.strip()
    recorder.names[job_id] = "@JOB_ID@"
    recorder.run("another's", "qdel", job_id)
    recorder.manage("qdel", "-x", job_id)


def unknown_job(recorder):
    """Questions about a job that never was."""
    recorder.names["999999"] = recorder.names["999999." + recorder.server] = "@JOB_ID@"
    recorder.run("unknown", "qselect", "-N", "ts-never-was")
    recorder.run("unknown", "qselect", "-x", "-N", "ts-never-was")
    recorder.run("unknown", "qstat", "-f", "-F", "json", "999999")
    recorder.run("unknown", "qdel", "999999")


def without_history(recorder):
    """A job that ends at a server that keeps no history."""
    recorder.manage("qmgr", "-c", "set server job_history_enable = false")
    try:
        job_id = recorder.submit("gone", "sleep 3")
        recorder.wait(RUNNING, "running")
        recorder.look("running")
        recorder.wait("Unknown Job", "gone")
        recorder.run("gone", "qselect", "-x", "-N", "ts-never-was")
        recorder.look("gone")
        recorder.run("gone", "qdel", job_id)
    finally:
        recorder.manage("qmgr", "-c", "set server job_history_enable = true")


@needs("stop_server", "start_server")
def server_down(recorder):
    """Every command while no server answers."""
    job_id = recorder.submit("down", "true", cores=TOO_MANY_CORES)
    recorder.control("stop_server")
    try:
        recorder.look("down")
        recorder.run("down", "qdel", job_id)
        recorder.submit("down", "true", moment="down")
    finally:
        recorder.control("start_server")
    recorder.run("up again", "qdel", job_id)


@needs("stop_server", "start_server")
def answer_lost(recorder):
    """The server is killed while it works on a submission."""
    add_hook(recorder, SLOW_HOOK)
    try:
        asked = threading.Thread(target=recorder.submit, args=("lost", "true", "lost"))
        asked.start()
        time.sleep(3)
        recorder.control("stop_server")
        asked.join()
    finally:
        recorder.control("start_server")
        recorder.manage("qmgr", "-c", "delete hook ts_hook")


@needs("stop_node", "start_node")
def node_down(recorder):
    """The node goes away under jobs: one that may run again is put back, one that may not is over."""
    recorder.manage("qmgr", "-c", "set server node_fail_requeue = 3")
    try:
        once = recorder.submit("node", FOREVER, moment="not rerunnable")
        recorder.wait(RUNNING, "running")
        kept = recorder.last
        again = recorder.submit("node", FOREVER, moment="rerunnable", requeue=1, requeue_on=["node_failed"])
        recorder.wait(RUNNING, "running")
        recorder.control("stop_node")
        recorder.wait("job_state = [QH]", "put back", 300)
        time.sleep(3)
        recorder.look("rerunnable")
        waiting, recorder.last = recorder.last, kept
        recorder.wait("job_state = F", "over", 300)
        recorder.look("not rerunnable")
        recorder.last = waiting
        recorder.manage("qdel", "-W", "force", again, check=False)
        recorder.manage("qdel", "-W", "force", once, check=False)
    finally:
        recorder.control("start_node")
        recorder.manage("qmgr", "-c", "unset server node_fail_requeue")
        time.sleep(5)


@needs("stop_node", "start_node")
def node_restarted(recorder):
    """pbs_mom of the node is killed and started again at once, and ends the jobs that it finds."""
    recorder.submit("mom", FOREVER, moment="not rerunnable")
    recorder.wait(RUNNING, "running")
    kept = recorder.last
    again = recorder.submit("mom", FOREVER, moment="rerunnable", requeue=1, requeue_on=["node_failed"])
    recorder.wait(RUNNING, "running")
    recorder.control("stop_node")
    recorder.control("start_node")
    waiting, recorder.last = recorder.last, kept
    recorder.wait("job_state = F", "over", 300)
    recorder.look("not rerunnable")
    recorder.last = waiting
    recorder.wait("run_count = 2", "run again", 300)
    recorder.look("rerunnable")
    recorder.manage("qdel", again, check=False)
    end(recorder)


def spoilt(recorder):
    """Jobs whose arguments, variables and names of variables make qstat's JSON invalid."""
    recorder.submit("spoilt", 'printf "a\\\\"; true "b"', moment="backslash before a quotation mark")
    end(recorder, moment="backslash before a quotation mark")
    recorder.submit("spoilt", "true", moment="control characters", directives=["-v 'A=\x1b[1m\x01,B=00,C=inf,D=\\d'"])
    end(recorder, moment="control characters")
    recorder.submit("spoilt", "true", moment="bytes", directives=["-v 'E=\udcff\udcfe'"])
    end(recorder, moment="bytes")


ALL = (
    done, failed, log_missing, signalled, walltime, walltime_obeyed, held, held_by_the_site, queued, not_started,
    cancelled, cancelled_obeyed, cancelled_by_force, requeued, preempted, refused, refused_account, unauthorized,
    unknown_job, without_history, spoilt, node_restarted, node_down, server_down,
    answer_lost,
)
