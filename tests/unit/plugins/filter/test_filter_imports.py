# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a task pays for that uses one of the filters: Ansible loads all their files in its process."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import errors, late

PACKAGE = "ansible_collections.hpcml.torchstack.plugins"
FILTERS = pathlib.Path(late.__file__).parents[2] / "filter"


def test_loading_all_filters_imports_nothing_else_of_the_collection():
    names = ["%s.filter.%s" % (PACKAGE, path.stem) for path in FILTERS.glob("*.py") if path.stem != "__init__"]
    program = (
        "import importlib, json, sys\n"
        "for name in %r: assert importlib.import_module(name).FilterModule().filters()\n"
        "print(json.dumps([name for name in sys.modules if name.startswith(%r)]))\n"
    ) % (names, PACKAGE + ".module_utils.")
    path = os.pathsep.join(filter(None, sys.path))
    said = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, check=True)
    assert len(names) > 10
    assert json.loads(said.stdout) == [PACKAGE + ".module_utils.core", PACKAGE + ".module_utils.core.late"]


def test_a_late_module_is_the_module_itself():
    assert late.Late("core.errors").StackError is errors.StackError


def test_a_name_that_it_lacks_is_an_error_as_ever():
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        assert late.Late("core.errors").nothing_of_the_kind
