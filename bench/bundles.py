# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How long the bundles of a release take to be installed, next to pip with all of their locks in one file.

Both install the same wheels, fetched before, into copies of one base with PyTorch, in the order of the bundles. Ours
also compares with what is there, imports what the release file names, and proves that nothing else has changed.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping

from measuring import UnavailableError, alternate, told
from plays import CHECKOUT
from support import sites
from table import Goal, Kind, Outcome, Row

RELEASE = CHECKOUT / "inventories" / "local" / "releases" / "2026-11-20-bundles.yml"
PROGRAMS = CHECKOUT / "roles" / "python_packages" / "files"
PYTHON = os.environ.get("TORCHSTACK_PYTHON") or "python3"
"""The interpreter of the base: of this one PyTorch's CPU build is looked for where pip looks, else the CUDA build."""

ROUNDS, LIMIT = 3, 1.2
PIP = ("-m", "pip", "--disable-pip-version-check")
HASHED = ("--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:")


def run(words: list[str], **variables: str) -> str:
    """Run a command; what it prints. Raises UnavailableError: it failed, with its last words."""
    done = subprocess.run(words, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    if done.returncode:
        raise UnavailableError("%s: %s" % (" ".join(words[:4]), " ".join(done.stdout.strip().splitlines()[-3:])))
    return done.stdout


class Bed:
    """A base with PyTorch, and the wheels of all bundles.

    Args:
        place: where they are kept for the next time.
    """

    def __init__(self, place: pathlib.Path) -> None:
        self.release = sites.load_release(RELEASE)
        self.place, self.base, self.wheels = place, place / "base", place / "wheels"
        self.minor = run([PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).strip()
        if not (place / "complete").exists():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            self.fill()
            (place / "complete").touch()
        self.number = len(list(self.wheels.rglob("*.whl")))

    def fill(self) -> None:
        """Make the base, and fetch the wheels; with the network that pip has."""
        run([PYTHON, "-m", "venv", str(self.base)])
        python, pytorch = str(self.base / "bin" / "python"), self.release["pytorch"]
        run([python, *PIP, "install", *HASHED, "-r", self.written("lock", self.release["locks"]["base"])])
        for entry in self.release["packages"]:
            run([python, *PIP, "install", "--quiet", "--no-deps", "%s==%s" % (entry["name"], entry["version"])])
        hashes = pytorch["cpu"]["hashes"].get("cp" + self.minor.replace(".", ""), [])
        cpu = "torch==%s %s\n" % (pytorch["version"], " ".join("--hash=" + one for one in hashes))
        once = ("--index-url", pytorch["cpu"]["index"], "--retries", "0", "--timeout", str(pytorch["cpu"]["timeout"]))
        try:
            run([python, *PIP, "install", *HASHED, *once, "-r", self.written("lock", cpu)])
        except UnavailableError:
            run([python, *PIP, "install", *HASHED, "-r", self.written("lock", pytorch["lock"] + pytorch["cuda_lock"])])
        for bundle in self.release["bundles"]:
            run([python, *PIP, "download", *HASHED, "-r", self.written(bundle["name"] + ".txt", bundle["lock"]),
                 "-d", str(self.wheels / bundle["name"])])

    def written(self, name: str, text: str) -> str:
        """Write a lock."""
        (self.place / name).write_text(text)
        return str(self.place / name)

    def copy(self, scratch: pathlib.Path) -> pathlib.Path:
        """Copy the base by hard links: neither side writes into a file that is there."""
        place = pathlib.Path(tempfile.mkdtemp(dir=scratch)) / "base"
        run(["cp", "-al", str(self.base), str(place)])
        os.sync()
        return place

    def by_hand(self, scratch: pathlib.Path) -> float:
        """Install all with one call of pip. Seconds."""
        base = self.copy(scratch)
        lock = self.written("all.txt", "".join(bundle["lock"] for bundle in self.release["bundles"]))
        found = [word for bundle in self.release["bundles"]
                 for word in ("--find-links", str(self.wheels / bundle["name"]))]
        begun = time.monotonic()
        run([str(base / "bin" / "python"), *PIP, "install", *HASHED, "--no-index", *found, "-r", lock])
        taken = time.monotonic() - begun
        shutil.rmtree(base.parent)
        return taken

    def ours(self, scratch: pathlib.Path) -> float:
        """Install one bundle after another as the steps of a rollout do. Seconds."""
        base = self.copy(scratch)
        begun = time.monotonic()
        for bundle in self.release["bundles"]:
            settings = self.settings(base, bundle)
            run([str(base / "bin" / "python"), "-B", str(PROGRAMS / "bundle.py"), json.dumps(settings)])
        taken = time.monotonic() - begun
        shutil.rmtree(base.parent)
        return taken

    def settings(self, base: pathlib.Path, bundle: Mapping[str, object]) -> dict[str, object]:
        """What the role python_packages tells the program that installs a bundle."""
        stage = base.parent / str(bundle["name"])
        (stage / "fetched").mkdir(parents=True)
        (stage / "fetched" / "wheel").symlink_to(self.wheels / str(bundle["name"]))
        python = str(base / "bin" / "python")
        owns = dict(re.findall(r"(?m)^([\w.-]+)==([^\s;\\]+)", str(bundle["lock"])))
        return {
            "base": str(base), "site": str(base / "lib" / ("python" + self.minor) / "site-packages"),
            "records": str(base.parent / "records"), "minor": self.minor, "python": python, "customization": str(base),
            "process": {"PYTHONNOUSERSITE": "1"}, "wheels": str(base.parent / "kept"), "tools": python,
            "pip": {"command": [python, "-m", "pip"], "environment": {},
                    "options": ["--quiet", "--no-deps", "--no-warn-script-location"]},
            "key": "bundle-%s" % bundle["name"], "name": "bundle %s" % bundle["name"], "reports": "", "licence": "",
            "owns": {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in owns.items()},
            "imports": bundle["imports"], "no_deps": bundle.get("no_deps", False), "environment": {},
            "config_settings": False, "built": False, "stage": str(stage), "origin": {},
            "left_out": list(bundle.get("left_out", {}))}


def compare(cache: pathlib.Path) -> Outcome:
    """Install the bundles both ways, in turn, with one round before that does not count."""
    with told("the base and the wheels of the bundles"):
        bed = Bed(cache / "bundles")
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        sides = {"peer": lambda: bed.by_hand(pathlib.Path(scratch)), "ours": lambda: bed.ours(pathlib.Path(scratch))}
        alternate(sides, 1)
        found = alternate(sides, ROUNDS)
    row = Row("bundles, %d packages" % bed.number, "pip install -r with all of their locks", found["peer"],
              found["ours"], None, Goal(Kind.AT_MOST, LIMIT))
    imported = sum(len(bundle["imports"]) for bundle in bed.release["bundles"])
    return Outcome([row], [
        "bundles: wheels that were fetched before, into copies of one base with PyTorch on Python %s; ours also "
        "imports %d modules and proves that nothing else has changed." % (bed.minor, imported)])
