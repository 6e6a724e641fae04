# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the python_tools role leaves behind."""

from __future__ import annotations

import os
import pathlib

ROOT = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "root"
PREFIX = ROOT / "2026-11-20"
RUN = "PYTHONPATH=%s/base/site PYTHONNOUSERSITE=1 %s/base/bin/python3" % (PREFIX, PREFIX)


def test_the_base_packages_come_from_the_release(host):
    process = host.run(RUN + " -c 'import packaging; print(packaging.__version__, packaging.__file__)'")
    assert process.rc == 0, process.stderr
    assert process.stdout.split()[0] == "26.3"
    assert process.stdout.split()[1].startswith(str(PREFIX))


def test_s27_without_the_release_the_interpreter_sees_nothing_of_it(host):
    process = host.run("%s/base/bin/python3 -s -c 'import sys; print(sys.path)'", str(PREFIX))
    assert str(PREFIX) not in process.stdout


def test_the_tools_lie_beside_the_releases_with_what_was_locked(host):
    tools = next((ROOT / ".torchstack" / "tools").glob("*/bin/python"))
    process = host.run("%s -m pip list --format freeze", str(tools))
    assert "pip==26.3" in process.stdout.split()
    assert host.file(str(tools.parents[1]) + ".records/tools/stamp.json").exists
