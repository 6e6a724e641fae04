# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Ask a Python interpreter what it is and what it brings."""

from __future__ import annotations

import json
import os
from typing import Any

from .run_command import run

# Runs under the interpreter that is asked, which may be older than anything this collection supports: no syntax and no
# call here is newer than Python 3.4, and an older one gets as far as telling its version. Up to Python 3.10,
# sys._base_executable of a virtual environment is that environment's own, so it is not asked.
PROBE = r"""
import json, os, sys
facts = {"executable": sys.executable, "version": ".".join(str(part) for part in sys.version_info[:3])}
if sys.version_info >= (3, 4):
    import importlib.util, sysconfig
    def has(name):
        try:
            return importlib.util.find_spec(name) is not None
        except (ImportError, AttributeError, ValueError):
            return False
    include = sysconfig.get_path("include")
    minor = "%d.%d" % sys.version_info[:2]
    flags = getattr(sys, "abiflags", "")
    in_venv = sys.prefix != sys.base_prefix
    candidates = [sys.executable]
    if in_venv:
        names = ("python" + minor + flags, "python" + minor, "python3", "python")
        candidates = [os.path.join(sys.base_prefix, "bin", name) for name in names]
    present = [path for path in candidates if os.access(path, os.X_OK)]
    facts.update(
        minor=minor, base_executable=(present or candidates)[0], prefix=sys.prefix, base_prefix=sys.base_prefix,
        in_venv=in_venv, implementation=sys.implementation.name, tag="cp%d%d" % sys.version_info[:2],
        abi_tag="cp%d%d%s" % (sys.version_info[0], sys.version_info[1], flags),
        platform=sysconfig.get_platform().replace("-", "_").replace(".", "_"),
        soabi=sysconfig.get_config_var("SOABI") or "", include_dir=include,
        headers=os.path.isfile(os.path.join(include, "Python.h")),
        venv=has("venv"), ensurepip=has("ensurepip"),
        externally_managed=os.path.isfile(os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")))
print(json.dumps(facts))
"""


def describe(python: str, timeout: float) -> dict[str, Any]:
    """Ask an interpreter, by its path or a name in PATH, for facts about it.

    They are ``command`` (as given) and ``problem`` (empty where it answered), and where it did: ``executable``,
    ``base_executable`` (outside of any virtual environment), ``version`` (3.11.2), ``minor`` (3.11), ``prefix``,
    ``base_prefix``, ``in_venv``, ``implementation``, ``tag`` (cp311), ``abi_tag`` (cp313t for one without the lock),
    ``platform`` (linux_x86_64), ``soabi``, ``include_dir``, ``headers``, ``venv`` and ``ensurepip`` (whether it has
    those modules), ``externally_managed`` (PEP 668). Python before 3.4 tells only ``executable`` and ``version``.
    """
    outcome = run([python, "-E", "-s", "-c", PROBE], timeout)
    facts: dict[str, Any] = {"command": python, "problem": "" if outcome.ok else outcome.complaint}
    if outcome.ok:
        try:
            facts.update(json.loads(outcome.output.strip().splitlines()[-1]))
        except (ValueError, IndexError):
            facts["problem"] = "it did not answer as a Python does"
    return facts


def outside(python: str, timeout: float) -> dict[str, Any]:
    """Describe an interpreter, or its base where it is inside a virtual environment."""
    facts = describe(python, timeout)
    return describe(facts["base_executable"], timeout) if facts.get("in_venv") else facts


def at_least(version: str, minimum: str) -> bool:
    """Tell whether a dotted version is not older than another one."""

    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.split(".") if part.isdigit()]

    return numbers(version) >= numbers(minimum)


def glibc() -> str:
    """Return the version of this machine's glibc; empty for another C library."""
    try:
        name, _space, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):
        return ""
    return version if name == "glibc" else ""
