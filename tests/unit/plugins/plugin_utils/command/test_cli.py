# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The command answers each word with the playbook's line, the nearest word, or what records say."""

from __future__ import annotations

import json
import pathlib
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import run_records
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.command import (
    cli,
    obey,
    playbook,
    programs,
    releases,
    verbs,
)


def said(capsys, *words):
    code = cli.main(list(words))
    found = capsys.readouterr()
    return code, (found.out + found.err).strip()


@pytest.mark.parametrize(("words", "line"), [
    ("rollout", "playbooks/local.yml"),
    ("rollout polaris 2026-11-21", "playbooks/polaris.yml -e torchstack_release=2026-11-21"),
    ("rollout 2026-11-21 polaris", "playbooks/polaris.yml -e torchstack_release=2026-11-21"),
    ("plan polaris --diff", "playbooks/polaris.yml --check --diff"),
    ("rollout -vv", "playbooks/local.yml -vv"),
    ("rollout -- --tags x", "playbooks/local.yml --tags x"),
    ("publish polaris 2026-11-21 --to default",
     "playbooks/publish.yml -e torchstack_host=polaris -e torchstack_release=2026-11-21 -e publish_to=default"),
    ("publish polaris --check", "playbooks/publish.yml -e torchstack_host=polaris --check"),
    ("rollback polaris", "hpcml.torchstack.rollback -e torchstack_host=polaris"),
    ("report polaris", "hpcml.torchstack.report -e torchstack_host=polaris"),
    ("notice polaris", "hpcml.torchstack.notice -e torchstack_host=polaris"),
    ("lint polaris", "hpcml.torchstack.lint -e torchstack_host=polaris"),
    ("drift polaris 2023-10-04 2026-11-21 --system",
     """hpcml.torchstack.drift -e torchstack_host=polaris -e '{"drift_releases": ["2023-10-04", "2026-11-21"]}' """
     """-e '{"drift_system": true}'"""),
    ("freeze polaris 2026-11-21",
     "hpcml.torchstack.thaw -e torchstack_host=polaris -e torchstack_release=2026-11-21 -e thaw_state=refrozen"),
    ("freeze polaris 2026-11-21 --abandon",
     "hpcml.torchstack.thaw -e torchstack_host=polaris -e torchstack_release=2026-11-21 -e thaw_state=abandoned"),
    ("accept polaris 2026-11-21 --partition a100",
     "hpcml.torchstack.accept -e torchstack_host=polaris -e torchstack_partition=a100 "
     "-e torchstack_release=2026-11-21"),
    ("retire polaris 2026-11-21 --to deprecated --until 2027-01-31",
     "hpcml.torchstack.retire -e torchstack_host=polaris -e torchstack_release=2026-11-21 "
     "-e retire_to=deprecated -e retire_until=2027-01-31"),
    ("mirror polaris --to /m", "hpcml.torchstack.mirror -e torchstack_host=polaris -e torchstack_mirror=/m"),
])
def test_a_dry_run_prints_the_line_that_would_run(words, line, repository, capsys, monkeypatch):
    monkeypatch.setattr(playbook, "collections", lambda workspace: {})
    assert said(capsys, "--dry-run", *words.split()) == (0, "ansible-playbook " + line)


@pytest.mark.parametrize(("words", "line"), [
    ("rehearse down", "{bin}/rehearse down"),
    ("rehearse .", "{bin}/rehearse ."),
    ("lock 2026-11-20 --check", "{bin}/lock {here}/inventories/local/releases/2026-11-20.yml --check"),
    ("new-site x", "{bin}/new-site x"),
])
def test_a_dry_run_of_a_program_prints_its_line_and_runs_nothing(words, line, repository, capsys, monkeypatch):
    monkeypatch.setattr(programs.subprocess, "run", lambda *_words, **_more: pytest.fail("it was run"))
    wanted = line.format(bin=programs.TOP / "bin", here=repository)
    assert said(capsys, "--dry-run", *words.split()) == (0, wanted)


@pytest.fixture()
def two_releases(repository, root, monkeypatch):
    """The root of the site, where there are two releases; nothing may be run."""
    for name in ("2026-11-20", "2026-11-21"):
        root.release(name)
    monkeypatch.setattr(playbook, "ask", lambda *_words: {"root": str(root.place), "connection": "local"})
    monkeypatch.setattr(programs.subprocess, "run", lambda *_words, **_more: pytest.fail("it was run"))
    return root.place


