# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Small releases on disk that have one of everything that can be installed."""

from __future__ import annotations

import base64
import hashlib
import json
import pathlib
from typing import Any, Mapping

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SUM = hashlib.sha256(b"a wheel").hexdigest()
SERIES = "5" * 64
WITH_TOKEN = "https://conda.example.org/t/tk-1234567890/forge"
WITH_PASSWORD = "https://user:pa55word@git.example.org/plugin.git"
KERNEL = "share/jupyter/kernels/torchstack/kernel.json"
PATCHES = {"0001-first.patch": b"--- a\n+++ b\n", "0002-second.patch": b"--- c\n+++ d\n"}


def make(prefix: pathlib.Path, **changed: Any) -> dict[str, Any]:
    """A release on a conda base with sources, patches, packages, a file of its site's, and what else that brings.

    Args:
        prefix: its directory.
        changed: keys of the resolved release file to replace.

    Returns:
        its resolved release file.
    """
    packages = prefix / "base" / "lib" / "python3.11" / "site-packages"
    conda(prefix, "python", "3.11.9", "h955ad1f_0", licence="Python-2.0")
    conda(prefix, "numpy", "1.26.4", "py311h0", licence="BSD-3-Clause", url=WITH_TOKEN,
          files=["lib/python3.11/site-packages/numpy-1.26.4.dist-info/METADATA"])
    distribution(packages, "numpy", "1.26.4", licence="BSD")
    distribution(packages, "torch", "2.3.1", expression="Apache-2.0 AND BSD-3-Clause", wheel=SUM)
    distribution(packages, "horovod", "0.28.1", licence="Apache 2.0", wheel=SUM)
    distribution(packages, "Pure.Thing", "1!2.0+local", classifiers=["License :: OSI Approved :: MIT License"])
    distribution(packages, "silent", "0")
    step(prefix, "pytorch", {"USE_CUDA": "1", "CUDNN_LIBRARY": str(prefix) + "/base/lib", "PYTHONPATH": "/x"})
    variables = {"HOROVOD_WITH_MPI": "1", "HF_TOKEN": "hunter2hunter2", "PIP_NO_INPUT": "1"}
    step(prefix, "horovod", variables, "2026-11-20T10:00:00Z")
    step(prefix, "package-apex", {"TORCH_CUDA_ARCH_LIST": "8.0"}, "2026-11-20T09:00:00Z")
    for name, content in PATCHES.items():
        place = prefix / ".torchstack" / "series" / "horovod" / SERIES / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    record(prefix, "pytorch", {"version": "2.3.1", "cuda": "12.1", "origin": "https://example.org/pytorch@" + COMMIT})
    record(prefix, "imports", {"reported": {
        "mpi4py.MPI.Get_library_version()": "MPI VERSION    : CRAY MPICH version 8.1.28.29 (ANL base 3.4a2)\nmore"}})
    record(prefix, "verification", {"objects": {"base/lib/libtorch.so": {
        "needed": {"libmpi_gnu_91.so.12": {}, "libmpi_gtl_cuda.so.0": {}, "libnccl.so.2": {}, "libc.so.6": {}}}}})
    found = {
        "release": prefix.name, "site": "mysite", "digest": "d" * 64,
        "tools": str(prefix.parent / ".torchstack/tools/1"),
        "base": {"kind": "conda", "prefix": str(prefix / "base"), "minor": "3.11", "tag": "cp311",
                 "site_packages": str(packages)},
        "python": {"version": "3.6.15"},
        "mpi": {"provider": "named", "prefix": "/opt/cray/pe/mpich/8.1.28/ofi/gnu/9.1"},
        "series": {"horovod": SERIES},
        "module": {
            "prepend": [{"name": "PATH", "values": [str(prefix / "base/bin"), "/opt/cuda/bin"]}],
            "setenv": {"CONDA_PREFIX": str(prefix / "base"), "FI_PROVIDER": "cxi"}, "depends_on": ["PrgEnv-gnu"],
        },
        "definition": {
            "title": "PyTorch 2.3.1 with one of everything", "base": {"kind": "conda"},
            "cuda": {"version": "12.1", "prefix": "/opt/cuda"},
            "mpi": {"prefix": "/opt/cray/pe/mpich/8.1.28/ofi/gnu/9.1"},
            "nccl": {
                "version": "2.21.5", "repository": "https://github.com/NVIDIA/nccl", "tag": "v2.21.5-1",
                "commit": COMMIT,
                "plugin": {"version": "1.6.0", "repository": WITH_PASSWORD, "commit": COMMIT},
                "tests": {"repository": "file:///shared/nccl-tests.git", "tag": "v2.13.6", "commit": COMMIT},
            },
            "pytorch": {"version": "2.3.1", "source": {
                "repository": "https://github.com/pytorch/pytorch", "tag": "v2.3.1", "commit": COMMIT, "series": ""}},
            "horovod": {"version": "0.28.1", "sha256": "a" * 64, "series": "0.28.1"},
            "packages": [
                {"name": "apex", "version": "0.1", "repository": "https://gitlab.example.org/apex", "commit": COMMIT},
                {"name": "Pure.Thing", "version": "1!2.0+local",
                 "lock": "Pure.Thing==1!2.0+local --hash=sha256:" + "b" * 64},
                {"name": "tarred", "version": "3", "archive": "https://example.org/tarred-3.tar.gz",
                 "sha256": "c" * 64},
            ],
        },
    }
    site_file(prefix, found, KERNEL, '{"argv": ["{base}/bin/python"]}', base=str(prefix / "base"))
    return {**found, **changed}


