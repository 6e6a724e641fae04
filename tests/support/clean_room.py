# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Systems that have nothing but the README's prerequisites, and a new account in each.

Made by an ordinary account from the distribution's own packages, entered through name spaces, with the network of this
machine. By hand: `python3 tests/support/clean_room.py SUITE DIR` makes one and opens a shell of the new account in it;
`... SUITE DIRECTORY COMMAND` runs a command there. A directory that is there already is entered again.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import NamedTuple

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "tests")]

import index_settings
from support import debian_archive

from rehearsal import distribution

KEPT = pathlib.Path(os.environ.get("TORCHSTACK_ROOMS") or CHECKOUT / ".cache" / "rooms")
"""What is kept between runs: the systems as archives, and what pip has fetched."""

ACCOUNT = "newcomer"
HOME = "/home/" + ACCOUNT
COPY = HOME + "/hpcml.torchstack"
"""The checkout as the account has it."""

FETCHED = HOME + "/.cache/pip"

PREREQUISITES = ("g++", "git", "make", "python3", "python3-dev", "python3-venv")
"""What the README asks for, as packages."""
INDEX = ("ca-certificates",)
"""What pip reaches an index with."""
CERTIFICATES = "/etc/ssl/index.pem"
UNREAD = ("man", "doc", "locale")

NAMESPACE = ("unshare", "--user", "--map-auto", "--map-root-user")
OWN = ("--mount", "--pid", "--ipc", "--fork", "--kill-child")
NEEDED = {"mmdebstrap": "mmdebstrap", "newuidmap": "uidmap", "unshare": "util-linux"}
PROXIES = tuple(prefix + "_proxy" for prefix in ("http", "https", "no", "HTTP", "HTTPS", "NO"))

BROKEN_NVCC = """\
#!/bin/sh
# A compiler that is left over: it tells its version, and there is nothing else of its toolkit.
echo 'nvcc: NVIDIA (R) Cuda compiler driver'
echo 'Cuda compilation tools, release 13.0, V13.0.88'
case " $* " in *" --version "* | *" -V "*) exit 0 ;; esac
echo 'nvcc fatal   : Could not open the toolkit' >&2
exit 1
"""


COMPILER = """\
#!/bin/sh
# How fast Horovod is matters to nobody here, and most of its compilation is optimising.
exec "/usr/bin/${0##*/}" "$@" -O0
"""
HASTY = {"/usr/local/bin/" + name: COMPILER for name in ("cc", "c++", "gcc", "g++")}


class Recipe(NamedTuple):
    """What a room is made of.

    Args:
        suite: the release of Debian.
        further: packages besides the prerequisites.
        programs: texts of programs by their path.
        unreachable: names of hosts that are not found from inside.
    """

    suite: str
    further: tuple[str, ...] = ()
    programs: Mapping[str, str] = {}
    unreachable: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """The command that makes the system, but for what is this machine's own."""
        packages = (*PREREQUISITES, *INDEX, *self.further)
        return [
            "mmdebstrap", "--quiet", "--mode=unshare", "--variant=minbase", "--include=" + ",".join(packages),
            "--dpkgopt=force-unsafe-io", *("--dpkgopt=path-exclude=/usr/share/%s/*" % name for name in UNREAD),
            '--customize-hook=chroot "$1" useradd --create-home --shell /bin/bash ' + ACCOUNT,
            self.suite, "-",
        ]


def lacking() -> str:
    """Why this account can make no room here; empty where it can."""
    missing = sorted({package for program, package in NEEDED.items() if not shutil.which(program)})
    if missing:
        return "not installed: " + ", ".join(missing)
    if not os.path.exists(debian_archive.KEYS):
        return "not installed: debian-archive-keyring"
    # In a container processes are often kept from mounting.
    probe = [*NAMESPACE, *OWN, "mount", "-t", "proc", "proc", "/proc"]
    asked = subprocess.run(probe, capture_output=True, text=True, check=False)
    return "no name spaces with further accounts: " + asked.stderr.strip() if asked.returncode else ""


