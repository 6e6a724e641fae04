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

DATABASE = "/etc/mysql/mariadb.conf.d"
DATABASE_SETTINGS = DATABASE + "/90-rehearsal.cnf"
"""Laid down before its package, which makes the database when it is installed: with a journal of 100 MB by default."""


def packages() -> list[str]:
    """The packages of the recipe."""
    lines = (RECIPE / "packages").read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def recipe_digest() -> str:
    """The sha256 of all that decides what the image holds; the distribution's updates excepted."""
    digest = hashlib.sha256(("%s\n%s\n" % (SUITE, " ".join(WITHOUT))).encode())
    for path in sorted(path for path in RECIPE.rglob("*") if path.is_file()):
        digest.update(("%s\n" % path.relative_to(RECIPE)).encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def image_name() -> str:
    """The image's name, which carries the digest of its recipe."""
    return "%s:%s" % (REPOSITORY, recipe_digest()[:12])


def ensure_image(podman: Podman) -> str:
    """Make the image where it is not there yet, in place of those of earlier recipes; its name."""
    name = image_name()
    if not podman.exists("image", name):
        with told("Making the image of the nodes (%s, %d packages; once)" % (SUITE, len(packages()))):
            make_image(podman, name)
        remove_images(podman, keep=name)
    return name


def make_image(podman: Podman, name: str) -> None:
    """Unpack the packages into a system and import it.

    mmdebstrap works with the caller's rights: as root it changes into the new system, as anybody else it does so in a
    user namespace of its own.
    """
    with tempfile.TemporaryFile() as system, tempfile.TemporaryFile() as words, tempfile.NamedTemporaryFile() as files:
        write_archive(files, RECIPE / "files")
        files.flush()
        process = subprocess.run(
            _bootstrap(files.name), cwd="/", stdin=subprocess.DEVNULL, stdout=system, stderr=words, check=False
        )
        if process.returncode != 0:
            words.seek(0)
            last = words.read().decode(errors="replace").strip().splitlines()[-15:]
            remedy = NO_NAMESPACE if any(NO_MODE in line for line in last) else NO_ARCHIVE
            raise TroubleError(
                "mmdebstrap could not make a system of %s:\n  %s\n%s" % (SUITE, "\n  ".join(last), remedy)
            )
        system.seek(0)
        podman.ask(
            "import", "--change=CMD [\"/sbin/init\"]", "--change=STOPSIGNAL SIGRTMIN+3", "-", name, source=system
        )


def _bootstrap(files: str) -> list[str]:
    """The words of the mmdebstrap command, with an archive of the files that are laid over the packages."""
    if os.geteuid() != 0:
        find_program("newuidmap", INSTALL)  # what a user namespace is made with
    archive = os.environ.get("REHEARSAL_ARCHIVE", "")
    apt = ['Acquire::Languages "none"', *distribution.settings()]
    return [
        find_program("mmdebstrap", INSTALL),
        "--quiet",
        "--variant=apt",
        "--include=" + ",".join(packages()),
        # What a failing machine would lose is made again.
        "--dpkgopt=force-unsafe-io",
        *("--dpkgopt=path-exclude=" + pattern for pattern in WITHOUT),
        *("--aptopt=" + setting for setting in apt),
        "--essential-hook=mkdir -p \"$1%s\"" % DATABASE,
        "--essential-hook=upload %s %s" % (_quoted("files" + DATABASE_SETTINGS), DATABASE_SETTINGS),
        "--customize-hook=tar-in %s /" % shlex.quote(files),
        "--customize-hook=upload %s /tmp/finish.sh" % _quoted("finish.sh"),
        '--customize-hook=chroot "$1" sh /tmp/finish.sh',
        '--customize-hook=rm "$1/tmp/finish.sh"',
        SUITE,
        "-",
        *([archive] if archive else distribution.sources()),
    ]


def _quoted(name: str) -> str:
    """The path of a file of the recipe, as a word of a hook."""
    return shlex.quote(str(RECIPE / name))


def remove_images(podman: Podman, keep: str = "") -> None:
    """Remove the images of all recipes, but for one of them and those that a container is made from."""
    for name in podman.ask("images", "--format={{.Repository}}:{{.Tag}}", REPOSITORY).split():
        if name != keep:
            podman.run("rmi", name)
