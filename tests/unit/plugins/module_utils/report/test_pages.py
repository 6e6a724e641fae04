# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The page of a report, and the pages of the last acceptances."""

from __future__ import annotations

import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.report import page, pages

FIRST, SECOND, THIRD = ("2026112%dT062211Z" % day for day in (0, 1, 2))
KEY = "a" * 64
PAGE = "<html></html>\n" + pages.MARK % KEY


def write(place, acceptance=FIRST, kept=2, text=PAGE, check_mode=False):
    return pages.write_pages(str(place), text, acceptance, kept, check_mode)


def kept_in(place):
    return sorted(os.listdir(place / "reports"))


def test_the_page_is_planned_written_and_left_alone(tmp_path):
    assert write(tmp_path, check_mode=True) and not list(tmp_path.iterdir())
    assert write(tmp_path)
    assert (tmp_path / "report.html").read_text() == PAGE == (tmp_path / "reports" / kept_in(tmp_path)[0]).read_text()
    assert not write(tmp_path, check_mode=True) and not write(tmp_path)
    assert pages.made_from(str(tmp_path), FIRST, 2) == KEY


def test_the_pages_of_the_last_acceptances_are_kept_each_as_it_was(tmp_path):
    for acceptance in (FIRST, SECOND, THIRD):
        write(tmp_path, acceptance, text=acceptance + PAGE)
    assert kept_in(tmp_path) == ["acceptance-%s.html" % name for name in (SECOND, THIRD)]
    assert (tmp_path / "reports" / kept_in(tmp_path)[0]).read_text() == SECOND + PAGE


@pytest.mark.parametrize("kept", [0, 1])
def test_keeping_fewer_than_there_are_removes_the_oldest_and_keeping_none_removes_nothing(tmp_path, kept):
    for acceptance in (FIRST, SECOND):
        write(tmp_path, acceptance)
    assert write(tmp_path, SECOND, kept) == (kept == 1)
    assert kept_in(tmp_path) == ["acceptance-%s.html" % name for name in ((SECOND,) if kept else (FIRST, SECOND))]


def test_without_an_acceptance_no_page_is_kept(tmp_path):
    assert write(tmp_path, "")
    assert os.listdir(tmp_path) == ["report.html"] and pages.made_from(str(tmp_path), "", 2) == KEY


@pytest.mark.parametrize("damage", [
    lambda place: (place / "report.html").unlink(),
    lambda place: (place / "report.html").write_text("<html></html>\n"),
    lambda place: (place / "report.html").write_text(PAGE.replace(KEY, "b" * 64)),
    lambda place: (place / "reports" / ("acceptance-%s.html" % FIRST)).unlink(),
    lambda place: (place / "reports" / "acceptance-20260101T000000Z.html").write_text(PAGE),
], ids=["missing", "without the line", "of other facts", "not kept", "one too many"])
def test_what_is_not_as_it_has_to_be_is_made_again(tmp_path, damage):
    write(tmp_path, kept=1)
    damage(tmp_path)
    assert pages.made_from(str(tmp_path), FIRST, 1) == ""
    assert write(tmp_path, kept=1) and pages.made_from(str(tmp_path), FIRST, 1) == KEY


@pytest.mark.parametrize("facts, acceptance", [
    ({"acceptance": {"started": "2026-11-20T06:22:11Z"}, "acceptances": []}, FIRST),
    ({"acceptance": None, "acceptances": []}, ""),
    ({"acceptance": {"started": None}, "acceptances": []}, ""),
    ({"partitions": [], "acceptance": None, "acceptances": [{"started": "2026-11-21T06:22:11Z"}]}, SECOND),
    ({"partitions": [], "acceptance": None, "acceptances": []}, ""),
])
def test_a_page_is_kept_under_the_time_of_the_last_acceptance(facts, acceptance):
    assert pages.acceptance_of(facts) == acceptance


def test_a_page_is_made_from_its_facts_and_its_templates(tmp_path):
    (tmp_path / "page.html.j2").write_text("one")
    first = page.digest_of({"schema": 1}, str(tmp_path))
    assert page.digest_of({"schema": 1}, str(tmp_path)) == first
    assert page.digest_of({"schema": 2}, str(tmp_path)) != first
    (tmp_path / "page.html.j2").write_text("other")
    assert page.digest_of({"schema": 1}, str(tmp_path)) != first
