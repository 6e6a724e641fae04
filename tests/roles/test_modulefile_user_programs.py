# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Programs that pip installs into the user base of a release are found, behind the release's own."""

from __future__ import annotations

import json

from support import role_plays

BASE = "${HOME}/.local/torchstack/mine/"


def path_of_each(tmp_path, environment, cases):
    """Stage a release for each case; the directories that its module puts in front of PATH, by release."""
    variables = {
        "modulefile_root": str(tmp_path), "modulefile_release": "{{ case.release }}", "modulefile_site": "mine",
        "modulefile_name": "torchstack", "modulefile_description": "{{ case.description }}",
        "release_context": {"base": {"kind": "{{ case.kind | default('python_overlay') }}"}},
    }
    done = role_plays.play_tasks("modulefile", "stage", variables, cases, environment, tmp_path)
    assert done.returncode == 0, done.stdout
    found = {}
    for case in cases:
        text = (tmp_path / ".torchstack" / case["release"] / "modulefiles" / "description.json").read_text()
        entries = [entry for entry in json.loads(text)["prepend"] if entry["name"] == "PATH"]
        found[case["release"]] = [value for entry in entries for value in entry["values"]]
    return found


def test_they_come_behind_every_directory_of_the_release(ansible_environment, tmp_path):
    own = {name: str(tmp_path / name / "base" / "bin") for name in ("plain", "more", "elsewhere", "container", "said")}
    cuda = str(tmp_path / "more" / "cuda" / "bin")
    shared = "/scratch/${USER}/elsewhere"
    cases = [
        {"release": "plain", "description": {}},
        {"release": "more", "description": {"prepend": [{"name": "PATH", "values": [own["more"], cuda]}]}},
        {"release": "elsewhere", "description": {"external": ["/scratch"], "setenv": {"PYTHONUSERBASE": shared}}},
        {"release": "none", "description": {"prepend": []}},
        {"release": "container", "kind": "container", "description": {}},
        {"release": "said", "description": {
            "external": [BASE + "said"],
            "prepend": [{"name": "PATH", "values": [BASE + "said/bin", own["said"]]}]}},
    ]
    assert path_of_each(tmp_path, ansible_environment, cases) == {
        "plain": [own["plain"], BASE + "plain/bin"], "more": [own["more"], cuda, BASE + "more/bin"],
        "elsewhere": [own["elsewhere"], shared + "/bin"], "none": [],
        "container": [own["container"]], "said": [BASE + "said/bin", own["said"]],
    }
