# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What ansible-playbook has printed."""

from __future__ import annotations

import re

RECAP = re.compile(r"ok=\d+ +changed=(\d+) +unreachable=\d+ +failed=\d+")


def changed_in(text):
    """The count of changed tasks in the last recap."""
    return int(RECAP.findall(text)[-1])


class Printed:
    """A run that prints into the file ``output``."""

    @property
    def text(self):
        """What it printed so far."""
        return self.output.read_text(errors="replace")

    @property
    def message(self):
        """What it printed, without the line breaks of the console."""
        return " ".join(self.text.split())

    @property
    def changed(self):
        """The count of changed tasks in the recap."""
        return changed_in(self.text)
