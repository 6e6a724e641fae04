# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A step without network: what real programs are told that want to download, and what the operator is told."""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import canonical
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.files import step_files
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.inputs import step_facts
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.request import check_request
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.status import query
from ansible_collections.hpcml.torchstack.plugins.modules import build_step
from support import slurm_cluster
from support.batch_steps import BatchSteps, quicken
from support.polling import eventually

HOST = "downloads.torchstack.invalid"
"""No such host can be there (RFC 6761)."""


@pytest.fixture(name="step")
def one_step(tmp_path):
    """Run step ``horovod`` without network, as the module does."""
    state = tmp_path / "the steps"
    defaults = {key: spec.get("default") for key, spec in build_step.ARGUMENTS.items()}

    def run(script, **options):
        """The result; of a step that failed, with ``failed``."""
        asked = {"name": "horovod", "state_dir": str(state), "network": False, "script": script, **options}
        try:
            result = build_step.present({**defaults, **asked}, False, False)
            return result if result["state"] != "running" else eventually(lambda: ended(result), "the step ends", 600)
        except StackError as error:
            return dict(error.as_result(), failed=True)

    def ended(result):
        seen = query(step_files(str(state), result["step"]), result["nonce"])
        return seen if seen["state"] != "running" else None

    run.directory = state / "horovod"
    run.record = run.directory / "refused.jsonl"
    run.log = (run.directory / "log").read_text
    run.refused = lambda: [json.loads(line) for line in run.record.read_text().splitlines()]
    return run


@pytest.fixture()
def account(tmp_path, monkeypatch):
    """The caller's environment: its own configuration of a proxy, and its own cache."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[http]\n\tproxy = http://127.0.0.1:9\n")
    (home / ".npmrc").write_text("proxy = http://127.0.0.1:9\nhttps-proxy = http://127.0.0.1:9\n")
    for name, value in {"HOME": str(home), "TMPDIR": str(home), "no_proxy": "*", "PIP_PROXY": "127.0.0.1:9"}.items():
        monkeypatch.setenv(name, value)
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)


URLLIB = "python3 -c %s" % shlex.quote("import urllib.request; urllib.request.urlopen('https://%s/gloo')" % HOST)
SOCKS = """
import os, socket
port = int(os.environ["http_proxy"].rpartition(":")[2])
with socket.create_connection(("127.0.0.1", port)) as proxy:
    proxy.sendall(b"\\x05\\x01\\x00")
    if proxy.recv(2) != b"\\x05\\x00":
        raise SystemExit("not greeted")
    name = b"%s"
    proxy.sendall(b"\\x05\\x01\\x00\\x03" + bytes([len(name)]) + name + b"\\x01\\xbb")
    raise SystemExit("refused by a rule" if proxy.recv(10)[1] == 2 else "not refused")
