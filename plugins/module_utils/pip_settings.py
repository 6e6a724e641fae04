# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Where pip looks for packages on this machine: its configuration files and variables, read as pip reads them.

The places and their order are those of pip's documentation ("Configuration"): the machine's files, the account's, the
environment's, the one that PIP_CONFIG_FILE names, then the variables.
"""

from __future__ import annotations

import configparser
import os
import sys
from typing import Mapping, NamedTuple

from ansible_collections.hpcml.torchstack.plugins.module_utils.errors import StackError

DEFAULT_INDEX = "https://pypi.org/simple"
SECTIONS = ("global", "install", "download")
_YES = ("1", "true", "yes", "on", "y", "t")


class Settings(NamedTuple):
    """Where to look, and how."""

    indexes: tuple[str, ...]
    find_links: tuple[str, ...]
    certificates: str
    proxy: str


def files(variables: Mapping[str, str], prefix: str) -> list[str]:
    """The configuration files that count, the least first; not all of them need to be there."""
    named = variables.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return []
    home = variables.get("HOME") or os.path.expanduser("~")
    machine = (variables.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    own = variables.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    return [
        *(os.path.join(directory, "pip", "pip.conf") for directory in machine if directory), "/etc/pip.conf",
        os.path.join(home, ".pip", "pip.conf"), os.path.join(own, "pip", "pip.conf"),
        os.path.join(prefix, "pip.conf"), *([named] if named else []),
    ]


def read(variables: Mapping[str, str], prefix: str = sys.prefix) -> Settings:
    """What pip would do here.

    Args:
        variables: of the environment.
        prefix: of the interpreter whose pip it would be.

    Raises:
        StackError: a configuration file cannot be read.
    """
    found = {}  # type: dict[str, str]
    for path in files(variables, prefix):
        parser = configparser.RawConfigParser()
        try:
            with open(path, encoding="utf-8") as stream:
                parser.read_file(stream)
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError, configparser.Error) as error:
            raise StackError(
                "pip's configuration %s cannot be read: %s." % (path, str(error).splitlines()[0].rstrip(".")),
                "read the configuration of pip", "Correct it.", path,
            ) from error
        for section in SECTIONS:
            if parser.has_section(section):
                found.update((_option(key), value) for key, value in parser.items(section))
    for name, value in variables.items():
        if name.startswith("PIP_") and value:
            found[_option(name[len("PIP_"):])] = value
    if found.get("no-index", "").strip().lower() in _YES:
        indexes = []  # type: list[str]
    else:
        indexes = [*(found.get("index-url", "").split() or [DEFAULT_INDEX]), *found.get("extra-index-url", "").split()]
    certificates = found.get("cert", "").strip() or variables.get("REQUESTS_CA_BUNDLE", "")
    return Settings(
        tuple(indexes), tuple(found.get("find-links", "").split()), certificates,
        found.get("proxy", "").strip(),
    )


def _option(name: str) -> str:
    return name.strip().lower().replace("_", "-").lstrip("-")
