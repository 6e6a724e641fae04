# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Where a release lies, taken out of what its files hold."""

from __future__ import annotations

from ansible_collections.hpcml.torchstack.plugins.module_utils.release.compare_places import of_release


def test_texts_lose_the_release_and_its_root_and_nothing_that_only_begins_so(tmp_path):
    places = of_release(str(tmp_path / "root" / "2026"))
    root = str(tmp_path / "root").encode()
    text = b"#!%s/2026/bin/python %s/2026-old %s/cache %s/2026.\n" % (root, root, root, root)
    assert places.without(text) == b"#!{prefix}/bin/python {root}/2026-old {root}/cache {prefix}.\n"


def test_in_a_binary_what_fills_up_a_shorter_place_goes_with_it(tmp_path):
    short, long = tmp_path / "a" / "2026", tmp_path / "longer" / "2026"
    contents = [
        b"\x7fCODE\0" + (str(place).encode() + b"/lib").ljust(len(str(tmp_path)) + 60, b"\0") + b"next\0"
        for place in (short, long)
    ]
    bare = [of_release(str(place)).without(content) for place, content in zip((short, long), contents)]
    assert contents[0] != contents[1] and bare[0] == bare[1] == b"\x7fCODE\0{prefix}/lib\0next\0"


def test_where_a_release_was_built_is_known_from_its_own_file(tmp_path):
    (tmp_path / ".torchstack").mkdir()
    (tmp_path / ".torchstack" / "release.yml").write_text("base:\n  kind: conda\n  prefix: /soft/x/2026/base\n")
    places = of_release(str(tmp_path))
    assert places.without(b"/soft/x/2026/base/lib and /soft/x/cache") == b"{prefix}/base/lib and {root}/cache"
