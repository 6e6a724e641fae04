# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Where pip would look."""

from __future__ import annotations

import os
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror import pip_config


def read(tmp_path, text="", **variables):
    (tmp_path / "pip.conf").write_text(text)
    # The machine's own configuration is another matter.
    home = {"HOME": str(tmp_path / "none"), "XDG_CONFIG_DIRS": str(tmp_path / "none"), "PIP_INDEX_URL": "https://o.example"}
    variables = {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), **home, **variables}
    return pip_config.read({name: value for name, value in variables.items() if value is not None}, str(tmp_path))


def test_files_and_variables_count_as_for_pip(tmp_path):
    text = "[global]\nfind_links = /a\n  /b\nextra-index-url = https://x.example\n[install]\nextra-index-url = https://y.example\n"
    settings = read(tmp_path, text)
    assert settings.indexes == ("https://o.example", "https://y.example")
    assert settings.find_links == ("/a", "/b")
    more = {"PIP_EXTRA_INDEX_URL": "https://v.example https://w.example", "PIP_CERT": "/c", "PIP_PROXY": "p"}
    settings = read(tmp_path, text, **more)
    assert settings.indexes[1:] == ("https://v.example", "https://w.example")
    assert (settings.certificates, settings.proxy) == ("/c", "p")


def test_without_index_only_directories_are_left(tmp_path):
    settings = read(tmp_path, "[global]\nno-index = true\nfind-links = /a\n")
    assert (settings.indexes, settings.find_links) == ((), ("/a",))


def test_no_file_counts_where_pip_was_told_so(tmp_path):
    assert pip_config.files({"PIP_CONFIG_FILE": os.devnull}, "/usr") == []


def test_where_nothing_is_configured_pip_itself_says_which_index_it_takes():
    (index,) = pip_config.read({"PIP_CONFIG_FILE": os.devnull}).indexes
    assert index.startswith("https://") and index.endswith("/simple")


def test_an_interpreter_without_pip_needs_an_index_to_be_configured(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'No module named pip' >&2\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(StackError, match="does not say which it would take: No module named pip"):
        pip_config.read({"PIP_CONFIG_FILE": os.devnull}, python=str(python))
    assert pip_config.read({"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}, python=str(python)).indexes == ()


def test_an_interpreter_without_pip_is_asked_by_the_pip_of_its_virtual_environments(tmp_path):
    python = tmp_path / "python"
    refused = "[ \"$2\" != pip ] || { echo 'No module named pip' >&2; exit 1; }"
    python.write_text("#!/bin/sh\n%s\nexec %s \"$@\"\n" % (refused, sys.executable))
    python.chmod(0o755)
    assert pip_config.read({"PIP_CONFIG_FILE": os.devnull}, python=str(python)) == pip_config.read(
        {"PIP_CONFIG_FILE": os.devnull})


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(StackError, match=r"pip's configuration .*pip\.conf cannot be read"):
        read(tmp_path, "nonsense\n")


def test_where_pip_looks_has_a_digest_without_credentials(tmp_path):
    own = {"HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path)}
    places = pip_config.places_digest({**own, "PIP_INDEX_URL": "https://me:one@example.org/simple"})
    assert places == pip_config.places_digest({**own, "PIP_INDEX_URL": "https://me:other@example.org/simple"})
    assert places == pip_config.places_digest(
        {**own, "PIP_INDEX_URL": "https://me:one@example.org/simple", "PIP_TIMEOUT": "3", "PIP_NO_INPUT": "1"})
    others = ({}, {"PIP_INDEX_URL": "https://example.com/simple"}, {"PIP_FIND_LINKS": "/wheels"}, {"PIP_NO_INDEX": "1"})
    assert len({places, *(pip_config.places_digest({**own, **other}) for other in others)}) == 5
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "pip.conf").write_text("[global]\nfind-links = /wheels\n")
    assert pip_config.places_digest(own) == pip_config.places_digest({**own, "PIP_FIND_LINKS": "/wheels"})
