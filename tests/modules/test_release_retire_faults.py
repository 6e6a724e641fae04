# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A retirement that is killed at any write is completed by the next one, and nobody ever finds half of a release.

What the role does runs in one process, which is a fork of one that has imported everything: the library of faults
counts in a file that the forks share, and kills the one that makes the call whose number was asked for.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile

import pytest
from support import faults, published_release

PROGRAM = """
import json, os, struct, sys
from support import published_release
from ansible_collections.hpcml.torchstack.plugins.module_utils.standalone import removal
from ansible_collections.hpcml.torchstack.plugins.modules import release_in_use, release_retire

QUIET = {"host": "login01", "in_use": False, "process_count": 0, "processes": [], "held_count": 0, "held": [],
         "unseen": []}
BUSY = dict(QUIET, in_use=True, held_count=1, held=["/soft/x"])
OPTIONS = {"to": None, "minimum_age": 0, "notice_days": 0, "uses": [], "unseen": "", "reason": "", "successor": "",
           "until": "", "notice": ""}

def retire(state, **more):
    return release_retire.retire(dict(OPTIONS, root=root, release="r1", state=state, **more), True)

def show(state, **more):
    return bool(published_release.change(root, "r1", state, **more))

def life(uses):
    judged = retire("judged", to="removed", uses=[QUIET])
    changed = [show("gone", notice=judged["notice"])] if judged["seen"] else []
    if judged["stage"] == "removed":
        return {"changed": any(changed), "record": judged["record"]}
    changed.append(retire("aside")["changed"])
    deleting = retire("deleting", uses=[uses])
    if deleting["put_back"]:
        show("published", revive=True)
        return {"put_back": True}
    record = os.path.join(root, ".torchstack", "r1", "removal.json")
    removal.remove(deleting["trees"], deleting["planned"], record, lambda: 0, lambda line: None)
    done = retire("removed")
    return {"changed": True, "record": done["record"]}

for line in sys.stdin:
    at, root, uses = json.loads(line)
    with open(os.environ["FAULTS_COUNTER"], "r+b") as stream:
        stream.write(struct.pack("l", int(os.environ["FAULTS_AT"]) - at if at else -10**6))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        answer = life(BUSY if uses else QUIET)
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    status = os.waitpid(child, 0)[1]
    text = os.read(reader, 65536).decode()
    os.close(reader)
    print(json.dumps([status, json.loads(text or "null")]), flush=True)
"""

not_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may write to what is frozen")


class Driver:
    """The process that forks."""

    def __init__(self, environment):
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def life(self, root, at=0, used=False):
        """Retire release r1 of a root, killed at a call; what it returned, or None where it was killed."""
        self.process.stdin.write(json.dumps([at, str(root), used]) + "\n")
        self.process.stdin.flush()
        status, answer = json.loads(self.process.stdout.readline())
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL
            return None
        assert status == 0
        return answer


@pytest.fixture(name="driver", scope="module")
def forking(fault_library, collections_path, tmp_path_factory):
    counter = tmp_path_factory.mktemp("driver") / "counter"
    counter.write_bytes(struct.pack("l", 0))
    # In memory, where flushing to disk, of which there is much, takes no time.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    top = pathlib.Path(tempfile.mkdtemp(prefix="torchstack-retire-", dir=memory))
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=os.pathsep.join(
        [str(collections_path), str(pathlib.Path(published_release.__file__).parents[1])]))
    environment.update(faults.variables(fault_library, "kill", faults.CHANGES, top, 1000000, counter=counter))
    driver = Driver(environment)
    driver.top = top
    yield driver
    driver.process.stdin.close()
    driver.process.wait()
    clear(top)


