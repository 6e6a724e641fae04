# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find compilers, and try them on a small program of each language that builds need."""

from __future__ import annotations

import os
import shlex
import shutil
from typing import Any, Mapping

from ..core.run_command import run

CANDIDATES = {"c": ("cc", "gcc"), "c++": ("c++", "g++")}
STANDARD = {"c": "", "c++": "c++17"}
TITLE = {"c": "C", "c++": "C++"}
_SUFFIX = {"c": ".c", "c++": ".cpp"}
_PROGRAM = {
    "c": "#include <stdio.h>\nint main(void) { return printf(\"ok\\n\") == 3 ? 0 : 1; }\n",
    # optional, string_view, if constexpr and structured bindings came with C++17; the string and the exception need
    # the run-time library that belongs to the compiler.
    "c++": """#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
template <typename T> constexpr int size_class() { if constexpr (sizeof(T) > 4) return 8; else return 4; }
int main(int count, char **) {
  auto [text, number] = std::pair<std::string, int>("ok", size_class<double>());
  std::optional<std::string_view> view = text;
  try { if (count > 0) throw std::runtime_error(text); }
  catch (const std::exception &caught) { return std::string(caught.what()) == *view && number == 8 ? 0 : 1; }
  return 1;
}
""",
}


def find(wanted: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the compiler that a build would use, as it is typed.

    Args:
        wanted: ``name`` of the variable it goes into (CXX), which counts when ``command`` (with its words) is empty;
            ``language`` (``c`` or ``c++``); ``candidates`` (what to look for where neither says, or empty).

    Returns:
        ``command`` (never resolved to what a link leads to; empty where a search found none), ``path`` (where PATH has
        its first word; empty where nowhere), ``origin`` (``option``, ``environment`` or ``search``), ``tried``.
    """
    named = wanted.get("command") or ""
    inherited = environment.get(wanted["name"], "").strip()
    if named or inherited:
        commands, origin = [named or inherited], "option" if named else "environment"
    else:
        commands, origin = list(wanted.get("candidates") or CANDIDATES[wanted["language"]]), "search"
    for command in commands:
        words = shlex.split(command)
        path = shutil.which(words[0], path=environment.get("PATH")) if words else None
        if path:
            return {"command": command, "path": path, "origin": origin, "tried": commands}
    return {"command": commands[0] if origin != "search" else "", "path": "", "origin": origin, "tried": commands}


def attempt(wanted: Mapping[str, Any], command: str, directory: str, timeout: float) -> dict[str, Any]:
    """Compile and link a small program in an existing directory, and run it unless it is for other machines.

    Returns:
        ``banner`` (first line of ``--version``), ``standard``, ``compiles``, ``runs`` (None where it was not run),
        ``complaint`` (empty where all went well).
    """
    language, words = wanted["language"], shlex.split(command)
    standard = wanted.get("standard") or STANDARD[language]
    banner = run([*words, "--version"], timeout, directory)
    source, program = (os.path.join(directory, wanted["name"] + end) for end in (_SUFFIX[language], ".trial"))
    with open(source, "w", encoding="ascii") as stream:
        stream.write(_PROGRAM[language])
    build = run([*words, *(["-std=" + standard] if standard else []), "-o", program, source], timeout, directory)
    facts: dict[str, Any] = {
        "banner": banner.output.strip().splitlines()[0] if banner.ok and banner.output.strip() else "",
        "standard": standard, "compiles": build.ok and os.path.exists(program), "runs": None,
        "complaint": "" if build.ok else build.complaint,
    }
    # A temporary directory may forbid to run programs (noexec), which says nothing about this one.
    if facts["compiles"] and not wanted.get("cross") and os.access(program, os.X_OK):
        execution = run([program], timeout, directory)
        facts["runs"] = execution.ok
        facts["complaint"] = "" if execution.ok else _ending(execution.code, execution.complaint)
    return facts


def _ending(code: int | None, complaint: str) -> str:
    return "it ended by signal %d" % -code if code is not None and code < 0 else complaint
