# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A repository of sites, and a root with releases as rollouts leave them."""

from __future__ import annotations

import json
import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import rollout_lock
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.processes import here, read_process

DEFINITION = {"pytorch": {"version": "2.13.0"}, "mpi4py": {"version": "4.1.2"}}


@pytest.fixture()
def repository(tmp_path, monkeypatch):
    """Two sites with release files in the working directory."""
    top = tmp_path / "repository"
    for site, releases in (("local", ["2026-11-20"]), ("polaris", ["2023-10-04", "2026-11-21"])):
        (top / "inventories" / site / "releases").mkdir(parents=True)
        (top / "inventories" / site / "hosts.yml").write_text("---\n%s:\n  hosts: {%s-login: {}}\n" % (site, site))
        for release in releases:
            (top / "inventories" / site / "releases" / (release + ".yml")).write_text("---\n")
    (top / "ansible.cfg").write_text(
        "[defaults]\ninventory = inventories/local/hosts.yml,inventories/polaris/hosts.yml\n")
    (top / "playbooks").mkdir()
    for name in ("local", "polaris", "publish"):
        (top / "playbooks" / (name + ".yml")).write_text("---\n")
    monkeypatch.chdir(top)
    return top


class Root:
    """A root that tests put releases into."""

    def __init__(self, place):
        self.place = place

    def release(self, name, frozen="", definition=None):
        """Write the records of a release that was opened, and frozen where a time is given."""
        (self.place / name / ".torchstack" / "steps").mkdir(parents=True)
        afterwards = self.place / ".torchstack" / name
        afterwards.mkdir(parents=True)
        resolved = {"release": name, "site": "local", "definition": definition or DEFINITION}
        (self.place / name / ".torchstack" / "release.yml").write_text(json.dumps(resolved))
        if frozen:
            record = {"frozen_at": frozen, "digest": "d", "manifest": {"files": 3, "bytes": 2048, "digest": "m"}}
            (afterwards / "frozen.json").write_text(json.dumps(record))
        return self.place / name

    def step(self, release, name, started, seconds=None, inputs=None, needs=None, **job):
        """Write the records of a step; one without a duration runs in this process."""
        place = self.place / release / ".torchstack" / "steps" / name
        place.mkdir()
        process = read_process(job.pop("of", 0) or os.getpid())
        digest = job.get("digest", "x")
        record = {"nonce": "n", "digest": digest, "launcher": "local", "host": here().host, "boot_id": here().boot_id,
                  "started": started, "heartbeat": started, "phase": "running", "pid": process.pid,
                  "start_time": process.start_time, **job}
        (place / "job.json").write_text(json.dumps(record))
        facts = {"script": "make\n", "environment": {}, **(inputs or {})}
        (place / "inputs.json").write_text(json.dumps({"digest": digest, "facts": facts, "needs": needs or {}}))
        if seconds is not None:
            stamp = {"nonce": "n", "digest": digest, "started": started, "finished": started, "seconds": seconds,
                     "needs": needs or {}}
            (place / "stamp.json").write_text(json.dumps(stamp))
        return place

    def lock(self, release):
        """Let this process roll a release out."""
        record = rollout_lock.describe_process(os.getpid(), "playbooks/local.yml")
        record.update(token="t", since="2026-11-24T10:00:00Z")
        (self.place / ".torchstack" / release / "lock.json").write_text(json.dumps(record))


@pytest.fixture()
def root(tmp_path):
    (tmp_path / "root").mkdir()
    return Root(tmp_path / "root")