@pytest.mark.parametrize(("words", "line"), [
    ("compare 2026-11-20 2026-11-21 --max-listed 5", "compare {root}/2026-11-20 {root}/2026-11-21 --max-listed 5"),
    ("compare --json polaris 2026-11-20 /nowhere", "compare --json {root}/2026-11-20 /nowhere"),
    ("verify --rules rules.yml 2026-11-21", "verify --rules rules.yml {root}/2026-11-21"),
    ("compare --help", "compare --help"),
])
def test_releases_by_their_names_are_compared_and_verified_below_the_root(words, line, two_releases, capsys):
    assert said(capsys, "--dry-run", *words.split()) == (
        0, "%s/%s" % (programs.TOP / "bin", line.format(root=two_releases)))


@pytest.mark.parametrize(("words", "answer"), [
    ("compare", "Name two releases to compare, or their directories."),
    ("compare 2026-11-20", "Name two releases to compare, or their directories."),
    ("compare local 2026-11-20 --max-listed 5", "Name two releases to compare, or their directories."),
    ("compare 2026-11-20 2026-1-21", "There is no release and no directory '2026-1-21'; did you mean '2026-11-21'?"),
    ("verify zzz", "There is no release and no directory 'zzz'."),
    ("verify", "Name the release to verify, or a directory."),
])
def test_what_is_not_there_is_answered_with_the_place_and_what_is_there(words, answer, two_releases, capsys):
    assert said(capsys, *words.split()) == (
        2, "torchstack: %s Below %s there are 2026-11-20, 2026-11-21." % (answer, two_releases))


@pytest.mark.parametrize(("words", "near"), [
    ("publish polrais", "polaris"), ("drift polrais 2026-11-20", "polaris"), ("retire 2026-1-21", "2026-11-21"),
])
def test_a_release_with_neither_file_nor_record_is_answered_before_a_playbook_runs(
    words, near, two_releases, capsys, monkeypatch
):
    played = []
    monkeypatch.setattr(playbook, "run", lambda line, *_more: played.append(line) or 0)
    code, answer = said(capsys, *words.split())
    assert code == 2 and answer.endswith("of site 'local'; did you mean '%s'?" % near) and not played, answer
    # Of the second one there is no file any more.
    assert cli.main(["drift", "2026-11-20", "2026-11-21"]) == 0 and len(played) == 1


def test_a_rehearsal_in_the_checkout_takes_a_site_and_a_release_as_words(capsys, monkeypatch):
    monkeypatch.chdir(programs.TOP)
    code, line = said(capsys, "--dry-run", "rehearse", "polaris", "2026-11-21", "--", "-v")
    assert code == 0 and line.endswith(" -m rehearsal roll-out polaris --release 2026-11-21 -- -v")
    for words, near in (("polrais", "polaris"), ("polaris 2026-11-22", "2026-11-21"), ("dwn", "down")):
        code, answer = said(capsys, "--dry-run", "rehearse", *words.split())
        assert code == 2 and answer.endswith("did you mean '%s'?" % near)


def test_a_text_with_spaces_is_one_value(repository, capsys):
    code, line = said(
        capsys, "--dry-run", "thaw", "polaris", "2026-11-21", "--path", "base/a b", "--path", "c", "--reason", "it's")
    assert code == 0
    assert """-e '{"thaw_paths": ["base/a b", "c"]}'""" in line and "it'\"'\"'s" in line


def test_from_elsewhere_in_the_repository_the_line_begins_in_its_directory(repository, capsys, monkeypatch):
    monkeypatch.setattr(playbook, "collections", lambda workspace: {})
    monkeypatch.chdir(repository / "inventories" / "polaris" / "releases")
    assert said(capsys, "--dry-run", "plan") == (
        0, "cd %s && ansible-playbook playbooks/polaris.yml --check" % repository)


@pytest.mark.parametrize(("words", "answer"), [
    ("publsh", "torchstack: There is no 'publsh'; did you mean 'publish'?"),
    ("rollout polrais 2026-11-21", "torchstack: There is no site 'polrais'; did you mean 'polaris'?"),
    ("rollout polaris 2026-1-21",
     "torchstack: There is no release '2026-1-21' of site 'polaris'; did you mean '2026-11-21'?"),
    ("rollout polari", "torchstack: There is no release 'polari' of site 'local'; did you mean 'polaris'?"),
    ("rollout polaris local", "torchstack: Two sites are named, polaris and local: name one."),
    ("list x", "torchstack: 'x' is no site (there are local, polaris), and no release is named here."),
    ("retire polaris --to hidden",
     "torchstack: Name the release: it is not the site's default that is meant by itself."),
])
def test_what_is_unknown_is_answered_in_one_sentence_and_nothing_is_run(words, answer, repository, capsys, monkeypatch):
    monkeypatch.setattr(playbook, "run", lambda *_words: pytest.fail("it was run"))
    assert said(capsys, *words.split()) == (2, answer)


