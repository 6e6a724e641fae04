# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The family of a release's module is never the name of a module that it loads."""

from __future__ import annotations

import pathlib

from support import role_plays


def test_over_a_module_that_is_called_python_the_family_is_another_one(ansible_environment, tmp_path):
    cases = [
        {"release": "plain", "description": {}},
        {"release": "others", "description": {"depends_on": ["pythonic/1", "gcc/12.3.0"]}},
        {"release": "versioned", "description": {"depends_on": ["openmpi/4.1.6", "python/3.11.9"]}},
        {"release": "bare", "description": {"depends_on": ["python"]}},
        {"release": "both", "description": {"depends_on": ["python/3.11.9", "pytorch/2"]}},
        {"release": "given", "description": {"depends_on": ["python"], "family": "mine"}},
    ]
    variables = {
        "modulefile_root": str(tmp_path), "modulefile_release": "{{ case.release }}", "modulefile_site": "mine",
        "modulefile_name": "torchstack", "modulefile_description": "{{ case.description }}",
    }
    for case in cases:
        (tmp_path / case["release"]).mkdir()
    done = role_plays.play_tasks("modulefile", "stage", variables, cases, ansible_environment, tmp_path)
    assert done.returncode == 0, done.stdout
    families = {}
    for case in cases:
        place = pathlib.Path(tmp_path, ".torchstack", case["release"], "modulefiles", "lmod", "torchstack")
        lines = (place / (case["release"] + ".lua")).read_text().splitlines()
        (families[case["release"]],) = [line for line in lines if line.startswith("family(")]
    assert families == {
        "plain": 'family("python")', "others": 'family("python")', "versioned": 'family("pytorch")',
        "bare": 'family("pytorch")', "both": 'family("python_stack")', "given": 'family("mine")',
    }
