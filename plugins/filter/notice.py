# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Put the facts of an announcement into words, and phrases into Markdown and plain text."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from ansible.errors import AnsibleFilterError


def notice_words(facts: Any, site: Mapping[str, Any] | None = None, default_from: str = "") -> dict[str, Any]:
    """Write an announcement as sections of phrases."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import notice_facts, notice_render

    if not isinstance(facts, Mapping) or facts.get("format") != notice_facts.FORMAT:
        raise AnsibleFilterError("notice_words: these are no facts of a notice, which release_notice returns.")
    return notice_render.render_notice(facts, site or {}, str(default_from))


def notice_markdown(phrase: Sequence[Mapping[str, str]] | str) -> str:
    """Write a phrase as Markdown."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import notice_phrases

    return notice_phrases.markdown(phrase)


def notice_plain(phrase: Sequence[Mapping[str, str]] | str, begin: str = "", width: int = 0) -> str:
    """Write a phrase as lines of plain text."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import notice_phrases

    return notice_phrases.plain(phrase, begin, width or notice_phrases.WIDTH)


def notice_table(found: Mapping[str, Any]) -> str:
    """Write a table as lines of plain text."""
    from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import notice_phrases

    return notice_phrases.table(found["head"], found["rows"])


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "notice_words": notice_words, "notice_markdown": notice_markdown, "notice_plain": notice_plain,
            "notice_table": notice_table}
