# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the module of a release says of it, as the role renders it before and after the build."""

from __future__ import annotations

import json
import pathlib

from support import role_plays

CONTEXT = {
    "release": "r", "frozen": False, "definition": {
        "title": "PyTorch 2.13.0 for tests", "pytorch": {"version": "2.13.0"}, "cuda": {"version": "12.4"}},
    "python": {"version": "3.11.2", "platform": "linux_x86_64"}, "mpi": {"provider": "named", "vendor": "MPICH",
                                                                         "version": "4.3.2"},
    "base": {"kind": "python_overlay", "minor": "3.11", "tag": "cp311"},
}


def test_help_and_whatis_are_those_of_the_release_and_of_what_is_installed(ansible_environment, tmp_path):
    cases = [
        {"release": "planned", "description": {}},
        {"release": "built", "description": {}},
        {"release": "own", "description": {"help": "My own help.", "whatis": {"Description": "My own line."}}},
    ]
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "pytorch.json").write_text(json.dumps({"version": "2.13.0+cpu", "cuda": ""}))
    variables = {
        "modulefile_root": str(tmp_path), "modulefile_release": "{{ case.release }}", "modulefile_site": "mine",
        "modulefile_name": "torchstack", "modulefile_description": "{{ case.description }}",
        "modulefile_notice": {"contact": "Write to the help desk."},
        "release_context": "{{ context | combine({'release': case.release, 'prefix': root ~ '/' ~ case.release, "
                           "'afterwards': root ~ '/.torchstack/' ~ case.release, 'records': root ~ '/' ~ "
                           "('records' if case.release == 'built' else 'none')}) }}",
        "context": CONTEXT, "root": str(tmp_path),
    }
    for case in cases:
        (tmp_path / case["release"]).mkdir()
    done = role_plays.play_tasks("modulefile", "stage", variables, cases, ansible_environment, tmp_path)
    assert done.returncode == 0, done.stdout
    texts = {}
    for case in cases:
        for syntax, end in (("lmod", ".lua"), ("tcl", "")):
            place = pathlib.Path(tmp_path, ".torchstack", case["release"], "modulefiles", syntax, "torchstack")
            texts[case["release"], syntax] = (place / (case["release"] + end)).read_text()
    said = {"planned": "CUDA 12.4", "built": "CPU"}
    for syntax in ("lmod", "tcl"):
        for release, build in said.items():
            text = texts[release, syntax].replace("\\", "")
            assert "torchstack/%s: PyTorch 2.13.0 for tests" % release in text and "Write to the help desk." in text
            assert '"Description: PyTorch 2.13.0 (%s), Python 3.11.2, MPICH 4.3.2"' % build in text
        own = texts["own", syntax]
        assert "My own help." in own and "Description: My own line." in own and "help desk" not in own
    assert all(('extensions("torch/2.13.0")' in text) == (syntax == "lmod") for (_, syntax), text in texts.items())
