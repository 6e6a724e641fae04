# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Summarise the two verifications of a release, whose records have an entry for each object."""

from __future__ import annotations

import collections
import os
from typing import Any, Mapping

from .library_rules import LATE, PREFIX
from .rule_globs import path_glob, soname_glob


def summarise_libraries(record: Mapping[str, Any]) -> dict[str, Any]:
    """Summarise the record of ldd_verify, ``verification.json``.

    Returns:
        ``objects`` (count), ``providers`` (``name``, ``path``, ``rules`` and ``needed_by`` of each, by name and path)
        and ``allowed`` (what was missing and may be: ``name``, ``reason``, ``needed_by``).

    Raises:
        ValueError: it is no such record.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    missing: dict[tuple[str, str], int] = collections.Counter()
    try:
        allowances = [
            (soname_glob(rule["name"]), path_glob(rule.get("object", "**")), rule["reason"])
            for rule in record["rules"].get("allow_missing", [])
        ]
        for path, entry in record["objects"].items():
            for name, place in entry["needed"].items():
                if place["path"] is None:
                    missing[_reason(name, path, allowances), name] += 1
                    continue
                # An RPATH with $ORIGIN/.. leads to the same file by many names.
                plain = os.path.normpath(place["path"])
                first = {"name": name, "path": plain, "rules": set(), "needed_by": 0}
                if not isinstance(place["rule"], str):
                    raise TypeError("a rule is a text")
                provider = found.setdefault((name, plain), first)
                provider["rules"].add(place["rule"])
                provider["needed_by"] += 1
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError("not a record of ldd_verify") from error
    for provider in found.values():
        own = provider["rules"].difference(LATE)
        provider["rules"] = sorted(own or provider["rules"])
    return {
        "objects": len(record["objects"]),
        "providers": [found[key] for key in sorted(found)],
        "allowed": [
            {"name": name, "reason": reason, "needed_by": count} for (reason, name), count in sorted(missing.items())
        ],
    }


def _reason(name: str, path: str, allowances: list) -> str:
    """Find the reason of the first rule that lets an object miss a library; empty where there is none."""
    place = os.path.join(PREFIX, path).lstrip("/")
    fitting = (reason for names, objects, reason in allowances if names.fullmatch(name) and objects.fullmatch(place))
    return next(fitting, "")


def summarise_imports(record: Mapping[str, Any]) -> dict[str, Any]:
    """Summarise import_verify's record: ``modules``, ``mapped`` (count), ``reported``, ``allowed``; or ValueError."""
    try:
        return {
            "modules": list(record["modules"]), "mapped": len(record["mapped"]),
            "reported": dict(record["reported"]), "allowed": list(record["allowed"]),
        }
    except (KeyError, TypeError) as error:
        raise ValueError("not a record of import_verify") from error
