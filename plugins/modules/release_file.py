# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Reads a release file; the work is in plugins/action/release_file.py, on the control node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_file
version_added: 0.2.0
short_description: Read a release file as plain data
description:
  - Reads a release file on the control node, as data in which no template is filled in, and says where each key is.
  - A mistake - in the YAML, a key that is there twice, a template - is refused in one sentence with file, line, column
    and the line itself. Of a quote that is closed somewhere below, it is the line where it begins.
author:
  - The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes.reading
options:
  path:
    description: The file, on the control node.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Read a release file
  hpcml.torchstack.release_file:
    path: "{{ inventory_dir }}/releases/2026-11-20.yml"
  register: release_read
"""

RETURN = r"""
content:
  description: What is in the file.
  returned: success
  type: dict
  sample: {release: "2026-11-20", title: PyTorch 2.13.0 (CPU)}
lines:
  description: The line of each key and of each element of a list, by its dotted path.
  returned: success
  type: dict
  sample: {release: 4, title: 5}
"""
