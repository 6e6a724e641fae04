# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A release of the size of a real one is removed in the background, and after a kill by the next run."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import processes
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.zipapp import program_text
from ansible_collections.hpcml.torchstack.plugins.module_utils.standalone import removal
from ansible_collections.hpcml.torchstack.plugins.modules import release_retire
from support import polling, published_release

FILES = 45000
IN_A_DIRECTORY = 500


@pytest.fixture(name="root")
def large_release(tmp_path):
    """Release r1 with 45,000 files, which is not the default, frozen; in memory, where there is room for it."""
    room = os.path.isdir("/dev/shm") and os.statvfs("/dev/shm").f_favail > 3 * FILES
    place = pathlib.Path(tempfile.mkdtemp(prefix="torchstack-retire-", dir="/dev/shm" if room else str(tmp_path)))
    root = place / "root"
    for name in ("r1", "r2"):
        published_release.stage(root, name)
        published_release.change(root, name)
    published_release.change(root, "r2", default=True)
    for number in range(FILES // IN_A_DIRECTORY):
        directory = str(root / "r1" / ("d%d" % number))
        os.mkdir(directory)
        for name in range(IN_A_DIRECTORY):
            os.close(os.open("%s/%d" % (directory, name), os.O_CREAT | os.O_WRONLY, 0o444))
        os.chmod(directory, 0o555)
    (root / "r1").chmod(0o555)
    yield root
    with contextlib.suppress(OSError, ValueError):
        kill(root)
    subprocess.run(["chmod", "-R", "u+rwX", str(place)], check=True)
    shutil.rmtree(str(place))


def kill(root):
    """End the removal as a reboot does: whoever supervises it first."""
    job = json.loads((root / ".torchstack" / "r1" / "steps" / "remove" / "job.json").read_text())
    pids = [job["pid"], *(process.pid for process in processes.job_processes(job["nonce"]))]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    polling.eventually(lambda: not processes.job_processes(job["nonce"]), "the end of the removal")


def directories(root):
    return len(os.listdir(str(root / ".torchstack" / "r1" / "removing"))) - 1


def test_s10_the_removal_of_45000_files_goes_on_after_a_kill(root, run_module):
    afterwards = root / ".torchstack" / "r1"

    def retire(state):
        options = dict.fromkeys(("unseen", "reason", "successor", "until", "notice"), "")
        options.update(root=str(root), release="r1", state=state, to="removed", minimum_age=0, notice_days=0, uses=[])
        return release_retire.retire(options, True)

    def remove(rate, **more):
        (afterwards / "removal.rate").write_text(str(rate))
        asked = {"trees": known["trees"], "planned": known["planned"], "record": str(afterwards / "removal.json"),
                 "rate": str(afterwards / "removal.rate")}
        script = "%s -I - %s <<'PYTHON'\n%s\nPYTHON\n" % (
            shlex.quote(sys.executable), shlex.quote(json.dumps(asked)),
            program_text(removal))
        result = run_module("build_step", {
            "name": "remove", "state_dir": str(afterwards / "steps"), "script": script, "network": False, **more})
        assert not result.failed, result.console
        return result

    published_release.change(root, "r1", "gone", notice="It is gone.")
    known = retire("aside")
    retire("deleting")
    begun = remove(1500, wait=False)
    assert begun["state"] == "running" and begun.changed and not (root / "r1").exists()
    polling.eventually(lambda: directories(root) < FILES // IN_A_DIRECTORY, "some files to go")
    looked = remove(1500, wait=False)
    assert looked["state"] == "running" and not looked.changed
    assert looked["progress"]["total"] == known["planned"]["names"]
    kill(root)
    assert 0 < directories(root) < FILES // IN_A_DIRECTORY
    assert remove(0)["resumed"]
    record = retire("removed")["record"]
    assert record["planned"]["inodes"] == FILES + FILES // IN_A_DIRECTORY + 3
    assert record["freed"] == {key: record["planned"][key] for key in ("names", "inodes", "bytes")}
    assert json.loads((afterwards / "removal.json").read_text())["attempts"] == 2
    assert not (afterwards / "removing").exists()
