# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Get the answers about a site: from a file, from the command line, or from whoever sits at the terminal."""

from __future__ import annotations

import pathlib
from types import MappingProxyType
from typing import Any, Callable, Mapping, NamedTuple, Sequence

import yaml

from .questions import AnswerError, Question, meant


class Answers(NamedTuple):
    """All answers."""

    values: dict[str, Any]
    """what they mean, by question"""
    said: frozenset[str]
    """which ones are no defaults"""


def from_file(path: pathlib.Path) -> dict[str, str]:
    """Read answers from a file of YAML, as text. Raises AnswerError: it has none."""
    try:
        # Every scalar is text there: 12.10 stays what was written.
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise AnswerError("The answers %s cannot be read: %s." % (path, error)) from error
    except yaml.YAMLError as error:
        raise AnswerError("The answers %s are no YAML: %s." % (path, " ".join(str(error).split()))) from error
    if not isinstance(content, dict):
        raise AnswerError("The answers %s have no names with values." % path)
    found = {}
    for name, value in content.items():
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            value = " ".join(value)
        if not isinstance(value, str):
            raise AnswerError("%s: '%s' has to be a text or a list of texts." % (path, name))
        found[str(name)] = value
    return found


def as_text(value: Any) -> str:
    """Write what an answer means as somebody would type it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(value) if isinstance(value, list) else str(value)


def to_file(questions: Sequence[Question], answers: Mapping[str, Any]) -> str:
    """Write a file of answers, each below its question; what is not asked after these stands as a comment."""
    lines = ["---"]
    for question in questions:
        applies, value = question.applies(answers), answers[question.name]
        kind = {"choice": " One of %s." % ", ".join(question.choices), "truth": " yes or no."}.get(question.kind, "")
        lines += ["# %s %s%s" % (question.ask, question.help, kind)]
        if not applies:
            lines[-1] += " Not asked after the answers above."
        lines += ["%s%s: %s" % ("" if applies else "# ", question.name, yaml.dump(
            as_text(value) if applies else "", default_style='"', width=1000).strip())]
    return "\n".join(lines) + "\n"


def collect(
    questions: Sequence[Question], given: Mapping[str, str], context: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    ask: Callable[[str], str] | None = None, tell: Callable[[str], None] = print,
    usual: Mapping[str, str] = MappingProxyType({}),
) -> Answers:
    """Take the given answers, and ask for the others or take their defaults.

    Args:
        questions: all of them, in their order.
        given: answers as text, by name.
        context: what defaults may name besides the answers, of these.
        ask: gets a line that is typed after a prompt, and raises EOFError at the end; None to ask nothing.
        tell: shows a line.
        usual: what is proposed in place of a question's own default, as text, by name.

    Raises:
        AnswerError: a given answer is none, or names no question, or nobody answers.
    """
    names = [question.name for question in questions]
    for name in given:
        if name not in names:
            raise AnswerError("There is no question '%s'%s" % (name, meant(name, names)))
    values: dict[str, Any] = {}
    said, asked = set(), 0
    for question in questions:
        if not question.applies(values):
            if given.get(question.name):
                raise AnswerError("'%s' is answered, and means nothing here: it is asked where %s." % (
                    question.name, question.when))
            values[question.name] = question.without
            continue
        proposal = usual.get(question.name)
        if proposal is None:
            proposal = question.proposal({**context(values), **values})
        text = given.get(question.name)
        if text is None and ask:
            asked += 1
            tell("\n%d. %s\n   %s" % (asked, question.ask, question.help))
            values[question.name] = _ask_until_answered(question, proposal, ask, tell)
        else:
            try:
                values[question.name] = question.value(proposal if text is None else text)
            except AnswerError as error:
                raise AnswerError("%s: %s" % (question.name, error)) from error
        if values[question.name] != question.value(proposal):
            said.add(question.name)
    return Answers(values, frozenset(said))


def _ask_until_answered(
    question: Question, proposal: str, ask: Callable[[str], str], tell: Callable[[str], None]
) -> Any:
    """Ask until there is an answer, and return what it means. Raises AnswerError: nobody is there."""
    choices = {"choice": ", ".join(question.choices) + " ", "truth": "yes, no "}.get(question.kind, "")
    while True:
        try:
            typed = ask("   %s[%s]: " % (choices, proposal)).strip()
        except EOFError as error:
            raise AnswerError("Nobody answers '%s'; without a terminal give --answers or --defaults." % question.name) \
                from error
        try:
            return question.value(typed or proposal)
        except AnswerError as mistake:
            tell("   %s" % mistake)
