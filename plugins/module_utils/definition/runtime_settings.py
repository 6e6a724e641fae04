# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check and merge a site's settings that programs read from the environment. Pure.

A setting is a name, a value and the reason. One list serves the scripts that conda runs when it activates a prefix, and
the modulefile. A value is literal text in both; line breaks only the scripts can hold.
"""

from __future__ import annotations

import re
from typing import Iterable, Mapping, Sequence

from ..modulefiles.description_checks import COMPILER_FLAGS, IDENTITY, SEARCH_PATHS
from ..modulefiles.module_system import is_bookkeeping

KEYS = ("name", "value", "reason")
PREFIXES = ("CONDA_", "_CE_", "TORCHSTACK_KEPT_")
"""Starts of names that belong to conda's activation and to ours."""

OF_THE_SHELL = frozenset(("BASH_ENV", "CDPATH", "ENV", "IFS", "OPTIND", "POSIXLY_CORRECT", "PS1", "PS4", "SHELLOPTS"))
"""Variables by which a shell changes what it does."""

_UNFIT = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def problems(settings: object) -> list[str]:
    """Find what is wrong with a list of settings, one sentence each."""
    if isinstance(settings, str) or not isinstance(settings, Sequence):
        return ["The run-time settings are not a list."]
    found = []
    names = []
    for index, setting in enumerate(settings):
        if not isinstance(setting, Mapping):
            found.append("Run-time setting %d is not a mapping with %s." % (index + 1, ", ".join(KEYS)))
            continue
        names.append(setting.get("name"))
        found.extend(_faults(setting, "Run-time setting %s" % (setting.get("name") or index + 1)))
    twice = sorted({str(name) for name in names if name is not None and names.count(name) > 1})
    return found + ["Run-time setting %s is there twice." % name for name in twice]


def _faults(setting: Mapping, what: str) -> Iterable[str]:
    for key in KEYS:
        if key not in setting:
            yield "%s has no %s." % (what, key)
        elif not isinstance(setting[key], str):
            yield "The %s of %s is no text; put it in quotes." % (key, _lower(what))
        elif "\0" in setting[key]:
            yield "The %s of %s holds a NUL character, which no environment can." % (key, _lower(what))
    for key in sorted(str(key) for key in setting if key not in KEYS):
        yield "%s has the unknown key %s." % (what, key)
    if isinstance(setting.get("reason"), str) and not setting["reason"].strip():
        yield "%s has an empty reason; say why the site needs it." % what
    name = setting.get("name")
    if not isinstance(name, str):
        return
    if not _NAME.match(name):
        yield "%r is not the name of a variable." % name
    elif name in COMPILER_FLAGS:
        yield "%s would leak into every build of a user; set it in the step that needs it." % what
    elif name in SEARCH_PATHS:
        yield "%s would throw away what the user and other modules put there." % what
    elif name in IDENTITY or name in OF_THE_SHELL or name.startswith(PREFIXES) or is_bookkeeping(name):
        yield "%s belongs to the user, the shell, conda or the module system." % what


def _lower(what: str) -> str:
    return what[0].lower() + what[1:]


def modulefile_problems(settings: Iterable[Mapping[str, str]]) -> list[str]:
    """Find why settings that are right in themselves cannot be a modulefile's, before anything is built."""
    return [
        "The value of run-time setting %s holds a line break or another control character, which no modulefile can "
        "hand to every shell." % setting["name"] for setting in settings if _UNFIT.search(setting["value"])
    ] + [
        "The reason of run-time setting %s holds a control character, which would end the comment in a modulefile." % (
            setting["name"]) for setting in settings if _UNFIT.search(setting["reason"].replace("\n", ""))]


def setenv(settings: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the settings as ``setenv`` of a modulefile, where ``${`` alone is special."""
    return {setting["name"]: setting["value"].replace("${", "$${") for setting in settings}


def merge(settings: Sequence[Mapping[str, str]], runtime: Mapping) -> list[dict[str, str]]:
    """Merge the site's settings with a release's ``runtime`` (``without``, ``settings``), whose own win."""
    without = set(runtime.get("without") or [])
    own = {setting["name"]: dict(setting) for setting in runtime.get("settings") or []}
    kept = [own.pop(setting["name"], dict(setting)) for setting in settings if setting["name"] not in without]
    return kept + list(own.values())


def release_problems(settings: Sequence[Mapping[str, str]], runtime: Mapping) -> list[str]:
    """Find what is wrong with ``runtime`` of a release file over the site's settings."""
    own = runtime.get("settings") or []
    found = problems(own)
    if found:
        return found
    known = {setting["name"] for setting in settings}
    for name in runtime.get("without") or []:
        if name in {setting["name"] for setting in own}:
            found.append("runtime has %s both under without and under settings; keep one of them." % name)
        elif name not in known:
            found.append("runtime.without has %s, which the site does not set; remove it." % name)
    return found + modulefile_problems(merge(settings, runtime))
