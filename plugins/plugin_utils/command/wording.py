# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Name in messages the words of the command, for somebody who types those, where they name playbooks. Pure."""

from __future__ import annotations

import re
from typing import Sequence

from .verbs import PLAYBOOKS, Verb

_VALUE = r"(?:\.\.\.|[^\s,;)]*[^\s,;).])"
_GIVEN = r"-e \w+=%s" % _VALUE
_NAMED = re.compile(r"playbooks/(?P<name>\w+)\.yml(?P<given>(?: %s)*)" % _GIVEN)
_FURTHER = re.compile(_GIVEN)
_VARIABLE = re.compile(r"(\w+)=(%s)" % _VALUE)
RELEASE = "torchstack_release"


def as_typed(line: str, site: str = "") -> str:
    """Put ``torchstack publish 2026-11-20 --to default`` for ``playbooks/publish.yml -e torchstack_release=...`` alike.

    What has no word stays as it is. A ``site`` is named where the word would take another one.
    """
    names = [found.group("name") for found in _NAMED.finditer(line)]
    said = _NAMED.sub(lambda found: _command(
        found.group("name"), found.group("given"), found.group(), site), line)
    if said == line:
        return line
    return _FURTHER.sub(lambda found: _further(names[0], found.group()), said)


def _command(playbook: str, given: str, otherwise: str, site: str) -> str:
    """Write the word for a playbook and what is given to it; ``otherwise`` where there is none, or more than one."""
    pairs = _VARIABLE.findall(given)
    found = [["torchstack", word, *([site] if site else []), *parts] for word, verb in PLAYBOOKS.items()
             if (verb.playbook or word) == playbook for parts in [_parts(verb, pairs)] if all(parts)]
    return " ".join(found[0]) if len(found) == 1 else otherwise


def _further(playbook: str, given: str) -> str:
    """Write what is given to a playbook further on in a sentence."""
    (pair,) = _VARIABLE.findall(given)
    found = [_option(verb, *pair) for verb in PLAYBOOKS.values() if verb.playbook == playbook]
    return next(filter(None, found), given)


def _parts(verb: Verb, pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Write variables as a word takes them; an empty text for one that it does not take."""
    return [value if name == RELEASE else _option(verb, name, value) for name, value in pairs
            if verb.variables.get(name) != value]


def _option(verb: Verb, name: str, value: str) -> str:
    for option in verb.options:
        if option.variable == name and option.value is None:
            return "%s %s" % (option.name, value)
        if option.variable == name and str(option.value).lower() == value:
            return option.name
    return ""
