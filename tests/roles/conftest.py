# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the tests of the role python_packages begin with."""

from __future__ import annotations

import pytest
from support.package_release import Release, build_tools


@pytest.fixture(scope="session")
def tools(tmp_path_factory):
    """The build tools, which no test changes."""
    return build_tools(tmp_path_factory.mktemp("tools") / "tools")


@pytest.fixture()
def release(tmp_path, tools, ansible_environment):
    """An open release, into which nothing was installed yet but its base."""
    return Release(tmp_path, tools, ansible_environment)
