# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A user loads the default module in a loop while two and three operations change a root in random orders.

The operations are those of tests/modules/test_operations_on_a_root.py, kills included; the user's shell runs the real
module command. Roots are many, as an operation may remove a release; the user goes on to the next one with them.

A module command reads which version is the default, then that version's file. One that stood between the two while the
default was changed and its release taken away finds no file; so this user, like any other, loads again, once.

TORCHSTACK_USED_SEQUENCES says how many random orders there are for each module system, and TORCHSTACK_USED_FIRST the
number of the first one: many of them are run in parts, by as many processes as the machine has cores.
"""

from __future__ import annotations

import os
import random
import subprocess
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.module_system import EM, QUIET
from support.root_operations import OPERATIONS, clear, make_kept, play

SEQUENCES = int(os.environ.get("TORCHSTACK_USED_SEQUENCES", "40"))
FIRST = int(os.environ.get("TORCHSTACK_USED_FIRST", "0"))
LOADS = int(os.environ.get("TORCHSTACK_USED_LOADS", "30"))
"""At least so many random orders, and at least so many loads, of each module system."""
PATIENCE = 900
"""Seconds after which a user who does not get on is no user."""

# Records end with \x1e, their fields with \x1f.
USER = r"""
load() {
  code=$("$@" bash load torchstack 2> "$HOME/said")
  (eval "$code" && printf '%s\x1f%s\x1f%s\x1e' "$root" "$WHICH" "$(cat "$HOME/said")")
}
while [ ! -e "$HOME/stop" ]; do
  root=$(readlink "$HOME/root")
  export MODULEPATH=$root/modulefiles/$SYNTAX
  load "$@" || load "$@" || printf '%s\x1ffailed\x1f%s\x1e' "$root" "$(cat "$HOME/said")"
done
"""


@pytest.fixture()
def user(system, tmp_path):
    """Start the user of a module system; what they were told so far."""
    home = tmp_path / "home"
    home.mkdir()
    environment = {
        "HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8",
        "SYNTAX": "tcl" if system.kind == EM else "lmod", **QUIET[system.kind]}
    kept = make_kept(tmp_path)
    (home / "root").symlink_to(kept)
    with open(tmp_path / "told", "wb") as told:
        process = subprocess.Popen(
            ["/bin/bash", "--norc", "--noprofile", "-c", USER, "user", *system.words], env=environment, stdout=told,
            stderr=subprocess.STDOUT)
    yield home, kept, process, lambda: (tmp_path / "told").read_text().split("\x1e")[:-1]
    process.kill()
    process.wait()
    clear(kept.parent)


def test_every_load_of_the_default_succeeds_whatever_two_or_three_do_meanwhile(user):
    home, kept, process, told = user
    ended = time.monotonic() + PATIENCE
    number = FIRST
    while number < FIRST + SEQUENCES or len(told()) < LOADS:
        assert process.poll() is None and time.monotonic() < ended, told()[-3:]
        chance = random.Random("in use %d" % number)
        root = kept.with_name("root-%d" % number)
        (home / "next").symlink_to(root)

        def begin(home=home):
            os.replace(home / "next", home / "root")

        several = chance.choices(list(OPERATIONS), k=chance.choice((2, 3)))
        play(kept, several, "in use %d" % number, root, begin)
        number += 1
    (home / "stop").touch()
    process.wait(timeout=PATIENCE)
    records = [record.split("\x1f") for record in told()]
    assert len(records) >= LOADS
    assert [one for one in records if one[1] not in ("r1", "r2", "r3") or one[2].strip() not in ("", "It goes.")] == []
    print("%d orders beside %d loads of %s" % (number - FIRST, len(records), sorted({one[1] for one in records})))
