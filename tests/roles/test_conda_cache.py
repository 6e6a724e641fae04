# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the role says of the package cache, and what it removes where the site's policy says so."""

from __future__ import annotations

import os

from ansible_collections.hpcml.torchstack.plugins.module_utils.core import rollout_lock as lock
from support.role_plays import play_tasks

VARIABLES = {
    "conda_base_cache": "{{ case.root }}/.torchstack/conda-pkgs", "conda_base_cache_keep": "{{ case.keep }}",
    "release_context": {"root": "{{ case.root }}", "release": "2026-11-20"},
}


def play(ansible_environment, tmp_path, root, policies):
    cases = [{"root": str(root), "keep": policy} for policy in policies]
    done = play_tasks("conda_base", "cache", VARIABLES, cases, ansible_environment, tmp_path)
    assert done.returncode == 0, done.stdout
    return " ".join(done.stdout.split())


def test_the_policy_is_data_and_another_rollout_postpones_it(ansible_environment, tmp_path):
    root = tmp_path / "root"
    cache = root / ".torchstack" / "conda-pkgs"
    (cache / "old-1-0" / "info").mkdir(parents=True)
    (cache / "old-1-0" / "info" / "index.json").write_text("{}")
    (cache / ".old-1-0aBcDeF").mkdir()
    (cache / ".old-1-0aBcDeF" / "half").write_bytes(b"x" * 2048)
    other = root / ".torchstack" / "2026-12-01"
    other.mkdir()
    lock.acquire(str(other / "lock.json"), lock.describe_process(os.getpid(), "site.yml"), lock.this_place())
    said = play(ansible_environment, tmp_path, root, [{}, {"leftovers": False}])
    assert said.count("conda-pkgs holds 2 packages and left-overs that no release needs, 2.00 KB.") == 2
    assert said.count("as release 2026-12-01 is being rolled out by") == 1
    assert (cache / ".old-1-0aBcDeF").is_dir()
    (other / "lock.json").unlink()
    said = play(ansible_environment, tmp_path, root, [{"leftovers": False}, {"unused": False, "days": 1}])
    assert said.count("conda-pkgs holds 1 packages and left-overs that no release needs") == 2
    assert sorted(path.name for path in cache.iterdir()) == [".cache.lock", "old-1-0", "urls.txt"]
