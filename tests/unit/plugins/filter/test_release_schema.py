# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The filters over a release file, as Ansible calls them."""

from __future__ import annotations

import datetime

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.hpcml.torchstack.plugins.filter.release_schema import FilterModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.canonical import digest_of

FILTERS = FilterModule().filters()
SCHEMA = {"name": {"type": "str", "required": True}, "jobs": {"type": "int", "default": 8}}


def test_a_release_file_is_judged_and_resolved():
    assert FILTERS["release_problems"]({"nam": "x"}, SCHEMA, "r.yml") == [
        "Unknown key 'nam' in r.yml; did you mean 'name'?", "'name' is missing in r.yml; add it (text)."]
    assert FILTERS["release_problems"]({"name": "x"}, SCHEMA, patterns={"name": "y"}) == [
        "'name' is the text 'x'; it must match y."]
    assert FILTERS["resolved_release"]({"name": "x"}, SCHEMA) == {"name": "x", "jobs": 8}


def test_the_digest_is_the_one_of_the_build_steps():
    data = {"b": [1, 2.5, None, True], "a": "\u00fc"}
    assert FILTERS["canonical_digest"](data) == digest_of(data)
    assert FILTERS["canonical_digest"]({"a": 1, "b": 2}) == FILTERS["canonical_digest"]({"b": 2, "a": 1})
    assert FILTERS["canonical_digest"]([1, 2]) != FILTERS["canonical_digest"]([2, 1])


def test_a_wrong_schema_or_value_is_an_error_of_the_filter():
    with pytest.raises(AnsibleFilterError, match="known are str"):
        FILTERS["release_problems"]({}, {"a": {"type": "text"}})
    with pytest.raises(AnsibleFilterError, match="known are str"):
        FILTERS["resolved_release"]({}, {"a": {"type": "text"}})
    with pytest.raises(AnsibleFilterError, match="no mapping"):
        FILTERS["resolved_release"]([], SCHEMA)
    with pytest.raises(AnsibleFilterError, match="digested"):
        FILTERS["canonical_digest"]({"a": datetime.date(2026, 11, 20)})
