# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A data file against its schema."""

from __future__ import annotations

import copy
import datetime

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import schema as schemas

SOURCE = {
    "version": {"type": "str", "required": True, "description": ["The version, as V(2.6.0).", "More."]},
    "commit": {"type": "str", "example": "1eba9b3aa3c43f86f4a2c807ac8e12c4a7767340"},
    "archive": {"type": "str"},
    "sha256": {"type": "str"},
}
SCHEMA = {
    "name": {"type": "str", "required": True},
    "base": {"type": "str", "choices": ["conda", "overlay", "container"], "default": "conda"},
    "jobs": {"type": "int", "default": 8},
    "hours": {"type": "float"},
    "keep_sources": {"type": "bool", "default": False, "aliases": ["keep_source"]},
    "pytorch": {
        "type": "dict",
        "required": True,
        "options": dict(SOURCE, arch_list={"type": "list", "elements": "str", "default": ["8.0"]}),
        "mutually_exclusive": [["commit", "archive"]],
        "required_one_of": [["commit", "archive"]],
        "required_together": [["archive", "sha256"]],
    },
    "horovod": {
        "type": "dict",
        "options": {
            "version": {"type": "str", "default": "0.28.1"},
            "patches": {"type": "path"},
            "backend": {"type": "str", "choices": ["mpi", "gloo"], "default": "mpi"},
        },
    },
    "freeze": {"type": "dict", "apply_defaults": True, "options": {"mode": {"type": "str", "default": "555"}}},
    "packages": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str", "required": True},
            "method": {"type": "str", "choices": ["wheel", "source"], "default": "wheel"},
            "url": {"type": "str"},
        },
        "required_if": [["method", "source", ["url"]]],
    },
    "environment": {"type": "dict", "default": {}},
    "extra": {"type": "raw"},
}
FINE = {
    "name": "2026-11-20",
    "pytorch": {"version": "2.6.0", "commit": "1eba9b3aa3c43f86f4a2c807ac8e12c4a7767340"},
}
FILE = "releases/x.yml"


def changed(**keys):
    return dict(copy.deepcopy(FINE), **keys)


def pytorch(**keys):
    return changed(pytorch=dict(FINE["pytorch"], **keys))


def test_a_release_file_in_order_has_no_problems():
    definition = changed(
        base="overlay", hours=1.5, keep_source=True, horovod={"patches": "series/horovod"},
        packages=[{"name": "mpi4py", "method": "source", "url": "x"}], environment={"A": 1}, extra=[None],
    )
    assert schemas.problems(definition, SCHEMA, FILE) == []


@pytest.mark.parametrize(
    ("definition", "sentence"),
    [
        (changed(horovd={}), "Unknown key 'horovd' in releases/x.yml; did you mean 'horovod'?"),
        (changed(Horovod={}), "Unknown key 'Horovod' in releases/x.yml; did you mean 'horovod'?"),
        (changed(**{"keep-sources": True}),
         "Unknown key 'keep-sources' in releases/x.yml; did you mean 'keep_sources'?"),
        (changed(sha256="0"), "Unknown key 'sha256' in releases/x.yml; 'sha256' belongs under 'pytorch'."),
        (changed(version="0"),
         "Unknown key 'version' in releases/x.yml; 'version' belongs under 'pytorch' or under 'horovod'."),
        (changed(url="0"), "Unknown key 'url' in releases/x.yml; 'url' belongs in an entry of 'packages'."),
        (pytorch(jobs=4), "Unknown key 'pytorch.jobs' in releases/x.yml; 'jobs' belongs at the top level."),
        (pytorch(archlist=[]), "Unknown key 'pytorch.archlist' in releases/x.yml; did you mean 'arch_list'?"),
        (changed(packages=[{"name": "a"}, {"nam": "b", "name": "b"}]),
         "Unknown key 'packages[1].nam' in releases/x.yml; did you mean 'name'?"),
        (changed(horovod={"archives": "x"}),
         "Unknown key 'horovod.archives' in releases/x.yml; did you mean 'archive' under 'pytorch'?"),
        (changed(horovod={"zzz": "x"}),
         "Unknown key 'horovod.zzz' in releases/x.yml; known here: version, patches, backend."),
        (changed(horovod={1: "x"}),
         "Unknown key 'horovod.1' in releases/x.yml; known here: version, patches, backend."),
    ],
)
def test_an_unknown_key_is_named_with_the_one_that_was_meant(definition, sentence):
    assert schemas.problems(definition, SCHEMA, FILE) == [sentence]


