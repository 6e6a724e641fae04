# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Saying what is going on."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

EVERY = 10.0
"""Seconds between two signs of life."""


def say(text: str) -> None:
    """Print a line, at once."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """Say what begins, every ten seconds that it still goes on, and how long it took."""
    begun = time.monotonic()
    ended = threading.Event()

    def remind() -> None:
        while not ended.wait(EVERY):
            say("   still: %s, %.0f s" % (what, time.monotonic() - begun))

    say("-- %s" % what)
    reminder = threading.Thread(target=remind, daemon=True)
    reminder.start()
    try:
        yield
    finally:
        ended.set()
        reminder.join()
    say("   done in %.0f s" % (time.monotonic() - begun))
