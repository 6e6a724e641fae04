# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Fill in the templates of a site's variables, and say which cannot be; on the control node."""

from __future__ import annotations

import re
from typing import Any, Iterable, Mapping, cast

from ansible.errors import AnsibleError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.near_names import nearest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.schema import copy_plain
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import (
    lint_variables,
    site_data,
    variable_names,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.lint import NOT_FILLED

NAMED_OTHERWISE = {"release": "release_name", "file": "release_file", "account": "torchstack_account"}
"""Where a key of the site's data is not the variable ``release_<key>``."""

NO_ACCOUNT = "-"
"""What the account is where a site has none."""

_EMPTY: Mapping[str, Any] = {"dict": {}, "list": [], "raw": {}}
_UNDEFINED = re.compile(r"'(\w+)' is undefined")


class FilledVariables:
    """The variables of a host as roles get them.

    Attributes:
        problems: a sentence for each template that cannot be filled in.
    """

    def __init__(self, templar: Any, variables: Mapping[str, Any], specified: Mapping[str, Any]) -> None:
        self._templar, self._variables = templar, variables
        self._options = {
            name: option for entry in ("main", "site", *variable_names.SITE_DATA)
            for name, option in specified[entry]["options"].items()}
        self._found: dict[str, Any] = {}
        self.problems: list[str] = []

    def given(self, given: Iterable[str], roles: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Fill in the variables that a site gives and some role declares; others are not touched."""
        known = variable_names.declared(roles.values())
        values = {name: self._value(name) for name in given if name in known}
        return {name: value for name, value in values.items() if value is not _LACKING}

    def site(self, assume: bool = False) -> site_data.Site:
        """Compose the site's data; what cannot be filled in is empty.

        Args:
            assume: whether channels that the environment would name are taken to be there.
        """
        found: dict[str, Any] = {}
        for key in site_data.Site.__annotations__:
            name = NAMED_OTHERWISE.get(key, "release_" + key)
            value = self._value(name) if name in self._variables or name != NAMED_OTHERWISE["account"] else NO_ACCOUNT
            option = self._options.get(name) or {}
            empty = "" if key == "images" else _EMPTY.get(option.get("type", "str"), "")
            found[key] = copy_plain(empty) if value is _LACKING else value
        for key in ("root", "release", "site"):
            found[key] = str(found[key])
        if assume and not found["conda_channels"] and "env" in repr(self._variables.get("release_conda_channels")):
            found["conda_channels"] = ["the environment's"]
        found["file"] = found["file"].rpartition("/")[2]
        return cast(site_data.Site, found)

    def text(self, name: str) -> str:
        """Fill in one variable; empty where it cannot be."""
        value = self._value(name)
        return "" if value is _LACKING else str(value)

    def _value(self, name: str) -> Any:
        if name not in self._variables:
            return _LACKING
        raw = self._variables[name]
        own = lint_variables.SITES_OWN.match(raw) if isinstance(raw, str) else None
        if own and own.group(1) in self._variables:
            return self._value(own.group(1))
        if name not in self._found:
            self._found[name] = self._filled(raw, name)
        return self._found[name]

    def _filled(self, raw: Any, path: str) -> Any:
        try:
            return copy_plain(self._templar.template(raw))
        except AnsibleError as error:
            before = len(self.problems)
            if isinstance(raw, Mapping):
                found: Any = {key: self._filled(value, "%s.%s" % (path, key)) for key, value in raw.items()}
            elif isinstance(raw, list):
                found = [self._filled(value, "%s[%d]" % (path, number)) for number, value in enumerate(raw)]
            else:
                found = NOT_FILLED
            if before == len(self.problems):
                self._tell(path, " ".join(str(error).split()))
            return found

    def _tell(self, path: str, error: str) -> None:
        """Keep why a template cannot be filled in; a variable that is missing is told once."""
        undefined = _UNDEFINED.search(error)
        name = undefined.group(1) if undefined else ""
        option = self._options.get(name) or {}
        if option.get("required"):
            sentence = "'%s' is missing; add it (%s)." % (name, str(option["description"]).rstrip("."))
        elif name:
            near = nearest(name, map(str, self._variables))
            sentence = "'%s' uses %s, which nobody defines%s" % (
                path, name, "; did you mean %s?" % near if near else ".")
        else:
            sentence = "'%s' cannot be filled in: %s" % (path, error)
        if sentence not in self.problems:
            self.problems.append(sentence)


_LACKING = object()
