# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Render the facts of a report as a page for people."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from ansible.errors import AnsibleFilterError


def report_page(facts: Any, templates: str) -> str:
    """Render the page of a report, one HTML document."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.report import page

    if not isinstance(facts, Mapping) or facts.get("schema") != 1:
        raise AnsibleFilterError("report_page: these are no facts of a report; the module release_report returns them.")
    return page.render_page(facts, str(templates))


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"report_page": report_page}