def site_file(prefix: pathlib.Path, resolved: dict[str, Any], path: str, content: str, **words: str) -> None:
    """A file of the site's: where it lies, with the words filled in, in the record, and in the release file."""
    files = resolved["definition"].setdefault("files", [])
    files[:] = [one for one in files if one["path"] != path]
    files.append({"path": path, "content": base64.b64encode(content.encode()).decode(), "fill": sorted(words)})
    for word, meaning in words.items():
        content = content.replace("{%s}" % word, meaning)
    below = path.replace("site-packages/", "lib/python3.11/site-packages/")
    place = prefix / "base" / below
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(content)
    listing = prefix / ".torchstack" / "site_files.json"
    known = json.loads(listing.read_text())["files"] if listing.exists() else []
    digest = hashlib.sha256(content.encode()).hexdigest()
    record(prefix, "site_files", {"format": 1, "files": [
        *(one for one in known if one["path"] != below), {"path": below, "sha256": [digest]}]})


def container(prefix: pathlib.Path) -> dict[str, Any]:
    """A release that is a container."""
    (prefix / ".torchstack").mkdir(parents=True)
    packages = prefix / "base" / "user-software" / "lib" / "python3.10" / "site-packages"
    distribution(packages, "einops", "0.8.2", expression="MIT")
    return {
        "release": prefix.name, "site": "mysite", "digest": "d" * 64,
        "base": {"kind": "container", "prefix": str(prefix / "base"), "minor": "3.10",
                 "image": {"file": "pytorch.sif", "sha256": "e" * 64}},
        "mpi": {"provider": "image", "prefix": ""},
        "definition": {"title": "PyTorch in an image", "base": {"kind": "container"}, "pytorch": {"version": "2.2.0"}},
    }


def distribution(
    packages: pathlib.Path, name: str, version: str, licence: str = "", expression: str = "", classifiers=(),
    wheel: str = "", author: str = "", requires=(), tag: str = "",
) -> None:
    """A Python distribution's metadata."""
    place = packages / ("%s-%s.dist-info" % (name.replace(".", "_"), version))
    place.mkdir(parents=True)
    lines = ["Metadata-Version: 2.4", "Name: " + name, "Version: " + version]
    lines += ["License: " + licence] if licence else []
    lines += ["License-Expression: " + expression] if expression else []
    lines += ["Classifier: " + said for said in classifiers]
    lines += ["Author-email: " + author] if author else []
    lines += ["Requires-Dist: " + said for said in requires]
    (place / "METADATA").write_text("\n".join([*lines, "", "A description.\n"]))
    if tag:
        (place / "WHEEL").write_text("Wheel-Version: 1.0\nTag: %s\n" % tag)
    if wheel:
        archive = {"hash": "sha256=" + wheel, "hashes": {"sha256": wheel}}
        said = {"url": "file:///x/wheels/%s.whl" % name, "archive_info": archive}
        (place / "direct_url.json").write_text(json.dumps(said))


def conda(
    prefix: pathlib.Path, name: str, version: str, build: str, licence: str = "MIT", files=(),
    url: str = "https://conda.example.org/forge",
) -> None:
    """A conda package's record."""
    place = prefix / "base" / "conda-meta" / ("%s-%s-%s.json" % (name, version, build))
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps({
        "name": name, "version": version, "build": build, "subdir": "linux-64", "channel": url + "/",
        "license": licence, "url": "%s/linux-64/%s-%s-%s.conda" % (url, name, version, build),
        "sha256": hashlib.sha256(name.encode()).hexdigest(),
        "paths_data": {"paths": [{"_path": file} for file in files]},
    }))


def step(
    prefix: pathlib.Path, name: str, environment: Mapping[str, str], finished: str = "2026-11-20T08:00:00Z",
) -> None:
    """A build step's records."""
    place = prefix / ".torchstack" / "steps" / name
    place.mkdir(parents=True)
    (place / "inputs.json").write_text(json.dumps({"facts": {"environment": dict(environment)}}))
    (place / "stamp.json").write_text(json.dumps({"digest": "0", "finished": finished}))


def fetched(prefix: pathlib.Path, step_name: str, digests: Mapping[str, str]) -> None:
    """The result of a step that fetched files."""
    place = prefix / ".torchstack" / "steps" / step_name
    place.mkdir(parents=True, exist_ok=True)
    files = [{"path": "src/%s/%s" % (step_name, name), "sha256": digest} for name, digest in digests.items()]
    (place / "result.json").write_text(json.dumps({"files": files}))


def record(prefix: pathlib.Path, name: str, content: Mapping[str, Any]) -> None:
    """A record of the build."""
    (prefix / ".torchstack" / (name + ".json")).write_text(json.dumps(content))
