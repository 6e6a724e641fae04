# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps import scratch


def test_a_build_has_a_short_directory_of_its_own_where_the_site_names_a_place(tmp_path):
    environment = {"TMPDIR": "/tmp"}
    made = scratch.make({"tmpdir": str(tmp_path)}, environment)
    assert environment["TMPDIR"] == made and os.path.dirname(made) == str(tmp_path)
    assert len(os.path.basename(made)) <= 11 and made != scratch.make({"tmpdir": str(tmp_path)}, {})
    os.makedirs(os.path.join(made, "left"))
    scratch.remove(made)
    assert not os.path.exists(made)


def test_without_a_place_nothing_is_made_and_nothing_removed():
    environment = {"TMPDIR": "/tmp"}
    assert scratch.make({}, environment) == ""
    assert environment == {"TMPDIR": "/tmp"}
    scratch.remove("")


def test_a_place_that_is_not_there_ends_the_attempt_with_advice(tmp_path):
    options = {"tmpdir": str(tmp_path / "none")}
    with pytest.raises(OSError) as caught:
        scratch.make(options, {})
    end = scratch.obstacle(options, caught.value)
    assert (end.reason, end.facts["place"], end.facts["error"]) == (
        "tmpdir", options["tmpdir"], "No such file or directory")
    assert "launcher_options" in end.facts["advice"]
