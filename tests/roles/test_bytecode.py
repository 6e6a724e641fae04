# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the freeze compiles, and when it takes bytecode for valid."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).parents[2] / "roles" / "freeze" / "files" / "bytecode.py"


class Release:
    def __init__(self, prefix):
        self.prefix = prefix
        self.record = prefix.parent / "bytecode.json"

    def write(self, name, text="A = 1\n"):
        path = self.prefix / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def compile(self):
        """Run the program as the step does, and return its record."""
        with open(PROGRAM) as program:
            command = [sys.executable, "-I", "-W", "ignore", "-", str(self.record), str(self.prefix)]
            process = subprocess.run(
                command, stdin=program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
            )
        assert process.returncode == 0, process.stdout
        self.output = process.stdout
        return json.loads(self.record.read_text())


@pytest.fixture(name="release")
def small_release(tmp_path):
    return Release(tmp_path / "prefix")


def bytecode(source):
    return pathlib.Path(importlib.util.cache_from_source(str(source), optimization=""))


def test_every_place_that_is_imported_from_is_compiled_and_nothing_else(release):
    inside = ["base/site/a.py", "base/lib/python3.11/site-packages/p/b.py", "other/lib64/python3.9/site-packages/c.py"]
    outside = ["src/d.py", "base/share/e.py", ".torchstack/steps/f.py"]
    sources = [release.write(name) for name in inside + outside]
    assert release.compile()["files"] == 3
    assert [bytecode(source).exists() for source in sources] == [True] * 3 + [False] * 3


def test_valid_bytecode_is_left_alone(release):
    source = release.write("base/site/a.py")
    assert release.compile()["compiled"] == 1
    before = bytecode(source).stat()
    again = release.compile()
    assert (again["compiled"], again["current"]) == (0, 1)
    assert bytecode(source).stat().st_mtime_ns == before.st_mtime_ns


def test_bytecode_of_another_size_at_the_same_time_is_compiled_again(release):
    source = release.write("base/site/a.py")
    release.compile()
    time = source.stat().st_mtime_ns
    source.write_text("A = 1000\n")
    os.utime(source, ns=(time, time))
    assert release.compile()["compiled"] == 1


def test_bytecode_that_is_cut_off_is_compiled_again(release):
    source = release.write("base/site/a.py")
    release.compile()
    bytecode(source).write_bytes(bytecode(source).read_bytes()[:10])
    assert release.compile()["compiled"] == 1


def test_files_that_cannot_be_compiled_are_listed_and_not_fatal(release):
    release.write("base/site/old.py", "print 'x'\n")
    release.write("base/site/binary.py", "a = 1\0\n")
    release.write("base/site/good.py")
    record = release.compile()
    assert record["failed"] == ["base/site/binary.py", "base/site/old.py"]
    assert record["compiled"] == 1
    assert "cannot be compiled: base/site/old.py: SyntaxError" in release.output


def test_the_log_says_how_far_it_is(release):
    for number in range(130):
        release.write("base/site/m%d.py" % number)
    release.compile()
    assert [line.split()[0] for line in release.output.splitlines()[:3]] == ["[64/130]", "[128/130]", "[130/130]"]


def test_an_interpreter_takes_the_bytecode_as_it_is(release):
    release.write("base/site/a.py")
    release.compile()
    command = [sys.executable, "-v", "-c", "import a"]
    environment = {**os.environ, "PYTHONPATH": str(release.prefix / "base" / "site")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    said = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=True).stderr
    assert "a.py" in said
    assert "# wrote" not in said
    assert "code object from '%s" % (release.prefix / "base" / "site" / "a.py") not in said


def test_a_directory_that_cannot_be_written_fails(release):
    if os.geteuid() == 0:
        pytest.skip("root writes everywhere")
    source = release.write("base/site/a.py")
    source.parent.chmod(0o555)
    with pytest.raises(AssertionError, match="Permission denied"):
        release.compile()
    source.parent.chmod(0o755)
