# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Filters over a release's own stored file, from which it is rolled out again elsewhere."""

from __future__ import annotations

from typing import Any, Callable

from ansible.errors import AnsibleFilterError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.late import Late

errors = Late("core.errors")
stored = Late("definition.stored_release")


def is_stored_release(content: Any) -> bool:
    """Whether the content of a file is that of a release's own stored file."""
    return stored.is_stored(content)


def asked_for(content: Any) -> dict[str, Any]:
    """What a release file asks for, whether it is one that somebody wrote or a release's own."""
    try:
        return stored.asked_for(content)
    except (TypeError, AttributeError, ValueError) as error:
        raise AnsibleFilterError("asked_for: this is no release file.") from error


def asked_digest(asked: Any, record: Any = None) -> str:
    """The digest of all that is asked for, by which a release is known once it is frozen."""
    try:
        return stored.asked_digest(asked, record)
    except (errors.StackError, TypeError, AttributeError, KeyError) as error:
        raise AnsibleFilterError("asked_digest: %s" % error) from error


def stored_release_problem(content: Any, series: Any, digest: str, source: str) -> str:
    """Why a rollout from a stored file would be another release, as a sentence; empty where it is the same."""
    return stored.problem(content, series, digest, source)


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "is_stored_release": is_stored_release,
            "asked_digest": asked_digest,
            "asked_for": asked_for,
            "stored_release_problem": stored_release_problem,
        }
