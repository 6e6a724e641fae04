# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What pip fetched is not what a lock has: the lock is named."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import lock_places

WANTED, OTHER = "0" * 64, "1" * 64
SAID = """Step package-tiny-fetch failed:
log line 3: ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.
log line 4:     tiny==1.0 from http://127.0.0.1:1/tiny-1.0-py3-none-any.whl (from -r /x/package.lock (line 1)):
log line 5:         Expected sha256 %s
log line 6:         Expected     or %s
log line 7:              Got        %s"""


@pytest.mark.parametrize("hashes", [(WANTED, "2" * 64), ("2" * 64, WANTED)])
def test_the_lock_is_found_by_the_hash_that_pip_expected(tmp_path, hashes):
    (tmp_path / "base.txt").write_text("tiny==1.0 --hash=sha256:%s\n" % OTHER)
    (tmp_path / "tiny.txt").write_text("# a comment\ntiny==1.0 \\\n    --hash=sha256:%s\n" % WANTED)
    files = [str(tmp_path / name) for name in ("base.txt", "tiny.txt", "not there.txt")]
    said = lock_places.mismatch(SAID % (*hashes, OTHER), files)
    begin = "The file that the index has as tiny 1.0 is not the one that %s locks in line 2: "
    assert said.startswith(begin % files[1])


@pytest.mark.parametrize("said", ["", "ERROR: no distribution for tiny==1.0", SAID % ("3" * 64, "4" * 64, OTHER)])
def test_of_anything_else_nothing_is_said(tmp_path, said):
    (tmp_path / "tiny.txt").write_text("tiny==1.0 --hash=sha256:%s\n" % WANTED)
    assert lock_places.mismatch(said, [str(tmp_path / "tiny.txt")]) == ""
