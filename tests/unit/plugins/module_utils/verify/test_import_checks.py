# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Mapped libraries held against rules: tables of facts and findings."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf.process_map import Library
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.import_checks import Brought, Recorded, judge
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.import_rules import parse_rules, same


def brought(step, path, soname="", deleted=False):
    library = Library(path.encode(), soname.encode(), ("stat", "0:1", hash(path)), deleted, True)
    return Brought(step, library)


def rules(**given):
    return parse_rules(dict({"modules": ["torch"], "single": ["*"]}, **given))


def found(verdict):
    return [
        (finding.kind, [entry.library.path.decode() for entry in finding.concerned]) for finding in verdict.findings
    ]


PYTHON = brought("the interpreter", "/usr/bin/python3.11")
NCCL = brought("torch", "/r/nccl/lib/libnccl.so.2.18.3", "libnccl.so.2")
OTHER_NCCL = brought("horovod", "/r/base/lib/libnccl.so.2.14.3", "libnccl.so.2")
MANGLED_NCCL = brought("horovod", "/r/base/x.libs/libnccl-1a2b3c4d.so.2", "libnccl-1a2b3c4d.so.2")
PLAIN = brought("torch", "/r/base/lib/libplain.so")
OTHER_PLAIN = brought("numpy", "/r/other/libplain.so")
EXTENSION = brought("torch", "/r/a/_C.cpython-311-x86_64-linux-gnu.so", "_C.cpython-311-x86_64-linux-gnu.so")
OTHER_EXTENSION = brought("numpy", "/r/b/_C.cpython-311-x86_64-linux-gnu.so", "_C.cpython-311-x86_64-linux-gnu.so")
GONE = brought("torch", "/r/nccl/lib/libnccl.so.2", "", deleted=True)
PROVIDER = {"name": "libnccl.so.2", "path": "/r/nccl/**", "reason": "the plugin is built for it"}

CASES = {
    "right": ([PYTHON, NCCL], {"providers": [PROVIDER]}, []),
    "s02 from elsewhere": ([OTHER_NCCL], {"providers": [PROVIDER]}, [("misplaced", [OTHER_NCCL])]),
    "s02 a second one of the same soname": ([NCCL, OTHER_NCCL], {}, [("duplicates", [NCCL, OTHER_NCCL])]),
    "s02 a second one under a mangled soname": (
        [NCCL, MANGLED_NCCL], {"single": ["*", "libnccl*"]}, [("duplicates", [NCCL, MANGLED_NCCL])],
    ),
    "each soname for itself": ([NCCL, MANGLED_NCCL], {}, []),
    "one finding for the same files": (
        [NCCL, OTHER_NCCL], {"single": ["*", "libnccl*"]}, [("duplicates", [NCCL, OTHER_NCCL])],
    ),
    "no rule about single": ([NCCL, OTHER_NCCL], {"single": []}, []),
    "libraries without soname": ([PLAIN, OTHER_PLAIN], {}, [("duplicates", [PLAIN, OTHER_PLAIN])]),
    "extension modules may share a name": ([EXTENSION, OTHER_EXTENSION], {}, []),
    "extension modules, asked for": (
        [EXTENSION, OTHER_EXTENSION], {"single": ["_C.*"]}, [("duplicates", [EXTENSION, OTHER_EXTENSION])],
    ),
    "a deleted library counts by its file": (
        [GONE, OTHER_NCCL], {"single": ["libnccl*"]}, [("duplicates", [GONE, OTHER_NCCL])],
    ),
    "rules for one library are alternatives": (
        [NCCL], {"providers": [dict(PROVIDER, path="/elsewhere/**"), dict(PROVIDER, name="libnccl*")]}, [],
    ),
    "none of the alternatives": (
        [NCCL], {"providers": [dict(PROVIDER, path="/elsewhere/**"), dict(PROVIDER, path="/nowhere/**")]},
        [("misplaced", [NCCL])],
    ),
    "a provider without anything": ([PYTHON], {"providers": [PROVIDER]}, []),
    "a required provider without anything": (
        [PYTHON], {"providers": [dict(PROVIDER, required=True)]}, [("misplaced", [])],
    ),
    "forbidden": (
        [NCCL, OTHER_NCCL], {"single": [], "forbid": [{"path": "/r/base", "reason": "not linked"}]},
        [("forbidden", [OTHER_NCCL])],
    ),
    "two rules, two findings": (
        [OTHER_NCCL], {"providers": [PROVIDER], "forbid": [{"path": "**/base/**", "reason": "no"}]},
        [("misplaced", [OTHER_NCCL]), ("forbidden", [OTHER_NCCL])],
    ),
}


@pytest.mark.parametrize("mapped, given, expected", CASES.values(), ids=CASES.keys())
def test_findings(mapped, given, expected):
    expected = [(kind, [entry.library.path.decode() for entry in entries]) for kind, entries in expected]
    assert found(judge(mapped, rules(**given))) == expected


def allow(name, **more):
    return dict({"name": name, "reason": "because"}, **more)


EXCUSES = {
    "by name": ([allow("libnccl.so.2")], 0, ["/r/base/lib/libnccl.so.2.14.3", "/r/nccl/lib/libnccl.so.2.18.3"], 0),
    "by path": ([allow("libnccl*", path="/r/base/**")], 0, ["/r/base/lib/libnccl.so.2.14.3"], 0),
    "of another name": ([allow("libmpi*")], 1, [], 1),
    "of another path": ([allow("libnccl*", path="/elsewhere/**")], 1, [], 1),
    "one needed, one not": (
        [allow("libnccl*", path="/r/base/**"), allow("libmpi*")], 0, ["/r/base/lib/libnccl.so.2.14.3"], 1,
    ),
}