""" % HOST
PROGRAMS = {
    "curl": ("curl -sSfLO https://%s/gloo.tar.gz", "https://%s/gloo.tar.gz"),
    "curl, plainly": ("curl -sSf http://%s/gloo.tar.gz", "http://%s/gloo.tar.gz"),
    "curl, by ftp": ("curl -sSf ftp://%s/gloo.tar.gz", "ftp://%s/gloo.tar.gz"),
    "wget": ("wget -q --tries=1 https://%s/gloo.zip", "https://%s/gloo.zip"),
    "git": ("git clone https://%s/horovod.git", "https://%s/horovod.git"),
    "git, by ssh": ("git clone git@%s:horovod.git", "ssh://%s/horovod.git"),
    "git, by ssh and port": ("git clone ssh://me@%s:22/horovod.git", "ssh://%s/horovod.git"),
    "git, its own way": ("git clone git://%s/horovod.git", "http://%s/horovod.git/info/refs?..."),
    "npm": ("npm install --registry http://%s/npm/ left-pad", "http://%s/npm/left-pad"),
    "python3": ("python3 -c " + shlex.quote("import urllib.request as u; u.urlopen('http://%s/gloo')"), "http://%s/gloo"),
    "python3, by SOCKS": ("python3 -c " + shlex.quote(SOCKS.replace(HOST, "%s")), "https://%s/"),
}


def test_s19_every_program_that_downloads_in_a_build_is_refused_and_named(step, account):
    there = {name: value for name, value in PROGRAMS.items() if shutil.which(name.partition(",")[0])}
    hosts = {name: "host-%d.invalid" % place for place, name in enumerate(there)}
    lines = ["%s && echo '%s got it'" % (command % hosts[name], name) for name, (command, _url) in there.items()]
    result = step("cd \"$(mktemp -d)\"\n%s\nexit 7\n" % "\n".join(line + " || true" for line in lines))
    assert result["failed"]
    assert "got it" not in step.log()
    asked = {}
    for entry in step.refused():
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", entry["time"])
        assert entry["step"] == "horovod"
        asked.setdefault(entry["host"], []).append(entry["url"].rstrip("/"))
    for name, (_command, url) in there.items():
        assert (url % hosts[name]).rstrip("/") in asked.get(hosts[name], []), name


def test_s19_pip_in_a_build_is_refused_at_once_and_its_index_named(step, account):
    pip = "%s -m pip download --no-deps --index-url https://%s/simple gloo" % (shlex.quote(sys.executable), HOST)
    result = step("cd \"$(mktemp -d)\"\n" + pip)
    assert "step horovod tried to download https://%s/simple" % HOST in result["msg"]
    assert "from host %s" % HOST in result["msg"]


def test_s19_the_failure_names_host_address_and_step_and_where_to_fetch(run_module, tmp_path):
    options = {"state_dir": str(tmp_path), "launcher": "local"}
    run_module("build_step", {"name": "horovod-source", "script": "true", **options})
    result = run_module("build_step", {
        "name": "horovod", "script": "git clone https://%s/horovod.git" % HOST, "network": False,
        "needs": ["horovod-source"], **options,
    })
    said = " ".join(result.console.split())
    assert (
        "Step horovod failed with exit code 128: step horovod tried to download https://%s/horovod.git from host %s: "
        "build steps have no network; fetch it in the fetch step horovod-source" % (HOST, HOST)
    ) in said
    assert "CONNECT tunnel failed" in said


@pytest.fixture()
def cluster(tmp_path_factory):
    """A Slurm of one node."""
    with slurm_cluster.running(tmp_path_factory.mktemp("w"), nodes=1) as world:
        yield world


@pytest.fixture()
def server(tmp_path):
    """A server with one file; its address."""
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "gloo.tar.gz").write_text("fetched")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "served"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield "http://127.0.0.1:%d/gloo.tar.gz" % running.server_port
        running.shutdown()
        thread.join()


def test_s19_a_job_builds_from_what_the_login_side_fetched(cluster, server, tmp_path, monkeypatch):
    quicken(monkeypatch)
    for key, value in cluster.environment.items():
        monkeypatch.setenv(key, value)
    login, jobs = BatchSteps(tmp_path / "steps", "local"), BatchSteps(tmp_path / "steps", "slurm", cores=1)
    fetched = tmp_path / "release" / "gloo.tar.gz"
    fetched.parent.mkdir()
    script = "python3 -c 'import sys, urllib.request as u; u.urlretrieve(*sys.argv[1:])' %s %s" % (server, fetched)
    try:
        assert login.run(script, "horovod-source", options={}, creates=[str(fetched)])["state"] == "done"
        build = {"needs": ["horovod-source"], "network": False, "chdir": str(fetched.parent)}
        done = jobs.run("cp gloo.tar.gz built", "horovod", creates=["built"], **build)
        assert done["state"] == "done"
        assert fetched.with_name("built").read_text() == "fetched"
        error = jobs.failure(jobs.run, "git clone https://%s/gloo.git" % HOST, "horovod", **build)
        assert "step horovod tried to download https://%s/gloo.git from host %s" % (HOST, HOST) in error["msg"]
        assert "fetch it in the fetch step horovod-source" in error["msg"]
        # Two builds, two jobs; the fetch step is none.
        assert len(cluster.jobs("ts-horovod-")) == len(cluster.jobs()) == 2
    finally:
        jobs.stop()


def test_what_a_build_does_without_is_a_warning(step):
    result = step(URLLIB + " || echo 'no gloo, then'")
    assert (result["state"], len(step.refused())) == ("done", 1)
    assert len(result["warnings"]) == 1
    assert result["warnings"][0].startswith("Step horovod tried to download https://%s/gloo from host" % HOST)
    assert "It ended well all the same" in result["warnings"][0]


def test_a_build_that_asks_for_nothing_leaves_no_record_and_no_listener(step):
    assert step("echo \"<$http_proxy>\"")["state"] == "done"
    assert not step.record.exists()
    assert is_closed(step)


def is_closed(step):
    """Whether nobody listens any more where the script was told to ask."""
    port = int(re.search(r"<http://127\.0\.0\.1:(\d+)>", step.log()).group(1))
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) != 0


def test_the_next_attempt_does_not_blame_what_the_last_one_was_refused(step):
    script = "test -e ../once && exit 3\ntouch ../once\n" + URLLIB
    assert "tried to download" in step(script)["msg"]
    again = step(script)
    assert (again["exit_code"], again["refused"]) == (3, [])
    assert "tried to download" not in again["msg"]
    assert not step.record.exists()


def test_a_proxy_that_a_module_or_the_caller_sets_does_not_lead_past_the_refusal(step, tmp_path, monkeypatch):
    init = tmp_path / "init.sh"
    init.write_text("module() { export https_proxy=http://127.0.0.1:9 HTTPS_PROXY=http://127.0.0.1:9; }\n")
    for name, value in {"https_proxy": "http://127.0.0.1:9", "no_proxy": "*", "ALL_PROXY": "socks5://h:9"}.items():
        monkeypatch.setenv(name, value)
    result = step(URLLIB, module_init=str(init), modules=["proxy/site"])
    assert "tried to download https://%s/" % HOST in result["msg"]


def test_run_by_hand_the_script_has_the_network(step):
    step("echo \"proxy is <${http_proxy:-none}>\"")
    by_hand = subprocess.run(
        ["bash", str(step.directory / "script.sh")], env={"PATH": os.environ["PATH"]}, stdout=subprocess.PIPE,
        check=True,
    )
    assert by_hand.stdout == b"proxy is <none>\n"


def test_parallel_children_and_those_in_other_sessions_are_refused_too(step):
    one = "python3 -c \"import urllib.request; urllib.request.urlopen('http://host-$i.invalid/part')\""
    result = step("for i in 1 2 3 4 5 6 7 8; do setsid %s & done; wait; exit 7" % one)
    wanted = {("host-%d.invalid" % number, "http://host-%d.invalid/part" % number) for number in range(1, 9)}
    assert {(entry["host"], entry["url"]) for entry in step.refused()} == wanted
    assert re.search(r"from host host-\d\.invalid \(and 7 more\)", result["msg"])


FLOOD = """
import os, socket
port = int(os.environ["http_proxy"].rpartition(":")[2])
idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
refused = 0
for number in range(250):
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"GET http://flood.invalid/%d HTTP/1.1\\r\\n\\r\\n" % number)
        refused += client.makefile("rb").readline().startswith(b"HTTP/1.1 403 Step horovod: build steps have no")
