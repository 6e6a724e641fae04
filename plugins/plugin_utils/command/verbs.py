# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Say which playbook each word of the command runs, and what its options set there. Data."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Mapping, NamedTuple


class Option(NamedTuple):
    """An option of a command, and the variable of the playbook that it sets."""

    name: str
    """as it is typed, with its dashes"""
    variable: str
    help: str
    choices: tuple[str, ...] = ()
    value: Any = None
    """what the variable becomes; without one the option takes a value"""
    repeated: bool = False
    """whether it may be given several times, for a list"""
    required: bool = False


class Verb(NamedTuple):
    """A command that runs a playbook."""

    playbook: str
    """its name; empty: the site's own rollout"""
    help: str
    options: tuple[Option, ...] = ()
    variables: Mapping[str, Any] = MappingProxyType({})
    """what it always sets"""
    arguments: tuple[str, ...] = ()
    """of ansible-playbook"""
    most: int = 1
    """how many releases it takes"""
    releases: str = ""
    """the variable that takes a list of them; otherwise the one release is torchstack_release"""
    needs_release: bool = False
    """whether the release has to be named: what it does is not undone by typing it again"""


PLAYBOOKS: dict[str, Verb] = {
    "rollout": Verb("", "Build, verify, freeze, accept and publish a release."),
    "plan": Verb("", "Show what a rollout would do; changes nothing.", arguments=("--check",)),
    "accept": Verb("accept", "Accept a frozen release again.", (
        Option("--partition", "torchstack_partition", "only on this partition of the site"),)),
    "report": Verb("report", "Write the report of a release again."),
    "publish": Verb("publish", "Show a release to users: hidden, visible or default.", (
        Option("--to", "publish_to", "how far", ("hidden", "visible", "default")),)),
    "rollback": Verb("rollback", "Give the default back to the release that had it before."),
    "retire": Verb("retire", "Deprecate, hide or remove a release, or keep it after all.", (
        Option("--to", "retire_to", "how far", ("deprecated", "hidden", "removed", "kept")),
        Option("--reason", "retire_reason", "why, for the users"),
        Option("--successor", "retire_successor", "what they load instead"),
        Option("--until", "retire_until", "the day on which it goes, as 2027-01-31"),
    ), needs_release=True),
    "thaw": Verb("thaw", "Open named paths of a frozen release for a fix by hand.", (
        Option("--path", "thaw_paths", "a path below the release", repeated=True, required=True),
        Option("--reason", "thaw_reason", "why, for the record", required=True),
    ), needs_release=True),
    "freeze": Verb("thaw", "Freeze a thawed release again.", (
        Option("--abandon", "thaw_state", "nothing was changed: refuse it where something was", value="abandoned"),
    ), {"thaw_state": "refrozen"}, needs_release=True),
    "drift": Verb("drift", "Compare frozen releases with what they were.", (
        Option("--full", "drift_level", "read every file", value="full"),
        Option("--system", "drift_system", "also see whether they work on today's system", value=True),
    ), most=99, releases="drift_releases"),
    "notice": Verb("notice", "Write the announcement of a release."),
    "lint": Verb("lint", "Find all mistakes in the data of a site, or in one release file."),
    "mirror": Verb("mirror", "Fetch all that a release needs into a directory.", (
        Option("--to", "torchstack_mirror", "the directory", required=True),)),
}
"""Of the commands that run a playbook."""

PROGRAMS: dict[str, tuple[str, str]] = {
    "lock": ("lock", "Make the locks of a release file, by its name or path; takes the options of bin/lock."),
    "compare": ("compare", "Say in which ways two releases differ; takes the options of bin/compare."),
    "verify": ("verify", "Show where the libraries of a release come from; takes the options of bin/verify."),
    "matrix": ("matrix", "Plan, mirror or roll out the releases of a matrix file; takes the words of bin/matrix."),
    "rehearse": ("rehearse", "Roll a release of a site out on containers dressed as it; then down, to remove them."),
    "new-site": ("new-site", "Write a repository with the data of a site; takes the options of bin/new-site."),
}
"""Of the commands that run a program beside this one."""

EXIT_CODES = """\b
Ends with 0 where all is well; with 1 where something that was looked for was found (a difference, a failed step);
with 2 where it failed or was refused, or a word is unknown; with 130 after Ctrl-C.
"""
