# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the conda_base role leaves behind."""

from __future__ import annotations

import json
import os
import pathlib

ROOT = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "root"
PREFIX = ROOT / "2026-11-20"
BASE = PREFIX / "base"


def test_the_prefix_holds_what_was_asked_for_and_runs(host):
    names = {json.loads(path.read_text())["name"] for path in (BASE / "conda-meta").glob("*.json")}
    assert names == {"python", "pip", "libtoy", "toydata"}
    assert host.run("%s/bin/toy", str(BASE)).stdout.split()[0] == "42"
    assert host.run("%s/bin/python3 -c 'import sys; print(sys.prefix)'", str(BASE)).stdout.strip() == str(BASE)


def test_the_lock_of_what_was_solved_is_kept(host):
    locks = list((PREFIX / ".torchstack" / "conda").glob("[0-9a-f]*.lock"))
    assert len(locks) == 1
    assert locks[0].read_text().count("#sha256:") == 4


def test_an_overlay_was_not_made(host):
    assert not host.file(str(PREFIX / ".torchstack" / "steps" / "python_overlay")).exists


def test_s18_the_runtime_settings_are_in_the_scripts_of_the_prefix(host):
    for name in ("activate.d", "deactivate.d"):
        assert "TOY_SETTING" in next((BASE / "etc" / "conda" / name).glob("zz-*.sh")).read_text()


def test_py_rattler_lies_beside_the_releases(host):
    assert list((ROOT / ".torchstack" / "tools").glob("*/lib/python3*/site-packages/rattler"))
    assert not list(PREFIX.rglob("rattler"))


def test_s25_environments_that_its_python_makes_are_extended(host, tmp_path):
    extend = "%s/bin/extend-venv-activate" % BASE
    assert host.run("%s/bin/python3 -m venv --without-pip %s/venv", str(BASE), str(tmp_path)).rc == 0
    assert host.run("%s %s/venv", extend, str(tmp_path)).stdout.startswith("changed: ")
    assert host.run("%s --check %s/venv", extend, str(tmp_path)).rc == 0
