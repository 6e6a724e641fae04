# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Where a release lies, taken out of what its files hold.

The comparisons that use them (compare_*) are covered by tests/modules/test_release_compare.py.
"""

from __future__ import annotations

from ansible_collections.hpcml.torchstack.plugins.module_utils.release.path_masks import masks_of_release


def test_texts_lose_the_release_and_its_root_and_nothing_that_only_begins_so(tmp_path):
    places = masks_of_release(str(tmp_path / "root" / "2026"))
    root = str(tmp_path / "root").encode()
    text = b"#!%s/2026/bin/python %s/2026-old %s/cache %s/2026.\n" % (root, root, root, root)
    assert places.mask(text) == b"#!{prefix}/bin/python {root}/2026-old {root}/cache {prefix}.\n"


def test_in_a_binary_what_fills_up_a_shorter_place_goes_with_it(tmp_path):
    short, long = tmp_path / "a" / "2026", tmp_path / "longer" / "2026"
    contents = [
        b"\x7fCODE\0" + (str(place).encode() + b"/lib").ljust(len(str(tmp_path)) + 60, b"\0") + b"next\0"
        for place in (short, long)
    ]
    masked = [masks_of_release(str(place)).mask(content) for place, content in zip((short, long), contents)]
    assert contents[0] != contents[1] and masked[0] == masked[1] == b"\x7fCODE\0{prefix}/lib\0next\0"


def test_where_a_release_was_built_is_known_from_its_own_file(tmp_path):
    (tmp_path / ".torchstack").mkdir()
    (tmp_path / ".torchstack" / "release.yml").write_text("base:\n  kind: conda\n  prefix: /soft/x/2026/base\n")
    places = masks_of_release(str(tmp_path))
    assert places.mask(b"/soft/x/2026/base/lib and /soft/x/cache") == b"{prefix}/base/lib and {root}/cache"
