# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The program of the role container that copies an image: whole and right, or not at all."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
import pathlib
import signal
import socket
import stat
import subprocess
import sys
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.logs.errors import find_errors
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight.container_image import is_recorded
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.progress import parse_progress
from support import faults
from support.polling import eventually

PROGRAM = pathlib.Path(__file__).parents[2] / "roles" / "container" / "files" / "copy_image.py"
CONTENT = bytes(range(256)) * 4096 * 9
SUM = hashlib.sha256(CONTENT).hexdigest()


class Place:
    """A central place of images and a root, with the program between them."""

    def __init__(self, directory):
        self.central = directory / "central" / "small.sif"
        self.copy = directory / "root" / "images" / SUM[:12] / "small.sif"
        self.record = directory / "image.json"
        self.central.parent.mkdir(parents=True)
        self.central.write_bytes(CONTENT)

    def command(self, *options, expected=SUM, copy=True):
        """The words that start it."""
        return [*options, sys.executable, "-I", str(PROGRAM), expected, str(self.record), str(self.central),
                *([str(self.copy)] if copy else [])]

    def run(self, *options, expected=SUM, copy=True, environment=None):
        """Exit code and all that was printed."""
        process = subprocess.run(
            self.command(*options, expected=expected, copy=copy), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            check=False, env=dict(os.environ, **(environment or {})))
        return process.returncode, process.stdout

    @property
    def files(self):
        """Names of what is beside the copy, and the copy's own."""
        return sorted(path.name for path in self.copy.parent.iterdir()) if self.copy.parent.exists() else []

    @property
    def identity(self):
        """What another file, or another content, would not have in common with the copy."""
        status = self.copy.stat()
        return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


@pytest.fixture()
def place(tmp_path):
    return Place(tmp_path)


def error_of(output):
    """The one sentence that build_step takes for its failure."""
    return find_errors(enumerate(output.splitlines(), 1))[0].lines[0].text.rstrip(".")


def test_a_copy_is_whole_read_only_and_recorded_with_progress_as_steps_show_it(place):
    code, said = place.run()
    assert code == 0, said
    assert place.copy.read_bytes() == CONTENT
    assert stat.S_IMODE(place.copy.stat().st_mode) == 0o444
    assert place.files == ["small.sif", "small.sif.json"]
    assert is_recorded(json.loads((place.copy.parent / "small.sif.json").read_text()), SUM, place.copy.stat())
    assert parse_progress(said) == {"done": 9, "total": 9, "percent": 100}
    assert json.loads(place.record.read_text()) == {
        "bytes": len(CONTENT), "central": str(place.central), "copy": str(place.copy), "file": "small.sif",
        "sha256": SUM}


def test_a_copy_that_is_there_is_not_made_again_nor_read_while_its_record_holds(place):
    place.run()
    before = place.identity
    place.central.unlink()
    code, said = place.run()
    assert code == 0 and b"MiB" not in said
    (place.copy.parent / "small.sif.json").unlink()
    code, said = place.run()
    assert code == 0 and b"which is there already" in said and b"[9/9] MiB" in said
    assert place.identity == before
    assert place.files == ["small.sif", "small.sif.json"]


def test_a_wrong_copy_is_replaced_however_it_came_to_be_one(place):
    place.run()
    written = place.copy.stat().st_mtime_ns
    place.copy.chmod(0o644)
    place.copy.write_bytes(CONTENT[1:])
    os.utime(place.copy, ns=(written, written))
    code, said = place.run()
    assert code == 0, said
    assert place.copy.read_bytes() == CONTENT
    assert place.run()[1].count(b"MiB") == 0


def test_a_reference_is_read_and_nothing_copied(place):
    code, said = place.run(copy=False)
    assert code == 0 and b"[9/9] MiB" in said
    assert not place.copy.parents[2].exists()
    assert json.loads(place.record.read_text())["copy"] == ""
    code, said = place.run(copy=False, expected="0" * 64)
    assert code == 1 and "has sha256 %s, and the release wants %s" % (SUM, "0" * 64) in error_of(said)


