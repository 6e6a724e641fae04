#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Judges whether a container image can be offered; the work is in module_utils/images.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: container_preflight
short_description: Judge whether a container image can be offered as a release
version_added: 0.2.0
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes.reading
  - hpcml.torchstack._release.root
description:
  - Looks whether the image is in the site's place of images, which checksum it must have, whether there is room for a
    copy, whether the command that starts containers answers, and whether what they are to see is there.
  - The checksum is that of the release file, else the one in C(SHA256SUMS) beside the image. Where neither has one, the
    image is read once, and the module fails with the line to write. That the image really has it is seen when it is
    copied.
options:
  image:
    description: C(base.image) of the release file.
    type: dict
    required: true
    suboptions:
      file:
        description: Name of the image in the central place.
        type: str
        required: true
      sha256:
        description: Its checksum. Empty for that of the list.
        type: str
        default: ""
      placement:
        description: Whether the root has a copy, or refers to the central image.
        type: str
        choices: [copy, reference]
        default: copy
      definition:
        description: Name of the image's definition in the central place. Empty for none.
        type: str
        default: ""
  images:
    description: The site's place of images, C(torchstack_images).
    type: str
    required: true
  command:
    description: What starts containers there.
    type: str
    default: singularity
  binds:
    description: What containers are to see of the machine, C(torchstack_container.binds).
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds that O(command) may take to say its version.
    type: float
    default: 30
attributes:
  check_mode:
    description: Writes nothing, so that a quota stays unknown.
notes:
  - A quota is met by reserving the space for a moment in a file without a name, which not every file system can do.
"""

EXAMPLES = r"""
- name: See whether the image is there, and room for it
  hpcml.torchstack.container_preflight:
    image:
      file: pytorch-rocm-5.6.1.sif
      sha256: 7d865e959b2466918c9863afca942d0fb89d7c9ac0c99bafc3749504ded97730
    images: /appl/images
    root: /appl/pytorch
"""

RETURN = r"""
image:
  description: The image, as other roles take it. C(copy) and C(definition) may be empty, C(bytes) is 0 without the
    original.
  returned: success
  type: dict
  sample: {file: pytorch-rocm-5.6.1.sif, sha256: 7d865e959b2466918c9863afca942d0f, bytes: 8589934592,
    central: /appl/images/pytorch-rocm-5.6.1.sif, copy: /appl/pytorch/images/7d865e959b24/pytorch-rocm-5.6.1.sif,
    definition: ""}
runtime:
  description: What starts containers - C(command) as it was given, C(path), and C(version).
  returned: success
  type: dict
  sample: {command: singularity, path: /usr/bin/singularity, version: 1.3.4}
findings:
  description: Everything that was found. C(check) (V(place), V(image), V(checksum), V(definition), V(root.space),
    V(root.inodes), V(runtime) or V(binds)), C(ok), C(severity) (V(error), V(warning) or V(note)), C(message) (what is
    so) and C(remedy) (what to do).
  returned: always
  type: list
  elements: dict
"""

import os
import shutil
import stat
from typing import Any, Mapping, Sequence

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import run_command as commands
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.account import account_name
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.digests import sha256_of, text_of
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.files import read_json
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.findings import Finding, conclude
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import container as containers
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight import container_image, root_facts

SPEC = {
    "image": {
        "type": "dict", "required": True, "options": {
            "file": {"type": "str", "required": True}, "sha256": {"type": "str", "default": ""},
            "placement": {"type": "str", "choices": ["copy", "reference"], "default": "copy"},
            "definition": {"type": "str", "default": ""},
        },
    },
    "images": {"type": "str", "required": True},
    "root": {"type": "path", "required": True},
    "command": {"type": "str", "default": "singularity"},
    "binds": {"type": "list", "elements": "str", "default": []},
    "timeout": {"type": "float", "default": 30},
}


def file_problem(path: str) -> str:
    """Say why a file cannot be used, as the end of a sentence; empty where it can."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return "is not a file"
    except OSError as error:
        return "cannot be looked at (%s)" % error.strerror if os.path.lexists(path) else "is not there"
    if not os.access(path, os.R_OK):
        return "cannot be read by %s" % account_name(os.geteuid())
    return "" if os.path.getsize(path) else "is empty"


