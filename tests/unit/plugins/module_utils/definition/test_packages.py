# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The entries of a release file's packages."""

from __future__ import annotations

import re

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import packages

HASH = "--hash=sha256:" + "0" * 64
COMMIT = "52e18c894223800cb611682dce27d88050edf1de"


def lock(*names):
    return "\n".join("%s==1.0 \\\n    %s" % (name, HASH) for name in names) + "\n"


def wheel(**keys):
    return {"name": "tiny", "version": "1.0", "licence": "MIT", "lock": lock("tiny"), **keys}


def tree(**keys):
    return {"name": "apex", "version": "0.1", "licence": "BSD-3-Clause", "repository": "https://example.org/apex",
            "commit": COMMIT, **keys}


def archive(**keys):
    return {"name": "far", "version": "1.0", "licence": "MIT", "archive": "https://example.org/far-1.0.tar.gz",
            "sha256": "0" * 64, **keys}


def without(entry, *names):
    return {name: value for name, value in entry.items() if name not in names}


def test_a_lock_is_read_as_pip_reads_it():
    text = (
        "# made by a tool\nnumpy==2.4.6 ; python_full_version < '3.12' \\\n    %s \\\n    %s\n"
        "    # via torch\nruamel.yaml[jinja2]==0.18 %s  # a comment\n" % (HASH, HASH, HASH)
    )
    assert packages.pins(text) == [("numpy", "2.4.6"), ("ruamel.yaml", "0.18")]
    assert packages.pins("") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("numpy " + HASH, "'numpy --hash=sha256:0"),
        ("numpy>=2 " + HASH, "is not pinned; write name==version"),
        ("numpy==2.* " + HASH, "is not pinned"),
        ("numpy==2.4.6", "'numpy' has no hash; give it its --hash=sha256"),
        ("numpy==2.4.6 --hash=md5:0", "'--hash=md5:0', which is no sha256"),
        ("numpy==2.4.6 --hash=sha256:12", "which is no sha256 of 64 hexadecimal digits"),
        ("--index-url https://example.org/simple", "says where packages come from"),
    ],
)
def test_a_lock_that_pins_nothing_is_refused(text, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        packages.pins(text)


@pytest.mark.parametrize(
    "entry",
    [
        wheel(), wheel(source=True, config_settings={"a": ["b", "c"]}), wheel(index="/wheels", requires=lock("a", "b")),
        tree(build_isolation=True, environment={"MAX_JOBS": 4}), tree(build_requires=lock("ninja"), index="/wheels"),
        archive(), archive(archive="https://example.org/far-1.0-py3-none-any.whl#sha256=1"),
        wheel(licence_needs_acceptance=True, licence_accepted=True), wheel(name="Tiny", lock=lock("tiny")),
    ],
)
def test_an_entry_in_order_has_no_problems(entry):
    assert packages.package_problems({"packages": [entry]}, "releases/x.yml") == []


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        (without(wheel(), "lock"),
         "has no origin; give it a lock, a repository with its commit, or an archive with its sha256."),
        (tree(lock=lock("apex"), version="1.0"), "has more than one origin, lock and repository; keep one."),
        (without(tree(), "commit"), "has repository without commit, so that its content is not known; add commit."),
        (without(archive(), "sha256"), "has archive without sha256, so that its content is not known; add sha256."),
        (wheel(commit=COMMIT), "has commit without repository; add repository or remove it."),
        (wheel(lock="tiny==1.0"), "has a lock in which 'tiny' has no hash; give it its --hash=sha256."),
        (wheel(lock=lock("tiny", "other")),
         "has a lock of 2 requirements; keep its own, and write others under requires."),
        (wheel(lock=lock("other")), "has a lock for 'other'; correct one of the two."),
        (wheel(version="2.0"), "has version 2.0 and a lock for 1.0; correct one of the two."),
        (wheel(requires=lock("tiny")), "is in its own requires; leave it to the entry's origin."),
        (wheel(config_settings={"a": "b"}),
         "is installed from a wheel, so that config_settings means nothing; remove it, or build from source."),
        (archive(archive="https://example.org/f.whl", build_isolation=True),
         "is installed from a wheel, so that build_isolation means nothing; remove it, or build from source."),
        (archive(source=True), "has source, which only a lock can ask for; remove it."),
        (tree(build_isolation=True, build_requires=lock("ninja")),
         "has build_requires, which build_isolation leaves to pip; keep one of the two."),
        (tree(index="/wheels"), "has an index, and nothing that is taken from one; remove it."),
        (tree(environment={"PYTHONPATH": "/x"}),
         "sets PYTHONPATH, by which the role says what a build sees; remove it."),
        (tree(environment={"A": True}),
         "has the value True for A in its environment, which is not text; put it in quotes."),
        (tree(config_settings={"a": 1}),
         "has config_settings 'a' with something other than text or a list of texts; put it in quotes."),
        (tree(licence="NVIDIA", licence_needs_acceptance=True),
         "is under a licence that has to be accepted (NVIDIA); read it, and set licence_accepted: true."),
        (wheel(needs=["later"]), "needs 'later', which is no entry before it; correct the name or the order."),
    ],
)
def test_an_entry_that_contradicts_itself_is_refused_in_one_sentence(entry, sentence):
    assert packages.package_problems({"packages": [entry]}, "releases/x.yml") == [
        "Package '%s' in releases/x.yml %s" % (entry["name"], sentence)]


