# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check data against a schema: every problem as a sentence; fill in its defaults.

The schema is written as Ansible writes the options of a role or module (``type``, ``required``, ``choices``,
``elements``, ``options``, ``default``, ``apply_defaults``, ``aliases``, ``mutually_exclusive``, ``required_together``,
``required_one_of``, ``required_if``), so that one text serves for documentation and for checking. Other than Ansible,
nothing is converted: a version written as ``2.10`` is the number 2.1 by the time anybody could convert it.
"""

from __future__ import annotations

import re
from typing import Any, Iterator, Mapping, NamedTuple

from .near_names import VERY_NEAR, find_nearest
from .redaction import credentials_in
from .schema_sentences import (
    TYPES,
    advise,
    describe_place,
    describe_value,
    describe_wanted,
    join_words,
)

_CLASSES: dict[str, Any] = {
    "str": str, "path": str, "int": int, "float": (int, float), "bool": bool, "list": list, "dict": dict,
}

#: Rules between the keys of one mapping.
RULES = ("mutually_exclusive", "required_one_of", "required_together", "required_if")


class Known(NamedTuple):
    """One key that the schema knows: where it stands (no list positions) and its name."""

    level: str
    name: str


def problems(
    definition: object, schema: dict[str, Any], source: str = "", patterns: dict[str, Any] | None = None
) -> list[str]:
    """Check ``definition`` against ``schema``, and return every departure, a sentence that names the source for each.

    The schema has options by name in Ansible's notation, also with a ``pattern`` (regular expression for the whole
    text) where no linter objects. Else ``patterns`` has it, or a mapping with ``pattern`` and ``says`` (the rule in
    words), by dotted path (``packages[].commit`` for the elements of a list). The order is that of the file, missing
    keys after the keys of their level. ValueError: the schema itself is wrong.
    """
    check_schema(schema, patterns)
    # First and alone: other sentences repeat what is written, and every record of a release is for all to read.
    where = " in %s" % source if source else ""
    exposed = [
        "'%s'%s has %s; everybody may read it there. Keep it in a file of the account, such as ~/.netrc."
        % (path, where, what) for path, what in credentials_in(definition)
    ]
    checker = _Checker(schema, source, patterns or {})
    return exposed or checker.level(definition, {"type": "dict", "options": schema}, "", "")


def resolved(definition: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Copy a definition without problems, with defaults filled in and aliases replaced, keys as the schema orders them.

    A mapping that is absent stays absent, with the defaults of its keys, unless the schema gives it ``apply_defaults``
    or a ``default`` of its own: a component that a release file does not name is not built.
    """
    result: dict[str, Any] = {}
    for name, option in schema.items():
        written = next((key for key in _spellings(name, option) if key in definition), None)
        if written is not None:
            value = definition[written]
        elif "default" in option and option["default"] is not None:
            value = option["default"]
        elif option.get("apply_defaults") and option.get("options"):
            value = {}
        else:
            continue
        result[name] = _resolved_value(value, option)
    known = {key for name, option in schema.items() for key in _spellings(name, option)}
    result.update({key: copy_plain(value) for key, value in definition.items() if key not in known})
    return result


def _resolved_value(value: Any, option: dict[str, Any]) -> Any:
    if option.get("options"):
        if isinstance(value, dict):
            return resolved(value, option["options"])
        if isinstance(value, list):
            return [resolved(item, option["options"]) if isinstance(item, dict) else item for item in value]
    return copy_plain(value)


def copy_plain(value: Any) -> Any:
    """Copy plain data.

    Not ``copy.deepcopy``: Ansible's containers know their templating engine, and it would copy that with each of them.
    """
    if isinstance(value, Mapping):
        return {key: copy_plain(item) for key, item in value.items()}
    return [copy_plain(item) for item in value] if isinstance(value, list) else value