class Room:
    """A system in a directory.

    Args:
        recipe: what it is made of.
        place: a directory; what is there is the room, already made.
    """

    def __init__(self, recipe: Recipe, place: pathlib.Path):
        self.recipe = recipe
        self.place = place
        self.root = place / "root"
        self.fetched = KEPT / "fetched"

    def make(self) -> None:
        """Unpack the system, and give the new account a copy of the checkout and a way to an index."""
        archive = archived(self.recipe)
        self.root.mkdir(parents=True)
        subprocess.run([*NAMESPACE, "tar", "-xf", archive, "--exclude=./dev/*", "-C", self.root], check=True)
        etc = self.root / "etc"
        for name in ("resolv.conf", "hosts"):
            shutil.copyfile("/etc/" + name, etc / name)
        with open(etc / "hosts", "a") as stream:
            stream.writelines("127.0.0.1 %s\n" % name for name in self.recipe.unreachable)
        (etc / "pip.conf").write_text(self._index_settings())
        for path, text in self.recipe.programs.items():
            (self.root / path.lstrip("/")).write_text(text)
            (self.root / path.lstrip("/")).chmod(0o755)
        subprocess.run(
            ["git", "clone", "--quiet", "--no-hardlinks", CHECKOUT, self.root / "srv" / "checkout"], check=True
        )
        prepare = "mv /srv/checkout %s; mkdir -p %s; chown -R %s: %s" % (COPY, FETCHED, ACCOUNT, HOME)
        self.enter(["bash", "-ec", prepare]).check_returncode()

    def _index_settings(self) -> str:
        """This account's way to an index, with the certificates that it goes by."""
        lines = index_settings.of_this_account().splitlines()
        for number, line in enumerate(lines):
            key, _equals, value = line.partition(" = ")
            if key == "cert":
                shutil.copyfile(value, self.root / CERTIFICATES.lstrip("/"))
                lines[number] = "cert = " + CERTIFICATES
        return "\n".join([*lines, ""])

    def enter(self, words, **options) -> subprocess.CompletedProcess[str]:
        """Run a command as the room's root."""
        inside = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        inside.update((name, os.environ[name]) for name in (*PROXIES, "TERM") if name in os.environ)
        return subprocess.run(
            [*NAMESPACE, *OWN, CHECKOUT / "tests" / "enter-room", self.root, *words],
            env={**inside, **options.pop("more", {})}, text=True, check=False, **options,
        )

    def run(self, script: str, **options) -> subprocess.CompletedProcess[str]:
        """Run commands as the new account types them, in a shell that it has logged in with.

        What its pip fetches is kept for the next room.
        """
        kept = self.fetched / self.recipe.suite
        kept.mkdir(parents=True, exist_ok=True)
        login = ["su", "--whitelist-environment=" + ",".join(PROXIES), "-", ACCOUNT, "-c", script]
        # Afterwards it is of an account that this machine knows, which can remove it.
        both = 'chown -R "$0": "$1" && shift && { "$@"; code=$?; chown -R root: %s; exit $code; }' % FETCHED
        more = {"ROOM_KEEPS": "%s:%s" % (kept, FETCHED)}
        return self.enter(["bash", "-c", both, ACCOUNT, FETCHED, *login], more=more, **options)

    def remove(self) -> None:
        """Remove the room; as its files have owners of the name space, from inside one."""
        subprocess.run([*NAMESPACE, "rm", "-rf", self.place], check=True)


def archived(recipe: Recipe) -> pathlib.Path:
    """The system as an archive, made where there is none of this recipe."""
    words = recipe.words()
    digest = hashlib.sha256("\0".join(words).encode()).hexdigest()[:12]
    archive = KEPT / ("%s-%s.tar" % (recipe.suite, digest))
    if not archive.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        for old in KEPT.glob(recipe.suite + "-*.tar"):
            old.unlink()
        part = archive.with_suffix(".part")
        # Without an archive that this machine's apt knows, mmdebstrap takes the usual one.
        mirror = debian_archive.mirror()
        source = ["deb %s %s main" % (mirror, recipe.suite)] if mirror else []
        with open(part, "wb") as stream:
            apt = ["--aptopt=" + line for line in ('Acquire::Languages "none"', *distribution.settings())]
            subprocess.run([*words[:1], *apt, *words[1:], *source], cwd="/", stdout=stream, check=True)
        part.rename(archive)
    return archive


LMOD = Recipe("bookworm", further=("lmod",), programs=HASTY)
BROKEN_TOOLKIT = Recipe("trixie", programs={**HASTY, "/usr/local/bin/nvcc": BROKEN_NVCC})

if __name__ == "__main__":
    recipe = next(recipe for recipe in (LMOD, BROKEN_TOOLKIT) if recipe.suite == sys.argv[1])
    room = Room(recipe, pathlib.Path(sys.argv[2]).absolute())
    if not room.root.exists():
        room.make()
    sys.exit(room.run(" ".join(sys.argv[3:]) or "cd %s && exec bash -l" % shlex.quote(COPY)).returncode)
