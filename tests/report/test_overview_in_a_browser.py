# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The overview of a root in a real Chromium: at a desk, on a phone, in the dark, and on paper.

With TORCHSTACK_PICTURES the pages are also written there as pictures, to be looked at.
"""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.command import cli
from support import overview_root
from support import report_records as recorded
from support.browser import CONTRAST, DESK, LEAST_CONTRAST, PHONE, show

SITES = "[defaults]\ninventory = hosts.yml\n"


@pytest.fixture(scope="module", name="page")
def page_of_a_root(tmp_path_factory):
    """The page that the command writes of a root."""
    pytest.importorskip("matplotlib")
    place = tmp_path_factory.mktemp("site")
    (place / "ansible.cfg").write_text(SITES)
    (place / "hosts.yml").write_text("---\nlocal:\n  hosts: {login: {}}\n")
    root = place / "root"
    overview_root.write(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        assert cli.main(["report", "--all", "--root", str(root)]) == 0
    return root / ".torchstack" / "overview.html"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_it_opens_without_a_complaint_a_request_or_a_scroll_bar_below(chromium, page, size, dark):
    opened = chromium.open(page, *size, dark=dark)
    show(opened, "overview-%d-%s" % (size[0], "dark" if dark else "light"))
    assert opened.complaints == [] and opened.requests == []
    opened.evaluate("document.querySelectorAll('details').forEach((element) => { element.open = true; })")
    assert opened.evaluate("document.documentElement.scrollWidth") <= size[0]
    found = opened.evaluate(CONTRAST)
    assert len(found) > 100 and [pair for pair in found if pair[0] < LEAST_CONTRAST] == []


def test_what_records_say_is_text_whatever_it_means(chromium, page):
    opened = chromium.open(page, *DESK)
    assert opened.evaluate("document.scripts.length") == 0
    assert opened.evaluate("document.body.textContent").count(recorded.HOSTILE) >= 3


def test_every_part_is_reached_by_a_tile_and_every_release_by_its_name(chromium, page):
    opened = chromium.open(page, *DESK)
    links = opened.evaluate("[...document.querySelectorAll('a[href]')].map((one) => one.getAttribute('href'))")
    parts = [link for link in links if link.startswith("#")]
    assert opened.evaluate("[...document.querySelectorAll('section')].map((one) => '#' + one.id)") == [
        "#attention", "#releases", "#acceptances", "#bandwidth", "#pairs", "#drift", "#retirement"]
    assert len(parts) >= 6 and all(opened.evaluate("!!document.querySelector('%s')" % part) for part in parts)
    reports = [link for link in links if not link.startswith("#")]
    assert reports == ["2026-11-20/report.html", "2026-05-02/report.html"]
    assert all((page.parent / link).is_file() for link in reports)


def test_on_paper_it_is_light_and_whole(chromium, page):
    opened = chromium.open(page, *DESK, dark=True)
    opened.media("print", dark=True)
    assert opened.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    folded = "[...document.querySelectorAll('details:not([open]) table')].map((one) => one.checkVisibility())"
    assert set(opened.evaluate(folded)) == {True}
    assert opened.evaluate("Math.max(...[...document.querySelectorAll('.scroll')].map("
                           "(one) => one.scrollWidth - one.clientWidth))") == 0
    pdf = opened.printed()
    assert pdf.startswith(b"%PDF") and 1 <= pdf.count(b"/Type /Page\n") + pdf.count(b"/Type/Page/") <= 6
