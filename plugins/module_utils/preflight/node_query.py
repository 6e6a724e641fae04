# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Ask a compute node for its facts, and keep the answer: when to ask, with what, and the wait for it.

The question and the answer are files beside the release's other records, on the file system that both sides have to
see. What asks is a step of build_step, so that a lost connection never means a second job.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from typing import Any, Mapping, NamedTuple

from ..core.canonical import digest_of
from ..core.files import (
    read_json,
    readable_by_all,
    write_atomic,
    write_json,
)
from ..core.zipapp import program_text
from ..modulefiles import site_system
from ..modulefiles.layout import stage_directory
from ..release.records import ReleaseFiles
from ..steps import remote_query
from . import node_facts

FRESH_SECONDS = 24 * 3600
"""How long an answer holds: nodes are renewed in maintenances, not between two runs of a day."""

END_OF_PROGRAM = "END_OF_COMPUTE_FACTS"


class Files(NamedTuple):
    """Where the question, the answer and the verdict of one release lie."""

    directory: str
    record: str

    @classmethod
    def of(cls, release: ReleaseFiles, partition: str = "") -> Files:
        """Return those of a release, on a partition of the site; outside of its tree, which may be frozen."""
        place = stage_directory(release.root, release.release, partition)
        return cls(os.path.join(place, "compute"), os.path.join(place, "compute.json"))

    @property
    def request(self) -> str:
        """Tell what was asked last, until its answer is judged."""
        return os.path.join(self.directory, "request.json")

    def nonce(self, nonce: str) -> str:
        """Tell what the login side writes, for the node to read."""
        return os.path.join(self.directory, "from-login." + nonce)

    def answer(self, nonce: str) -> str:
        """Tell what the node writes, for the login side to read."""
        return os.path.join(self.directory, "from-node.%s.json" % nonce)


def fingerprint(asked: Mapping[str, Any]) -> str:
    """Return the digest of all that an answer depends on: launcher, options, the site's node, programs and prefix."""
    return digest_of(dict(asked))


def reason_to_ask(record: Any, digest: str, now: float) -> str:
    """Tell why the node has to be looked at; empty where the last look still holds."""
    if not isinstance(record, dict):
        return "no compute node was looked at yet"
    if record.get("digest") != digest:
        return "the site's data has changed"
    if not 0 <= now - record.get("judged", 0) < FRESH_SECONDS:
        return "the last look was more than a day ago"
    return ""


def ask(files: Files, digest: str) -> dict[str, Any]:
    """Write a question, or find the one that was asked before and not judged yet; return its ``nonce`` and ``digest``.
    """
    asked = remote_query.read_pending(files.request)
    if asked and asked["digest"] == digest and os.path.exists(files.nonce(asked["nonce"])):
        return asked
    with readable_by_all():
        os.makedirs(files.directory, exist_ok=True)
    forget(files)
    asked = remote_query.create(digest)
    write_atomic(files.nonce(asked["nonce"]), (asked["nonce"] + "\n").encode("ascii"))
    write_json(files.request, asked)
    return asked


def forget(files: Files) -> None:
    """Remove questions and answers; the next look asks anew."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(files.directory):
            if name == os.path.basename(files.request) or name.startswith(("from-login.", "from-node.")):
                os.unlink(os.path.join(files.directory, name))


def script(files: Files, nonce: str, wanted: Mapping[str, Any], python: str) -> str:
    """Return the commands of the step.

    They contain the program itself, so that an operator can read it and run it by hand. ``wanted`` has ``prefix``,
    ``node``, ``programs`` and ``wait``.
    """
    node = wanted["node"]
    unloading = {
        name: "\n".join(site_system.unloading_lines(name[1:]))
        for name in node.get("modules") or [] if name.startswith("-")}
    question = {
        "nonce": nonce, "nonce_file": files.nonce(nonce), "answer_file": files.answer(nonce),
        "prefix": wanted["prefix"], "wait": wanted["wait"], "tmpdir": node.get("tmpdir") or "",
        "modules": node.get("modules") or [], "module_init": node.get("module_init") or "",
        "programs": wanted["programs"],
        **({"finding": "\n".join(site_system.finding_lines())} if node.get("module_system") else {}),
        **({"setup": "\n".join(site_system.setup_lines(node["setup"]))} if node.get("setup") else {}),
        **({"unloading": unloading} if unloading else {}),
    }
    command = "%s -I -S - %s" % (shlex.quote(python), shlex.quote(json.dumps(question, sort_keys=True)))
    return "%s << '%s'\n%s%s\n" % (command, END_OF_PROGRAM, program_text(node_facts), END_OF_PROGRAM)


def wait_for_answer(files: Files, nonce: str, seconds: float) -> dict[str, Any]:
    """Return what the node wrote, once a shared file system shows it; the job that wrote it has ended."""
    path = files.answer(nonce)

    def read() -> dict[str, Any] | None:
        with contextlib.suppress(ValueError):
            facts = read_json(path)
            if isinstance(facts, dict) and facts.get("nonce") == nonce:
                return facts
        return None

    return remote_query.await_answer(path, read, seconds, "compute")
