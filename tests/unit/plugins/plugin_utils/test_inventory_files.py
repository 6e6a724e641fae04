# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Where the variables of a host are written; what Ansible makes of the files is not asked."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import inventory_files


@pytest.fixture()
def place(tmp_path, monkeypatch):
    """A directory with files, as a mapping of their names to their texts."""
    monkeypatch.chdir(tmp_path)

    def write(texts):
        for name, text in texts.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path
    return write


def places_of(top, groups=("all", "mine"), sources=("hosts.yml",)):
    return inventory_files.places_of([str(top / source) for source in sources], "", groups, "here")


def test_the_file_that_wins_is_named_with_the_lines_of_its_own_keys(place):
    top = place({
        "hosts.yml": "mine:\n  vars:\n    a: 1\n  hosts:\n    here:\n      b: {c: 1}\n    there:\n      d: 1\n",
        "group_vars/all.yml": "e: 1\nf: {g: 1, h: 2}\n", "group_vars/mine/x.yml": "\nf:\n  g: 3\n",
        "group_vars/other.yml": "i: 1\n", "host_vars/here.yml": "e: 2\n",
    })
    places, problems = places_of(top)
    assert problems == []
    assert {path: (places.files[path.split(".")[0]], line) for path, line in places.lines.items()} == {
        "a": ("hosts.yml", 3), "b": ("hosts.yml", 6), "b.c": ("hosts.yml", 6), "e": ("host_vars/here.yml", 1),
        "f": ("group_vars/mine/x.yml", 2), "f.g": ("group_vars/mine/x.yml", 3),
    }


def test_of_several_inventories_the_later_one_wins(place):
    top = place({
        "hosts.yml": "mine: {hosts: {here: {}}}\n", "group_vars/mine.yml": "a: 1\n", "over/hosts.yml": "mine: {}\n",
        "over/group_vars/mine.yml": "\na: 2\n"})
    places, _problems = places_of(top, sources=("hosts.yml", "over/hosts.yml"))
    assert (places.files["a"], places.lines["a"]) == ("over/group_vars/mine.yml", 2)


def test_a_key_that_is_there_twice_is_told_at_every_depth(place):
    top = place({"hosts.yml": "mine: {hosts: {here: {}}}\n", "group_vars/mine.yml": "a:\n  b: [{c: 1, c: 2}]\na: 2\n"})
    _places, problems = places_of(top)
    assert sorted(problem.text for problem in problems) == [
        "group_vars/mine.yml:2: The key 'a.b[0].c' is there twice, first in line 2, and only the last one counts; keep "
        "one.",
        "group_vars/mine.yml:3: The key 'a' is there twice, first in line 1, and only the last one counts; keep one."]


@pytest.mark.parametrize(("text", "says"), [
    ("a:\n  b: 1\n c: 2\n", "group_vars/mine.yml:3: A mistake in YAML: the indentation of this line fits none above "
                            "it. The line is: c: 2"),
    ("a: 'x\nb: 1\n", "group_vars/mine.yml:1: A mistake in YAML: a quote begins there and does not end."),
])
def test_what_is_no_yaml_has_its_line(place, text, says):
    top = place({"hosts.yml": "mine: {}\n", "group_vars/mine.yml": text})
    (broken,) = [file for file in inventory_files.all_files([str(top / "hosts.yml")], "") if file.unreadable]
    assert broken.problems[0].text.startswith(says)


def test_other_inventories_and_encrypted_files_are_passed_over(place):
    top = place({"hosts": "[mine]\nhere a=1\n", "group_vars/mine.yml": "$ANSIBLE_VAULT;1.1;AES256\n61\n"})
    places, problems = places_of(top, sources=("hosts",))
    assert (places.lines, problems) == ({}, [])
    assert inventory_files.all_files(["here,there"], "") == []
