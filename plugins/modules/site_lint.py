# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Refuses variables that nobody reads; the work is in plugins/action/known_variables.py, on the control node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: known_variables
version_added: 0.2.0
short_description: Refuse variables that nobody reads, with the names that were probably meant
description:
  - Ansible takes every name on the command line and in an inventory, and passes over those that nothing reads. A slip
    in C(-e torchstack_release=...) rolls out another release than the one that was meant.
  - Refused are names that begin with C(torchstack_) or with the name of a role of this collection and an underscore,
    and are in no argument specification of these roles; of those that are typed with C(-e), also others that are very
    near to a known name. Variables of an inventory that its other variables use are the site's own.
  - Also refused is a variable of the environment that is very near to one that the inventory reads.
  - It is the first task of every playbook, which of a site's playbook is that of its first role. It runs on the control
    node, and does not connect to the host.
author:
  - The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes.reading
options:
  others:
    description: Further names that begin as those of this collection and are somebody else's.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Refuse variables that nobody reads
  hpcml.torchstack.known_variables:

- name: Do so at a site whose inventory serves other collections too
  hpcml.torchstack.known_variables:
    others: [container_runtime]
"""

RETURN = r"""
msg:
  description: One sentence for each name.
  returned: failure
  type: str
  sample: "torchstack_relase: there is no such variable; did you mean torchstack_release?"
"""
