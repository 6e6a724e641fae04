# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import shutil
import subprocess
import zipfile

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.own_place import place_of
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.produced import binding, examine, unshared

CC = shutil.which("cc")


def nothing():
    """No heartbeat."""


def result(prefix, needles=()):
    place = place_of(str(prefix / ".torchstack" / "steps"))
    return examine([str(prefix / "out")], place, list(needles), nothing)


def make(prefix, content=b"x", name="a"):
    (prefix / "out" / "deep").mkdir(parents=True)
    (prefix / "out" / "deep" / name).write_bytes(content)
    (prefix / "out" / "link").symlink_to("deep/" + name)
    return prefix


def test_two_releases_have_the_same_result_whenever_and_wherever_it_was_made(tmp_path):
    one, two = make(tmp_path / "one"), make(tmp_path / "two")
    os.utime(str(one / "out" / "deep" / "a"), (1, 1))
    assert result(one) == result(two)
    assert [entry["path"] for entry in result(one).files] == ["out/deep/a", "out/link"]


def other_mode(prefix):
    (prefix / "out" / "deep" / "a").chmod(0o755)


def other_link(prefix):
    (prefix / "out" / "link").unlink()
    (prefix / "out" / "link").symlink_to("nowhere")


def more(prefix):
    (prefix / "out" / "b").write_bytes(b"")


@pytest.mark.parametrize("change", [
    lambda prefix: (prefix / "out" / "deep" / "a").write_bytes(b"y"), other_mode, other_link, more,
    lambda prefix: (prefix / "out" / "deep").rename(prefix / "out" / "other"),
])
def test_any_other_content_is_another_result(tmp_path, change):
    one, two = make(tmp_path / "one"), make(tmp_path / "two")
    change(two)
    assert result(one).digest != result(two).digest


def test_who_may_read_a_file_is_no_part_of_the_result(tmp_path):
    one, two = make(tmp_path / "one"), make(tmp_path / "two")
    (two / "out" / "deep" / "a").chmod(0o400)
    assert result(one).digest == result(two).digest


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (b"prefix=%s/base\n", ["out/deep/a has the release's directory in its text"]),
        (b"#!%s/base/bin/python\n", ["out/deep/a has the release's directory in its text"]),
        (b"x" * (9 << 20) + b"%s", ["out/deep/a has the release's directory in its text"]),
        (b"nothing of it: /soft/other", []),
    ],
    ids=["pc", "shebang", "far in", "none"],
)
def test_a_text_that_names_its_place_is_bound_to_it(tmp_path, content, where):
    prefix = tmp_path / "one"
    text = content.replace(b"%s", str(prefix).encode()) if b"%s" in content else content
    assert result(make(prefix, text), [str(prefix).encode()]).bound == where


def test_a_needle_across_two_blocks_is_found(tmp_path):
    needle = b"/soft/stacks/2026-11-20"
    path = tmp_path / "a"
    for shift in range(len(needle) + 1):
        path.write_bytes(b"x" * ((4 << 20) - shift) + needle + b"y")
        assert binding(str(path), [needle], nothing) == ["its text"], shift


def test_a_link_into_the_release_is_bound_to_it(tmp_path):
    prefix = make(tmp_path / "one")
    (prefix / "out" / "far").symlink_to(prefix / "base")
    found = result(prefix, [str(prefix).encode()])
    assert found.bound == ["out/far is a link into this release"]
    assert unshared(found.bound) == "not kept for other releases: out/far is a link into this release"
    assert unshared(["a", "b", "c", "d", "e"]) == "not kept for other releases: a; b; c and 2 more"
    assert unshared([]) == ""


PROGRAM = """
#include <assert.h>
%s
int answer(int x) { assert(x); return x; }
"""


def compiled(tmp_path, *options, extra=""):
    source = tmp_path / "release" / "src" / "answer.c"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(PROGRAM % extra)
    target = tmp_path / "answer.so"
    subprocess.run([CC, "-g", "-shared", "-fPIC", *options, "-o", str(target), str(source)], check=True)
    content = target.read_bytes()
    assert str(tmp_path / "release").encode() in content, "nothing to be found"
    return str(target), [str(tmp_path / "release").encode()]


@pytest.mark.skipif(CC is None, reason="there is no compiler")
def test_the_names_of_its_sources_do_not_bind_an_object(tmp_path):
    assert binding(*compiled(tmp_path), nothing) == []


@pytest.mark.skipif(CC is None, reason="there is no compiler")
def test_a_search_path_or_a_directory_in_its_data_does(tmp_path):
    path, needles = compiled(tmp_path, "-Wl,-rpath,%s/base/lib" % (tmp_path / "release"))
    assert binding(path, needles, nothing) == ["its section .dynstr"]
    path, needles = compiled(tmp_path, extra='const char *data = "%s/share";' % (tmp_path / "release"))
    assert binding(path, needles, nothing) == ["its section .rodata"]


def test_a_wheel_is_looked_into(tmp_path):
    path = tmp_path / "a.whl"
    with zipfile.ZipFile(str(path), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/__init__.py", "here = '/soft/stacks/2026-11-20/base'\n" * 9)
        archive.writestr("a/b.py", "")
    assert b"/soft" not in path.read_bytes()
    assert binding(str(path), [b"/soft/stacks/2026-11-20"], nothing) == ["a/__init__.py, its text"]
