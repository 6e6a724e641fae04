# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""An announcement in words, as Markdown and as plain text."""

from __future__ import annotations

import json

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.hpcml.torchstack.plugins.filter.notice import FilterModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import notice_facts
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.notice_phrases import (
    code,
    flags_phrase,
    markdown,
    parse_backquotes,
    phrase,
    plain,
    setting_phrase,
    table,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.notice_render import render_notice
from ansible_collections.hpcml.torchstack.plugins.module_utils.release.states import ReleaseState

NOTHING = {"tcl": False, "lmod": False}


def release(name, default=False, visible=True, problems=(), setenv=None, retired=None, version="2.3.1",
            root="/soft", thawed=None):
    state = ReleaseState(
        str(root),
        name,
        "/soft/" + name,
        {},
        "torchstack",
        name,
        {"lmod": visible},
        {"lmod": default},
        NOTHING,
        "",
        NOTHING,
        retired,
        thawed,
        "",
    )
    resolved = {"site": "mysite", "definition": {"title": "PyTorch " + version}, "module": {"setenv": setenv or {}}}
    part = {"key": "pytorch", "name": "PyTorch", "version": version, "kind": "wheel"}
    return notice_facts.Release(
        state, resolved, {"components": [part], "base": {"kind": "conda", "python": "3.11.9"}}, problems
    )


def told(*releases, site=None, **more):
    found = render_notice(notice_facts.notice_facts(*releases), site or {}, **more)
    text = "\n".join(
        plain(line, width=1000)
        for line in [found["title"], *found["opening"]]
        + [
            line
            for section in found["sections"]
            for line in [section["title"], *section["commands"], *section["paragraphs"], *section["points"]]
        ]
    )
    return found, text


def keys(found):
    return [section["key"] for section in found["sections"]]


def test_an_announcement_speaks_only_of_what_differs():
    found, text = told(release("2", default=True), release("1"))
    assert keys(found) == ["actions", "load", "stay"]
    assert found["title"] == "torchstack/2 is the new default on mysite"
    assert "Nothing of what is installed differs." in text


def test_of_a_new_default_it_says_how_to_load_it_and_how_to_stay_until_when():
    outgoing = release("1", retired={"state": "deprecated", "until": "2027-01-31"}, version="2.2.0")
    found, text = told(release("2", default=True), outgoing, site={"name": "My Site", "contact": "Ask us."})
    assert found["title"] == "torchstack/2 is the new default on My Site"
    assert "Until now it loaded torchstack/1." in text and "stays until 2027-01-31" in text
    assert keys(found)[-1] == "contact" and "module load torchstack/1" in text
    (parts,) = [section for section in found["sections"] if section["key"] == "parts"]
    assert table(parts["table"]["head"], parts["table"]["rows"]).split() == [
        "1",
        "2",
        "-------",
        "-----",
        "-----",
        "PyTorch",
        "2.2.0",
        "2.3.1",
    ]


def correct(root, release, why, day):
    """Write into the journal of a release that a thaw has changed files of it."""
    place = root / ".torchstack" / release
    place.mkdir(parents=True, exist_ok=True)
    entry = {"action": "refrozen", "why": why, "at": day + "T10:00:00Z", "manifest": {"before": "a", "after": day}}
    with open(place / "thaw.jsonl", "a", encoding="utf-8") as stream:
        stream.write(json.dumps(entry) + "\n")


def test_a_former_release_that_was_corrected_is_not_said_to_be_unchanged(tmp_path):
    def about_the_former():
        return told(release("2", default=True, root=tmp_path), release("1", root=tmp_path))[1]

    assert "It has not changed." in about_the_former()
    correct(tmp_path, "1", "Allreduce of empty tensors hangs", "2026-11-24")
    assert ("It was corrected on 2026-11-24 (Allreduce of empty tensors hangs), and has not changed otherwise."
            in about_the_former())
    correct(tmp_path, "1", "A wrong interface.", "2026-11-25")
    assert ("It was corrected 2 times, last on 2026-11-25 (A wrong interface), and has not changed otherwise."
            in about_the_former())
    open_now = release("1", root=tmp_path, thawed={"at": "2026-11-26T10:00:00Z"})
    text = told(release("2", default=True, root=tmp_path), open_now)[1]
    assert "Its files are being corrected at the moment." in text and "not changed" not in text


def test_what_was_corrected_in_the_release_itself_is_told_with_its_day(tmp_path):
    correct(tmp_path, "2", "Allreduce of empty tensors hangs", "2026-11-24")
    found, text = told(release("2", default=True, root=tmp_path), release("1", root=tmp_path))
    assert "corrections" in keys(found)
    assert "2026-11-24: Allreduce of empty tensors hangs." in text and "It has not changed." in text


def test_of_a_release_that_testers_can_try_it_says_when_it_becomes_the_default():
    found, text = told(release("2"), release("1", default=True), default_from="30 November")
    assert found["title"] == "torchstack/2 becomes the default on mysite on 30 November"
    assert 'On 30 November it becomes what "module load torchstack" loads.' in text


def test_of_a_first_release_it_says_what_is_in_it():
    found, text = told(release("1", default=True))
    assert found["title"] == "torchstack/1 is the default on mysite" and keys(found) == ["parts", "load"]
    assert [[cell[0]["text"] for cell in row] for row in found["sections"][0]["table"]["rows"]] == [
        ["Python", "3.11.9"],
        ["PyTorch", "2.3.1"],
    ]
    assert "Until now" not in text


def test_an_interface_that_is_the_version_of_a_part_is_not_told_twice():
    releases = []
    for name, torch, soname in (("2", "2.3.1", "libmpi.so.40"), ("1", "2.2.0", "libmpi.so.12")):
        found = release(name, default=name == "2", version=torch)
        found.installed["libraries"] = {"torch": torch, "libmpi": soname}
        releases.append(found)
    found, _text = told(*releases)
    (parts,) = [section for section in found["sections"] if section["key"] == "parts"]
    assert [row[0][0]["text"] for row in parts["table"]["rows"]] == ["PyTorch", "MPI library"]


def test_each_file_of_the_sites_that_differs_is_a_point():
    old, new = release("1"), release("2", default=True)
    for one, files in ((old, {"bin/a": "1", "bin/b": "1", "etc/same": "1"}),
                       (new, {"bin/b": "2", "bin/c": "1", "etc/same": "1"})):
        one.installed["files"] = [{"name": name, "source": source} for name, source in files.items()]
    found, text = told(new, old)
    assert "The site's own files in it\nbin/a is no longer there.\nbin/b has changed.\nbin/c is new." in text
    assert "etc/same" not in text and "Nothing of what is installed differs." not in text
    (files,) = [section for section in found["sections"] if section["key"] == "files"]
    assert markdown(files["points"][2]) == "`bin/c` is new."


def test_known_problems_are_told_and_those_that_only_the_release_before_has_as_solved():
    hangs, slow = ({"problem": said, "workaround": "Wait", "url": ""} for said in ("It hangs", "It is slow"))
    found, text = told(release("2", default=True, problems=[hangs]), release("1", problems=[hangs, slow]))
    assert keys(found)[-2:] == ["known_problems", "solved_problems"]
    assert "It hangs. Wait." in text and "It is slow." in text


@pytest.mark.parametrize("problems, known", [(None, None), ((), [])])
def test_problems_that_nobody_knows_of_are_kept_apart_from_no_problems(problems, known):
    assert notice_facts.notice_facts(release("1", problems=problems), None)["known_problems"] == known


def test_no_secret_of_a_setting_gets_into_an_announcement():
    values = {"MY_TOKEN": "abcdefgh1234", "http_proxy": "http://me:hunter22@proxy.example.org:3128"}
    facts = notice_facts.notice_facts(release("2", setenv=values), release("1", default=True))
    assert len(facts["settings"]) == 2 and "hunter22" not in str(facts) and "abcdefgh1234" not in str(facts)


def test_build_options_of_one_part_are_one_point():
    rows = [
        {"component": "Horovod", "name": name, "change": change, "before": before, "after": after}
        for name, change, before, after in (
            ("A", "changed", "MPI", "NCCL"),
            ("B", "removed", "1", ""),
            ("C", "added", "", "1"),
        )
    ]
    assert plain(flags_phrase(rows)) == "Horovod: now A=NCCL (was MPI), C=1; no longer B=1"
    assert plain(flags_phrase(rows[1:2])) == "Horovod: no longer B=1"


@pytest.mark.parametrize(
    "kind, change, expected",
    [
        ("variable", "added", "N is now set to y. Why."),
        ("variable", "removed", "N is no longer set; it was x."),
        ("variable", "changed", "N is now y, no longer x. Why."),
        ("directory", "added", "y is now in N."),
        ("directory", "removed", "x is no longer in N."),
        ("order", "changed", "The directories in N come in another order."),
        ("module", "added", "It now loads N along."),
        ("conflict", "removed", "It can now be loaded together with N."),
        ("unset", "removed", "It no longer unsets N."),
        ("alias", "changed", "The alias N has changed."),
        ("function", "changed", "The shell function N has changed."),
    ],
)
def test_every_kind_of_setting_has_its_sentence(kind, change, expected):
    row = {
        "kind": kind,
        "name": "N",
        "change": change,
        "before": "" if change == "added" else "x",
        "after": "" if change == "removed" else "y",
        "reason": "Why" if kind == "variable" and change != "removed" else "",
    }
    assert plain(setting_phrase(row)) == expected


@pytest.mark.parametrize(
    "text, expected",
    [
        ("a_b and _c_ and *d*", "a_b and \\_c\\_ and \\*d\\*"),
        ("<script>", "\\<script>"),
        ("[x](y) | `z`", "\\[x\\](y) \\| \\`z\\`"),
        ("- not a point", "\\- not a point"),
        ("1. not a number", "1\\. not a number"),
        ("# not a title", "\\# not a title"),
        ("2026-11-21", "2026-11-21"),
        ("See https://example.org/a_b_?x=1.", "See <https://example.org/a_b_?x=1>."),
        ("line\nbreak", "line break"),
    ],
)
def test_nothing_that_a_record_says_is_taken_for_markup(text, expected):
    assert markdown(text) == markdown(phrase(text)) == expected


@pytest.mark.parametrize(
    "said, expected",
    [
        ("A=1", "`A=1`"),
        ("a`b", "``a`b``"),
        ("`a", "`` `a ``"),
        ("a|b", "`a\\|b`"),
        ("a\nb", "`a b`"),
    ],
)
def test_code_stays_code(said, expected):
    assert markdown([code(said)]) == expected


def test_backquotes_around_code_come_in_pairs():
    assert parse_backquotes("Use `a b` here") == phrase("Use ", code("a b"), " here")
    assert parse_backquotes("It's a ` alone") == phrase("It's a ` alone")


def test_plain_text_fits_a_mail_and_breaks_no_command():
    said = phrase(
        "Where it is not found, before anything else is done, run ",
        code("module use /soft/torchstack/modulefiles/lmod"),
        ".",
    )
    lines = plain(said, "- ").split("\n")
    assert max(map(len, lines)) <= 72 and lines[1] == '  "module use /soft/torchstack/modulefiles/lmod".'
    assert plain("a → b \u2013 c") == "a -> b - c"


def test_facts_of_another_form_are_refused():
    with pytest.raises(AnsibleFilterError, match="release_notice returns"):
        FilterModule().filters()["notice_words"]({"format": 2})
