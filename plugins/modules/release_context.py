# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Composes what roles know of a release; the work is in plugins/action/release_context.py, on the control node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_context
version_added: 0.2.0
short_description: Compose what roles know of a release
description: Puts together what a release file asks for, what the site says of itself, what the machine has and what is
  recorded. It is called as often as more of this is known, and runs on the control node.
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment: hpcml.torchstack._attributes.reading
attributes:
  check_mode:
    description: Does the same, but that a site without an account for its jobs is no problem.
options:
  state:
    description:
      - V(checked) refuses data of the site that cannot be used, all problems in one message.
      - V(planned) says what M(hpcml.torchstack.site_preflight) looks for. Refused are variables that no module sets.
      - V(opened) makes the resolved release file and the context of a rollout.
      - V(recorded) makes the context of a release that was opened before. Needed are only O(site) and O(records).
    type: str
    choices: [checked, planned, opened, recorded]
    required: true
  site:
    description: The site's data - the variables of the role release without their prefix, and C(release) (the release's
      name), C(file) (the name of its file) and C(account).
    type: dict
    required: true
  records:
    description: What is recorded of the release, a result of M(hpcml.torchstack.release_record).
    type: dict
    required: true
  definition:
    description: The resolved release file, see M(hpcml.torchstack.release_definition).
    type: dict
  series:
    description: The digests of its patch series. Needed with O(state=opened).
    type: dict
  digest:
    description: The digest of what is asked for. Needed with O(state=opened).
    type: str
  modules:
    description: Two results of M(hpcml.torchstack.module_environment), C(purged) without any module and C(loaded) with
      those of the toolchain. Empty where it has none.
    type: dict
  preflight:
    description: The result of M(hpcml.torchstack.site_preflight). Needed with O(state=opened).
    type: dict
  image_bytes:
    description: How large the image of a container is.
    type: int
    default: 0
"""

EXAMPLES = r"""
- name: Know a release that was opened before
  hpcml.torchstack.release_context:
    state: recorded
    site: "{{ site }}"
    records: "{{ release_recorded }}"
  register: release_known
"""

RETURN = r"""
frozen:
  description: Whether nothing of the release is built any more.
  returned: with O(state=checked)
  type: bool
freezing:
  description: Whether its freeze was interrupted and is to be completed.
  returned: with O(state=checked)
  type: bool
modules:
  description: The modules of all steps, which have to be asked what they set. Empty for a frozen release.
  returned: with O(state=checked)
  type: list
  elements: str
setup:
  description: The set-up of the toolchain; empty for none, and for a frozen release.
  returned: with O(state=checked)
  type: str
step_modules:
  description: Those of single steps, each list once.
  returned: with O(state=checked)
  type: list
  elements: dict
  sample: [{step: nccl, modules: [gcc/12.2.0]}]
commands:
  description: Commands of the machine that the release needs.
  returned: with O(state=planned)
  type: list
  elements: str
compilers:
  description: The compilers to look for, as O(hpcml.torchstack.site_preflight#module:compilers).
  returned: with O(state=planned)
  type: list
  elements: dict
  sample: [{name: CC, language: c}]
mpi:
  description: The MPI to look for, as O(hpcml.torchstack.site_preflight#module:mpi). Empty for none.
  returned: with O(state=planned)
  type: dict
python:
  description: The Python to look for.
  returned: with O(state=planned)
  type: dict
installs:
  description: Whether pip installs anything.
  returned: with O(state=planned)
  type: bool
expanded:
  description: The resolved release file with what the variables of modules stand for. Empty for a frozen release.
  returned: with O(state=planned)
  type: dict
modules_environment:
  description: What the modules set, as C(environment) of a task takes it.
  returned: with O(state=planned)
  type: dict
resolved:
  description: The resolved release file, what C(.torchstack/release.yml) of the release holds.
  returned: with O(state=opened)
  type: dict
context:
  description:
    - RV(resolved) with the place of the release and what holds for this rollout.
    - C(base) is what the release stands on, the same keys for an overlay, a conda prefix and a container - where it
      lies, what runs its Python, how pip works on it, and what the modulefile says of it. Its C(tools) is the
      environment of the build tools, C(run) text for a shell that starts its Python, C(search) and C(setenv) are the
      modulefile's, C(rank_python) is what an acceptance starts as a rank, C(bytecode) whether there are Python files to
      compile. A conda base has C(conda) besides, a container its C(image) and more.
    - C(frozen) is whether nothing of the release is built any more, C(toolchain) what steps are compiled in
      (P(hpcml.torchstack.step_toolchain#filter)), C(jobs) where they run (P(hpcml.torchstack.step_job#filter)), and
      C(mirror) how they use a mirror, but not with O(state=recorded); its C(directory) is empty where there is none.
    - C(partitions) is there where the site names any. It has by name what takes the place of C(jobs), C(ranks) and
      C(acceptance) on each, C(node_health_expected), and why the partition is C(optional) or C(left_out).
  returned: with O(state=opened) and O(state=recorded)
  type: dict
  sample:
    root: /soft/pytorch
    release: "2026-11-20"
    prefix: /soft/pytorch/2026-11-20
    frozen: false
    base: {kind: python_overlay, prefix: /soft/pytorch/2026-11-20/base, python: /usr/bin/python3.11, minor: "3.11",
      site_packages: /soft/pytorch/2026-11-20/base/lib/python3.11/site-packages}
"""
