# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Record what a real PBS answers, for the stand-ins that replay it.

Run it as root, the manager of a PBS server that is there for tests only, from a checkout that lies as
ansible_collections/hpcml/torchstack below DIR::

    PYTHONPATH=DIR python3 tests/pbs/record.py --account USER --other-account USER2 \\
        --stop-server CMD --start-server CMD --stop-node CMD --start-node CMD tests/pbs/records

``--account`` is an ordinary account that submits; the commands given stop and start pbs_server, and kill and start the
pbs_mom of the one node. Scenarios for which something is missing are left out and named. PBS_CONF_FILE and PATH say
where PBS is. Each scenario becomes one file below RECORDS/<version of PBS>/; names of the machine, its accounts and
directories, and the identifiers of jobs are replaced (see PLACEHOLDERS). Of a newer version, only the files are kept
that say something else than those of the oldest one.

Settings of the server are changed while this runs: scheduling, job_history_enable, node_fail_requeue, preempt_order,
the queues ts-closed, ts-short and ts-express, and a hook.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time

import scenarios

PLACEHOLDERS = ("@JOB_ID@", "@JOB_NAME@", "@USER@", "@SERVER@", "@HOST@", "@HOME@", "@PLACE@")
"""What stands in the records for the names of one machine."""

COMMANDS = ("qsub", "qselect", "qstat", "qdel")


class Recorder:
    """Runs commands as an ordinary account against a real PBS, and keeps what they answer."""

    def __init__(self, arguments: argparse.Namespace, home: str) -> None:
        self.arguments = arguments
        self.home = home
        self.exchanges: list[dict] = []
        self.names: dict[str, str] = {}
        server = self.manage("qstat", "-B", "-f", "-F", "json").stdout
        document = json.loads(server, strict=False)
        self.version = document["pbs_version"]
        self.server = document["pbs_server"]

    def manage(self, *words: str, check: bool = True) -> subprocess.CompletedProcess:
        """Run a command as the manager; it is not recorded."""
        return subprocess.run(words, capture_output=True, text=True, errors="replace", check=check, cwd="/")

    def control(self, action: str) -> None:
        """Stop or start the server or the node by the command of the command line."""
        subprocess.run(getattr(self.arguments, action), shell=True, check=True, cwd="/", stdout=subprocess.DEVNULL)

    def can(self, *actions: str) -> bool:
        """Whether commands for these actions were given."""
        return all(getattr(self.arguments, action) for action in actions)

    def run(self, moment: str, *words: str) -> str:
        """Run a command as the account, record it under the name of the moment, and return its standard output."""
        environment = {
            "HOME": self.home, "PATH": os.environ["PATH"], "LC_ALL": "C", "SHELL": "/bin/bash",
            "LOGNAME": self.arguments.account,
        }
        if "PBS_CONF_FILE" in os.environ:
            environment["PBS_CONF_FILE"] = os.environ["PBS_CONF_FILE"]
        pairs = ["%s=%s" % pair for pair in environment.items()]
        answer = subprocess.run(
            ["runuser", "-u", self.arguments.account, "--", "env", "-i", *pairs, *words],
            capture_output=True, cwd=self.home, check=False, stdin=subprocess.DEVNULL,
        )
        if words[0] in COMMANDS:
            self.exchanges.append({
                "moment": moment, "command": list(words), "status": answer.returncode,
                "stdout": answer.stdout.decode("utf-8", "surrogateescape"),
                "stderr": answer.stderr.decode("utf-8", "surrogateescape"),
            })
        return answer.stdout.decode("utf-8", "replace")

    def submit(self, name: str, program: str, moment: str = "submitted", **options: object) -> str:
        """Submit a shell program the way the adapter does; returns the identifier, or an empty text."""
        unique = "ts-%s-%d" % (name, time.monotonic_ns())
        job_id = self.run(moment, *scenarios.command(unique, options, program)).strip()
        self.names[unique] = "@JOB_NAME@"
        if job_id:
            self.names[job_id] = "@JOB_ID@"
            self.names[job_id.partition(".")[0] + "." + self.server] = "@JOB_ID@"
            self.last = (unique, job_id)
        return job_id

    def look(self, moment: str) -> None:
        """What the adapter's questions about the last job are answered now."""
        name, job_id = self.last
        for history in ((), ("-x",)):
            self.run(moment, "qselect", *history, "-u", self.arguments.account, "-N", name)
            self.run(moment, "qstat", *history, "-f", "-F", "json", job_id)

    def wait(self, pattern: str, what: str, seconds: float = 120.0) -> None:
        """Wait until qstat's full answer about the last job, from queue and history, matches."""
        deadline = time.monotonic() + seconds
        while True:
            said = ""
            for history in ((), ("-x",)):
                answer = self.manage("qstat", *history, "-f", self.last[1], check=False)
                said += answer.stdout + answer.stderr
            if re.search(pattern, said):
                return
            if time.monotonic() > deadline:
                raise SystemExit("It never happened: %s\n%s" % (what, said))
            time.sleep(0.1)

    def write(self, scenario: str, about: str) -> None:
        """Write what was recorded since the last call, with the names of this machine replaced."""
        text = json.dumps(
            {"scenario": scenario, "about": about, "pbs_version": self.version, "exchanges": self.exchanges}, indent=1
        )
        place = pathlib.Path(self.arguments.records) / self.version
        place.mkdir(parents=True, exist_ok=True)
        (place / (scenario + ".json")).write_text(self.anonymous(text) + "\n", encoding="ascii")
        self.exchanges, self.names = [], {}

    def anonymous(self, text: str) -> str:
        """The text with everything replaced that belongs to this machine."""
        names = dict(self.names)
        names.update({
            self.home: "@HOME@", self.arguments.account: "@USER@", self.server: "@SERVER@",
            socket.gethostname(): "@HOST@", socket.getfqdn(): "@HOST@",
        })
        for path in self.arguments.hide:
            names[path] = "@PLACE@"
        for name in sorted(names, key=len, reverse=True):
            text = re.sub(r"(?<![A-Za-z0-9])%s(?![A-Za-z0-9])" % re.escape(name), names[name], text)
        return re.sub(r'(PBS_O_PATH\\":(?:\\t)?\\")[^"\\]*', r"\1/usr/bin:/bin", text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", help="directory for the records")
    parser.add_argument("--account", required=True, help="the ordinary account that submits")
    parser.add_argument("--other-account", default="", help="another ordinary account")
    for action in ("stop-server", "start-server", "stop-node", "start-node"):
        parser.add_argument("--" + action, default="", help="shell command for it")
    parser.add_argument("--hide", action="append", default=[], help="a further path to be replaced")
    parser.add_argument("--only", action="append", default=[], help="record this scenario only")
    arguments = parser.parse_args()
    recorder = Recorder(arguments, os.path.expanduser("~" + arguments.account))
    for scenario in scenarios.ALL:
        name = scenario.__name__
        if arguments.only and name not in arguments.only:
            continue
        if not recorder.can(*getattr(scenario, "needs", ())):
            print("left out: %s, which needs %s" % (name, ", ".join(scenario.needs)))
            continue
        scenario(recorder)
        recorder.write(name, " ".join((scenario.__doc__ or "").split()))
        print("recorded: " + name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
