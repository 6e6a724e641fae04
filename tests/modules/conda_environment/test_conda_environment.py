# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""conda_environment as Ansible runs it, on a channel of real packages.

Covers environment, linker, rattler and rattler_worker of module_utils/conda, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from support import conda_channel
from support.conda_prefixes import answer, names, prefix_of, tree


def test_check_do_check_again_do_again(run_module, place):
    arguments = place("python", "pip", "libtoy", "toysettings")
    prefix = prefix_of(arguments)
    planned = run_module("conda_environment", arguments, check=True, diff=True)
    assert planned.changed and not planned.failed, planned.console
    assert not prefix.exists() and list(prefix.parent.iterdir()) == []
    done = run_module("conda_environment", arguments, diff=True)
    assert done.changed and not done.failed, done.console
    assert planned.shown_difference == done.shown_difference
    assert [line.split()[0] for line in done.shown_difference] == [
        "+libtoy", "+pip", "+python", "+toydata", "+toysettings"
    ]
    for key in ("added", "removed", "changed_packages", "packages", "lock"):
        assert planned[key] == done[key], key
    before = tree(prefix)
    for check in (True, False):
        again = run_module("conda_environment", arguments, check=check, diff=True)
        assert not again.changed and not again.failed, again.console
        assert (again.shown_difference, again["packages"]) == ([], done["packages"])
    assert tree(prefix) == before
    program = subprocess.run([str(prefix / "bin" / "toy")], capture_output=True, text=True, check=True)
    assert program.stdout == "42 %s\n" % prefix
    pip = subprocess.run(
        [str(prefix / "bin" / "pip"), "--version"], capture_output=True, text=True, check=True,
        env={"PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert "from %s/lib/" % prefix in pip.stdout


def test_a_version_that_is_asked_for_replaces_the_other_and_the_diff_shows_both(run_module, drive, place):
    answer(drive(place("toydata ==1.0.0", "toysettings")))
    result = run_module("conda_environment", place("toydata ==2.0.0"), diff=True)
    assert result.changed and names(result["removed"]) == ["toysettings"]
    (change,) = result["changed_packages"]
    assert (change["version_before"], change["version"]) == ("1.0.0", "2.0.0")
    lines = [line.split(" (")[0] for line in result.shown_difference]
    assert lines == ["-toydata 1.0.0 0", "-toysettings 1.0.0 0", "+toydata 2.0.0 0"]
    prefix = prefix_of(place())
    assert (prefix / "share" / "toydata" / "version").read_text() == "2.0.0\n"
    assert not (prefix / "share" / "toysettings").exists()


def test_what_satisfies_the_specs_stays_until_the_latest_is_asked_for(drive, place):
    answer(drive(place("toydata ==1.0.0")))
    kept = answer(drive(place("toydata >=1")))
    assert not kept["changed"]
    latest = answer(drive(place("toydata >=1", state="latest")))
    assert [change["version"] for change in latest["changed_packages"]] == ["2.0.0"]
    assert not answer(drive(place("toydata >=1", state="latest")))["changed"]


def test_a_lock_that_came_out_goes_in_again_without_the_channels_index(drive, place, channel, tmp_path):
    arguments = place("libtoy", "toydata ==1.0.0")
    solved = answer(drive(arguments))
    lock = tmp_path / "base.lock"
    lock.write_text(solved["lock"])
    again = place(specs=None, channels=None, lock=str(lock))
    assert not answer(drive(again))["changed"]
    mirror = channel.copy(tmp_path / "mirror")
    for index in mirror.directory.glob("*/repodata.json"):
        index.write_text('{"info": {}, "packages": {}, "packages.conda": {}}')
    other = dict(
        again, prefix=str(tmp_path / "release" / "other"), cache=str(tmp_path / "cold"),
        mirrors={channel.url: str(mirror.directory)},
    )
    planned = answer(drive(other, check=True))
    made = answer(drive(other))
    assert made["lock"] == planned["lock"] == solved["lock"]
    one, two = tree(prefix_of(again)), tree(prefix_of(other))
    assert sorted(one) == sorted(two)
    same = [path for path in one if one[path] == two[path]]
    assert set(one) - set(same) == {
        "bin/toy", "etc/libtoy.conf", "conda-meta/history", "conda-meta/libtoy-2.1.0-h1_0.json",
        "conda-meta/toydata-1.0.0-0.json",
    }
    record = json.loads((prefix_of(other) / "conda-meta" / "libtoy-2.1.0-h1_0.json").read_text())
    assert record["url"].startswith(channel.url)


def test_a_lock_of_pixi_is_taken_too(drive, place, channel, tmp_path):
    lock = tmp_path / "pixi.lock"
    script = (
        "import asyncio, os, rattler, sys\n"
        "url, path, subdir = sys.argv[1:]\n"
        "platform = rattler.LockPlatform(subdir)\n"
        "lock = rattler.LockFile([platform])\n"
        "lock.set_channels('default', [rattler.LockChannel(url)])\n"
        "for record in asyncio.run(rattler.solve(sources=[url], specs=['libtoy'])):\n"
        "    lock.add_conda_package('default', platform, record)\n"
        "lock.to_path(path)\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", script, channel.url, str(lock), conda_channel.SUBDIR], check=True)
    arguments = place(specs=None, channels=None, lock=str(lock))
    result = answer(drive(arguments))
    assert names(result["added"]) == ["libtoy", "toydata"]
    assert not answer(drive(arguments))["changed"]


@pytest.mark.parametrize("spec, said", [
    ("impossible", "libtoy >=9, for which no candidates were found"),
    ("cudatoy", "__cuda >=12, for which no candidates were found"),
    ("nosuch", "No candidates were found for nosuch"),
])
def test_specs_without_a_solution_give_the_solvers_explanation_and_touch_nothing(drive, place, spec, said):
    arguments = place(spec)
    result = answer(drive(arguments))
    assert result["failed_step"] == "solve" and said in " ".join(result["explanation"].split())
    assert not prefix_of(arguments).exists()
    drive(place("toydata ==1.0.0"))
    before = tree(prefix_of(arguments))
    assert answer(drive(place("toydata ==1.0.0", spec)))["failed_step"] == "solve"
    assert tree(prefix_of(arguments)) == before


def test_what_a_channel_may_lack_is_left_out_and_told(drive, place):
    arguments = place("libtoy", optional_specs=["toysettings", "mamba >=2"])
    for check in (True, False, False):
        made = answer(drive(arguments, check=check))
        assert made["left_out"] == ["mamba >=2"]
        assert names(made["packages"]) == ["libtoy", "toydata", "toysettings"]
    assert not made["changed"]
    assert '["libtoy", "toysettings"]' in (prefix_of(arguments) / "conda-meta" / "history").read_text()


def test_a_login_node_without_a_gpu_solves_for_nodes_that_have_one(drive, place):
    arguments = place("cudatoy", virtual_packages={"__cuda": "12.4", "__glibc": "2.31"})
    assert names(answer(drive(arguments))["added"]) == ["cudatoy"]


def test_a_channel_that_is_not_there_is_an_error_or_with_planned_after_a_plan(run_module, drive, place, tmp_path):
    arguments = place(channels=[str(tmp_path / "later")])
    failed = run_module("conda_environment", arguments, check=True)
    assert failed.failed and failed["failed_step"] == "read the channel" and str(tmp_path / "later") in failed["msg"]
    planned = run_module("conda_environment", dict(arguments, planned_after="mirror"), check=True)
    assert planned.changed and planned["planned_after"] == "mirror" and "is not there" in planned["planned_reason"]
    assert answer(drive(arguments))["failed"]


def test_an_interpreter_without_py_rattler_is_named_with_what_it_needs(run_module, place, tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "rattler.py").write_text("raise ImportError('no rattler here')\n")
    environment = {"PYTHONPATH": str(hidden)}
    failed = run_module("conda_environment", place(), environment=environment)
    assert failed.failed and failed["failed_step"] == "load py-rattler"
    assert failed["requirement"] == "py-rattler>=0.28" and os.path.samefile(failed["interpreter"], sys.executable)
    planned = run_module(
        "conda_environment", place(planned_after="tool environment"), check=True, environment=environment
    )
    assert planned["planned_after"] == "tool environment" and not planned.failed


@pytest.mark.parametrize("channels, specs", [
    (["defaults"], ["python"]), (["https://repo.anaconda.com/pkgs/main"], ["python"]),
    (["conda-forge"], ["defaults::python"]), (["conda-forge"], ["python[channel=pkgs/main]"]),
])
def test_anacondas_channels_need_an_acknowledged_licence(drive, place, channels, specs):
    result = answer(drive(place(*specs, channels=channels)))
    assert result["failed_step"] == "check the channels" and "accept_defaults_licence" in result["msg"]


def test_a_lock_from_anacondas_channels_needs_an_acknowledged_licence(drive, place, tmp_path):
    lock = tmp_path / "lock"
    lock.write_text("@EXPLICIT\nhttps://repo.anaconda.com/pkgs/main/noarch/a-1-0.conda#%s\n" % ("0" * 64))
    result = answer(drive(place(specs=None, channels=None, lock=str(lock))))
    assert result["failed_step"] == "check the channels"


def test_a_prefix_that_is_none_is_not_touched(drive, place):
    arguments = place()
    prefix = prefix_of(arguments)
    prefix.mkdir()
    (prefix / "thesis.tex").write_text("")
    for state in ("present", "absent"):
        result = answer(drive(dict(arguments, state=state)))
        assert result["failed"] and "no conda prefix" in result["msg"]
    assert [path.name for path in prefix.iterdir()] == ["thesis.tex"]


def test_a_frozen_prefix_is_refused_with_the_remedy_and_left_alone_where_nothing_changes(drive, place):
    arguments = place("toydata ==1.0.0")
    prefix = prefix_of(arguments)
    answer(drive(arguments))
    subprocess.run(["chmod", "-R", "a-w", str(prefix)], check=True)
    try:
        assert answer(drive(arguments))["changed"] is False
        if os.geteuid():
            result = answer(drive(place("toydata ==2.0.0")))
            assert "frozen" in result["msg"] and "thaw" in result["msg"]
            assert answer(drive(arguments))["changed"] is False
    finally:
        subprocess.run(["chmod", "-R", "u+w", str(prefix)], check=True)


def test_absent_removes_the_prefix_and_a_second_time_nothing(run_module, drive, place):
    arguments = place("toydata")
    answer(drive(arguments))
    gone = {"prefix": arguments["prefix"], "state": "absent"}
    planned = run_module("conda_environment", gone, check=True, diff=True)
    assert planned.changed and names(planned["removed"]) == ["toydata"] and prefix_of(arguments).exists()
    done = run_module("conda_environment", gone, diff=True)
    assert done.changed and done.shown_difference == planned.shown_difference and not prefix_of(arguments).exists()
    for check in (True, False):
        assert not run_module("conda_environment", gone, check=check).changed


def test_a_log_says_what_is_being_linked(drive, place, tmp_path):
    answer(drive(place("libtoy", log=str(tmp_path / "log"))))
    assert {"link libtoy", "link toydata", "done"} <= {
        line.split("-")[0] for line in (tmp_path / "log").read_text().splitlines()
    }
