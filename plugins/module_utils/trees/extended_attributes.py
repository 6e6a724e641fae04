# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read what a file has besides its mode: access control lists, file capabilities, attributes of users.

Other name spaces of xattr(7) belong to a machine or a file system, such as SELinux' labels and Lustre's layout, and are
no part of a release. The binary form of an access control list is that of linux/posix_acl_xattr.h.
"""

from __future__ import annotations

import errno
import hashlib
import os
import struct
from typing import Iterator

CAPABILITY, ACCESS_LIST, DEFAULT_LIST = "security.capability", "system.posix_acl_access", "system.posix_acl_default"
KEPT = (CAPABILITY, ACCESS_LIST, DEFAULT_LIST)
OF_USERS = "user."

MAX_SHOWN = 32
"""Bytes of a value that are shown as they are; of a longer one its digest."""

_NONE = (errno.ENOTSUP, errno.ENOSYS, errno.ENODATA)
_TAGS = {1: "user", 2: "user", 4: "group", 8: "group", 16: "mask", 32: "other"}
_OWNER, _MASK, _OTHER = 1, 16, 32
_NAMED = (2, 8)
_WRITE = 2


def read_attributes(target: int | str) -> dict[str, str]:
    """Read the attributes of an open file, or of a path that is not followed.

    Returns:
        by name, a list as ``getfacl --numeric`` has it, with commas; else the value in hexadecimal digits, or
        ``sha256:`` and its digest. Raises OSError: the system refuses.
    """
    return {name: _shown(name, value) for name, value in _values(target)}


def is_capable(target: int | str) -> bool:
    """Tell whether a file has capabilities. Raises OSError: the system refuses."""
    return bool(_value(target, CAPABILITY))


def hands_on_writing(target: int | str) -> bool:
    """Tell whether others than the owner may write what is made in a directory, by its default access control list.

    Raises OSError: the system refuses.
    """
    entries = list(_entries(_value(target, DEFAULT_LIST)))
    mask = next((bits for tag, bits, _number in entries if tag == _MASK), 7)
    return any(
        bits & (7 if tag == _OTHER else mask) & _WRITE for tag, bits, _number in entries if tag not in (_OWNER, _MASK))


def _values(target: int | str) -> Iterator[tuple[str, bytes]]:
    try:
        names = os.listxattr(target, **_unfollowed(target))
    except OSError as error:
        if error.errno not in _NONE:
            raise
        return
    for name in sorted(names):
        if name in KEPT or name.startswith(OF_USERS):
            value = _value(target, name)
            if value is not None:
                yield name, value


def _value(target: int | str, name: str) -> bytes | None:
    try:
        return os.getxattr(target, name, **_unfollowed(target))
    except OSError as error:
        if error.errno not in _NONE:
            raise
        return None


def _unfollowed(target: int | str) -> dict[str, bool]:
    return {} if isinstance(target, int) else {"follow_symlinks": False}


def _entries(value: bytes | None) -> Iterator[tuple[int, int, int]]:
    """Yield tag, permission bits and number of each entry of a list; none of one that is malformed."""
    if value and len(value) % 8 == 4 and value[:4] == struct.pack("<I", 2):
        yield from struct.iter_unpack("<HHI", value[4:])


def _shown(name: str, value: bytes) -> str:
    lines = [
        "%s:%s:%s" % (_TAGS.get(tag, tag), number if tag in _NAMED else "", "".join(
            letter if bits & bit else "-" for letter, bit in (("r", 4), ("w", 2), ("x", 1))))
        for tag, bits, number in (_entries(value) if name in (ACCESS_LIST, DEFAULT_LIST) else ())]
    if lines:
        return ",".join(lines)
    return value.hex() if len(value) <= MAX_SHOWN else "sha256:" + hashlib.sha256(value).hexdigest()
