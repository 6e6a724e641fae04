# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Filters over a release file: what is wrong with it, what it says in full, and its digest."""

from __future__ import annotations

from typing import Any, Callable

from ansible.errors import AnsibleFilterError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.late import Late

bases = Late("definition.base")
errors = Late("core.errors")
known = Late("definition.known_problems")
schemas = Late("core.schema")
canonical = Late("core.canonical")


def release_problems(
    definition: object, schema: dict[str, Any], source: str = "", patterns: dict[str, Any] | None = None
) -> list[str]:
    """Every problem of a release file as one sentence; an empty list when it is fine."""
    try:
        return schemas.problems(definition, schema, source, patterns)
    except ValueError as error:
        raise AnsibleFilterError("release_problems: %s" % error) from error


def resolved_release(definition: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The release file with the defaults of its schema filled in, without what a release does not depend on."""
    if not isinstance(definition, dict):
        raise AnsibleFilterError("resolved_release: the definition is no mapping; use release_problems on it first.")
    try:
        schemas.check_schema(schema)
    except ValueError as error:
        raise AnsibleFilterError("resolved_release: %s" % error) from error
    return known.without(bases.settled(schemas.resolved(definition, schema)))


def canonical_digest(data: dict[str, Any]) -> str:
    """The sha256 of plain data in its canonical JSON form, the one that build steps are digested in."""
    try:
        return canonical.digest_of(data)
    except errors.StackError as error:
        raise AnsibleFilterError("canonical_digest: %s" % error) from error


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "release_problems": release_problems,
            "resolved_release": resolved_release,
            "canonical_digest": canonical_digest,
        }
