# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read the questions about a site, and judge answers to them.

An answer is text; what it means follows from its question's kind: a text, one of some words, a number, yes or no, or
words with spaces between.
"""

from __future__ import annotations

import pathlib
import re
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Sequence, Union

import jinja2
import yaml
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.near_names import nearest

from ...module_utils.batch import registry

Value = Union[str, int, bool, "list[str]"]
"""What an answer means."""

TRUTHS = {"yes": True, "no": False}

SYSTEMS = "systems"
"""Stands in the choices of a question for every batch system."""

_JINJA = jinja2.Environment(undefined=jinja2.StrictUndefined)
_JINJA.globals["rank_launchers"] = {name: " ".join(registry.system_of(name).rank_launcher) for name in registry.SYSTEMS}


class AnswerError(Exception):
    """An answer that cannot be used; the message is a sentence."""


class Question(NamedTuple):
    """One question."""

    name: str
    ask: str
    help: str
    default: str
    """a template over the answers before it"""
    kind: str = "text"
    choices: Sequence[str] = ()
    pattern: str = ""
    """what a text or each word has to look like as a whole; empty for anything"""
    says: str = ""
    """the same in words"""
    least: int = 0
    """of a number, or the number of words"""
    when: str = ""
    """an expression over the answers before it: whether the question means anything; empty for always"""
    otherwise: str = ""
    """what the answer is where it does not"""

    def applies(self, answers: Mapping[str, Any]) -> bool:
        """Tell whether the question means anything after these answers."""
        return not self.when or bool(_JINJA.compile_expression(self.when)(**answers))

    def proposal(self, answers: Mapping[str, Any]) -> str:
        """Return the default after these answers, as text."""
        return _JINJA.from_string(self.default).render(**answers)

    def value(self, text: str) -> Value:
        """Return what an answer means. Raises AnswerError: it is none to this question."""
        return _KINDS[self.kind](self, text.strip())

    @property
    def without(self) -> Value:
        """Return the value where the question means nothing."""
        if self.otherwise:
            return self.value(self.otherwise)
        empty: dict[str, Value] = {"words": [], "number": 0, "truth": False}
        return empty.get(self.kind, "")


def read(path: pathlib.Path) -> list[Question]:
    """Read the questions."""
    return [
        Question(**dict(entry, choices=[*_choices(entry.get("choices", ()))]))
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))
    ]


def _choices(words: Sequence[str]) -> Iterator[str]:
    for word in words:
        yield from registry.SYSTEMS if word == SYSTEMS else (word,)


def _text(question: Question, text: str) -> Value:
    if question.pattern and not re.fullmatch(question.pattern, text):
        raise AnswerError("%s is not what is meant: give %s." % ("'%s'" % text if text else "Nothing", question.says))
    return text


def _choice(question: Question, text: str) -> Value:
    if text not in question.choices:
        raise AnswerError("'%s' is none of %s%s" % (text, ", ".join(question.choices), meant(text, question.choices)))
    return text


def _number(question: Question, text: str) -> Value:
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < question.least:
        raise AnswerError("'%s' is no whole number from %d on." % (text, question.least))
    return int(text)


def _truth(_question: Question, text: str) -> Value:
    if text.lower() not in TRUTHS:
        raise AnswerError("'%s' is neither yes nor no." % text)
    return TRUTHS[text.lower()]


def _words(question: Question, text: str) -> Value:
    words = text.split()
    for word in words:
        _text(question, word)
    if len(words) < question.least:
        raise AnswerError("At least one is needed: give %s." % question.says)
    return words


_KINDS: Mapping[str, Callable[[Question, str], Value]] = {
    "text": _text, "choice": _choice, "number": _number, "truth": _truth, "words": _words,
}


def meant(word: str, known: Sequence[str]) -> str:
    """Propose a known word that is like another one, as the end of a sentence."""
    near = nearest(word, known)
    return "; did you mean '%s'?" % near if near else "."
