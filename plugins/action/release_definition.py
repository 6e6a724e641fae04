# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Turn a release file into what it asks for, on the control node; the work is in module_utils/definition."""

from __future__ import annotations

import pathlib
from typing import Any, Mapping

from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import (
    known_problems,
    recorded,
    release_file,
    stored_release,
)
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file as files
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.control_action import (
    ControlAction,
    RefusedError,
    refuse,
)


class ActionModule(ControlAction):
    """Reads, checks and resolves a release file."""

    def find(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        """See :meth:`ControlAction.find`."""
        return define(self._task.args)


def define(options: Mapping[str, Any]) -> dict[str, Any]:
    """Do what the task asks for. Raises RefusedError, ValueError, StackError: the release file cannot be used."""
    path, name = pathlib.Path(str(options.get("path", ""))), str(options.get("release") or "")
    if not path.is_file():
        raise RefusedError(files.absence(path, str(options.get("site") or "")))
    read = files.read(path)
    content = read.content
    keys, source = files.specified()["release_file"]["options"], "releases/%s" % path.name
    if options.get("only") == known_problems.KEY:
        refuse(release_file.known_problem_problems(content, keys, source))
        return {"known_problems": known_problems.format_sentences(known_problems.read(content))}
    # That of a release was checked when it was written, and has every default in it.
    stored = stored_release.is_stored(content)
    if not stored:
        refuse(release_file.problems(content, keys, source, read.places))
    if name and content["release"] != name:
        raise RefusedError("%s says that it is release %s, and %s %s: they must be the same." % (
            path, content["release"], "what was asked for is" if stored else "its name says", name))
    own = str(options.get("own_series") or "")
    found = release_file.define(content, keys, str(files.ROLES), own)
    directories = release_file.series_directories(found.definition, str(files.ROLES), own)
    refuse([stored_release.problem(content, found.series, found.digest, str(path))])
    records = options.get("records")
    if records is not None:
        records = dict(records, record=files.parse_record(records.get("content")))
        found = recorded.compare(found, content, records, str(options.get("checksums") or ""))
        refuse([recorded.refusal(found, records, name, str(path))])
    lock_files = {key: str(path.parent / name) for key, name in read.places.files.items()}
    return dict(found._asdict(), series_directories=directories, lock_files=lock_files)
