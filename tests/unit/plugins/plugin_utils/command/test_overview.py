# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The command writes one page about a root, whatever its records hold."""

from __future__ import annotations

import json
import pathlib

import pytest
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.command import cli

SHAPES = (None, [], {}, "x", 7, -1.5, True, [[]], [{}], {"x": {"x": []}}, "<script>", "2026-13-40T99:00:00Z")
RECORDS = ("frozen", "modulefile", "acceptance", "sweep", "node_health", "retired", "thawed", "drift", "partitions",
           "notice", "compute", "freezing")
KEYS = ("state", "since", "until", "frozen_at", "manifest", "started", "hosts", "measured", "looks", "format", "name",
        "measurements", "ranks", "passed", "failures", "version", "files", "nodes", "findings", "slow_nodes")


def said(capsys, *words):
    code = cli.main(list(words))
    found = capsys.readouterr()
    return code, found.out + found.err


def test_a_root_with_three_releases_and_a_broken_record_is_one_page(root, repository, capsys):
    for name in ("2026-05-02", "2026-11-20", "2026-11-21"):
        root.release(name, name + "T08:15:00Z")
    (root.place / "2026-11-20" / ".torchstack" / "release.yml").write_text("definition: [")
    (root.place / ".torchstack" / "2026-11-21" / "acceptance.json").write_text("{")
    code, answer = said(capsys, "report", "--all", "--root", str(root.place))
    page = root.place / ".torchstack" / "overview.html"
    assert code == 0 and answer.endswith("Overview of 2 releases: %s\n" % page)
    assert "2026-11-20: %s" % root.place in answer and "acceptance.json cannot be read" in answer
    text = page.read_text()
    assert all(">%s<" % name in text for name in ("2026-05-02", "2026-11-21")) and "release.yml cannot be read" in text


def test_the_list_goes_on_where_a_record_is_broken(root, repository, capsys):
    for name in ("2026-05-02", "2026-11-20"):
        root.release(name, name + "T08:15:00Z")
    (root.place / "2026-11-20" / ".torchstack" / "release.yml").write_text("definition: [")
    code, answer = said(capsys, "list", "--root", str(root.place))
    assert code == 0 and "2026-05-02  frozen" in answer and "2026-11-20 cannot be described: " in answer
    assert said(capsys, "status", "--root", str(root.place))[1].startswith("Release 2026-05-02 ")


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_a_record_of_any_shape_leaves_a_page_on_which_the_release_is_named(root, repository, capsys, shape):
    for name in (*RECORDS, "inside"):
        root.release(name, "2026-11-20T08:15:00Z")
    for name in RECORDS:
        (root.place / ".torchstack" / name / (name + ".json")).write_text(json.dumps(shape))
        (root.place / ".torchstack" / "inside" / (name + ".json")).write_text(json.dumps(dict.fromkeys(KEYS, shape)))
    measured = {"rows": [{"bytes": 8, "busbw": 1.0, "spread": shape}], "ranks": shape, "backend": shape}
    lines = [{"started": shape, "measurements": [measured]}, shape]
    (root.place / ".torchstack" / "inside" / "acceptance.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert said(capsys, "report", "--all", "--root", str(root.place))[0] == 0
    text = (root.place / ".torchstack" / "overview.html").read_text()
    assert "<script" not in text
    assert [name for name in (*RECORDS, "inside") if ">%s<" % name not in text] == []


def test_a_lock_that_cannot_be_read_is_told_of_its_release(root, repository, capsys):
    root.release("2026-11-20", "2026-11-20T08:15:00Z")
    (root.place / ".torchstack" / "2026-11-20" / "lock.json").write_text("[]")
    code, answer = said(capsys, "report", "--all", "--root", str(root.place))
    assert code == 0 and "2026-11-20: " in answer and "lock.json is not a lock record" in answer


def test_what_a_record_says_moves_no_terminal_and_a_problem_is_one_line(root, repository, capsys):
    root.release("2026-11-20", "2026-11-20T08:15:00Z")
    finding = {"path": "base/\x1b[2Jx", "kind": "size"}
    looks = {"quick": {"outcome": {"matches": False, "findings": [finding], "findings_total": 1}}}
    record = {"format": 1, "looks": looks}
    (root.place / ".torchstack" / "2026-11-20" / "drift.json").write_text(json.dumps(record))
    root.release("2026-11-21")
    (root.place / "2026-11-21" / ".torchstack" / "release.yml").write_text("definition: [\n")
    code, answer = said(capsys, "report", "--all", "--root", str(root.place))
    assert code == 0 and "\x1b" not in answer and "first: size base/" in answer
    assert all(line.startswith(("2026-11-2", "Overview ")) for line in answer.splitlines())


def test_its_data_can_be_had_instead_and_nothing_is_written(root, repository, capsys):
    root.release("2026-11-20", "2026-11-20T08:15:00Z")
    code, answer = said(capsys, "report", "--all", "--root", str(root.place), "--json")
    assert code == 0 and [row["release"] for row in json.loads(answer)["releases"]] == ["2026-11-20"]
    code, answer = said(capsys, "--dry-run", "report", "--all", "--root", str(root.place))
    assert code == 0 and answer.startswith("No playbook is run")
    assert not (root.place / ".torchstack" / "overview.html").exists()


def test_a_link_leads_from_where_the_page_is_to_the_report_of_the_release(root, repository, capsys, tmp_path):
    root.release("a&b", "2026-11-20T08:15:00Z")
    (root.place / ".torchstack" / "a&b" / "report.html").write_text("")
    page = tmp_path / "pages" / "all.html"
    page.parent.mkdir()
    assert said(capsys, "report", "--all", "--root", str(root.place), "--to", str(page))[0] == 0
    assert 'href="../root/.torchstack/a%26b/report.html"' in page.read_text()


def test_a_page_that_cannot_be_written_says_what_to_do(root, repository, capsys):
    root.release("2026-11-20", "2026-11-20T08:15:00Z")
    code, answer = said(capsys, "report", "--all", "--root", str(root.place), "--to", str(root.place / "no" / "x.html"))
    assert code == 2 and "--to FILE writes it elsewhere" in answer


@pytest.mark.parametrize(("words", "answer"), [
    (("report", "--to", "x.html"), "--root and --to go with --all"),
    (("report", "--all", "--", "-vvv"), "runs no ansible-playbook that could take -vvv"),
    (("report", "--all", "2026-11-20"), "no release is named here"),
])
def test_what_does_not_go_together_is_refused(repository, capsys, words, answer):
    code, found = said(capsys, *words)
    assert code == 2 and answer in found and not pathlib.Path("x.html").exists()
