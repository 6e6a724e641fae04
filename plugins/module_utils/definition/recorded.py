# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compare what a release file asks for with what is recorded of its release. Pure.

The records are the result of the module release_record, here ``records``: ``content`` (the text of the resolved release
file), ``frozen``, ``freezing``, ``thawed`` and ``retired`` (mappings or None) and ``subject``. Their content as data is
``record``.
"""

from __future__ import annotations

from typing import Any, Mapping

from . import components, container, module_variables
from .release_file import Definition, digest_of

GONE = ("removing", "removed")
"""States of a retired release of which nothing is left."""


def compare(found: Definition, content: Mapping[str, Any], records: Mapping[str, Any], sums: str = "") -> Definition:
    """Complete a definition with what only the records and the site's images (``sums``: their SHA256SUMS) know.

    A release that is built already keeps its image, also where the list of checksums has gone since; one that was
    frozen keeps the digest that it was frozen with, see :func:`.stored_release.asked_digest`.
    """
    record, begun = records.get("record") or {}, bool(records.get("frozen") or records.get("freezing"))
    definition = found.definition
    if components.in_image(definition) and "sha256" not in definition["base"]["image"]:
        image = definition["base"]["image"]
        kept = components.value_at(record, ("definition", "base", "image")) or {}
        known = kept.get("sha256", "") if begun and kept.get("file") == image["file"] else ""
        image = dict(image, sha256=container.checksum(sums, image["file"]) or known)
        definition = dict(definition, base=dict(definition["base"], image=image))
    digest = digest_of(definition, found.series, record if begun and record else content)
    return found._replace(definition=definition, digest=digest)


def refusal(found: Definition, records: Mapping[str, Any], name: str, source: str) -> str:
    """Say why a release cannot be rolled out; empty where it can."""
    another = "Make a new release: copy %s to a file of another name, give it that name under `release`, and roll " \
        "that out." % source
    frozen, thawed = records.get("frozen"), records.get("thawed")
    if is_gone(records):
        return "Release %s was retired on %s, and its name is not used again, since jobs and notes of users mean the " \
            "old one by it. %s" % (name, retired_on(records), another)
    if frozen and frozen["digest"] != found.digest:
        before = restore(records.get("record") or {})
        changes = [path for path in changed_keys(before, found.asked) if path != "definition.title"]
        return "Release %s is frozen since %s, and what is asked for has changed since (%s). %s" % (
            name, frozen["frozen_at"], ", ".join(changes), another)
    if thawed:
        return "Release %s is thawed since %s by %s (%s), and is not rolled out meanwhile. Freeze it again first: " \
            "playbooks/thaw.yml -e torchstack_release=%s -e thaw_state=refrozen." % (
                name, thawed["at"], thawed["who"], thawed["why"], name)
    return ""


def absence(records: Mapping[str, Any], name: str, root: str) -> str:
    """Say why a release cannot be looked at again; empty where it can."""
    if is_gone(records):
        return "Release %s was retired on %s: there is nothing left of it below %s." % (name, retired_on(records), root)
    if records.get("content") is None:
        return "Release %s was never opened below %s. Roll it out first: " \
            "playbooks/rollout.yml -e torchstack_release=%s." % (name, root, name)
    return ""


def is_gone(records: Mapping[str, Any]) -> bool:
    """Tell whether a release was retired so far that nothing is left of it."""
    return (records.get("retired") or {}).get("state", "") in GONE


def retired_on(records: Mapping[str, Any]) -> str:
    """Return the day on which a release was retired."""
    return str((records.get("retired") or {}).get("since", ""))[:10]


def restore(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded release with its release file as it was written."""
    definition = module_variables.restore(record.get("definition") or {}, record.get("written") or {})
    return dict(record, definition=definition)


def changed_keys(before: object, after: object, level: str = "") -> list[str]:
    """List the dotted paths at which two mappings differ; keys that only the first has at its top do not count."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return [] if before == after else [level]
    changed: list[str] = []
    for key in [*after, *(key for key in before if level and key not in after)]:
        path = "%s.%s" % (level, key) if level else str(key)
        if (key in before) != (key in after):
            changed.append(path)
        else:
            changed += changed_keys(before[key], after[key], path)
    return changed
