# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The drawings of a report; how they look is the matter of the tests in a browser.

Covers svg, too.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.report import nodes, plots, svg

pytest.importorskip("matplotlib")


def measured(operation="all_reduce", speeds=(0.5, 4.0, 36.0)):
    times = {"min": 90.0, "mean": 100.0, "median": 99.0, "max": 130.0}
    rows = [
        {"bytes": 2 ** (15 + 5 * number), "busbw": speed, "microseconds": times} for number, speed in enumerate(speeds)
    ]
    return {"operation": operation, "rows": rows}


def swept(count, missing=()):
    pairs = [[one, other, 20.0 + one] for one in range(count) for other in range(one + 1, count)]
    hosts = ["n%03d.cluster.example" % number for number in range(count)]
    measured_pairs = [pair for pair in pairs if tuple(pair[:2]) not in missing]
    return nodes.describe_sweep({
        "hosts": hosts, "measured": measured_pairs, "slow_nodes": [{"host": hosts[-1]}],
        "slow_links": [{"hosts": hosts[:2]}],
    })


@pytest.fixture(name="drawn", params=["bandwidth", "sweep"])
def a_drawing(request):
    if request.param == "sweep":
        return lambda: plots.plot_heat_map(swept(5), "name")
    floors = [{"bytes": 2 ** 25, "limit": 30.0}]
    entries = [measured(operation) for operation in ("all_reduce", "send_recv", "of another kind")]
    return lambda: plots.plot_bandwidth(entries, floors, "name")


def test_a_drawing_is_one_element_that_names_its_parts_after_itself(drawn):
    root = ElementTree.fromstring(svg.to_element(drawn()))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.get("role") == "img" and "GB/s" in root.get("aria-label")
    names = [one.get("id") for one in root.iter() if one.get("id")]
    assert names and len(names) == len(set(names)) and all(name.startswith("name-") for name in names)
    used = re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', drawn().svg)
    assert {one or other for one, other in used} <= set(names)


def test_a_drawing_takes_its_colours_from_the_page_and_nothing_from_elsewhere(drawn):
    text = drawn().svg
    assert "var(--muted)" in text and "<style" not in text and "font-family" not in text
    assert not [colour for colour in svg.VARIABLES if colour in text]
    assert set(re.findall(r'href="(\w+:)', text)) <= {"data:"}


def test_the_same_numbers_give_the_same_drawing_whatever_the_user_prefers(drawn):
    import matplotlib

    first = drawn()
    with matplotlib.rc_context({"savefig.bbox": "tight", "font.size": 20, "svg.fonttype": "path", "axes.grid": True}):
        assert drawn() == first


def test_without_numbers_there_is_no_drawing():
    assert plots.plot_bandwidth([{"operation": "all_reduce", "rows": []}], [], "name") is None
    assert plots.plot_heat_map(nodes.describe_sweep({"hosts": ["a", "b"]}), "name") is None


@pytest.mark.parametrize("speeds", [(36.0,), (36.0, 36.0), (0.001, 0.5, 400.0)])
def test_few_and_many_speeds_can_be_drawn(speeds):
    assert plots.plot_bandwidth([measured(speeds=speeds)], [], "name").svg.count("<svg") == 1


@pytest.mark.parametrize(("count", "names"), [(2, 2), (24, 24), (25, 2), (200, 2)])
def test_names_of_nodes_are_short_and_only_as_many_as_there_is_room_for(count, names):
    text = plots.plot_heat_map(swept(count), "name").svg
    assert len(set(re.findall(r">(n\d{3})<", text))) == names and "cluster" not in text


def test_pairs_that_were_not_measured_are_left_empty():
    assert "median" in plots.plot_heat_map(swept(4, missing=[(0, 1), (2, 3)]), "name").label
