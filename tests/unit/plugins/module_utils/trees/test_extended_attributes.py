# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Access control lists, capabilities and attributes of users."""

from __future__ import annotations

import errno
import os
import struct

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import extended_attributes as attributes

NOBODY = 0xFFFFFFFF
OWNER, USER, GROUP_OBJ, GROUP, MASK, OTHER = 1, 2, 4, 8, 16, 32


def access_list(*entries):
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


@pytest.fixture(name="has")
def the_attributes(monkeypatch):
    """Have every file these attributes."""
    def having(found):
        def get(_target, name, **_options):
            if name not in found:
                raise OSError(errno.ENODATA, "none")
            return found[name]
        monkeypatch.setattr(os, "listxattr", lambda _target, **_options: list(found))
        monkeypatch.setattr(os, "getxattr", get)
    return having


def test_what_belongs_to_a_machine_or_a_file_system_is_left_out(has):
    has({"user.note": b"\x00a", "security.selinux": b"x", "lustre.lov": b"y", "security.capability": b"\x01",
         "user.long": b"z" * 33, "system.posix_acl_access": access_list(
             (OWNER, 6, NOBODY), (USER, 7, 1000), (GROUP_OBJ, 4, NOBODY), (MASK, 7, NOBODY), (OTHER, 0, NOBODY))})
    found = attributes.read_attributes(3)
    assert sorted(found) == ["security.capability", "system.posix_acl_access", "user.long", "user.note"]
    assert found["user.note"] == "0061" and found["user.long"].startswith("sha256:")
    assert found["system.posix_acl_access"] == "user::rw-,user:1000:rwx,group::r--,mask::rwx,other::---"


@pytest.mark.parametrize("entries, writable", [
    ([(OWNER, 7, NOBODY), (GROUP_OBJ, 5, NOBODY), (OTHER, 5, NOBODY)], False),
    ([(OWNER, 7, NOBODY), (GROUP_OBJ, 7, NOBODY), (OTHER, 5, NOBODY)], True),
    ([(OWNER, 7, NOBODY), (USER, 7, 1000), (GROUP_OBJ, 5, NOBODY), (MASK, 5, NOBODY), (OTHER, 5, NOBODY)], False),
    ([(OWNER, 7, NOBODY), (USER, 7, 1000), (GROUP_OBJ, 5, NOBODY), (MASK, 7, NOBODY), (OTHER, 5, NOBODY)], True),
    ([(OWNER, 7, NOBODY), (GROUP, 2, 100), (GROUP_OBJ, 5, NOBODY), (MASK, 7, NOBODY), (OTHER, 5, NOBODY)], True),
    ([(OWNER, 7, NOBODY), (GROUP_OBJ, 5, NOBODY), (MASK, 5, NOBODY), (OTHER, 7, NOBODY)], True),
])
def test_a_default_list_lets_others_write_as_its_mask_has_it(has, entries, writable):
    has({attributes.DEFAULT_LIST: access_list(*entries)})
    assert attributes.hands_on_writing(3) is writable


@pytest.mark.parametrize("value", [b"", b"\x02\0\0\0\x01", access_list((OTHER, 7, 0))[1:], b"\x09\0\0\0" + b"\0" * 8])
def test_a_malformed_list_is_shown_as_it_is(has, value):
    has({attributes.DEFAULT_LIST: value})
    assert attributes.hands_on_writing(3) is False
    assert attributes.read_attributes(3) == {attributes.DEFAULT_LIST: value.hex()}


def test_a_file_system_without_attributes_has_none(monkeypatch):
    def refuse(*_words, **_options):
        raise OSError(errno.ENOTSUP, "not supported")
    monkeypatch.setattr(os, "listxattr", refuse)
    monkeypatch.setattr(os, "getxattr", refuse)
    assert attributes.read_attributes(3) == {} and not attributes.is_capable(3)
