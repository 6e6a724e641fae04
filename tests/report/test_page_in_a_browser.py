# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The page of a report in a real Chromium: as people see it, on a phone, in the dark, and on paper.

With TORCHSTACK_PICTURES the pages are also written there as pictures, to be looked at.
"""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.report import facts, svg
from ansible_collections.hpcml.torchstack.plugins.module_utils.report import page as report_page
from ansible_collections.hpcml.torchstack.plugins.module_utils.report import records as report_records
from support import report_records as recorded
from support.browser import CONTRAST, DESK, LEAST_CONTRAST, PHONE, show

TEMPLATES = pathlib.Path(__file__).resolve().parents[2] / "roles" / "report" / "templates"

WORLDS = {
    "finished": recorded.finished,
    "failed": recorded.failed,
    "unfinished": recorded.unfinished,
    "large": lambda root: recorded.finished(root, 560),
    "small": lambda root: recorded.finished(root, 4),
    "bare": lambda root: {},
}


@pytest.fixture(scope="module", name="written")
def written_pages(tmp_path_factory):
    """The page of each world, as a file."""
    pytest.importorskip("matplotlib")
    pages = {}

    def page(name):
        if name not in pages:
            place = tmp_path_factory.mktemp(name)
            resolved = WORLDS[name](place)
            pages[name] = place / "report.html"
            pages[name].write_text(rendered(place, resolved))
        return pages[name]

    return page


def rendered(root, resolved):
    """The page of the release below a root."""
    records = report_records.read_records(report_records.release_files(str(root), recorded.RELEASE))
    return report_page.render_page(facts.compile_facts(records, resolved), str(TEMPLATES))


def test_a_figure_whose_trials_differ_by_more_than_it_is_marked_among_the_numbers(tmp_path):
    record = recorded.acceptance()
    row = record["measurements"][0]["rows"][-1]
    place = tmp_path / ".torchstack" / recorded.RELEASE / "acceptance.json"
    recorded.write(place, record)
    assert "! noisy<" not in rendered(tmp_path, {})
    row["spread"] = 1.0
    recorded.write(place, record)
    assert rendered(tmp_path, {}).count("! noisy<") == 1


@pytest.mark.parametrize(("world", "size", "dark"), [
    *(("finished", size, dark) for size in (PHONE, DESK) for dark in (False, True)),
    *((world, PHONE, False) for world in WORLDS if world != "finished"),
    ("failed", DESK, True), ("small", DESK, True),
])
def test_a_page_opens_without_a_complaint_a_request_or_a_scroll_bar_below(chromium, written, world, size, dark):
    page = chromium.open(written(world), *size, dark=dark)
    show(page, "%s-%d-%s" % (world, size[0], "dark" if dark else "light"))
    assert page.complaints == [] and page.requests == []
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]


def test_even_with_everything_unfolded_nothing_is_wider_than_a_phone(chromium, written):
    page = chromium.open(written("finished"), *PHONE)
    page.evaluate("document.querySelectorAll('details').forEach((element) => { element.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("world", ["finished", "failed"])
def test_every_text_stands_out_from_what_is_behind_it(chromium, written, world, dark):
    found = chromium.open(written(world), *DESK, dark=dark).evaluate(CONTRAST)
    assert len(found) > 100
    assert [pair for pair in found if pair[0] < LEAST_CONTRAST] == []


def test_text_that_means_harm_is_text(chromium, written):
    page = chromium.open(written("failed"), *DESK)
    assert page.evaluate("document.scripts.length") == 0
    assert page.evaluate("document.body.innerText").count(recorded.HOSTILE) >= 3


def test_a_page_can_be_read_without_seeing_it(chromium, written):
    page = chromium.open(written("finished"), *DESK)
    tree = page.call("Accessibility.getFullAXTree")["nodes"]
    named = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in tree if not node["ignored"]]
    plots = [name for role, name in named if role in ("image", "img")]
    assert len(plots) == 4 and all("GB/s" in name for name in plots)
    assert all(name for role, name in named if role in ("region", "link", "heading", "navigation"))
    heads = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map((one) => one.tagName).join('')")
    assert heads.startswith("H1H2") and heads.count("H1") == 1
    assert page.evaluate("document.querySelectorAll('th:not([scope])').length") == 0


def test_no_two_parts_of_a_page_have_the_same_name(chromium, written):
    page = chromium.open(written("finished"), *DESK)
    assert page.evaluate("(() => { const ids = [...document.querySelectorAll('[id]')].map((one) => one.id);"
                         " return ids.filter((id, place) => ids.indexOf(id) !== place); })()") == []
    assert page.evaluate("[...document.querySelectorAll('a[href]')].filter("
                         "(one) => !document.querySelector(one.getAttribute('href'))).length") == 0


def test_on_paper_a_page_is_light_and_folded_parts_are_there(chromium, written):
    page = chromium.open(written("finished"), *DESK, dark=True)
    page.media("print", dark=True)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(26, 29, 33)"
    folded = "[...document.querySelectorAll('details:not([open])%s table')].map((one) => one.checkVisibility())"
    assert page.evaluate(folded % ":not(.long)") == [True] * 9
    assert page.evaluate(folded % ".long") == [False]
    pdf = page.printed()
    assert pdf.startswith(b"%PDF") and 4 <= pdf.count(b"/Type /Page\n") + pdf.count(b"/Type/Page/") <= 12


@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_the_heat_map_of_560_nodes_is_as_wide_as_there_is_room_and_names_the_slow_one(chromium, written, size):
    page = chromium.open(written("large"), *size)
    width, height = page.evaluate("(() => { const box = document.querySelector('#sweep svg').getBoundingClientRect();"
                                  " return [box.width, box.height]; })()")
    assert 300 <= width <= size[0] and 0.9 < height / width < 1.3
    words = page.evaluate("[...document.querySelectorAll('#sweep svg text')].map((one) => one.textContent)")
    assert "nid001164" in words and len(words) < 40
    assert written("large").stat().st_size < 2_000_000


def test_the_same_facts_give_the_same_page(written, tmp_path):
    resolved = WORLDS["finished"](tmp_path)
    assert rendered(tmp_path, resolved) == written("finished").read_text()


def test_without_matplotlib_a_page_says_what_it_lacks_and_has_the_numbers(chromium, monkeypatch, tmp_path):
    monkeypatch.setattr(svg, "can_plot", lambda: False)
    resolved = WORLDS["finished"](tmp_path)
    path = tmp_path / "report.html"
    path.write_text(rendered(tmp_path, resolved))
    page = chromium.open(path, *DESK)
    text = page.evaluate("document.body.innerText")
    assert page.evaluate("document.querySelectorAll('svg').length") == 0
    assert "The plots are left out" in text and "The heat map is left out" in text and "84.5" in text
