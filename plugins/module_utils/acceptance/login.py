# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find the account that runs the ranks, and make the environment of a fresh login of it."""

from __future__ import annotations

import os
import pwd
import re
import shlex
from typing import Mapping, NamedTuple, Sequence

from ..core.errors import StackError
from ..core.redaction import withheld

SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin"
"""PATH of a fresh login before any start-up file (login.defs(5), ENV_PATH)."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATTERN = re.compile(_NAME.pattern + r"\*?")
_AS_USER = """cd "$HOME" 2> /dev/null || cd /tmp
for python in %s; do
    if "$python" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2> /dev/null; then
        exec "$python" -I -S "$@"
    fi
done
echo "there is no Python 3.8 or later that this account can run: not %s."
"""


class Account(NamedTuple):
    """Describe the account that runs the ranks; ``other`` when it is not the one that runs this."""

    name: str
    uid: int
    home: str
    shell: str
    other: bool


def find_account(user: str) -> Account:
    """Find the account that shall run the ranks: of this name, but not root, or the one that this runs as."""
    try:
        entry = pwd.getpwnam(user) if user else pwd.getpwuid(os.geteuid())
    except KeyError:
        raise StackError(
            "There is no account %s on %s." % (user or "for uid %d" % os.geteuid(), os.uname().nodename), "user",
            "Set acceptance_user to an ordinary account of this machine, or leave it empty.") from None
    if user and entry.pw_uid == 0:
        raise StackError(
            "acceptance_user is %s, which is root, not an ordinary user." % user, "user",
            "Set acceptance_user to an ordinary account, or leave it empty.")
    return Account(entry.pw_name, entry.pw_uid, entry.pw_dir, entry.pw_shell or "/bin/sh", entry.pw_uid != os.geteuid())


def login_environment(account: Account, keep: Sequence[str], current: Mapping[str, str]) -> dict[str, str]:
    """Make the variables with which a fresh login of the account begins.

    Args:
        keep: names of variables to hand over from ``current``; a name may end in ``*``, which stands for no secrets.
    """
    environment = {
        "HOME": account.home, "USER": account.name, "LOGNAME": account.name, "SHELL": account.shell,
        "LANG": "C.UTF-8", "PATH": SEARCH_PATH, "TMPDIR": "/tmp",
    }
    secret = set(withheld(current))
    for pattern in keep:
        for name, value in current.items():
            several = pattern.endswith("*") and name.startswith(pattern[:-1]) and name not in secret
            if (name == pattern or several) and _NAME.fullmatch(name):
                environment[name] = value
    return environment


def login_command(account: Account, become: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Make the words before a command that run it by the account with this environment only."""
    words = [word.replace("{user}", account.name) for word in become] if account.other else []
    return [*words, "/usr/bin/env", "-i", *("%s=%s" % item for item in sorted(environment.items()))]


def python_command(pythons: Sequence[str]) -> list[str]:
    """Make the words before a Python program that run it in the home, with the first interpreter that may be run."""
    places = list(dict.fromkeys(pythons))
    return ["/bin/sh", "-c", _AS_USER % (" ".join(map(shlex.quote, places)), ", ".join(places)), "acceptance"]


def job_variable_lines(keep: Sequence[str]) -> list[str]:
    """Make lines of bash that put variables (globs) of a job into the array ``kept``, as words for env(1)."""
    patterns = [pattern for pattern in keep if _PATTERN.fullmatch(pattern)]
    return [
        "kept=()",
        "for name in $(compgen -e); do",
        '    case $name in %s) kept+=("$name=${!name}") ;; esac' % "|".join(patterns or ["''"]),
        "done",
    ]


def account_gaps(account: Account) -> list[str]:
    """List what the account hides under which the acceptance runs."""
    if account.other:
        return []
    sentences = [
        "Not as an ordinary user: as the rollout account %s itself, which can read files that others cannot."
        % account.name]
    if account.uid == 0:
        sentences.append("As root, which passes every permission check: unreadable files, unwritable caches and the "
                         "limits of users stay hidden.")
    return sentences
