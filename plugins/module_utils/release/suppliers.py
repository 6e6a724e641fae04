# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Name who supplies a package, as SPDX 2.3 spells it (7.5): a person or an organisation. Pure."""

from __future__ import annotations

import email.utils
import re
import urllib.parse
from typing import Any, Mapping

from ..core.lenient_json import text
from ..core.text import printable

NOBODY = "NOASSERTION"
FIELDS = ("Author", "Author-email", "Maintainer", "Maintainer-email")
"""Where a distribution says who made it, in the order of core metadata's own weight."""
MEANINGLESS = ("", "unknown", "none", "n/a")
HOSTS_OF_MANY = ("github.com", "gitlab.com", "bitbucket.org", "codeberg.org")
"""Where the first part of a path says whose a repository is."""

_MOST = 120
"""Characters of a name; a list of all contributors is cut."""
_PERSON = re.compile(r"[^\W\d_][\w.'-]*(?: [^\W\d_][\w.'-]*){1,3}\Z")
_MANY = re.compile(
    r"\b(?:authors?|association|community|consortium|contributors?|corp(?:oration)?|core|developers?|devs?|foundation|"
    r"gmbh|group|inc|institute|laborator(?:y|ies)|labs?|limited|llc|ltd|maintainers?|organi[sz]ation|project|software|"
    r"team|university)\b", re.IGNORECASE)


def organisation(name: str) -> str:
    """Return an organisation; nobody where it has no name."""
    said = _plain(name)
    return "Organization: " + said if said else NOBODY


def of_metadata(metadata: Mapping[str, Any]) -> str:
    """Return who a Python distribution says made or maintains it; empty where it does not say."""
    for field in FIELDS:
        said = text(metadata.get(field))
        if field.endswith("-email"):
            said = ", ".join(name or address.rpartition("@")[2] for name, address in email.utils.getaddresses([said]))
        name = _plain(said)
        if name.lower() not in MEANINGLESS:
            return ("Person: " if _PERSON.match(name) and not _MANY.search(name) else "Organization: ") + name
    return ""


def of_address(url: str) -> str:
    """Return whose the place of a source is; empty for an address of one machine."""
    parts = _split(url)
    host = (parts.hostname or "").lower()
    if "." not in host:
        return ""
    owner = parts.path.strip("/").partition("/")[0] if host in HOSTS_OF_MANY else ""
    return organisation(owner or host)


def of_channel(channel: str) -> str:
    """Return whose a conda channel is: its last word; empty for a directory of one machine."""
    parts = _split(channel)
    if parts.scheme == "file" or channel.startswith("/"):
        return ""
    words = [word for word in parts.path.split("/") if word]
    return organisation(words[-1] if words else parts.hostname or "") if channel else ""


def _split(url: str) -> urllib.parse.SplitResult:
    """Split an address; one that is none has no host and no path."""
    try:
        return urllib.parse.urlsplit(url)
    except ValueError:
        return urllib.parse.urlsplit("")


def _plain(name: str) -> str:
    """Return a name on one line, without an address in brackets, which the format would take for one."""
    said = re.sub(r"[(<].*", "", printable(name).replace("\t", " ").replace("\n", " "), flags=re.DOTALL)
    return re.sub(r" +", " ", said).strip(" ,;:")[:_MOST].strip()
