# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How long a prefix of fifty packages takes from a warm cache, next to py-rattler called directly.

Python and pip are real packages of this interpreter; the others are directories of the tree, packed as they stand. Both
sides are whole processes on the same channel and cache, and copy the files; each has processor time and wall time.
"""

from __future__ import annotations

import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from installed_tree import measure
from measuring import UnavailableError
from plays import collection_environment
from support import conda_channel
from table import Goal, Kind, Outcome, Row

PACKAGES = 50
FILES, BYTES = 5, 20_000_000
"""At least so many files, and at most so many bytes, has a directory that becomes a package: most are so in a base, and
very large ones would hide what each package and file costs."""
ROUNDS = 5
LIMIT = 1.2
DIRECT = """
import asyncio, glob, os, sys
import rattler
from rattler.config import Config
prefix, cache, channel, *specs = sys.argv[1:]
async def main():
    records = await rattler.solve(
        sources=[channel], specs=specs, platforms=[str(rattler.Subdir.current()), "noarch"],
        gateway=rattler.Gateway(cache_dir=os.path.join(cache, "repodata")),
        virtual_packages=rattler.VirtualPackage.detect(),
    )
    await rattler.install(
        records, target_prefix=prefix, cache_dir=cache, show_progress=False,
        config=Config.from_toml("allow-hard-links = false"),
    )
os.umask(0o022)
asyncio.run(main())
os._exit(0)
"""
OURS = """
import json, sys
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda import environment as conda_prefixes
outcome = conda_prefixes.Environment(json.loads(sys.argv[1]), True, "").present()
print(json.dumps(conda_prefixes.as_result(outcome, "")))
"""
PARAMETERS = {
    "state": "present", "optional_specs": [], "lock": None, "shared_caches": [], "mirrors": None,
    "virtual_packages": None, "channel_priority": "strict", "platform": None, "link_method": "copy",
    "link_scripts": False, "verify": "files", "accept_defaults_licence": False, "state_dir": None, "log": None,
}


class Cost(NamedTuple):
    """Seconds of one process and all that it started."""

    wall: float
    processor: float


class Bed:
    """A channel of fifty packages, a warm cache and a place for prefixes, in a scratch directory.

    Args:
        tree: where packages are taken from.
        scratch: on the file system that is to be measured.
    """

    def __init__(self, tree: pathlib.Path, scratch: pathlib.Path) -> None:
        (scratch / "stages").mkdir()
        self.channel = conda_channel.build(scratch / "channel", scratch / "stages")
        self.specs = ["python", "pip", "toydata", *pack(tree, self.channel)]
        self.channel.index()
        self.scratch = scratch
        self.cache = scratch / "pkgs"
        self.made = 0
        self.prefix = self.place()
        # Both sides have bytecode: py-rattler's is installed, and a checkout need not be writable.
        more = {"PYTHONPYCACHEPREFIX": str(scratch / "bytecode"), "ANSIBLE_LOCALHOST_WARNING": "False"}
        self.environment = {**collection_environment(scratch), **more}
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)

    @property
    def options(self) -> dict[str, object]:
        """The module's options."""
        return {
            "prefix": str(self.prefix), "channels": [self.channel.url], "cache": str(self.cache), "specs": self.specs,
        }

    def place(self) -> pathlib.Path:
        """A directory for a new prefix, of a path as long as the others'.

        Prefixes are not removed between measurements: ext4 avoids inodes that were freed within the last half minute,
        and creations after a removal spend most of their time on finding others.
        """
        self.made += 1
        release = self.scratch / ("release-%02d" % self.made)
        release.mkdir()
        return release / "base"

    def clear(self) -> None:
        """Go on with a prefix that does not exist yet, when nothing waits to be written to disk."""
        self.prefix = self.place()
        os.sync()

    def direct(self) -> Cost:
        """py-rattler called directly."""
        arguments = [str(self.prefix), str(self.cache), self.channel.url, *self.specs]
        return spent([sys.executable, "-c", DIRECT, *arguments], self.environment)

    def ours(self) -> Cost:
        """The module's work without Ansible."""
        return spent([sys.executable, "-c", OURS, json.dumps({**PARAMETERS, **self.options})], self.environment)

    def module(self) -> Cost:
        """The module as Ansible calls it."""
        ansible = os.path.join(os.path.dirname(sys.executable), "ansible")
        command = [ansible, "localhost", "-c", "local", "-m", "hpcml.torchstack.conda_environment"]
        return spent([*command, "-a", json.dumps(self.options)], self.environment)


