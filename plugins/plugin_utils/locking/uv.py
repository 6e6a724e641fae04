# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Resolve requirements with uv, from where pip looks on this machine."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from typing import Sequence

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror import pip_config

from .around import Around
from .groups import Group

_UNREACHED = re.compile(r"(?i)failed to (fetch|download)|error sending request|connection|dns|UnknownIssuer|timed out")
_CERTIFICATE = re.compile(r"UnknownIssuer|certificate", re.IGNORECASE)


class UvError(Exception):
    """Why there is no lock, in sentences."""


def program() -> str:
    """Find uv: on PATH, or beside the interpreter. Raises UvError: there is none."""
    found = shutil.which("uv") or shutil.which("uv", path=os.path.dirname(sys.executable))
    if not found:
        raise UvError("Locks are made by uv, which is not on PATH: install it, as with 'pip install uv'.")
    return found


def resolve(uv: str, group: Group, before: str, upgrade: Sequence[str], upgrade_all: bool) -> str:
    """Resolve what a group asks for; pins that were there before stay where they can.

    Args:
        uv: the program.
        group: what is asked for.
        before: its locks as they are.
        upgrade: the packages that need not stay.
        upgrade_all: whether none has to stay.

    Raises UvError: there is no solution, or an index is not reached.
    """
    with tempfile.TemporaryDirectory(prefix="torchstack-lock-") as place:
        asked, out = pathlib.Path(place, "asked.in"), pathlib.Path(place, "lock.txt")
        asked.write_text("".join(root + "\n" for root in group.roots), encoding="utf-8")
        out.write_text(before, encoding="utf-8")
        options = ["--no-deps"] if group.alone else []
        options += ["--no-annotate"] if group.around is None else _fitting(pathlib.Path(place), group.around)
        options += ["--upgrade"] if upgrade_all else [word for name in upgrade for word in ("--upgrade-package", name)]
        options += ["--python-version", "3.%d" % group.pythons[0], "--output-file", str(out)]
        words = [uv, "pip", "compile", "--quiet", "--no-config", "--universal", "--generate-hashes", "--no-header",
                 *options, str(asked)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment())
        if done.returncode:
            raise UvError(_sentence(group, done.stderr))
        return out.read_text(encoding="utf-8")


def _fitting(place: pathlib.Path, rest: Around) -> list[str]:
    """Write what a bundle has to fit to; the options that name it, and that what is not there as a wheel is no choice.

    The comments, which are wanted here, tell what needs a package.
    """
    options = ["--only-binary", ":all:"]
    for option, texts in (("--constraints", rest.constraints), ("--excludes", rest.excluded)):
        path = place / (option.strip("-") + ".txt")
        path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
        options += [option, str(path)]
    return options


def environment() -> dict[str, str]:
    """Return the variables that have uv look where pip looks. Raises UvError: pip's configuration cannot be read."""
    try:
        settings = pip_config.options(os.environ)
    except StackError as error:
        raise UvError("%s %s" % (error.message, error.remedy)) from error
    found = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    for option, name in (("index-url", "UV_DEFAULT_INDEX"), ("extra-index-url", "UV_INDEX"),
                         ("find-links", "UV_FIND_LINKS")):
        if settings.get(option):
            found.setdefault(name, " ".join(settings[option].split()))
    # As pip does, and for the same certificates: behind a proxy the system has that of the proxy.
    found.setdefault("UV_SYSTEM_CERTS", "1")
    if settings.get("cert"):
        found.setdefault("SSL_CERT_FILE", settings["cert"])
    if settings.get("proxy"):
        found.setdefault("ALL_PROXY", settings["proxy"])
    return found


def _sentence(group: Group, said: str) -> str:
    text = said.strip()
    what = " and ".join(group.paths)
    if _UNREACHED.search(text):
        last = text.splitlines()[-1].strip(" |╰─▶") if text else ""
        remedy = (
            "give the certificate of the proxy as 'cert' in pip's configuration" if _CERTIFICATE.search(text)
            else "say where an index is in pip's configuration (index-url), or try again with a network")
        return "The locks %s were not made, as an index is not reached (%s); %s." % (what, last.rstrip("."), remedy)
    return "The locks %s cannot be made; uv says:\n%s" % (what, text)
