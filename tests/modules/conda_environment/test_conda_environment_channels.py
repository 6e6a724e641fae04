# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""conda_environment where a channel is on a server, is wrong, or is gone."""

from __future__ import annotations

import shutil

import pytest
from support import conda_prefixes
from support.conda_prefixes import DIRECTLY, answer, names, prefix_of, tree


@pytest.mark.parametrize("kind, said", [
    ("another package", "where %s was expected" % ("1" * 64)), ("truncated", "cannot be fetched or is damaged"),
    ("missing", "404"),
])
def test_a_package_that_a_server_gives_wrong_is_named_and_an_update_taken_back(
    drive, place, channel, serve, tmp_path, kind, said
):
    url = serve(conda_prefixes.spoil(channel, kind, tmp_path).directory)
    first = place("toydata ==1.0.0", channels=[url], cache=str(tmp_path / "cold"))
    answer(drive(first, DIRECTLY))
    before = tree(prefix_of(first))
    result = answer(drive(dict(first, specs=["libtoy", "toydata ==2.0.0"]), DIRECTLY))
    assert result["failed"] and result["failed_step"] == "fetch the packages"
    assert "libtoy-2.1.0-h1_0" in result["msg"] and said in result["msg"], result["msg"]
    assert "The prefix is as it was before." in result["msg"]
    assert tree(prefix_of(first)) == before
    assert not answer(drive(first, DIRECTLY))["changed"]


def test_a_channel_that_is_gone_is_named_and_touches_nothing(drive, place, channel, nobody_there, tmp_path):
    local = channel.copy(tmp_path / "local")
    answer(drive(place("toydata ==1.0.0", channels=[local.url])))
    before = tree(prefix_of(place()))
    shutil.rmtree(local.directory)
    for url in (local.url, nobody_there):
        arguments = place("libtoy", channels=[url])
        for check in (True, False):
            result = answer(drive(arguments, DIRECTLY, check=check))
            assert result["failed_step"] == "read the channel" and "nothing was changed" in result["msg"]
            assert url.replace("file://", "") in result["msg"]
        assert tree(prefix_of(arguments)) == before
    # What is there already needs no channel.
    assert not answer(drive(place("toydata ==1.0.0", channels=[local.url])))["changed"]


def test_the_second_mirror_serves_where_the_first_is_gone(drive, place, channel, serve, nobody_there, tmp_path):
    gone = str(tmp_path / "gone")
    for number, mirrors in enumerate(([nobody_there, serve(channel.directory)], [gone, str(channel.directory)])):
        arguments = place(
            "libtoy", channels=["toys"], mirrors={"toys": mirrors}, cache=str(tmp_path / ("cache%d" % number)),
            prefix=str(place.release / ("base%d" % number)),
        )
        made = answer(drive(arguments, DIRECTLY))
        assert names(made["added"]) == ["libtoy", "toydata"]
        assert {package["channel"] for package in made["packages"]} == {"https://conda.anaconda.org/toys"}
        assert not answer(drive(arguments, DIRECTLY))["changed"]
        lock = tmp_path / ("lock%d" % number)
        lock.write_text(made["lock"])
        locked = dict(arguments, prefix=arguments["prefix"] + "-locked", specs=None, channels=[], lock=str(lock))
        assert answer(drive(locked, DIRECTLY))["packages"] == made["packages"]
    result = answer(drive(place(channels=["toys"], mirrors={"toys": [gone, nobody_there]}), DIRECTLY))
    assert result["failed_step"] == "read the channel"
