# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What is in the way of a removal; the amounts themselves are compared with those of removals, in test_removal.py."""

from __future__ import annotations

from ansible_collections.hpcml.torchstack.plugins.module_utils.standalone import tree_amount


def test_mount_points_are_found_at_the_tree_and_below_it_only():
    lines = ["22 1 8:1 / %s rw - ext4 /dev/sda1 rw" % point
             for point in ("/", "/r", "/r/new\\040one/data", "/r/new\\040oneself", "/r/new")]
    assert tree_amount.mount_points("\n".join(lines), "/r/new one") == ["/r/new one/data"]