def check_schema(schema: dict[str, Any], patterns: dict[str, Any] | None = None) -> None:
    """Refuse a schema that could not judge anything.

    ValueError: an unknown type, ``options`` on something that is neither a mapping nor a list of mappings, a pattern
    that does not compile or that stands for no key of the schema.
    """
    paths = set()
    for path, option in _walk(schema, ""):
        paths.add(path)
        kind = option.get("type", "str")
        for word in [kind] + ([option["elements"]] if "elements" in option else []):
            if word not in TYPES:
                raise ValueError("The schema gives %r the type %r; known are %s." % (path, word, ", ".join(TYPES)))
        if option.get("options") and kind != "dict" and (kind, option.get("elements")) != ("list", "dict"):
            raise ValueError("The schema gives %r options, but its type is %s." % (path, kind))
        _compile(path, option.get("pattern", ""))
        if kind == "list":
            paths.add(path + "[]")
    for path, rule in (patterns or {}).items():
        if path not in paths:
            raise ValueError("There is a pattern for %r, which the schema does not know." % path)
        _compile(path, rule["pattern"] if isinstance(rule, dict) else rule)


def _compile(path: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError("The schema's pattern for %r is not a regular expression: %s." % (path, error)) from error


def _walk(schema: dict[str, Any], level: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, option in schema.items():
        if not isinstance(option, dict):
            raise ValueError("The schema has no description of %r." % _join(level, name))
        path = _join(level, name)
        yield path, option
        if isinstance(option.get("options"), dict):
            below = path + "[]" if option.get("type") == "list" else path
            yield from _walk(option["options"], below)


def _join(level: str, name: object) -> str:
    return "%s.%s" % (level, name) if level else str(name)


def _spellings(name: str, option: dict[str, Any]) -> list[str]:
    return [name, *option.get("aliases", [])]


def _fits(value: object, kind: str) -> bool:
    if kind in ("int", "float") and isinstance(value, bool):
        return False
    return kind == "raw" or isinstance(value, _CLASSES[kind])


class _Checker:
    """The walk over one definition; ``path`` is what a reader sees, ``level`` the same without list positions."""

    def __init__(self, schema: dict[str, Any], source: str, patterns: dict[str, Any]) -> None:
        self.known = [
            Known(path.rpartition(".")[0], name) for path, option in _walk(schema, "")
            for name in _spellings(path.rpartition(".")[2], option)
        ]
        self.where = " in %s" % source if source else ""
        self.source = source or "The definition"
        self.patterns = patterns

    def value(self, value: object, option: dict[str, Any], path: str, level: str) -> list[str]:
        kind = option.get("type", "str")
        if not _fits(value, kind):
            return [self._wrong_type(value, kind, path)]
        if kind == "list" and isinstance(value, list):
            kept = {key: option[key] for key in ("options", "choices", "pattern", "example", *RULES) if key in option}
            element = {"type": option.get("elements", "raw"), **kept}
            found: list[str] = []
            for number, item in enumerate(value):
                found += self.value(item, element, "%s[%d]" % (path, number), level + "[]")
            return found
        if kind == "dict" and option.get("options"):
            return self.level(value, option, path, level)
        return self._choice(value, option, path) or self._pattern(value, option, path, level)

    def level(self, value: object, option: dict[str, Any], path: str, level: str) -> list[str]:
        schema = option["options"]
        if not isinstance(value, dict):
            return [self._wrong_type(value, "dict", path)]
        names = {spelling: name for name, entry in schema.items() for spelling in _spellings(name, entry)}
        found: list[str] = []
        written: dict[str, str] = {}
        for key, item in value.items():
            if key not in names:
                found.append(self._unknown(key, list(names), path, level))
                continue
            name = names[key]
            if name in written:
                found.append("'%s' and '%s'%s mean the same; keep one." % (
                    _join(path, written[name]), _join(path, key), self.where))
            written[name] = str(key)
            found += self.value(item, schema[name], _join(path, key), _join(level, name))
        for name, entry in schema.items():
            if entry.get("required") and name not in written:
                found.append("'%s' is missing%s; add it%s." % (_join(path, name), self.where, describe_wanted(entry)))
        return found + self._relations(option, value, written, path)

    def _unknown(self, key: object, names: list[str], path: str, level: str) -> str:
        sentence = "Unknown key '%s'%s" % (_join(path, key), self.where)
        word = str(key)
        near, likeness = find_nearest(word, names)
        if likeness >= VERY_NEAR:
            return "%s; did you mean '%s'?" % (sentence, near)
        elsewhere = [known.level for known in self.known if known.name == word and known.level != level]
        if elsewhere:
            homes = [describe_place(home) for home in dict.fromkeys(elsewhere)]
            return "%s; '%s' belongs %s." % (sentence, word, join_words(homes[:4], "or"))
        far, far_likeness = find_nearest(word, [known.name for known in self.known])
        if far and far_likeness >= VERY_NEAR:
            home = next(known.level for known in self.known if known.name == far)
            return "%s; did you mean '%s' %s?" % (sentence, far, describe_place(home))
        if near:
            return "%s; did you mean '%s'?" % (sentence, near)
        return "%s; known here: %s." % (sentence, ", ".join(names))

    def _wrong_type(self, value: object, kind: str, path: str) -> str:
        subject = "'%s'%s" % (path, self.where) if path else self.source
        found = "; ".join(filter(None, (describe_value(value), advise(value, kind))))
        return "%s must be %s, but it is %s." % (subject, TYPES[kind], found)

    def _choice(self, value: object, option: dict[str, Any], path: str) -> list[str]:
        choices = option.get("choices")
        if not choices or value in choices:
            return []
        known = [str(choice) for choice in choices]
        near, _likeness = find_nearest(str(value), known)
        hint = "; did you mean '%s'?" % near if near else "."
        return ["'%s'%s is '%s', which is none of %s%s" % (path, self.where, value, ", ".join(known), hint)]

    def _pattern(self, value: object, option: dict[str, Any], path: str, level: str) -> list[str]:
        rule = self.patterns.get(level, option.get("pattern"))
        pattern = rule["pattern"] if isinstance(rule, dict) else rule
        if not pattern or not isinstance(value, str) or re.fullmatch(pattern, value):
            return []
        says = rule.get("says", "") if isinstance(rule, dict) else ""
        example = option.get("example")
        return ["'%s'%s is %s; it must %s%s." % (
            path, self.where, describe_value(value), "be " + says if says else "match %s" % pattern,
            ", for example '%s'" % example if example else "")]

    def _relations(
        self, option: dict[str, Any], value: dict[str, Any], written: dict[str, str], path: str
    ) -> list[str]:
        here = "under '%s'%s" % (path, self.where) if path else (self.where.strip() or "at the top level")
        found = []
        for group in option.get("mutually_exclusive", []):
            both = ["'%s'" % name for name in group if name in written]
            if len(both) > 1:
                found.append("Only one of %s can be given %s; remove the others." % (join_words(both, "and"), here))
        for group in option.get("required_one_of", []):
            if not any(name in written for name in group):
                found.append("One of %s is needed %s." % (join_words(["'%s'" % name for name in group], "or"), here))
        for group in option.get("required_together", []):
            missing = ["'%s'" % name for name in group if name not in written]
            if missing and len(missing) < len(group):
                found.append("%s must be given together %s; add %s." % (
                    join_words(["'%s'" % name for name in group], "and"), here, join_words(missing, "and")))
        for rule in option.get("required_if", []):
            name, wanted, needed, any_of = [*rule, False][:4]
            if name not in written or value[written[name]] != wanted:
                continue
            missing = ["'%s'" % item for item in needed if item not in written]
            if missing and (not any_of or len(missing) == len(needed)):
                found.append("With '%s' %s, %s %s needed %s." % (
                    _join(path, name), describe_value(wanted), join_words(missing, "or" if any_of else "and"),
                    "is" if any_of or len(missing) == 1 else "are", here))
        return found
