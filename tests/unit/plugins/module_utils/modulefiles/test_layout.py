# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Where the files lie, and what does not change in them."""

from __future__ import annotations

import json
import os
import re
import stat

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import layout as subject
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.description import normalise

DESCRIPTION = {
    "name": "torch-stack", "version": "1.0", "prefix": "/soft/1.0", "help": "two\nlines",
    "setenv": {"B": "2", "A": "${HOME}/1.0"}, "whatis": {"Z": "z", "Y": "y"},
    "prepend": [{"name": "PATH", "values": ["/soft/1.0/bin"]}],
}


def test_the_same_description_gives_the_same_bytes_whatever_the_order_of_its_keys():
    turned = {key: DESCRIPTION[key] for key in reversed(list(DESCRIPTION))}
    turned["setenv"] = {"A": "${HOME}/1.0", "B": "2"}
    assert subject.render(normalise(DESCRIPTION), "r") == subject.render(normalise(turned), "r")


def test_the_header_says_what_made_the_file_and_for_which_release_and_no_date():
    for text in subject.render(normalise(DESCRIPTION), "the-release").values():
        assert "torch-stack/1.0, release the-release, " + subject.MAKER in text
        assert "20" not in text.split(subject.MAKER)[0].replace("the-release", "")


def test_what_was_there_before_is_kept_under_one_name_whatever_the_module_is_called():
    for text in subject.render(normalise(DESCRIPTION), "r").values():
        assert '"__TORCHSTACK_BEFORE_"' in text and '"torch-stack"' in text and "@" not in text


def test_a_reason_is_a_comment_right_before_the_change_and_nothing_else_differs():
    reasons = {"B": "why B\n[[really", "PATH": "why PATH", "A": ""}
    for syntax, text in subject.render(normalise({**DESCRIPTION, "reasons": reasons}), "r").items():
        mark = {"tcl": "# ", "lmod": "-- "}[syntax]
        lines = text.splitlines()
        for name, comments in (("B", ["why B", "[[really"]), ("PATH", ["why PATH"])):
            (place,) = (index for index, line in enumerate(lines) if re.match(r'(replace|extend)\W+%s\b' % name, line))
            assert lines[place - len(comments):place] == [mark + comment for comment in comments]
        kept = [line for line in lines if line[len(mark):] not in ("why B", "[[really", "why PATH")]
        assert "\n".join(kept) + "\n" == subject.render(normalise(DESCRIPTION), "r")[syntax]


def test_extensions_are_said_where_lmod_knows_the_word_and_nowhere_in_tcl():
    described = {**DESCRIPTION, "extensions": ["numpy/2.1.0", "torch/2.13.0"]}
    without, with_them = subject.render(normalise(DESCRIPTION), "r"), subject.render(normalise(described), "r")
    assert with_them["tcl"] == without["tcl"]
    block = 'if extensions then\n   extensions("numpy/2.1.0",\n      "torch/2.13.0")\nend\n'
    assert block in with_them["lmod"] and with_them["lmod"].replace(block, "") == without["lmod"]


def test_modulefiles_stay_as_they_were_verified_as_long_as_they_are_those(tmp_path):
    path = subject.relative_path("tcl", "t", "1")
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text("as it was")
    record = {"name": "t", "passed": True, "files": {"tcl": {"path": path, "sha256": subject.digest(b"as it was")}}}
    (tmp_path / subject.RECORD).write_text(json.dumps(record))
    assert subject.verified_texts(str(tmp_path)) == {"t": {"tcl": "as it was"}}
    further = dict(record, name="other", files={}, also={"t": record["files"]})
    (tmp_path / subject.RECORD).write_text(json.dumps(further))
    assert subject.verified_texts(str(tmp_path)) == {"t": {"tcl": "as it was"}}
    (tmp_path / subject.RECORD).write_text(json.dumps(record))
    (tmp_path / path).write_text("changed")
    assert subject.verified_texts(str(tmp_path)) == {}
    (tmp_path / path).write_text("as it was")
    (tmp_path / subject.RECORD).write_text(json.dumps({**record, "passed": False}))
    assert subject.verified_texts(str(tmp_path)) == {}


@pytest.mark.parametrize("syntax", subject.SYNTAXES)
def test_a_default_file_names_the_version_that_it_was_made_for(syntax):
    text = subject.default_text(syntax, "torchstack", "2026-11-20")
    assert subject.default_version(syntax, text) == "2026-11-20"


@pytest.mark.parametrize("syntax", subject.SYNTAXES)
@pytest.mark.parametrize("text", [
    "", 'set ModulesVersion "1"\n', 'module_version("t/1", "default")\n', "hide_modulefile('t/1')\n",
])
def test_somebody_else_s_default_file_is_not_read_as_ours(syntax, text):
    assert subject.default_version(syntax, text) == ""


def test_the_visible_order_is_tcl_before_lua():
    assert subject.SYNTAXES == ("tcl", "lmod")
    assert subject.relative_path("lmod", "t", "1") == "modulefiles/lmod/t/1.lua"
    assert subject.relative_path("tcl", "t", "1") == "modulefiles/tcl/t/1"


def test_s03_umask_of_the_caller_does_not_reach_a_directory(tmp_path):
    before = os.umask(0o077)
    try:
        subject.make_directory(str(tmp_path / "a" / "b"))
    finally:
        os.umask(before)
    for path in (tmp_path / "a", tmp_path / "a" / "b"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o755


def test_a_setgid_parent_keeps_handing_its_group_on(tmp_path):
    os.chmod(tmp_path, 0o2755)
    subject.make_directory(str(tmp_path / "a"))
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) & 0o777 == 0o755
    assert bool((tmp_path / "a").stat().st_mode & stat.S_ISGID) == bool(tmp_path.stat().st_mode & stat.S_ISGID)


def test_a_missing_file_reads_as_none(tmp_path):
    assert subject.read_bytes(str(tmp_path / "none")) is None
    (tmp_path / "file").write_text("x")
    assert subject.read_bytes(str(tmp_path / "file" / "below")) is None


@pytest.mark.parametrize("syntax", subject.SYNTAXES)
@pytest.mark.parametrize(("default", "hidden"), [("", []), ("1", []), ("", ["2"]), ("1", ["2", "3-x+y.z"])])
def test_the_default_and_what_is_hidden_are_read_back(syntax, default, hidden):
    files = subject.listing_files(syntax, "t", default, hidden)

    def text(path):
        return (files[path] or b"").decode()

    assert subject.default_version(syntax, text(subject.default_path(syntax, "t"))) == default
    assert subject.hidden_versions(syntax, text(subject.hidden_path(syntax, "t"))) == hidden
    assert all(content is None or subject.MAKER.encode() in content for content in files.values())


def test_a_default_without_hidden_versions_is_the_file_that_it_always_was():
    for syntax in subject.SYNTAXES:
        content = subject.listing_files(syntax, "t", "1", [])[subject.default_path(syntax, "t")]
        assert content.decode() == subject.default_text(syntax, "t", "1")
