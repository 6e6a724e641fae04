# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Ask the site whose inventory lies beside a release file for its data."""

from __future__ import annotations

import pathlib
from typing import Any

from ansible_collections.hpcml.torchstack.plugins.plugin_utils.command import places, playbook


class UnknownError(Exception):
    """Why the site cannot say; half a sentence."""


def ask(release: pathlib.Path, expression: str) -> Any:
    """Ask the site's inventory for the value of an expression. Raises UnknownError: there is none, or it cannot say."""
    hosts = release.resolve().parents[1] / "hosts.yml"
    if not hosts.is_file():
        raise UnknownError("there is no %s that has the site's data" % hosts)
    try:
        return playbook.ask(places.find_workspace(hosts.parent), "all[0]", expression, hosts)
    except places.CommandError as error:
        raise UnknownError(str(error).rstrip(".")) from error
