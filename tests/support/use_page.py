# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The page that tells users how a release is used, followed to the letter."""

from __future__ import annotations

import re

BLOCK = re.compile(r"(?ms)^```bash\n(.*?)^```$")
PROJECT = "your_project"
"""What the page says for the project that its reader has."""


def blocks(page: str) -> list[str]:
    """The blocks that a reader copies into a terminal, in their order."""
    found = BLOCK.findall(page)
    assert len(found) == page.count("\n```\n") and len(found) > 2, page
    return found


def script(page: str, project: str = "") -> str:
    """All blocks as one script, which ends with the first command that fails.

    Args:
        page: the page.
        project: what its reader writes for ``your_project``, where the page says that there is something to write.
    """
    text = "".join(blocks(page))
    assert bool(project) == (PROJECT in text), page
    return "set -e -o pipefail\n" + text.replace(PROJECT, project or PROJECT)