def test_an_unknown_option_and_an_unknown_value_are_answered_with_the_known(repository, capsys):
    code, answer = said(capsys, "publish", "--too", "default")
    assert code == 2 and "--to" in answer
    code, answer = said(capsys, "publish", "--to", "defualt")
    assert code == 2 and "'defualt'" in answer and "default" in answer


def test_without_a_word_it_lists_all_of_them(capsys):
    code, answer = said(capsys)
    assert code == 0
    for name in (*verbs.PLAYBOOKS, *verbs.PROGRAMS, *cli.READING, "completion"):
        assert "  %s " % name in answer


def test_every_word_explains_itself(capsys):
    for name in (*verbs.PLAYBOOKS, *cli.READING):
        code, answer = said(capsys, name, "--help")
        assert code == 0 and answer.startswith("Usage: torchstack " + name), name


@pytest.mark.parametrize("word", verbs.PLAYBOOKS)
def test_every_word_that_runs_a_playbook_gives_its_result_as_data(word, repository, capsys, monkeypatch):
    def play(line, _after=None, player=None):
        assert player is not None, "its lines would stand beside the data"
        path = pathlib.Path(line.environment[run_records.PATH])
        path.write_text(json.dumps({"finished": True, "changed": [{"task": "Make it", "host": "n1"}]}))
        return 2

    monkeypatch.setattr(playbook, "run", play)
    needed = {"thaw": ["--path", "a", "--reason", "b"], "mirror": ["--to", "m"]}.get(word, [])
    code, answer = said(capsys, word, "polaris", "2026-11-21", *needed, "--json")
    found = json.loads(answer)
    assert code == found["rc"] == 2 and found["finished"]
    assert (found["word"], found["site"], found["releases"]) == (word, "polaris", ["2026-11-21"])
    assert found["changed"] == [{"task": "Make it", "host": "n1"}] and found["failures"] == []
    assert run_records.PATH not in found["command"]


def test_the_line_of_a_dry_run_is_data_too_and_nothing_is_run(repository, capsys, monkeypatch):
    monkeypatch.setattr(playbook, "run", lambda *_words: pytest.fail("it was run"))
    code, answer = said(capsys, "--dry-run", "publish", "polaris", "--check", "--json")
    found = json.loads(answer)
    assert code == 0 and found["rc"] is None and found["check"] and not found["finished"]
    assert found["command"].endswith("publish.yml -e torchstack_host=polaris --check")


def test_a_record_of_an_earlier_run_is_not_taken_for_that_of_this_one(repository, capsys, monkeypatch, tmp_path):
    (tmp_path / "run.json").write_text('{"finished": true, "steps": [{"step": "base"}]}')
    monkeypatch.setenv(run_records.PATH, str(tmp_path / "run.json"))
    monkeypatch.setattr(playbook, "run", lambda *_words: 2)
    found = json.loads(said(capsys, "rollout", "--json")[1])
    assert not found["finished"] and found["steps"] == []


def test_without_click_it_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "click", None)
    code, answer = said(capsys, "list")
    assert code == 2 and "needs the Python package click" in answer


def test_list_shows_state_age_versions_and_size_the_newest_first(root, repository, capsys):
    root.release("2026-11-20", "2026-11-20T08:15:00Z")
    root.release("2026-11-21", "2026-11-21T08:15:00Z")
    root.release("2026-12-01")
    code, answer = said(capsys, "list", "--root", str(root.place))
    lines = answer.splitlines()
    assert code == 0 and lines[1].split() == [
        "RELEASE", "STATE", "AGE", "PYTORCH", "CUDA", "MPI", "SIZE", "ACCEPTED", "DRIFT"]
    assert [line.split()[:2] for line in lines[2:]] == [
        ["2026-11-21", "frozen"], ["2026-11-20", "frozen"], ["2026-12-01", "unfinished"]]
    assert "2.13.0" in lines[2] and "2 KiB" in lines[2]
    assert lines[2].endswith("not accepted yet  not looked")


