# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Secrets are planted wherever a login and a build have them; none is ever on disk, in a repository or on the screen.

The release is built, frozen, archived and reported by the real roles and modules, in one play. What may hold a secret
are the account's own files, which lie in its home, and nothing below the root.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import pathlib
import subprocess
import sys
import urllib.parse

import pytest
import yaml

NAME = "2026-11-20"
PLANTED = {
    "caller": "ghp_" + 36 * "c",
    "cloud": "cl0ud/Key+0123456789=",
    "named": "hf-named-0123456789",
    "proxy": "pr0xy%2Fpassword",
    "index": "ind3x-password",
    "conda": "me-c0nda-token-1234",
    "file": "p1p.conf-password",
    "netrc": "n3trc-password",
    "header": "b3arer.header-token",
    "signature": "s1gnature0123456789",
    "argument": "argum3nt-password",
    "preloaded": "r3fused-in-environment",
    "input": "inpu7-with-password",
}

NOISY = """
env | sort
cat ~/.config/pip/pip.conf ~/.netrc
printf '%s' "${NAMED_TOKEN:0:9}"; printf '%s\\n' "${NAMED_TOKEN:9}"
set -x
: "$NAMED_TOKEN"
printf '%s' "$NAMED_TOKEN" | base64
echo "fetching https://conda.example.org/t/$(cat ~/conda)/main/linux-64"
echo "> Authorization: Bearer $(cat ~/header)"
echo "https://s3.example.org/x?X-Amz-Signature=$(cat ~/signature)&a=1"
echo "me: tool --password $(cat ~/argument) --verbose" >&2
echo '{"index": "'"$PIP_INDEX_URL"'"}'
test "${GITHUB_TOKEN-none}${AWS_SECRET_ACCESS_KEY-none}${LD_LIBRARY_CHECK-none}" = nonenonenone
test "$NAMED_TOKEN" = "$(cat ~/named)"
"""


class Flow:
    """The release that was made, what was printed, and what is to be found nowhere."""

    def __init__(self, top, environment):
        self.top = top
        self.root, self.home, self.logs = top / "root", top / "home", top / "logs.git"
        self.make_home()
        self.make_release()
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(self.logs)], check=True)
        self.environment = dict(
            environment, HOME=str(self.home), GITHUB_TOKEN=PLANTED["caller"], AWS_SECRET_ACCESS_KEY=PLANTED["cloud"],
            https_proxy="http://me:%s@proxy.example.org:3128" % PLANTED["proxy"], PYTHONUNBUFFERED="1",
            PIP_INDEX_URL="https://me:%s@index.example.org/simple" % PLANTED["index"],
            ANSIBLE_LOG_PATH=str(top / "ansible.log"),
        )
        self.printed = ""

    def make_home(self):
        (self.home / ".config" / "pip").mkdir(parents=True)
        (self.home / ".config" / "pip" / "pip.conf").write_text(
            "[global]\nextra-index-url = https://me:%s@index.example.org/x\n" % PLANTED["file"])
        (self.home / ".netrc").write_text("machine git.example.org login me password %s\n" % PLANTED["netrc"])
        for name in ("header", "signature", "argument", "named", "conda"):
            (self.home / name).write_text(PLANTED[name])

    def make_release(self):
        (self.root / NAME / ".torchstack").mkdir(parents=True)
        (self.root / ".torchstack" / NAME).mkdir(parents=True)
        resolved = {"release": NAME, "site": "mysite", "digest": "d", "python": {"executable": sys.executable}}
        (self.root / NAME / ".torchstack" / "release.yml").write_text(yaml.safe_dump(resolved))

    def step(self, name, script, **more):
        environment = more.pop("of_task", {})
        task = {"name": name, "script": script, "state_dir": str(self.root / NAME / ".torchstack" / "steps"), **more}
        return {"hpcml.torchstack.build_step": task, "environment": environment, "ignore_errors": True}

    def role(self, name, **what):
        of_release = {
            "torchstack_root": str(self.root), "torchstack_release": NAME, "torchstack_site": "mysite",
            "release_file": "/nonexistent", "torchstack_required_bytes": 0, "torchstack_required_inodes": 0,
            # The page shows what report.json has, and nothing else.
            "freeze_log_repository": str(self.logs), "freeze_bytecode": False, "report_page": False,
        }
        return {"ansible.builtin.include_role": {"name": "hpcml.torchstack." + name, **what}, "vars": of_release}

    def run(self):
        token = {"NAMED_TOKEN": PLANTED["named"]}
        asked = {"url": "https://me:%s@git.example.org/x.git" % PLANTED["input"], "password": PLANTED["input"]}
        tasks = [
            self.role("release", tasks_from="context"),
            self.step("noisy", NOISY, secrets=["NAMED_TOKEN"], of_task=token, inputs=asked),
            self.step("failing", NOISY + "exit 3\n", secrets=["NAMED_TOKEN"], of_task=token),
            self.step("silent", NOISY + "sleep 600\n", secrets=["NAMED_TOKEN"], of_task=token, no_output_timeout=1),
            self.step("refused", "true", environment={"SOME_TOKEN": PLANTED["preloaded"]}),
            self.step("without", "true", secrets=["ABSENT_TOKEN"]),
            self.role("freeze"),
            self.role("report"),
        ]
        playbook = self.top / "play.yml"
        playbook.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
        command = [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), "-i", "localhost,", "-c", "local"]
        process = subprocess.run(
            [*command, "--diff", str(playbook)], env=self.environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False,
        )
        self.printed = process.stdout
        assert process.returncode == 0, process.stdout[-6000:]

    def everything(self):
        """Every text that others can read: by name, bytes."""
        yield "what Ansible printed", self.printed.encode()
        for top in (self.root, self.top / "ansible.log"):
            for path in sorted(top.rglob("*") if top.is_dir() else [top]):
                if path.is_file() and not path.is_symlink():
                    content = path.read_bytes()
                    yield str(path), gzip.decompress(content) if path.name.endswith(".gz") else content
        batch = ["git", "cat-file", "--batch-all-objects", "--batch"]
        yield "the repository", subprocess.run(batch, cwd=str(self.logs), stdout=subprocess.PIPE, check=True).stdout

    def record(self, *parts):
        return self.root.joinpath(NAME, ".torchstack", "steps", *parts).read_text()


