# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The patch series of the horovod role, by what their patches make of the lines that they name."""

from __future__ import annotations

import pathlib
import re

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.series import load_series

SERIES = pathlib.Path(__file__).resolve().parents[2] / "roles" / "horovod" / "files" / "series"
CXX17, CXX20 = "0.28.1", "0.28.1-cxx20"
BRANCH = re.compile(r'if\(NOT Pytorch_VERSION VERSION_LESS "([\d.]+)"\)\s+set\(CMAKE_CXX_STANDARD (\d+)\)')


def lines_of(series, file, side):
    """The lines of a file that the patch of the C++ standard knows, before or after it."""
    (patch,) = [patch for patch in load_series(str(SERIES / series)).patches if b"-as-cxx" in patch.name]
    (part,) = [part for part in patch.files if part.new == file]
    return b"".join(line for hunk in part.hunks for line in getattr(hunk, side)).decode()


def standard(branches, version):
    """The C++ standard that the first branch sets which a version of PyTorch enters."""
    number = [int(part) for part in version.split(".")]
    return next((int(found) for least, found in branches if number >= [int(part) for part in least.split(".")]), None)


@pytest.mark.parametrize("series", [CXX17, CXX20])
def test_s22_a_torch_that_needs_cxx17_gets_it_and_an_older_one_keeps_its_own(series):
    before, after = (
        BRANCH.findall(lines_of(series, b"horovod/torch/CMakeLists.txt", side)) for side in ("old", "new"))
    assert [standard(before, version) for version in ("2.0.1", "2.1.0")] == [14, 14]
    assert [standard(after, version) for version in ("1.4.0", "1.13.1", "2.0.1")] == [None, 14, 14]
    assert [standard(after, version) for version in ("2.1.0", "2.3.1", "2.13.0")] == [17, 17, 17]
    assert standard(after, "2.14.1") == (20 if series == CXX20 else 17)


@pytest.mark.parametrize("series", [CXX17, CXX20])
def test_s22_horovod_and_its_gloo_are_compiled_as_cxx17_too(series):
    before, after = (lines_of(series, b"CMakeLists.txt", side) for side in ("old", "new"))
    assert [re.findall(r"set\(CMAKE_CXX_STANDARD (\d+)\)", text) for text in (before, after)] == [["14"], ["17"]]


def test_the_series_for_cxx20_has_all_else_that_the_one_for_cxx17_has():
    older, newer = (
        {patch.name: (SERIES / series / patch.name.decode()).read_bytes() for patch in load_series(
            str(SERIES / series)).patches if b"-as-cxx" not in patch.name} for series in (CXX17, CXX20))
    assert {name: newer.get(name) for name in older} == older
