# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run a playbook for a program: its lines go to standard error, and one JSON document to standard output."""

from __future__ import annotations

import json
import pathlib
from typing import Any, Callable, Mapping

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.lenient_json import (
    mapping,
    mappings,
    sequence,
    text,
    texts,
)
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import run_records

from . import playbook
from .places import Target
from .wording import as_typed

FORMAT = 1
"""Of the document. It is raised where a key goes or changes its meaning; a further key is no other format."""

STANDARD_ERROR = 2
PLAYED = ("steps", "changed", "results", "messages", "failures")
"""The lists that a record has; see plugins/callback/run_record.py."""


def print_data(found: object) -> None:
    """Print a document, and nothing else, to standard output."""
    print(json.dumps(found, indent=2, sort_keys=True))


def run(
    word: str, line: playbook.Line, target: Target, after_interruption: Callable[[pathlib.Path], str] | None = None
) -> int:
    """Run the line, print what its record says, and return how the command ends. Raises CommandError: nothing is run.

    Args:
        word: of the command, as it was typed.
        after_interruption: says what to say after Ctrl-C, by the record.
    """
    with run_records.kept(line.directory) as (record, variables):
        recorded = line._replace(environment={**line.environment, **variables})
        code = playbook.run(
            recorded, (lambda: after_interruption(record)) if after_interruption else None,
            lambda command, environment: playbook.play(command, recorded, environment, STANDARD_ERROR))
        found = run_records.read(record)
    print_data(describe(word, line, target, found, code))
    return code


def describe(
    word: str, line: playbook.Line, target: Target, record: Mapping[str, Any], code: int | None
) -> dict[str, Any]:
    """Make the document of a run.

    Args:
        record: that the run has left; empty where nothing was played.
        code: how the command ends; None where the line is only shown.
    """
    played = {key: sequence(record.get(key)) for key in PLAYED}
    played["messages"] = [
        {**one, "lines": [as_typed(said, line.site) for said in texts(one.get("lines"))]}
        for one in mappings(played["messages"])]
    played["failures"] = [
        {**one, "message": as_typed(text(one.get("message")), line.site)}
        for one in mappings(played["failures"])]
    return {
        "format": FORMAT, "word": word, "site": target.site or None, "releases": list(target.releases),
        "command": line.shown(), "rc": code, "check": bool(record.get("check")) or "--check" in line.words,
        "finished": bool(record.get("finished")), **played,
        "hosts": mapping(record.get("hosts")),
    }
