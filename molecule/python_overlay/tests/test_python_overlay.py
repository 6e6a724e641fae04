# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the python_overlay role leaves behind."""

from __future__ import annotations

import os
import pathlib

import pytest

PREFIX = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "root" / "2026-11-20"


@pytest.mark.parametrize("name", ["python", "python3"])
def test_the_interpreter_in_the_prefix_is_the_sites_own(host, name):
    program = "import sys; print(sys.prefix == sys.base_prefix, sys.prefix)"
    process = host.run("%s/base/bin/%s -c %s", str(PREFIX), name, program)
    assert process.stdout.startswith("True")
    assert str(PREFIX) not in process.stdout


def test_s03_the_prefix_is_open_to_readers(host):
    for path in (PREFIX / "base", PREFIX / "base" / "bin", PREFIX / "base" / "bin" / "python3"):
        assert host.file(str(path)).mode == 0o755


def test_s25_the_release_brings_the_command_that_extends_users_environments(host):
    process = host.run("%s/base/bin/extend-venv-activate --help", str(PREFIX))
    assert process.rc == 0 and "torchstack/2026-11-20" in process.stdout
