# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Files behind addresses, and their digests."""

from __future__ import annotations

import hashlib

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.digests import local_path, sha256_of


@pytest.mark.parametrize("url, path", [
    ("file:///soft/my%20mirror", "/soft/my mirror"), ("https://mirror.example.org/cf", None), ("/soft/mirror", None),
])
def test_only_an_address_of_a_file_has_a_path(url, path):
    assert local_path(url) == path


def test_a_file_longer_than_a_block_has_the_digest_of_all_of_it(tmp_path):
    content = b"0123456789" * 150_000
    (tmp_path / "file").write_bytes(content)
    assert sha256_of(str(tmp_path / "file")) == hashlib.sha256(content).hexdigest()
