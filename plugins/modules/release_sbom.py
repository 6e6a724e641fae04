#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Ansible module release_sbom; the work is in module_utils/release/sbom_file.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_sbom
short_description: Write the bill of materials of a release
version_added: 0.2.0
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release.planned
description:
  - Writes what is installed in a release as an SPDX 2.3 document in JSON - conda packages and Python distributions as
    their own metadata has them, components with their commits, checksums, patches and build settings, the site's own
    files, the MPI and CUDA that it is for, and the image of a container. It says what is in the files, not what was
    asked for. Credentials in addresses are left out.
  - The same release gives the same bytes, wherever it lies.
options:
  prefix:
    description: The release's directory.
    type: path
    required: true
  resolved:
    description: Its resolved release file, as data.
    type: dict
    required: true
  path:
    description: The document. By default C(.torchstack/sbom.spdx.json) in O(prefix).
    type: path
attributes:
  diff_mode:
    description: The packages before and after, one in a line.
notes:
  - The licences are those that packages declare; nobody has concluded anything from their files.
  - What lies inside the image of a container is not listed; the image is named by its checksum.
seealso:
  - module: hpcml.torchstack.tree_manifest
  - module: hpcml.torchstack.release_compare
"""

EXAMPLES = r"""
- name: Write the bill of materials
  hpcml.torchstack.release_sbom:
    prefix: /soft/pytorch/2026-11-20
    resolved: "{{ lookup('ansible.builtin.file', '/soft/pytorch/2026-11-20/.torchstack/release.yml') | from_yaml }}"
"""

RETURN = r"""
path:
  description: The document.
  returned: always
  type: str
packages:
  description: How many packages it lists, with the release itself, its patches and the site's own files.
  returned: once the release was looked at
  type: int
namespace:
  description: The document's name for other documents, which follows from its content.
  returned: once the release was looked at
  type: str
quoted_licences:
  description: Licences that are no SPDX expression of known identifiers, and are quoted as the packages have them.
  returned: once the release was looked at
  type: int
planned_after:
  description: The step that makes the release.
  returned: check mode, where the release is not there or not whole yet and O(planned_after) was given
  type: str
failed_step:
  description: What failed - C(read what is installed) or C(sbom).
  returned: failure
  type: str
"""

import os

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module, text_diff
from ansible_collections.hpcml.torchstack.plugins.module_utils.release import sbom_file
from ansible_collections.hpcml.torchstack.plugins.module_utils.release.installed_records import RECORDS


def make_document(params: dict) -> dict:
    """Make the document of what is installed.

    Raises:
        StackError: the prefix holds no release.
    """
    if not os.path.isdir(os.path.join(params["prefix"], RECORDS)):
        raise StackError(
            "%s is no release: it has no %s." % (params["prefix"], RECORDS), "read what is installed",
            "Correct prefix.", params["prefix"])
    return sbom_file.make_sbom(params["prefix"], params["resolved"])


def update_document(params: dict, check_mode: bool) -> dict:
    """Make the document, write it where it differs, and return what the module returns."""
    path = params["path"] or sbom_file.sbom_path(params["prefix"])
    try:
        document = make_document(params)
    except StackError:
        # Of a release that is half built, what is there now says nothing.
        if check_mode and params["planned_after"]:
            return {"changed": True, "path": path, "planned_after": params["planned_after"]}
        raise
    content, before = sbom_file.as_bytes(document), sbom_file.read_current(path)
    result = {
        "changed": before != content, "path": path, "packages": len(document["packages"]),
        "namespace": document["documentNamespace"],
        "quoted_licences": len(document.get("hasExtractedLicensingInfos", [])),
    }
    if result["changed"]:
        result["diff"] = text_diff(path, sbom_file.list_packages(before), sbom_file.list_packages(content))
        if not check_mode:
            sbom_file.write(path, content)
    return result


def main() -> None:
    """Run the module."""
    run_module(lambda module: update_document(module.params, module.check_mode), {
        "prefix": {"type": "path", "required": True}, "resolved": {"type": "dict", "required": True},
        "path": {"type": "path"}, "planned_after": {"type": "str"},
    })


if __name__ == "__main__":
    main()
