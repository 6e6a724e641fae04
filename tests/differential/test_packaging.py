# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Markers, tags and versions as the package `packaging` understands them, which pip has inside.

TORCHSTACK_EXAMPLES is how many markers are tried; without it they are always the same ones.
"""

from __future__ import annotations

import itertools
import os

import packaging.markers
import packaging.specifiers
import packaging.tags
import packaging.version
import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import markers
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror import wheel_tags
from hypothesis import given, settings
from hypothesis import strategies as st

VERSIONS = ["3", "3.8", "3.9.1", "3.10", "3.11", "3.11.0", "3.11.2", "3.12", "3.13.0", "4"]
VARIABLES = {
    "python_version": VERSIONS, "python_full_version": VERSIONS, "implementation_name": ["cpython", "pypy", "PyPy"],
    "sys_platform": ["linux", "win32", "lin"], "platform_machine": ["x86_64", "aarch64", "86"],
    "os_name": ["posix", "nt"], "platform_system": ["Linux", "Windows"],
}
EXAMPLES = int(os.environ.get("TORCHSTACK_EXAMPLES", "400"))
VERSION_OPERATORS = ["<", "<=", "==", "!=", ">=", ">", "~="]


@st.composite
def comparisons(draw):
    variable = draw(st.sampled_from(sorted(VARIABLES)))
    value = draw(st.sampled_from(VARIABLES[variable]))
    if "version" in variable:
        operator = draw(st.sampled_from(VERSION_OPERATORS))
        if operator == "~=" and "." not in value:
            operator = ">="
        if operator in ("==", "!=") and draw(st.booleans()):
            value += ".*"
    else:
        operator = draw(st.sampled_from(["==", "!=", "in", "not in"]))
        if operator.endswith("in") and draw(st.booleans()):
            return "'%s' %s %s" % (value, operator, variable)
    return "%s %s '%s'" % (variable, operator, value)


MARKERS = st.recursive(
    comparisons(),
    lambda inner: st.tuples(inner, st.sampled_from(["and", "or"]), inner, st.booleans()).map(
        lambda parts: ("(%s) %s (%s)" if parts[3] else "%s %s %s") % parts[:3]),
    max_leaves=5,
)


@settings(max_examples=EXAMPLES, deadline=None, derandomize=EXAMPLES == 400)
@given(MARKERS, st.sampled_from(["3.8.18", "3.9.1", "3.11.0", "3.11.2", "3.12.1", "3.13.0"]),
       st.sampled_from(["linux_x86_64", "linux_aarch64"]))
def test_markers_apply_as_they_do_for_pip(marker, version, platform):
    variables = markers.environment(version, "cpython", platform)
    assert markers.applies(marker, variables) is packaging.markers.Marker(marker).evaluate(dict(variables))


@pytest.mark.parametrize("minor", [8, 11, 13])
@pytest.mark.parametrize("machine, glibc", [("x86_64", "2.31"), ("x86_64", "2.17"), ("aarch64", "2.38")])
def test_wheels_are_preferred_as_pip_prefers_them(minor, machine, glibc):
    interpreter = wheel_tags.Interpreter(
        "3.%d.1" % minor, "cpython", "cp3%d" % minor, "linux_" + machine, glibc)
    places = list(wheel_tags.platforms(interpreter))
    expected = [
        *packaging.tags.cpython_tags((3, minor), [interpreter.abi_tag], places),
        *packaging.tags.compatible_tags((3, minor), "cp3%d" % minor, places),
    ]
    found = wheel_tags.fitting_tags(interpreter)
    assert found == [(tag.interpreter, tag.abi, tag.platform) for tag in expected]


def test_platforms_of_this_machine_are_those_that_pip_finds():
    found = {tag.platform for tag in packaging.tags.sys_tags()} - {"any"}
    if not any(name.startswith("manylinux") for name in found):
        pytest.skip("this interpreter takes no wheels for manylinux")
    newest = max(int(name.split("_")[2]) for name in found if name.startswith("manylinux_2_"))
    machine = next(
        name for name in found if name.startswith("linux_")).partition("_")[2]
    interpreter = wheel_tags.Interpreter("3.11.2", "cpython", "cp311", "linux_" + machine, "2.%d" % newest)
    assert set(wheel_tags.platforms(interpreter)) == found


SPELLINGS = ["1", "1.0", "1.0.0", "1.1", "1.0rc1", "1.0-rc.1", "1.0.post1", "1.0-1.post1", "1.0+cpu", "1.0+CPU.1",
             "v1.0", "10", "1.0a1", "1.0alpha1", "2.13.0+cpu", "2.13.0", "1.0.dev3", "1.00"]


def test_versions_are_the_same_where_pip_says_so():
    valid = [text for text in SPELLINGS if _is_version(text)]
    for asked, found in itertools.product(valid, valid):
        expected = packaging.specifiers.Specifier("==" + asked).contains(found, prereleases=True)
        assert wheel_tags.same_version(asked, found) is expected, (asked, found)


def _is_version(text):
    try:
        packaging.version.Version(text)
    except packaging.version.InvalidVersion:
        return False
    return True
