# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Filters for scenarios that make a part of release_context themselves; rollouts have it from the role release."""

from __future__ import annotations

from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import base, release_file


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self):
        return {"describe_base": base.describe, "series_digests": release_file.series_digests}
