# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Record what a real Flux answers the adapter, for the unit tests that replay it.

From a checkout that lies as ansible_collections/hpcml/torchstack below DIR, as an ordinary account::

    TORCHSTACK_TEST_FLUX=/opt/flux/bin/flux PYTHONPATH=DIR:tests python3 tests/flux/record.py tests/flux/records

It starts an instance of its own, see tests/support/flux_instance.py, and needs nothing else. The answers become one
file of the version of Flux; names of the account and of directories are replaced.
"""

from __future__ import annotations

import json
import os
import pathlib
import pwd
import sys
import tempfile
import time

from ansible_collections.hpcml.torchstack.plugins.module_utils.batch import flux, registry, scheduler
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from support import flux_instance
from support.polling import eventually


class Recorder:
    """An adapter whose commands are run, and kept with their answers."""

    def __init__(self, instance: flux_instance.FluxInstance) -> None:
        self.instance = instance
        self.adapter = flux.Flux(os.path.dirname(flux_instance.command()))
        self.log = str(instance.root / "log-of-jobs")
        self.records: dict[str, list[dict]] = {}
        self.run = self.adapter.commands._run
        self.adapter.commands._run = self.ask
        self.kept: list[dict] | None = None

    def ask(self, words, *how):
        """Run a command as the product does."""
        answer = self.run(words, *how)
        if self.kept is not None:
            self.kept.append({"command": [self.plain(word) for word in words], "status": answer.status,
                              "output": self.plain(answer.output), "complaint": self.plain(answer.complaint)})
        return answer

    def plain(self, text: str) -> str:
        """A text without the names of this machine."""
        user = pwd.getpwuid(os.geteuid())
        places = ((str(self.instance.root), "@PLACE@"), (os.path.dirname(os.path.dirname(flux_instance.command())),
                  "@FLUX@"), (user.pw_name, "@USER@"), ('"userid": %d' % user.pw_uid, '"userid": 1000'))
        for mine, instead in places:
            text = text.replace(mine, instead)
        return text

    def keep(self, scenario: str, call, *words):
        """Record what a call of the adapter asks and is answered; its result, or the error that it is."""
        self.kept = self.records.setdefault(scenario, [])
        self.kept.clear()
        try:
            return call(*words)
        except StackError as error:
            return error
        finally:
            self.kept = None

    def submit(self, scenario: str, command: str, keep: bool = False, **options) -> str:
        """Submit a job that bears the name of a scenario."""
        script = self.adapter.script("ts-" + scenario, registry.check_options("flux", options), self.log,
                                     ["/bin/sh", "-c", command])
        path = self.instance.root / "ts.sh"
        path.write_text(script)
        call = self.adapter.submit
        return str(self.keep(scenario, call, str(path), {}, ()) if keep else call(str(path), {}, ()))

    def until(self, scenario: str, state: str) -> None:
        """Record how a job is found as soon as it is in a state."""
        def reached():
            found = scheduler.current_job(self.keep(scenario, self.adapter.find, "ts-" + scenario))
            return found if found and found.state == state else None

        print(scenario, eventually(reached, "job %s is %s" % (scenario, state), 120))


def record(recorder: Recorder) -> None:
    """Go through all scenarios; what is refused, what waits, what ends, what does not answer."""
    instance, ended, waits = recorder.instance, scheduler.ENDED, scheduler.PENDING
    for scenario, options in (
        ("refused-queue", {"queue": "nosuch"}), ("refused-time", {"queue": "short", "walltime": "00:30:00"}),
        ("refused-constraint", {"constraint": "a100&(b"}), ("refused-option", {"directives": ["--no-such-option"]}),
    ):
        print(scenario, recorder.submit(scenario, "true", True, **options))
    instance.run("queue", "disable", "--queue=short", "--message=maintenance")
    print("refused-disabled", recorder.submit("refused-disabled", "true", True, queue="short"))
    recorder.submit("accepted", "true", True)

    held = recorder.submit("held", "true", directives=["--urgency=0"])
    recorder.until("held", waits)
    recorder.submit("depends", "true", directives=["--dependency=afterok:" + held])
    recorder.until("depends", waits)
    instance.run("queue", "stop", "--queue=short", "--message=maintenance")
    instance.run("queue", "enable", "--queue=short")
    recorder.submit("first", "true", queue="short", walltime="00:01:00")
    recorder.submit("stopped", "true", queue="short", walltime="00:01:00")
    time.sleep(1)
    recorder.until("stopped", waits)
    recorder.keep("cancel-waiting", recorder.adapter.cancel, held)
    for scenario, command, options in (
        ("done", "true", {}), ("failed", "exit 3", {}), ("signalled", "kill -9 $$", {}),
        ("time-limit", "exec sleep 600", {"walltime": "00:00:04"}), ("impossible", "true", {"cores": 4096}),
    ):
        recorder.submit(scenario, command, **dict({"cores": 1}, **options))
        recorder.until(scenario, ended)
    right, recorder.log = recorder.log, "/nowhere/log"
    recorder.submit("no-log", "true", cores=1)
    recorder.until("no-log", ended)
    recorder.log = right
    running = recorder.submit("cancelled", "exec sleep 600", cores=1)
    recorder.until("cancelled", scheduler.RUNNING)
    recorder.records["running"] = list(recorder.records["cancelled"])
    recorder.adapter.cancel(running)
    recorder.until("cancelled", ended)
    recorder.keep("cancel-over", recorder.adapter.cancel, running)
    recorder.keep("cancel-unknown", recorder.adapter.cancel, "f23")
    recorder.keep("unknown", recorder.adapter.find, "ts-unknown")
    recorder.submit("node-lost", "exec sleep 600", constraint="rank:2", cores=1)
    recorder.until("node-lost", scheduler.RUNNING)
    instance.kill(2)
    recorder.until("node-lost", ended)
    os.environ["FLUX_URI"] = "local:///nowhere/local-0"
    for scenario, call in (("silent-find", recorder.adapter.find), ("silent-cancel", recorder.adapter.cancel)):
        print(scenario, recorder.keep(scenario, call, "f23"))
    print("silent-submit", recorder.submit("silent-submit", "true", True))


def main() -> int:
    """Record all scenarios with the Flux of this machine."""
    with tempfile.TemporaryDirectory(prefix="fx") as place, flux_instance.running(pathlib.Path(place)) as instance:
        os.environ["FLUX_URI"] = instance.uri
        recorder = Recorder(instance)
        record(recorder)
        version = instance.run("version").stdout.split("commands:")[1].split()[0]
    path = pathlib.Path(sys.argv[1]) / (version + ".json")
    path.write_text(json.dumps(recorder.records, indent=1, ensure_ascii=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
