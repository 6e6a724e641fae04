# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A site's rollout on the cluster: the site's own playbook and inventory, with the thin rehearsal inventory on top."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from .batch_systems import batch_system_of
from .checkout import PLACE, make_environment, make_sources, send_checkout, send_files
from .cluster import Cluster
from .dress import dress
from .dress_data import dress_of
from .inventory import lint, variables
from .nodes import LOGIN
from .progress import say
from .replaced import differences, table_of
from .site import Site, release_name

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


def roll_out(cluster: Cluster, site: Site, arguments: Sequence[str], release: str = "") -> int:
    """Bring up the cluster, roll out on its login node as the rollout account, and say what was replaced.

    Args:
        cluster: where; its batch system becomes the one that the rehearsal asks for.
        site: the site that is rehearsed.
        arguments: further arguments of ansible-playbook.
        release: the release, by its name or by the path of its file; empty: the one that the site's data name.

    Returns:
        The exit code of ansible-playbook.
    """
    name = release_name(site, release) if release else ""
    named = ["-e", "torchstack_release=" + name] if name else []
    here = variables(site, site.own, *site.over)
    wanted, system = dress_of(here, name), batch_system_of(here)
    system.check()
    lint(site, named)
    cluster = Cluster(cluster.podman, cluster.names, cluster.mounts, system)
    cluster.up()
    if end_rollout(cluster):
        say("-- Ended the rollout that an interrupted `make rehearse` had left; its jobs go on")
    send_checkout(cluster)
    make_environment(cluster)
    if site.place != PLACE:
        send_files(cluster, site.top, site.place)
    dress(cluster, wanted)
    make_sources(cluster)
    inventories = [word for path in (site.own, *site.over) for word in ("-i", path)]
    playbook = ["ansible-playbook", *inventories, site.playbook, *named, *arguments]
    say("-- Rolling out: %s" % " ".join(playbook))
    code = _followed(cluster, site.place, playbook)
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    say("\n" + table_of(differences(variables(site, site.own), here), site.own, " and ".join(site.over)))
    cluster.tell()
    if code != 0:
        say("\nThe rollout failed (exit code %d); `%s` again goes on where it stopped." % (code, site.again))
    return code


def _followed(cluster: Cluster, place: str, words: Sequence[str]) -> int:
    """Run a program of Ansible's in a directory of the login node, with this terminal; its exit code."""
    environment = PLACE + "/.venv"
    settings = ["PYTHONUNBUFFERED=1", "ANSIBLE_COLLECTIONS_PATH=%s/collections" % environment]
    settings += ["%s=%s" % (name, os.environ[name]) for name in PROXIES if name in os.environ]
    terminal = ["--tty"] if sys.stdin.isatty() and sys.stdout.isatty() else []
    if terminal and "TERM" in os.environ:
        settings.append("TERM=" + os.environ["TERM"])
    program = "%s/bin/%s" % (environment, words[0])
    started = ["sh", "-c", STARTED, "rollout", "env", "--chdir=" + place, *settings, program, *words[1:]]
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
