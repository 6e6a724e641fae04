# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Filters over a site's data about containers: what is wrong with it, and which checksum its list has for an image."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from ansible.errors import AnsibleFilterError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.late import Late

containers = Late("definition.container")
schemas = Late("core.schema")


def container_problems(data: object, schema: dict[str, Any], root: str, source: str = "") -> list[str]:
    """Everything that is wrong with a site's data about containers, as one sentence each."""
    try:
        found = schemas.problems(data, schema, source)
    except ValueError as error:
        raise AnsibleFilterError("container_problems: %s" % error) from error
    if found or not isinstance(data, Mapping):
        return found
    return containers.site_problems(schemas.resolved(dict(data), schema), root, source)


def image_checksum(text: object, name: str) -> str:
    """The checksum of an image by the text of ``SHA256SUMS``; empty where it has none."""
    return containers.checksum(str(text), name)


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"container_problems": container_problems, "image_checksum": image_checksum}
