# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Two releases made from the same file, and in which ways they differ."""

from __future__ import annotations

import gzip
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import zipfile

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.release import compare_trees

COMMAND = pathlib.Path(__file__).resolve().parent.parent.parent / "bin" / "compare"
PACKAGES = "base/lib/python3.11/site-packages/"
SOURCE = """
#include <stdio.h>
static const char* where(void) { return "%s/share"; }
static const char* texts[] = {"one", "two"};
int counter;
int answer(int which) {
  counter += printf("%%s and then %%s at line %%d of %%s\\n", texts[which], "three", __LINE__, where());
  return %d;
}
"""

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to build small libraries")


class Release:
    """A release that is made in some root, as a rollout would make it there."""

    def __init__(self, root, stamp, answer=42):
        self.root, self.stamp, self.answer = root, stamp, answer
        self.top = root / "2026-11-20"
        self.top.mkdir(parents=True)
        self.write("base/bin/tool", "#!%s/base/bin/python3\nprint(42)\n" % self.top, 0o755)
        self.write(PACKAGES + "plain.py", "ANSWER = 42\n")
        self.write(PACKAGES + "config.py", "PREFIX = '%s/base'\nCACHE = '%s/cache'\n" % (self.top, root))
        self.compile("plain", b"\xa7\x0d\x0d\x0a" + stamp + b"code of %s" % os.fsencode(self.top))
        self.compile("config", b"\xa7\x0d\x0d\x0a" + stamp + b"other code")
        lines = ["plain.py,sha256=abc,12", "config.py,sha256=%s,40" % stamp.hex(), "own.dist-info/RECORD,,"]
        self.write(PACKAGES + "own.dist-info/RECORD", "\n".join(lines))
        self.write(PACKAGES + "own.dist-info/direct_url.json", json.dumps({
            "url": "file://%s/wheels/own.whl" % self.top, "archive_info": {"hash": "sha256=" + stamp.hex()}}))
        self.write("base/conda-meta/numpy-1.json", json.dumps({
            "name": "numpy", "version": "1", "sha256": "aa", "files": ["a"], "timestamp": stamp.hex()}))
        self.write("base/conda-meta/history", "==> %s <==\n" % stamp.hex())
        self.write(".torchstack/release.yml", "---\nbase:\n  kind: python_overlay\n  prefix: %s/base\n" % self.top)
        self.write(".torchstack/steps/own/job.json", json.dumps({"started": stamp.hex()}))
        self.write(".torchstack/packages.json", json.dumps({"version": "1", "sha256": stamp.hex()}))
        self.write(".torchstack/patches/own/patch-series-own-%s.json" % stamp.hex()[:10], "{}")
        self.write(".torchstack/manifest.json", json.dumps({"digest": stamp.hex()}))
        (self.top / "base" / "link").symlink_to(self.top / "base" / "bin")
        self.library("base/lib/libown.so")
        self.archive("base/lib/libown.a")
        self.pack()

    def write(self, name, text, mode=0o644):
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    def compile(self, name, content):
        path = self.top / PACKAGES / "__pycache__" / (name + ".cpython-311.pyc")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def library(self, name):
        path = self.top / name
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-g", "-O1", "-x", "c", "-", "-o", str(path),
             "-Wl,-rpath,%s/base/lib" % self.top, "-Wl,--build-id=0x%s" % self.stamp.hex()],
            input=SOURCE % (self.top, self.answer), text=True, check=True, cwd=str(self.top),
        )

    def archive(self, name):
        """A static library, whose member's header has a time."""
        made = self.top / name
        member = made.parent / "own.o"
        subprocess.run(
            ["gcc", "-c", "-O1", "-x", "c", "-", "-o", str(member)], input=SOURCE % (self.top, self.answer), text=True,
            check=True,
        )
        os.utime(str(member), (self.stamp[0], self.stamp[0]))
        subprocess.run(["ar", "qcU", str(made), str(member)], check=True)
        member.unlink()

    def pack(self):
        (self.top / "wheels").mkdir()
        when = (2026, 11, 20, 10, self.stamp[0] % 60, 0)
        with zipfile.ZipFile(str(self.top / "wheels" / "own.whl"), "w") as wheel:
            wheel.writestr(zipfile.ZipInfo("plain.py", when), "ANSWER = 42\n")
            wheel.writestr(zipfile.ZipInfo("libown.so", when), (self.top / "base/lib/libown.so").read_bytes())
        for name in ("share.tar.gz", "man.1.gz"):
            with gzip.GzipFile(str(self.top / "wheels" / name), "wb", mtime=self.stamp[0]) as stream:
                if name == "man.1.gz":
                    stream.write(b"a page\n")
                    continue
                with tarfile.open(fileobj=stream, mode="w") as archive:
                    entry = tarfile.TarInfo("file")
                    entry.mtime = self.stamp[0]
                    archive.addfile(entry)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """The same release twice, at places of names of the same length, of another length, and of the same place."""
    top = tmp_path_factory.mktemp("made")
    return [
        Release(top / "first", b"\x01" * 8), Release(top / "other", b"\x02" * 8),
        Release(top / "a-longer-one", b"\x03" * 8),
    ]


