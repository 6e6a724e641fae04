# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the python_packages role leaves behind."""

from __future__ import annotations

import json
import os
import pathlib

PREFIX = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "root" / "2026-11-20"
PYTHON = "PYTHONPATH=%s/base/site PYTHONNOUSERSITE=1 %s/base/bin/python3" % (PREFIX, PREFIX)


def test_s06_the_packages_report_the_versions_that_were_asked_for(host):
    program = "import einops, xxhash; print(einops.__version__, xxhash.VERSION, xxhash.xxh64_hexdigest(b''))"
    process = host.run(PYTHON + ' -c "%s"' % program)
    assert process.rc == 0, process.stderr
    assert process.stdout.split() == ["0.8.2", "4.1.0", "ef46db3751d8e999"]


def test_the_wheel_that_was_built_here_is_kept_and_no_other(host):
    assert [path.name.split("-")[:2] for path in (PREFIX / "wheels").iterdir()] == [["xxhash", "4.1.0"]]


def test_s11_nothing_else_of_the_base_has_moved(host):
    packages = (PREFIX / "base" / "lib").glob("python3.*/site-packages/*.dist-info")
    assert sorted(path.name.split("-")[0] for path in packages) == ["einops", "packaging", "xxhash"]


def test_every_package_is_recorded_with_its_licence(host):
    listing = json.loads((PREFIX / ".torchstack" / "packages.json").read_text())
    assert [(record["name"], record["licence"]) for record in listing["packages"]] == [
        ("einops", "MIT"), ("xxhash", "BSD-2-Clause")]