@pytest.fixture(name="root")
def release_that_nobody_needs(driver):
    """Release r1 beside the default r2, both frozen; r1 has an image that no other one uses."""
    root = driver.top / "root"
    for name in ("r1", "r2"):
        published_release.stage(root, name)
        (root / name / "lib").mkdir()
        (root / name / "lib" / "libx.so").write_bytes(b"x" * 5000)
        (root / name / "lib" / "again").symlink_to("libx.so")
        published_release.change(root, name)
    published_release.change(root, "r2", default=True)
    for image in ("0123456789ab", "ba9876543210"):
        (root / "images" / image).mkdir(parents=True)
        (root / "images" / image / "x.sif").write_bytes(b"sif")
    for name, text in (("r1", "0123456789ab ba9876543210"), ("r2", "ba9876543210")):
        (root / name / ".torchstack" / "release.yml").write_text("release: %s # %s\n" % (name, text))
        for directory, _directories, _files in os.walk(str(root / name)):
            os.chmod(directory, 0o555)
    kept = driver.top / "kept"
    shutil.copytree(str(root), str(kept), symlinks=True)

    def again():
        clear(root)
        shutil.copytree(str(kept), str(root), symlinks=True)
        return root

    yield again
    clear(root)
    clear(kept)


def clear(path):
    for directory, _directories, _files in os.walk(str(path)):
        os.chmod(directory, 0o755)
    shutil.rmtree(str(path), ignore_errors=True)


def names(top):
    return sorted(str(path.relative_to(top)) for path in top.rglob("*"))


def check_half_way(root, whole):
    """What users and others find at any moment: all of the release or nothing of it, and records that can be read."""
    if (root / "r1").exists():
        assert names(root / "r1") == whole
    for path in (root / ".torchstack" / "r1").glob("*.json"):
        json.loads(path.read_text())
    assert names(root / "r2") == whole
    assert (root / "images" / "ba9876543210" / "x.sif").exists()


def check_removed(root, answer):
    afterwards = root / ".torchstack" / "r1"
    assert not (root / "r1").exists() and not (root / "images" / "0123456789ab").exists()
    assert [path for path in afterwards.iterdir() if path.name.startswith("removing")] == []
    record = json.loads((afterwards / "retired.json").read_text())
    assert record == answer["record"] and record["state"] == "removed"
    assert record["freed"] == {key: record["planned"][key] for key in ("names", "inodes", "bytes")}
    assert record["planned"]["names"] == 8
    for path in ("tcl/torchstack/r1", "lmod/torchstack/r1.lua"):
        assert "was retired on" in (root / "modulefiles" / path).read_text()


@not_root
def test_a_removal_killed_at_any_write_is_completed_by_the_next_one(driver, root):
    whole = names(root() / "r1")
    killed = 0
    while True:
        at = root()
        answer = driver.life(at, killed + 1)
        if answer is not None:
            break
        killed += 1
        check_half_way(at, whole)
        answer = driver.life(at)
        check_removed(at, answer)
        again = driver.life(at)
        assert not again["changed"] and again["record"] == answer["record"]
    check_removed(at, answer)
    assert killed > 40


@not_root
def test_a_release_that_comes_into_use_is_put_back_whole_wherever_that_is_killed(driver, root):
    whole = names(root() / "r1")
    killed = 0
    while True:
        at = root()
        answer = driver.life(at, killed + 1, used=True)
        if answer is not None:
            break
        killed += 1
        check_half_way(at, whole)
        check_put_back(at, whole, driver.life(at, used=True))
    check_put_back(at, whole, answer)
    assert killed > 20
    check_removed(at, driver.life(at))


def check_put_back(root, whole, answer):
    assert answer == {"put_back": True}
    assert names(root / "r1") == whole
    assert stat.S_IMODE((root / "r1").stat().st_mode) == 0o555
    assert (root / "images" / "0123456789ab" / "x.sif").exists()
    assert not (root / ".torchstack" / "r1" / "retired.json").exists()
    assert "retired" not in (root / "modulefiles" / "lmod" / "torchstack" / "r1.lua").read_text()
