# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A site's rollout on the cluster: the site's own playbook and inventory, with the thin rehearsal inventory on top."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Sequence

from .checkout import CHECKOUT, PLACE, make_environment, make_sources, send_checkout
from .cluster import Cluster
from .dress import dress, dress_of
from .nodes import LOGIN
from .progress import say
from .replaced import differences, table_of, variables
from .trouble import TroubleError

STARTED = 'echo $$ > "$HOME/.rehearsal-rollout" && exec "$@"'
"""Leaves the process of a rollout behind, for the one who has to end it."""

END = """
test -e "$HOME/.rehearsal-rollout" || exit 0
read -r process < "$HOME/.rehearsal-rollout"
if grep -q ansible-playbook "/proc/$process/cmdline" 2> /dev/null; then
  echo "$process"
  kill -s INT "$process"
  timeout 20 tail --pid="$process" --follow /dev/null || kill -s KILL "$process"
fi
rm "$HOME/.rehearsal-rollout"
"""
"""Ends the rollout that is left on the login node, if it still runs, and prints its process."""

INTERRUPTED = 128 + signal.SIGINT
"""The exit code of what a terminal's Ctrl-C has ended."""

PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


def inventories(site: str) -> tuple[str, str]:
    """A site's own inventory and what its rehearsal lays over it, relative to the checkout.

    Raises:
        TroubleError: the site has no inventory, no playbook, or no rehearsal.
    """
    own, over = "inventories/%s/hosts.yml" % site, "inventories/rehearsal/%s/hosts.yml" % site
    for path in (own, "playbooks/%s.yml" % site, over):
        if not site or not (CHECKOUT / path).exists():
            known = sorted(path.parent.name for path in CHECKOUT.glob("inventories/rehearsal/*/hosts.yml"))
            raise TroubleError(
                "Site '%s' cannot be rehearsed, as there is no %s. Sites that can: %s." % (site, path, ", ".join(known))
            )
    return own, over


def release_name(site: str, given: str) -> str:
    """A release's name, from its name or from the path of its file.

    Raises:
        TroubleError: a path that is none of the site's releases, which are what the login node sees.
    """
    if "/" not in given:
        return given[: -len(".yml")] if given.endswith(".yml") else given
    releases = CHECKOUT / "inventories" / site / "releases"
    path = pathlib.Path(given).resolve()
    if path.parent != releases.resolve() or path.suffix != ".yml" or not path.is_file():
        known = sorted(found.stem for found in releases.glob("*.yml"))
        raise TroubleError(
            "RELEASE is '%s', which is no release file of site '%s': they lie in %s. Put it there, or name one of: %s."
            % (given, site, releases.relative_to(CHECKOUT), ", ".join(known))
        )
    return path.stem


def roll_out(cluster: Cluster, site: str, arguments: Sequence[str], release: str = "") -> int:
    """Bring up the cluster, roll out on its login node as the rollout account, and say what was replaced.

    Args:
        cluster: where.
        site: the site that is rehearsed.
        arguments: further arguments of ansible-playbook.
        release: the release, by its name or by the path of its file; empty: the one that the site's data name.

    Returns:
        The exit code of ansible-playbook.
    """
    own, over = inventories(site)
    if release:
        arguments = ["-e", "torchstack_release=" + release_name(site, release), *arguments]
    cluster.up()
    if end_rollout(cluster):
        say("-- Ended the rollout that an interrupted `make rehearse` had left; its jobs go on")
    send_checkout(cluster)
    make_environment(cluster)
    here = variables(cluster, own, over)
    dress(cluster, dress_of(here))
    make_sources(cluster)
    playbook = [".venv/bin/ansible-playbook", "-i", own, "-i", over, "playbooks/%s.yml" % site, *arguments]
    say("-- Rolling out: %s" % " ".join(playbook))
    code = _followed(cluster, playbook)
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    say("\n" + table_of(differences(variables(cluster, own), here), own, over))
    cluster.tell()
    if code != 0:
        say("\nThe rollout failed (exit code %d); `make rehearse` again goes on where it stopped." % code)
    return code


def _followed(cluster: Cluster, words: Sequence[str]) -> int:
    """Run a command in the checkout on the login node, with this terminal; its exit code."""
    settings = ["PYTHONUNBUFFERED=1", *("%s=%s" % (name, os.environ[name]) for name in PROXIES if name in os.environ)]
    terminal = ["--tty"] if sys.stdin.isatty() and sys.stdout.isatty() else []
    if terminal and "TERM" in os.environ:
        settings.append("TERM=" + os.environ["TERM"])
    started = ["sh", "-c", STARTED, "rollout", "env", "--chdir=" + PLACE, *settings, *words]
    command = cluster.command(LOGIN, *started, user="rollout", options=["--interactive", *terminal])
    stdin = None if terminal else subprocess.DEVNULL
    try:
        return subprocess.run(command, stdin=stdin, check=False).returncode
    finally:
        # Without a terminal, what runs on the node does not see the interrupt that ended podman.
        end_rollout(cluster)


def end_rollout(cluster: Cluster) -> bool:
    """End the rollout that is left on the login node; whether there was one."""
    return bool(cluster.execute(LOGIN, "sh", "-c", END, user="rollout").stdout.strip())
