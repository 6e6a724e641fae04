# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The words of the launcher, and the interpreters of the supervisor."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import local_run as acceptance_job
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError


def test_what_starts_ranks_in_a_container_is_no_interpreter_for_the_supervisor():
    assert acceptance_job.pythons("/r/1/base/bin/python3")[1:] == ["/r/1/base/bin/python3", "/usr/bin/python3"]
    assert acceptance_job.pythons("/r/1/base/runscripts/conda-python-distributed")[1:] == ["/usr/bin/python3"]


def test_the_launcher_s_words_get_the_number_of_ranks():
    assert acceptance_job.launcher_words(["srun", "--ntasks={ranks}", "-N2"], 8) == ["srun", "--ntasks=8", "-N2"]


def test_the_launcher_gets_the_nodes_and_the_ranks_of_each():
    words = ["mpiexec", "-n", "{ranks}", "--ppn", "{per_node}", "--hosts={nodes}"]
    assert acceptance_job.launcher_words(words, 8, 2) == ["mpiexec", "-n", "8", "--ppn", "4", "--hosts=2"]


@pytest.mark.parametrize(("words", "ranks", "nodes"), [
    ([], 2, 1), (["srun", "{rank}"], 2, 1), (["srun"], 0, 1), (["srun"], 3, 2), (["srun"], 2, 0),
])
def test_a_launcher_that_is_not_understood_is_refused(words, ranks, nodes):
    with pytest.raises(StackError):
        acceptance_job.launcher_words(words, ranks, nodes)
