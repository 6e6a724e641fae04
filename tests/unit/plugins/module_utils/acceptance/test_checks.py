# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the ranks report, how it is read through a launcher's mixed output, and how it is judged.

Covers failures, output and reports, too.
"""

from __future__ import annotations

import json
import re

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import checks as acceptance_checks
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import login, verdict
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import output as acceptance_output
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import output as rank_output
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import placement

QUESTION = {
    "ranks": 2, "checks": ["imports", "devices", "horovod"], "where_possible": ["torch_nccl"],
    "imports": ["torch"], "module_system": "auto",
}
LIBRARIES = {"libmpi": [["/soft/r/lib/libmpi.so.12", 100]], "libtorch": [["/soft/r/torch/lib/libtorch.so", 200]]}
ACCOUNT = login.Account("build", 1001, "/home/build", "/bin/sh", False)


def entry(name, status="passed", problems=(), note="", seconds=0.5):
    return {"name": name, "status": status, "problems": list(problems), "note": note, "seconds": seconds}


def report(rank, **changes):
    """A report of a rank to which nothing happened."""
    base = {
        "rank": rank, "local_rank": rank, "size": 2, "source": "pmi", "host": "n1", "pid": 100 + rank, "uid": 1002,
        "stage": "end", "prefix": "/soft/r", "files": {"torch": "/soft/r/torch/__init__.py"},
        "libraries": json.loads(json.dumps(LIBRARIES)), "versions": {"torch": "2.6.0"},
        "executable": "/usr/bin/python3", "python": "3.11.2",
        "device": {"kind": "cpu", "cpus": "0-1", "numa": "0"},
        "checks": [entry(name) for name in ("placement", "imports", "start", "devices", "horovod")],
    }
    base.update(changes)
    return base


def printed(reports, before="", after="", events=(("through", "lmod"), ("exit", "0"))):
    """What a job prints whose ranks have these reports."""
    frames = [
        frame.decode("ascii")
        for number, one in enumerate(reports) for frame in rank_output.encode_frames("report", "%012x" % number, one)
    ]
    ends = ["%s %s\t%s\n" % (acceptance_output.EVENT, *event) for event in events]
    return "".join([before, *frames, after, *ends])


def find_shared_devices(rows):
    return placement.find_shared_gpus(dict(row, device=row["device_facts"]) for row in rows)


def judged(reports, question=None, **kwargs):
    heard = acceptance_output.parse_output(printed(reports, **kwargs))
    return acceptance_checks.check_reports(dict(QUESTION, **(question or {})), heard)


def gpu(index, uuid, bus="0000:07:00"):
    place = {"uuid": uuid, "bus": bus, "cpus": "0-7", "numa": "3"}
    return dict(place, kind="gpu", index=index, visible=4, name="GPU")


# --- reading ---------------------------------------------------------------------------------------------------------


def test_reports_are_found_in_the_mixed_output_of_a_launcher():
    reports = [report(0), report(1)]
    lines = [
        frame.decode("ascii")
        for key, one in (("a0", reports[0]), ("b1", reports[1]))
        for frame in rank_output.encode_frames("report", key, one)
    ]
    mixed = "".join("[n1:%d] %s" % (number, line) for number, line in enumerate(reversed(lines)))
    heard = acceptance_output.parse_output("Loading torchstack\n" + mixed + "no newline at the end of this" + lines[0])
    assert heard.reports == reports
    assert heard.broken == 0


def test_a_report_that_was_cut_on_the_way_counts_by_its_second_copy():
    first, second = (list(rank_output.encode_frames("report", "c0", report(0))) for _copy in range(2))
    cut = first[0].decode("ascii").replace(":", ":x", 5)
    output = cut + b"".join(first[1:]).decode("ascii")
    assert acceptance_output.parse_output(output).reports == []
    assert acceptance_output.parse_output(output + b"".join(second).decode("ascii")).reports == [report(0)]


def test_a_report_with_a_wrong_checksum_is_not_believed():
    text = b"".join(rank_output.encode_frames("report", "c0", report(0))).decode("ascii")
    spoilt = re.sub(r":([A-Za-z0-9+/=])([A-Za-z0-9+/=]+)@", r":\2\1@", text, count=1)
    heard = acceptance_output.parse_output(spoilt)
    assert heard.reports == []
    assert heard.broken == 1


def test_the_log_for_people_has_stages_and_the_job_s_own_words_but_no_frames():
    told = {"rank": 1, "host": "n1", "pid": 7, "stage": "imports"}
    stage = b"".join(rank_output.encode_frames("stage", "a0", told)).decode("ascii")
    text = acceptance_output.readable(printed([report(0)], before="hello\n\n" + stage, after="srun: error: oops\n"))
    assert text == "hello\n\n==== rank 1 on n1: imports\nsrun: error: oops\n==== through: lmod\n==== exit: 0\n"
    assert acceptance_output.last_lines(printed([report(0)], after="srun: error: oops\n")) == ["srun: error: oops"]


# --- judging ---------------------------------------------------------------------------------------------------------


def test_two_good_ranks_are_accepted():
    verdict = judged([report(0), report(1)])
    assert verdict.failures == []
    assert [row["rank"] for row in verdict.ranks] == [0, 1]
    assert {one["name"]: one["status"] for one in verdict.checks} == {
        "imports": "passed", "devices": "passed", "horovod": "passed",
    }


def test_a_check_that_could_not_run_is_no_check_but_a_gap():
    reports = [report(0), report(1)]
    for one in reports:
        one["checks"].append(entry("torch_mpi", "skipped", note="this PyTorch was built without MPI"))
    verdict = judged(reports)
    assert "torch_mpi" not in {one["name"] for one in verdict.checks}
    assert "torch_mpi did not run: this PyTorch was built without MPI." in verdict.not_checked


def test_what_a_backend_does_not_have_is_a_gap_of_a_check_that_passed():
    reports = [report(0), report(1)]
    for one in reports:
        one["checks"][-1]["lacks"] = {"send_recv": "Horovod has none"}
    verdict = judged(reports)
    assert verdict.failures == [] and verdict.checks[-1]["lacks"] == {"send_recv": "Horovod has none"}
    assert "horovod could not check send_recv: Horovod has none." in verdict.not_checked


def test_s40_a_failed_graph_replay_keeps_a_release_from_being_accepted():
    bad = report(1)
    wrong = "RuntimeError: CUDA error: operation not permitted when stream is capturing"
    bad["checks"].append(entry("cuda_graph_replay", "failed", [wrong]))
    failure = judged([report(0), bad], events=(("exit", "1"),)).failures[0]
    assert (failure.check, failure.message) == ("cuda_graph_replay", "rank 1 on n1: " + wrong)


def test_a_check_takes_as_long_as_its_slowest_rank():
    slow = report(1)
    slow["checks"][1]["seconds"] = 3.5
    assert {one["name"]: one["seconds"] for one in judged([report(0), slow]).checks}["imports"] == 3.5


def test_s21_a_wrong_value_names_rank_type_index_and_both_values():
    bad = report(1)
    wrong = "sum of 4099 float32 on cpu: index 17: got 9.0, expected 10.0 (1 of 4099 values are wrong)"
    bad["checks"][-1] = entry("horovod", "failed", [wrong])
    failure = judged([report(0), bad], events=(("exit", "1"),)).failures[0]
    assert failure.check == "horovod"
    assert failure.message == "rank 1 on n1: " + wrong
    assert "Do not publish" in failure.remedy


def test_s07_two_ranks_on_one_gpu_are_refused():
    shared = "9cc0b41d-0000-4000-8000-000000000007"
    reports = [report(0, device=gpu(0, shared)), report(1, device=gpu(0, shared))]
    for one in reports:
        one["checks"][3] = entry("devices", "failed", ["ranks 0 and 1 use the same GPU " + shared])
    failures = judged(reports).failures
    assert [(failure.check, failure.message) for failure in failures] == [
        ("devices", "ranks 0 and 1 use the same GPU " + shared)
    ]
    assert "acceptance_launcher" in failures[0].remedy


def test_s07_duplicates_are_found_even_if_the_ranks_did_not_notice():
    ranks = [
        {"rank": rank, "host": "n%d" % (rank // 4), "device_facts": gpu(rank % 4, "", "0000:%02x:00" % (rank % 4))}
        for rank in range(8)
    ]
    assert find_shared_devices(ranks) == []
    ranks[4]["host"] = "n0"
    assert find_shared_devices(ranks) == [("n0 0000:00:00", [0, 4])]


def test_s07_the_same_index_on_two_hosts_or_behind_a_mask_is_not_a_duplicate():
    own = [{"rank": rank, "host": "n1", "device_facts": gpu(0, "u-%d" % rank)} for rank in (0, 1)]
    assert find_shared_devices(own) == []
    hosts = ("n1", "n2", "n1")
    unknown = [{"rank": rank, "host": host, "device_facts": gpu(0, "", bus="")} for rank, host in enumerate(hosts)]
    assert find_shared_devices(unknown) == [("n1 index 0", [0, 2])]


def test_ranks_may_share_cores():
    assert find_shared_devices(judged([report(0), report(1)]).ranks) == []


def test_fewer_ranks_than_asked_are_refused_and_the_silent_ones_named():
    stage = {"rank": 1, "host": "n2", "pid": 7, "stage": "start"}
    before = b"".join(rank_output.encode_frames("stage", "d1", stage)).decode("ascii")
    failure = judged([report(0)], before=before).failures[0]
    assert failure.check == "ranks"
    assert failure.message == "2 ranks were asked for, 1 reported; rank 1 on n2 was last in start"


def test_more_ranks_than_asked_are_refused():
    failure = judged([report(0), report(1), report(2)]).failures[0]
    assert failure.message.startswith("2 ranks were asked for, 3 reported")


def test_processes_that_each_believe_to_be_alone_are_refused():
    failures = judged([report(0, size=1), report(0, size=1, pid=200)]).failures
    assert failures[0].message == "2 processes started, and each believes to be alone"
    assert "belongs to the MPI" in failures[0].remedy


def test_an_exception_comes_before_what_follows_from_it():
    checks = [entry("placement"), entry("imports", "failed", ["ImportError: no torch"])]
    dead = report(1, stage="imports", checks=checks)
    verdict = judged([report(0), dead], events=(("exit", "1"),))
    assert [failure.message for failure in verdict.failures] == ["rank 1 on n1: ImportError: no torch"]


def test_s07_a_rank_with_another_libmpi_is_refused():
    other = report(1)
    other["libraries"]["libmpi"] = [["/opt/other/libmpi.so.12", 100]]
    failures = judged([report(0), other]).failures
    assert [failure.check for failure in failures] == ["libraries"]
    assert "rank 0 on n1 has libmpi from /soft/r/lib/libmpi.so.12" in failures[0].message
    assert "rank 1 on n1 from /opt/other/libmpi.so.12" in failures[0].message


def test_a_library_that_only_one_rank_has_is_refused():
    other = report(1)
    del other["libraries"]["libmpi"]
    assert "rank 1 on n1 from nowhere" in judged([report(0), other]).failures[0].message


def test_one_path_with_different_files_on_two_nodes_is_refused():
    other = report(1)
    other["libraries"]["libtorch"][0][1] = 201
    assert "(201 bytes)" in judged([report(0), other]).failures[0].message


def test_a_rank_with_two_copies_of_a_library_is_refused():
    reports = [report(0), report(1)]
    for one in reports:
        one["libraries"]["libmpi"].append(["/usr/lib/libmpi.so.12", 90])
    messages = [failure.message for failure in judged(reports).failures]
    assert messages[0] == "rank 0 on n1 has libmpi from two files: /soft/r/lib/libmpi.so.12 and /usr/lib/libmpi.so.12"


def test_s14_a_module_from_a_user_s_own_packages_is_refused():
    reports = [report(0), report(1, files={"torch": "/home/u/.local/lib/python3.11/site-packages/torch/__init__.py"})]
    failure = judged(reports).failures[0]
    assert failure.check == "imports"
    assert failure.message.startswith("rank 1 on n1 imports torch from /home/u/.local/")


def test_a_sibling_of_the_prefix_with_a_longer_name_is_outside():
    reports = [report(rank, files={"torch": "/soft/r2/torch/__init__.py"}) for rank in (0, 1)]
    assert [failure.check for failure in judged(reports).failures] == ["imports", "imports"]


@pytest.mark.parametrize("place, own", [
    ("/opt/conda/torch/__init__.py", True), ("/user-software/venv/own/torch/__init__.py", True),
    ("/home/u/.local/torch/__init__.py", False), ("/appl/torch/__init__.py", False), ("/application/t.py", True),
    ("", False),
])
def test_in_a_container_a_module_comes_from_the_image_and_not_from_what_it_sees_of_the_machine(place, own):
    reports = [report(rank, files={"torch": place}, home="/home/u") for rank in (0, 1)]
    failures = judged(reports, question={"shared": ["/appl", "/scratch"]}).failures
    assert [failure.check for failure in failures] == ([] if own else ["imports", "imports"])
    assert own or failures[0].message == "rank 0 on n1 imports torch from %s, not from the image" % (place or "no file")


def test_a_check_that_had_to_run_and_could_not_fails():
    reports = [report(0), report(1)]
    for one in reports:
        one["checks"].append(entry("torch_nccl", "skipped", note="no rank has a GPU"))
    assert judged(reports).failures == []
    failure = judged(reports, question={"checks": ["torch_nccl"]}).failures[0]
    assert failure.message == "rank 0 on n1 could not run it: no rank has a GPU"
    assert "acceptance_where_possible" in failure.remedy


def test_a_launcher_that_fails_after_good_reports_fails():
    failure = judged([report(0), report(1)], events=(("exit", "9"),)).failures[0]
    assert failure.message == "all ranks reported success, and the launcher ended with exit status 9"
    assert judged([report(0), report(1)], events=()).failures[0].message.endswith("no exit status")


def test_a_rank_that_said_why_it_left_comes_before_the_timeout_of_those_that_waited_for_it():
    raised = entry("torch_gloo", status="failed", problems=["MemoryError: no more"])
    failures = judged(
        [report(1, stage="torch_gloo", checks=[raised])], events=(("timeout", "60"), ("exit", "124")),
    ).failures
    assert [failure.check for failure in failures] == ["torch_gloo", "timeout"]
    assert failures[0].message == "rank 1 on n1: MemoryError: no more"


def test_s32_a_hang_names_where_each_rank_was():
    stages = "".join(
        frame.decode("ascii") for rank, stage in ((1, "start"), (0, "torch_gloo"))
        for frame in rank_output.encode_frames(
            "stage", "e%d" % rank, {"rank": rank, "host": "n1", "pid": rank, "stage": stage}
        )
    )
    failure = judged([], before=stages, events=(("timeout", "60"), ("exit", "124"))).failures[0]
    assert failure.check == "timeout"
    assert failure.message == (
        "it did not finish within 60 s: rank 0 on n1 was in torch_gloo, rank 1 on n1 was in start"
    )


def test_s32_of_thousands_of_ranks_that_hang_the_sentence_names_one_for_each_place():
    told = [{"rank": rank, "host": "n1", "pid": rank, "stage": "horovod"} for rank in range(2240)]
    told[7]["stage"] = "start"
    stages = b"".join(
        frame for one in told for frame in rank_output.encode_frames("stage", "e%d" % one["rank"], one)
    ).decode("ascii")
    failure = judged([], before=stages, events=(("timeout", "60"), ("exit", "124"))).failures[0]
    assert failure.message == (
        "it did not finish within 60 s: rank 0 on n1 and 2238 more were in horovod, rank 7 on n1 was in start"
    )


def test_a_module_that_does_not_load_is_the_first_failure():
    failures = judged([], events=(("problem", "module lmod cannot load torchstack/1"), ("exit", "70"))).failures
    assert [(failure.check, failure.message) for failure in failures] == [("module", "lmod cannot load torchstack/1")]


def test_another_module_system_than_the_site_s_is_refused():
    events = (("through", "environment-modules"), ("exit", "0"))
    failure = judged([report(0), report(1)], question={"module_system": "lmod"}, events=events).failures[0]
    assert failure.message == "the module system is environment-modules, not lmod"


@pytest.mark.parametrize(("asked", "hosts", "failed"), [
    (2, ("a", "b"), []), (1, ("a", "b"), []), (2, ("a", "a"), ["nodes"]),
])
def test_ranks_have_to_run_on_as_many_nodes_as_were_asked_for(asked, hosts, failed):
    reports = [dict(report(rank), host=host) for rank, host in enumerate(hosts)]
    verdict = judged(reports, {"nodes": asked})
    assert [failure.check for failure in verdict.failures] == failed


# --- what was not checked --------------------------------------------------------------------------------------------


def test_the_record_says_what_one_host_without_gpus_and_modules_cannot_show():
    events = (("through", "environment"), ("without_module", "no module system on this host"), ("exit", "0"))
    assert judged([report(0), report(1)], events=events).not_checked == [
        "Not through the module: no module system on this host.",
        "No GPU on this host: devices are CPU cores.",
        "All ranks ran on n1: nothing went from node to node.",
    ]


def test_gpus_that_a_release_for_cpus_does_not_use_are_not_denied():
    device = dict(report(0)["device"], gpus_unused=1)
    said = judged([report(0, device=device), report(1, device=device)]).not_checked
    assert "The release is for CPUs: the GPUs of this host were not used." in said
    assert not any("No GPU" in sentence for sentence in said)


def test_two_hosts_with_gpus_leave_nothing_unsaid():
    reports = [report(0, device=gpu(0, "u-1")), report(1, host="n2", device=gpu(0, "u-2"))]
    assert judged(reports).not_checked == []


def test_a_gpu_known_by_its_index_only_is_said():
    reports = [report(rank, host="n%d" % rank, device=gpu(0, "", bus="")) for rank in (0, 1)]
    assert len(judged(reports).not_checked) == 1
    assert "index only" in judged(reports).not_checked[0]


def test_the_rollout_account_says_what_it_hides_and_root_more():
    assert login.account_gaps(ACCOUNT._replace(other=True)) == []
    assert len(login.account_gaps(ACCOUNT)) == 1
    assert "rollout account build itself" in login.account_gaps(ACCOUNT)[0]
    assert "permission check" in login.account_gaps(ACCOUNT._replace(name="root", uid=0))[1]


def test_the_table_is_aligned_and_has_host_and_device_of_each_rank():
    rows = judged([report(0), report(1, host="node-with-a-name", device=gpu(3, "u-2"))]).ranks
    assert verdict.format_rank_table(rows).splitlines() == [
        "rank  local  host              pid  device                cores  numa",
        "0     0      n1                100  cpu                   0-1    0",
        "1     1      node-with-a-name  101  gpu 3 0000:07:00 u-2  0-7    3",
    ]
    assert verdict.format_rank_table([]) == ""


def test_the_table_has_the_memory_node_of_the_gpus_where_the_kernel_tells_it():
    rows = judged([report(0, device=dict(gpu(0, "u-1"), gpu_numa=3)), report(1, device=gpu(1, "u-2"))]).ranks
    lines = verdict.format_rank_table(rows).splitlines()
    assert [line.split()[-1] for line in lines] == ["at", "3", "?"]
