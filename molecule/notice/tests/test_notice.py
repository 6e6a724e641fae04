# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the scenario's announcement says, in its three forms."""

import json
import os

PLACE = os.path.join(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"], "root", ".torchstack", "2026-11-02")


def test_markdown_and_plain_text_say_the_same(host):
    page, mail = (host.file("%s/notice.%s" % (PLACE, ending)).content_string for ending in ("md", "txt"))
    assert page.startswith("# torchstack/2026-11-02 is the new default on My Site\n")
    assert mail.startswith("torchstack/2026-11-02 is the new default on My Site\n")
    newer, older = "Newer: einops 0.7.0 → 0.8.2.", "Older: pandas 2.2.0 → 2.1.4."
    for said in ("New: new.thing 3.", "Removed: old_thing 1.", newer, older):
        assert "- %s\n" % said in page and "- %s\n" % said.replace("→", "->") in mail
    assert page.rstrip().endswith("Write to the help desk.") and mail.rstrip().endswith("Write to the help desk.")


def test_known_problems_are_of_the_release_file_and_no_markup(host):
    page, mail = (host.file("%s/notice.%s" % (PLACE, ending)).content_string for ending in ("md", "txt"))
    assert "- Programs \\| hang at \\<exit>. Call `destroy_process_group()` before.\n" in page
    assert "- Programs | hang at <exit>. Call destroy_process_group() before.\n" in mail


def test_no_line_of_the_mail_is_longer_than_mails_have_but_for_a_path(host):
    lines = host.file(PLACE + "/notice.txt").content_string.splitlines()
    assert [line for line in lines if len(line) > 72 and "/modulefiles/" not in line] == []


def test_the_facts_are_there_for_programs(host):
    facts = json.loads(host.file(PLACE + "/notice.json").content_string)
    assert facts["outgoing"]["name"] == "2026-11-01" and len(facts["packages"]) == 4 and len(facts["flags"]) == 3
