# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Operations on one root at once, in random orders of their changes, and killed in between."""

from __future__ import annotations

import os
import pathlib
import random
import shutil
import subprocess
import tempfile
from typing import Any, Callable, Sequence

from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import thaw, thaw_release
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.layout import (
    SYNTAXES,
    read_bytes,
    relative_path,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.visible_text import read_added
from ansible_collections.hpcml.torchstack.plugins.module_utils.release.states import all_releases, default_of
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import manifest
from ansible_collections.hpcml.torchstack.plugins.modules import modulefile_publish, release_retire

from . import published_release
from .interleaving import Actor

PUBLISH = {
    "release": "2", "state": "published", "visible": False, "default": False, "notice": "", "known_problems": None,
    "revive": False, "first_only": False, "module": published_release.NAME, "subject": "", "without_acceptance": "",
    "reason": "", "allowed_signers": None, "module_system": "auto", "partitions": None,
}
"""What the module modulefile_publish gets of Ansible, but for the root."""

FREE: dict = {
    "host": "h", "in_use": False, "process_count": 0, "processes": [], "held_count": 0, "held": [], "unseen": []}
BUSY = dict(FREE, in_use=True, held_count=1, held=["/soft/x"])
RETIRE = {
    "to": None, "minimum_age": 0, "notice_days": 0, "uses": [], "unseen": "", "reason": "", "successor": "",
    "until": "", "notice": ""}


class Module:
    """What the module gets of Ansible."""

    check_mode = False

    def __init__(self, params: dict) -> None:
        self.params = params

    def warn(self, text: str) -> None:
        """Nobody reads it."""


def publish(root: str, release: str, **wanted: Any) -> Any:
    """Run the module."""
    return modulefile_publish.run(Module(dict(PUBLISH, root=root, release=release, **wanted)))


def retire(root: str, release: str, state: str, **more: Any) -> Any:
    """Run the module."""
    return release_retire.retire(dict(RETIRE, root=root, release=release, state=state, **more), True)


def remove(root: str, release: str, uses: dict = FREE) -> Any:
    """What the playbook does, each part by a process of its own, but for the removal of the files themselves."""
    judged = retire(root, release, "judged", to="removed", uses=[FREE])
    if judged["seen"]:
        publish(root, release, state="gone", notice=judged["notice"])
    retire(root, release, "aside")
    done = retire(root, release, "deleting", uses=[uses])
    if not done["put_back"]:
        for path in done["trees"]:
            subprocess.run(["chmod", "-R", "u+w", path], stderr=subprocess.DEVNULL, check=False)
            subprocess.run(["rm", "-rf", path], check=False)
        retire(root, release, "removed")
    return done["put_back"]


def thawed(root: str, release: str, state: str) -> Any:
    """Thaw, or freeze again."""
    request = thaw_release.Request(root, release, state, paths=["lib"], reason="a fix", python="")
    return thaw.carry_out(request, True)["open"]


OPERATIONS: dict = {
    "default": lambda root, release: publish(root, release, visible=True, default=True),
    "roll back": lambda root, release: publish(root, "", state="rolled_back"),
    "hide": lambda root, release: publish(root, release, state="hidden", notice="It goes."),
    "remove": remove,
    "remove one in use": lambda root, release: remove(root, release, BUSY),
    "thaw": lambda root, release: thawed(root, release, "open"),
    "thaw and freeze": lambda root, release: (thawed(root, release, "open"), thawed(root, release, "refrozen")),
}


def make_kept(place: pathlib.Path) -> pathlib.Path:
    """Three releases below a root: r1 is the default, r2 was accepted and never published, r3 is visible."""
    memory = pathlib.Path("/dev/shm")
    top = pathlib.Path(tempfile.mkdtemp(prefix="torchstack-root-", dir=memory if os.access(memory, os.W_OK) else place))
    root = top / "kept"
    for release in ("r1", "r2", "r3"):
        published_release.stage(root, release)
        (root / release / "lib").mkdir()
        (root / release / "lib" / "libx.so").write_text("x")
        subprocess.run(["chmod", "-R", "a-w", str(root / release)], check=True)
        record = str(root / release / ".torchstack" / "manifest.json")
        done = manifest.record(manifest.Request(str(root / release), str(root), record), True)
        published_release.record_manifest(root, release, done)
    published_release.change(root, "r3")
    published_release.change(root, "r1", default=True)
    return root


def clear(top: pathlib.Path) -> None:
    """Remove a root, or what holds some."""
    subprocess.run(["chmod", "-R", "u+rwX", str(top)], check=True)
    shutil.rmtree(str(top))


def broken(root: str) -> str:
    """What is wrong with what users get who load the module without a version."""
    for syntax in SYNTAXES:
        version = default_of(root, syntax, published_release.NAME)
        if not version:
            continue
        content = read_bytes(os.path.join(root, relative_path(syntax, published_release.NAME, version)))
        if content is None or read_added(content).gone:
            return "%s's default %s does not load" % (syntax, version)
        if not os.path.exists(os.path.join(root, version, "lib", "libx.so")):
            return "%s's default %s has no files" % (syntax, version)
    return ""


def play(
    kept: pathlib.Path, several: Sequence[str], seed: object, root: pathlib.Path,
    begin: Callable[[], object] = lambda: None,
) -> list[tuple[str, str]]:
    """Run operations on a copy of the root, ``begin`` before them, in the order of a random number; what went on."""
    shutil.copytree(str(kept), str(root), symlinks=True)
    begin()
    chance = random.Random(str(seed))
    kills = chance.randrange(3) if chance.random() < 0.3 else 0
    actors = []
    for name in several:
        release = chance.choice(("r2", "r2", "r2", "r3"))
        actors.append(Actor("%s %s" % (name, release), lambda n=name, r=release: OPERATIONS[n](str(root), r)))
    told = []
    while any(actor.status is None for actor in actors):
        actor = chance.choice([actor for actor in actors if actor.status is None])
        if kills and chance.random() < 0.02:
            kills -= 1
            actor.kill()
            told.append("killed " + actor.name)
        else:
            # Several changes at once, so that not all take turns at each.
            for _time in range(chance.choice((1, 1, 3, 20))):
                if actor.status is None:
                    actor.step()
                    told.append(actor.name)
                    assert not broken(str(root)), "seed %r: %s, after %s" % (seed, broken(str(root)), told)
    for actor in actors:
        ended = actor.status == -0 or "StackError" in actor.answer or "killed " + actor.name in told
        assert ended, "seed %r: %s ended with %s: %s" % (seed, actor.name, actor.status, actor.answer)
    for state in all_releases(str(root), removed=True):
        going = (state.retired or {}).get("state") in ("removing", "removed")
        assert not (going and state.thawed), "seed %r: %s is thawed and removed" % (seed, state.release)
        shown = [syntax for syntax in SYNTAXES if state.visible[syntax] or state.default[syntax]]
        assert not (going and shown), "seed %r: %s is shown and removed, after %s" % (seed, state.release, told)
    return [(actor.name, actor.answer) for actor in actors]
