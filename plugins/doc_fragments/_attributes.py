# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Document what every module says of check mode, of differences and of a second run."""

from __future__ import annotations


class ModuleDocFragment:
    """The support that modules have; a module's own descriptions take the place of these."""

    DOCUMENTATION = r"""
attributes:
  check_mode:
    support: full
    description: Nothing is written; the result is what would be.
  diff_mode:
    support: full
    description: Shows what is written, before and after.
  idempotent:
    support: full
    description: Without a change nothing is written.
notes:
  - A failure on the target says in C(failed_step) what failed, and in C(remedy) what to do next.
"""

    READING = r"""
attributes:
  check_mode:
    support: full
    description: Does the same, as nothing is changed.
  diff_mode:
    support: none
    description: Nothing is changed, so there is nothing to show.
  idempotent:
    support: full
    description: Nothing is changed.
notes:
  - A failure on the target says in C(failed_step) what failed, and in C(remedy) what to do next.
"""
