# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What an opened release looks like on disk."""

from __future__ import annotations

import json
import os
import pathlib

import yaml

ROOT = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "root"
RECORDS = ROOT / "2026-11-20" / ".torchstack"


def test_the_resolved_release_file_holds_what_was_asked_for_and_what_was_found(host):
    text = host.file(str(RECORDS / "release.yml")).content_string
    resolved = yaml.safe_load(text)
    assert resolved["definition"]["horovod"]["version"] == "0.28.1"
    assert "--hash=sha256:" in resolved["definition"]["locks"]["base"]
    assert set(resolved["series"]) == {"horovod"}
    assert resolved["python"]["executable"].startswith("/")
    assert set(resolved["compilers"]) == {"CC", "CXX"}


def test_the_lock_was_given_back(host):
    path = ROOT / ".torchstack" / "2026-11-20" / "lock.json"
    assert not path.exists() or json.loads(path.read_text()).get("state") == "released"


def test_s03_the_directories_are_open_to_readers(host):
    for path in (ROOT / "2026-11-20", RECORDS, RECORDS / "steps", ROOT / "2026-11-20" / "wheels"):
        assert host.file(str(path)).mode == 0o755
