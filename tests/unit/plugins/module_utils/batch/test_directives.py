# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Slips in directives, and those of which nothing is known."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.directives import Directives
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.registry import system_of

SLURM, PBS, FLUX = (system_of(name).options.directives for name in ("slurm", "pbs", "flux"))


@pytest.mark.parametrize(("system", "line", "told"), [
    (SLURM, "--constrain=gpu", ("one of the directives, '--constrain=gpu', is unknown", "Did you mean --constraint?")),
    (SLURM, "--reservaton maintenance", ("one of the directives, '--reservaton maintenance', is unknown",
                                         "Did you mean --reservation?")),
    (SLURM, "gres=gpu:8", ("one of the directives, 'gres=gpu:8', does not begin with a dash",
                           "Write it with its dashes: --gres=gpu:8.")),
    (FLUX, "--requres=a100", ("one of the directives, '--requres=a100', is unknown", "Did you mean --requires?")),
    (FLUX, "queue=debug", ("one of the directives, 'queue=debug', does not begin with a dash",
                           "Write it with its dashes: --queue=debug.")),
    (PBS, "place=excl", ("one of the directives, 'place=excl', does not begin with a dash",
                         "Write it as in -l place=excl.")),
])
def test_a_slip_is_told_with_what_was_meant(system, line, told):
    assert list(system.problems(line)) == [told]


@pytest.mark.parametrize(("system", "line", "unknown"), [
    (SLURM, "--gres=gpu:8", False), (SLURM, "-C gpu", False), (SLURM, "--exclusive", False),
    (SLURM, "--burst-mode=on", True), (SLURM, "-Z", True), (PBS, "-l filesystems=home", False), (PBS, "-Y x", True),
    (FLUX, "-S burstbuffer=1", False), (FLUX, "--dw=persistent", True),
    (Directives(), "anything", False),
])
def test_what_a_site_may_have_of_its_own_is_no_problem(system, line, unknown):
    assert list(system.problems(line)) == []
    assert system.unknown(line) is unknown
