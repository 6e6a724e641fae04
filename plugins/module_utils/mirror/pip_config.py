# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read where pip looks for packages on this machine: its configuration files and variables.

The places and their order are those of pip's documentation ("Configuration"): the machine's files, the account's, the
environment's, the one that PIP_CONFIG_FILE names, then the variables.
"""

from __future__ import annotations

import configparser
import os
import re
import sys
import tempfile
from typing import Mapping, NamedTuple

from ..core.canonical import digest_of
from ..core.errors import StackError
from ..core.redaction import without_credentials
from ..core.run_command import Outcome, run

HELP_SECONDS = 60.0
PLACES = ("index-url", "extra-index-url", "find-links", "no-index")
"""Options that say where packages come from."""

SECTIONS = ("global", "install", "download")
STEP = "read the configuration of pip"
NO_PIP = "No module named pip"
_DEFAULT = re.compile(r"--index-url\b.*?\(default (\S+?)\)", re.DOTALL)
_YES = ("1", "true", "yes", "on", "y", "t")


class Settings(NamedTuple):
    """Where to look, and how."""

    indexes: tuple[str, ...]
    find_links: tuple[str, ...]
    certificates: str
    proxy: str


def files(variables: Mapping[str, str], prefix: str) -> list[str]:
    """Return the configuration files that count, the least first; not all of them need to be there."""
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


def default_index(python: str) -> str:
    """Return the index that pip takes where none is configured. Raises StackError: its own help does not say it."""
    said = _help_of_pip(python)
    if NO_PIP in said.complaint:
        # Debian's interpreters bring theirs for virtual environments only.
        with tempfile.TemporaryDirectory() as directory:
            made = run([python, "-m", "venv", directory], HELP_SECONDS)
            said = _help_of_pip(os.path.join(directory, "bin", "python")) if made.ok else made
    found = _DEFAULT.search(said.output)
    if found is None:
        raise StackError(
            "No index is configured, and the pip of %s does not say which it would take: %s."
            % (python, said.complaint.rstrip(".")),
            STEP, "Set index-url in pip's configuration, or PIP_INDEX_URL.")
    return found.group(1)


def _help_of_pip(python: str) -> Outcome:
    wide = dict(os.environ, COLUMNS="1000")  # the help is broken into lines of the terminal's width
    return run([python, "-m", "pip", "help", "download"], HELP_SECONDS, environment=wide)


def options(variables: Mapping[str, str], prefix: str = sys.prefix) -> dict[str, str]:
    """Tell what is configured for pip here, by the names of its options. Raises StackError: a file cannot be read."""
    found: dict[str, str] = {}
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
                STEP, "Correct it.", path) from error
        for section in SECTIONS:
            if parser.has_section(section):
                found.update((_option(key), value) for key, value in parser.items(section))
    for name, value in variables.items():
        if name.startswith("PIP_") and value:
            found[_option(name[len("PIP_"):])] = value
    return found


def places_digest(variables: Mapping[str, str]) -> str:
    """Return the digest of where pip looks, without credentials: a new token leads to the same packages."""
    found = options(variables)
    places = {key: [without_credentials(word) for word in found.get(key, "").split()] for key in PLACES}
    return digest_of(places)


def read(variables: Mapping[str, str], prefix: str = sys.prefix, python: str = sys.executable) -> Settings:
    """Tell what the pip of ``python``, with its ``prefix``, would do here.

    Raises StackError: a configuration file cannot be read, or nothing says which index to take.
    """
    found = options(variables, prefix)
    if found.get("no-index", "").strip().lower() in _YES:
        indexes: list[str] = []
    else:
        first = found.get("index-url", "").split() or [default_index(python)]
        indexes = [*first, *found.get("extra-index-url", "").split()]
    certificates = found.get("cert", "").strip() or variables.get("REQUESTS_CA_BUNDLE", "")
    return Settings(
        tuple(indexes), tuple(found.get("find-links", "").split()), certificates, found.get("proxy", "").strip())


def _option(name: str) -> str:
    return name.strip().lower().replace("_", "-").lstrip("-")
