# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Recorded answers of a real PBS, found by scenario, moment and command, and filled in for a job of a test."""

from __future__ import annotations

import json
import os
import pwd
import re
import sys

HOST = "pbs.example"


class Answers:
    """The records of one version of PBS."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def find(self, scenario: str, moment: str, command: str, *words: str, without: str = "") -> dict:
        """The last exchange of this command, with some words and without another, at this moment of a scenario."""
        with open(os.path.join(self.directory, scenario + ".json"), encoding="ascii") as stream:
            exchanges = json.load(stream)["exchanges"]
        found = [
            item for item in exchanges
            if item["moment"] == moment and item["command"][0] == command and set(words) <= set(item["command"])
            and without not in item["command"]
        ]
        if not found:
            raise LookupError("No record of %s at the moment %r of the scenario %s." % (command, moment, scenario))
        return found[-1]

    def give(self, scenario: str, moment: str, command: str, *words: str, job_id: str = "") -> int:
        """Write the recorded answer to standard output and error, and return its exit status."""
        exchange = self.find(scenario, moment, command, *words)
        say(filled(exchange["stdout"], job_id))
        say(filled(exchange["stderr"], job_id), sys.stderr)
        return exchange["status"]


def say(text: str, stream=None) -> None:
    """Write text with the very bytes that were recorded."""
    stream = stream or sys.stdout
    stream.flush()
    stream.buffer.write(text.encode("utf-8", "surrogateescape"))
    stream.flush()


def filled(text: str, job_id: str = "", name: str = "") -> str:
    """A recorded text with names in place of its placeholders."""
    user = pwd.getpwuid(os.geteuid())
    for placeholder, value in (
        ("@JOB_ID@", job_id), ("@JOB_NAME@", name), ("@USER@", user.pw_name), ("@HOME@", user.pw_dir),
        ("@SERVER@", HOST), ("@HOST@", HOST), ("@PLACE@", "/var/spool/pbs"),
    ):
        text = text.replace(placeholder, value)
    return text


def job_of(text: str) -> str:
    """The one job in an answer of qstat: its member of "Jobs", from its identifier to its closing brace."""
    # OpenPBS indents by four blanks, and since it uses cJSON by tabs.
    match = re.search(r'^( {8}|\t\t)"[^"]*":\s*\{\n.*?^\1\}', text, re.DOTALL | re.MULTILINE)
    return match.group(0) if match else ""


def with_exit_status(text: str, status: int) -> str:
    """A job with another Exit_status than the recorded one."""
    return re.sub(r'("Exit_status":\s*)-?\d+', r"\g<1>%d" % status, text)
