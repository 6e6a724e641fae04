#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Judges which build of PyTorch a release gets, and whether it can; the work is in module_utils/pytorch_offer.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pytorch_preflight
short_description: Find out which build of PyTorch a release gets, before anything is fetched
version_added: 0.2.0
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes.reading
  - hpcml.torchstack._release
description:
  - Looks where the step C(pytorch-fetch) will look, in the same order, and tells whether the release gets a CPU build
    or a CUDA build of PyTorch, from where, and how many bytes are to be fetched. What it has fetched already is what it
    gets.
  - Refuses an interpreter that no wheel of the release file fits, and names those that one fits.
  - Judges whether there is room for a CUDA build, which needs more than a CPU build.
  - Of a release for GPUs it tries the CUDA toolkit that the rest is compiled with on a small program.
notes:
  - An index that cannot be read is a warning, as pip may have other ways to it.
options:
  definition:
    description: The resolved release file.
    type: dict
    required: true
  python:
    description: The interpreter that the release is built on. Empty for the one that runs this module.
    type: str
    default: ""
  mirror:
    description: The mirror that everything is taken from. Empty for the network.
    type: str
    default: ""
  required_bytes:
    description: Bytes that the release needs with a CUDA build; 0 does not look.
    type: int
    default: 0
  required_inodes:
    description: Files and directories that the release needs with a CUDA build; 0 does not look.
    type: int
    default: 0
  toolkit:
    description: Whether the toolkit of C(cuda) is to be on this machine.
    type: bool
    default: true
  timeout:
    description: Seconds that an index may be silent.
    type: float
    default: 30
attributes:
  check_mode:
    description: Writes nothing outside Ansible's temporary directory.
"""

EXAMPLES = r"""
- name: Find out which build of PyTorch the release gets
  hpcml.torchstack.pytorch_preflight:
    definition: "{{ release_definition }}"
    python: /usr/bin/python3.13
    root: /soft/stacks
    release: "2026-11-20"
    required_bytes: "{{ '9 GB' | human_to_bytes }}"
"""

RETURN = r"""
offer:
  description: The build that the release gets. C(build) is V(cpu), V(cuda), or V(unknown) where the index says nothing
    before it is fetched; C(file) and C(origin) are the wheel, C(files) and C(bytes) all that is fetched with it (V(-1)
    where an index does not say), C(fetched) whether the release has it already, and C(why) why it is not the CPU build.
  returned: success
  type: dict
  sample:
    build: cuda
    file: torch-2.13.0-cp313-cp313-manylinux_2_28_x86_64.whl
    origin: https://index.example/torch-2.13.0.whl
    files: 20
    bytes: 2748311552
    fetched: false
    why: ["https://download.pytorch.org/whl/cpu/torch/: Name or service not known"]
described:
  description: The same as sentences.
  returned: success
  type: str
  sample: PyTorch 2.13.0 is a CPU build, 182.9 MiB, https://download.pytorch.org/whl/cpu/torch.whl.
described_there:
  description: The same where its wheels need not be fetched, as they are kept of another release.
  returned: success
  type: str
  sample: "PyTorch 2.13.0 is a CPU build: torch.whl, 182.9 MiB, fetched already."
findings:
  description: Everything that was found. C(check) (V(pytorch.wheel), V(root.space), V(root.inodes) or V(cuda.toolkit)),
    C(ok), C(severity) (V(error), V(warning) or V(note)), C(message) (what is so) and C(remedy) (what to do).
  returned: always
  type: list
  elements: dict
