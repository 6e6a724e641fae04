# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The generated references are those of today's specifications, and editors are told what a rollout says."""

from __future__ import annotations

import copy
import importlib.util
import pathlib
import re

import jsonschema
import pytest
import referencing
import yaml
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import schema
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import locks, release_file
from support import sites

TOP = pathlib.Path(__file__).resolve().parents[2]
INVENTORIES = TOP / "inventories"
RELEASES = sorted(INVENTORIES.glob("*/releases/*.yml"))
PARTS = sorted(INVENTORIES.glob("*/releases/*/**/*.yml"))
SITE_DATA = sorted(INVENTORIES.glob("**/group_vars/*.yml"))
SHORT = INVENTORIES / "local/releases/2026-11-20.yml"

specification = importlib.util.spec_from_file_location("generate", TOP / "docs" / "generate.py")
generate = importlib.util.module_from_spec(specification)
specification.loader.exec_module(generate)


def complaints(data, which):
    return [error.message for error in jsonschema.Draft7Validator(which).iter_errors(data)]


def named_schema(path):
    """The file that editors take the schema of this one from, as the first line below its ``---`` says."""
    return (path.parent / path.read_text().splitlines()[1].partition("yaml-language-server: $schema=")[2]).resolve()


def test_nothing_generated_is_out_of_date():
    late = [path.name for path, text in generate.written() if path.read_text() != text]
    assert late == [], "Run python3 docs/generate.py."


@pytest.mark.parametrize("path", RELEASES, ids=lambda path: "%s-%s" % (path.parents[1].name, path.stem))
def test_every_release_file_follows_the_schema_that_its_first_line_names(path):
    assert complaints(yaml.safe_load(path.read_text()), generate.release_schema()) == []
    assert named_schema(path) == generate.REFERENCE / "release-file.schema.json"


@pytest.mark.parametrize("path", PARTS, ids=lambda path: str(path.relative_to(INVENTORIES)))
def test_every_part_of_a_release_file_follows_the_schema_that_its_first_line_names(path):
    files = referencing.Registry().with_resource(
        generate.OF_A_FILE, referencing.Resource.from_contents(generate.release_schema()))
    editor = jsonschema.Draft7Validator(generate.part_schema(), registry=files)
    data = yaml.safe_load(path.read_text())
    assert [error.message for error in editor.iter_errors(data)] == []
    assert not editor.is_valid({**data, "qqqq": 1}) and not editor.is_valid({**data, "release": "x"})
    assert named_schema(path) == generate.REFERENCE / generate.OF_A_PART


def test_a_release_file_with_parts_needs_its_name_only_in_itself():
    assert complaints({"release": "x", "parts": ["x/rules.yml"]}, generate.release_schema()) == []
    assert complaints({"parts": ["x/rules.yml"]}, generate.release_schema()) == ["'release' is a required property"]
    assert complaints({"release": "x", "parts": ["rules.yml"]}, generate.release_schema())


def test_the_release_that_a_page_makes_from_nothing_is_one():
    page = (TOP / "docs" / "how-to" / "add-a-release.md").read_text()
    (block,) = re.findall(r"(?s)```yaml\n(release: .*?)```", page)
    data = yaml.safe_load(block)
    # bin/lock looks these up.
    data["mpi4py"]["sha256"] = data["horovod"]["sha256"] = "0" * 64
    assert complaints(data, generate.release_schema()) == []
    (part,) = data.pop("parts")
    whole = {**data, **yaml.safe_load((SHORT.parent / part).read_text())}
    for lock in locks.texts(whole):
        name = "torch==2.13.0" if lock.path == "pytorch.lock" else "x==1"
        lock.put("%s --hash=sha256:%064d\n" % (name, 0))
    whole.pop("bundles")
    keys = generate.specified("release", "release_file")
    assert release_file.problems(whole, keys) == []


@pytest.mark.parametrize("path", SITE_DATA, ids=lambda path: str(path.relative_to(INVENTORIES)))
def test_every_sites_data_follow_the_schema_that_their_first_line_names(path):
    assert complaints(yaml.safe_load(path.read_text()), generate.site_schema()) == []
    assert named_schema(path) == generate.REFERENCE / "site.schema.json"


def places_in(data, path=()):
    """Every place in plain data but those in second and later elements, as the keys and positions that lead there."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data[:1]):
        yield (*path, key)
        if isinstance(value, (dict, list)):
            yield from places_in(value, (*path, key))


def changed(data, path, change):
    """A copy of the data in which ``change`` was called with the container and the key of a place."""
    result = copy.deepcopy(data)
    container = result
    for key in path[:-1]:
        container = container[key]
    change(container, path[-1])
    return result


CHANGES = {
    "none": lambda container, key: container.__setitem__(key, None),
    "number": lambda container, key: container.__setitem__(key, 3),
    "list": lambda container, key: container.__setitem__(key, [[]]),
    "mapping": lambda container, key: container.__setitem__(key, {"qqqq": 1}),
    "odd text": lambda container, key: container.__setitem__(key, "* *"),
    "gone": lambda container, key: container.__delitem__(key),
    "unknown": lambda container, key: container.update(qqqq=1) if isinstance(container, dict) else None,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("path", [SHORT, INVENTORIES / "polaris/releases/2023-10-04.yml"], ids=lambda path: path.stem)
def test_editors_underline_exactly_what_a_rollout_refuses_by_the_same_specification(path, change):
    data = yaml.safe_load(sites.whole_text(path))
    options, patterns = generate.specified("release", "release_file"), generate.patterns("release")
    editor = jsonschema.Draft7Validator(generate.release_schema())
    refused = 0
    for place in places_in(data):
        mistaken = changed(data, place, CHANGES[change])
        by_rollout = schema.problems(mistaken, options, "", patterns)
        assert editor.is_valid(mistaken) == (by_rollout == []), (place, by_rollout)
        refused += bool(by_rollout)
    assert refused


def test_a_template_may_stand_for_whatever_a_site_says():
    said = {"torchstack_required_bytes": "{{ 4 * 10 ** 9 }}", "torchstack_ranks": {"per_node": "{{ ranks | int }}"}}
    which = generate.site_schema()
    assert complaints(said, which) == []
    assert complaints({"torchstack_required_bytes": "4 GB"}, which)
    assert complaints({"torchstack_jobs": {"launcher": "slrum"}}, which)
