# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check the variables that a site gives against what the roles say of them. Pure."""

from __future__ import annotations

import re
from typing import Any, Mapping

from ..core import schema
from ..core.near_names import nearest
from ..core.redaction import credentials_in
from .variable_names import NOT_VARIABLES

Option = Mapping[str, Any]

ELSEWHERE = ("site_data", "site_acceptance", "site_partitions")
"""Entry points whose options :mod:`.site_data` checks."""

PROXIES = ("torchstack_proxy", "release_proxy")
PROXY_VARIABLES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
CERTIFICATES = frozenset((
    "SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO",
    "GIT_SSL_CAPATH", "CARGO_HTTP_CAINFO", "NODE_EXTRA_CA_CERTS"))
"""What names the certificates of a proxy that looks into connections."""

COMMANDS = {"modulefile_lmod_command": "environment-modules", "modulefile_modulecmd_command": "lmod"}
"""Paths of a module command, and what a site says that has the other module system."""

SITES_OWN = re.compile(r"\{\{ (torchstack_\w+)(?: \| default\((?:[^()]|\(\))*\))? \}\}\Z")
"""The default of a role's variable that is one of the site."""

_TRUTHS = frozenset(("yes", "no", "true", "false", "on", "off", "y", "n", "t", "f", "1", "0"))
_RULES = ("type", "elements", "options", "choices", *schema.RULES)


def options_of(specifications: Mapping[str, Mapping[str, Any]]) -> dict[str, Option]:
    """Return what is known of each variable.

    Of one of the site itself, such as ``torchstack_toolkits``, that is what the role says whose variable has its value.

    Args:
        specifications: by role, what its argument_specs.yml has under ``argument_specs``.
    """
    found: dict[str, Option] = {}
    for entries in specifications.values():
        for entry, described in entries.items():
            if entry not in (*NOT_VARIABLES, *ELSEWHERE):
                for name, option in (described.get("options") or {}).items():
                    found.setdefault(name, option)
    for option in list(found.values()):
        own = SITES_OWN.match(str(option.get("default")))
        if own and own.group(1) in found and option.get("options") and not found[own.group(1)].get("options"):
            found[own.group(1)] = option
    checked = {name for entry in ELSEWHERE for entries in specifications.values()
               for name in (entries.get(entry) or {}).get("options") or {}}
    return {
        name: {key: option[key] for key in _RULES if key in option} for name, option in found.items()
        if name not in checked
    }


def problems(given: Mapping[str, Any], options: Mapping[str, Option], source: str) -> list[str]:
    """Find what has another type than its role says, lacks or contradicts something, as one sentence each.

    Args:
        given: variables with their values.
        options: see :func:`options_of`.
        source: where they stand, for the sentences.
    """
    found = []
    for name, value in given.items():
        # Run-time settings have rules of their own; and of what has a password in it nothing is repeated.
        if name in options and not name.endswith("_runtime_settings") and not any(credentials_in({name: value})):
            option = options[name]
            found += schema.problems({name: converted(value, option)}, {name: dict(option)}, source)
    return found


def converted(value: Any, option: Option) -> Any:
    """Return a value as Ansible converts it for a module, where it does, as what is typed is text; else as it is.

    What is inside of mappings reaches the modules as it is written.
    """
    kind = option.get("type", "str")
    if kind in ("str", "path") and isinstance(value, (bool, int, float)):
        return str(value)
    if kind == "bool" and (str(value).lower() in _TRUTHS):
        return True
    if kind in ("int", "float") and isinstance(value, str):
        return _number(value, kind)
    if kind == "list" and isinstance(value, (str, int)) and not isinstance(value, bool):
        value = [part.strip() for part in str(value).split(",")]
    if kind == "list" and isinstance(value, (list, tuple)) and option.get("elements") != "dict":
        return [converted(item, {"type": option.get("elements", "raw")}) for item in value]
    return value


def _number(text: str, kind: str) -> Any:
    try:
        return int(text) if kind == "int" else float(text)
    except ValueError:
        return text


def proxy_problems(given: Mapping[str, Any]) -> list[str]:
    """Find variables of a proxy that no program reads, as one sentence each."""
    found = []
    for name in PROXIES:
        variables = given.get(name)
        for key, value in variables.items() if isinstance(variables, Mapping) else ():
            near = nearest(str(key), PROXY_VARIABLES, 0.5)
            if key not in CERTIFICATES and not re.fullmatch(r"\w*_proxy\w*", str(key), re.IGNORECASE):
                meant = "did you mean '%s'?" % near if near else "known are %s." % ", ".join(PROXY_VARIABLES)
                found.append("'%s.%s': no program takes that for a proxy; %s" % (name, key, meant))
            elif not isinstance(value, str):
                found.append("'%s.%s' is no text; put it in quotes." % (name, key))
    return found


def command_problems(given: Mapping[str, Any]) -> list[str]:
    """Find module commands that are none, by which sites once said which module system they have, as sentences."""
    return [
        "'%s' is none, which is no path; say torchstack_module_system: %s." % (name, system)
        for name, system in COMMANDS.items() if given.get(name) == "none"]
