# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What makes nodes look like those of a site: modules with what is behind them, and programs, libraries and images.

A site's rehearsal asks for it in its inventory, as ``rehearsal_dress`` (docs/tutorials/rehearse-a-site.md). It is laid
once, on the login node, archived on the shared file system, and unpacked on the other nodes. A node wears one dress
at a time.
"""

from __future__ import annotations

import hashlib
import io
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from .archives import archive_of, write_archive
from .checkout import CHECKOUT, PLACE, files_of_the_checkout
from .cluster import Cluster
from .nodes import CONTROL, LOGIN
from .progress import say, told
from .trouble import TroubleError

DRESS = "rehearsal_dress"
"""The variable of a site's rehearsal."""

DRESSES = "rehearsal/dress/"
MEANS = (
    "rehearsal/sources/cuda/", "rehearsal/sources/libfabric/",
    "rehearsal/__init__.py", "rehearsal/image_root.py", "rehearsal/install-apptainer",
)
"""What parts are made with, besides the files of the dresses: sources that stand before any release, and programs."""

TREES = ("/appl", "/opt/apptainer", "/opt/cirrus", "/opt/cray", "/opt/ncar", "/opt/nvidia", "/soft", "/work/y07")
LIBRARIES = "/usr/lib64/lib"
"""Directories, and the beginning of single files, that a dress may lay. See undress.sh."""

PARTS = " ".join((
    *TREES, LIBRARIES + "*", "/usr/local/bin/apptainer", "/usr/local/bin/singularity",
    "/etc/ld.so.conf.d/rehearsal-dress.conf", "/etc/lmod/modulespath.dressed",
))
"""All that belongs to one."""

LAYS = re.compile(r"(?:--|#) Lays: (\S+) (\S+)\n")
"""The line of a modulefile that names the part behind it, and its place by its version."""

SETS = {".lua": "setenv(%s, %s)\n", ".tcl": "setenv %s %s\n"}
"""How modulefiles set a variable, by their suffix. In Tcl the name of such a file is a version alone."""

INDEX = re.compile(r"^# Index: (\S+)$", re.MULTILINE)
"""The line of a lock that names where its wheels are, if pip is not set up for one that has them."""

INSTEAD = re.compile(r"^# Instead: (\S+), (.+)$", re.MULTILINE)
"""The line of a lock that names the lock to take where its own wheels cannot be had, and what that means."""

ONE_ATTEMPT = ("--timeout=10", "--retries=1")
"""Options of pip for an index that many machines cannot reach."""

WORN = "/etc/rehearsal-dress"
ARCHIVES = "/shared/dress"
KEPT = "/shared/dress-kept"
"""Where a part may keep what takes long to make, for the next time; all nodes see it."""

WHEELS = "/shared/home/rollout/.cache/rehearsal-wheels"
WORK = "/tmp/rehearsal-dress"
LAY = """
set -eu
archive=$1 releases=$2 kind=$3 kept=$4
shift 4
rm -rf "${archive%%/*}"
mkdir -p "${archive%%/*}" "$kept" %s/wheels
for fetched; do ln -s "$fetched"/*.whl %s/wheels; done
cd %s/rehearsal/dress/$kind
sh ./lay.sh %s/parts %s/rehearsal %s/wheels "$kept"
paths=/etc/lmod/modulespath
{ cat %s/trees; grep -v '^/etc/lmod/modules$' $paths; echo "$releases/modulefiles/lmod"; } > $paths.dressed
install -d -o rollout -g rollout "$releases"
tar -cf "$archive.new" -C / $(for part in %s; do if [ -e $part ]; then echo "${part#/}"; fi; done)
mv "$archive.new" "$archive"
rm -rf %s
""" % (WORK, WORK, WORK, WORK, WORK, WORK, WORK, PARTS, WORK)
"""Lays the dress on the login node, and archives it; further words are the directories of the wheels. The site's
modules take the place of the distribution's."""


