# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.text import printable


@pytest.mark.parametrize("text", [
    "\x1b]0;TITLE\x07", "\x1b]8;;http://h\x1b\\", "\x1b[2J", "\x1b[1A\x1b[2K", "\x1b]52;c;ZXZpbA==\x07", "\x9b31m",
    "\x1bPq#0;2\x1b\\", "\x1b(0", "\x1bc", "\x07\x08\r", "\x90tmux;\x9c", "\x1b_Gf=100;AAAA\x1b\\", "\u202e\u2066",
])
def test_nothing_that_a_terminal_obeys_is_left(text):
    assert printable("a%sb" % text) == "ab"


def test_other_text_stays():
    text = "W\u00f6rd \u2713\t[1/3] {x}\nnext"
    assert printable(text) == text


def test_a_failure_makes_no_terminal_do_anything():
    result = StackError("It said \x1b[2J: \x1b]0;T\x07no.", "run", "Try \x9b1mthis.").as_result()
    assert (result["msg"], result["remedy"]) == ("It said : no. Try this.", "Try this.")
