# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The words by which a site starts ranks."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import launch_command


@pytest.mark.parametrize(("words", "filled"), [
    (["mpiexec", "-n", "{ranks}"], ["mpiexec", "-n", "12"]),
    (["mpiexec", "-n", "{ranks}", "--ppn", "{per_node}"], ["mpiexec", "-n", "12", "--ppn", "4"]),
    (["srun", "--nodes={nodes}", "--ntasks={ranks}", "--ntasks-per-node={per_node}"],
     ["srun", "--nodes=3", "--ntasks=12", "--ntasks-per-node=4"]),
    (["mpirun", "-np", "{ranks}", "--map-by", "ppr:{per_node}:node"],
     ["mpirun", "-np", "12", "--map-by", "ppr:4:node"]),
    (["launch", "{nodes}x{per_node}"], ["launch", "3x4"]),
    (["launch"], ["launch"]),
])
def test_the_numbers_stand_where_the_site_wants_them(words, filled):
    assert launch_command.problem(words) == ""
    assert launch_command.filled(words, 3, 4) == filled


@pytest.mark.parametrize(("words", "sentence"), [
    ([], "is empty"),
    (["", "-n", "{ranks}"], "is empty"),
    (["srun", "-n{rank}"], "has the placeholder {rank}; known are {ranks}, {nodes}, {per_node}"),
    (["srun", "{}"], "has the placeholder {}"),
])
def test_words_that_cannot_be_filled_in_are_refused(words, sentence):
    assert launch_command.problem(words).startswith(sentence)


@pytest.mark.parametrize(("words", "tells"), [
    (["srun", "-n{ranks}"], True),
    (["srun", "-N{nodes}", "--ntasks-per-node={per_node}"], True),
    (["srun", "-N{nodes}"], False),
    (["mpirun"], False),
])
def test_it_is_known_whether_the_words_say_how_many(words, tells):
    assert launch_command.tells_ranks(words) is tells
