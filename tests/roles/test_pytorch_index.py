# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's wheel of one version of CUDA from the index that a release file names, its companions from elsewhere."""

from __future__ import annotations

import functools
import http.server
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import threading

import pip
import pytest
from support import role_plays
from support.small_wheels import NAME, make_wheel

FILES = pathlib.Path(__file__).parents[2] / "roles" / "python_tools" / "files"


class Site:
    """An index with the wheel, and the place where pip looks otherwise, which has companions and another torch."""

    def __init__(self, top, environment):
        self.top, self.index, self.default = top, top / "cu121", top / "default"
        torch = {"torch/__init__.py": "from . import version\n__version__ = '2.3.1+cu121'\n"}
        self.lock = make_wheel(self.index, "torch", "2.3.1+cu121", {**torch, "torch/version.py": "cuda = '12.1'\n"})
        make_wheel(self.default, "torch", "2.3.1", {**torch, "torch/version.py": "cuda = None\n"})
        companion = {"nvidia/nccl/lib/libnccl.so.2": "code"}
        self.companions = make_wheel(self.default, "nvidia_nccl_cu12", "2.20.5", companion)
        self.environment = {
            **environment, "PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": self.default.as_uri(),
        }
        tools = top / "tools" / "bin"
        tools.mkdir(parents=True)
        (tools / "python").write_text('#!/bin/sh\nexec %s "$@"\n' % sys.executable)
        for program in ("fetch-locked", "explain-fetch"):
            shutil.copy(FILES / program, tools)
        for path in tools.iterdir():
            path.chmod(0o755)
        self.records, self.packages = top / "release" / ".torchstack", top / "packages"
        (self.records / "steps" / "base").mkdir(parents=True)
        (self.records / "steps" / "base" / "stamp.json").write_text(json.dumps({"digest": "base", "nonce": "base"}))

    def install(self, **pytorch):
        """Run the role's tasks for a wheel; the finished process."""
        base = {
            "tag": "cp312", "run": "env PYTHONPATH=%s %s" % (self.packages, sys.executable),
            "pip": {
                "install": "%s -m pip install --target %s --no-deps" % (sys.executable, self.packages),
                # Not that of a virtual environment, which would leave alone what is outside of itself.
                "uninstall": "env PIP_BREAK_SYSTEM_PACKAGES=1 PYTHONPATH=%s:%s %s -m pip uninstall --yes" % (
                    self.packages, os.path.dirname(pip.__path__[0]), sys._base_executable),
            },
        }
        definition = {"version": "2.3.1", "lock": self.lock, "cuda_lock": self.companions, **pytorch}
        variables = {
            "pytorch_base": base, "pytorch_definition": definition, "pytorch_tools": str(self.top / "tools"),
            "pytorch_records": str(self.records), "pytorch_sources": str(self.top / "release" / "src"),
            "release_context": {"proxy": {}, "records": str(self.records)},
        }
        return role_plays.play_tasks("pytorch", "wheel", variables, [{}], self.environment, self.top)


@pytest.fixture()
def site(tmp_path, ansible_environment):
    return Site(tmp_path, ansible_environment)


def test_s27_the_wheel_comes_from_the_index_of_the_release_and_its_companions_from_where_pip_looks(site):
    done = site.install(index=str(site.index))
    assert done.returncode == 0, done.stdout[-4000:]
    record = json.loads((site.records / "pytorch.json").read_text())
    assert (record["version"], record["cuda"]) == ("2.3.1+cu121", "12.1")
    assert record["origin"].startswith(site.index.as_uri())
    assert (site.packages / "nvidia" / "nccl" / "lib" / "libnccl.so.2").exists()


def test_s27_a_wheel_that_the_index_does_not_have_is_not_taken_from_elsewhere(site):
    (site.index / (NAME % ("torch", "2.3.1+cu121"))).unlink()
    done = site.install(index=str(site.index))
    assert done.returncode != 0
    said = " ".join(done.stdout.split())
    assert "PyTorch's wheel was not had from %s, the only place that pytorch.index names." % site.index in said
    assert "roll out from a mirror" in said
    assert not site.packages.exists()


