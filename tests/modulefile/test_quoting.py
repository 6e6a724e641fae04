# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Any text, quoted for Lua and for Tcl, and read back by the real interpreters."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import lua as modulefile_lua
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import tcl as modulefile_tcl

LUA = next((path for path in map(shutil.which, ("lua", "lua5.4", "lua5.3", "lua5.1")) if path), None)
TCL = next((path for path in map(shutil.which, ("tclsh", "tclsh8.6", "tclsh9.0")) if path), None)
TEXTS = [
    "", "plain", "it's", 'say "x"', "$HOME ${HOME} [exec touch /x] {unbalanced", "}", "\\", "ends in \\",
    "\\n is no newline", "one\ntwo", "\n", "\nleading", "trailing\n", "tab\there", "bell\x07", "del\x7f",
    "]] ]=] ]==]", "]", "[[x]]", "\u00e9 \u00fc \u6f22", "#;&|", "--[[ comment", "%d %s", "a]\n]=",
]


@pytest.mark.skipif(LUA is None, reason="no Lua interpreter")
@pytest.mark.parametrize("quote", [modulefile_lua.quoted, modulefile_lua.long_text])
@pytest.mark.parametrize("text", TEXTS)
def test_lua_reads_back_what_was_quoted(tmp_path, quote, text):
    program = tmp_path / "program.lua"
    program.write_bytes(("io.write(%s)\n" % quote(text)).encode("utf-8"))
    assert subprocess.run([LUA, str(program)], stdout=subprocess.PIPE, check=True).stdout == text.encode("utf-8")


@pytest.mark.skipif(TCL is None, reason="no Tcl interpreter")
@pytest.mark.parametrize("frame", [
    "puts -nonewline %s\n", "if {1} {\n   puts -nonewline %s\n}\n", "proc p {} {\n puts -nonewline %s\n}\np\n",
])
@pytest.mark.parametrize("text", TEXTS)
def test_tcl_reads_back_what_was_quoted_in_a_body_too(tmp_path, frame, text):
    program = tmp_path / "program.tcl"
    head = "fconfigure stdout -translation lf -encoding utf-8\n"
    program.write_bytes((head + frame % modulefile_tcl.quoted(text)).encode("utf-8"))
    output = subprocess.run([TCL, "-encoding", "utf-8", str(program)], stdout=subprocess.PIPE, check=True).stdout
    assert output == text.encode("utf-8")
