# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Files of a real PyTorch: a source of Debian's source package, headers of a wheel. Else tests are skipped."""

from __future__ import annotations

import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
from support import debian_archive
from support.debian_archive import KEYS

VERSION = "2.6.0"
SUITE = "trixie"
BACKEND = "torch/csrc/distributed/c10d/ProcessGroupMPI.cpp"
# Of all wheels of one version the smallest; nothing in it is run.
PLATFORM = "macosx_11_0_arm64"


def once(factory, name, make):
    """A directory that one of the processes of a test run makes, and all of them read.

    Args:
        factory: pytest's factory of temporary directories.
        name: of the directory.
        make: fills the directory that it is called with.
    """
    top = factory.getbasetemp()
    place = (top.parent if "PYTEST_XDIST_WORKER" in os.environ else top) / name
    with open(str(place) + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.is_dir():
            scratch = pathlib.Path(str(place) + ".part")
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            make(scratch)
            scratch.rename(place)
    return place


def sources(factory):
    """A directory with BACKEND as PyTorch VERSION has it."""
    return once(factory, "pytorch-%s" % VERSION, _unpack_source)


def headers(factory):
    """The directory of PyTorch VERSION's headers."""
    return once(factory, "pytorch-%s-headers" % VERSION, _unpack_headers) / "torch" / "include"


def _unpack_source(place):
    archive = _download_source(place)
    with tarfile.open(archive, "r|xz") as stream:
        for member in stream:
            top, _slash, name = member.name.partition("/")
            if name == BACKEND:
                stream.extract(member, place)
                (place / top / "torch").rename(place / "torch")
                return
    pytest.fail("%s has no %s" % (archive.name, BACKEND))


def _download_source(place):
    """Debian's archive of the release, which apt compares with the signed index."""
    if not shutil.which("apt-get") or not os.path.exists(KEYS):
        pytest.skip("no apt-get with Debian's keys: nothing to fetch PyTorch's source with")
    archive = debian_archive.mirror()
    if not archive:
        pytest.skip("this machine's packages do not come from Debian")
    (place / "lists" / "partial").mkdir(parents=True)
    (place / "sources.list").write_text("deb-src [signed-by=%s] %s %s main\n" % (KEYS, archive, SUITE))
    settings = {
        "Dir::Etc::SourceList": place / "sources.list", "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": place / "lists", "Dir::Cache": place, "Acquire::Retries": 3,
    }
    apt = ["apt-get", "--quiet", *("--option=%s=%s" % item for item in settings.items())]
    _run(*apt, "update", cwd=place)
    _run(*apt, "source", "--download-only", "--tar-only", "pytorch", cwd=place)
    found = list(place.glob("pytorch_%s*.orig.tar.xz" % VERSION))
    if not found:
        pytest.skip("%s has no PyTorch %s any more" % (SUITE, VERSION))
    return found[0]


def _unpack_headers(place):
    _run(
        sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(place),
        "--platform", PLATFORM, "--python-version", "3.11", "torch==" + VERSION,
    )
    wheel = next(place.glob("torch-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place, [name for name in archive.namelist() if name.startswith("torch/include/")])
    wheel.unlink()


def _run(*words, cwd=None):
    """Run a program that fetches; a test is skipped where it cannot."""
    done = subprocess.run(words, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        pytest.skip("%s cannot fetch: %s" % (words[0], done.stdout.strip()[-300:]))
    return done.stdout
