# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How this account's pip is set up, so that pip on the login node reaches the same packages.

Read as pip's user guide describes it (Configuration: location, precedence, environment variables), for an account whose
interpreter may have no pip.
"""

from __future__ import annotations

import configparser
import os
import pathlib
import urllib.parse
from collections.abc import Mapping
from typing import NamedTuple

SECTIONS = ("global", "install", "download", "wheel")
ABOUT_THIS_ACCOUNT = ("config-file", "user", "target", "prefix", "cache-dir", "require-virtualenv", "log", "python")
"""Settings that speak of this account's directories and not of where packages come from."""


class PipSettings(NamedTuple):
    """A configuration file of pip, and the paths of this machine that it names."""

    configuration: str
    mounts: tuple[str, ...]


def of_this_account() -> PipSettings:
    """What pip would go by here."""
    return settings_of(configuration_files(os.environ, pathlib.Path.home()), os.environ)


def configuration_files(environment: Mapping[str, str], home: pathlib.Path) -> list[pathlib.Path]:
    """The files that pip reads, what wins last."""
    named = environment.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return []
    user = pathlib.Path(environment.get("XDG_CONFIG_HOME", "") or home / ".config")
    files = [pathlib.Path("/etc/xdg/pip/pip.conf"), pathlib.Path("/etc/pip.conf"), home / ".pip" / "pip.conf"]
    return [*files, user / "pip" / "pip.conf", *([pathlib.Path(named)] if named else [])]


def settings_of(files: list[pathlib.Path], environment: Mapping[str, str]) -> PipSettings:
    """Settings from configuration files and variables; variables win."""
    values: dict[str, str] = {}
    for path in files:
        parser = configparser.RawConfigParser()
        parser.read(path)
        for section in SECTIONS:
            if parser.has_section(section):
                values.update(parser.items(section))
    for name, value in environment.items():
        if name.startswith("PIP_") and value:
            values[name[len("PIP_") :].lower().replace("_", "-")] = value
    kept = {key.replace("_", "-"): " ".join(value.split()) for key, value in values.items()}
    for key in ABOUT_THIS_ACCOUNT:
        kept.pop(key, None)
    text = "".join("%s = %s\n" % item for item in sorted(kept.items()))
    found = {path for value in kept.values() for path in map(_path, value.split()) if path and os.path.exists(path)}
    return PipSettings("[global]\n" + text, tuple(sorted(found)))


def _path(word: str) -> str:
    """The path that a word of a setting names; empty where it names none.

    The pages of an index refer to files beside them (``../../packages``), so an index counts with what it lies in.
    """
    if word.startswith("file://"):
        index = os.path.normpath(urllib.parse.unquote(urllib.parse.urlsplit(word).path))
        return index if os.path.dirname(index) == "/" else os.path.dirname(index)
    return os.path.normpath(word) if word.startswith("/") else ""
