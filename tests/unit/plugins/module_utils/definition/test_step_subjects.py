# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What each step of a release brings, as its plan says it."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.step_subjects import step_subjects

LOCK = "tqdm==4.1 --hash=sha256:%s\nrich==14.0 --hash=sha256:%s\n" % ("a" * 64, "b" * 64)
DEFINITION = {
    "base": {"kind": "conda", "python": "3.12"},
    "nccl": {"version": "2.28.3", "plugin": {"version": "1.19.0"}, "tests": {"version": "2.17.6"}},
    "pytorch": {"version": "2.13.0", "mpi_backend": {"version": "0.1.0"}},
    "horovod": {"version": "0.28.1"},
    "packages": [{"name": "PyYAML", "version": "6.0"}, {"name": "own"}],
    "bundles": [{"name": "tools", "lock": LOCK}],
}


@pytest.mark.parametrize(("step", "said"), [
    ("base", "Python 3.12"), ("nccl-source", "NCCL 2.28.3"), ("nccl", "NCCL 2.28.3"),
    ("nccl-plugin-source", "NCCL's plugin 1.19.0"), ("nccl-plugin", "NCCL's plugin 1.19.0"),
    ("nccl-tests", "NCCL's tests 2.17.6"), ("pytorch", "PyTorch 2.13.0"), ("pytorch-fetch", "PyTorch 2.13.0"),
    ("pytorch-install", "PyTorch 2.13.0"),
    ("mpi-backend-install", "the MPI backend 0.1.0"), ("horovod", "Horovod 0.28.1"),
    ("package-pyyaml-wheel", "PyYAML 6.0"), ("package-pyyaml", "PyYAML 6.0"), ("package-own", "own"),
    ("bundle-tools-fetch", "2 packages"), ("bundle-tools", "2 packages"),
])
def test_a_step_is_told_by_name_and_version_of_what_it_brings(step, said):
    assert step_subjects(DEFINITION)[step] == said


def test_what_a_release_does_not_have_has_no_steps():
    found = step_subjects({"pytorch": {"version": "2.13.0"}, "base": {}})
    assert not [step for step in found if not step.startswith(("pytorch", "mpi-backend"))]
