# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.files import step_files


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "A", "a b", ".hidden", "-a", "a\n", "\u00e4"], ids=ascii)
def test_a_name_that_cannot_be_a_directory_is_refused(name):
    with pytest.raises(StackError) as caught:
        step_files("/s", name)
    assert caught.value.failed_step == "options"


def test_every_record_lies_in_the_directory_of_its_step():
    files = step_files("/it's/steps", "s")
    assert files.job == "/it's/steps/s/job.json"
    assert (files.exit, files.stamp) == (files.path("exit"), files.path("stamp.json"))
    assert files.by_hand == "bash '/it'\"'\"'s/steps/s/script.sh'"
