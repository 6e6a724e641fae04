# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Collect facts about a compute node on that node: ``node_facts.py QUESTION``, a JSON text.

It travels as text in the script of a step, to a node that may not have this collection, and therefore imports nothing
of it but what travels with it. Python 3.8 or later. What the facts mean is in node_checks.py.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import shlex
import shutil
import sys
from typing import Any, Mapping, Sequence

from .node_capacity import capacity, machine, read
from .node_command import run
from .node_directories import shared, temporary

INIT_FILES = ("/usr/share/lmod/lmod/init/bash", "/etc/profile.d/lmod.sh", "/etc/profile.d/modules.sh",
              "/usr/share/Modules/init/bash", "/usr/share/modules/init/bash")
"""Where packages put what defines the command module; for the remedy alone."""

DRIVER = """
import ctypes
library = ctypes.CDLL("libcuda.so.1")
version, count = ctypes.c_int(), ctypes.c_int(-1)
library.cuDriverGetVersion(ctypes.byref(version))
code = library.cuInit(0)
if code == 0:
    library.cuDeviceGetCount(ctypes.byref(count))
print(version.value, code, count.value)
"""
"""Asks the driver in a process of its own: cuInit may hang or crash. 100 is CUDA_ERROR_NO_DEVICE."""


def gpus() -> dict[str, Any]:
    """Return the GPUs of NVIDIA: ``count`` (None where the driver does not say), ``names``, ``problem``.

    ``driver`` is its version, empty where there is none; ``cuda`` the latest version of CUDA that it speaks, as
    cuDriverGetVersion(3) tells it: 12040 is 12.4; None where there is no libcuda.
    """
    kernel = re.search(r"Kernel Module(?:\s+for\s+\S+)?\s+(\d[\d.]+)", read("/proc/driver/nvidia/version"))
    facts: dict[str, Any] = {
        "driver": kernel.group(1) if kernel else "", "cuda": None, "count": None, "names": [], "problem": "",
    }
    asked = run(["nvidia-smi", "--query-gpu=driver_version,name", "--format=csv,noheader"])
    if asked.code == 0:
        rows = [line.split(",", 1) for line in asked.output.splitlines() if "," in line]
        facts["names"] = [name.strip() for _driver, name in rows]
        facts["driver"] = facts["driver"] or (rows[0][0].strip() if rows else "")
    if _has_library("libcuda.so.1"):
        driver = run([sys.executable, "-I", "-S", "-c", DRIVER])
        numbers = re.fullmatch(r"(\d+) (\d+) (-?\d+)\s*", driver.output)
        if driver.code == 0 and numbers:
            version, code, count = map(int, numbers.groups())
            facts["cuda"] = version or None
            facts["count"] = count if code == 0 else 0 if code == 100 else None
            facts["problem"] = "" if code in (0, 100) else "cuInit answers with error %d" % code
        else:
            facts["problem"] = "the driver does not answer: %s" % (_last_line(driver.output) or "it crashed")
    if facts["count"] is None and facts["names"]:
        facts["count"] = len(facts["names"])
    return facts


