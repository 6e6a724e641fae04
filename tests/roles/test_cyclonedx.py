# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""bin/cyclonedx as an operator types it, on a small release that has one of everything."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.release import sbom_file
from support import installed_release

COMMAND = pathlib.Path(__file__).resolve().parents[2] / "bin" / "cyclonedx"
installed = pytest.mark.skipif(
    importlib.util.find_spec("cyclonedx") is None, reason="not installed: cyclonedx-python-lib[json-validation]")


@pytest.fixture()
def prefix(tmp_path):
    """A release with its bill of materials."""
    release = tmp_path / "2026-11-20"
    resolved = installed_release.make(release)
    document = sbom_file.make_sbom(str(release), resolved)
    sbom_file.write(sbom_file.sbom_path(str(release)), sbom_file.as_bytes(document))
    return release


def run(*words, blocked=""):
    """The exit code of the program, its output and its complaint; a library may be hidden from it."""
    program = (
        "import importlib, sys, types\n"
        "for name, path in (('ansible_collections', []), ('ansible_collections.hpcml', []),\n"
        "                   ('ansible_collections.hpcml.torchstack', [sys.argv[1]])):\n"
        "    sys.modules[name] = types.ModuleType(name)\n"
        "    sys.modules[name].__path__ = path\n"
        "if sys.argv[2]: sys.modules[sys.argv[2]] = None\n"
        "tool = importlib.import_module('ansible_collections.hpcml.torchstack.plugins.plugin_utils.cyclonedx')\n"
        "sys.exit(tool.main(sys.argv[3:]))\n")
    process = subprocess.run(
        [sys.executable, "-B", "-c", program, str(COMMAND.parents[1]), blocked, *map(str, words)],
        capture_output=True, text=True, check=False)
    return process.returncode, process.stdout, process.stderr


@installed
def test_each_package_is_a_component_that_hangs_on_the_release_and_the_format_finds_nothing_wrong(prefix):
    process = subprocess.run(
        [str(COMMAND), str(prefix)], capture_output=True, text=True, check=False,
        env=dict(os.environ, PATH=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]))
    assert process.returncode == 0, process.stderr
    made, spdx = json.loads(process.stdout), json.loads((prefix / ".torchstack" / "sbom.spdx.json").read_text())
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    components = {one["bom-ref"]: one for one in made["components"]}
    release = made["metadata"]["component"]
    assert {*components, release["bom-ref"]} == {one["SPDXID"] for one in spdx["packages"]}
    needs = {one["ref"]: one.get("dependsOn", []) for one in made["dependencies"]}
    reached, waiting = set(), [release["bom-ref"]]
    while waiting:
        one = waiting.pop()
        if one not in reached:
            reached.add(one)
            waiting += needs[one]
    assert reached == {*components, release["bom-ref"]}
    torch = components["SPDXRef-Python-torch"]
    assert torch["purl"] == "pkg:pypi/torch@2.3.1"
    assert torch["licenses"] == [{"expression": "Apache-2.0 AND BSD-3-Clause"}]
    assert torch["hashes"] == [{"alg": "SHA-256", "content": installed_release.SUM}]
    assert run(prefix)[1] == process.stdout


def test_who_has_not_the_library_is_told_what_to_install(prefix):
    code, out, said = run(prefix, blocked="cyclonedx")
    assert (code, out, said.count("\n")) == (2, "", 1)
    assert "pip install 'cyclonedx-python-lib[json-validation]'" in said


@pytest.mark.parametrize(("content", "words"), [
    (None, "Name a release that was frozen"), ("{", "is no JSON"), ("[]", "is no document of SPDX 2.3")])
def test_what_is_no_bill_of_materials_is_said(tmp_path, content, words):
    if content is not None:
        (tmp_path / "sbom.spdx.json").write_text(content)
    code, out, said = run(tmp_path / "sbom.spdx.json")
    assert (code, out) == (2, "") and words in said
