# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Bundles of packages, fetched, installed and proven by their steps, beside pip with the same locks by hand."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import tempfile
import time

from measuring import UnavailableError, alternate
from plays import collection_environment
from support import sites
from support.package_release import CHECKOUT, Release, build_tools
from table import Goal, Kind, Outcome, Row

ROUNDS = 2
GOAL = 1.2
RELEASE = CHECKOUT / "inventories" / "local" / "releases" / "2026-11-20-bundles.yml"
WITHOUT_TORCH = ("data", "science", "notebooks")
"""Bundles that need nothing of the release but what its base lock has."""


class Installation(Release):
    """A base with what the release's base lock has, into which the bundles go."""

    def __init__(self, place: pathlib.Path, tools: pathlib.Path, environment: dict[str, str]) -> None:
        super().__init__(place, tools, environment, stand_ins=False)
        self.content = sites.load_release(RELEASE)
        self.bundles = [one for one in self.content["bundles"] if one["name"] in WITHOUT_TORCH]
        self.pip(self.content["locks"]["base"])

    def pip(self, lock: str) -> float:
        """Install a lock as one does by hand; the seconds that it took."""
        path = self.prefix.parent / "by-hand.txt"
        path.write_text(lock)
        settings = self.described()["pip"]
        begun = time.monotonic()
        process = subprocess.run(
            [*settings["command"], "install", "--quiet", "--no-cache-dir", "--require-hashes", "--only-binary", ":all:",
             *settings["options"], "--requirement", str(path)],
            env={**os.environ, **settings["environment"]}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False)
        if process.returncode:
            raise UnavailableError("pip cannot install by hand: %s" % process.stdout.strip()[-300:])
        return time.monotonic() - begun

    def by_steps(self) -> tuple[float, float]:
        """Install the bundles by the role; the seconds of their steps, and those of the whole play."""
        begun = time.monotonic()
        code, said = self.roll_out([], bundles=self.bundles)
        took = time.monotonic() - begun
        if code:
            raise RuntimeError("The role python_packages failed: %s" % said[-2000:])
        stamps = [self.records / "steps" / ("bundle-" + one["name"] + end) / "stamp.json"
                  for one in self.bundles for end in ("-fetch", "")]
        return sum(json.loads(stamp.read_text())["seconds"] for stamp in stamps), took

    def count(self) -> int:
        """How many distributions there are."""
        return len(self.installed())


def compare() -> Outcome:
    """The row, and how many packages it is of."""
    with tempfile.TemporaryDirectory() as scratch:
        place = pathlib.Path(scratch)
        tools = build_tools(place / "tools")
        (place / "collection").mkdir()
        environment = collection_environment(place / "collection")
        plays: list[float] = []
        counts: set[int] = set()

        def installation() -> Installation:
            there = Installation(pathlib.Path(tempfile.mkdtemp(dir=place)), tools, environment)
            counts.add(-there.count())
            return there

        def by_hand() -> float:
            there = installation()
            took = sum(there.pip(one["lock"]) for one in there.bundles)
            counts.add(there.count())
            return took

        def by_steps() -> float:
            there = installation()
            seconds, took = there.by_steps()
            plays.append(took - seconds)
            counts.add(there.count())
            return seconds

        medians = alternate({"hand": by_hand, "steps": by_steps}, ROUNDS)
    if len(counts) != 2:
        raise RuntimeError("pip by hand and the role did not install the same number of packages: %s" % sorted(counts))
    row = Row(
        "bundles of %d packages" % sum(counts), "pip install --no-deps --require-hashes, the same locks",
        medians["hand"], medians["steps"], min(plays), Goal(Kind.AT_MOST, GOAL))
    return Outcome([row], ["bundles: ours fetches, compares, installs and imports them."])
