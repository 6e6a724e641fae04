# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Gather facts about the machine that a release is rolled out on, side by side."""

from __future__ import annotations

import concurrent.futures
import importlib.util
import os
import re
import shutil
import sys
from typing import Any, Mapping

from ..core import interpreter
from ..core.account import account_name
from ..core.digests import text_of
from ..core.errors import StackError
from ..core.redaction import without_credentials
from ..core.run_command import Outcome, run
from ..modulefiles.module_system import find_system, version
from . import compilers, mpi, root_facts


def identity(expect: Mapping[str, Any]) -> dict[str, Any]:
    """Tell the host's name, and which of the ``paths`` that the site has are missing."""
    missing = [path for path in expect.get("paths") or [] if not os.path.exists(path)]
    return {"host": os.uname().nodename, "machine": os.uname().machine, "missing_paths": missing}


def account() -> dict[str, Any]:
    """Return ``uid``, ``user`` and ``umask`` (four octal digits) of this process."""
    uid = os.geteuid()
    return {"uid": uid, "user": account_name(uid), "umask": "%04o" % _umask()}


def _umask() -> int:
    said = re.search(r"(?m)^Umask:\s*(\d+)", text_of("/proc/self/status"))
    if said:
        return int(said.group(1), 8)
    # Before Linux 4.7 it can only be read by setting it.
    umask = os.umask(0o022)
    os.umask(umask)
    return umask


def module_system(wanted: str, timeout: float) -> dict[str, Any]:
    """Look for the module system that the site's users have, ``auto`` for any.

    Returns:
        its ``kind``, ``command`` and ``version``, and ``problem``: why none was found, or empty.
    """
    environment = dict(os.environ)
    try:
        system = find_system(environment, wanted)
        return {
            "kind": system.kind, "command": system.command, "problem": "",
            "version": version(system, environment, timeout)}
    except StackError as error:
        return {"kind": "none", "command": "", "version": "", "problem": error.message}


def root(wanted: Mapping[str, Any], write: bool) -> dict[str, Any]:
    """Return facts about the root, tried out where that is allowed and could succeed."""
    facts = root_facts.examine(wanted["root"])
    if wanted["release"] and not wanted["release_done"] and facts["directory"]:
        facts["held"] = root_facts.held(os.path.join(wanted["root"], wanted["release"]))
    if not write or wanted["release_done"] or not facts["directory"] or facts["read_only"] or not facts["writable"]:
        return facts
    # Where the file system says already that there is too little, a reservation would only fill it up.
    needed = root_facts.still_needed(wanted["required_bytes"], (facts.get("held") or {}).get("bytes", 0))
    sensible = wanted["reserve"] and facts["free_bytes"] >= needed
    facts["probe"] = root_facts.probe(facts["nearest"], needed if sensible else 0, wanted["latency"]["files"])
    return facts


def package_index(package: str, timeout: float) -> dict[str, Any]:
    """Tell what pip, as it is configured here, says of the index that it takes packages from.

    Args:
        timeout: seconds for one attempt to connect; the whole question may take three times as long.

    Returns:
        ``answers`` (None where there is no pip, or one before 21.2, which cannot be asked) and ``complaint``.
    """
    if importlib.util.find_spec("pip") is None:
        return {"answers": None, "complaint": ""}
    # With -vv it says of each place why it could not be read; without, that there is no such package.
    words = [sys.executable, "-m", "pip", "-vv", "--no-input", "--no-cache-dir", "--disable-pip-version-check"]
    asked = run([*words, "--retries", "0", "--timeout", "%g" % timeout, "index", "versions", package], 3 * timeout)
    if "unknown command" in asked.errors:
        return {"answers": None, "complaint": ""}
    return {"answers": asked.ok, "complaint": asked.complaint if asked.ok else index_complaint(asked)}


def index_complaint(asked: Outcome) -> str:
    """Return why pip could not read an index, with the address of that; else what it says of the package."""
    failed = re.search(r"Could not fetch URL (\S+): (.+?)(?: - skipping)?$", asked.output + asked.errors, re.MULTILINE)
    if not failed or asked.problem:
        return asked.complaint
    # Of a connection that was not made, the words of the system.
    reason = re.search(r"\[Errno -?\d+\] ([^'\")]+)", failed[2])
    return without_credentials("%s: %s" % (failed[1], reason[1] if reason else failed[2]))[:300]


def compiler(wanted: Mapping[str, Any], directory: str, timeout: float, build: bool) -> dict[str, Any]:
    """Return facts about one compiler, tried out where something will be built."""
    facts = compilers.find(wanted, os.environ)
    if facts["path"] and build:
        facts.update(compilers.attempt(wanted, facts["command"], directory, timeout))
    return facts


def asks_index(wanted: Mapping[str, Any]) -> bool:
    """Tell whether packages will be fetched, so that their index is worth asking."""
    return bool(wanted["package_index"]) and not wanted["release_done"]


def gather(wanted: Mapping[str, Any], directory: str, write: bool, with_root: bool) -> dict[str, Any]:
    """Return all facts but the identity and the account.

    Returns:
        ``root`` and ``mpi`` (empty where not looked at), ``python``, ``module_python``, ``compilers`` (by name),
        ``commands`` (path by name, empty where missing), ``module_system``, ``package_index`` (empty where not asked).
    """
    timeout = wanted["timeout"]
    with concurrent.futures.ThreadPoolExecutor(max_workers=4) as pool:
        trials = {
            entry["name"]: pool.submit(compiler, entry, directory, timeout, not wanted["release_done"])
            for entry in wanted["compilers"]
        }
        index = pool.submit(package_index, wanted["package_index"], timeout) if asks_index(wanted) else None
        module_python = pool.submit(interpreter.describe, sys.executable, timeout)
        ask = interpreter.describe if wanted["python"] else interpreter.outside
        python = pool.submit(ask, wanted["python"] or sys.executable, timeout)
        modules = pool.submit(module_system, wanted["module_system"], timeout)
        found = mpi.find(wanted["mpi"], os.environ) if wanted["mpi"] is not None else None
        start = bool((wanted["mpi"] or {}).get("start")) and not wanted["release_done"]
        asked = pool.submit(mpi.describe, found, directory, timeout, start) if found is not None else None
        return dict(
            root=root(wanted, write) if with_root else {},
            commands={name: shutil.which(name) or "" for name in wanted["required_commands"]}, python=python.result(),
            module_python=module_python.result(), module_system=modules.result(),
            compilers={name: trial.result() for name, trial in trials.items()}, mpi=asked.result() if asked else {},
            package_index=index.result() if index else {})