with socket.create_connection(("127.0.0.1", port)) as client:
    client.sendall(b"\\0\\1garbage" * 400)
print("refused", refused)
"""


def test_a_flood_is_refused_to_its_end_and_recorded_to_a_bound(step, tmp_path):
    program = tmp_path / "flood.py"
    program.write_text(FLOOD)
    assert step("python3 %s" % shlex.quote(str(program)))["state"] == "done"
    log = step.log()
    assert "\nrefused 250\n" in log
    assert len(step.refused()) == 200
    assert len(log.splitlines()) < 300


def test_no_password_and_no_signature_of_an_address_is_recorded(step):
    step("python3 -c \"import urllib.request as u; u.urlopen('http://%s/a?X-Signature=secret')\" || true\n"
         "word=secret; git clone https://me:$word@%s/b || true" % (HOST, HOST))
    assert {entry["url"].rstrip("/") for entry in step.refused()} == {"http://%s/a?..." % HOST, "https://%s/b" % HOST}
    assert "secret" not in step.record.read_text()


def test_only_the_lack_of_a_network_is_part_of_the_digest(tmp_path):
    def digest(**options):
        asked = {"name": "s", "state_dir": str(tmp_path), "script": "true", **options}
        return canonical.digest_of(step_facts(check_request(asked), {}))

    assert digest() == digest(network=True) != digest(network=False)


def test_the_listener_dies_with_a_supervisor_that_is_killed(step):
    result = step("echo \"<$http_proxy>\"; until grep -q '<http' log; do :; done; kill -9 $PPID; sleep 600")
    assert result["reason"] in ("killed", "lost")
    eventually(lambda: is_closed(step), "the listener goes")
    # The next run stops what is left of it.
    assert step("true")["state"] == "done"


def test_the_settings_for_git_of_the_step_itself_are_kept(step):
    settings = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "torchstack.mine", "GIT_CONFIG_VALUE_0": "kept"}
    step("git config torchstack.mine; git config http.proxy", environment=settings)
    assert re.search(r"\nkept\nhttp://127\.0\.0\.1:\d+\n", step.log())
