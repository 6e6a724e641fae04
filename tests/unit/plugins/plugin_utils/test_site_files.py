# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A release file names files of the site, and what is in them is what the release asks for."""

from __future__ import annotations

import base64
import os
import pathlib

import pytest
import yaml
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import release_file as definitions
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file, show_release

LOCAL = pathlib.Path(__file__).parents[4] / "inventories" / "local" / "releases" / "2026-11-20.yml"
ENTRY = {"source": "files/kernel.json", "path": "share/jupyter/kernels/a/kernel.json"}
KEYS = release_file.specified()["release_file"]["options"]


@pytest.fixture()
def place(tmp_path):
    """A release file with one file of the site; what is in it is returned by ``read``."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "kernel.json").write_bytes(b'{"argv": []}\n')
    path = tmp_path / "a.yml"
    path.write_text("release: a\nfiles:\n  - source: files/kernel.json\n    path: share/kernel.json\n")
    return path


def digest(place, data):
    """The digest of the local release with a file of the site, or with none."""
    (place.parent / "files" / "kernel.json").write_bytes(data or b"")
    content = release_file.read(LOCAL).content
    whole = place.parent / "2026-11-20.yml"
    whole.write_text(yaml.safe_dump({**content, "files": [ENTRY]} if data is not None else content))
    read = release_file.read(whole)
    assert definitions.problems(read.content, KEYS) == []
    return definitions.define(read.content, KEYS, str(release_file.ROLES)).digest


def test_what_is_in_a_file_takes_the_place_of_its_name(place):
    read = release_file.read(place)
    assert read.content["files"] == [
        {"path": "share/kernel.json", "content": base64.b64encode(b'{"argv": []}\n').decode()}]
    assert read.sources == {"files[0]": "files/kernel.json"}


def test_a_release_is_another_one_with_another_file_and_the_same_without_any(place):
    without = definitions.define(release_file.read(LOCAL).content, KEYS, str(release_file.ROLES)).digest
    one = digest(place, b"one")
    assert digest(place, b"one") == one != digest(place, b"two")
    assert digest(place, None) == without != one


def test_a_release_s_own_stored_file_needs_no_file_beside_it(place):
    content = release_file.read(place).content
    elsewhere = place.parent / "files" / "stored.yml"
    elsewhere.write_text(yaml.safe_dump(content))
    assert release_file.read(elsewhere).content == content


def test_a_release_that_extends_another_one_has_its_files(place):
    child = place.with_name("b.yml")
    child.write_text("extends: a\nrelease: b\n")
    assert release_file.read(child).content["files"] == release_file.read(place).content["files"]


def test_a_release_is_shown_with_the_names_of_its_files_or_with_what_is_in_them(place, capsys):
    assert show_release.main([str(place)]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["files"] == [
        {"path": "share/kernel.json", "source": "files/kernel.json"}]
    assert show_release.main([str(place), "--with-locks"]) == 0
    assert "content" in yaml.safe_load(capsys.readouterr().out)["files"][0]


@pytest.mark.parametrize(("source", "said"), [
    ("files/nothing.json", r"a.yml names the file files/nothing.json in line 3, and there is no file .*nothing.json\."),
    ("kernel.json", r"in line 3, which has to be a file in a directory beside it, such as files/kernel.json\."),
    ("../kernel.json", r"in line 3, which has to be a file in a directory beside it"),
    ("/etc/hosts", r"in line 3, which has to be a file in a directory beside it"),
    ("files/out.json", r"in line 3, which leads out of its directory, to .*/outside; put the file itself there\."),
    ("files/deep", r"in line 3, and .*/files/deep is no regular file\."),
    ("files/pipe", r"in line 3, and .*/files/pipe is no regular file\."),
    ("files/loop", r"in line 3, and .*/files/loop cannot be read: "),
])
def test_a_file_that_cannot_be_taken_is_one_sentence(place, tmp_path_factory, source, said):
    files, outside = place.parent / "files", tmp_path_factory.mktemp("elsewhere") / "outside"
    outside.write_text("")
    (files / "out.json").symlink_to(outside)
    (files / "loop").symlink_to("loop")
    (files / "deep").mkdir()
    os.mkfifo(files / "pipe")
    place.write_text(place.read_text().replace("files/kernel.json", source))
    with pytest.raises(ValueError, match=said):
        release_file.read(place)


def test_a_link_to_another_file_of_the_site_is_taken_for_that(place):
    (place.parent / "files" / "link.json").symlink_to("kernel.json")
    before = release_file.read(place).content
    place.write_text(place.read_text().replace("files/kernel.json", "files/link.json"))
    assert release_file.read(place).content == before
