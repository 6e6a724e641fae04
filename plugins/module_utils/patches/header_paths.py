# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Parse the names and times in the header lines of a diff."""

from __future__ import annotations

import datetime
import os
import re

from ..core.text import in_words

_ISO_STAMP = re.compile(rb"^(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?: ?([+-])(\d\d):?(\d\d))?$")
_STAMP_AFTER_BLANKS = re.compile(
    rb"^(.*?)[ ]+(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S*(?: [+-]\d{4})?"
    rb"|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})$"
)
_ESCAPES = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13, b'"': 34, b"\\": 92}


class BadName(ValueError):
    """Report a name that is not accepted; the text is a clause, ``remedy`` what to do."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem)
        self.remedy = remedy


def display(name: bytes) -> str:
    """Show a name on one line for people and JSON: other bytes than printable UTF-8 are escaped."""
    return in_words(os.fsdecode(name))


def parse_header_name(rest: bytes) -> tuple[bytes | None, bool | None]:
    """Parse the name after ``--- `` or ``+++ ``, None for /dev/null, and its time (:func:`is_epoch`).

    A tab ends the name; without one a time at the end of the line is recognised by its form, so names may hold blanks.
    """
    if rest.startswith(b'"'):
        name, stamp = unquote(rest)
    else:
        name, tab, stamp = rest.partition(b"\t")
        blanks = _STAMP_AFTER_BLANKS.match(name)
        if not tab and blanks:
            name, stamp = blanks.groups()
    if name == b"/dev/null":
        return None, True
    return name, is_epoch(stamp.strip())


def git_name(rest: bytes, strip: int) -> bytes:
    """Find the name in what follows ``diff --git ``: both halves are the same file, blanks or not."""
    if rest.startswith(b'"'):
        return unquote(rest)[0]
    for split in (index for index, byte in enumerate(rest) if byte == 0x20):
        left, right = rest[:split], rest[split + 1:]
        if right.startswith(b'"'):
            right = unquote(right)[0]
        halves = [re.split(rb"/+", half)[strip:] for half in (left, right)]
        if halves[0] and halves[0] == halves[1]:
            return left
    raise BadName("cannot tell the name of the file from '%s'" % display(rest))


def unquote(text: bytes) -> tuple[bytes, bytes]:
    """Decode a name in git's C-style quotes; returns it and what follows the closing quote."""
    out, at = bytearray(), 1
    while at < len(text):
        byte = text[at:at + 1]
        if byte == b'"':
            return bytes(out), text[at + 1:]
        if byte != b"\\":
            out += byte
            at += 1
            continue
        octal = re.match(rb"[0-3][0-7]{2}", text[at + 1:])
        if not octal and text[at + 1:at + 2] not in _ESCAPES:
            break
        out.append(int(octal.group(0), 8) if octal else _ESCAPES[text[at + 1:at + 2]])
        at += 4 if octal else 2
    raise BadName("a quoted name that does not end")


def strip_path(name: bytes, strip: int) -> bytes:
    """Strip leading components from a name, and return the path below the tree; refuse what leads elsewhere."""
    shown = display(name)
    if name.startswith(b"/"):
        raise BadName("the absolute name '%s'" % shown, "Make the patch with names relative to the tree.")
    if b"\0" in name:
        raise BadName("a name with a NUL byte")
    parts = re.split(rb"/+", name)
    if len(parts) <= strip:
        raise BadName("'%s' has no component left after strip=%d" % (shown, strip), "Set strip as for patch -p.")
    parts = [part for part in parts[strip:] if part != b"."]
    if b".." in parts:
        raise BadName("'%s' leads out of the tree" % shown, "Make the patch with names inside the tree.")
    if not parts or not parts[-1] or parts[0] == b".git":
        raise BadName("'%s' is not the name of a source file" % shown)
    return b"/".join(parts)


def is_epoch(stamp: bytes) -> bool | None:
    """Tell whether a header's time is 1970-01-01 00:00 UTC, which means no file; None if no time."""
    match = _ISO_STAMP.match(stamp)
    if not match:
        return True if stamp == b"Thu Jan  1 00:00:00 1970" else (False if stamp else None)
    year, month, day, hour, minute, second = (int(digits) for digits in match.groups()[:6])
    try:
        moment = datetime.datetime(year, month, day, hour, minute, min(second, 59))
    except ValueError:
        return False
    if match.group(8):
        away = datetime.timedelta(hours=int(match.group(9)), minutes=int(match.group(10)))
        moment += away if match.group(8) == b"-" else -away
    return moment == datetime.datetime(1970, 1, 1) and not int(match.group(7) or b"0")
