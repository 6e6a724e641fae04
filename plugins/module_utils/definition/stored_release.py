# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Take a release's own stored file as a release file: the same release in another place. Pure."""

from __future__ import annotations

from typing import Any, Mapping

from ..core.canonical import digest_of
from ..core.errors import StackError
from . import module_variables

DESCRIPTIVE = ("title",)
"""Keys of a release file that nothing is built from."""

OWN = ("release", "digest", "definition", "series")
"""Keys by which the file is told from a release file that somebody wrote."""


def is_stored(content: object) -> bool:
    """Tell whether this is the content of a release's own ``.torchstack/release.yml``."""
    return isinstance(content, Mapping) and all(key in content for key in OWN)


def asked_for(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored file's release file with the variables of modules put back; another content as it is."""
    if not is_stored(content):
        return dict(content)
    return module_variables.restore(content["definition"] or {}, content.get("written") or {})


def asked_digest(asked: Mapping[str, Any], record: object = None) -> str:
    """Digest ``definition`` and ``series`` of what is asked for; by that a release is known once it is frozen.

    What only describes a release is no part of it, so that a typing error can be corrected. Releases from before that
    have their title in their digest: they are known by it, with the title that they were recorded with. Raises
    StackError: it is no plain data.
    """
    if is_stored(record) and isinstance(record, Mapping):
        former = {key: value for key, value in asked_for(record).items() if key in DESCRIPTIVE}
        if digest_of(dict(asked, definition=dict(asked["definition"], **former))) == record["digest"]:
            return str(record["digest"])
    definition = {key: value for key, value in asked["definition"].items() if key not in DESCRIPTIVE}
    return digest_of(dict(asked, definition=definition))


def problem(content: Mapping[str, Any], series: Mapping[str, str], digest: str, source: str) -> str:
    """Say why a rollout from a stored file would be another release; empty where it is the same."""
    if not is_stored(content) or digest == content["digest"]:
        return ""
    recorded = content["series"] or {}
    try:
        whole = asked_digest({"definition": asked_for(content), "series": recorded}, content) == content["digest"]
    except (StackError, AttributeError, TypeError):
        whole = False
    if not whole:
        return (
            "%s is not as the rollout of %s wrote it: its digest is another one. Take the file from the release "
            "itself, or write a release file of a new name." % (source, content["release"]))
    others = sorted(name for name in {*series, *recorded} if series.get(name) != recorded.get(name))
    if others:
        return (
            "%s was rolled out with other patches: the series of %s differ from those of this checkout. Roll out from "
            "a checkout that has them; the release keeps a copy of each below .torchstack/series." % (
                content["release"], ", ".join(others)))
    return (
        "%s would not be the same release: this checkout resolves release files otherwise than the one that rolled it "
        "out. Roll out from that one, or write a release file of a new name." % content["release"])
