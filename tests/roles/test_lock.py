# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""bin/lock with a real uv, which finds small wheels in a directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from support import sites
from support.package_release import make_wheel

LOCK = sites.TOP / "bin" / "lock"
RELEASE = """\
release: one
base: {kind: python_overlay, minimum: "3.11"}
pytorch: {version: "2.1", lock: one/pytorch.txt, cuda_lock: one/pytorch-cuda.txt}
locks:
  base: one/base.txt
  tools: one/tools.txt
"""


class Place:
    """A release file, and what uv finds."""

    def __init__(self, directory):
        self.wheels, self.file = directory / "wheels", directory / "releases" / "one.yml"
        self.locks = self.file.with_suffix("")
        self.locks.mkdir(parents=True)
        self.empty = directory / "index"
        self.empty.mkdir()
        self.file.write_text(RELEASE)
        self.offer("torch", "2.1", requires=["ndarray", "triton"])
        for name in ("torch", "ndarray", "triton", "builder"):
            self.offer(name, "2.2" if name == "torch" else "1.0")
        (self.locks / "base.in").write_text("ndarray  # what users compute with\n")
        (self.locks / "tools.in").write_text("builder\n")

    def offer(self, name, version, requires=()):
        make_wheel(self.wheels, name, version, requires=requires)

    def run(self, *options, **variables):
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
        further = {
            "PATH": path, "UV_FIND_LINKS": str(self.wheels), "UV_DEFAULT_INDEX": self.empty.as_uri(), **variables}
        done = subprocess.run([LOCK, self.file, *options], env={**os.environ, **further}, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    def pins(self):
        return {path.stem: re.findall(r"^(\S+==\S+)", path.read_text(), re.M) for path in self.locks.glob("*.txt")}

    def state(self):
        return {path: path.read_bytes() for path in self.file.parent.rglob("*") if path.is_file()}


@pytest.fixture()
def place(tmp_path):
    return Place(tmp_path)


def test_a_release_is_locked_renewed_by_name_and_left_alone_otherwise(place):
    code, said = place.run()
    assert code == 0 and "Written: 4 of 4 locks." in said, said
    first = {"base": ["ndarray==1.0"], "pytorch": ["torch==2.1"], "pytorch-cuda": ["triton==1.0"],
             "tools": ["builder==1.0"]}
    assert place.pins() == first
    for name in ("ndarray", "builder"):
        place.offer(name, "1.1")
    before = place.state()
    code, said = place.run("--check")
    assert code == 0 and said.endswith("All locks of one.yml are as they have to be.\n"), said
    code, said = place.run("--check", "--upgrade", "ndarray")
    assert code == 1 and "one/base.txt:\n  ndarray 1.0 -> 1.1\nWould change: 1 of 4 locks." in said
    assert place.state() == before
    assert place.run("--upgrade", "ndarray")[0] == 0
    assert place.pins() == {**first, "base": ["ndarray==1.1"]}
    assert place.run("--upgrade-all")[0] == 0
    assert place.pins() == {**first, "base": ["ndarray==1.1"], "tools": ["builder==1.1"]}, "torch is what the file says"


def test_requirements_that_do_not_go_together_are_told_in_uvs_words_and_nothing_is_written(place):
    (place.locks / "base.in").write_text("ndarray<1\n")
    before = place.state()
    code, said = place.run()
    assert code == 2 and said.startswith("Resolving one/base.txt, one/pytorch.txt, one/pytorch-cuda.txt ...\nlock: ")
    assert " cannot be made; uv says:\n" in said and "ndarray<1" in said and place.state() == before


def test_an_index_that_is_not_reached_is_one_sentence(place):
    code, said = place.run(UV_DEFAULT_INDEX="http://127.0.0.1:9/simple", UV_FIND_LINKS="")
    assert code == 2, said
    assert re.search(r"were not made, as an index is not reached \(.*\); say where an index is", said), said


@pytest.mark.parametrize(("change", "options", "said"), [
    (lambda place: None, ["--upgrade", "nmpy"], "No lock of one.yml has 'nmpy'; a package that is new goes into"),
    (lambda place: place.file.write_text(RELEASE.replace("one/tools.txt", "|\n    pip==1\n")), [],
     "has locks in itself, such as locks.tools; move them into files first: bin/lock --split"),
    (lambda place: place.file.unlink(), [], "There is no release file"),
    (lambda place: place.file.write_text(RELEASE.replace("one/tools", "../tools")), [],
     "names the lock ../tools.txt in line 6, which has to lie beside it"),
    (lambda place: place.file.write_text(RELEASE + "bundles: [{name: data, packages: [frames]}]\n"), [],
     "the bundle 'data' has no 'lock'; name a file that need not be there yet, as in lock: one/bundles/data.txt."),
    (lambda place: place.file.write_text(RELEASE + "bundles: [{name: data, lock: one/data.txt}]\n"), [],
     "the bundle 'data' has no 'packages'; list there what it is made of."),
    (lambda place: place.file.write_text(RELEASE + "bundles: [data]\n"), [], "a bundle has no 'name'"),
])
def test_what_cannot_be_locked_is_one_sentence(place, change, options, said):
    change(place)
    code, printed = place.run(*options)
    assert code == 2 and said in printed and printed.count("\n") == 1, printed


@pytest.mark.parametrize("path", sites.RELEASES, ids=lambda path: "%s-%s" % (path.parents[1].name, path.stem))
def test_every_release_file_has_its_locks_beside_it_and_none_too_many(path):
    read = sites.release_text.read(path)
    own = {name for key, name in read.places.files.items() if key not in read.inherited}
    beside = path.with_suffix("")
    there = {str(file.relative_to(path.parent)) for file in beside.rglob("*.txt")} if beside.is_dir() else set()
    assert there == own


def test_a_release_file_with_locks_in_itself_becomes_a_short_one_that_says_the_same(place):
    place.run()
    block = "".join("    %s\n" % line for line in (place.locks / "base.txt").read_text().splitlines())
    place.file = place.file.with_name("two.yml")
    place.file.write_text("release: two  # not one\nlocks:\n  base: |\n%s  tools: ''\n" % block)
    before = sites.load_release(place.file)
    code, said = place.run("--split")
    assert code == 0 and said == "two.yml: 4 lines instead of 6, and files in two/: 1.\n"
    assert place.file.read_text() == "release: two  # not one\nlocks:\n  base: two/base.txt\n  tools: ''\n"
    assert sites.load_release(place.file) == before
    assert place.run("--split") == (0, "%s has no lock in itself.\n" % place.file)


@pytest.fixture()
def derived(place):
    """A release that differs from another one in its tools."""
    place.run()
    place.file = place.file.with_name("two.yml")
    place.file.write_text("extends: one\nrelease: two\nlocks: {tools: two/tools.txt}\n")
    (place.file.parent / "two").mkdir()
    (place.file.parent / "two" / "tools.in").write_text("builder\n")
    return place


def test_a_release_that_extends_another_has_only_its_own_locks_written(derived):
    assert derived.run()[0] == 0
    derived.offer("builder", "1.1")
    derived.offer("ndarray", "1.1")
    before = derived.state()
    del before[derived.file.parent / "two" / "tools.txt"]
    code, said = derived.run("--upgrade", "builder")
    assert code == 0 and "Left as it is: one/base.txt, as the release that this one extends has it." in said, said
    assert "builder==1.1" in (derived.file.parent / "two" / "tools.txt").read_text()
    assert {path: text for path, text in derived.state().items() if path in before} == before


def test_a_lock_of_the_other_release_that_would_have_to_change_is_told(derived):
    derived.file.write_text("extends: one\nrelease: two\npytorch: {version: '2.2', lock: two/pytorch.txt}\n")
    before = derived.state()
    code, said = derived.run()
    assert code == 2, said
    assert "one/pytorch-cuda.txt would change as well, which is a lock of the release that two.yml extends" in said
    assert "give pytorch.cuda_lock a file of its own there." in said and derived.state() == before


def shown(release, *options):
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    return subprocess.run([LOCK.with_name("show-release"), release.file, *options], text=True, capture_output=True,
                          check=True, env={**os.environ, "PATH": path})


def test_the_whole_of_a_release_is_shown_with_the_names_or_the_texts_of_its_locks(derived):
    derived.run()
    done, text = shown(derived), shown(derived, "--with-locks").stdout
    assert "one/base.txt" not in text and "--hash=sha256:" in text
    assert "release: two\n" in done.stdout and "base: one/base.txt\n" in done.stdout
    assert "tools: two/tools.txt\n" in done.stdout and "extends" not in done.stdout


def test_a_hash_that_no_index_has_is_told_and_made_right(place):
    place.run()
    lock = place.locks / "base.txt"
    right = lock.read_text()
    lock.write_text(re.sub("[0-9a-f]{64}", "0" * 64, right))
    code, said = place.run("--check")
    assert code == 1 and "one/base.txt:\n  ndarray 1.0: hashes that its index does not have\nWould change: 1 of" in said
    assert place.run()[0] == 0 and lock.read_text() == right
    lock.write_text(right.rstrip("\n") + " \\\n    --hash=sha256:%s\n" % ("0" * 64))
    assert place.run("--check")[0] == 1, "one right hash does not make another one right"


@pytest.mark.parametrize(("change", "said"), [
    (lambda text: text.split()[0] + "\n", "'locks.base' in one.yml (one/base.txt, line 1): 'ndarray' has no hash;"),
    (lambda text: text[:-10], "(one/base.txt, line 1): the lock ends in the middle of 'ndarray==1.0'; have what"),
    (lambda text: "--index-url https://a.example\n" + text, "(one/base.txt, line 1): '--index-url https://a.example'"),
])
def test_a_lock_that_pip_would_refuse_is_not_renewed(place, change, said):
    place.run()
    lock = place.locks / "base.txt"
    lock.write_text(change(lock.read_text()))
    before = place.state()
    code, printed = place.run()
    assert code == 2 and said in printed and printed.count("\n") == 1 and place.state() == before, printed


@pytest.fixture()
def bundled(place):
    """A release that extends one with a bundle, and has another version of what the bundle stands on."""
    bundle = "{name: data, packages: [frames], lock: one/bundles/data.txt}"
    place.file.write_text("%s# why\nbundles:\n  - %s\n" % (RELEASE, bundle))
    place.offer("ndarray", "1.0")
    place.offer("frames", "1.0", requires=["ndarray<2"])
    assert place.run()[0] == 0
    place.offer("ndarray", "2.0")
    place.offer("frames", "2.0", requires=["ndarray>=2"])
    place.file = place.file.with_name("two.yml")
    place.file.write_text("extends: one\nrelease: two\nlocks: {base: two/base.txt}\n")
    (place.file.parent / "two").mkdir()
    (place.file.parent / "two" / "base.in").write_text("ndarray>=2\n")
    return place


def test_a_bundle_of_the_other_release_that_does_not_fit_any_more_is_told_with_the_command_that_helps(bundled):
    before = bundled.state()
    code, said = bundled.run()
    assert code == 2 and bundled.state() == before, said
    assert ("one/bundles/data.txt would change as well, which is a lock of the release that two.yml extends "
            "(frames 1.0 -> 2.0): bin/lock %s --own bundles gives it bundles of its own." % bundled.file) in said


def test_a_release_gets_bundles_of_its_own_by_one_command_and_their_locks_by_the_next(bundled):
    code, said = bundled.run("--own", "bundles")
    assert code == 0, said
    part = bundled.file.with_suffix("") / "bundles.yml"
    assert part.read_text() == (
        "---\n# why\nbundles:\n  - {name: data, packages: [frames], lock: two/bundles/data.txt}\n")
    assert "parts: [two/bundles.yml]\n" in bundled.file.read_text()
    lock = bundled.file.with_suffix("") / "bundles" / "data.txt"
    assert lock.read_text() == (bundled.locks / "bundles" / "data.txt").read_text()
    code, said = bundled.run()
    assert code == 0 and "two/bundles/data.txt:\n  frames 1.0 -> 2.0\n" in said, said
    assert lock.read_text().startswith("frames==2.0")
    assert bundled.run("--check") == (0, "".join(line + "\n" for line in said.splitlines() if "Resolving" in line or (
        "Left" in line)) + "All locks of two.yml are as they have to be.\n")


def test_a_bundle_that_still_fits_is_left_alone(bundled):
    bundled.offer("further", "1.0")
    (bundled.file.parent / "two" / "base.in").write_text("ndarray<2\nfurther\n")
    code, said = bundled.run()
    assert code == 0 and "Left as it is: one/bundles/data.txt, as the release that this one extends has it." in said
    assert "Resolving one/bundles/data.txt" in said, "nobody has looked whether it fits"


@pytest.mark.parametrize(("words", "said"), [
    (["--own", "bundels"], "'bundels' is none of the keys that can be moved, did you mean 'bundles'"),
    (["--own", "locks"], "'locks' is "),
])
def test_what_no_release_can_have_of_another_one_is_one_sentence(bundled, words, said):
    before = bundled.state()
    code, printed = bundled.run(*words)
    assert code == 2 and said in printed and printed.count("\n") == 1 and bundled.state() == before, printed


def test_every_part_beside_a_release_file_is_one_of_a_release():
    parts = {file for path in sites.RELEASES for name in sites.release_text.read(path).places.parts.values()
             for file in [path.parent / name]}
    assert {file for path in sites.RELEASES for file in path.parent.glob("*/**/*.yml")} == parts != set()
