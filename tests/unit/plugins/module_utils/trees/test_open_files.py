# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Whether a file is open anywhere, by what the kernel says to a lease."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import signal

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import open_files as lease


@pytest.fixture(name="file")
def file_with_leases(tmp_path):
    path = tmp_path / "libx.so"
    path.write_bytes(b"x" * 8192)
    if asked(str(path)) == lease.UNSUPPORTED:
        pytest.skip("the file system of the tests has no leases")
    return str(path)


def asked(path):
    with lease.undisturbed():
        return lease.ask(None, path)


def test_a_file_that_nobody_has_open_is_free(file):
    assert asked(file) == lease.FREE
    assert lease.still_held([file]) == []


def test_an_open_file_is_held(file):
    with open(file, "rb"):
        assert asked(file) == lease.HELD
    assert asked(file) == lease.FREE


def test_a_mapped_file_is_held_though_its_descriptor_is_closed(file):
    with open(file, "rb") as stream:
        pages = mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ)
    assert asked(file) == lease.HELD
    pages.close()
    assert asked(file) == lease.FREE


def test_a_file_that_is_read_for_a_moment_only_is_not_held(file):
    stream = open(file, "rb")  # noqa: SIM115 closed while the test waits
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        stream.close()

    assert lease.still_held([file], sleep) == []
    assert pauses == [lease.AGAIN[0]]


def test_a_file_that_stays_open_stays_held(file):
    pauses = []
    with open(file, "rb"):
        assert lease.still_held([file], pauses.append) == [file]
    assert pauses == list(lease.AGAIN)


def test_a_file_that_is_gone_is_gone(tmp_path):
    assert asked(str(tmp_path / "gone")) == lease.GONE


def test_a_link_is_not_followed(file, tmp_path):
    (tmp_path / "link").symlink_to(file)
    assert asked(str(tmp_path / "link")) == lease.NOT_OURS


@pytest.mark.parametrize("code, word", [
    (errno.EINVAL, lease.UNSUPPORTED), (errno.EOPNOTSUPP, lease.UNSUPPORTED), (errno.EACCES, lease.NOT_OURS),
    (errno.EAGAIN, lease.HELD),
])
def test_what_the_kernel_may_answer(tmp_path, monkeypatch, code, word):
    path = tmp_path / "file"
    path.write_text("x")

    def refuse(_descriptor, _command, _argument):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    assert asked(str(path)) == word


def test_the_signal_of_a_broken_lease_is_ignored_meanwhile_only():
    before = signal.getsignal(signal.SIGIO)
    with lease.undisturbed():
        os.kill(os.getpid(), signal.SIGIO)
    assert signal.getsignal(signal.SIGIO) == before


MOUNTS = """\
22 1 254:1 / / rw,relatime - ext4 /dev/vda1 rw
40 22 0:55 / /soft rw shared:7 master:2 - nfs4 server:/soft rw,vers=4.2
41 22 0:56 / /lustre rw - lustre mgs:/x rw
"""


@pytest.mark.parametrize("device, kind", [((254, 1), "ext4"), ((0, 55), "nfs4"), ((0, 56), "lustre"), ((9, 9), "")])
def test_the_type_of_a_file_system_is_that_of_its_device(device, kind):
    assert lease.type_of(MOUNTS, os.makedev(*device)) == kind


def test_a_lease_means_something_here_and_where_nothing_is_nobody_asks(file):
    assert lease.means_this_host(file)
    assert lease.means_this_host(file + ".gone")