@pytest.mark.parametrize("excuses, standing, allowed, unused", EXCUSES.values(), ids=EXCUSES.keys())
def test_an_excuse_takes_a_file_out_of_a_duplicate_and_unused_ones_are_told(excuses, standing, allowed, unused):
    verdict = judge([NCCL, OTHER_NCCL], rules(allow=excuses))
    assert len(verdict.findings) == standing
    assert sorted(entry["path"] for entry in verdict.allowed) == allowed
    assert len(verdict.unused) == unused


def test_two_files_of_three_are_still_a_duplicate_when_the_third_is_excused():
    third = brought("x", "/r/third/libnccl.so.2", "libnccl.so.2")
    verdict = judge([NCCL, OTHER_NCCL, third], rules(allow=[allow("*", path="/r/third/*")]))
    assert found(verdict) == [
        ("duplicates", ["/r/nccl/lib/libnccl.so.2.18.3", "/r/base/lib/libnccl.so.2.14.3", "/r/third/libnccl.so.2"])
    ]


def test_an_excuse_covers_misplaced_and_forbidden_libraries():
    given = {"providers": [PROVIDER], "forbid": [{"path": "/r/base", "reason": "no"}]}
    verdict = judge([OTHER_NCCL], rules(allow=[allow("libnccl*")], **given))
    assert (verdict.findings, [entry["kind"] for entry in verdict.allowed]) == ((), ["misplaced", "forbidden"])


EDGE = Recorded(b"/r/horovod.so", b"libnccl.so.2", b"/r/nccl/lib/libnccl.so.2")
STATIC = {
    "the file that was found": ([NCCL], NCCL.library.identity, None),
    "another file": ([OTHER_NCCL], NCCL.library.identity, "/r/base/lib/libnccl.so.2.14.3 (brought by horovod)"),
    "not mapped": ([PYTHON], NCCL.library.identity, "from nowhere"),
    "the record is older than the file": ([OTHER_NCCL], None, "which is gone"),
}


@pytest.mark.parametrize("mapped, identity, expected", STATIC.values(), ids=STATIC.keys())
def test_what_the_static_verification_found_has_to_be_what_is_mapped(mapped, identity, expected):
    identities = {EDGE.path: identity} if identity else {}
    verdict = judge(mapped, rules(), [EDGE, EDGE._replace(needer=b"/r/torch.so")], identities)
    assert len(verdict.findings) == (expected is not None)
    for finding in verdict.findings:
        assert expected in finding.sentence
        assert (finding.kind, finding.facts["rule"], finding.facts["needed_by"]) == ("misplaced", "static", 2)


@pytest.mark.parametrize("mapped, found", [([PYTHON], 0), ([NCCL], 0), ([OTHER_NCCL], 1)])
def test_what_an_object_only_opens_need_not_be_mapped_and_has_to_be_the_one_that_was_found(mapped, found):
    verdict = judge(mapped, rules(), [EDGE._replace(opened=True)], {EDGE.path: NCCL.library.identity})
    assert len(verdict.findings) == found


def test_names_that_are_not_text_are_shown_escaped():
    odd = Brought("torch", Library(b"/r/\xff\n/libx.so", b"lib\xfe.so", ("stat", "0:1", 1), False, True))
    [finding] = judge([odd], rules(providers=[{"name": "lib*", "path": "/elsewhere/**"}])).findings
    assert (finding.facts["path"], finding.facts["soname"]) == ("/r/\\xff\n/libx.so", "lib\\xfe.so")
    finding.sentence.encode("utf-8")


REFUSED = {
    "no module": ({"modules": []}, "modules is empty"),
    "not a module": ({"modules": ["os; import sys"]}, "not the name of a module"),
    "relative path": ({"providers": [{"name": "libx*", "path": "lib/**"}]}, "can never match"),
    "a path for a name": ({"allow": [{"name": "/lib/libx.so", "reason": "x"}]}, "not a glob over sonames"),
    "an empty name": ({"single": [""]}, "not a glob over sonames"),
    "a broken expression": ({"expect": [{"value": "a", "matches": "("}]}, "not a regular expression"),
    "no expression": ({"expect": [{"value": " ", "equals": 1}]}, "empty value"),
}


@pytest.mark.parametrize("given, message", REFUSED.values(), ids=REFUSED.keys())
def test_rules_that_can_never_work_are_refused(given, message):
    with pytest.raises(StackError, match=message) as caught:
        rules(**given)
    assert caught.value.failed_step == "plan" and caught.value.remedy


SAME = [
    (1, 1, True), (2, 2.0, True), (1, True, False), (0, False, False), (True, True, True), ("2", 2, False),
    ([1, [2]], [1, [2]], True), ([1], [True], False), ([1], [1, 2], False), ("ab", ["a", "b"], False),
    ({"a": [1]}, {"a": [1.0]}, True), ({"a": 1}, {"b": 1}, False), (None, None, True), (None, False, False),
]


@pytest.mark.parametrize("first, second, expected", SAME)
def test_values_are_equal_only_as_the_same_kind_of_thing(first, second, expected):
    assert [same(*pair) for pair in ((first, second), (second, first))] == [expected, expected]


MET = [
    ({"equals": "2.13.0+cpu"}, "2.13.0+cpu", True), ({"equals": [2, 18, 3]}, [2, 18, 3], True),
    ({"matches": r"2\.13\..*"}, "2.13.0", True), ({"matches": r"2\.13"}, "2.13.0", False),
    ({"matches": r"\[2, 18, \d+\]"}, [2, 18, 3], True), ({"matches": "true"}, True, True),
]


@pytest.mark.parametrize("rule, actual, expected", MET)
def test_expectations(rule, actual, expected):
    [expectation] = rules(expect=[dict(rule, value="x")]).expect
    assert expectation.met(actual) is expected