@pytest.mark.parametrize(
    ("definition", "sentence"),
    [
        (pytorch(version=2.1),
         "'pytorch.version' in releases/x.yml must be text, but it is the number 2.1; put it in quotes, "
         "as YAML has turned what was written into something else."),
        (changed(name=datetime.date(2026, 11, 20)),
         "'name' in releases/x.yml must be text, but it is the date 2026-11-20; put it in quotes, "
         "as YAML has turned what was written into something else."),
        (changed(horovod={"patches": True}),
         "'horovod.patches' in releases/x.yml must be a path, as text, but it is true; put it in quotes, "
         "as YAML has turned what was written into something else."),
        (changed(jobs="8"),
         "'jobs' in releases/x.yml must be a whole number, but it is the text '8'; write it without quotes."),
        (changed(jobs=True), "'jobs' in releases/x.yml must be a whole number, but it is true."),
        (changed(hours="1.5"),
         "'hours' in releases/x.yml must be a number, but it is the text '1.5'; write it without quotes."),
        (changed(keep_sources="no"),
         "'keep_sources' in releases/x.yml must be true or false, but it is the text 'no'; write it without quotes."),
        (changed(keep_sources=0), "'keep_sources' in releases/x.yml must be true or false, but it is the number 0."),
        (pytorch(arch_list="8.0"),
         "'pytorch.arch_list' in releases/x.yml must be a list, but it is the text '8.0'; "
         "write it as a list, even of one."),
        (pytorch(arch_list=["8.0", 9.0]),
         "'pytorch.arch_list[1]' in releases/x.yml must be text, but it is the number 9.0; put it in quotes, "
         "as YAML has turned what was written into something else."),
        (changed(horovod=None),
         "'horovod' in releases/x.yml must be a mapping of keys to values, but it is empty; "
         "give it a value or remove the key."),
        (changed(horovod=["x"]), "'horovod' in releases/x.yml must be a mapping of keys to values, but it is a list."),
        (changed(packages={"a": 1}), "'packages' in releases/x.yml must be a list, but it is a mapping."),
        ("text", "releases/x.yml must be a mapping of keys to values, but it is the text 'text'."),
        (None, "releases/x.yml must be a mapping of keys to values, but it is empty; "
               "give it a value or remove the key."),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_and_never_converted(definition, sentence):
    assert schemas.problems(definition, SCHEMA, FILE) == [sentence]


@pytest.mark.parametrize(
    ("definition", "sentence"),
    [
        ({"pytorch": FINE["pytorch"]}, "'name' is missing in releases/x.yml; add it (text)."),
        (changed(pytorch={"commit": "1"}),
         "'pytorch.version' is missing in releases/x.yml; add it (The version, as 2.6.0)."),
        (changed(packages=[{}]), "'packages[0].name' is missing in releases/x.yml; add it (text)."),
        (changed(base="cnda"),
         "'base' in releases/x.yml is 'cnda', which is none of conda, overlay, container; did you mean 'conda'?"),
        (changed(base="xyz"), "'base' in releases/x.yml is 'xyz', which is none of conda, overlay, container."),
        (pytorch(archive="a.tar.gz", sha256="0"),
         "Only one of 'commit' and 'archive' can be given under 'pytorch' in releases/x.yml; remove the others."),
        (changed(pytorch={"version": "1"}),
         "One of 'commit' or 'archive' is needed under 'pytorch' in releases/x.yml."),
        (changed(pytorch={"version": "1", "archive": "a"}),
         "'archive' and 'sha256' must be given together under 'pytorch' in releases/x.yml; add 'sha256'."),
        (changed(packages=[{"name": "a", "method": "source"}]),
         "With 'packages[0].method' the text 'source', 'url' is needed under 'packages[0]' in releases/x.yml."),
        (changed(keep_source=True, keep_sources=True),
         "'keep_source' and 'keep_sources' in releases/x.yml mean the same; keep one."),
    ],
)
def test_what_is_missing_or_does_not_go_together_is_said(definition, sentence):
    assert schemas.problems(definition, SCHEMA, FILE) == [sentence]


def test_a_missing_choice_lists_the_choices():
    assert schemas.problems({}, {"base": {"required": True, "choices": ["a", "b"]}}) == [
        "'base' is missing; add it, one of a, b."]


def test_all_problems_come_at_once_and_in_the_order_of_the_file():
    definition = {
        "horovd": {}, "jobs": "8", "pytorch": {"commit": 7, "verson": "1"}, "base": "conde",
        "packages": [{"name": "a", "ur": 1}],
    }
    found = schemas.problems(definition, SCHEMA, FILE)
    assert [sentence.split("'")[1] for sentence in found] == [
        "horovd", "jobs", "pytorch.commit", "pytorch.verson", "pytorch.version", "base", "packages[0].ur", "name"]
    assert found == schemas.problems(copy.deepcopy(definition), SCHEMA, FILE)


COMMIT = {"pattern": "[0-9a-f]{40}", "says": "40 hexadecimal digits"}


def test_a_pattern_is_for_the_whole_text_and_says_its_rule_and_the_example():
    assert schemas.problems(FINE, SCHEMA, FILE, {"pytorch.commit": COMMIT}) == []
    for wrong in ("v2.6.0", "x" + FINE["pytorch"]["commit"], FINE["pytorch"]["commit"] + "\n"):
        found = schemas.problems(pytorch(commit=wrong), SCHEMA, FILE, {"pytorch.commit": COMMIT})
        assert len(found) == 1
        assert found[0].endswith(
            "it must be 40 hexadecimal digits, for example '1eba9b3aa3c43f86f4a2c807ac8e12c4a7767340'.")


def test_a_pattern_reaches_the_entries_of_a_list_and_may_stand_in_the_option():
    patterns = {"packages[].name": "[a-z0-9-]+", "pytorch.arch_list[]": r"\d+\.\d"}
    definition = pytorch(arch_list=["80", "9.0"])
    definition["packages"] = [{"name": "ok"}, {"name": "NOT OK"}]
    assert [sentence.split("'")[1] for sentence in schemas.problems(definition, SCHEMA, "", patterns)] == [
        "pytorch.arch_list[0]", "packages[1].name"]
    assert schemas.problems({"a": "b"}, {"a": {"type": "str", "pattern": "x+"}}) == [
        "'a' is the text 'b'; it must match x+."]


def test_a_schema_that_cannot_judge_is_refused():
    for schema, patterns, word in [
        ({"a": {"type": "string"}}, None, "'string'"),
        ({"a": {"type": "list", "elements": "text"}}, None, "'text'"),
        ({"a": {"type": "str", "options": {"b": {}}}}, None, "options"),
        ({"a": {"pattern": "("}}, None, "regular expression"),
        ({"a": {"type": "dict", "options": {"b": None}}}, None, "'a.b'"),
        ({"a": {}}, {"b": "x"}, "'b'"),
    ]:
        with pytest.raises(ValueError, match=word):
            schemas.problems({}, schema, "", patterns)


def test_resolving_fills_in_defaults_in_the_order_of_the_schema():
    definition = changed(packages=[{"name": "a"}], keep_source=True)
    before = copy.deepcopy(definition)
    result = schemas.resolved(definition, SCHEMA)
    assert definition == before
    assert list(result) == [
        "name", "base", "jobs", "keep_sources", "pytorch", "freeze", "packages", "environment"]
    assert result["base"] == "conda" and result["jobs"] == 8 and result["keep_sources"] is True
    assert result["pytorch"]["arch_list"] == ["8.0"]
    assert result["packages"] == [{"name": "a", "method": "wheel"}]
    assert result["freeze"] == {"mode": "555"}


def test_a_component_that_is_not_named_is_not_resolved_into_being():
    assert "horovod" not in schemas.resolved(FINE, SCHEMA)
    assert schemas.resolved(changed(horovod={}), SCHEMA)["horovod"] == {"version": "0.28.1", "backend": "mpi"}


def test_resolving_twice_changes_nothing_and_shares_nothing_with_the_schema():
    once = schemas.resolved(FINE, SCHEMA)
    assert schemas.resolved(once, SCHEMA) == once
    once["pytorch"]["arch_list"].append("9.0")
    assert SCHEMA["pytorch"]["options"]["arch_list"]["default"] == ["8.0"]