@pytest.fixture(scope="module")
def flow(tmp_path_factory, ansible_environment):
    made = Flow(tmp_path_factory.mktemp("secrets"), ansible_environment)
    made.run()
    yield made
    subprocess.run(["chmod", "-R", "u+w", str(made.root)], check=True)


def spelled(secret):
    """A secret as it is and as programs spell it."""
    raw = secret.encode()
    return {raw, urllib.parse.quote(secret, safe="").encode(), urllib.parse.unquote(secret).encode(),
            base64.b64encode(raw).rstrip(b"="), json.dumps(secret)[1:-1].encode()}


def test_s09_no_planted_secret_is_in_a_record_the_log_archive_the_repository_the_report_or_on_the_screen(flow):
    found = [
        (name, what) for name, content in flow.everything() for what, secret in PLANTED.items()
        if any(spelling in content for spelling in spelled(secret))
    ]
    assert not found
    looked = [pathlib.Path(name).name for name, _content in flow.everything()]
    for name in ("log", "script.sh", "inputs.json", "job.json", "exit", "logs.tar.gz", "frozen.json", "report.json",
                 "sbom.spdx.json", "ansible.log"):
        assert name in looked


def test_the_commands_had_the_secret_that_their_step_names_and_no_other(flow):
    assert json.loads(flow.record("noisy", "stamp.json"))["nonce"]
    log = flow.record("noisy", "log")
    assert "NAMED_TOKEN=***" in log and "https_proxy=http://me:***@proxy.example.org:3128" in log
    assert "extra-index-url = https://***@index.example.org/x" in log
    assert "login me password ***" in log and "> Authorization: ***" in log and "--password *** --verbose" in log
    assert "https://conda.example.org/t/***/main/linux-64" in log


def test_a_failure_is_told_with_what_its_log_has_and_its_own_exit_code(flow):
    assert json.loads(flow.record("failing", "exit"))["code"] == 3
    log = flow.root / NAME / ".torchstack" / "steps" / "failing" / "log"
    assert "Step failing failed with exit code 3" in flow.printed and "The log is %s." % log in flow.printed
    assert json.loads(flow.record("silent", "exit"))["reason"] == "no_output_timeout"


def test_what_would_write_a_secret_down_is_refused_and_what_is_not_there_is_named(flow):
    for sentence in (
        "Step refused has the value of a secret in SOME_TOKEN, and everybody may read its script.",
        "Step without needs ABSENT_TOKEN, which the environment of its task does not have.",
    ):
        assert sentence in flow.printed
    for name in ("refused", "without"):
        assert not (flow.root / NAME / ".torchstack" / "steps" / name).exists()


def test_the_records_say_that_there_was_a_secret_and_not_which(flow):
    inputs = json.loads(flow.record("noisy", "inputs.json"))
    assert inputs["facts"]["secrets"] == ["NAMED_TOKEN"]
    assert inputs["facts"]["inputs"] == {"url": "https://***@git.example.org/x.git", "password": "***"}
    assert ': "${NAMED_TOKEN:?is not set}"' in flow.record("noisy", "script.sh")
