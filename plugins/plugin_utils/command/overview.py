# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write one page about all releases of a root."""

from __future__ import annotations

import os
import urllib.parse
from typing import Any

from ansible_collections.hpcml.torchstack.plugins.module_utils.core import clock
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.files import write_atomic
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.json_document import storable
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.redaction import redacted_data
from ansible_collections.hpcml.torchstack.plugins.module_utils.report import overview, overview_page, pages
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.ansible_programs import TOP

from . import releases
from .places import CommandError

NAME = "overview.html"
"""Of the page, in the directory of the root's records."""

TEMPLATES = TOP / "roles" / "report" / "templates"


def path_of(root: str) -> str:
    """Say where the page is written where nobody says otherwise."""
    return os.path.join(root, ".torchstack", NAME)


def gather(root: str, path: str) -> dict[str, Any]:
    """Compile the overview of a root, for a page at ``path``; see :func:`.overview.compile_overview`."""
    found, broken = releases.read_all(root)
    known = [
        overview.Known(releases.row(one), one.facts, one.looks, _address(one.files.afterwards, path)) for one in found]
    return dict(storable(redacted_data(overview.compile_overview(root, known, broken, clock.now()))))


def _address(directory: str, path: str) -> str:
    """Return the address of the report in a directory, as a page at ``path`` has it; empty where there is none."""
    report = os.path.realpath(os.path.join(directory, pages.PAGE))
    if not os.path.isfile(report):
        return ""
    return urllib.parse.quote(os.path.relpath(report, os.path.dirname(os.path.realpath(path))))


def write(found: dict[str, Any], path: str) -> None:
    """Write the page. Raises CommandError: it cannot be written there."""
    page = overview_page.render_overview(found, str(TEMPLATES))
    try:
        write_atomic(path, page.encode("utf-8"), 0o644)
    except OSError as error:
        raise CommandError("The overview cannot be written to %s: %s. --to FILE writes it elsewhere." % (
            path, error.strerror)) from error
