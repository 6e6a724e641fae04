# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Finds all mistakes in a site's data; the work is in plugins/action/site_lint.py, on the control node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: site_lint
version_added: 0.2.0
short_description: Find all mistakes in a site's data and its release files, before anything is looked at
description:
  - Judges what the roles would get, and tells every problem at once, each with its file and line and the name that was
    probably meant. It asks neither the machine nor its batch system.
  - It looks at the names of variables, as M(hpcml.torchstack.known_variables); at every variable that the site gives,
    against what the roles say of it; at the release files, with their patch series; and at whether both go together.
  - It asks the functions that later tasks ask, so that these meet nothing that it could have known.
  - Templates are filled in as for the roles, in the context of the role release - its file of tasks C(lint), or its
    first task. Where a variable of the environment is not set, as for a project to charge, nothing is missed without
    O(releases).
  - A directive of a batch system of which nothing is known is a warning, unless it looks like a known one.
author:
  - The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes.reading
options:
  releases:
    description:
      - The release files to judge, on the control node.
      - Without, the one of a release that is typed, else all files beside that of the site's own release.
    type: list
    elements: path
  only:
    description: With V(inventory), only whether the files of the inventory can be read, of whatever hosts.
    type: str
    choices: [inventory]
  fail:
    description:
      - Whether problems fail the task, with all of them in its message, one to a line.
      - Without, they are printed, one to a line, and returned.
    type: bool
    default: true
  others:
    description: Further names of variables that begin as those of this collection and are somebody else's.
    type: list
    elements: str
    default: []
seealso:
  - module: hpcml.torchstack.known_variables
  - module: hpcml.torchstack.release_definition
"""

EXAMPLES = r"""
- name: Find all mistakes of the site and its releases
  ansible.builtin.import_role:
    name: hpcml.torchstack.release
    tasks_from: lint

- name: Find those that concern one release, and stop at them
  hpcml.torchstack.site_lint:
    releases: ["{{ release_file }}"]
"""

RETURN = r"""
msg:
  description: All problems, one to a line.
  returned: failure
  type: str
  sample: |-
    Nothing was done, as there is a mistake:
    inventories/mysite/releases/1.yml:88: 'acceptance.checks[1]' is 'torch_ncll', which is none of imports, devices.
problems:
  description: What is wrong. Empty where nothing is.
  returned: success
  type: list
  elements: dict
  contains:
    file:
      description: The file; empty for what stands in none, such as what is typed.
      type: str
      sample: inventories/mysite/group_vars/mysite.yml
    line:
      description: The line, from 1; 0 where it is not known.
      type: int
      sample: 12
    path:
      description: The path of the key; empty where none is meant.
      type: str
      sample: torchstack_jobs.options.partiton
    message:
      description: What is wrong, as a sentence.
      type: str
      sample: "'torchstack_jobs.options': there is no option partiton. Did you mean partition?"
releases:
  description: The names of the releases that were judged.
  returned: success
  type: list
  elements: str
  sample: ["2026-11-20"]
"""
