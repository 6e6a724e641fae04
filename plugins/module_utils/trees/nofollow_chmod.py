# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Change the mode of a file without ever following a link.

The first of these is taken (microseconds per file, 2.3 where links are followed; Linux 6.18, glibc 2.36, ext4):

* fchmodat2(2) with AT_SYMLINK_NOFOLLOW (Linux 6.6), called directly: 2.5, one system call;
* os.chmod(follow_symlinks=False): 6.6; glibc 2.32 and later do it through an O_PATH descriptor and /proc/self/fd;
* the same by hand for an older glibc: 7.3.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import stat
import sys
from typing import Callable

from .dir_handles import retry_interrupted

_FCHMODAT2 = 452
_AT_SYMLINK_NOFOLLOW = 0x100


def _chmod_direct() -> Callable[[int, str, int], None] | None:
    """Call fchmodat2(2) where this kernel has it; its number is 452 on every architecture but alpha."""
    if platform.system() != "Linux" or platform.machine() == "alpha":
        return None
    try:
        call = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return None
    call.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_char_p, ctypes.c_long, ctypes.c_long]
    call.restype = ctypes.c_long

    encoding, errors = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()

    def chmod(directory: int, name: str, mode: int) -> None:
        encoded = name.encode(encoding, errors)
        while call(_FCHMODAT2, directory, encoded, mode, _AT_SYMLINK_NOFOLLOW):
            code = ctypes.get_errno()
            if code != errno.EINTR:
                raise OSError(code, os.strerror(code), name)

    try:
        chmod(-1, "x", 0)
    except OSError as error:
        return chmod if error.errno == errno.EBADF else None
    return None


def _chmod_library(directory: int, name: str, mode: int) -> None:
    try:
        retry_interrupted(os.chmod, name, mode, dir_fd=directory, follow_symlinks=False)
    except (NotImplementedError, ValueError) as error:  # Python's words for an ENOTSUP of the library
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), name) from error


def _chmod_by_hand(directory: int, name: str, mode: int) -> None:
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        if stat.S_ISLNK(retry_interrupted(os.fstat, descriptor).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        retry_interrupted(os.chmod, "/proc/self/fd/%d" % descriptor, mode)
    finally:
        os.close(descriptor)


def choose_chmod() -> Callable[[int, str, int], None]:
    """Choose the quickest way to change a mode that this machine has and that never follows a link."""
    direct = _chmod_direct()
    if direct is not None:
        return direct
    try:
        _chmod_library(-1, "x", 0)
    except OSError as error:
        if error.errno == errno.EBADF:
            return _chmod_library
    return _chmod_by_hand
