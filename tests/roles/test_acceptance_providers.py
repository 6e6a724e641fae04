# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the acceptance asks of the libraries that ranks have mapped: the rules of the release's verification."""

from __future__ import annotations

import json
import pathlib
import subprocess

import pytest

ROLE = pathlib.Path(__file__).parents[2] / "roles" / "acceptance"
CONTEXT = {
    "root": "/soft", "release": "r1", "prefix": "/soft/r1", "mpi": {"prefix": "/opt/mpich"},
    "base": {"kind": "python_overlay", "prefix": "/soft/r1/base", "site_packages": "/soft/r1/base/site"},
    "definition": {
        "nccl": {"plugin": {"libfabric": "/opt/libfabric"}},
        "verification": {"libraries": {"providers": [
            {"name": "libnccl*", "path": "{nccl}/lib/*", "reason": "in {braces} as it is"},
            {"name": "libfabric.so*", "path": "{libfabric}/lib*/*"},
            {"name": "libtorch*", "path": "{packages}/torch/lib/*"}, {"name": "libmpi*", "path": "{mpi}/**"}]}}},
}


@pytest.fixture()
def providers(ansible_environment, tmp_path):
    """What the role makes of a context."""

    def ask(context):
        play = {
            "hosts": "localhost", "gather_facts": False, "vars": {"release_context": context},
            "vars_files": [str(ROLE / "defaults" / "main.yml"), str(ROLE / "vars" / "main.yml")],
            "tasks": [{"ansible.builtin.copy": {
                "content": "{{ acceptance_providers | to_json }}", "dest": str(tmp_path / "found"), "mode": "0644"}}]}
        (tmp_path / "play.yml").write_text(json.dumps([play]))
        done = subprocess.run(
            ["ansible-playbook", "-i", "localhost,", "-c", "local", str(tmp_path / "play.yml")],
            env=ansible_environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        assert done.returncode == 0, done.stdout
        return json.loads((tmp_path / "found").read_text())

    return ask


def test_s02_the_ranks_are_held_to_the_rules_of_the_release_with_their_words_filled_in(providers):
    found = providers(CONTEXT)
    assert {rule["name"]: rule["path"] for rule in found} == {
        "libnccl*": "/soft/r1/nccl/lib/*", "libfabric.so*": "/opt/libfabric/lib*/*",
        "libtorch*": "/soft/r1/base/site/torch/lib/*", "libmpi*": "/opt/mpich/**"}
    assert found[0]["reason"] == "in {braces} as it is"


@pytest.mark.parametrize("context", [
    {"root": "/soft", "release": "r1", "prefix": "/soft/r1"},
    {**CONTEXT, "base": {"kind": "container", "prefix": "/soft/r1/base"}, "mpi": {"prefix": ""}}])
def test_without_rules_or_in_a_container_nothing_is_asked(providers, context):
    assert providers(context) == []
