# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Releases that were verified and accepted, and what the module modulefile_publish does to them without Ansible."""

from __future__ import annotations

import json
import os
from typing import Any

from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import root_lock
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.publication import Desired, make_plan
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.publication_changes import (
    Action,
    carry_out,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.publication_facts import read_facts
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.description import normalise
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.layout import (
    digest,
    make_directory,
    relative_path,
    render,
    stage_directory,
)

NAME = "torchstack"


def write(path: str, text: str) -> None:
    """One file with its directory."""
    make_directory(os.path.dirname(path))
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)


def stage(root: Any, version: str, frozen_at: str = "") -> None:
    """A release as the role modulefile, the freeze and the acceptance leave it, with nothing in it.

    Args:
        root: the directory of the releases.
        version: its name, and its module's version.
        frozen_at: when it was frozen, in UTC; without, some day in the past.
    """
    description = normalise({
        "name": NAME, "version": version, "prefix": "/soft/" + version, "setenv": {"WHICH": version},
        "help": "This is %s." % version, "prepend": [{"name": "PATH", "values": ["/soft/%s/bin" % version]}],
    })
    top = stage_directory(str(root), version)
    record: dict[str, Any] = {"name": NAME, "version": version, "passed": True, "files": {}, "checked": []}
    for syntax, text in render(description, version).items():
        write(os.path.join(top, relative_path(syntax, NAME, version)), text)
        record["files"][syntax] = {"sha256": digest(text.encode("utf-8"))}
    frozen = {
        "digest": digest(version.encode("utf-8")), "frozen_at": frozen_at or "2026-11-0%sT00:00:00Z" % version[-1]}
    accepted = {"passed": True, "subject": frozen["digest"]}
    for name, content in (("modulefile", record), ("acceptance", accepted), ("frozen", frozen)):
        write(os.path.join(top, name + ".json"), json.dumps(content))
    write(os.path.join(str(root), version, ".torchstack", "release.yml"), "release: '%s'\n" % version)


def record_manifest(root: Any, version: str, manifest: Any) -> None:
    """Let the record of a release's freeze name its manifest, the result of recording it."""
    path = os.path.join(stage_directory(str(root), version), "frozen.json")
    with open(path, encoding="utf-8") as stream:
        frozen = json.load(stream)
    counts = {"digest": manifest["digest"], "files": manifest["counts"]["files"], "bytes": manifest["bytes"]}
    write(path, json.dumps(dict(frozen, manifest=counts)))


def change(root: Any, version: str, state: str = "published", visible: bool = True, **more: Any) -> list[Action]:
    """Plan and do, as the module does.

    Args:
        root: the directory of the releases.
        version: name of a release of :func:`stage`.
        state: of the module.
        visible: of the module.
        more: further wishes.
    """
    with root_lock.held(str(root)):
        actions = make_plan(read_facts(str(root), version), Desired(state, visible, **more))
        carry_out(str(root), version, actions, {"undo": state in ("rolled_back", "withdrawn")})
    return actions
