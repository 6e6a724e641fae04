# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Describe how the PyTorch of a release file is built from its source."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from ansible.errors import AnsibleFilterError


def pytorch_source_build(
    pytorch: Any, context: Mapping[str, Any], given: Mapping[str, Any], base: Mapping[str, Any],
    compilers: Mapping[str, str], cuda: Mapping[str, Any], nccl: Mapping[str, Any], nccl_prefix: str,
) -> dict[str, Any]:
    """Describe a build from source, see :func:`.pytorch_build.describe_build`; ``context`` is release_context."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.pytorch_build import describe_build
    from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.toolchain import step_toolchain

    if not isinstance(pytorch, Mapping) or not pytorch.get("source"):
        raise AnsibleFilterError("pytorch_source_build: the release file has no pytorch.source.")
    return describe_build(pytorch, given, base, step_toolchain(context, "pytorch"), compilers, cuda, nccl, nccl_prefix)


class FilterModule:
    """The filter of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"pytorch_source_build": pytorch_source_build}
