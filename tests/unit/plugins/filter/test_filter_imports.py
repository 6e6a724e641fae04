# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a task pays for that uses one of the filters: Ansible loads all their files in its process."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

from ansible_collections.hpcml.torchstack.plugins.filter import release

PACKAGE = "ansible_collections.hpcml.torchstack.plugins"
FILTERS = pathlib.Path(release.__file__).parent


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
    assert len(names) > 5
    assert json.loads(said.stdout) == []
