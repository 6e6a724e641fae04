# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How a module that looks at something ends."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import findings
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError


class Module:
    """Takes what an AnsibleModule would show."""

    def __init__(self):
        self.warned = []

    def warn(self, text):
        self.warned.append(text)


NOTE = findings.note("python", "It is Python 3.11.")
WARNING = findings.warning("latency", "A file takes 30 ms.", "Ask who runs the file system.")
ERROR = findings.error("space", "There is no space.", "Make some.")


def failed(module, seen, *words, **options):
    with pytest.raises(StackError) as caught:
        findings.conclude(module, seen, "preflight", *words, **options)
    return caught.value.as_result()


def test_errors_are_the_message_and_warnings_are_shown_beside_them():
    module = Module()
    result = failed(module, [NOTE, WARNING, ERROR, ERROR], {"seconds": 1.5}, {"facts": 1}, "Nothing was built.")
    assert module.warned == ["A file takes 30 ms. Ask who runs the file system."]
    assert result["msg"] == "There is no space. Make some. There is no space. Make some. Nothing was built."
    assert result["failed_step"] == "preflight" and result["seconds"] == 1.5
    assert [finding["check"] for finding in result["findings"]] == ["python", "latency", "space", "space"]
    assert "facts" not in result and result["changed"] is False


def test_without_an_error_the_module_returns_all_that_it_found():
    module = Module()
    result = findings.conclude(
        module, [NOTE, WARNING], "preflight", {"seconds": 1.5}, {"facts": 1}, "Nothing was built.")
    assert len(module.warned) == 1
    assert result["facts"] == 1 and result["seconds"] == 1.5 and "msg" not in result


def test_what_kept_the_module_from_looking_comes_instead():
    result = failed(Module(), [ERROR], {}, trouble="The machine could not be looked at.")
    assert result["msg"] == "The machine could not be looked at."
