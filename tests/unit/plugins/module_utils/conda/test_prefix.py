# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Prefixes of conda as they lie on disk."""

from __future__ import annotations

import hashlib
import json
import os
import stat

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda import prefix as conda_prefix
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda.package import Package, plan
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError

CHANNEL = "https://conda.anaconda.org/conda-forge"


@pytest.fixture()
def prefix(tmp_path):
    """A prefix with one package: a file, a link to it and a generated command."""
    top = tmp_path / "base"
    (top / "conda-meta").mkdir(parents=True)
    (top / "bin").mkdir()
    (top / "bin" / "tool-1").write_text("one")
    (top / "bin" / "tool").symlink_to("tool-1")
    (top / "bin" / "pip").write_text("")
    (top / "bin" / "pip").chmod(0o775)
    paths = [
        {"_path": "bin/tool-1", "path_type": "hardlink", "sha256": hashlib.sha256(b"one").hexdigest()},
        {"_path": "bin/tool", "path_type": "softlink", "sha256": "0" * 64},
        {"_path": "bin/pip", "path_type": "unix_python_entry_point"},
        {"_path": "bin/tool.pyc", "path_type": "pyc_file"},
    ]
    record = {
        "name": "tool", "version": "1", "build": "0", "subdir": "noarch", "channel": CHANNEL + "/",
        "url": CHANNEL + "/noarch/tool-1-0.conda", "sha256": "a" * 64, "paths_data": {"paths": paths},
    }
    (top / "conda-meta" / "tool-1-0.json").write_text(json.dumps(record))
    (top / "conda-meta" / "tool-1-0.json").chmod(0o600)
    (top / "conda-meta" / "history").write_text("")
    return top


def records(prefix):
    return conda_prefix.read_records(str(prefix))


def test_records_say_what_is_installed(prefix, tmp_path):
    (record,) = records(prefix)
    assert record.package == Package(
        "tool", "1", "0", "noarch", CHANNEL, CHANNEL + "/noarch/tool-1-0.conda", "a" * 64
    )
    assert record.names == ["bin/tool-1", "bin/tool", "bin/pip", "bin/tool.pyc"]
    assert records(tmp_path / "nothing") == []


@pytest.mark.parametrize("text", ["{", "[]", '{"name": "a"}'])
def test_a_record_that_is_none_is_an_error_with_its_path(prefix, text):
    path = prefix / "conda-meta" / "bad-1-0.json"
    path.write_text(text)
    with pytest.raises(StackError) as caught:
        records(prefix)
    assert caught.value.path == str(path) and caught.value.remedy


def test_a_record_that_was_being_written_is_passed_over_in_a_prefix_that_was_left_half(prefix):
    (prefix / "conda-meta" / "bad-1-0.json").write_text("")
    assert [one.package.name for one in conda_prefix.read_records(str(prefix), half=True)] == ["tool"]


def damaged(prefix, depth):
    return conda_prefix.damaged(str(prefix), records(prefix), depth)


def test_a_whole_package_is_found_whole_at_every_depth(prefix):
    assert [damaged(prefix, depth) for depth in ("records", "files", "contents")] == [[], [], []]


def test_a_missing_file_is_found_and_a_changed_one_where_contents_are_read(prefix):
    (prefix / "bin" / "tool-1").write_text("two")
    assert [damaged(prefix, depth) for depth in ("records", "files", "contents")] == [[], [], ["tool"]]
    (prefix / "bin" / "tool-1").unlink()
    assert [damaged(prefix, depth) for depth in ("records", "files", "contents")] == [[], ["tool"], ["tool"]]


def test_a_link_that_became_a_file_is_damage(prefix):
    (prefix / "bin" / "tool").unlink()
    (prefix / "bin" / "tool").write_text("one")
    assert damaged(prefix, "files") == ["tool"]


