# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A small frozen release to thaw: Python files with bytecode, a library, and a file shared with a sibling release."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import pathlib
import py_compile
import stat
import subprocess
import sys

from ansible_collections.hpcml.torchstack.plugins.module_utils.core import json_lines as journal_lines
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import thaw
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import manifest

RELEASE = "2026-11-20"
SITE = "base/lib/python%d.%d/site-packages" % sys.version_info[:2]
FIX, OTHER, SHARED = SITE + "/fix.py", SITE + "/other.py", SITE + "/shared.py"
CACHED = importlib.util.cache_from_source(FIX, optimization="")
LIBRARY = "base/lib/libsmall.so"


class World:
    """A root with a frozen release below it."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root, self.prefix = root, root / RELEASE
        self.afterwards = root / ".torchstack" / RELEASE
        for name, text in {
            FIX: "ANSWER = 41\n", OTHER: "OTHER = 1\n", SITE + "/package/__init__.py": "",
            SITE + "/broken.py": "class {{ x }}:", LIBRARY: "\x7fELF small", "base/bin/tool": "#!/bin/sh\n",
            ".torchstack/release.yml": "release: %s\n" % RELEASE,
        }.items():
            self.path(name).parent.mkdir(parents=True, exist_ok=True)
            self.path(name).write_text(text)
            self.path(name).chmod(0o644)
        self.path("base/bin/tool").chmod(0o755)
        sibling = root / "2026-10-01" / "shared.py"
        sibling.parent.mkdir()
        sibling.write_text("SHARED = 1\n")
        os.link(str(sibling), str(self.path(SHARED)))
        self.sibling = sibling
        for name in (FIX, OTHER, SHARED, SITE + "/package/__init__.py"):
            os.utime(str(self.path(name)), (900000000, 900000000))
            py_compile.compile(str(self.path(name)), invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
        self.path(SITE + "/link.py").symlink_to("fix.py")
        self.afterwards.mkdir(parents=True)
        subprocess.run(["chmod", "-R", "a-w,a+rX", str(self.prefix)], check=True)
        done = manifest.record(
            manifest.Request(str(self.prefix), str(root), str(self.path(".torchstack/manifest.json"))), True)
        self.write("frozen.json", {
            "digest": "asked", "frozen_at": "2026-11-20T12:00:00Z",
            "manifest": {"digest": done["digest"], "files": done["counts"]["files"], "bytes": done["bytes"]},
        })

    def path(self, name: str) -> pathlib.Path:
        """A path of the release."""
        return self.prefix / name

    def mode(self, name: str) -> int:
        """Its permission bits."""
        return stat.S_IMODE(os.lstat(str(self.path(name))).st_mode)

    def write(self, name: str, record: dict) -> None:
        """Write one of the records of what came afterwards."""
        (self.afterwards / name).write_text(json.dumps(record))

    def read(self, name: str):
        """One of them; None where it is not there."""
        path = self.afterwards / name
        return json.loads(path.read_text()) if path.exists() else None

    def journal(self) -> list[dict]:
        """The lines of the thaws' journal."""
        return journal_lines.entries(str(self.afterwards / "thaw.jsonl"))

    def request(self, state: str = "open", **more) -> thaw.Request:
        """What a run asks for; by default, to change one file."""
        asked = {"paths": [FIX], "reason": "the answer is wrong", "python": sys.executable}
        return thaw.Request(str(self.root), RELEASE, state, **dict(asked, **more))

    def send(self, name: str, text: str) -> dict:
        """Leave a file where a playbook leaves it that was to be sent; what the module is told of it."""
        content = text.encode()
        file = {"path": name, "sha256": hashlib.sha256(content).hexdigest()}
        place = self.afterwards / "thaw" / "files" / file["sha256"]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        os.utime(str(place), (1000000000, 1000000000))
        return file

    def compared(self) -> dict:
        """How the release differs from its own manifest."""
        return manifest.compare(
            manifest.Request(str(self.prefix), str(self.root), str(self.path(".torchstack/manifest.json"))))

    def snapshot(self) -> dict:
        """What every path of root is, but for times and the files' identity."""
        found = {}
        for directory, directories, names in os.walk(str(self.root)):
            for name in directories + names:
                path = os.path.join(directory, name)
                status = os.lstat(path)
                content = pathlib.Path(path).read_bytes() if stat.S_ISREG(status.st_mode) else b""
                links = status.st_nlink * bool(content)
                found[os.path.relpath(path, str(self.root))] = (status.st_mode, links, content)
        return found

    def imported(self, name: str = "fix", attribute: str = "ANSWER") -> str:
        """What an interpreter takes from the release, and whether it took it from bytecode."""
        program = "import sys; sys.path.insert(0, sys.argv[1]); import %s as m; print(m.%s)" % (name, attribute)
        ran = subprocess.run(
            [sys.executable, "-B", "-v", "-c", program, str(self.path(SITE))], capture_output=True, text=True,
            check=True)
        assert "# code object from '%s'" % self.path(SITE + "/%s.py" % name.replace(".", "/")) not in ran.stderr
        return ran.stdout.strip()
