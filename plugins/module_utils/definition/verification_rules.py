# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Replace the words in braces in the rules of a verification, and find words that stand for nothing. Pure."""

from __future__ import annotations

import re
from typing import Any, Iterator, Mapping

from ..core.errors import StackError
from ..core.near_names import nearest
from ..verify import import_rules, library_rules
from . import components, left_over

WORD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.]*)\}")

AS_WRITTEN = frozenset(["pattern", "value", "reason"])
"""Keys whose text means itself: a regular expression, a Python expression, and words for people."""

PARTS: dict[str, components.Keys] = {
    "cuda": ("cuda", "prefix"), "nccl": ("nccl",), "libfabric": ("nccl", "plugin", "libfabric"),
}
"""Words that stand for a place only where a release has these keys."""


def filled(rules: Any, words: Mapping[str, Any], definition: Mapping[str, Any]) -> Any:
    """Return the rules with every ``{word}`` replaced.

    Args:
        rules: plain data, as in a release file.
        words: what stands for what.
        definition: the resolved release file; ``{horovod.version}`` is what it says there. A word that stands for a
            list of texts, as ``{cuda.libraries}`` does, makes one rule for each of them.

    Raises:
        ValueError: nobody knows a word.
    """

    def known(word: str) -> Any:
        value = words.get(word)
        return components.value_at(definition, tuple(word.split("."))) if value in (None, "") else value

    def each(rule: Any) -> list[Any]:
        texts = {key: text for key, text in rule.items() if key not in AS_WRITTEN and isinstance(text, str)}
        for word in {word: None for text in texts.values() for word in WORD.findall(text)}:
            value = known(word)
            if isinstance(value, (list, tuple)):
                return [
                    {key: text.replace("{%s}" % word, str(one)) if key in texts else text for key, text in rule.items()}
                    for one in value
                ]
        return [rule]

    def meaning(match: re.Match[str]) -> str:
        value = known(match.group(1))
        if not isinstance(value, (str, int)):
            raise ValueError("nobody knows what %s stands for in %r. %s" % (
                match.group(0), match.string, advice(match.group(1), words)))
        return str(value)

    def replaced(value: Any) -> Any:
        if isinstance(value, str):
            return WORD.sub(meaning, value)
        if isinstance(value, Mapping):
            return {key: inner if key in AS_WRITTEN else replaced(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [
                replaced(rule) for inner in value for rule in (each(inner) if isinstance(inner, Mapping) else [inner])
            ]
        return value

    return replaced(rules)


def problems(definition: object, source: str = "") -> list[str]:
    """Find words in braces that stand for nothing, as one sentence each; see :mod:`.left_over` for absent components.

    Args:
        definition: a resolved release file.
        source: the file that the sentences name.
    """
    rules = definition.get("verification") if isinstance(definition, Mapping) else None
    if not isinstance(definition, Mapping) or not isinstance(rules, Mapping):
        return []
    known = {*left_over.ALWAYS, *PARTS}
    return [
        "'%s'%s has {%s}, and nobody knows what it stands for. %s" % (
            path, " in %s" % source if source else "", word, advice(word, known))
        for path, text in _texts(rules, "verification") for word in dict.fromkeys(WORD.findall(text))
        if not _means_something(word, definition)
    ]


def form_problems(definition: object, source: str = "") -> list[str]:
    """Find rules that the verification would refuse, as one sentence each: the first of each kind.

    Args:
        definition: a resolved release file in which :func:`problems` found nothing.
        source: the file that the sentences name.
    """
    if not isinstance(definition, Mapping):
        return []
    words = {word: "/" + word for word in (*left_over.ALWAYS, *PARTS)}
    found = []
    for kind, parse in (("libraries", library_rules.parse_rules), ("imports", _parse_imports)):
        rules = components.value_at(definition, ("verification", kind))
        try:
            parse(filled(rules if isinstance(rules, Mapping) else {}, words, _expanded(definition)))
        except (StackError, ValueError) as error:
            said = [error.message, error.remedy] if isinstance(error, StackError) else [str(error)]
            found.append("'verification.%s'%s: %s" % (kind, " in %s" % source if source else "", " ".join(said)))
    return found


def _parse_imports(rules: Mapping[str, Any]) -> None:
    import_rules.parse_rules(dict(rules, modules=rules.get("modules") or ["torch"]))


def _expanded(value: Any) -> Any:
    """Replace ``${NAME}``, which modules set, by a path."""
    if isinstance(value, Mapping):
        return {key: _expanded(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_expanded(inner) for inner in value]
    return re.sub(r"\$\{\w+\}", "/variable", value) if isinstance(value, str) else value


def _means_something(word: str, definition: Mapping[str, Any]) -> bool:
    absent = left_over.parts() - set(definition)
    keys = PARTS.get(word, tuple(word.split(".")))
    if word in left_over.ALWAYS or keys[0] in absent:
        return True
    value = components.value_at(definition, keys)
    return value is not None if word in PARTS else isinstance(value, (str, int, list, tuple))


def advice(word: str, words: Any) -> str:
    """Say which words are known beside one that nobody knows, and which of them was probably meant."""
    near = nearest(word, words)
    return "%sKnown are %s, and texts of the release file by their keys, such as {pytorch.version}." % (
        "Did you mean {%s}? " % near if near else "", ", ".join("{%s}" % known for known in sorted(words)))


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield each text in which words are replaced, with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if key not in AS_WRITTEN:
                yield from _texts(inner, "%s.%s" % (path, key))
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from _texts(inner, "%s[%d]" % (path, number))
