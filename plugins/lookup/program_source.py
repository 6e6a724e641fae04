# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Give roles the text of programs that run by themselves."""

from __future__ import annotations

DOCUMENTATION = r"""
name: program_source
short_description: Text of a program of this collection that runs by itself
version_added: 0.2.0
author: The hpcml.torchstack contributors (@hpcml)
description:
  - Returns the text of modules of C(plugins/module_utils/standalone), which import nothing of the collection, so that a
    role can put them where they are run or imported without it.
options:
  _terms:
    description: Names of the modules, without their suffix.
    required: true
"""

EXAMPLES = r"""
- name: Show how this release reads lists of hosts
  ansible.builtin.debug:
    msg: "{{ lookup('hpcml.torchstack.program_source', 'hostlist') }}"
"""

RETURN = r"""
_raw:
  description: The texts, without white space at their ends.
  type: list
  elements: str
"""

import importlib
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible_collections.hpcml.torchstack.plugins.module_utils import standalone
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.zipapp import program_text


class LookupModule(LookupBase):
    """Look the text of stand-alone modules up."""

    def run(self, terms: list[str], variables: Any = None, **kwargs: Any) -> list[str]:
        texts = []
        for name in terms:
            try:
                module = importlib.import_module("%s.%s" % (standalone.__name__, name))
            except ImportError as error:
                raise AnsibleLookupError("program_source: there is no program '%s': %s." % (name, error)) from error
            texts.append(program_text(module).rstrip())
        return texts
