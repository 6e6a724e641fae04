# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Turns a release file into what it asks for; see plugins/action/release_definition.py, on the control node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_definition
version_added: 0.2.0
short_description: Read, check and resolve a release file
description:
  - Reads a release file on the control node, as data in which no template is filled in.
  - A mistake - in the YAML, a key that is there twice, a template - is refused in one sentence with file, line, column
    and the line itself. Of a quote that is closed somewhere below, it is the line where it begins.
  - Whatever else is wrong with it is refused in one message, a sentence for each problem, with the key that was
    probably meant. What may stand in it is under C(release_file) in C(roles/release/meta/argument_specs.yml).
  - A release's own C(.torchstack/release.yml) is taken as well, for the same release in another place; another release
    is refused.
  - With O(records), what is asked for is compared with what is recorded of the release. Refused are the name of a
    retired release, a change of a frozen one, and a release that is thawed.
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment: hpcml.torchstack._attributes.reading
options:
  path:
    description: The release file, on the control node.
    type: path
    required: true
  release:
    description: The name that the release must have. Empty for any.
    type: str
    default: ""
  site:
    description: The name of the site, for messages.
    type: str
    default: ""
  own_series:
    description: The directory on the control node with the site's own patch series, each in C(<role>/<series>), which
      are looked for there first. Empty for none.
    type: path
    default: ""
  only:
    description: With V(known_problems), nothing but these is checked and returned.
    type: str
    choices: [known_problems]
  records:
    description: What is recorded of the release, a result of M(hpcml.torchstack.release_record).
    type: dict
  checksums:
    description: The text of C(SHA256SUMS) beside the site's images, for an image without a checksum in the release
      file. Read with O(records).
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Read a release file
  hpcml.torchstack.release_definition:
    path: "{{ inventory_dir }}/releases/2026-11-20.yml"
    release: "2026-11-20"
    site: local
  register: release_read
"""

RETURN = r"""
definition:
  description: The release file with every default, without what a release does not depend on.
  returned: success, unless O(only) is given
  type: dict
  sample: {release: "2026-11-20", title: PyTorch 2.13.0 (CPU)}
series:
  description: The digest of each patch series that it names.
  returned: success, unless O(only) is given
  type: dict
  sample: {horovod: 9f86d081884c7d65}
series_directories:
  description: The directory on the control node of each of these.
  returned: success, unless O(only) is given
  type: dict
  sample: {horovod: /home/stacks/mysite/series/horovod/0.28.1}
digest:
  description: The digest of RV(definition) and RV(series), without its title, by which a release is known once it is
    frozen. Of a release that was frozen with its title, the digest that it was frozen with.
  returned: success, unless O(only) is given
  type: str
lock_files:
  description: The file on the control node of each lock that is one, by the dotted path of its key. No digest depends
    on it.
  returned: success, unless O(only) is given
  type: dict
  sample: {locks.base: /home/stacks/mysite/releases/2026-11-20/base.txt}
known_problems:
  description: What is known to be wrong with the release, a line of text each. No digest depends on it.
  returned: success
  type: list
  elements: str
  sample: [It hangs at exit of MPI. Call finalize() before.]
"""