def test_a_file_that_is_reached_through_a_link_to_a_directory_is_there(prefix):
    (prefix / "bin64").symlink_to("bin")
    record = records(prefix)[0]
    through = record._replace(paths=[{"_path": "bin64/tool-1", "path_type": "hardlink"}])
    assert conda_prefix.damaged(str(prefix), [through], "files") == []


def test_leftovers_go_and_what_was_there_before_stays(prefix):
    (prefix / "own").mkdir()
    (prefix / "own" / "kept").write_text("")
    before = conda_prefix.unowned(str(prefix), records(prefix))
    assert before == ["conda-meta/history", "own/kept"]
    (prefix / "symtest_1").symlink_to("nowhere")
    (prefix / ".refprobe" / "deep").mkdir(parents=True)
    (prefix / "own" / "half").write_text("")
    (prefix / "lib").mkdir()
    (prefix / "lib" / "half.so").write_text("")
    gone = conda_prefix.sweep(str(prefix), records(prefix), before)
    assert gone == [".refprobe/deep", "lib/half.so", "own/half", "symtest_1"]
    assert sorted(os.listdir(str(prefix))) == ["bin", "conda-meta", "own"]
    assert os.listdir(str(prefix / "own")) == ["kept"]
    assert damaged(prefix, "contents") == []


def test_a_sweep_follows_no_link_out_of_the_prefix(prefix, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("")
    (prefix / "way-out").symlink_to(outside)
    assert conda_prefix.sweep(str(prefix), records(prefix), ["conda-meta/history"]) == ["way-out"]
    assert (outside / "precious").exists()


def test_records_become_readable_and_commands_writable_for_their_owner_alone(prefix):
    conda_prefix.correct_modes(str(prefix), records(prefix))
    modes = [stat.S_IMODE((prefix / name).stat().st_mode) for name in ("bin/pip", "conda-meta/tool-1-0.json")]
    assert modes == [0o755, 0o644]


def test_records_name_the_channel_and_not_its_mirror(prefix):
    conda_prefix.restore_origin(records(prefix), {CHANNEL: "https://example.org/cf"})
    (record,) = records(prefix)
    assert record.package.channel == "https://example.org/cf"
    assert record.package.url == "https://example.org/cf/noarch/tool-1-0.conda"
    assert record.names[0] == "bin/tool-1"


@pytest.mark.parametrize("url, name", [
    (CHANNEL, "conda-forge"), (CHANNEL + "/label/dev", "conda-forge/label/dev"), ("file:///soft/mirror/", "file:///soft/mirror"),
    ("https://repo.anaconda.com/pkgs/main", "defaults"),
])
def test_channels_are_called_as_conda_calls_them(url, name):
    assert conda_prefix.channel_name(url) == name


def test_the_history_entry_has_condas_form():
    def package(name, version):
        return Package(name, version, "0", "noarch", CHANNEL, "", "a" * 64)

    transaction = plan([package("a", "1"), package("b", "1")], [package("a", "2"), package("c", "1")])
    entry = conda_prefix.history_entry(transaction, ["c", "a >=2"], "conda_environment", 0)
    lines = entry.splitlines()
    assert lines[0].startswith("==> 19") and lines[0].endswith(" <==")
    assert lines[1:] == [
        "# cmd: conda_environment", "-conda-forge/noarch::a-1-0", "-conda-forge/noarch::b-1-0",
        "+conda-forge/noarch::a-2-0", "+conda-forge/noarch::c-1-0", '# update specs: ["a >=2", "c"]',
    ]


def test_a_lock_leaves_no_specs_in_the_history():
    assert "specs" not in conda_prefix.history_entry(plan([], []), [], "conda_environment", 0)


def test_the_history_goes_on_from_where_it_was(prefix):
    conda_prefix.write_history(str(prefix), "old\n", "new\n")
    assert conda_prefix.read_history(str(prefix)) == "old\nnew\n"
    assert conda_prefix.read_history(str(prefix / "nothing")) == ""