@pytest.mark.parametrize("there", [False, True])
def test_s33_a_missing_image_and_a_wrong_checksum_are_told_and_leave_no_half_copy(place, there):
    if there:
        place.copy.parent.mkdir(parents=True)
        place.copy.write_bytes(b"of another image")
    code, said = place.run(expected="0" * 64)
    assert code == 1
    assert error_of(said) == (
        "ERROR: %s has sha256 %s, and the release wants %s. Get the right image, or make a release of this one" % (
            place.central, SUM, "0" * 64))
    place.central.unlink()
    code, said = place.run()
    assert code == 1
    assert error_of(said) == (
        "ERROR: The image %s cannot be read (No such file or directory). "
        "Correct torchstack_images, or have it put there" % place.central)
    assert place.files == (["small.sif"] if there else [])
    assert not there or place.copy.read_bytes() == b"of another image"
    assert not place.record.exists()


def test_an_image_that_changes_while_it_is_read_is_not_taken_for_a_wrong_one(place):
    spec = importlib.util.spec_from_file_location("copy_image", PROGRAM)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)

    def grow(_block):
        if place.central.stat().st_size == len(CONTENT):
            with place.central.open("ab") as stream:
                stream.write(b"more")

    with place.central.open("rb") as source:
        found, same = program.digest_of(source, grow)
    assert found != SUM and not same
    with pytest.raises(program.Trouble, match="changed while it was read"):
        program.refuse(str(place.central), found, SUM, same)


def test_s33_a_full_file_system_is_told_and_leaves_nothing_there(place):
    root = place.copy.parents[2]
    root.mkdir()
    script = 'mount -t tmpfs -o size=4m tmpfs "$1" || exit 9; shift; "$@"; code=$?; find "$0" -type f; exit $code'
    code, said = place.run("unshare", "-rm", "sh", "-c", script, str(root), str(root))
    assert code == 1, said
    assert said.endswith(b"Make room there.\n"), said
    assert error_of(said) == "ERROR: The file system of %s is full. Nothing was kept of the copy. Make room there" % (
        place.copy.parent)


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_s33_a_quota_that_is_met_is_told_and_leaves_nothing_there(place, fault_library, call):
    place.run()
    place.copy.chmod(0o644)
    place.copy.write_bytes(b"of before")
    fault = faults.variables(fault_library, "error:EDQUOT", (call,), path=place.copy.parent)
    code, said = place.run(environment=fault)
    assert code == 1, said
    assert error_of(said) == (
        "ERROR: The quota is used up in %s. Nothing was kept of the copy. Make room, or ask for more"
        % place.copy.parent)
    assert place.files == ["small.sif", "small.sif.json"]
    assert place.copy.read_bytes() == b"of before"


def begun(place):
    """Start a copy that waits for the rest of its image, and is known to have written some of it."""
    place.central.unlink()
    os.mkfifo(place.central)
    process = subprocess.Popen(place.command(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    stream = os.open(place.central, os.O_WRONLY)
    os.write(stream, CONTENT)

    def written():
        return [path for path in place.copy.parent.glob(".copying.*") if path.stat().st_size] \
            if place.copy.parent.exists() else []

    eventually(written, "a part of the copy")
    return process, stream


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_copy_that_is_interrupted_leaves_nothing(place, number):
    process, stream = begun(place)
    process.send_signal(number)
    # Python notices a signal that came just before a call when that call ends.
    os.close(stream)
    said = process.communicate()[0]
    assert process.returncode == 128 + number
    assert error_of(said) == "ERROR: Stopped by signal %d. Nothing was kept of the copy" % number
    assert place.files == []


def test_what_a_killed_copy_left_goes_with_the_next_one_and_what_is_still_written_stays(place):
    process, stream = begun(place)
    left = next(place.copy.parent.glob(".copying.*"))
    elsewhere = left.with_name(left.name.replace(socket.gethostname(), "another-machine"))
    place.central.unlink()
    place.central.write_bytes(CONTENT)
    assert place.run()[0] == 0
    assert left.name in place.files, "its process writes it"
    process.kill()
    process.communicate()
    os.close(stream)
    for age, stays in ((60, True), (7200, False)):
        place.copy.unlink()
        elsewhere.write_bytes(b"begun")
        os.utime(elsewhere, (time.time() - age,) * 2)
        code, said = place.run()
        assert code == 0, said
        assert (elsewhere.name in place.files) == stays
        assert left.name not in place.files
    assert place.files == ["small.sif", "small.sif.json"]


def test_two_that_copy_the_same_image_at_once_both_have_it(place):
    both = [subprocess.Popen(place.command(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for _each in range(3)]
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0, 0], said
    assert place.copy.read_bytes() == CONTENT
    assert place.files == ["small.sif", "small.sif.json"]


def test_the_oldest_python_of_the_sites_reads_the_program():
    ast.parse(PROGRAM.read_text(), feature_version=(3, 6))
