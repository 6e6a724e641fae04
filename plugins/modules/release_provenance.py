#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Ansible module release_provenance; the work is in module_utils/release/provenance_file.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_provenance
short_description: State where a release comes from, and sign that
version_added: 0.2.0
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release
  - hpcml.torchstack._release.planned
description:
  - Writes C(provenance.json) beside the other records of what happens to a release after its build - an in-toto
    statement with SLSA's provenance. It is about the release's manifest, and so about every file; it has the inputs by
    their digests, as the bill of materials lists them, and the steps with what they were built from and to what.
  - With O(key) it is signed, and the signature is C(provenance.json.sig). What is signed already by one of
    O(allowed_signers), and says the same, stays as it is.
  - The same release gives the same bytes.
options:
  state:
    description: V(present) writes the statement, and signs it with O(key). V(signable) only tries whether it could be
      signed, before anything is built.
    type: str
    choices: [present, signable]
    default: present
  digest:
    description: The digest of all that was asked for, as in the record of the freeze.
    type: str
  builder:
    description: An address that names who builds, such as a page about the site's releases.
    type: str
  key:
    description: The ssh key to sign with, a private one without passphrase, or the public part of one that an agent
      holds. Empty for no signature.
    type: path
  allowed_signers:
    description: The file of those who may sign, as in C(ssh-keygen(1\)). What was signed is verified by it at once.
      Empty where nobody asks who it was.
    type: path
attributes:
  diff_mode:
    description: The statement before and after.
notes:
  - Signing needs C(ssh-keygen) of OpenSSH 8.2 or newer.
  - C(bin/verify-release) verifies statement, signature and files on another machine.
seealso:
  - module: hpcml.torchstack.tree_manifest
  - module: hpcml.torchstack.release_sbom
"""

EXAMPLES = r"""
- name: State where a release comes from
  hpcml.torchstack.release_provenance:
    root: /soft/pytorch
    release: 2026-11-20
    digest: "{{ release_context.digest }}"
    builder: https://www.example.org/pytorch
    key: /home/builds/.ssh/releases
    allowed_signers: /soft/pytorch/allowed_signers
"""

RETURN = r"""
path:
  description: The statement.
  returned: with O(state=present)
  type: str
manifest:
  description: SHA-256 of the manifest that it is about.
  returned: once the release has a manifest
  type: str
inputs:
  description: How many inputs it names.
  returned: once the release has a manifest
  type: int
steps:
  description: How many steps it names.
  returned: once the release has a manifest
  type: int
signer:
  description: Whom of O(allowed_signers) the signature is of; empty where it is not signed, or nobody is asked for.
  returned: once the release has a manifest
  type: str
planned_after:
  description: The step that makes the release.
  returned: check mode, where the release is not frozen yet and O(planned_after) was given
  type: str
failed_step:
  description: What failed - C(provenance) or C(signature).
  returned: failure
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import RELEASE, run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.release import provenance_file


def run(module: AnsibleModule) -> dict:
    """Bring statement and signature up to date; or plan that where the release is still to come."""
    params = module.params
    if params["state"] == "signable":
        return {"changed": False, "signer": provenance_file.try_key(params["key"], params["allowed_signers"] or "")}
    request = provenance_file.Request(
        params["root"], params["release"], params["digest"], params["builder"], params["key"] or "",
        params["allowed_signers"] or "")
    if module.check_mode and params["planned_after"] and not provenance_file.is_frozen(request):
        return {
            "changed": True, "path": provenance_file.path_of(request), "planned_after": params["planned_after"]}
    return provenance_file.update(request, apply=not module.check_mode)


def main() -> None:
    """Run the module."""
    run_module(run, {
        **RELEASE,
        "state": {"type": "str", "choices": ["present", "signable"], "default": "present"},
        "digest": {"type": "str"},
        "builder": {"type": "str"},
        "key": {"type": "path"},
        "allowed_signers": {"type": "path"},
        "planned_after": {"type": "str"},
    }, required_if=[("state", "present", ["digest", "builder"]), ("state", "signable", ["key"])])


if __name__ == "__main__":
    main()
