# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The repositories of the sources that rehearsals build, and the commits that release files name."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from rehearsal.checkout import CHECKOUT
from rehearsal.repositories import RELEASES, make_repositories, renew_releases
from rehearsal.trouble import TroubleError

RENEW = "python3 -m rehearsal sources DIRECTORY --renew"
"""What writes the commits of the sources into the release files."""

NAMED = r"repository: *file://\S*/(\S+)\.git\n((?: +(?!repository:)\S.*\n)*)"
"""A repository of the rehearsal's in a release file, and the lines after it."""


def git(*words, cwd):
    command = ["git", "-c", "protocol.file.allow=always", "-c", "safe.directory=*", *map(str, words)]
    return subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, text=True, check=True).stdout


@pytest.fixture()
def sources(tmp_path):
    """A source with a submodule that has one itself, a program, and a link."""
    top = tmp_path / "sources"
    texts = {
        "library/setup.py": "pass\n",
        "library/third_party/inner/inner.h": "/* inner */\n",
        "library/third_party/inner/deep/deep.h": "/* deep */\n",
        "other/README": "other\n",
        "no_repository/README": "none\n",
        "submodules": "# a comment\nlibrary/third_party/inner\nlibrary/third_party/inner/deep\n",
        "tags": "library v1.0\nlibrary v1.0-1\nother v2\n",
    }
    for name, text in texts.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    (top / "library/configure").write_text("#!/bin/sh\n")
    (top / "library/configure").chmod(0o755)
    (top / "library/link").symlink_to("setup.py")
    return top


def commits(made):
    return {repository.name: repository.commit for repository in made}


def test_the_same_files_are_the_same_commits_whatever_the_umask_and_the_callers_git(sources, tmp_path, monkeypatch):
    first = make_repositories(tmp_path / "first", sources)
    monkeypatch.setenv("GIT_AUTHOR_NAME", "somebody else")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    for path in sources.rglob("*"):
        if path.is_file():
            path.chmod(path.stat().st_mode & 0o700)
    before = os.umask(0o077)
    try:
        assert make_repositories(tmp_path / "second", sources) == first
    finally:
        os.umask(before)
    assert [repository.name for repository in first] == [
        "library", "library-third_party-inner", "library-third_party-inner-deep", "other",
    ]


def test_a_clone_has_the_submodules_at_their_commits_the_tags_modes_and_links(sources, tmp_path):
    made = commits(make_repositories(tmp_path / "repositories", sources))
    address = "file://%s/repositories/library.git" % tmp_path
    git("clone", "--quiet", "--recurse-submodules", "--branch=v1.0-1", address, "clone", cwd=tmp_path)
    clone = tmp_path / "clone"
    assert git("rev-parse", "HEAD", "v1.0^{commit}", cwd=clone).split() == [made["library"]] * 2
    assert (clone / "third_party/inner/deep/deep.h").read_text() == "/* deep */\n"
    assert git("rev-parse", "HEAD", cwd=clone / "third_party/inner").strip() == made["library-third_party-inner"]
    assert (clone / "configure").stat().st_mode & 0o111
    assert os.readlink(clone / "link") == "setup.py"


def test_what_is_there_stays_and_what_changed_is_made_anew(sources, tmp_path):
    place = tmp_path / "repositories"
    first = make_repositories(place, sources)
    number = (place / "library.git").stat().st_ino
    assert make_repositories(place, sources) == first
    assert (place / "library.git").stat().st_ino == number
    (sources / "library/third_party/inner/deep/deep.h").write_text("/* another */\n")
    second = commits(make_repositories(place, sources))
    assert {name for name, commit in commits(first).items() if second[name] != commit} == {
        "library", "library-third_party-inner", "library-third_party-inner-deep",
    }
    assert git("rev-parse", "v1.0", cwd=place / "library.git").strip() == second["library"]
    assert sorted(path.name for path in place.iterdir()) == sorted(name + ".git" for name in second)


@pytest.mark.parametrize("listed", ["tags", "submodules"])
def test_a_list_that_names_what_is_not_there_is_refused(sources, tmp_path, listed):
    with open(sources / listed, "a") as stream:
        stream.write("absent v1\n")
    with pytest.raises(TroubleError, match=r"%s names 'absent" % listed):
        make_repositories(tmp_path / "repositories", sources)


def test_renewing_writes_the_commit_of_each_repository_and_nothing_else(tmp_path):
    release = tmp_path / "inventories/anysite/releases/rehearsal.yml"
    release.parent.mkdir(parents=True)
    text = (
        "first:\n  repository: file:///shared/software/sources/first.git\n  tag: v1\n  commit: %s\n"
        "  second:\n    repository: file:///shared/software/sources/second.git\n    commit: %s\n"
        "third:\n  repository: https://example.org/first.git\n  commit: %s\n"
    )
    release.write_text(text % ("0" * 40, "1" * 40, "2" * 40))
    assert renew_releases({"first": "a" * 40, "second": "b" * 40}, tmp_path) == [release]
    assert release.read_text() == text % ("a" * 40, "b" * 40, "2" * 40)
    assert renew_releases({"first": "a" * 40, "second": "b" * 40}, tmp_path) == []


def test_release_files_name_the_commits_that_come_out_of_the_sources(tmp_path):
    words = [sys.executable, "-B", "-m", "rehearsal", "sources", str(tmp_path)]
    printed = subprocess.run(words, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=True).stdout
    made = {line.split()[0]: line.split()[1:] for line in printed.splitlines()}
    for path in CHECKOUT.glob(RELEASES):
        for name, below in re.findall(NAMED, path.read_text()):
            commit, tag = (re.search(r"^ +%s: *(\S+)" % key, below, re.MULTILINE) for key in ("commit", "tag"))
            where = "%s, %s" % (path.relative_to(CHECKOUT), name)
            assert commit and commit[1].strip("\"'") == made[name][0], "%s: the source changed; %s" % (where, RENEW)
            assert not tag or tag[1].strip("\"'") in made[name][1:], "%s: add the tag to rehearsal/sources/tags" % where
