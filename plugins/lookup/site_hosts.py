# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Give plays their hosts, or say which inventory is missing."""

from __future__ import annotations

DOCUMENTATION = r"""
name: site_hosts
short_description: Give a play its hosts, or say which inventory is missing
version_added: 0.2.0
author:
  - The hpcml.torchstack contributors (@hpcml)
description:
  - Every playbook of this collection names its hosts through this lookup.
  - It gives the pattern back as it is where the inventory has a host for it.
  - Of an empty pattern it makes V(local) where the inventory has that, else the group of its one site, so that the
    inventory of one site needs no pattern. Of several sites one has to be named.
  - Where there is none, the run ends with one sentence that names an inventory to give. Without it, a play that
    matches no host counts as success.
options:
  _terms:
    description: The pattern of hosts, as C(hosts) of a play takes it. Empty for the one site that there is.
    required: true
"""

EXAMPLES = r"""
- name: Roll out a release of a site
  hosts: "{{ lookup('hpcml.torchstack.site_hosts', 'mysite') }}"
  gather_facts: false
  tasks: []

- name: Roll out a release of the site that is typed, or of the only one
  hosts: "{{ lookup('hpcml.torchstack.site_hosts', torchstack_host | default('')) }}"
  gather_facts: false
  tasks: []
"""

RETURN = r"""
_raw:
  description: The pattern.
  type: list
  elements: str
"""

import pathlib
from typing import Any, Mapping, Sequence

from ansible import context
from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase, inventory_hostnames

LOCAL = "local"
"""The site of whoever names none, where it is there."""

INVENTORIES = pathlib.Path(__file__).parents[2] / "inventories"


def missing(pattern: str, inventories: pathlib.Path) -> str:
    """Say which inventory to give for a pattern that matches no host."""
    said = "The inventory has no host for '%s': " % pattern
    hosts = inventories / pattern / "hosts.yml"
    if hosts.is_file():
        return said + "give the site's, as in -i %s, or one of your own." % hosts
    files = ", ".join(str(path.relative_to(inventories)) for path in sorted(inventories.glob("*/hosts.yml")))
    return said + "give the hosts file of that site with -i; the collection has %s in %s." % (files, inventories)


def only_site(groups: Mapping[str, Sequence[str]]) -> str:
    """Name the group of the only site; the local one where there is none at all.

    Args:
        groups: the hosts of each group, as Ansible has them.

    Raises:
        AnsibleLookupError: there are several sites.
    """
    own = {name: set(hosts) for name, hosts in groups.items() if hosts and name not in ("all", "ungrouped")}
    every = set().union(*own.values())
    if LOCAL in own or not own:
        return LOCAL
    for name, hosts in own.items():
        if hosts == every:
            return name
    raise AnsibleLookupError("The inventory has several sites: name one, as in -e torchstack_host=%s; there are %s." % (
        min(own), ", ".join(sorted(own))))


class LookupModule(LookupBase):
    """Looks at the inventory of the run before its first task."""

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[str]:
        """See :class:`ansible.plugins.lookup.LookupBase`."""
        # A check of the syntax needs no hosts, and some pattern.
        if context.CLIARGS.get("syntax"):
            return [pattern or LOCAL for pattern in terms]
        terms = [pattern or only_site((variables or {}).get("groups") or {}) for pattern in terms]
        hosts = inventory_hostnames.LookupModule(loader=self._loader)
        for pattern in terms:
            if not hosts.run([pattern], variables=variables):
                raise AnsibleLookupError(missing(pattern, INVENTORIES))
        return terms
