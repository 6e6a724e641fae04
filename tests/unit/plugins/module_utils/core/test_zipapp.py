# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The programs that travel to other machines and accounts have all that they import with them."""

from __future__ import annotations

import ast
import io
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import reframe_judge
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import supervisor as acceptance_supervisor
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import zipapp
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.zipapp import program_archive, program_text
from ansible_collections.hpcml.torchstack.plugins.module_utils.health import collect
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight import node_facts
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import benchmark_cli, pair_sweep, program
from ansible_collections.hpcml.torchstack.plugins.module_utils.standalone import removal, topology
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps import supervisor

PACKAGE = "ansible_collections/hpcml/torchstack/plugins/module_utils/"
PROGRAMS = {
    "the supervisor of steps": supervisor,
    "the supervisor of an acceptance": acceptance_supervisor,
    "the ranks": program,
    "the ranks of a sweep": pair_sweep,
    "the collectives": benchmark_cli,
    "the health of a node": collect,
    "the judge of ReFrame's tests": reframe_judge,
}
IMPORT_ALL = """
import sys, zipfile
sys.path.insert(0, sys.argv[1])
for name in zipfile.ZipFile(sys.argv[1]).namelist():
    if name.endswith(".py") and not name.endswith("__.py"):
        __import__(name[:-3].replace("/", "."))
"""


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_all_that_it_imports_with_it(name, tmp_path):
    archive = tmp_path / "program.pyz"
    archive.write_bytes(program_archive(PROGRAMS[name]))
    words = [sys.executable, "-I", "-S", "-c", IMPORT_ALL, str(archive)]
    done = subprocess.run(words, cwd=str(tmp_path), env={"PATH": os.defpath}, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_a_program_has_nothing_with_it_that_it_does_not_import():
    with zipfile.ZipFile(io.BytesIO(program_archive(acceptance_supervisor))) as bundle:
        parts = {name[len(PACKAGE):] for name in bundle.namelist() if name.startswith(PACKAGE)}
    assert parts == {
        "__init__.py", "acceptance/__init__.py", "acceptance/supervisor.py", "core/__init__.py", "core/processes.py",
    }


def test_whatever_python_reads_as_an_import_is_found_without_parsing():
    for path in sorted(pathlib.Path(zipapp.__file__).parents[1].rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        parsed = [
            (node.level, node.module or "", [alias.name for alias in node.names])
            for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom) and node.level]
        found = [
            (len(dots), module, re.findall(r"(?:^|[(,])\s*(\w+)", re.sub("#.*", "", names)))
            for dots, module, names in zipapp._RELATIVE.findall(source)]
        assert sorted(found) == sorted(parsed), path


def test_the_same_sources_make_the_same_bytes():
    assert program_archive(collect) == program_archive(collect)


@pytest.mark.parametrize(
    "program", [node_facts, removal, topology], ids=lambda module: module.__name__.rpartition(".")[2])
def test_a_program_of_several_files_is_one_text_that_imports_nothing_beside_it(program, tmp_path):
    text = program_text(program)
    (tmp_path / "alone.py").write_text(text)
    done = subprocess.run([sys.executable, "-I", "-S", "-c", "import sys; sys.path.insert(0, '.'); import alone"],
                          cwd=str(tmp_path), stderr=subprocess.PIPE, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert "from ." not in text
    assert text.count("from __future__ import annotations") <= 1
