# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Which build of PyTorch a release gets is known beforehand, and is what it then gets."""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import sys
import sysconfig
import threading

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror.contents import Contents
from support import role_plays
from support.small_wheels import make_wheel

TAG = "cp%d%d" % sys.version_info[:2]
PLATFORM = sysconfig.get_platform().replace("-", "_").replace(".", "_")
OWN = "%s-%s-%s" % (TAG, TAG, PLATFORM)
NOWHERE = "http://127.0.0.1:9/cpu"
CPU_FILES = {"torch/__init__.py": "from .version import __version__, cuda\nfrom . import version\n",
             "torch/version.py": "__version__ = '2.13.0+cpu'\ncuda = None\n"}
CUDA_FILES = {**CPU_FILES, "torch/version.py": "__version__ = '2.13.0+cu130'\ncuda = '13.0'\n"}
NVCC = """#!/bin/sh
case "$*" in
  *--version*) echo "Cuda compilation tools, release 13.0, V13.0.88" ;;
  *) for word; do last=$word; done
     grep -q cuda_runtime.h "$last" && [ -e "${0%/*}/../include/cuda_runtime.h" ] && exit 0
     echo "$last:1:10: fatal error: cuda_runtime.h: No such file or directory" >&2; exit 1 ;;
esac
"""


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a directory and says nothing."""

    def log_message(self, *words):
        pass


@pytest.fixture()
def served(tmp_path):
    """A directory, and the address under which it is served."""
    top = tmp_path / "served"
    top.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(top)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield top, "http://127.0.0.1:%d" % server.server_port
    server.shutdown()
    server.server_close()


class Places:
    """PyTorch's own index, and the index that pip is configured with; wheels are put where a test wants them."""

    def __init__(self, top, address, scratch):
        self.top, self.address, self.scratch = top, address, scratch
        self.environment = {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": address + "/default", "PIP_FIND_LINKS": ""}
        self.cpu_index = address + "/cpu"
        self.locks = {"cpu": "", "cuda": "", "companions": ""}

    def put(self, index, key, name, version, files, tag=OWN, requires=()):
        """Put a wheel on an index, and its line into a lock."""
        project = self.top / index / name.replace("_", "-")
        line = make_wheel(project.parent / "files", name, version, files, tag, requires)
        project.mkdir(parents=True, exist_ok=True)
        file = "%s-%s-%s.whl" % (name, version, tag)
        path = project.parent / "files" / file
        digest = line.rpartition(":")[2].strip()
        with open(project / "index.html", "a") as page:
            page.write('<a href="../files/%s#sha256=%s">%s</a>\n' % (file.replace("+", "%2B"), digest, file))
        metadata = "Name: %s\n%s" % (name, "".join("Requires-Dist: %s\n" % one for one in requires))
        (path.parent / (file + ".metadata")).write_text(metadata)
        self.locks[key] += line
        return path

    def cuda_build(self, tag=OWN):
        self.put("default", "companions", "nvidia_nccl_cu13", "2.29.7", {"nvidia/nccl.h": ""}, "py3-none-any")
        return self.put("default", "cuda", "torch", "2.13.0", CUDA_FILES, tag, ["nvidia-nccl-cu13==2.29.7"])

    def cpu_build(self, index="cpu", tag=OWN):
        return self.put(index, "cpu", "torch", "2.13.0+cpu", CPU_FILES, tag)

    def definition(self, **keys):
        hashes = {TAG: ["sha256:" + line.rpartition(":")[2] for line in self.locks["cpu"].split("\n") if line]}
        pytorch = {
            "version": "2.13.0", "lock": self.locks["cuda"] or "torch==2.13.0 --hash=sha256:" + "0" * 64,
            "cpu": {"index": self.cpu_index, "timeout": 5, "hashes": hashes if self.locks["cpu"] else {}},
            "cuda_lock": self.locks["companions"],
        }
        return {"release": "r", "base": {"kind": "python_overlay", "minimum": "3.8"}, "pytorch": pytorch, **keys}

    def options(self, **more):
        options = {"definition": self.definition(), "python": sys.executable, "release": "r"}
        return {**options, "root": str(self.scratch / "root"), **more}


@pytest.fixture()
def places(served, tmp_path):
    return Places(*served, tmp_path)


def fetched(places, environment):
    """Really run the step that fetches, and return the name of the wheel."""
    scratch = places.scratch
    tools = scratch / "tools" / "bin"
    tools.mkdir(parents=True)
    (tools / "python").write_text('#!/bin/sh\nexec %s "$@"\n' % sys.executable)
    files = os.path.join(os.path.dirname(__file__), "..", "..", "roles", "python_tools", "files")
    for program in ("fetch-locked", "explain-fetch"):
        shutil.copy(os.path.join(files, program), tools)
    for path in tools.iterdir():
        path.chmod(0o755)
    release = scratch / "root" / "r"
    (release / ".torchstack" / "steps" / "base").mkdir(parents=True)
    stamp = json.dumps({"digest": "base", "nonce": "base"})
    (release / ".torchstack" / "steps" / "base" / "stamp.json").write_text(stamp)
    packages = scratch / "packages"
    variables = {
        "pytorch_base": {
            "tag": TAG, "run": "env PYTHONPATH=%s %s" % (packages, sys.executable),
            "pip": {
                "install": "%s -m pip install --target %s --no-deps" % (sys.executable, packages),
                "uninstall": "true"}},
        "pytorch_definition": places.definition()["pytorch"], "pytorch_tools": str(scratch / "tools"),
        "pytorch_records": str(release / ".torchstack"), "pytorch_sources": str(release / "src"),
        "release_context": {"proxy": {}, "records": str(release / ".torchstack")},
    }
    done = role_plays.play_tasks("pytorch", "wheel", variables, [{}], {**environment, **places.environment}, scratch)
    assert done.returncode == 0, done.stdout[-4000:]
    return json.loads((release / ".torchstack" / "pytorch.json").read_text())


@pytest.mark.parametrize("where", ["its own index", "where pip looks", "nowhere"])
def test_the_build_that_is_told_beforehand_is_the_one_that_is_fetched(places, run_module, ansible_environment, where):
    places.cuda_build()
    if where != "nowhere":
        places.cpu_build("cpu" if where == "its own index" else "default")
    if where != "its own index":
        places.cpu_index = NOWHERE
    told = run_module("pytorch_preflight", places.options(), environment=places.environment)
    assert not told.failed, told.console
    got = fetched(places, ansible_environment)
    assert told["offer"]["build"] == ("cuda" if got["cuda"] else "cpu") == ("cuda" if where == "nowhere" else "cpu")
    assert os.path.basename(got["origin"]).replace("%2B", "+") == told["offer"]["file"]
    assert told["offer"]["files"] == (2 if where == "nowhere" else 1)
    assert got["bytes"] > 0 and len(got["sha256"]) == 64


def test_checking_and_looking_in_four_steps_never_changes_anything(places, run_module, tmp_path):
    places.cuda_build()
    for check in (True, False, True, False):
        result = run_module("pytorch_preflight", places.options(), check=check, environment=places.environment)
        assert not result.failed and not result.changed, result.console
        assert not (tmp_path / "root").exists()


def test_a_cuda_build_says_why_it_is_no_cpu_build_and_that_no_gpu_is_used(places, run_module):
    places.cpu_build()
    shutil.rmtree(places.top / "cpu")
    places.cuda_build()
    result = run_module("pytorch_preflight", places.options(), environment=places.environment)
    (finding,) = result["findings"]
    assert "is a CUDA build" in finding["message"] and "404" in finding["message"]
    assert finding["message"].endswith("What is compiled on it is built without GPUs.")


def test_what_is_fetched_already_is_what_the_release_gets(places, run_module, ansible_environment):
    places.cuda_build()
    assert fetched(places, ansible_environment)["cuda"] == "13.0"
    places.cpu_build()
    result = run_module("pytorch_preflight", places.options(), environment=places.environment)
    assert result["offer"]["build"] == "cuda" and result["offer"]["fetched"] is True


def test_an_interpreter_without_a_wheel_is_refused_with_those_that_have_one(places, run_module):
    places.cuda_build("cp399-cp399-" + PLATFORM)
    places.cpu_build(tag="cp398-cp398-" + PLATFORM)
    result = run_module("pytorch_preflight", places.options(), environment=places.environment)
    assert result.failed
    assert "%s, %s" % (TAG, PLATFORM) in result["msg"] and "There are wheels for Python 3.98, 3.99." in result["msg"]
    assert "TORCHSTACK_PYTHON" in result["msg"]


def test_an_index_that_cannot_be_read_is_a_warning(places, run_module):
    places.environment["PIP_INDEX_URL"] = NOWHERE
    places.cpu_index = NOWHERE
    result = run_module("pytorch_preflight", places.options(), environment=places.environment)
    assert not result.failed
    assert "cannot be known beforehand" in result["findings"][0]["message"]


def test_without_a_mirror_no_directory_of_the_account_is_taken_for_one(places, tmp_path, monkeypatch):
    wheel = places.cuda_build()
    (tmp_path / "pip").mkdir()
    shutil.copy(wheel, tmp_path / "pip")
    monkeypatch.chdir(tmp_path)
    assert Contents("", {}, {}).names == [] and Contents(str(tmp_path), {}, {}).names == [wheel.name]


def test_room_is_asked_for_by_the_build_that_there_is(places, run_module):
    more = {"required_bytes": 1 << 60}
    places.cuda_build()
    refused = run_module("pytorch_preflight", places.options(**more), environment=places.environment)
    assert refused.failed and "the release with PyTorch's CUDA build" in refused["msg"]
    places.cpu_build()
    assert not run_module("pytorch_preflight", places.options(**more), environment=places.environment).failed


@pytest.mark.parametrize(("spoil", "says"), [
    ("", ""), ("nvcc", "There is no CUDA toolkit in"), ("include", "cuda_runtime.h: No such file or directory"),
    ("version", "is CUDA 13.0, and the release asks for 12.4"),
])
def test_the_toolkit_of_a_release_for_gpus_is_tried(places, run_module, tmp_path, spoil, says):
    toolkit = tmp_path / "cuda"
    for name in ("bin", "include", "lib64"):
        (toolkit / name).mkdir(parents=True)
    (toolkit / "bin" / "nvcc").write_text(NVCC)
    (toolkit / "bin" / "nvcc").chmod(0o755)
    (toolkit / "include" / "cuda_runtime.h").write_text("")
    if spoil in ("nvcc", "include"):
        shutil.rmtree(toolkit / ("bin" if spoil == "nvcc" else "include"))
    places.cuda_build()
    cuda = {"version": "12.4" if spoil == "version" else "13.0", "prefix": str(toolkit), "architectures": ["9.0"]}
    options = places.options(definition=places.definition(cuda=cuda))
    result = run_module("pytorch_preflight", options, environment=places.environment)
    assert result.failed is bool(says), result.console
    assert says in result.get("msg", "")


def test_a_release_for_gpus_refuses_a_cpu_build(places, run_module):
    places.put("default", "cuda", "torch", "2.13.0", CPU_FILES)
    definition = places.definition(cuda={"version": "13.0", "prefix": "/nowhere", "architectures": ["9.0"]})
    options = places.options(definition=definition, toolkit=False)
    result = run_module("pytorch_preflight", options, environment=places.environment)
    assert result.failed and "The release is for GPUs" in result["msg"]
