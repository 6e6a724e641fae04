# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Sixty patches that build on each other: one task of patch_series, beside a loop of ansible.posix.patch."""

from __future__ import annotations

import difflib
import hashlib
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

import wheels
from measuring import UnavailableError, alternate
from plays import CHECKOUT, play, run
from table import Goal, Kind, Outcome, Row, seconds

PATCHES = 60
FILES = 12
LINES = 300
ROUNDS = 3
LOCK = CHECKOUT / "requirements" / "bench-peer.txt"
PEER = "ansible_collections/ansible/posix/"


def peer_collections(cache: pathlib.Path) -> pathlib.Path:
    """A collections path with ansible.posix, out of the locked wheel that carries it; made once."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    place = cache / ("collections-" + digest)
    if place.is_dir():
        return place
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        wheels.fetch("download", LOCK, "--dest", scratch)
        unpacked = pathlib.Path(scratch) / "collections"
        for wheel in pathlib.Path(scratch).glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(unpacked, [name for name in archive.namelist() if name.startswith(PEER)])
        unpacked.rename(place)
    return place


def blob(text: str) -> str:
    """The id of git's blob with this content."""
    content = text.encode()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def write_series(tree: pathlib.Path, series: pathlib.Path) -> None:
    """Write a tree and the patches for it, each of which changes one file at three places and adds a line.

    The next patch of a file changes the lines beside those, so that it fits only after the one before it. All name the
    blobs that they were made for, as `git diff` does.
    """
    tree.mkdir()
    series.mkdir()
    names = ["source%02d.cc" % number for number in range(FILES)]
    texts = {name: ["int value_%d = %d;\n" % (line, line) for line in range(LINES)] for name in names}
    for name, lines in texts.items():
        (tree / name).write_text("".join(lines))
    for number in range(PATCHES):
        name = names[number % FILES]
        before = list(texts[name])
        for third in range(3):
            line = third * LINES // 3 + number // FILES
            texts[name][line] = "int value_%d = %d; // patch %d\n" % (line, line, number)
        texts[name].insert(0, "int added_by_%d;\n" % number)
        ids = blob("".join(before)), blob("".join(texts[name]))
        difference = difflib.unified_diff(before, texts[name], "a/" + name, "b/" + name)
        head = "diff --git a/{0} b/{0}\nindex {1}..{2} 100644\n".format(name, *ids)
        (series / ("%04d-change.patch" % number)).write_text(head + "".join(difference))


class Comparison:
    """The three ways to apply the series, each on a fresh copy of the tree."""

    def __init__(self, scratch: pathlib.Path, collections: pathlib.Path) -> None:
        """Write the series, and the playbooks with the two tasks and with none of them, into ``scratch``."""
        self.pristine, self.series = scratch / "pristine", scratch / "series"
        self.tree, self.state = scratch / "tree", scratch / "state"
        self.results: dict[str, dict[str, bytes]] = {}
        write_series(self.pristine, self.series)
        self.names = sorted(map(str, self.series.iterdir()))
        own = pathlib.Path(sys.prefix) / "collections"
        self.environment = {"ANSIBLE_COLLECTIONS_PATH": "%s:%s" % (own, collections)}
        tasks: dict[str, dict[str, object]] = {
            "loop": {
                "ansible.posix.patch": {"src": "{{ item }}", "basedir": str(self.tree), "strip": 1, "remote_src": True},
                "loop": self.names,
            },
            "series": {
                "hpcml.torchstack.patch_series": {
                    "src": str(self.tree), "series": str(self.series), "state_dir": str(self.state),
                },
            },
            "empty": {"ansible.builtin.stat": {"path": str(self.tree)}},
        }
        self.playbooks = {name: scratch / (name + ".yml") for name in tasks}
        for name, task in tasks.items():
            self.playbooks[name].write_text(play(name, [task]))

    def prepare(self) -> None:
        """A fresh copy of the tree, and no state."""
        for place in (self.tree, self.state):
            shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.pristine, self.tree)

    def keep(self, name: str) -> None:
        """Remember what the tree holds now."""
        self.results[name] = {path.name: path.read_bytes() for path in self.tree.iterdir()}

    def playbook(self, name: str) -> float:
        """Wall time of a playbook, in seconds."""
        self.prepare()
        took = run(self.playbooks[name], self.environment)[0]
        self.keep(name)
        return took

    def shell(self) -> float:
        """Wall time of GNU patch in a loop of the shell, in seconds."""
        self.prepare()
        begun = time.monotonic()
        subprocess.run(
            ["sh", "-c", 'for patch; do patch -s -p1 < "$patch" || exit 1; done', "sh", *self.names],
            cwd=self.tree, check=True,
        )
        took = time.monotonic() - begun
        self.keep("shell")
        return took


def compare(cache: pathlib.Path) -> Outcome:
    """The row, without what a playbook takes that does nothing, and GNU patch alone beside it."""
    if not shutil.which("patch"):
        raise UnavailableError("there is no GNU patch on PATH, which ansible.posix.patch calls")
    collections = peer_collections(cache)
    with tempfile.TemporaryDirectory() as scratch:
        comparison = Comparison(pathlib.Path(scratch), collections)
        medians = alternate(
            {
                "loop": lambda: comparison.playbook("loop"),
                "empty": lambda: comparison.playbook("empty"),
                "series": lambda: comparison.playbook("series"),
                "shell": comparison.shell,
            },
            ROUNDS,
        )
        if not comparison.results["loop"] == comparison.results["series"] == comparison.results["shell"]:
            raise RuntimeError("patch_series, ansible.posix.patch and GNU patch left different files")
    row = Row(
        "patch_series, %d patches" % PATCHES, "loop of ansible.posix.patch", medians["loop"], medians["series"],
        medians["empty"], Goal(Kind.FASTER, 10), within=True,
    )
    note = (
        "patch_series: both are whole runs of ansible-playbook; one with a single stat task shows the overhead. "
        "GNU patch alone, in a loop of the shell, takes %s. All three leave the same bytes." % seconds(medians["shell"])
    )
    return Outcome([row], [note])
