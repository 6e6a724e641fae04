# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Judges what the ranks of an acceptance have printed, as a program of its own: ``judge.pyz QUESTION OUTPUT 0``."""

from __future__ import annotations

import json
import sys

from . import checks as acceptance
from . import output as acceptance_output


def failures(question: dict, output: str, status: str) -> list[str]:
    """What the release would not be accepted for, one sentence each.

    Args:
        question: what the ranks were asked.
        output: what they have printed.
        status: exit status of the launcher.
    """
    ended = "\n%s exit\t%s\n" % (acceptance_output.EVENT, status)
    verdict = acceptance.judge(question, acceptance_output.hear(output + ended))
    return ["%s: %s" % (failure.check, failure.message) for failure in verdict.failures]


def main(words: list[str]) -> None:
    """Print the failures as a JSON list.

    Args:
        words: the file of the question, that of the output, and the launcher's exit status.
    """
    with open(words[0], encoding="utf-8") as stream:
        question = json.load(stream)
    with open(words[1], encoding="utf-8", errors="replace") as stream:
        output = stream.read()
    json.dump(failures(question, output, words[2]), sys.stdout)
