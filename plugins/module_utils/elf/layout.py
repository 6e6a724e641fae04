# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Describe the binary structures of an ELF file, for each class and byte order."""

from __future__ import annotations

import struct


class Layout:
    """Describe the structures of one class and byte order, so that nothing else distinguishes them."""

    def __init__(self, order: str, wide: bool) -> None:
        # type, machine, version, offset of the program headers, flags, their size, their number
        self.header = struct.Struct(order + ("HHI8xQ8xI2xHH6x" if wide else "HHI4xI4xI2xHH6x"))
        # type, offset, address, size in the file, size in memory, alignment
        self.segment = struct.Struct(order + ("I4xQQ8xQQQ" if wide else "III4xII4xI"))
        self.entry = struct.Struct(order + ("QQ" if wide else "II"))
        self.word = struct.Struct(order + "I")
        self.words4 = struct.Struct(order + "IIII")
        self.note = struct.Struct(order + "III")
        self.property = struct.Struct(order + "II")
        self.property_alignment = 8 if wide else 4
        # version, file, first auxiliary, next / flags, name, next
        self.need = struct.Struct(order + "H2xIII")
        self.need_auxiliary = struct.Struct(order + "4xH2xII")
        # version, first auxiliary, next / name
        self.definition = struct.Struct(order + "H10xII")


LAYOUTS = {
    (kind, order): Layout("<" if order == 1 else ">", kind == 2)  # EI_CLASS 2 is 64 bit, EI_DATA 1 little-endian
    for kind in (1, 2)
    for order in (1, 2)
}
