# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What packages say of their licences, as SPDX spells it."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.release.licences import is_expression, licence


@pytest.mark.parametrize("said", [
    "MIT", "BSD-3-Clause AND 0BSD AND MIT", "Apache-2.0 WITH LLVM-exception", "(MIT OR Apache-2.0) AND ISC",
    "GPL-2.0-or-later WITH GCC-exception-3.1 OR MIT", "EPL-1.0+",
])
def test_an_expression_of_known_identifiers_is_taken_as_it_is(said):
    assert licence(said) == (said, {})


@pytest.mark.parametrize("said", [
    "BSD", "MIT AND", "AND MIT", "MIT MIT", "(MIT", "MIT)", "MIT WITH MIT", "(MIT OR ISC) WITH LLVM-exception", "()",
    "", "MIT, see LICENSE", "mit and isc", "OR",
])
def test_what_is_none_is_not_taken_for_one(said):
    assert not is_expression(said)


def test_what_is_no_expression_is_quoted_under_a_name_of_its_own():
    first, second = licence("BSD, the new one"), licence("BSD the new one")
    assert first.expression != second.expression
    assert first.expression.startswith("LicenseRef-BSD-the-new-one-")
    assert first.quoted == {first.expression: "The package's metadata says: BSD, the new one"}
    assert licence("LicenseRef-MPICH").expression.startswith("LicenseRef-MPICH-")


def test_a_name_that_means_one_licence_beyond_doubt_is_understood():
    assert licence("Apache 2.0") == ("Apache-2.0", {})
    assert licence("The MIT License") == ("MIT", {})


def test_what_says_nothing_asserts_nothing():
    assert licence(" ") == ("NOASSERTION", {})
