# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A release file may have some of its keys in files beside it, and says the same as one that has them itself."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.action import site_lint
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file

ONE = """\
release: one
parts: [one/packages.yml, parts/rules.yml]
pytorch: {version: "2.1"}
"""
PACKAGES = "---\n# why\npackages:\n  - {name: x, lock: one/x.txt}\n"
RULES = "verification: {libraries: {}}\nacceptance:\n  checks: [imports]\n"
LOCK = "x==1.0 --hash=sha256:%s\n" % ("a" * 64)


@pytest.fixture()
def one(tmp_path):
    files = {"one.yml": ONE, "one/packages.yml": PACKAGES, "parts/rules.yml": RULES, "one/x.txt": LOCK}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path / "one.yml"


def test_parts_are_one_release_and_each_key_has_its_file_and_line(one):
    read = release_file.read(one)
    assert read.content == {
        "release": "one", "pytorch": {"version": "2.1"}, "packages": [{"name": "x", "lock": LOCK}],
        "verification": {"libraries": {}}, "acceptance": {"checks": ["imports"]}}
    assert read.places.parts == {
        "packages": "one/packages.yml", "verification": "parts/rules.yml", "acceptance": "parts/rules.yml"}
    assert read.places.lines["packages[0].lock"] == 4 and read.places.lines["pytorch.version"] == 3
    assert not [path for path in read.places.lines if path.startswith("parts")]
    assert read.places.of_key("packages[0].lock") == " (one/packages.yml, line 4)"
    assert read.places.of_key("pytorch") == " (line 3)"


def test_who_extends_it_has_its_parts_and_may_have_parts_too(one):
    two = one.with_name("two.yml")
    two.write_text("extends: one\nrelease: two\nparts: [two/more.yml]\n")
    (one.parent / "two").mkdir()
    (one.parent / "two" / "more.yml").write_text("# a\nacceptance:\n  measure: []\npytorch:\n  version: '2.2'\n")
    read = release_file.read(two)
    assert read.content["acceptance"] == {"checks": ["imports"], "measure": []}
    assert read.content["pytorch"] == {"version": "2.2"} and read.content["packages"][0]["lock"] == LOCK
    assert read.inherited >= {"packages", "acceptance.checks"} and "acceptance" not in read.inherited
    # Of what is inherited the line is in a file that has it.
    assert read.places.of_key("packages[0]") == " (line 1)"
    assert read.places.of_key("acceptance.checks") == " (two/more.yml, line 2)"


@pytest.mark.parametrize(("text", "said"), [
    ("parts: one/packages.yml\n", r"one.yml has no list under 'parts' in line 1; write one, such as"),
    ("parts:\n", r"one.yml has no list under 'parts' in line 1"),
    ("parts: [rules.yml]\n", r"names the part rules.yml in line 1, which has to be a file NAME.yml in a directory"),
    ("a: 1\nparts:\n  - ../one/packages.yml\n", r"names the part ../one/packages.yml in line 3, which has to be a f"),
    ("parts: [/etc/rules.yml]\n", r"names the part /etc/rules.yml in line 1, which has to be"),
    ("parts: [one/x.txt]\n", r"names the part one/x.txt in line 1, which has to be"),
    ("parts: [{a: b}]\n", r"names the part {'a': 'b'} in line 1, which has to be"),
    ("parts: [parts/ruls.yml]\n", r"names the part parts/ruls.yml in line 1, and there is no file .*ruls.yml; did you "
     "mean rules.yml"),
    ("parts:\n  - parts/rules.yml\n  - parts/rules.yml\n", r"names the part parts/rules.yml in line 3, and named it in "
     "line 2; keep one"),
    ("a: 1\npackages: []\nparts: [one/packages.yml]\n", r"^'packages' is in one/packages.yml, line 3, and in one.yml, "
     r"line 2, both of the release .*one.yml; keep one of the two\.$"),
    ("parts: [one/packages.yml, one/twice.yml]\n", r"'packages' is in one/twice.yml, line 1, and in one/packages.yml, "
     "line 3"),
    ("parts: [one/name.yml]\n", r"'release' is in one/name.yml, line 1, a part of .*one.yml; it stands in the release "
     "file itself"),
    ("parts: [one/nested.yml]\n", r"'parts' is in one/nested.yml, line 1, a part of"),
    ("parts: [one/broken.yml]\n", r"one/broken.yml has a mistake in line 2"),
])
def test_what_is_no_part_is_one_sentence(one, text, said):
    for name, content in (("twice", "packages: []\n"), ("name", "release: x\n"), ("nested", "parts: []\n"),
                          ("broken", "a: 1\na: 2\n")):
        (one.parent / "one" / (name + ".yml")).write_text(content)
    one.write_text(text)
    with pytest.raises(ValueError, match=said):
        release_file.read(one)


def test_a_linter_names_the_file_of_a_part_that_cannot_be_read(one):
    (one.parent / "parts" / "rules.yml").write_text("a: 1\nb: [\n")
    _releases, (problem,) = site_lint.read_releases([one], one.parent, "mine", "one")
    assert problem.file.endswith("parts/rules.yml") and problem.line == 3
