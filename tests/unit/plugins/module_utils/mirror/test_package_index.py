# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Pages of indexes."""

from __future__ import annotations

import contextlib
import json

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.download import Network, Unreachable
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror import package_index
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror.package_index import Link
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror.pip_config import Settings

PAGE = "https://example.org/simple/thing/"


def test_links_of_a_page_are_relative_to_it():
    text = '<a href="../../files/thing-1.0%%2Bcpu.tar.gz#egg=x&sha256=%s" data-yanked>t</a><a name=x>y</a>' % ("A" * 64)
    assert package_index.page_links(text, PAGE, False) == [
        Link("thing-1.0+cpu.tar.gz", "https://example.org/files/thing-1.0%2Bcpu.tar.gz", "a" * 64, -1)]


def test_a_page_may_name_another_base():
    text = '<base href="https://files.example.org/"><a href="thing-1.0.zip">t</a>'
    assert package_index.page_links(text, PAGE, False)[0].url == "https://files.example.org/thing-1.0.zip"


def test_a_page_in_json_knows_sizes():
    files = [{"filename": "thing-1.0.zip", "url": "/f/thing-1.0.zip", "hashes": {"sha256": "b" * 64}, "size": 12},
             {"filename": "thing-1.1.zip", "url": "thing-1.1.zip", "hashes": {}}]
    assert package_index.page_links(json.dumps({"files": files}), PAGE, True) == [
        Link("thing-1.0.zip", "https://example.org/f/thing-1.0.zip", "b" * 64, 12),
        Link("thing-1.1.zip", PAGE + "thing-1.1.zip", "", -1)]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": 3}', '{"files": [3]}', '{"files": [{}]}', "<html>"])
def test_what_is_no_page_of_an_index_is_said(text):
    with pytest.raises(Unreachable, match="does not answer as an index does"):
        package_index.page_links(text, PAGE, True)


@pytest.mark.parametrize("text", ["<![\n", "<!DOCTYPE x [ <! 1 ", "<![\n\n\x01\n\n"])
def test_a_declaration_that_is_none_ends_in_words_and_never_in_a_traceback(text):
    # Pythons differ in what they still read of such a page.
    with contextlib.suppress(Unreachable):
        assert package_index.page_links('<a href="x-1.zip">x</a>' + text, PAGE, False)[0].filename == "x-1.zip"


def indexes(tmp_path, find_links=(), urls=()):
    return package_index.Indexes(Network(5), Settings(tuple(urls), tuple(str(one) for one in find_links), "", ""))


def test_directories_are_looked_at_like_indexes(tmp_path):
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "thing-1.0.zip").write_bytes(b"12345")
    (tmp_path / "simple" / "thing").mkdir(parents=True)
    (tmp_path / "simple" / "thing" / "index.html").write_text('<a href="thing-2.0.zip">t</a>')
    both = indexes(tmp_path, [tmp_path / "a b"], [(tmp_path / "simple").as_uri()])
    links = both.links("Thing")
    assert [(link.filename, link.size) for link in links] == [("thing-1.0.zip", 5), ("thing-2.0.zip", -1)]
    assert links[0].url == (tmp_path / "a b" / "thing-1.0.zip").as_uri()
    assert both.links("thing", str(tmp_path / "a b")) == links[:1]


def test_a_place_that_cannot_be_read_is_remembered_with_the_reason(tmp_path):
    both = indexes(tmp_path, [tmp_path / "nowhere"], ["https://name:word@host.invalid:99999/simple"])
    assert both.links("thing") == []
    problems = both.problems_of("thing")
    assert len(problems) == 2
    assert not any("word" in place + problem for place, problem in problems)