def is_copied(copy: str, sha256: str) -> bool:
    """Tell whether the copy is there and known to be right."""
    try:
        return container_image.is_recorded(read_json(copy + container_image.RECORD), sha256, os.stat(copy))
    except (OSError, ValueError):
        return False


def names_in(directory: str) -> list[str]:
    """List what is in a directory; nothing where it cannot be read."""
    try:
        return os.listdir(directory)
    except OSError:
        return []


def check_image(wanted: Mapping[str, Any], write: bool) -> tuple[list[Finding], dict[str, Any]]:
    """Check the image, reserving space for a moment if that may be, and return findings and image as roles take it."""
    image, central = wanted["image"], wanted["images"]
    findings = container_image.judge_place(central, bool(central) and os.path.isdir(central))
    if findings:
        return findings, {}
    sums = os.path.join(central, container_image.SUMS)
    listed = containers.checksum(text_of(sums), image["file"])
    sha256 = str(image["sha256"]).lower() or listed
    where = container_image.places(image, central, wanted["root"], sha256)
    there: dict[str, Any] = {"problem": file_problem(where.central)}
    there["bytes"] = 0 if there["problem"] else os.path.getsize(where.central)
    there["copied"] = bool(where.copy) and is_copied(where.copy, sha256)
    findings = container_image.judge_image(image, where, there, names_in(central))
    computed = "" if sha256 or there["problem"] else sha256_of(where.central)
    findings += container_image.judge_sum(image, listed, computed, sums)
    findings += container_image.judge_definition(
        image, where, file_problem(where.definition) if where.definition else "")
    if where.copy:
        needed = 0 if there["copied"] else there["bytes"]
        volume = root_facts.examine(os.path.dirname(where.copy))
        if write and needed and volume["directory"] and volume["writable"]:
            volume["probe"] = root_facts.probe(volume["nearest"], needed, 0)
        findings += container_image.judge_room(where, needed, volume, account_name(os.geteuid()))
    return findings, dict(where._asdict(), file=image["file"], sha256=sha256, bytes=there["bytes"])


def check_runtime(command: str, timeout: float) -> tuple[list[Finding], dict[str, str]]:
    """Check the command that starts containers, and return the findings with what it is."""
    path = shutil.which(command) or ""
    outcome = commands.run([path, "--version"], timeout) if path else None
    version = container_image.runtime_version(outcome.output) if outcome else ""
    complaint = outcome.complaint if outcome and not outcome.ok else ""
    findings = container_image.judge_runtime(command, path, version, complaint)
    return findings, {"command": command, "path": path, "version": version}


def missing_binds(binds: Sequence[str], root: str) -> list[str]:
    """List what containers are to see and is not there; the rollout makes the root and what is in it."""
    missing = []
    for source in dict.fromkeys(bind.split(":")[0] for bind in binds):
        try:
            os.stat(source)
        except (FileNotFoundError, NotADirectoryError):
            if os.path.commonpath([root, os.path.join("/", source)]) != os.path.normpath(root):
                missing.append(source)
        except OSError:
            continue
    return missing


def run(module: AnsibleModule) -> dict:
    """Check the image, the command that runs it, and what it is to see."""
    params = module.params
    try:
        findings, image = check_image(params, not module.check_mode)
        found, runtime = check_runtime(params["command"], params["timeout"])
    except OSError as error:
        raise StackError(
            "The image could not be looked at: %s." % error, container_image.STEP, "Look at that path by hand."
        ) from error
    findings += found + container_image.judge_binds(missing_binds(params["binds"], params["root"]))
    result = {"image": image, "runtime": runtime}
    return conclude(module, findings, container_image.STEP, {}, result, "Nothing was installed.")


def main() -> None:
    """Entry point."""
    run_module(run, SPEC)


if __name__ == "__main__":
    main()
