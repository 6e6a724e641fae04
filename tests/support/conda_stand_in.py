#!/usr/bin/env python3
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Answer ``conda shell.SHELL activate|deactivate|reactivate`` as conda 26 does for its own prefix and others by path.

Run as a program, ``bin/conda`` of a prefix; the tests that ask a real conda ask the same of it.
"""

from __future__ import annotations

import os
import sys


def replaced(path: str, old: str, new: str) -> str:
    """Return a search path in which the first entry of a prefix is that of another one, or goes."""
    entries = path.split(":")
    if old + "/bin" in entries:
        place = entries.index(old + "/bin")
        entries[place:place + 1] = [new + "/bin"] if new else []
    elif new:
        entries.insert(0, new + "/bin")
    return ":".join(entries)


def main(root: str, shell: str, command: str, words: list[str]) -> None:
    """Print the lines for one shell."""
    now, level, path = os.environ.get("CONDA_PREFIX", ""), int(os.environ.get("CONDA_SHLVL") or 0), os.environ["PATH"]
    wanted = root if words[:1] in ([], ["base"]) else words[0]
    unset, changed, modifier = [], {}, ""
    if command == "activate" and not os.path.isdir(wanted + "/conda-meta"):
        sys.exit("EnvironmentLocationNotFound: Not a conda environment: " + wanted)
    if command == "activate" and not (now == wanted and level):
        changed = {"CONDA_PREFIX": wanted, "CONDA_SHLVL": level + 1, "PATH": replaced(path, now, wanted)}
        changed.update({"CONDA_PREFIX_%d" % level: now} if level else {})
    elif command == "deactivate" and level == 1:
        unset, changed = ["CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_PROMPT_MODIFIER"], {
            "CONDA_SHLVL": 0, "PATH": replaced(path, now, "")}
    elif command == "deactivate":
        former = os.environ["CONDA_PREFIX_%d" % (level - 1)]
        unset, changed = ["CONDA_PREFIX_%d" % (level - 1)], {
            "CONDA_PREFIX": former, "CONDA_SHLVL": level - 1, "PATH": replaced(path, now, former)}
    else:
        changed = {"CONDA_SHLVL": level}
    prefix = str(changed.get("CONDA_PREFIX", now))
    if prefix and "CONDA_PREFIX" not in unset:
        changed["CONDA_DEFAULT_ENV"] = "base" if prefix == root else prefix
        modifier = changed["CONDA_PROMPT_MODIFIER"] = "(%s) " % changed["CONDA_DEFAULT_ENV"]
    changed.update({
        "CONDA_EXE": root + "/bin/conda", "_CONDA_EXE": root + "/bin/conda", "CONDA_PYTHON_EXE": root + "/bin/python",
        "_CONDA_ROOT": root})
    lines = {"posix": ("export %s=''", "export %s='%s'"), "csh": ("unsetenv %s;", 'setenv %s "%s";'),
             "fish": ("set -e %s || true;", 'set -gx %s "%s";')}[shell]
    print("\n".join([
        *(lines[0] % name for name in unset), *(lines[1] % item for item in changed.items()),
        *(["export _CE_M=''\nexport _CE_CONDA=''\nPS1='%s'" % modifier] if shell == "posix" else []),
        *(["set prompt='%s';" % modifier] if shell == "csh" else [])]))


if __name__ == "__main__":
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if len(sys.argv) > 2 and sys.argv[1].startswith("shell."):
        main(own, sys.argv[1][6:], sys.argv[2], sys.argv[3:])
    else:
        print("conda was given %s" % sys.argv[1:])
