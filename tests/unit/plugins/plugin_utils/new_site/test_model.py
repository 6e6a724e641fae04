# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A new release takes versions, locks and rules from one of the collection, as they are written there."""

from __future__ import annotations

import pytest
import yaml
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.new_site.model import Model

TEXT = """\
release: r
a: 1
rules:  # about all
  # of both
  modules: [torch, horovod.torch, numpy]
  list:
    - {name: torch}

    - {name: horovod, reason: why}
    - {name: numpy, reason: Horovod needs it}
locks:
  base: |
    one==1
"""


@pytest.fixture()
def model(tmp_path):
    path = tmp_path / "r.yml"
    path.write_text(TEXT)
    return Model(path)


def test_a_value_is_found_by_its_path_and_a_missing_one_is_named(model):
    assert model.value("locks.base") == "one==1\n"
    assert model.value("cuda.version", "") == ""
    with pytest.raises(KeyError, match=r"The release r has no locks\.tools"):
        model.value("locks.tools")


def test_a_section_is_its_text_up_to_the_next_key(model):
    assert model.section("rules") == TEXT.partition("a: 1\n")[2].partition("locks:")[0].rstrip("\n")


def test_words_are_taken_out_of_lists_and_with_the_lines_that_speak_of_them(model):
    section = model.section("rules", ["horovod"])
    assert "orovod" not in section and "# of both" in section
    assert yaml.safe_load(section) == {"rules": {"modules": ["torch", "numpy"], "list": [{"name": "torch"}]}}


def test_a_section_of_a_release_that_extends_another_is_the_whole(model, tmp_path):
    (tmp_path / "s.yml").write_text("extends: r\nrelease: s\nrules:\n  more: [torch, horovod]\n")
    section = Model(tmp_path / "s.yml").section("rules", ["horovod"])
    assert yaml.safe_load(section)["rules"] == {
        "modules": ["torch", "numpy"], "list": [{"name": "torch"}], "more": ["torch"]}
    assert "- {name: torch}\n" in section
