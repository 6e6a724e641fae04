# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Judge the output of an acceptance's ranks as a program: ``judge.pyz QUESTION OUTPUT STATUS``."""

from __future__ import annotations

import json
import sys

from . import checks
from .output import EVENT, parse_output


def list_failures(question: dict, output: str, status: str) -> list[str]:
    """List why the release would not be accepted, one sentence each."""
    ended = "\n%s exit\t%s\n" % (EVENT, status)
    verdict = checks.check_reports(question, parse_output(output + ended))
    return ["%s: %s" % (failure.check, failure.message) for failure in verdict.failures]


def main(words: list[str]) -> None:
    """Print the failures as a JSON list, from a question, an output and the launcher's exit status."""
    with open(words[0], encoding="utf-8") as stream:
        question = json.load(stream)
    with open(words[1], encoding="utf-8", errors="replace") as stream:
        output = stream.read()
    json.dump(list_failures(question, output, words[2]), sys.stdout)
