# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The statement of a release that was thawed by the playbook and frozen again, as it is verified elsewhere."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from support.freezable_release import NAME, Release

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
FIXED = "base/lib/python3/site-packages/good.py"
PLAYBOOK = os.path.join(os.path.dirname(sys.executable), "ansible-playbook")


@pytest.fixture()
def release(tmp_path, ansible_environment):
    """A release that was frozen and signed, and the file that it is to have."""
    release = Release(tmp_path, ansible_environment)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    release.signers = tmp_path / "signers"
    release.signers.write_text("operations " + (tmp_path / "key.pub").read_text())
    (tmp_path / "good.py").write_text("ANSWER = 43\n")
    freezing = release.role(release.root, "freeze")
    freezing["vars"]["torchstack_provenance"] = {"key": str(tmp_path / "key"), "allowed_signers": str(release.signers)}
    release.play([release.role(release.root, "release", tasks_from="context"), freezing])
    yield release
    subprocess.run(["chmod", "-R", "u+w", str(tmp_path)], check=True)


def thaw(release, key, *more):
    """Fix the file by the playbook; its exit code and the console."""
    asked = {
        "thaw_paths": [FIXED], "thaw_reason": "The answer is wrong",
        "thaw_files": [{"path": FIXED, "src": str(release.top / "good.py")}],
        "torchstack_root": str(release.root), "torchstack_release": NAME,
        "torchstack_provenance": {"key": str(key), "allowed_signers": str(release.signers)},
    }
    done = subprocess.run(
        [PLAYBOOK, "-i", str(CHECKOUT / "inventories" / "local"), str(CHECKOUT / "playbooks" / "thaw.yml"),
         "-e", "torchstack_host=local", "-e", json.dumps(asked), *more],
        env=release.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def verified(release):
    """What bin/verify-release says, and its exit code."""
    words = [CHECKOUT / "bin" / "verify-release", release.root / NAME, "--allowed-signers", release.signers]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def test_what_was_fixed_is_stated_and_signed_anew(release):
    assert verified(release)[0] == 0
    code, said = thaw(release, release.top / "key")
    assert code == 0, said[-4000:]
    assert (release.root / NAME / FIXED).read_text() == "ANSWER = 43\n"
    code, said = verified(release)
    assert code == 0, said
    statement = json.loads((release.root / ".torchstack" / NAME / "provenance.json").read_text())
    assert statement["predicate"]["buildDefinition"]["internalParameters"]["thaws"] == 1
    code, said = thaw(release, release.top / "key")
    assert code == 0 and "changed=0" in said, said[-4000:]


def test_a_fix_that_could_not_be_signed_is_no_release_until_it_was(release):
    code, said = thaw(release, release.top / "lost")
    assert code == 2 and str(release.top / "lost") in said
    assert (release.root / NAME / FIXED).read_text() == "ANSWER = 43\n"
    assert verified(release)[0] == 1
    code, said = thaw(release, release.top / "key")
    assert code == 0, said[-4000:]
    assert verified(release)[0] == 0