def test_s27_a_mirror_takes_the_place_of_the_index(site):
    subprocess.run(["cp", "-R", "%s/." % site.index, str(site.default)], check=True)
    done = site.install(index="https://index.invalid/cu121")
    assert done.returncode == 0, done.stdout[-4000:]
    assert json.loads((site.records / "pytorch.json").read_text())["origin"].startswith(site.default.as_uri())


def test_a_wheel_of_another_build_takes_the_place_of_the_former_with_all_that_came_with_it(site):
    files = {"torch/__init__.py": "from . import version\n__version__ = '2.3.1+cpu'\n",
             "torch/version.py": "cuda = None\n"}
    elsewhere = site.top / "cpu"
    locks = (site.lock, make_wheel(elsewhere, "torch", "2.3.1+cpu", files))
    hashes = [line.partition(" ")[2].strip() for line in locks]
    asked = {"index": str(site.index), "lock": "torch==2.3.1 %s\n" % " ".join(hashes)}
    done = site.install(**asked)
    assert done.returncode == 0, done.stdout[-4000:]
    companion = site.packages / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
    assert companion.exists()
    (site.index / (NAME % ("torch", "2.3.1+cu121"))).unlink()
    (elsewhere / (NAME % ("torch", "2.3.1+cpu"))).rename(site.index / (NAME % ("torch", "2.3.1+cpu")))
    done = site.install(**asked)
    assert done.returncode == 0 and json.loads((site.records / "pytorch.json").read_text())["cuda"] == "12.1"
    # As `state: absent` does it.
    (site.records / "steps" / "pytorch-fetch" / "stamp.json").unlink()
    done = site.install(**asked)
    assert done.returncode == 0, done.stdout[-4000:]
    record = json.loads((site.records / "pytorch.json").read_text())
    assert (record["version"], record["cuda"]) == ("2.3.1+cpu", None)
    assert not companion.exists()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a directory, and says nothing."""

    def log_message(self, *_words):
        """See :class:`http.server.BaseHTTPRequestHandler`."""


@pytest.fixture()
def behind_a_proxy(site):
    """PyTorch's CPU index, with a certificate that only pip is told of, as that of a proxy that opens connections."""
    if not shutil.which("openssl"):
        pytest.skip("openssl makes the certificate, and is not there")
    key, certificate = site.top / "key.pem", site.top / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    index = site.top / "served" / "cpu" / "torch"
    files = {"torch/__init__.py": "from . import version\n__version__ = '2.3.1+cpu'\n",
             "torch/version.py": "cuda = None\n"}
    lock = make_wheel(index, "torch", "2.3.1+cpu", files)
    name = NAME % ("torch", "2.3.1+cpu")
    (index / "index.html").write_text('<!DOCTYPE html><a href="%s">%s</a>' % (name.replace("+", "%2B"), name))
    server = http.server.ThreadingHTTPServer(
        ("localhost", 0), functools.partial(Quiet, directory=str(site.top / "served")))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    del site.environment["PIP_NO_INDEX"]
    site.environment["PIP_CERT"] = str(certificate)
    yield {"index": "https://localhost:%d/cpu" % server.server_address[1], "timeout": 10, "hashes": {
        "cp312": lock.rpartition("--hash=")[2].strip()}}
    server.shutdown()


def test_the_cpu_index_is_reached_by_the_certificate_that_pip_is_configured_for(site, behind_a_proxy):
    done = site.install(cpu=behind_a_proxy)
    assert done.returncode == 0, done.stdout[-4000:]
    record = json.loads((site.records / "pytorch.json").read_text())
    assert record["version"] == "2.3.1+cpu" and record["origin"].startswith(behind_a_proxy["index"])
