# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Whatever stands at whichever key of a release file, it is told in sentences: nothing is ever raised."""

from __future__ import annotations

import copy
import pathlib

import pytest
import yaml
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import release_file
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file as files

KEYS = files.specified()["release_file"]["options"]
LINT = pathlib.Path(__file__).parents[4] / "fixtures" / "lint" / "releases"
RELEASES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(LINT.glob("*.yml"))}
VALUES = (None, True, 8, 8.9, "text", "", [], [8.9], ["text"], [{"text": 8}], {}, {"text": 8}, {8: ["text"]})


def places(value, path=()):
    """The paths of all keys and elements."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield (*path, key)
        yield from places(below, (*path, key))


@pytest.mark.parametrize("name", ["source", "wheel"])
def test_a_value_of_any_type_at_any_key_is_told_and_never_raises(name):
    tried = 0
    for path in places(RELEASES[name]):
        for value in VALUES:
            content = copy.deepcopy(RELEASES[name])
            inner = content
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
            try:
                found = release_file.problems(content, KEYS)
            except Exception as error:
                pytest.fail("%s: %r raises %r" % (path, value, error))
            assert all(isinstance(sentence, str) and sentence for sentence in found)
            tried += 1
    assert tried > 500
