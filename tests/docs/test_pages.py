# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The pages can be read and followed: no long line, no link to nowhere, none that the map lacks."""

from __future__ import annotations

import pathlib
import re

import pytest
import yaml

TOP = pathlib.Path(__file__).resolve().parents[2]
DOCS = TOP / "docs"
PAGES = sorted([*TOP.glob("*.md"), *DOCS.glob("**/*.md"), *TOP.glob("roles/*/README.md")])
KINDS = ("tutorials", "how-to", "reference", "explanation")
WIDTH = 120
LINK = re.compile(r"\]\(([^()\s]+)\)")


def name_of(path):
    return str(path.relative_to(TOP))


def prose(path):
    """The lines of a page with their numbers, without its blocks of code."""
    code = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code:
            yield number, line


def anchors(path):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = [line.lstrip("#").strip() for _number, line in prose(path) if re.match("#+ ", line)]
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


def links(path):
    """The links of a page to files of this project: target and anchor."""
    for _number, line in prose(path):
        for target in LINK.findall(line):
            if "://" not in target and not target.startswith("mailto:"):
                place, _mark, anchor = target.partition("#")
                yield (path.parent / place).resolve() if place else path, anchor


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_no_line_is_long_but_those_of_tables(path):
    lines = path.read_text().splitlines()
    long = [number for number, line in enumerate(lines, 1) if len(line) > WIDTH and not line.lstrip().startswith("|")]
    assert path.name == "CHANGELOG.md" or long == []


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_link_leads_to_a_file_and_to_a_heading_of_it(path):
    for target, anchor in links(path):
        assert target.exists(), target
        assert TOP in target.parents
        assert not anchor or anchor in anchors(target), (target, anchor)


@pytest.mark.parametrize("kind", KINDS)
def test_the_map_has_every_page_of_a_kind_under_its_heading(kind):
    listed = [target for target, _anchor in links(DOCS / "README.md")]
    pages = sorted((DOCS / kind).glob("**/*.md"))
    assert pages and [page for page in pages if page not in listed] == []


def test_the_front_page_is_short_and_leads_to_the_map():
    readme = TOP / "README.md"
    assert len(readme.read_text().splitlines()) <= 80
    assert DOCS / "README.md" in [target for target, _anchor in links(readme)]
    for picture in re.findall(r"!\[[^]]*\]\(([^)]*)\)", readme.read_text()):
        assert (TOP / picture).stat().st_size < 150_000


def listed(page):
    """What the first column of the tables of a page has in backquotes."""
    rows = [line for _number, line in prose(page) if line.startswith("| ")]
    return {name for row in rows for name in re.findall(r"`([a-z_]+)`|\[([a-z_]+)\]", row.split(" | ")[0])}


@pytest.mark.parametrize(("page", "pattern"), [("roles", "roles/*/tasks"), ("modules", "plugins/modules/*.py")])
def test_the_reference_has_every_role_and_module_and_no_other(page, pattern):
    there = {path.parent.name if path.is_dir() else path.stem for path in TOP.glob(pattern)}
    assert {"".join(names) for names in listed(DOCS / "reference" / (page + ".md"))} == there


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_file_of_the_project_that_a_page_names_is_there(path):
    places = "bench|changelogs|docs|inventories|molecule|playbooks|plugins|rehearsal|requirements|roles|tests"
    text = "\n".join(line for _number, line in prose(path))
    named = {name for name in re.findall(r"`((?:%s)/[\w./-]+)`" % places, text) if ".." not in name}
    # The reader of "Add a site" makes that one, and bin/new-site these.
    made = yaml.safe_load((TOP / "new-site/files.yml").read_text())
    missing = {name for name in named if not (TOP / name).exists() and "examplecray" not in name}
    assert missing <= set(made)
