# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How a module that looks at something ends."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import findings


class Ended(Exception):
    """As AnsibleModule ends its process."""


class Module:
    """Takes what an AnsibleModule would print."""

    def __init__(self):
        self.warned, self.result, self.failed = [], {}, None

    def warn(self, text):
        self.warned.append(text)

    def exit_json(self, **result):
        self.result, self.failed = result, False
        raise Ended

    def fail_json(self, **result):
        self.result, self.failed = result, True
        raise Ended


NOTE = findings.note("python", "It is Python 3.11.")
WARNING = findings.warning("latency", "A file takes 30 ms.", "Ask who runs the file system.")
ERROR = findings.error("space", "There is no space.", "Make some.")


def ended(seen, *words, **options):
    module = Module()
    with pytest.raises(Ended):
        findings.end(module, seen, "preflight", *words, **options)
    return module


def test_errors_are_the_message_and_warnings_are_shown_beside_them():
    module = ended([NOTE, WARNING, ERROR, ERROR], {"seconds": 1.5}, {"facts": 1}, "Nothing was built.")
    assert module.failed and module.warned == ["A file takes 30 ms. Ask who runs the file system."]
    assert module.result["msg"] == "There is no space. Make some. There is no space. Make some. Nothing was built."
    assert module.result["failed_step"] == "preflight" and module.result["seconds"] == 1.5
    assert [finding["check"] for finding in module.result["findings"]] == ["python", "latency", "space", "space"]
    assert "facts" not in module.result and module.result["changed"] is False


def test_without_an_error_the_module_returns_all_that_it_found():
    module = ended([NOTE, WARNING], {"seconds": 1.5}, {"facts": 1}, "Nothing was built.")
    assert not module.failed and len(module.warned) == 1
    assert module.result["facts"] == 1 and module.result["seconds"] == 1.5 and "msg" not in module.result


def test_what_kept_the_module_from_looking_comes_instead():
    module = ended([ERROR], {}, trouble="The machine could not be looked at.")
    assert module.failed and module.result["msg"] == "The machine could not be looked at."
