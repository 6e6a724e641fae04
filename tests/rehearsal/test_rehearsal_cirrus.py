# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""`make rehearse SITE=cirrus` to its end: Environment Modules, the Python of a module, real Horovod with Open MPI."""

from __future__ import annotations

import json
import os

import pytest
import rehearsals
import yaml
from support.console import changed_in

from rehearsal.checkout import CHECKOUT

pytestmark = pytest.mark.skipif(
    os.environ.get("TORCHSTACK_REHEARSE", "") != "cirrus",
    reason="compiles Horovod, which takes minutes: TORCHSTACK_REHEARSE=cirrus asks for it",
)
SITE = yaml.safe_load((CHECKOUT / "inventories/cirrus/group_vars/cirrus.yml").read_text())
REPLACED = yaml.safe_load((CHECKOUT / "inventories/rehearsal/cirrus/group_vars/cirrus.yml").read_text())
USE = ". %(torchstack_module_init)s; module use %(torchstack_root)s/modulefiles/tcl; " % REPLACED
ASKED = """
import json, os
import torch, horovod, horovod.torch
mapped = {line.split()[-1] for line in open("/proc/self/maps") if "/libmpi.so" in line}
print(json.dumps({
    "environment": dict(os.environ), "torch": torch.__file__, "horovod": horovod.__version__, "mpi": sorted(mapped),
    "built": [bool(horovod.torch.mpi_built()), bool(horovod.torch.gloo_built())],
}))
"""


@pytest.fixture(scope="module")
def rehearsed(cluster):
    """What the first rehearsal printed."""
    printed = rehearsals.rehearse(cluster, "cirrus")
    assert "failed=0" in printed
    return printed


def test_a_second_rehearsal_changes_nothing_and_submits_nothing(cluster, rehearsed):
    before = rehearsals.jobs(cluster)
    assert changed_in(rehearsals.rehearse(cluster, "cirrus")) == 0
    assert rehearsals.jobs(cluster) == before


def test_s27_an_ordinary_user_loads_the_release_with_the_sites_python_settings_and_one_mpi(on, rehearsed):
    line = USE + "module -s load torchstack/rehearsal && python3 -c %s" % json.dumps(ASKED).replace("\\n", "\n")
    found = json.loads(on("compute2", line, user="researcher").text.splitlines()[0])
    environment = found["environment"]
    settings = {setting["name"]: setting["value"] for setting in SITE["torchstack_runtime_settings"]}
    assert {name: environment.get(name) for name in settings} == settings
    assert environment["MINICONDA3_PYTHON_VERSION"] == "3.12.1"
    assert found["torch"].startswith(REPLACED["torchstack_root"] + "/rehearsal/base/")
    assert (found["horovod"], found["built"]) == ("0.28.1", [True, True])
    (mpi,) = found["mpi"]
    assert mpi.startswith("/opt/cirrus/openmpi/4.1.6-cuda-12.4/lib/")


def test_s24_no_path_of_the_module_leads_to_stubs(on, rehearsed):
    assert "stubs" not in on("login", USE + "module -s load torchstack/rehearsal && env", user="researcher").text


def test_the_module_unloads_without_a_trace(on, rehearsed):
    line = USE + 'before=$(env | sort); module -s load torchstack/rehearsal; module -s unload torchstack/rehearsal; '
    line += 'diff <(echo "$before") <(env | sort) | grep "^[<>]"'
    assert on("login", line, user="researcher", check=False).text == ""
