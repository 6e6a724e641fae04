# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Format sizes, times and speeds for people. Pure."""

from __future__ import annotations

from typing import Sequence

from ..core import lenient_json
from ..ranks.placement import format_ranges

DASH = "\u2013"
"""For what is not known, and between the ends of a range."""

DAY = 24 * 3600.0

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(value: float | None) -> str:
    """Format bytes by 1024: ``1 GiB``, ``1.5 MiB``; a dash for what is not known."""
    if value is None:
        return DASH
    power = 0
    while value >= 1024 and power < len(_UNITS) - 1:
        value, power = value / 1024.0, power + 1
    return "%s %s" % (short(value), _UNITS[power])


def duration(value: float | None) -> str:
    """Format seconds as ``0.4 s``, ``41 s``, ``2 min 31 s`` or ``5 h 2 min``."""
    if value is None:
        return DASH
    if value < 9.95:
        return "%.1f s" % value
    whole = round(value)
    if whole < 60:
        return "%d s" % whole
    if whole < 3600:
        return "%d min %d s" % divmod(whole, 60)
    return "%d h %d min" % divmod(round(value / 60), 60)


def age(value: float | None) -> str:
    """Format seconds as a duration up to a day, and then as ``12 d``."""
    return duration(value) if value is None or value < DAY else "%d d" % (value // DAY)


def speed(value: float | None) -> str:
    """Format a bandwidth in GB/s or a latency in microseconds with three digits, which align."""
    return DASH if value is None else _three(value)


def count(number: int | None, one: str, several: str = "") -> str:
    """Format ``1 rank``, ``8 ranks``."""
    if number is None:
        return DASH
    return "%d %s" % (number, one if number == 1 else several or one + "s")


def moment(text: str | None) -> str:
    """Format a time of the records as ``2026-11-20 12:00:05 UTC``; a dash where there is none."""
    said = lenient_json.text(text)
    return said.replace("T", " ").replace("Z", " UTC") if said else DASH


def numbers(values: Sequence[int]) -> str:
    """Format whole numbers with runs in short: ``0 to 3, 7``, with a dash for the "to"."""
    return format_ranges(set(values)).replace("-", DASH).replace(",", ", ")


def day(text: str | None) -> str:
    """Format a time of the records to the minute: ``2026-11-20 12:00``."""
    said = lenient_json.text(text)
    return said[:16].replace("T", " ") if said else DASH


def sentence(text: str) -> str:
    """Add a full stop to a text without an end."""
    return text + "." if text and text[-1] not in ".!?:;" else text


def short(value: float) -> str:
    """Format a number with up to three digits, without zeros at its end."""
    text = _three(value)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def _three(value: float) -> str:
    for limit, form in ((99.95, "%.0f"), (9.995, "%.1f"), (0.9995, "%.2f"), (0.09995, "%.3f")):
        if abs(value) >= limit:
            return form % value
    return "%.3g" % value
