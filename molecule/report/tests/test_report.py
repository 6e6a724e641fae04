# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the scenario's report says."""

import json
import os

PLACE = os.path.join(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"], "root", ".torchstack", "2026-11-20")


def test_the_facts_and_the_page_say_the_same_of_the_slow_node(host):
    facts = json.loads(host.file(PLACE + "/report.json").content_string)
    slow = [entry["host"] for entry in facts["sweep"]["slow_nodes"]]
    page = host.file(PLACE + "/report.html").content_string
    assert slow == ["nid001164"] and "nid001164 is a slow node" in page


def test_the_page_of_the_acceptance_is_kept_and_no_more_pages_than_were_asked_for(host):
    assert host.file(PLACE + "/reports").listdir() == ["acceptance-20261121T062211Z.html"]
    kept = host.file(PLACE + "/reports/acceptance-20261121T062211Z.html")
    assert kept.content == host.file(PLACE + "/report.html").content and kept.mode == 0o644


def test_the_page_has_its_plots(host):
    assert host.file(PLACE + "/report.html").content_string.count("<svg ") == 4
