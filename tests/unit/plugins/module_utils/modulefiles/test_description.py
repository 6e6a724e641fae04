# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The notation and the rules of a description.

Covers description_checks, too.
"""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import description as subject
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import description_checks

BASE = {"name": "torchstack", "version": "2026-11-20", "prefix": "/soft/2026-11-20"}


def faults(**changes):
    return description_checks.find_faults(subject.normalise({**BASE, **changes}))


@pytest.mark.parametrize(("text", "parts"), [
    ("", [("text", "")]),
    ("plain $HOME $", [("text", "plain $HOME $")]),
    ("${HOME}", [("variable", "HOME")]),
    ("a${HOME}/b${X_1}", [("text", "a"), ("variable", "HOME"), ("text", "/b"), ("variable", "X_1")]),
    ("$${HOME}", [("text", "${HOME}")]),
    ("$$${HOME}", [("text", "$${HOME}")]),
    ("$${}${A}", [("text", "${}"), ("variable", "A")]),
])
def test_only_a_braced_name_is_a_reference(text, parts):
    assert subject.parse_value(text) == parts


@pytest.mark.parametrize("text", ["${", "${}", "${1}", "${HOME:-x}", "a${B C}", "${HOME"])
def test_anything_else_after_a_brace_is_an_error(text):
    with pytest.raises(ValueError, match="only"):
        subject.parse_value(text)


def test_a_value_is_expanded_from_the_environment_of_the_user():
    assert subject.expand("${HOME}/.local/$x/$${y}", {"HOME": "/home/u"}) == "/home/u/.local/$x/${y}"
    with pytest.raises(KeyError):
        subject.expand("${HOME}", {})


def test_the_order_of_search_is_the_order_of_the_list():
    description = subject.normalise({**BASE, "prepend": [
        {"name": "PATH", "values": ["/a", "/b"]}, {"name": "PATH", "values": ["/c"]},
    ], "append": [{"name": "PATH", "values": ["/z"]}]})
    assert subject.search_paths(description) == {"PATH": (["/a", "/b", "/c"], ["/z"])}


def test_numbers_become_the_text_that_was_written():
    description = subject.normalise({**BASE, "setenv": {"MPICH_GPU_SUPPORT_ENABLED": 1, "EMPTY": None}})
    assert description["setenv"] == {"MPICH_GPU_SUPPORT_ENABLED": "1", "EMPTY": ""}


def test_a_whole_description_is_accepted():
    assert faults(
        external=["/opt/nvidia", "${HOME}"], help="line\nline [x] $y", whatis={"Description": "d"}, category="c",
        keywords=["k"], conflicts=["other", "a/1"], family="python", depends_on=["gcc/12.3"],
        prepend=[{"name": "PATH", "values": ["/soft/2026-11-20/base/bin", "${HOME}/bin"]},
                 {"name": "LD_LIBRARY_PATH", "values": ["/soft/2026-11-20/nccl/lib"]}],
        append=[{"name": "CPATH", "values": ["/soft/2026-11-20/nccl/include"]}],
        setenv={"PYTHONUSERBASE": "${HOME}/.local/torchstack/site/2026-11-20", "CUDA_HOME": "/opt/nvidia/cuda",
                "XLA_FLAGS": "--x=/anywhere", "SINGULARITY_BIND": "/pfs,/scratch", "Q": "'\"$[]{}\\`!"},
        unsetenv=["PYTHONSTARTUP"], aliases={"ts-where": "echo $HOME"},
        functions={"f": {"sh": "echo 'x'", "csh": "echo x"}}, load_message="Hello\nyou",
        extensions=["numpy/2.1.0", "Py_Q.x/1!2.0-1"],
    ) == []


@pytest.mark.parametrize(("changes", "words"), [
    ({"setenv": {"CFLAGS": "-I/x"}}, ["CFLAGS in a modulefile leaks into every build"]),
    ({"setenv": {"LDFLAGS": "-L/x"}}, ["LDFLAGS in a modulefile leaks into every build"]),
    ({"prepend": [{"name": "PATH", "values": ["/soft/2026-11-20/nccl/include"]}]}, ["is an include directory"]),
    ({"append": [{"name": "PATH", "values": ["/soft/2026-11-20/include/x"]}]}, ["is an include directory"]),
    ({"prepend": [{"name": "LD_LIBRARY_PATH", "values": ["/soft/2026-11-20/lib/stubs"]}]}, ["stubs directory"]),
    ({"external": ["/cuda"], "prepend": [{"name": "LIBRARY_PATH", "values": ["/cuda/stubs"]}]}, ["stubs directory"]),
    ({"setenv": {"CUDA_STUBS": "/soft/2026-11-20/lib64/stubs/x"}}, ["stubs directory"]),
    ({"prepend": [{"name": "PATH", "values": [""]}]}, ["PATH has an empty entry"]),
    ({"prepend": [{"name": "PATH", "values": ["/soft/2026-11-20/bin:"]}]}, ["holds a colon"]),
    ({"prepend": [{"name": "PATH", "values": ["/a:/b"]}]}, ["holds a colon"]),
    ({"prepend": [{"name": "PATH", "values": ["bin"]}]}, ["not an absolute path in its shortest form"]),
    ({"prepend": [{"name": "PATH", "values": ["/soft/2026-11-20/bin/"]}]}, ["shortest form"]),
    ({"prepend": [{"name": "PATH", "values": ["/soft/2026-11-20/../x"]}]}, ["shortest form"]),
    ({"prepend": [{"name": "PATH", "values": ["//soft/2026-11-20/x"]}]}, ["shortest form"]),
    ({"prepend": [{"name": "PATH", "values": ["/opt/x/bin"]}]}, ["outside the prefix"]),
    ({"prepend": [{"name": "PATH", "values": ["/soft/2026-11-20b/bin"]}]}, ["outside the prefix"]),
    ({"prepend": [{"name": "PATH", "values": ["${HOME}/bin"]}]}, ["outside the prefix"]),
    ({"setenv": {"CUDA_HOME": "/opt/cuda"}}, ["outside the prefix"]),
    ({"prepend": [{"name": "LD_LIBRARY_PATH", "values": ["/soft/2026-11-20/base/lib"]}]}, ["by their RPATH"]),
    ({"prepend": [{"name": "PATH", "values": ["/soft/2026-11-20/b", "/soft/2026-11-20/b"]}]}, ["twice"]),
    ({"setenv": {"PATH": "x"}}, ["setenv of PATH throws away"]),
    ({"setenv": {"HOME": "x"}}, ["HOME belongs to the user"]),
    ({"setenv": {"LOADEDMODULES": "x"}}, ["LOADEDMODULES belongs to"]),
    ({"prepend": [{"name": "MODULEPATH", "values": ["/soft/2026-11-20/m"]}]}, ["MODULEPATH belongs to"]),
    ({"setenv": {"PYTHONUSERBASE": "${HOME}/.local"}}, ["releases would share one user base"]),
    ({"setenv": {"A": "x"}, "unsetenv": ["A"]}, ["A is changed in two ways"]),
    ({"unsetenv": ["A", "A"]}, ["A is changed in two ways"]),
    ({"unsetenv": ["P"], "append": [{"name": "P", "values": ["/soft/2026-11-20/b"]}]}, ["P is changed in two ways"]),
    ({"setenv": {"A": "${HOME"}}, ["The value of A is not understood"]),
    ({"setenv": {"A": "one\ntwo"}}, ["setenv.A holds a line break"]),
    ({"setenv": {"A": "\0"}}, ["setenv.A holds a control character"]),
    ({"setenv": {"A": True}}, ["setenv.A is a YAML boolean"]),
    ({"setenv": {"A": ["x"]}}, ["setenv.A is a list or a mapping"]),
    ({"setenv": {"A-B": "x"}}, ["'A-B' is not the name of a variable"]),
    ({"extensions": ["numpy"]}, ["'numpy' in extensions is not the name of a package, a slash and its version"]),
    ({"extensions": ['a/1", "b/2']}, ["in extensions is not the name of a package"]),
    ({"extensions": ["a/1\n"]}, ["extensions[0] holds a line break", "in extensions is not the name of a package"]),
    ({"extensions": [1.5]}, ["'1.5' in extensions is not the name"]),
    ({"aliases": {"a b": "x"}}, ["'a b' is not the name of an alias"]),
    ({"aliases": {"a": "it's"}}, ["apostrophe"]),
    ({"functions": {"f": {"csh": "x"}}}, ["no body for sh"]),
    ({"functions": {"f": {"sh": "x", "csh": "it's"}}}, ["apostrophe"]),
    ({"version": "default"}, ["'default', is not one plain word"]),
    ({"version": ".1"}, ["is not one plain word"]),
    ({"name": "a/b"}, ["is not one plain word"]),
    ({"prefix": "soft"}, ["not an absolute path"]),
    ({"family": "a-b"}, ["The family 'a-b'"]),
    ({"depends_on": ["gcc 12"]}, ["'gcc 12' in depends_on is not the name of a module"]),
])
def test_what_would_harm_users_is_refused_with_one_sentence(changes, words):
    found = faults(**changes)
    assert len(found) == len(words), found
    for sentence, word in zip(found, words):
        assert word in sentence
        assert sentence.endswith(".")


def test_a_reason_is_literal_and_may_have_several_lines():
    assert faults(setenv={"A": "1"}, reasons={"A": "Why ${NOT_A_REFERENCE and ${B}\nand what else."}) == []
    assert faults(prepend=[{"name": "PATH", "values": ["/soft/2026-11-20/bin"]}], reasons={"PATH": "why"}) == []


@pytest.mark.parametrize(("changes", "sentence"), [
    ({"reasons": {"A": "why"}}, "There is a reason for A, which the module does not change."),
    ({"setenv": {"A": "1"}, "reasons": {"A": "a\rb"}}, "reasons.A holds a control character."),
    ({"setenv": {"A": "1"}, "reasons": {"A": ["a"]}}, "reasons.A is a list or a mapping, where a text belongs."),
])
def test_a_reason_that_explains_nothing_or_breaks_its_comment_is_refused(changes, sentence):
    assert faults(**changes) == [sentence]


@pytest.mark.parametrize(("key", "nothing"), [("reasons", {}), ("first_file", [])])
def test_a_description_without_a_newer_key_is_recorded_as_it_was_before_there_was_any(key, nothing):
    assert key not in subject.normalise(BASE) and key not in subject.normalise({**BASE, key: nothing})


IMAGE = {"variables": ["SIF", "SIFX"], "candidates": ["/soft/2026-11-20/x.sif", "/images/x.sif"], "missing": "Gone."}


def test_s33_a_variable_may_name_the_first_of_some_files():
    assert faults(first_file=[IMAGE], external=["/images"], reasons={"SIFX": "why"}) == []
    description = subject.normalise({**BASE, "first_file": [IMAGE]})
    assert subject.first_files(description) == [IMAGE]
    assert subject.first_files(subject.normalise(BASE)) == []


@pytest.mark.parametrize(("changes", "word"), [
    ({"candidates": ["/elsewhere/x.sif"]}, "outside the prefix"),
    ({"candidates": ["x.sif"]}, "The candidate x.sif for SIF, SIFX is not an absolute path"),
    ({"candidates": ["${HOME}/x.sif"]}, "is not an absolute path"),
    ({"candidates": ["/images/x.sif", "/images/x.sif"]}, "SIF, SIFX has the candidate /images/x.sif twice"),
    ({"candidates": []}, "The entry SIF, SIFX of first_file has no candidates"),
    ({"variables": []}, "The entry of no variable of first_file has no variables"),
    ({"variables": ["S I F"]}, "'S I F' is not the name of a variable"),
    ({"variables": ["SIF", "SIF"]}, "SIF is changed in two ways"),
    ({"variables": ["A"]}, "A is changed in two ways"),
    ({"variables": ["PATH"]}, "setenv of PATH throws away"),
    ({"variables": ["HOME"]}, "HOME belongs to the user"),
    ({"missing": ""}, "has no missing"),
    ({"missing": "one\ntwo"}, "missing of first_file[0] holds a line break"),
])
def test_s33_a_choice_among_files_that_cannot_work_is_refused(changes, word):
    found = faults(first_file=[{**IMAGE, **changes}], external=["/images"], setenv={"A": "x"})
    assert len(found) == 1 and word in found[0] and found[0].endswith(".")


@pytest.mark.parametrize(("reason", "lines"), [
    ("", []), ("  why \n\n  and \n", ["why", "and"]), ("ends in \\", ["ends in \\ ."]), ("#%Module", ["#%Module"]),
])
def test_no_line_of_a_comment_swallows_the_next_one(reason, lines):
    assert subject.comment_lines({"reasons": {"A": reason}}, "A") == lines
    assert subject.comment_lines({}, "A") == []


def test_packages_for_cray_s_wrappers_are_names_and_no_directories():
    assert faults(prepend=[{"name": "PE_PKGCONFIG_LIBS", "values": ["ctk-11.8"]}]) == []
    assert faults(prepend=[{"name": "PE_PKGCONFIG_LIBS", "values": ["/ctk"]}]) == [
        "The entry /ctk of PE_PKGCONFIG_LIBS is not the name of a package."]
