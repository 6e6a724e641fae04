# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The record of a tree next to what find(1) and sha256sum(1) say of the same tree."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import manifest
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import manifest_file as manifest_record

pytestmark = pytest.mark.skipif(
    not all(shutil.which(tool) for tool in ("find", "sha256sum", "cp")), reason="find, sha256sum or cp is missing"
)

TYPES = {b"f": "file", b"d": "directory", b"l": "symlink", b"p": "fifo"}


def build(top, seed):
    """A tree of random shape, names, links, modes and sizes that its owner can read."""
    numbers = random.Random(seed)
    os.makedirs(top)
    directories, files = [top], []
    names = [b"a%d", b"with space %d", b"new\nline%d", b"-dash%d", b"*%d", b"caf\xe9%d", b".hidden%d", b"\\%d"]
    for number in range(300):
        path = os.path.join(numbers.choice(directories), numbers.choice(names) % number)
        what = numbers.random()
        if what < 0.25:
            os.mkdir(path)
            directories.append(path)
        elif what < 0.35:
            os.symlink(numbers.choice([b".", b"/nonexistent", b"..", b"caf\xe9\n", path]), path)
        elif what < 0.4 and files:
            os.link(numbers.choice(files), path)
        elif what < 0.45:
            os.mkfifo(path)
        else:
            with open(path, "wb") as stream:
                stream.write(bytes(numbers.randrange(256) for _byte in range(numbers.choice([0, 1, 100, 5000]))))
            files.append(path)
    large = os.path.join(top, b"large")
    with open(large, "wb") as stream:
        stream.write(os.urandom(1 << 16) * 40)
    for path in [*files, large]:
        os.chmod(path, 0o400 | numbers.randrange(0o10000))
    for path in reversed(directories):
        os.chmod(path, 0o500 | numbers.randrange(0o10000))


@pytest.fixture()
def top(tmp_path, request):
    top = tmp_path / "root" / "tree"
    build(os.fsencode(str(top)), request.param)
    yield top
    subprocess.run(["chmod", "-R", "u+rwx", str(tmp_path)], check=True)


def recorded(top):
    """The entries of a tree's record, by the bytes of their paths, in order."""
    place = top.parent / "manifest.json"
    manifest.record(manifest.Request(str(top), str(top.parent), str(place)), True)
    entries = json.loads(place.read_text(encoding="ascii"))["entries"]
    return {manifest_record.as_bytes(entry["path"]): entry for entry in entries}


@pytest.mark.parametrize("top", range(4), indirect=True)
def test_type_mode_size_and_target_are_those_of_find(top):
    seen = {}
    output = subprocess.check_output(["find", str(top), "-printf", r"%P\0%y\0%m\0%s\0%l\0"])
    fields = output.split(b"\0")[:-1]
    for path, kind, mode, size, target in zip(*(fields[place::5] for place in range(5))):
        fact = {"type": TYPES[kind]}
        if kind != b"l":
            fact["mode"] = "%04o" % int(mode, 8)
        if kind == b"f":
            fact["size"] = int(size)
        if kind == b"l":
            fact["target"] = manifest_record.as_text(target)
        seen[path or b"."] = fact
    entries = recorded(top)
    assert {path: {key: entry[key] for key in entry if key not in ("path", "sha256")}
            for path, entry in entries.items()} == seen
    assert next(iter(entries)) == b"." and list(entries)[1:] == sorted(path for path in seen if path != b".")


@pytest.mark.parametrize("top", range(4, 7), indirect=True)
def test_digests_are_those_of_sha256sum(top):
    output = subprocess.check_output("find . -type f -print0 | xargs -0 sha256sum --zero", shell=True, cwd=str(top))
    seen = {}
    for line in output.split(b"\0")[:-1]:
        digest, _space, path = line.partition(b"  ")
        seen[path[2:]] = digest.decode()
    entries = recorded(top)
    assert {path: entry["sha256"] for path, entry in entries.items() if entry["type"] == "file"} == seen


@pytest.mark.parametrize("top", [7], indirect=True)
def test_sha256sum_accepts_what_the_record_says(top):
    """What an operator without this collection does, for the names that sha256sum's own lists can hold."""
    entries = recorded(top)
    lines = [
        entry["sha256"].encode() + b"  ./" + path for path, entry in entries.items()
        if "sha256" in entry and b"\n" not in path and b"\\" not in path
    ]
    run = subprocess.run(
        ["sha256sum", "--check", "--strict", "--quiet"], input=b"\n".join(lines) + b"\n", cwd=str(top), check=False
    )
    assert run.returncode == 0 and len(lines) > 50


@pytest.mark.parametrize("top", [8, 9], indirect=True)
def test_what_diff_calls_equal_matches_and_what_it_calls_different_does_not(top):
    recorded(top)
    copy = top.parent / "copy"
    subprocess.run(["cp", "-a", str(top), str(copy)], check=True)
    request = manifest.Request(str(copy), str(top.parent), str(top.parent / "manifest.json"))
    assert manifest.compare(request)["matches"]
    changed = os.path.join(os.fsencode(str(copy)), b"large")
    os.chmod(changed, 0o600 | os.stat(changed).st_mode & 0o7777)
    with open(changed, "r+b") as stream:
        stream.seek(1 << 20)
        byte = stream.read(1)
        stream.seek(1 << 20)
        stream.write(bytes([byte[0] ^ 1]))
    os.chmod(changed, os.stat(os.path.join(os.fsencode(str(top)), b"large")).st_mode & 0o7777)
    result = manifest.compare(request)
    assert [(entry["kind"], entry["path"]) for entry in result["differing"]] == [("content", "large")]
    assert (result["added"], result["removed"]) == ([], [])
