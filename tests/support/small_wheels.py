# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Wheels made for tests."""

from __future__ import annotations

import base64
import hashlib
import zipfile

NAME = "%s-%s-py3-none-any.whl"


def make_wheel(directory, name, version, files, tag="py3-none-any", requires=()):
    """Make a wheel of a distribution, and return its line of a lock.

    Args:
        directory: where.
        name: with underscores.
        version: as the name has it.
        files: contents by path.
        tag: interpreter, ABI and platform.
        requires: distributions that it asks for.
    """
    directory.mkdir(parents=True, exist_ok=True)
    info = "%s-%s.dist-info/" % (name, version)
    tags = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: %s\n" % tag
    metadata = "Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (name, version)
    metadata += "".join("Requires-Dist: %s\n" % one for one in requires)
    files = {**files, info + "METADATA": metadata, info + "WHEEL": tags}
    record = ["%s,sha256=%s,%d" % (path, _digest(text), len(text)) for path, text in files.items()]
    path = directory / ("%s-%s-%s.whl" % (name, version, tag))
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in {**files, info + "RECORD": "\n".join([*record, info + "RECORD,,"]) + "\n"}.items():
            wheel.writestr(file, text)
    return "%s==%s --hash=sha256:%s\n" % (name, version, hashlib.sha256(path.read_bytes()).hexdigest())


def _digest(text):
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