def _has_library(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def module_script(
    init: str, names: Sequence[str], finding: str = "", setup: str = "", unloading: Mapping[str, str] | None = None
) -> str:
    """Return shell text that loads modules one by one, as a step does, and prints how each went.

    Args:
        finding: shell text that sets ``through`` to whose the command is; empty where nobody wants to know.
        setup: shell text that sources what comes before the modules.
        unloading: shell text for what is not loaded but unloaded, by its entry in ``names``.
    """
    lines = [". " + shlex.quote(init) if init.startswith("/") and "\n" not in init else init] if init else []
    if names:
        lines.append("type module > /dev/null 2>&1 || { echo '@none'; exit 0; }")
        lines += [finding, 'echo "@system $through"'] if finding else []
    if names or init:
        lines.append("module purge > /dev/null 2>&1")
    lines += [setup, "echo; echo @setup"] if setup else []
    for place, name in enumerate(names):
        away = (unloading or {}).get(name)
        # Where it cannot be unloaded, the text ends its shell.
        tried = ["(", away, ") && { code=0; same=0; ", away, "} || { code=1; same=0; }"] if away else [
            "module load %s" % shlex.quote(name),
            'code=$?; same=0; if [ "$before" = "${LOADEDMODULES:-}" ]; then same=1; fi']
        lines += [
            "before=${LOADEDMODULES:-}", "echo '@begin %d'" % place, *tried, 'echo; echo "@end %d $code $same"' % place]
    return "\n".join([*lines, 'echo "@path $PATH"'])


def modules(init: str, names: Sequence[str], **more: Any) -> dict[str, Any]:
    """Load modules in a plain shell, without any start-up file.

    Args:
        init: what defines the command, as the option module_init of build_step; empty for what the environment brings.
        names: modules, in their order.
        more: as for :func:`module_script`.

    Returns:
        ``setup`` (how sourcing failed; empty where it did not), ``system`` (whose the command is; empty where that was
        not asked), ``command`` (whether there is a command module), ``failed`` (name -> what was said), ``inits``
        (files that would define the command), ``path`` (PATH with the modules loaded; empty where none are).
    """
    facts: dict[str, Any] = {"setup": "", "system": "", "command": True, "failed": {}, "inits": [], "path": ""}
    if not names and not more.get("setup"):
        return facts
    ran = run(["/bin/bash", "--noprofile", "--norc", "-c", module_script(init, names, **more)])
    if "@none" in ran.output.split("\n") or ran.code is None:
        return dict(facts, command=False, inits=[path for path in INIT_FILES if os.path.exists(path)])
    if more.get("setup") and "@setup" not in ran.output.split("\n"):
        return dict(facts, setup=_last_line(ran.output) or "it said nothing")
    for place, name in enumerate(names):
        marks = r"^@begin %d\n(.*?)^@end %d (\d+) ([01])$" % (place, place)
        said = re.search(marks, ran.output, re.MULTILINE | re.DOTALL)
        if not said:
            facts["failed"][name] = "the shell ended: %s" % (_last_line(ran.output) or "it said nothing")
        elif said.group(2) != "0" or said.group(3) == "1":
            facts["failed"][name] = " ".join(said.group(1).split())[:300] or "it changed nothing"
    path, system = (re.search(r"^@%s (.*)$" % word, ran.output, re.MULTILINE) for word in ("path", "system"))
    return dict(facts, path=path.group(1) if path else "", system=system.group(1) if system else "")


def programs(wanted: Mapping[str, str], search: str = "") -> dict[str, dict[str, str]]:
    """Find commands that steps call: ``path`` (empty where missing), and of a Python its ``version``.

    Args:
        wanted: what it is for -> the command with its words; ``python`` is asked for its version.
        search: the PATH to look on, that of the modules; empty for this process's own.
    """
    found = {}
    for name, command in wanted.items():
        words = shlex.split(command)
        path = shutil.which(words[0], path=search or None) if words else None
        found[name] = {"command": command, "path": path or "", "version": ""}
        if path and name == "python":
            asked = run([path, "-I", "-S", "-c", "import platform; print(platform.python_version())"])
            found[name]["version"] = asked.output.strip() if asked.code == 0 else ""
    return found


def collect(question: Mapping[str, Any]) -> dict[str, Any]:
    """Collect all facts.

    Args:
        question: ``nonce``, ``nonce_file``, ``prefix``, ``wait``, ``tmpdir`` (the site's, beside that of the job),
            ``modules``, ``module_init``, ``programs``; ``finding``, ``setup`` and
            ``unloading`` where there is something of it.
    """
    own = os.environ.get("TMPDIR") or "/tmp"
    if question["tmpdir"] and os.path.dirname(own) == os.path.normpath(question["tmpdir"]):
        # The directory of this very step, which build_step has made in the site's.
        own = question["tmpdir"]
    loaded = modules(
        question["module_init"], question["modules"],
        **{key: question[key] for key in ("finding", "setup", "unloading") if key in question})
    return {
        "nonce": question["nonce"],
        "machine": machine(),
        "capacity": capacity(),
        "python": {"executable": sys.executable, "version": platform.python_version()},
        "shared": shared(question),
        "tmpdirs": [temporary(path) for path in dict.fromkeys((own, question["tmpdir"] or own))],
        "gpus": gpus(),
        "modules": loaded,
        "programs": programs(question["programs"], loaded["path"]),
    }


def main(arguments: Sequence[str]) -> int:
    """Collect the facts, and write them beside the question's file, whole or not at all; 1 where that fails."""
    question = json.loads(arguments[0])
    facts = collect(question)
    capable = facts["capacity"]
    sys.stdout.write("%s: %g cores, %s bytes of memory, %s\n" % (
        facts["machine"]["host"], capable["cores"], capable["memory"], facts["machine"]["system"]))
    temporary_file = "%s.%d" % (question["answer_file"], os.getpid())
    try:
        with open(temporary_file, "w", encoding="utf-8") as stream:
            json.dump(facts, stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary_file, question["answer_file"])
    except OSError as error:
        sys.stdout.write("%s cannot be written: %s\n" % (question["answer_file"], error.strerror))
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