"""

import os
from typing import Any, Mapping

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import run_command as commands
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.account import account_name
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.download import Network
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.findings import Finding, conclude
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import RELEASE, run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror import pip_config, requirements
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror.contents import Contents
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror.package_index import Indexes
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror.plan import Planner
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight import (
    nccl_find,
    pytorch_offer,
    root_checks,
    root_facts,
)

SPEC = {
    "definition": {"type": "dict", "required": True}, "python": {"type": "str", "default": ""}, **RELEASE,
    "mirror": {"type": "str", "default": ""}, "required_bytes": {"type": "int", "default": 0},
    "required_inodes": {"type": "int", "default": 0}, "toolkit": {"type": "bool", "default": True},
    "timeout": {"type": "float", "default": 30},
}
PATIENCE = 60.0
"""Seconds that an interpreter, or a compiler with a small program, may take."""

PROGRAM = """#include <cuda_runtime.h>
__global__ void nothing() {}
int main() { int version = 0; nothing<<<1, 1>>>(); return cudaRuntimeGetVersion(&version); }
"""


def find_offer(params: Mapping[str, Any]) -> tuple[list[Finding], pytorch_offer.Offer]:
    """Return the findings about PyTorch's wheel, and what the release gets.

    Raises:
        StackError: the interpreter does not answer, or a lock or pip's configuration cannot be read.
    """
    definition = params["definition"]
    there = pytorch_offer.fetched(os.path.join(params["root"], params["release"], "src", "pytorch"))
    machine = requirements.machine_interpreter(params["python"], PATIENCE, "Name another one.", {})
    interpreter = requirements.base_interpreter(definition, machine)
    if there is not None:
        return pytorch_offer.judge(there, definition, interpreter, (), ()), there
    choice = requirements.needs_of(definition, interpreter, False).pytorch
    if choice is None:
        return [], pytorch_offer.NOTHING
    network, indexes = None, None
    if not params["mirror"]:
        settings = pip_config.read(os.environ)
        network = Network(params["timeout"], settings.certificates, settings.proxy)
        for url in (*settings.indexes, *settings.find_links):
            network.without_login(url)
        indexes = Indexes(network, settings)
    planner = Planner(Contents(params["mirror"], {}, {}), interpreter, interpreter, indexes)
    offer = pytorch_offer.find(choice, planner, network)
    if params["mirror"] and not offer.file:
        # The look at the mirror says all that it lacks at once.
        return [], offer
    unreachable, names = [], []
    for need in (choice.first, *choice.otherwise):
        if need is not None and need.name == "torch" and indexes is not None:
            names += [link.filename for link in planner.links(need)]
    if indexes is not None:
        places = [need for need in choice.otherwise if need.name == "torch"]
        unreachable = ["%s: %s" % item for need in places for item in indexes.problems_of("torch", need.place)]
    oldest = str((definition.get("base") or {}).get("minimum") or "3.0")
    pythons = pytorch_offer.fitting_pythons(choice, names or planner.contents.names, oldest)
    return pytorch_offer.judge(offer, definition, interpreter, pythons, unreachable), offer


def check_space(params: Mapping[str, Any], offer: pytorch_offer.Offer) -> list[Finding]:
    """Judge whether there is room for what is more than a CPU build."""
    if offer.build == pytorch_offer.CPU or not offer.file:
        return []
    facts = root_facts.examine(params["root"])
    if not facts["directory"]:
        return []
    found = root_checks.judge_space(
        facts, account_name(os.geteuid()), params, "the release with PyTorch's CUDA build")
    return [finding for finding in found if not finding.ok]


def check_toolkit(definition: Mapping[str, Any], directory: str) -> list[Finding]:
    """Try the toolkit of a release for GPUs on a small program, which is written into the directory."""
    wanted = definition["cuda"]
    place = nccl_find.cuda(str(wanted["prefix"]))
    complaint = ""
    if place.version:
        source, program = os.path.join(directory, "trial.cu"), os.path.join(directory, "trial")
        with open(source, "w", encoding="ascii") as stream:
            stream.write(PROGRAM)
        numbers = [str(one).partition("+")[0].replace(".", "") for one in wanted["architectures"][:1]]
        options = ["-arch=sm_" + one for one in numbers]
        words = [os.path.join(place.prefix, "bin", "nvcc"), *options, "-o", program, source]
        outcome = commands.run(words, PATIENCE, directory)
        complaint = "" if outcome.ok else outcome.complaint
    return pytorch_offer.judge_toolkit(wanted, place, complaint)


def run(module: AnsibleModule) -> dict:
    """Check the wheel of PyTorch, the room for it, and the toolkit of a release for GPUs."""
    params, definition = module.params, module.params["definition"]
    findings, offer = find_offer(params)
    findings += check_space(params, offer)
    if "cuda" in definition and params["toolkit"]:
        findings += check_toolkit(definition, module.tmpdir)
    version = str(definition["pytorch"].get("version") or "")
    there = offer._replace(fetched=True)
    passed = {
        "offer": offer._asdict(), "described": pytorch_offer.described(offer, version) if offer.file else "",
        "described_there": pytorch_offer.described(there, version) if offer.file else ""}
    return conclude(module, findings, pytorch_offer.STEP, {}, passed, "Nothing was built.")


def main() -> None:
    """Entry point."""
    run_module(run, SPEC)


if __name__ == "__main__":
    main()