def pack(tree: pathlib.Path, channel: conda_channel.Channel) -> list[str]:
    """Make packages of directories of the tree, one script of each naming the prefix; returns their names."""
    sized = [(measure(directory), directory) for directory in tree.iterdir() if directory.is_dir()]
    fit = sorted((size.files, directory) for size, directory in sized if size.files >= FILES and size.bytes <= BYTES)
    count = PACKAGES - 3
    if len(fit) < count:
        raise UnavailableError("the tree has only %d directories to make packages of" % len(fit))
    # The largest of them, and of the others every so-manieth, so that sizes are spread as they are in the tree.
    chosen = [directory for _files, directory in fit[:: -(len(fit) // count)][:count]]
    for directory in chosen:
        entries = [
            conda_channel.Entry(
                "lib/site/" + str(path.relative_to(tree)), path.read_bytes(),
                0o755 if path.stat().st_mode & 0o100 else 0o644,
            )
            for path in sorted(directory.rglob("*")) if path.is_file() and not path.is_symlink()
        ]
        script = "#!%s/bin/python\n" % conda_channel.PLACEHOLDER
        name = directory.name.strip("_.").lower()
        entries.append(
            conda_channel.Entry("bin/" + name, script.encode(), 0o755, placeholder=conda_channel.PLACEHOLDER)
        )
        channel.write("made-" + name, "1.0", "0", entries, noarch="generic")
    return ["made-" + directory.name.strip("_.").lower() for directory in chosen]


def spent(command: list[str], environment: Mapping[str, str]) -> Cost:
    """What one process takes."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=dict(environment), stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def median(costs: list[Cost]) -> Cost:
    """The medians of both times."""
    return Cost(statistics.median(cost.wall for cost in costs), statistics.median(cost.processor for cost in costs))


def measured(bed: Bed) -> dict[str, Cost]:
    """Medians of creations and of second runs by either, in turn, and of whole calls of the module."""
    costs: dict[str, list[Cost]] = {}

    def take(name: str, call: Callable[[], Cost]) -> None:
        costs.setdefault(name, []).append(call())

    for number in range(ROUNDS + 1):
        sides = [("direct", bed.direct), ("ours", bed.ours)]
        for name, call in sides if number % 2 else reversed(sides):
            bed.clear()
            take(name, call)
            take(name + " again", call)
            if name == "ours":
                take("module again", bed.module)
    # The first round fills cache and file caches.
    return {name: median(found[1:]) for name, found in costs.items()}


def compare(tree: pathlib.Path, cache: pathlib.Path) -> Outcome:
    """The rows: a creation, in both times, and a second run."""
    lacking = conda_channel.needed_tools()
    if lacking:
        raise UnavailableError("no channel can be built: there is no " + ", no ".join(lacking))
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        bed = Bed(tree, pathlib.Path(scratch))
        found = measured(bed)
        size = measure(bed.prefix)
    direct, ours = found["direct"], found["ours"]
    again, noop, module = found["direct again"], found["ours again"], found["module again"]
    peer = "py-rattler called directly"
    what = "conda_environment, %d packages" % PACKAGES
    goal = Goal(Kind.AT_MOST, LIMIT)
    overhead = Cost(module.wall - noop.wall, module.processor - noop.processor)
    return Outcome([
        Row(what, peer, direct.wall, ours.wall, overhead.wall, goal),
        Row(what + ", processor time", peer, direct.processor, ours.processor, overhead.processor, goal),
        Row("conda_environment, nothing to do", peer, again.wall, noop.wall, overhead.wall, goal),
    ], [
        "conda_environment: whole processes, %d files, %.0f MB, copied from a warm cache by both; ours also looks at "
        "cache and prefix. The overhead is a whole call of the module that has nothing to do, less that work."
        % (size.files, size.bytes / 1e6)
    ])
