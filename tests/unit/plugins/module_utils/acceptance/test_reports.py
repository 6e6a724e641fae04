# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Libraries that ranks have mapped from elsewhere than the release says."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import reports
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError

RULES = [
    {"name": "libnccl.so.2", "path": "/release/nccl/lib/*", "reason": "It has the plugin."},
    {"name": "libmpi.so*", "path": "/opt/mpi/**", "reason": ""}, {"name": "libmpi.so*", "path": "/opt/other/**"}]


def report(rank, *declared, library_path=""):
    return {"rank": rank, "host": "n%d" % rank, "pid": 1, "declared": list(declared), "library_path": library_path}


@pytest.mark.parametrize("path", [
    "/release/nccl/lib/libnccl.so.2", "/release/nccl/lib/libnccl.so.2.27.3", "/opt/mpi/lib/libmpi.so.12",
    "/opt/other/lib/deep/libmpi.so.12.1", "/elsewhere/libnccl.so.3", "/elsewhere/libmpicxx.so.12"])
def test_what_a_rule_allows_or_none_names_is_no_failure(path):
    assert reports.misplaced_libraries([report(0, path)], RULES) == []


def test_each_file_from_elsewhere_is_named_once_with_its_first_rank_its_cause_and_what_to_do():
    mine = report(0, "/home/u/lib/libnccl.so.2.14", library_path="/x:/home/u/lib")
    found = reports.misplaced_libraries([mine, report(1, "/home/u/lib/libnccl.so.2.14", library_path="")], RULES)
    assert [failure.check for failure in found] == ["libraries"]
    assert found[0].message == (
        "rank 0 on n0 and 1 more has libnccl.so.2.14 mapped from /home/u/lib, which is in its LD_LIBRARY_PATH, and not "
        "from /release/nccl/lib/* (It has the plugin)")
    assert found[0].remedy.startswith("Take /home/u/lib out of LD_LIBRARY_PATH where a login")


def test_one_that_ld_library_path_has_not_brought_keeps_the_usual_remedy():
    (failure,) = reports.misplaced_libraries([report(0, "/usr/lib/libmpi.so.40")], RULES)
    assert failure.message == (
        "rank 0 on n0 has libmpi.so.40 mapped from /usr/lib, and not from /opt/mpi/** or /opt/other/**")
    assert failure.remedy.startswith("Compare the nodes'")


def test_ranks_that_were_asked_nothing_have_said_nothing():
    assert reports.misplaced_libraries([{"rank": 0, "host": "n0", "pid": 1}], []) == []


def test_a_path_that_can_never_match_is_refused():
    with pytest.raises(StackError, match="can never match"):
        reports.misplaced_libraries([report(0)], [{"name": "libnccl.so.2", "path": "lib/*"}])


@pytest.mark.parametrize(("problem", "remedy"), [
    ("ModuleNotFoundError: No module named 'mpi4py'", "Look for user packages"),
    ("PermissionError: [Errno 13] Permission denied: '/soft/x'", "Give the user of the acceptance access"),
    ("RuntimeError: no route to host", "Look into the log."),
    ("ConnectionError: 1 of 2 ranks have not come to rank 0 within 300 s: 1", "See whether all ranks were started"),
    ("DistStoreError: Timed out after 301 seconds waiting for clients. 1/2 clients joined.", "See whether all ranks"),
    ("DistNetworkError: The client socket has timed out after 300000ms while trying to connect to (n1, 29500).",
     "See whether all ranks"),
    ("RuntimeError: Horovod background loop: Gloo rendezvous timed out", "See whether all ranks"),
    ("MPI says 1 rank, the environment 4", "Use the launcher that belongs"),
])
def test_what_is_advised_about_a_start_fits_what_ended_it(problem, remedy):
    checks = [{"name": "start", "status": "failed", "problems": [problem], "note": ""}]
    (failure,) = reports.rank_failures([dict(report(0), stage="start", checks=checks)], [])
    assert failure.remedy.startswith(remedy)
