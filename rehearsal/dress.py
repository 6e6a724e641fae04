# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Nodes put on and take off a dress: modules with what is behind them, programs, libraries and images.

It is laid once, on the login node, archived on the shared file system, and unpacked on the other nodes. A node wears
one dress at a time.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable

from . import modulefiles, wheels
from .archives import archive_of, write_archive
from .checkout import CHECKOUT, files_of
from .cluster import Cluster
from .dress_data import PLACE, Dress
from .nodes import CONTROL, LOGIN
from .progress import told
from .trouble import TroubleError

MEANS = (
    "rehearsal/dress/", "rehearsal/sources/cuda/", "rehearsal/sources/libfabric/",
    "rehearsal/__init__.py", "rehearsal/image_root.py", "rehearsal/install-apptainer",
)
"""What dresses are laid from: programs, and sources that stand before any release."""

WORN = "/etc/rehearsal-dress"
ARCHIVES = "/shared/dress"
KEPT = "/shared/dress-kept"
"""Where a part may keep what takes long to make, for the next time; all nodes see it."""

WORK = "/tmp/rehearsal-dress"


def dress(cluster: Cluster, wanted: Dress | None) -> bool:
    """Have the nodes wear a dress, or none; whether anything had to be done.

    Args:
        cluster: it is up, with the checkout and its environment on the login node.
        wanted: from :func:`.dress_data.dress_of`.

    Raises:
        TroubleError: it could not be laid.
    """
    name = _digest(wanted) if wanted else ""
    nodes = [node for node in cluster.names.nodes if node != CONTROL]
    wrong = [node for node in nodes if cluster.execute(node, "cat", WORN).stdout.decode().strip() != name]
    if not wrong:
        return False
    with told("Dressing %s as %s" % (", ".join(wrong), "the site's" if wanted else "what they are")):
        archive = "%s/%s.tar" % (ARCHIVES, name)
        for node in wrong:
            _run(cluster, "sh", "-s", node=node, data=(PLACE / "undress.sh").read_bytes())
        if wanted and cluster.execute(LOGIN, "test", "-e", archive).returncode != 0:
            _lay(cluster, wanted, archive)
        for node in wrong if wanted else []:
            _run(cluster, "sh", "-s", archive, name, node=node, data=(PLACE / "put-on.sh").read_bytes())
        cluster.execute(LOGIN, "rehearsal-module-cache", user="rollout")
    return True


def laid(wanted: Dress) -> dict[str, str]:
    """Give what ``lay.sh`` reads of a dress, by path below its directory."""
    lines = {
        "parts": ["%s %s %s %d" % (*part[:3], number) for number, part in enumerate(wanted.parts)],
        "trees": wanted.trees,
        "laid": [*wanted.trees, *(part.place for part in wanted.parts)],
    }
    lines.update(("sets/%d" % number, part.sets) for number, part in enumerate(wanted.parts))
    files = {name: _text(content) for name, content in lines.items()}
    return {**files, **{"files/" + path: text for path, text in modulefiles.rendered(wanted).items()}}


def _lay(cluster: Cluster, wanted: Dress, archive: str) -> None:
    """Make the dress on the login node, and its archive for all nodes."""
    links = []
    for part in sorted({part.name for part in wanted.parts}):
        for lock in wheels.locks_of(PLACE / "parts" / (part + ".sh")):
            links += [part, wheels.fetch(cluster, lock)]
    _run(cluster, "sh", "-c", "echo unfinished > %s; rm -rf %s; mkdir -p %s/files" % (WORN, WORK, WORK))
    stream = io.BytesIO()
    write_archive(stream, CHECKOUT, _names_to_lay())
    _unpack(cluster, stream.getvalue())
    _unpack(cluster, archive_of(laid(wanted)))
    _run(cluster, "sh", "-euc", LINK, "link", *links)
    _run(cluster, "sh", WORK + "/rehearsal/dress/lay.sh", WORK, archive, wanted.releases, KEPT)


LINK = """
cd %s
while [ $# -gt 0 ]; do
  mkdir -p "wheels/$1"
  ln -s "$2"/*.whl "wheels/$1"
  shift 2
done
""" % WORK
"""Links wheels to where their part looks; words in pairs: a part, and a directory of wheels."""


def _names_to_lay() -> list[str]:
    return [name for name in files_of(CHECKOUT) if name.startswith(MEANS)]


def _digest(wanted: Dress) -> str:
    """A digest of the dress and of all that it is laid from."""
    digest = hashlib.sha256(json.dumps([laid(wanted), wanted.releases, LINK], sort_keys=True).encode())
    for name in _names_to_lay():
        digest.update(name.encode() + hashlib.sha256((CHECKOUT / name).read_bytes()).digest())
    return digest.hexdigest()[:12]


def _text(lines: Iterable[str]) -> str:
    return "".join(line + "\n" for line in lines)


def _unpack(cluster: Cluster, archive: bytes) -> None:
    _run(cluster, "tar", "-xf", "-", "-C", WORK, data=archive)


def _run(cluster: Cluster, *words: str, node: str = LOGIN, data: bytes = b"") -> None:
    """Run a command on a node as root; its last lines are in the error where it fails."""
    done = cluster.podman.run("exec", "--interactive", cluster.names.container(node), *words, data=data)
    if done.returncode != 0:
        last = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines()[-10:]
        raise TroubleError("The dress cannot be put on %s:\n  %s" % (node, "\n  ".join(last)))