@pytest.mark.parametrize(
    ("definition", "sentence"),
    [
        ({"packages": [wheel(), wheel(name="Tiny")]}, "Package 'Tiny' is there twice; keep one of the two entries."),
        ({"packages": [wheel(), archive(requires=lock("tiny"))]},
         "Package 'far' would install tiny, and so does package 'tiny'; remove it from one of the two."),
        ({"packages": [archive(requires=lock("x")), wheel(requires=lock("X"))]},
         "Package 'tiny' would install x, and so does package 'far'; remove it from one of the two."),
        ({"locks": {"base": lock("NumPy")}, "packages": [wheel(requires=lock("numpy"))]},
         "Package 'tiny' would replace numpy, which locks.base installs; remove it from one of the two."),
        ({"pytorch": {"lock": lock("torch")}, "packages": [archive(name="torch")]},
         "Package 'torch' would replace torch, which pytorch.lock installs; remove it from one of the two."),
        ({"horovod": {}, "packages": [archive(name="horovod")]},
         "Package 'horovod' would replace horovod, which horovod installs; remove it from one of the two."),
    ],
)
def test_what_is_installed_twice_is_refused(definition, sentence):
    assert packages.package_problems(definition) == [sentence]


@pytest.mark.parametrize("definition", [None, [], {}, {"packages": None}, {"packages": ["x", {}, {"name": 1}]}])
def test_what_the_schema_refuses_is_not_judged_twice(definition):
    assert packages.package_problems(definition) == []


def test_each_entry_needs_the_one_before_it_unless_it_says_otherwise():
    planned = packages.planned_packages([wheel(), tree(), archive(needs=[]), wheel(name="A_b", needs=["tiny", "apex"])])
    assert [(entry["step"], entry["step_needs"]) for entry in planned] == [
        ("package-tiny", []),
        ("package-apex", ["package-tiny"]),
        ("package-far", []),
        ("package-a-b", ["package-tiny", "package-apex"]),
    ]


def test_what_follows_from_an_entry_is_filled_in():
    planned = packages.planned_packages([
        wheel(requires=lock("Other.One")), wheel(source=True), tree(version_reports="0.1+cpu"),
        archive(archive="https://example.org/f.whl"),
        tree(config_settings={"--build-option": ["--cpp_ext", "--cuda_ext"], "x": "y"}),
    ])
    assert [entry["kind"] for entry in planned] == ["wheel", "archive", "tree", "wheel", "tree"]
    assert planned[0]["owns"] == {"tiny": "1.0", "other-one": "1.0"}
    assert planned[2]["owns"] == {"apex": "0.1+cpu"}
    assert (planned[1]["reports"], planned[2]["reports"]) == ("1.0", "0.1+cpu")
    assert planned[4]["config_flags"] == [
        "--config-settings=--build-option=--cpp_ext", "--config-settings=--build-option=--cuda_ext",
        "--config-settings=x=y"]
    assert planned[0]["unset"] == ["CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS"]


def test_the_defaults_are_not_shared_between_entries():
    first, second = packages.planned_packages([wheel(), tree()])
    first["environment"]["A"] = "1"
    first["unset"].append("B")
    assert second["environment"] == {} == packages.DEFAULTS["environment"]
    assert "B" not in second["unset"] + packages.DEFAULTS["unset"]
