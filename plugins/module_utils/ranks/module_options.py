# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Specify the options of modules that start ranks; plugins/doc_fragments/_ranks.py says what they mean."""

from __future__ import annotations

from typing import Any

from ..core import run_module

RELEASE: dict[str, dict[str, Any]] = {
    **run_module.RELEASE,
    "partition": {"type": "str", "default": ""},
    "modulepaths": {"type": "dict", "default": {}, "options": {"lmod": {"type": "path"}, "tcl": {"type": "path"}}},
}
"""Which release, on which part of the site, and where its modules are."""

JOB: dict[str, dict[str, Any]] = {
    "state": {"type": "str", "choices": ["present", "judged"], "default": "present"},
    "job": {"type": "dict", "default": {}},
    "wait": {"type": "float", "default": 60},
    "module_init": {"type": "list", "elements": "path", "default": []},
    "module_system": {"type": "str", "default": "auto", "choices": ["auto", "lmod", "environment-modules", "none"]},
    "module_definition": {"type": "str", "default": ""},
    "environment_keep": {"type": "list", "elements": "str", "default": []},
}
"""Of a launcher that may be started in a batch job, in a fresh login."""

LAUNCHED: dict[str, dict[str, Any]] = {
    "subject": {"type": "str", "default": ""},
    "module": {"type": "str", "default": ""},
    "environment": {"type": "dict", "default": {}},
    "user": {"type": "str", "default": ""},
    "become_command": {"type": "list", "elements": "str", "default": ["sudo", "-n", "-u", "{user}", "--"]},
    "launcher": {"type": "list", "elements": "str", "default": ["mpiexec", "-n", "{ranks}"]},
    "python": {"type": "str", "default": "python3"},
}
"""Of ranks that are started by the release's own module and Python."""
