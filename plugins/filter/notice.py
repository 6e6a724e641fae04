# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Filters for announcements: the facts in words, and phrases as Markdown and as plain text."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from ansible.errors import AnsibleFilterError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.late import Late

facts_of = Late("lifecycle.notice_facts")
texts = Late("lifecycle.notice_text")
wording = Late("lifecycle.notice_render")


def notice_words(facts: Any, site: Mapping[str, Any] | None = None, default_from: str = "") -> dict[str, Any]:
    """An announcement as sections of phrases."""
    if not isinstance(facts, Mapping) or facts.get("format") != facts_of.FORMAT:
        raise AnsibleFilterError("notice_words: these are no facts of a notice, which release_notice returns.")
    return wording.words(facts, site or {}, str(default_from))


def notice_markdown(phrase: Sequence[Mapping[str, str]] | str) -> str:
    """A phrase as Markdown."""
    return texts.markdown(phrase)


def notice_plain(phrase: Sequence[Mapping[str, str]] | str, begin: str = "", width: int = 0) -> str:
    """A phrase as lines of plain text."""
    return texts.plain(phrase, begin, width or texts.WIDTH)


def notice_table(found: Mapping[str, Any]) -> str:
    """A table as lines of plain text."""
    return texts.table(found["head"], found["rows"])


class FilterModule:
    """The filters of this file, for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "notice_words": notice_words,
            "notice_markdown": notice_markdown,
            "notice_plain": notice_plain,
            "notice_table": notice_table,
        }
