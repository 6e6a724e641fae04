# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Name packages in a bill of materials: SPDX identifiers, locations, and package URLs. Pure.

SPDX 2.3, sections 7.2 and 7.7; https://github.com/package-url/purl-spec for the types conda, github, generic and pypi.
"""

from __future__ import annotations

import re
import urllib.parse
from typing import Any, Mapping

from ..definition.packages import canonical

NONE = "NOASSERTION"

_ADDRESS = re.compile(
    r"(?:https?|ssh|git)://(?:[A-Za-z0-9_.~-]+@)?[a-z0-9]+(?:[-.][a-z0-9]+)*\.[a-z]{2,5}(?::\d{1,5})?(?:/\S*)?\Z",
    re.IGNORECASE)
_GITHUB = re.compile(r"https://github\.com/([^/]+)/([^/]+?)(?:\.git)?/?\Z", re.IGNORECASE)


def identifier(*words: str) -> str:
    """Make an SPDX identifier of words; different words may give the same one."""
    return "SPDXRef-" + "-".join(re.sub(r"[^A-Za-z0-9.]+", "-", word).strip("-") for word in words if word)


def location(url: str, commit: str = "") -> str:
    """Return where something was downloaded from; an address of this machine says nothing elsewhere."""
    if not _ADDRESS.match(url):
        return NONE
    return "git+%s@%s" % (url, commit) if commit else url


def pypi(name: str, version: str) -> str:
    """Make the package URL of a Python distribution."""
    return "pkg:pypi/%s@%s" % (canonical(name), _quoted(version))


def conda(package: Mapping[str, Any]) -> str:
    """Make the package URL of a conda package."""
    channel = str(package["channel"]).rstrip("/").rpartition("/")[2]
    qualifiers = [("build", package["build"]), ("channel", channel), ("subdir", package["subdir"])]
    said = "&".join("%s=%s" % (key, _quoted(value)) for key, value in qualifiers if value)
    return "pkg:conda/%s@%s%s" % (_quoted(package["name"]), _quoted(package["version"]), "?" + said if said else "")


def source(component: Mapping[str, Any]) -> str:
    """Make the package URL of a source; empty where nothing identifies it."""
    url, commit = component.get("url", ""), component.get("commit", "")
    github = _GITHUB.match(url)
    if github and commit:
        return "pkg:github/%s/%s@%s" % (github.group(1).lower(), github.group(2).lower(), commit)
    if commit and location(url) != NONE:
        name = canonical(component["name"].replace(" ", "-"))
        return "pkg:generic/%s@%s?vcs_url=%s" % (
            _quoted(name), _quoted(component["version"]), _quoted("git+%s@%s" % (url, commit)))
    if component["kind"] == "archive" and not url:
        return pypi(component["name"], component["version"])
    return ""


def _quoted(text: object) -> str:
    return urllib.parse.quote(str(text), safe=".-_~:")
