# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run a program of bin/ for a word of the command."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Sequence

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.near_names import nearest
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.ansible_programs import TOP

from . import playbook, releases
from .obey import find_place
from .places import CommandError, Workspace, find_workspace, known_release
from .playbook import DONE

TAKEN = {
    "compare": (2, "Name two releases to compare, or their directories."),
    "verify": (1, "Name the release to verify, or a directory."),
}
"""How many releases a program takes at least, and how it is said that they are missing."""


def run_program(program: str, words: Sequence[str], dry_run: bool) -> int:
    """Run a program beside this one, or print its line, with releases and sites in its words as what it takes."""
    workspace = find_workspace()
    words, directory = list(words), pathlib.Path.cwd()
    if program == "lock":
        words = _release_files(workspace, words)
    elif program in TAKEN:
        words = _prefixes(workspace, words, TAKEN[program])
    line = [str(TOP / "bin" / program), *words]
    if program == "rehearse" and words and not words[0].startswith("-"):
        _known_rehearsal(workspace, words[0])
        if words[0] in workspace.sites and workspace.is_collection:
            line = [sys.executable, "-m", "rehearsal", "roll-out", *_of_release(workspace, words)]
            directory = workspace.directory
    if dry_run:
        print(playbook.shown(line, directory))
        return DONE
    return subprocess.run(line, cwd=directory, check=False).returncode


def _known_rehearsal(workspace: Workspace, word: str) -> None:
    """Refuse what is neither a site, a directory nor a word of the rehearsal. Raises CommandError."""
    if word in ("up", "down", *workspace.sites) or os.path.isdir(word):
        return
    near = nearest(word, [*workspace.sites, "up", "down"])
    raise CommandError("There is no site '%s'%s" % (
        word, "; did you mean '%s'?" % near if near else ": there are %s." % ", ".join(workspace.sites)))


def _of_release(workspace: Workspace, words: list[str]) -> list[str]:
    """Put the word that names a release behind the option that the rehearsal takes it by."""
    site, *others = words
    if others and not others[0].startswith("-"):
        known_release(workspace, site, others[0])
        others.insert(0, "--release")
    return [site, *others]


def _release_files(workspace: Workspace, words: list[str]) -> list[str]:
    site = next((word for word in words if word in workspace.sites), "") or workspace.default_site()
    known = workspace.release_files(site)
    kept = [word for word in words if word not in workspace.sites]
    return [str(known[word]) if word in known else word for word in kept]


def _prefixes(workspace: Workspace, words: list[str], taken: tuple[int, str]) -> list[str]:
    """Replace names of releases by their directories; what is a path, or an option, stays.

    Raises CommandError: fewer are named than are ``taken``, or one is neither a path nor below the site's root.
    """
    if {"-h", "--help"} & set(words):
        return words
    least, said = taken
    # The word behind an option is its value.
    named = [word for word, before in zip(words, ["", *words])
             if not word.startswith("-") and (not before.startswith("-") or before == "--json" or "=" in before)]
    strange = [word for word in named if not os.path.exists(word)]
    if not strange and len(named) >= least:
        return words
    place = find_place(workspace, tuple(word for word in strange if word in workspace.sites), "", 0)
    known = releases.names(place.root)
    there = "Below %s there %s." % (
        place.root, "are %s" % ", ".join(known) if len(known) > 1 else "is %s" % (known[0] if known else "no release"))
    kept = [word for word in named if word not in workspace.sites]
    if len(kept) < least:
        raise CommandError("%s %s" % (said, there))
    for word in kept:
        if word in strange and word not in known and os.sep not in word:
            near = nearest(word, known)
            raise CommandError("There is no release and no directory '%s'%s %s" % (
                word, "; did you mean '%s'?" % near if near else ".", there))
    return [os.path.join(place.root, word) if word in strange and word in known else word
            for word in words if word not in workspace.sites]
