# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The mirror that the scenario filled."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib

PLACE = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "root"


def test_the_list_names_every_file_of_the_mirror():
    mirror = PLACE / "mirror"
    files = json.loads((mirror / "mirror.json").read_text())["files"]
    found = {
        str(path.relative_to(mirror)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in mirror.glob("pip/*") if path.is_file()}
    assert {path: entry["sha256"] for path, entry in files.items()} == found
    assert {entry["name"] for entry in files.values()} == {"packaging", "mpi4py", "horovod", "einops", "xxhash"}


def test_pip_took_its_files_from_there():
    assert [path.name.split("-")[0] for path in (PLACE / "installed").iterdir()] == ["packaging"]
