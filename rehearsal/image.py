# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The image of a node, made from the distribution's own packages; no image registry takes part."""

from __future__ import annotations

import hashlib
import os
import pathlib
import shlex
import subprocess
import tempfile

from . import distribution
from .archives import write_archive
from .distribution import SUITE
from .podman import INSTALL, Podman, find_program
from .progress import told
from .trouble import TroubleError

RECIPE = pathlib.Path(__file__).resolve().parent / "image"
"""What all nodes have; below it, in a directory of each, what those of a batch system have besides."""

COMMON = ("packages", "finish.sh", "files")
REPOSITORY = "localhost/torchstack-rehearsal"
WITHOUT = (
    *("/usr/share/%s/*" % name for name in ("man", "doc", "locale", "info")),
    "/usr/bin/*-lto-dump-*",
)
"""What is left out of the packages, as nobody reads it there."""

NO_MODE = "unable to pick chroot mode"
"""What mmdebstrap says to an account that it cannot make a user namespace for."""

NO_NAMESPACE = (
    "This account can have no user namespace: give it a range of subordinate ids (usermod --add-subuids 100000-165535 "
    "--add-subgids 100000-165535 NAME, with numbers that nobody else has there), or run this as root."
)
NO_ARCHIVE = "It needs the distribution's package archive; REHEARSAL_ARCHIVE names another address of it."

BEFORE = "before"
"""The directory of settings that have to be there before their packages: MariaDB's makes a database when it is
installed, with a journal of 100 MB by default."""


def packages(system: str) -> list[str]:
    """The packages of the recipe for a batch system."""
    lines = [line for top in (RECIPE, RECIPE / system) for line in (top / "packages").read_text().splitlines()]
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def recipe_digest(system: str) -> str:
    """The sha256 of all that decides what the image holds; the distribution's updates excepted."""
    digest = hashlib.sha256(("%s\n%s\n" % (SUITE, " ".join(WITHOUT))).encode())
    tops = (*COMMON, system)
    for path in sorted(
        path for path in RECIPE.rglob("*") if path.relative_to(RECIPE).parts[0] in tops and path.is_file()
    ):
        digest.update(("%s\n" % path.relative_to(RECIPE)).encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def image_name(system: str) -> str:
    """The image's name, which carries the batch system and the digest of its recipe."""
    return "%s-%s:%s" % (REPOSITORY, system, recipe_digest(system)[:12])


def ensure_image(podman: Podman, system: str) -> str:
    """Make the image for a batch system where it is not there yet, in place of those of earlier recipes; its name."""
    name = image_name(system)
    if not podman.exists("image", name):
        with told("Making the image of the nodes (%s, %d packages; once)" % (SUITE, len(packages(system)))):
            make_image(podman, name, system)
        remove_images(podman, "-" + system, keep=name)
    return name


def make_image(podman: Podman, name: str, system: str) -> None:
    """Unpack the packages into a system and import it.

    mmdebstrap works with the caller's rights: as root it changes into the new system, as anybody else it does so in a
    user namespace of its own.
    """
    with tempfile.TemporaryFile() as made, tempfile.TemporaryFile() as words, tempfile.TemporaryDirectory() as place:
        for number, top in enumerate((RECIPE, RECIPE / system)):
            with open("%s/%d.tar" % (place, number), "wb") as files:
                write_archive(files, top / "files")
        process = subprocess.run(
            _bootstrap(system, place), cwd="/", stdin=subprocess.DEVNULL, stdout=made, stderr=words, check=False
        )
        if process.returncode != 0:
            words.seek(0)
            last = words.read().decode(errors="replace").strip().splitlines()[-15:]
            remedy = NO_NAMESPACE if any(NO_MODE in line for line in last) else NO_ARCHIVE
            raise TroubleError(
                "mmdebstrap could not make a system of %s:\n  %s\n%s" % (SUITE, "\n  ".join(last), remedy)
            )
        made.seek(0)
        podman.ask("import", "--change=CMD [\"/sbin/init\"]", "--change=STOPSIGNAL SIGRTMIN+3", "-", name, source=made)


def _bootstrap(system: str, place: str) -> list[str]:
    """The words of the mmdebstrap command.

    Args:
        system: the batch system.
        place: a directory with archives of the files that are laid over the packages, ``0.tar`` and ``1.tar``.
    """
    if os.geteuid() != 0:
        find_program("newuidmap", INSTALL)  # what a user namespace is made with
    archive = os.environ.get("REHEARSAL_ARCHIVE", "")
    apt = ['Acquire::Languages "none"', *distribution.settings()]
    return [
        find_program("mmdebstrap", INSTALL),
        "--quiet",
        "--variant=apt",
        "--include=" + ",".join(packages(system)),
        # What a failing machine would lose is made again.
        "--dpkgopt=force-unsafe-io",
        *("--dpkgopt=path-exclude=" + pattern for pattern in WITHOUT),
        *("--aptopt=" + setting for setting in apt),
        *_before(RECIPE / system / BEFORE),
        *_finish(place + "/0.tar", RECIPE / "finish.sh"),
        *_finish(place + "/1.tar", RECIPE / system / "finish.sh"),
        SUITE,
        "-",
        *([archive] if archive else distribution.sources()),
    ]


def _before(top: pathlib.Path) -> list[str]:
    """Options of mmdebstrap that lay files before the packages are installed."""
    hooks = []
    for path in sorted(path for path in top.rglob("*") if path.is_file()):
        there = path.relative_to(top)
        hooks.append("--essential-hook=mkdir -p \"$1/%s\"" % there.parent)
        hooks.append("--essential-hook=upload %s /%s" % (shlex.quote(str(path)), there))
    return hooks


def _finish(files: str, program: pathlib.Path) -> list[str]:
    """Options of mmdebstrap that lay an archive over the packages, and run a program of the recipe in the system."""
    return [
        "--customize-hook=tar-in %s /" % shlex.quote(files),
        "--customize-hook=upload %s /tmp/finish.sh" % shlex.quote(str(program)),
        '--customize-hook=chroot "$1" sh /tmp/finish.sh',
        '--customize-hook=rm "$1/tmp/finish.sh"',
    ]


def remove_images(podman: Podman, which: str = "*", keep: str = "") -> None:
    """Remove the images of all recipes, but for one of them and those that a container is made from.

    Args:
        podman: how podman is run here.
        which: a pattern for what follows :data:`REPOSITORY` in their names.
        keep: the one to keep.
    """
    pattern = "--filter=reference=%s%s" % (REPOSITORY, which)
    for name in podman.ask("images", "--format={{.Repository}}:{{.Tag}}", pattern).split():
        if name != keep:
            podman.run("rmi", name)
