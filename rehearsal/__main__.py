# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""``python3 -m rehearsal up|roll-out|repository|down|sources``: what ``make rehearse`` and ``bin/rehearse`` run."""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
from collections.abc import Sequence

from .alone import alone
from .cluster import Cluster
from .image import remove_images
from .nodes import names_of_the_cluster
from .podman import Podman
from .progress import say
from .repositories import make_repositories, renew_releases
from .rollout import roll_out
from .site import of_a_repository, of_the_checkout
from .trouble import TroubleError


def arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rehearsal", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="bring up the cluster")
    rollout = commands.add_parser("roll-out", help="bring up the cluster and roll a release of a site out on it")
    rollout.add_argument("site", help="the site, a directory in inventories/ and in inventories/rehearsal/")
    rollout.add_argument("--scheduler", default="", help="the batch system, where the site is rehearsed on several")
    repository = commands.add_parser("repository", help="the same for the site of a repository of its own")
    repository.add_argument("directory", type=pathlib.Path, help="of the repository")
    for command in (rollout, repository):
        command.add_argument("--release", default="", help="a release of the site, by its name or the path of its file")
        command.add_argument("arguments", nargs="*", help="further arguments of ansible-playbook, after --")
    down = commands.add_parser("down", help="remove the cluster with all that was built on it")
    down.add_argument("--image", action="store_true", help="remove the image of the nodes too")
    sources = commands.add_parser("sources", help="make git repositories of the sources that rehearsals build")
    sources.add_argument("place", type=pathlib.Path, help="the directory that they are made in")
    sources.add_argument("--renew", action="store_true", help="write their commits into the rehearsals' release files")
    return parser.parse_args(words)


def of_repositories(words: list[str]) -> list[str]:
    """Put the words of ``bin/rehearse`` into those of this program: ``[DIRECTORY] ...``, or another command."""
    if words and words[0] in ("up", "down", "-h", "--help"):
        return words
    named = bool(words) and not words[0].startswith("-")
    return ["repository", *(words if named else [".", *words])]


def mounts() -> list[str]:
    """The paths in REHEARSAL_MOUNTS, with colons between them.

    Raises:
        TroubleError: one of them is not there, or not absolute.
    """
    paths = [path for path in os.environ.get("REHEARSAL_MOUNTS", "").split(":") if path]
    for path in paths:
        if not path.startswith("/") or not os.path.exists(path):
            raise TroubleError(
                "REHEARSAL_MOUNTS names '%s', which is not an absolute path of something that exists." % path
            )
    return [os.path.normpath(path) for path in paths]


def main(words: Sequence[str]) -> int:
    """Run the command; the exit code."""
    given = arguments(words)
    try:
        if given.command == "sources":
            return make_sources(given.place, given.renew)
        cluster = Cluster(Podman(), names_of_the_cluster(), mounts())
        with alone(cluster.names.cluster):
            return obey(given, cluster)
    except TroubleError as trouble:
        say("rehearsal: %s" % trouble)
        return 1
    except KeyboardInterrupt:
        say("\nrehearsal: interrupted. The same command goes on; make rehearse-down removes what there is.")
        return 130


def of_a_repository_main(words: list[str]) -> int:
    """Run ``bin/rehearse``; the exit code."""
    return main(of_repositories(words))


def make_sources(place: pathlib.Path, renew: bool) -> int:
    """Make the repositories of the sources, and print the commit and the tags of each; the exit code."""
    made = make_repositories(place)
    for repository in made:
        print(*repository[:2], *repository.tags)
    for path in renew_releases({repository.name: repository.commit for repository in made}) if renew else []:
        say("Renewed the commits in %s" % path)
    return 0


def obey(given: argparse.Namespace, cluster: Cluster) -> int:
    """Do what the arguments say; the exit code."""
    if given.command == "roll-out":
        return roll_out(cluster, of_the_checkout(given.site, given.scheduler), given.arguments, given.release)
    if given.command == "repository":
        return roll_out(cluster, of_a_repository(given.directory.resolve()), given.arguments, given.release)
    if given.command == "up":
        cluster.up()
        cluster.tell()
        return 0
    removed = cluster.down()
    if given.image:
        remove_images(cluster.podman)
    say("Removed: %s" % (", ".join(removed) or "nothing, as nothing was there"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
