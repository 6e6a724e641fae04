# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Document the options that name a release, or the step that makes it."""

from __future__ import annotations


class ModuleDocFragment:
    """The options that mean the same in each module that works on a release."""

    DOCUMENTATION = r"""
options:
  root:
    description: The directory that holds the site's releases and their records.
    type: path
    required: true
  release:
    description: The name of the release, a directory below O(root).
    type: str
    required: true
"""

    ROOT = r"""
options:
  root:
    description: The directory that holds the site's releases and their records.
    type: path
    required: true
"""

    PLANNED = r"""
options:
  planned_after:
    description: The step before. In check mode, what it has still to make is a plan, reported with this name, and no
      error.
    type: str
"""