@pytest.fixture()
def pair(pristine, tmp_path):
    """Two of them, the second one to be spoiled: a copy, which still names the place where it was built."""
    shutil.copytree(str(pristine[1].top), str(tmp_path / "copy"), symlinks=True)
    return pristine[0].top, tmp_path / "copy"


def kinds(first, second):
    return {one.path: one.kind for one in compare_trees.compare(str(first), str(second)).differences}


def spoilt(pair):
    """Real differences, with their details."""
    found = compare_trees.compare(*map(str, pair)).differences
    return {one.path: one.detail for one in found if one.kind == "other"}


EXPECTED = {
    ".torchstack/manifest.json": "records",
    ".torchstack/packages.json": "records",
    ".torchstack/release.yml": "place",
    ".torchstack/steps/own/job.json": "records",
    "base/bin/tool": "place",
    "base/conda-meta/history": "records",
    "base/conda-meta/numpy-1.json": "records",
    "base/lib/libown.a": "times",
    "base/lib/libown.so": "elf",
    PACKAGES + "__pycache__/config.cpython-311.pyc": "bytecode",
    PACKAGES + "__pycache__/plain.cpython-311.pyc": "bytecode",
    PACKAGES + "config.py": "place",
    PACKAGES + "own.dist-info/RECORD": "records",
    PACKAGES + "own.dist-info/direct_url.json": "records",
    "base/link": "place",
    "wheels/man.1.gz": "times",
    "wheels/own.whl": "times",
    "wheels/share.tar.gz": "times",
}


def test_a_release_that_was_made_again_differs_only_in_what_is_of_no_consequence(pristine):
    assert kinds(pristine[0].top, pristine[1].top) == EXPECTED


def test_at_a_place_of_another_length_objects_are_laid_out_otherwise(pristine):
    assert kinds(pristine[0].top, pristine[2].top) == dict(EXPECTED, **{"base/lib/libown.so": "layout"})


def test_a_release_that_was_copied_is_known_by_where_it_was_built(pair):
    assert kinds(*pair) == EXPECTED


def test_a_copy_is_the_same(pristine, tmp_path):
    shutil.copytree(str(pristine[0].top), str(tmp_path / "copy"), symlinks=True)
    assert kinds(pristine[0].top, tmp_path / "copy") == {}


def test_other_code_is_a_real_difference_also_within_archives(pristine):
    other = Release(pristine[0].root.parent / "wrong", b"\x04" * 8, answer=43)
    found = spoilt((pristine[0].top, other.top))
    assert set(found) == {"base/lib/libown.a", "base/lib/libown.so", "wheels/own.whl"}
    assert found["wheels/own.whl"].startswith("member libown.so: the content of ")


def test_other_code_is_found_also_where_the_layout_is_another(pristine):
    other = Release(pristine[0].root.parent / "wrong-and-longer", b"\x04" * 8, answer=43)
    assert spoilt((pristine[0].top, other.top)) == {
        "base/lib/libown.a": "member 1 own.o/: the code", "base/lib/libown.so": "the code",
        "wheels/own.whl": "member libown.so: the code",
    }


