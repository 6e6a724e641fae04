# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.own_place import place_of, placeless

ONE, TWO = (place_of("/soft/stacks/%s/.torchstack/steps" % name) for name in ("2026-11-20", "2026-12-01"))
ELSEWHERE = place_of("/scratch/2026-11-20/.torchstack/steps")


def test_only_the_steps_of_a_release_have_a_place():
    assert (ONE.root, ONE.prefix) == ("/soft/stacks", "/soft/stacks/2026-11-20")
    for other in ("/soft/stacks/.torchstack/tools/abc.records", "/tmp/steps", "/soft/.torchstack/steps/horovod"):
        assert place_of(other).prefix == ""
    assert placeless("/soft/stacks/2026-11-20/base", place_of("/tmp/steps")) == "/soft/stacks/2026-11-20/base"


@pytest.mark.parametrize(
    "text",
    [
        "{prefix}",
        "{prefix}/wheels/a.whl",
        "-Wl,-rpath,{prefix}/base/lib:{prefix}/nccl/lib",
        "export PATH='{prefix}'/bin:\"$PATH\"",
        '{{"base": "{prefix}/base"}}',
        "{root}/.torchstack/tools/0123456789ab/bin/python",
        "{root}/.torchstack/tools/0123456789ab-{name}/bin/python",
    ],
)
def test_two_releases_with_the_same_inputs_have_the_same_ones_without_their_place(text):
    def at(place):
        name = place.prefix.rpartition("/")[2]
        words = text.format(prefix=place.prefix, root=place.root, name=name)
        return placeless({words: [words, {"deep": (words, 1, None, True)}]}, place)

    assert at(ONE) == at(TWO) == at(ELSEWHERE)


@pytest.mark.parametrize(
    "text",
    [
        "/soft/stacks/2026-11-20b/base",
        "/soft/stacks/2026-11-20.1/base",
        "/soft/stacks/2026-11-2",
        "/soft/stacks/modulefiles",
        "/soft/stacks/.torchstacks",
        "release 2026-11-20",
        "/opt/cuda",
    ],
)
def test_what_only_looks_like_the_place_stays(text):
    assert placeless(text, ONE) == text


def test_other_tools_and_the_release_beside_are_other_inputs():
    assert placeless("/soft/stacks/2026-11-20/base", TWO) != placeless("/soft/stacks/2026-12-01/base", TWO)
    tools = "/soft/stacks/.torchstack/tools/%s-2026-11-20"
    assert placeless(tools % ("0" * 12), ONE) != placeless(tools % ("1" * 12), ONE)
    assert placeless(tools % ("0" * 12), ONE) != placeless(tools % ("0" * 12), TWO), "of a release beside"


def test_paths_of_a_result_are_those_of_any_release():
    assert ONE.inside("/soft/stacks/2026-11-20/wheels/a.whl") == "wheels/a.whl"
    assert TWO.inside("/soft/stacks/2026-12-01/wheels/a.whl") == "wheels/a.whl"
    assert ONE.inside("/soft/stacks/2026-11-20b/a") == "/soft/stacks/2026-11-20b/a"


def test_what_binds_to_a_place_depends_on_who_else_is_served():
    assert ONE.needles("/soft/stacks/.torchstack/builds") == [b"/soft/stacks/2026-11-20"]
    assert ONE.needles("/soft/stacks-cache") == [b"/soft/stacks"]
