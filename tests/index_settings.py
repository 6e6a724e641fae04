# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Print what another account's pip needs to reach the index that this account's pip reaches, as a configuration file.

Behind a site's proxy or with its certificates nobody reaches an index without these settings. All others stay here:
a directory of wheels, or a second index, would have tests pass with what no user has.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys

REACH = ("index-url", "cert", "client-cert", "proxy", "trusted-host")
# pip names first what wins.
LINE = re.compile(r"(?:global|:env:)\.([a-z-]+)=(.*)")


def configuration(listed: str) -> str:
    """The file.

    Args:
        listed: what `pip config list` prints.
    """
    found: dict[str, str] = {}
    for line in listed.splitlines():
        match = LINE.fullmatch(line)
        if match and match.group(1) in REACH:
            found.setdefault(match.group(1), " ".join(str(ast.literal_eval(match.group(2))).split()))
    return "[global]\n" + "".join("%s = %s\n" % item for item in found.items())


def of_this_account() -> str:
    """The file for what this account's pip goes by; an empty section where it has no pip."""
    words = [sys.executable, "-m", "pip", "config", "list"]
    return configuration(subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False).stdout)


if __name__ == "__main__":
    print(of_this_account(), end="")
