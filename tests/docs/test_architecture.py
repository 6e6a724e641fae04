# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The plan of the house is the house: packages, floors, and imports that go down only."""

from __future__ import annotations

import ast
import pathlib
import re

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
UTILS = TOP / "plugins" / "module_utils"
PREFIX = "ansible_collections.hpcml.torchstack.plugins.module_utils"
PLAN = (TOP / "docs/explanation/architecture.md").read_text()
PICTURE = (TOP / "docs/images/architecture.svg").read_text()
FLOORS = {name: int(floor) for floor, name in re.findall(r"(?m)^\| (\d) \| `(\w+)` \|", PLAN)}
PACKAGES = sorted(path.parent.name for path in UTILS.glob("*/__init__.py"))


def imported(path):
    """The packages that a file imports from."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            parts = (node.module or "").split(".") if node.module else []
            if node.level == 0 and (node.module or "").startswith(PREFIX):
                parts = node.module[len(PREFIX) + 1:].split(".") if node.module != PREFIX else []
            elif node.level != 2:
                continue
            yield from parts[:1] if parts and parts[0] else [alias.name for alias in node.names]


def test_the_plan_and_its_picture_have_every_package_on_its_floor():
    assert sorted(FLOORS) == PACKAGES
    drawn = re.findall(r'class="side"[^>]*>Floor (\d)<|class="package">\s*<rect[^>]*>\s*<text[^>]*>(\w+)<', PICTURE)
    floor, found = 0, {}
    for number, name in drawn:
        floor = int(number) if number else floor
        if name:
            found[name] = floor
    assert found == FLOORS


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_from_floors_below_its_own(package):
    files = sorted((UTILS / package).glob("*.py"))
    upwards = {(path.name, name) for path in files for name in imported(path)
               if name != package and FLOORS[name] >= FLOORS[package]}
    assert upwards == set()
