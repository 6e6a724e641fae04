# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What is left of releases that were retired, each as far as another stage."""

import json
import os

ROOT = os.path.join(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"], "root")
TOLD = "is deprecated and will be removed after"


def record(host, release):
    return json.loads(host.file(os.path.join(ROOT, ".torchstack", release, "retired.json")).content_string)


def visible(host, release):
    return [host.file(os.path.join(ROOT, "modulefiles", path)).content_string
            for path in ("tcl/torchstack/" + release, "lmod/torchstack/%s.lua" % release)]


def test_the_removed_release_is_gone_and_what_was_planned_came_back(host):
    assert not host.file(os.path.join(ROOT, "release-1")).exists
    kept = record(host, "release-1")
    assert kept["state"] == "removed" and kept["planned"]["names"] == 5
    assert kept["freed"] == {key: kept["planned"][key] for key in ("names", "inodes", "bytes")}
    assert sorted(host.file(os.path.join(ROOT, ".torchstack", "release-1")).listdir()) == [
        "acceptance.json", "frozen.json", "modulefile.json", "modulefiles", "publish.jsonl", "removal.json",
        "removal.rate", "retire.jsonl", "retired.json", "steps"]


def test_its_module_says_so_and_names_the_default(host):
    for text in visible(host, "release-1"):
        assert "torchstack/release-1 was retired on" in text
        assert "the scenario is over. Please load torchstack/release-3 instead." in text


def test_the_hidden_release_is_there_and_says_on_load_that_it_goes(host):
    assert host.file(os.path.join(ROOT, "release-2", "lib", "libx.so")).size == 5000
    assert record(host, "release-2")["state"] == "hidden"
    for text in visible(host, "release-2"):
        assert TOLD in text
    text = host.file(os.path.join(ROOT, "modulefiles", "lmod", "torchstack", ".modulerc.lua")).content_string
    assert '"torchstack/release-2"' in text


def test_the_default_is_untouched(host):
    for text in visible(host, "release-3"):
        assert TOLD not in text and "was retired on" not in text
    assert not host.file(os.path.join(ROOT, ".torchstack", "release-3", "retired.json")).exists


def test_the_module_system_s_cache_was_renewed(host):
    assert host.file(os.path.join(ROOT, "cache-renewed")).exists


def test_the_journal_says_what_was_done_in_its_order(host):
    text = host.file(os.path.join(ROOT, ".torchstack", "release-1", "retire.jsonl")).content_string
    assert [json.loads(line)["action"] for line in text.splitlines()] == ["aside", "deleting", "removed"]