def dress_of(hosts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The dress that a site's rehearsal asks for, among the variables of its hosts; empty where it asks for none.

    Raises:
        TroubleError: it asks for what there is not.
    """
    wanted: dict[str, Any] = next((known[DRESS] for known in hosts.values() if known.get(DRESS)), {})
    if not wanted:
        return {}
    kind = str(wanted.get("kind", ""))
    place = CHECKOUT / DRESSES / kind
    if not kind or not (place / "lay.sh").exists():
        raise TroubleError("%s has the kind '%s', which is none in %s." % (DRESS, kind, DRESSES))
    for path in [*wanted.get("modules", {}), *(part["place"] for part in wanted.get("parts", []))]:
        if not (path + "/").startswith((*(tree + "/" for tree in TREES), LIBRARIES)):
            raise TroubleError("%s names %s; put it below one of: %s" % (DRESS, path, " ".join(TREES)))
    known = _modulefiles(kind)
    for modules in wanted.get("modules", {}).values():
        for module in modules:
            name, _slash, version = module.rpartition("/")
            if name not in known or not version:
                raise TroubleError(
                    "%s names the module '%s'; it has to be name/version, with one of these names: %s"
                    % (DRESS, module, ", ".join(known))
                )
    return wanted


def dress(cluster: Cluster, wanted: Mapping[str, Any]) -> bool:
    """Have the nodes wear a dress, or none; whether anything had to be done.

    Args:
        cluster: it is up, with the checkout and its environment on the login node.
        wanted: from :func:`dress_of`.

    Raises:
        TroubleError: it could not be laid.
    """
    name = "%s-%s" % (wanted["kind"], _digest(wanted)) if wanted else ""
    nodes = [node for node in cluster.names.nodes if node != CONTROL]
    wrong = [node for node in nodes if cluster.execute(node, "cat", WORN).stdout.decode().strip() != name]
    if not wrong:
        return False
    with told("Dressing %s as %s" % (", ".join(wrong), name or "what they are")):
        archive = "%s/%s.tar" % (ARCHIVES, name)
        for node in wrong:
            _run(cluster, "sh", "-s", node=node, data=(CHECKOUT / DRESSES / "undress.sh").read_bytes())
        if wanted and cluster.execute(LOGIN, "test", "-e", archive).returncode != 0:
            _lay(cluster, wanted, archive)
        for node in wrong if wanted else []:
            _run(cluster, "sh", "-s", archive, name, node=node, data=(CHECKOUT / DRESSES / "put-on.sh").read_bytes())
        cluster.execute(LOGIN, "rehearsal-module-cache", user="rollout")
    return True


def _lay(cluster: Cluster, wanted: Mapping[str, Any], archive: str) -> None:
    """Make the dress on the login node, and its archive for all nodes."""
    kind = wanted["kind"]
    locks = sorted((CHECKOUT / DRESSES / kind).glob("*.txt"))
    wheels = [fetch(cluster, lock.relative_to(CHECKOUT)) for lock in locks]
    modulefiles, parts = rendered(wanted)
    _run(cluster, "sh", "-c", "echo unfinished > " + WORN)
    lists = {"parts": "".join(line + "\n" for line in parts)}
    lists["trees"] = "".join(tree + "\n" for tree in wanted.get("modules", {}))
    _unpack(cluster, WORK, _files_to_lay())
    _unpack(cluster, WORK, archive_of(lists))
    _unpack(cluster, "/", archive_of(modulefiles))
    _run(cluster, "sh", "-c", LAY, "lay", archive, wanted["releases"], kind, KEPT, *wheels)


def fetch(cluster: Cluster, lock: pathlib.Path) -> str:
    """Have the wheels of a lock on the login node: from where pip looks, or from where the lock says.

    Args:
        cluster: it is up, with the checkout and its environment on the login node.
        lock: its path in the checkout.

    Returns:
        The directory that has them, and nothing else: those of the lock, or of the one to take instead.

    Raises:
        TroubleError: they cannot be had.
    """
    text = (CHECKOUT / lock).read_text()
    index, instead = INDEX.search(text), INSTEAD.search(text)
    place = "%s/%s" % (WHEELS, hashlib.sha256(text.encode()).hexdigest()[:12])
    words = [
        PLACE + "/.venv/bin/pip", "download", "--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-deps",
        "--only-binary=:all:", "--require-hashes", "--dest=" + place, "--requirement=%s/%s" % (PLACE, lock),
    ]
    fetched = cluster.execute(LOGIN, *words, user="rollout")
    if fetched.returncode != 0 and index:
        fetched = cluster.execute(LOGIN, *words, "--index-url=" + index[1], *ONE_ATTEMPT, user="rollout")
    if fetched.returncode == 0:
        return place
    if instead:
        nowhere = "neither where pip looks nor at " + index[1] if index else "not where pip looks"
        say("   The wheels of %s are to be had %s. Taking %s: %s" % (lock, nowhere, instead[1], instead[2]))
        return fetch(cluster, lock.with_name(instead[1]))
    complaint = fetched.stderr.decode(errors="replace").strip()
    raise TroubleError("The wheels of %s, a part of the dress, cannot be fetched: %s" % (lock, complaint))


def _files_to_lay() -> bytes:
    """An archive of what dresses are laid from."""
    stream = io.BytesIO()
    write_archive(stream, CHECKOUT, _names_to_lay())
    return stream.getvalue()


def _names_to_lay() -> list[str]:
    return [name for name in files_of_the_checkout() if name.startswith((DRESSES, *MEANS))]


def rendered(wanted: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """What the site's data make of the modules of the dress.

    Returns:
        The modulefiles by path, relative to the root, and the parts to be laid: those that modules name, and those
        that the data name besides, each as its name, version and place.
    """
    texts, parts, files = {}, [], _modulefiles(wanted["kind"])
    for tree, modules in wanted.get("modules", {}).items():
        for module in modules:
            name, _slash, version = module.rpartition("/")
            file = files[name]
            text = file.read_text()
            for key, value in wanted.get("variables", {}).get(name, {}).items():
                text += SETS[file.suffix] % (json.dumps(key), json.dumps(str(value)))
            lays = LAYS.search(text)
            if lays:
                place = lays[2].replace("{version}", version)
                parts.append("%s %s %s" % (lays[1], version, place))
                text = LAYS.sub("", text).replace("{place}", place)
            texts["%s/%s%s" % (tree.strip("/"), module, file.suffix.replace(".tcl", ""))] = text
    parts += ["%s %s %s" % (part["part"], part.get("version", "-"), part["place"]) for part in wanted.get("parts", [])]
    return texts, list(dict.fromkeys(parts))


def _modulefiles(kind: str) -> dict[str, pathlib.Path]:
    """What the modules of a kind of dress are rendered from, by their names without versions."""
    place = CHECKOUT / DRESSES / kind / "modules"
    files = sorted(file for suffix in SETS for file in place.rglob("*" + suffix))
    return {str(file.relative_to(place).with_suffix("")): file for file in files}


def _digest(wanted: Mapping[str, Any]) -> str:
    """A digest of the dress and of all that it is laid from."""
    digest = hashlib.sha256(json.dumps([wanted, LAY], sort_keys=True).encode())
    for name in _names_to_lay():
        digest.update(name.encode() + hashlib.sha256((CHECKOUT / name).read_bytes()).digest())
    return digest.hexdigest()[:12]


def _unpack(cluster: Cluster, place: str, archive: bytes) -> None:
    _run(cluster, "sh", "-c", 'mkdir -p "$1" && tar -xf - -C "$1"', "unpack", place, data=archive)


def _run(cluster: Cluster, *words: str, node: str = LOGIN, data: bytes = b"") -> None:
    """Run a command on a node as root; its last lines are in the error where it fails."""
    done = cluster.podman.run("exec", "--interactive", cluster.names.container(node), *words, data=data)
    if done.returncode != 0:
        last = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines()[-10:]
        raise TroubleError("The dress cannot be put on %s:\n  %s" % (node, "\n  ".join(last)))