@pytest.mark.parametrize("spoil, path, detail", [
    (lambda top: (top / PACKAGES / "plain.py").write_text("ANSWER = 43\n"), PACKAGES + "plain.py", "content"),
    (lambda top: (top / "base/bin/tool").chmod(0o644), "base/bin/tool", "mode 0755 and 0644"),
    (lambda top: (top / "base/bin/tool").unlink(), "base/bin/tool", "only in the first"),
    (lambda top: (top / "base/extra").mkdir(), "base/extra", "only in the second"),
    (lambda top: (top / "base/conda-meta/numpy-1.json").write_text('{"name": "numpy", "version": "2"}'),
     "base/conda-meta/numpy-1.json", "what it records"),
    (lambda top: (top / ".torchstack/packages.json").write_text('{"version": "2"}'), ".torchstack/packages.json",
     "what it records"),
    (lambda top: (top / PACKAGES / "own.dist-info/RECORD").write_text("plain.py,,\n"),
     PACKAGES + "own.dist-info/RECORD", "lists other files, such as config.py"),
])
def test_a_real_difference_is_named_with_what_is_the_matter(pair, spoil, path, detail):
    spoil(pair[1])
    found = spoilt(pair)
    assert found.pop(path) == detail
    # Bytecode is judged by its source.
    assert all("bytecode" in said for said in found.values())


def test_bytecode_whose_source_differs_or_is_gone_is_a_real_difference(pair):
    (pair[1] / PACKAGES / "plain.py").write_text("ANSWER = 43\n")
    name = PACKAGES + "__pycache__/%s.cpython-311.pyc"
    assert spoilt(pair)[name % "plain"] == "bytecode of a source that differs"
    (pair[1] / name.replace("%s", "config")).write_bytes(b"\xcb\x0d\x0d\x0a" + b"new")
    assert spoilt(pair)[name % "config"] == "of another version of Python"


def test_a_link_to_another_target_and_another_type_are_real_differences(pair):
    (pair[1] / "base/link").unlink()
    (pair[1] / "base/link").symlink_to("lib")
    shutil.rmtree(str(pair[1] / "wheels"))
    (pair[1] / "wheels").write_text("")
    found = spoilt(pair)
    assert (found["base/link"], found["wheels"]) == ("another target", "of another type")


def test_a_damaged_archive_is_a_real_difference_and_no_crash(pair):
    for name in ("own.whl", "share.tar.gz", "man.1.gz"):
        path = pair[1] / "wheels" / name
        path.write_bytes(path.read_bytes()[:-12])
    (pair[1] / "base/lib/libown.so").write_bytes((pair[0] / "base/lib/libown.so").read_bytes()[:-200])
    found = spoilt(pair)
    assert set(found) >= {"wheels/own.whl", "base/lib/libown.so"}


def test_the_command_says_what_each_class_means_and_its_exit_code_is_the_verdict(pair):
    def run(*words):
        process = subprocess.run([str(COMMAND), *map(str, words)], capture_output=True, text=True, check=False)
        return process.returncode, process.stdout, process.stderr

    code, said, _complaint = run(*pair)
    assert code == 0 and "The releases are the same" in said
    assert "2  bytecode: compiled from the same source" in said
    (pair[1] / "base/bin/tool").unlink()
    code, said, _complaint = run(*pair)
    assert code == 1 and "base/bin/tool (only in the first)" in said and "The releases differ." in said
    assert json.loads(run("--json", *pair)[1])["counts"]["other"] == 1
    code, _said, complaint = run(pair[0], "/nonexistent")
    assert code == 2 and "is no directory" in complaint


def test_the_module_fails_with_the_paths_unless_it_is_only_to_say_so(run_module, pair):
    asked = {"first": str(pair[0]), "second": str(pair[1])}
    same = run_module("release_compare", asked, check=True)
    assert same["equivalent"] and not same.changed
    (pair[1] / "base/bin/tool").unlink()
    failed = run_module("release_compare", asked)
    assert failed.failed and "differ in 1 paths, first base/bin/tool" in failed["msg"]
    said = run_module("release_compare", dict(asked, fail_on_differences=False))
    assert not said.failed and said["counts"]["other"] == 1


def test_nothing_is_written(pair):
    before = {path: path.lstat().st_mtime_ns for path in pair[1].rglob("*")}
    kinds(*pair)
    assert {path: path.lstat().st_mtime_ns for path in pair[1].rglob("*")} == before