ROWS = [
    ["2026-11-20", "visible", "default", "2 min 19 s", "2.13.0+cu130", "13.0", "MPICH 4.3.2", "4.75 GiB", "2026-11-24",
     "not looked"],
    ["2026-05-02", "deprecated", "", "202 d", "2.9.1+cu128", "12.8", "MPICH 4.3.2", "4.5 GiB", "not accepted yet",
     "differs (quick)"]]


@pytest.mark.parametrize(("width", "left_out"), [
    (None, []), (121, []), (111, []), (110, ["mpi"]), (97, ["mpi", "size"]), (80, ["mpi", "size", "cuda", "age"]),
    (60, ["mpi", "size", "cuda", "age", "pytorch", "accepted"])])
def test_a_list_fits_its_terminal_by_the_columns_that_are_needed_least(width, left_out):
    lines, missing = releases.fitted(ROWS, width)
    assert missing == left_out and max(map(len, lines)) <= (width or 121)
    assert [line.split()[0] for line in lines] == ["RELEASE", "2026-11-20", "2026-05-02"]
    assert lines[2].endswith("differs (quick)") and "deprecated" in lines[2]
    if width is None:
        assert all(cell in line for row, line in zip(ROWS, lines[1:]) for cell in row)


@pytest.mark.parametrize(("terminal", "words", "has_all"), [
    (True, (), False), (True, ("--wide",), True), (False, (), True)])
def test_without_a_terminal_or_with_wide_nothing_of_a_list_is_cut(
        terminal, words, has_all, root, repository, capsys, monkeypatch):
    root.release("2026-11-20", "2026-11-20T08:15:00Z")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    code, answer = said(capsys, "list", "--root", str(root.place), *words)
    assert code == 0 and ("MPI" in answer) == has_all
    assert ("Without room for mpi, size" in answer) == (not has_all)


def test_list_gives_the_same_as_data(root, repository, capsys):
    root.release("2026-11-20", "2026-11-20T08:15:00Z")
    code, answer = said(capsys, "list", "--root", str(root.place), "--json")
    (row,) = json.loads(answer)["releases"]
    assert code == 0 and row["size"] == 2048 and row["pytorch"] == "2.13.0" and row["drift"] is None


def test_in_the_directory_of_a_release_it_is_that_release(root, repository, capsys, monkeypatch):
    prefix = root.release("2026-11-20", "2026-11-20T08:15:00Z")
    root.release("2026-11-21", "2026-11-21T08:15:00Z")
    monkeypatch.chdir(prefix)
    code, answer = said(capsys, "show", "--json")
    assert code == 0 and json.loads(answer)["release"]["name"] == "2026-11-20"


def test_a_release_that_is_not_there_is_answered_with_the_nearest(root, repository, capsys):
    root.release("2026-11-20", "2026-11-20T08:15:00Z")
    code, answer = said(capsys, "show", "2026-11-2", "--root", str(root.place))
    assert code == 2 and answer.endswith("below %s; did you mean '2026-11-20'?" % root.place)


def test_a_site_on_another_machine_is_not_read_as_if_it_were_here(repository, capsys, monkeypatch):
    monkeypatch.setattr(playbook, "ask", lambda *_words: {"root": "/soft", "connection": "ssh"})
    code, answer = said(capsys, "list", "polaris")
    assert code == 2 and "on another machine" in answer and "--root" in answer


def test_logs_prints_the_log_of_the_step_that_runs(root, repository, capsys):
    root.release("2026-11-20")
    root.step("2026-11-20", "base", "2026-11-24T10:00:00Z", 1.0)
    place = root.step("2026-11-20", "horovod", "2026-11-24T10:01:00Z")
    (place / "log").write_text("compiling\n")
    assert cli.main(["logs", "--root", str(root.place)]) == 0
    assert capsys.readouterr().err.strip() == "==> %s <==" % (place / "log")
    code, answer = said(capsys, "logs", "horvod", "--root", str(root.place))
    assert code == 2 and "did you mean 'horovod'?" in answer


def test_a_log_is_followed_until_its_step_has_ended(root, repository, capfdbinary, monkeypatch):
    root.release("2026-11-20")
    place = root.step("2026-11-20", "horovod", "2026-11-24T10:01:00Z")
    (place / "log").write_text("compiling\n")

    def end(_seconds):
        with open(place / "log", "a", encoding="utf-8") as stream:
            stream.write("ended\n")
        (place / "stamp.json").write_text(json.dumps({"nonce": "n", "digest": "x"}))

    monkeypatch.setattr(obey.time, "sleep", end)
    assert cli.main(["logs", "-f", "--root", str(root.place)]) == 0
    assert capfdbinary.readouterr().out == b"compiling\nended\n"
