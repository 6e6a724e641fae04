# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Mask secrets in what a script prints, before it is written to the log.

The script writes into a pipe, and a thread of its supervisor takes whole lines out of it, masks what must not be seen,
and appends them to the log. A line is whole at a line feed or a carriage return; the beginning of one is passed on when
nothing follows for a moment and no secret can begin in it, so that a progress bar moves.

Nothing of this is the script's parent or child, whose exit code is its own. A script whose supervisor is killed loses
its pipe, and ends when it prints the next time; the next run would stop it anyway.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import threading
import time
from typing import Iterable, Iterator

from ..core.command_passwords import HINTS
from ..core.masks import MASK
from ..core.redaction import (
    KEY_LINE,
    without_credentials,
)
from ..core.spellings import spellings

BLOCK = 1 << 16
IDLE_SECONDS = 0.2
"""A line that has not gone on for so long is shown as far as it is."""

MAX_LINE_BYTES = 1 << 16
"""Bytes of a line without an end that are held back; then all but its last part is written."""

MAX_KEY_LINES = 400
"""Lines that the longest private keys have; what follows is no part of one."""

DRAIN_SECONDS = 2.0
"""Patience with the pipe when all that could write have ended; one that hangs in the kernel keeps it open."""

LAST_SECONDS = 60.0
"""The same where somebody whom this account cannot stop writes on and on."""

_BEGINS = re.compile(r"://|[=:]\s*\S*\Z|auth|bearer|cookie|cred|key|login|pass|pwd|secret|token"
                     r"|%s" % "|".join(map(re.escape, HINTS)), re.IGNORECASE)
"""In the beginning of a line: what may go on with a credential."""

_COUNT = re.compile(r"\W*(?:[\d.,]{1,12}\W*)?(?:[KMGT]?i?B(?:/s)?\W*)?")
"""The last word of what moves: dots, a percentage, a speed. Any other word may go on."""

_KEY_BEGINS, _KEY_ENDS = "-----BEGIN ", "-----END "


@contextlib.contextmanager
def masked(log: int, secrets: Iterable[str]) -> Iterator[int]:
    """Open a descriptor for a program that prints into the log, a descriptor too; at the end all of it is there."""
    passing = LogFilter(log, secrets)
    output = os.dup(passing.writer)
    passing.start()
    try:
        yield output
    finally:
        os.close(output)
        passing.close()


class LogFilter:
    """A pipe whose other end is a log, open for appending; :func:`..core.redaction.secret_values` must not be seen."""

    def __init__(self, log: int, secrets: Iterable[str]) -> None:
        self.spellings = spellings(secrets)
        self.seen = 0
        """Bytes that the script has written; the log may be behind by an unfinished line."""
        self.lost = 0
        """Bytes that could not be written to the log."""
        self._log = log
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._held = b""
        self._in_key = 0
        self._closing: float | None = None
        self._thread = threading.Thread(target=self._work, name="log", daemon=True)

    def start(self) -> None:
        """Begin to work; called once the script has its end of the pipe."""
        os.close(self.writer)
        self.writer = -1
        self._thread.start()

    def close(self) -> None:
        """Write what is left. Every process that should write has ended."""
        if self._thread.is_alive():
            self._closing = time.monotonic() + DRAIN_SECONDS
            self._thread.join()

    def _work(self) -> None:
        try:
            while self._take():
                pass
            self._put(self._held)
        finally:
            os.close(self._reader)

    def _take(self) -> bool:
        """Take what there is; False at the end."""
        wait = IDLE_SECONDS if self._held or self._closing is not None else 1.0
        ready = select.select([self._reader], [], [], wait)[0]
        if not ready:
            self._put(self._held, whole=False)
            return self._closing is None or time.monotonic() < self._closing
        try:
            block = os.read(self._reader, BLOCK)
        except BlockingIOError:
            return True
        if not block:
            return False
        if self._closing is not None and time.monotonic() > self._closing + LAST_SECONDS:
            return False
        self.seen += len(block)
        text = self._held + block
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        if len(text) - end > MAX_LINE_BYTES:
            end = len(text) - MAX_LINE_BYTES // 16
        self._held = text[end:]
        self._write(text[:end])
        return True

    def _put(self, text: bytes, whole: bool = True) -> None:
        if text and (whole or self._is_harmless(text)):
            self._held = b""
            self._write(text)

    def _is_harmless(self, text: bytes) -> bool:
        """Tell whether no credential begins in the beginning of a line, however it goes on."""
        line = text.decode("utf-8", "surrogateescape")
        if self._in_key or _BEGINS.search(line):
            return False
        last = "" if line[-1:].isspace() else (line.split() or [""])[-1]
        if _COUNT.fullmatch(last) is None:
            return False
        return not any(
            spelling.startswith(line[-size:]) for spelling in self.spellings
            for size in range(1, min(len(spelling), len(line) + 1))
        )

    def _write(self, block: bytes) -> None:
        if not block:
            return
        content = self._masked(block.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        while content:
            try:
                content = content[os.write(self._log, content):]
            except InterruptedError:
                continue
            except OSError:
                # A full disk must not cost a build that writes elsewhere; how much is missing is said at the end.
                self.lost += len(content)
                return

    def _masked(self, text: str) -> str:
        for spelling in self.spellings:
            text = text.replace(spelling, MASK)
        if not self._in_key and _KEY_BEGINS not in text:
            return without_credentials(text)
        return "".join(map(self._masked_line, text.splitlines(keepends=True)))

    def _masked_line(self, line: str) -> str:
        """Mask one line, where lines may be those of a private key."""
        if self._in_key and _KEY_ENDS not in line and KEY_LINE.fullmatch(line):
            self._in_key -= 1
            return ""
        # A key has ended, or was none: a build may print the first line of one as a word of a program.
        self._in_key = MAX_KEY_LINES if _KEY_BEGINS in line and "PRIVATE KEY" in line and _KEY_ENDS not in line else 0
        if self._in_key:
            return line.rstrip("\r\n") + MASK + "\n"
        return without_credentials(line)
