# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The patch series of the pytorch role on the files of their tags.

    make test-upstream MIRROR=DIRECTORY

MIRROR holds a bare clone of pytorch/pytorch as pytorch/pytorch.git, pytorch.git or pytorch+pytorch/repo. Where a series
is marked as unverified, the test that passes prints the blobs that it fits: git diff makes the patch again from those.
"""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.series import load_series
from ansible_collections.hpcml.torchstack.plugins.modules import patch_series

MIRROR = os.environ.get("TORCHSTACK_UPSTREAM", "")
SERIES = pathlib.Path(__file__).resolve().parents[2] / "roles" / "pytorch" / "files" / "series"
VERSIONS = sorted(name for name in os.listdir(SERIES) if name[0].isdigit())


@pytest.fixture(scope="module")
def clone():
    for place in ("pytorch/pytorch.git", "pytorch.git", "pytorch+pytorch/repo"):
        if MIRROR and (pathlib.Path(MIRROR) / place / "objects").is_dir():
            return pathlib.Path(MIRROR).resolve() / place
    pytest.skip("no clone of pytorch/pytorch: make test-upstream MIRROR=DIRECTORY")


@pytest.mark.parametrize("version", VERSIONS)
def test_s16_the_series_applies_to_the_files_of_its_tag_and_is_undone(clone, version, tmp_path):
    tree, before = tmp_path / "tree", {}
    for name in sorted(os.fsdecode(path) for path in load_series(str(SERIES / version)).touched):
        # Such a clone is often another account's, which git distrusts.
        words = ["git", "-c", "safe.directory=*", "show", "v%s:%s" % (version.partition("-")[0], name)]
        before[tree / name] = subprocess.run(words, cwd=str(clone), stdout=subprocess.PIPE, check=True).stdout
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(before[tree / name])
    arguments = {"src": str(tree), "series": str(SERIES / version), "state_dir": str(tmp_path / "state"), "strip": 1,
                 "max_offset": 0, "state": "present", "allow_unverified": True, "planned_after": None}
    done = patch_series.reconcile(arguments, False, False)
    for note in done.get("unverified", []):
        print("%(patch)s: %(file)s is blob %(actual)s" % note)
    heads = [path.read_text().partition("\n---\n")[0] for path in (SERIES / version).iterdir()]
    assert done["verified"] is not any("\nUnverified: " in head for head in heads)
    assert patch_series.reconcile(dict(arguments, state="absent"), False, False)["changed"]
    assert {path: path.read_bytes() for path in before} == before
