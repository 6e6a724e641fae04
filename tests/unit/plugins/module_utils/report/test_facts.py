# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a report says of a release, and what it does not know.

Covers document, records, tiles, verdict and versions, too.
"""

from __future__ import annotations

import json
import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import json_document
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import visible_text
from ansible_collections.hpcml.torchstack.plugins.module_utils.release import records as release_records
from ansible_collections.hpcml.torchstack.plugins.module_utils.report import document, tiles
from ansible_collections.hpcml.torchstack.plugins.module_utils.report import facts as report_facts
from ansible_collections.hpcml.torchstack.plugins.module_utils.report import records as report_records

RELEASE = "2026-11-20"


@pytest.fixture(name="root")
def directory_of_the_releases(tmp_path):
    (tmp_path / ".torchstack" / RELEASE).mkdir(parents=True)
    return tmp_path


def write(path, record):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(record if isinstance(record, str) else json.dumps(record))


def facts(root, resolved=None):
    records = report_records.read_records(report_records.release_files(str(root), RELEASE))
    return report_facts.compile_facts(records, resolved)


def accept(root, **changed):
    record = {"passed": True, "subject": "d", "ranks": [], "checks": [], "failures": [], "not_checked": []}
    write(root / ".torchstack" / RELEASE / "acceptance.json", dict(record, **changed))


def freeze(root, digest="d"):
    write(root / ".torchstack" / RELEASE / "frozen.json", {"digest": digest, "frozen_at": "2026-11-20T12:00:00Z"})


def verdict(root):
    found = facts(root, {"digest": "d"})["verdict"]
    return found["word"], found["tone"]


def test_a_release_of_which_nothing_is_known_is_said_to_be_that(root):
    found = facts(root)
    assert found["verdict"]["word"] == "Not accepted yet"
    assert {entry["record"] for entry in found["missing"]} == {
        "release.yml", "verification.json", "imports.json", "frozen.json", "modulefile.json", "acceptance.json",
        "node_health.json", "sweep.json", "steps",
    }
    assert [found[key] for key in ("acceptance", "sweep", "health", "libraries", "imports", "modulefile")] == [None] * 6


def test_a_bundle_is_listed_among_the_packages_with_how_many_it_has(root):
    lock = "scipy==1.17 --hash=sha256:%s\nsix==1 --hash=sha256:%s\n" % ("0" * 64, "1" * 64)
    resolved = {"definition": {"packages": [{"name": "timm", "version": "1.0", "licence": "MIT"}],
                               "bundles": [{"name": "science", "packages": ["scipy"], "lock": lock}]}}
    assert facts(root, resolved)["packages"] == [
        {"name": "timm", "version": "1.0", "licence": "MIT"},
        {"name": "bundle science", "version": "with 2 packages", "licence": ""}]


def test_a_release_is_accepted_when_this_state_of_it_has_passed(root):
    freeze(root)
    accept(root)
    assert verdict(root) == ("Accepted", "good")
    accept(root, subject="another")
    assert verdict(root) == ("Accepted in another state", "warning")
    accept(root, passed=False, failures=[{"check": "devices", "message": "two on one", "remedy": "bind"}])
    assert verdict(root) == ("Not accepted", "bad")
    assert facts(root)["verdict"]["problems"] == [
        {"of": "acceptance, devices", "message": "two on one", "remedy": "bind"}]


@pytest.mark.parametrize(("name", "record", "named"), [
    ("sweep", {"slow_nodes": [{"host": "b", "ratio": 0.6, "evidence": "x"}]}, "b is a slow node: 60 %"),
    ("sweep", {"slow_links": [{"hosts": ["a", "b"], "ratio": 0.5}]}, "between a and b is slow: 50 %"),
    ("node_health", {"nodes": [{"host": "b", "findings": [{"severity": "failure", "message": "ECC"}]}]}, "b: ECC"),
    ("node_health", {"findings": [{"severity": "failure", "message": "drivers differ"}]}, "drivers differ"),
], ids=["node", "link", "health", "health of all"])
def test_an_accepted_release_on_nodes_that_are_not_well_has_findings(root, name, record, named):
    freeze(root)
    accept(root)
    write(root / ".torchstack" / RELEASE / (name + ".json"), dict(record, subject="d"))
    assert verdict(root) == ("Accepted, with findings", "warning")
    assert named in facts(root, {"digest": "d"})["verdict"]["problems"][0]["message"]


@pytest.mark.parametrize("name", ["sweep", "node_health"])
@pytest.mark.parametrize(("record", "sentence"), [
    ({"passed": True, "subject": "another"}, "It was of another state of this release."),
    ({"passed": False, "subject": "d"}, "It did not pass, and its record does not say why."),
], ids=["another state", "without a reason"])
def test_nodes_are_not_well_because_nobody_says_otherwise(root, name, record, sentence):
    freeze(root)
    accept(root)
    write(root / ".torchstack" / RELEASE / (name + ".json"), dict(record, hosts=["a"], nodes=[{"host": "a"}]))
    assert verdict(root) == ("Accepted, with findings", "warning")
    assert [problem["message"] for problem in facts(root, {"digest": "d"})["verdict"]["problems"]] == [sentence]


def tile(root, name):
    found = {one.name: (one.value, one.tone) for one in tiles.make_tiles(facts(root, {"digest": "d"}))}
    return found.get(name)


@pytest.mark.parametrize(("rows", "shown"), [
    ([(1, 0.008, 0.1), (2, 5.0, 3.0), (4, 0.6, 0.2)], ("0.600 GB/s", "good")),
    ([(1, 0.008, 0.1), (2, 5.0, 3.0), (4, 0.6, 1.0)], ("Noisy", "warning")),
    ([(1, 0.008, None), (2, 5.0, None)], ("5.00 GB/s", "good")),
    ([(1, 0.008, 2.0)], ("Noisy", "warning")),
])
def test_of_a_machine_that_had_other_work_no_bandwidth_is_the_headline(root, rows, shown):
    freeze(root)
    measured = {"backend": "gloo", "operation": "all_reduce", "ranks": 2, "nodes": 1, "rows": [
        {"bytes": size, "busbw": speed, "spread": spread, "verified": True} for size, speed, spread in rows]}
    accept(root, measurements=[measured])
    assert tile(root, "Bandwidth") == shown


@pytest.mark.parametrize(("record", "shown"), [
    ({"passed": True, "nodes": [{"host": "a"}]}, ("Healthy", "good")),
    ({"passed": True, "nodes": []}, ("Not passed", "bad")),
    ({"passed": False, "nodes": [{"host": "a"}]}, ("Not passed", "bad")),
    ({"passed": True, "nodes": [{"host": "a", "findings": [{"severity": "warning"}]}]}, ("1 warning", "warning")),
    ({"passed": False, "findings": [{"severity": "failure"}, {"severity": "warning"}]}, ("1 failure", "bad")),
])
def test_how_the_health_of_nodes_looks_in_a_glance(root, record, shown):
    assert tile(root, "Node health") is None
    write(root / ".torchstack" / RELEASE / "node_health.json", record)
    assert tile(root, "Node health") == shown


@pytest.mark.parametrize(("record", "shown"), [
    ({"passed": True, "complete": True}, ("Even", "good")),
    ({"passed": False, "complete": False}, ("Not done", "warning")),
    ({"passed": False, "complete": False, "slow_nodes": [{"host": "a"}]}, ("Not done", "bad")),
    ({"passed": False, "slow_nodes": [{"host": "a"}], "slow_links": [{"hosts": ["b", "c"]}]}, ("2 slow", "bad")),
    ({"passed": True, "undecided": ["a or b"]}, ("Undecided", "warning")),
    ({"passed": False}, ("Not passed", "bad")),
])
def test_how_a_sweep_looks_in_a_glance(root, record, shown):
    write(root / ".torchstack" / RELEASE / "sweep.json", dict(record, hosts=["a", "b", "c"]))
    assert tile(root, "Pair sweep") == shown


def test_a_step_that_failed_is_what_keeps_a_release_from_being_built(root):
    place = root / RELEASE / ".torchstack" / "steps" / "horovod"
    job = {"digest": "1", "nonce": "n", "needs": {}, "attempt": 3, "started": "2026-11-20T10:00:00Z", "host": "login1"}
    write(place / "job.json", job)
    write(place / "exit", {"nonce": "n", "reason": "exit", "code": 2, "finished": "2026-11-20T10:00:04Z"})
    step = facts(root)["steps"][0]
    assert (step["state"], step["outcome"], step["attempt"]) == ("failed", "Step horovod failed with exit code 2.", 3)
    assert verdict(root) == ("Not built", "bad")


def test_a_step_that_failed_has_the_lines_that_say_why_the_log_and_a_remedy(root):
    place = root / RELEASE / ".torchstack" / "steps" / "horovod"
    earlier = "ERROR: of an earlier attempt\n"
    job = {"digest": "1", "nonce": "n", "started": "2026-11-20T10:00:00Z", "log_offset": len(earlier)}
    write(place / "job.json", job)
    write(place / "log", earlier + "cc -c \xe9.c\n/src/m.c:1:10: fatal error: Python.h: No such file or directory\n"
          "    1 | #include <Python.h>\nmake: *** [Makefile:7: m.o] Error 1\n")
    write(place / "exit", {"nonce": "n", "reason": "exit", "code": 2, "finished": "2026-11-20T10:00:04Z"})
    found = facts(root)
    lines = [{"line": 3, "text": "/src/m.c:1:10: fatal error: Python.h: No such file or directory"},
             {"line": 4, "text": "    1 | #include <Python.h>"}]
    step, problem = found["steps"][0], found["verdict"]["problems"][0]
    assert step["errors"] == [{"kind": "python_headers", "line": 3, "lines": lines}]
    assert (step["log"], problem["lines"], problem["log"]) == (str(place / "log"), lines, str(place / "log"))
    assert "python3-dev" in step["remedy"] and problem["remedy"] == step["remedy"]
    preempted = {"reason": "preempted", "scheduler": "Slurm", "job_id": "1", "words": "PREEMPTED"}
    write(place / "exit", dict(preempted, nonce="n"))
    ended = facts(root)["steps"][0]
    assert ended["errors"] == [] and ended["remedy"].startswith("Run the same command again")
    write(place / "stamp.json", {"digest": "1", "seconds": 4})
    assert "errors" not in facts(root)["steps"][0]


def test_a_step_of_shared_tools_is_a_matter_of_the_release_while_it_fails(root):
    tools = root / ".torchstack" / "tools" / "0123"
    place = tools.parent / "0123.records" / "tools"
    write(place / "job.json", {"digest": "1", "nonce": "n", "log_offset": 0})
    write(place / "log", "ERROR: No matching distribution found for cmake\n")
    write(place / "exit", {"nonce": "n", "reason": "exit", "code": 1})
    problem, = document.update_document(str(root), RELEASE, {"tools": str(tools)}, True)["facts"]["verdict"]["problems"]
    assert (problem["of"], problem["log"], problem["lines"][0]["line"]) == ("step tools", str(place / "log"), 1)
    write(place / "stamp.json", {"digest": "1", "nonce": "m"})
    assert document.update_document(str(root), RELEASE, {"tools": str(tools)}, True)["facts"]["steps"] == []


@pytest.mark.parametrize("offset", [None, "x", -5, 10**9, True])
def test_a_log_that_is_not_as_its_records_say_is_no_reason_to_have_no_report(root, offset):
    place = root / RELEASE / ".torchstack" / "steps" / "horovod"
    write(place / "job.json", {"digest": "1", "nonce": "n", "log_offset": offset})
    write(place / "exit", {"nonce": "n", "reason": "exit", "code": 2})
    assert (facts(root)["steps"][0]["errors"], facts(root)["steps"][0]["log"]) == ([], "")
    (place / "log").mkdir()
    assert facts(root)["steps"][0]["errors"] == []


@pytest.mark.parametrize(("records", "state"), [
    ({"stamp.json": {"digest": "1", "seconds": 4, "from_cache": False}}, "done"),
    ({"stamp.json": {"digest": "1", "seconds": 4, "from_cache": True}}, "cached"),
    ({"stamp.json": {"digest": "0", "seconds": 4}}, "begun"),
    ({"exit": {"nonce": "of another attempt", "reason": "exit", "code": 1}}, "begun"),
    ({"exit": {"nonce": "n", "reason": "nobody knows this"}}, "failed"),
    ({}, "begun"),
], ids=["done", "cached", "done for other inputs", "another attempt", "unknown reason", "running"])
def test_how_a_step_stands(root, records, state):
    place = root / RELEASE / ".torchstack" / "steps" / "s"
    write(place / "job.json", {"digest": "1", "nonce": "n", "started": "2026-11-20T10:00:00Z"})
    for name, record in records.items():
        write(place / name, record)
    assert facts(root)["steps"][0]["state"] == state


def test_only_the_patches_of_the_series_that_was_asked_for_are_named(root):
    series = root / RELEASE / ".torchstack" / "series" / "horovod"
    write(series / "old" / "0001-a.patch", "Was replaced\n---\n")
    write(series / "new" / "0001-b.patch", "From 0123 Mon\nFrom: A\nSubject: [PATCH] Is there\n\ndiff --git a b\n")
    write(series / "new" / "0002-c.patch", "diff --git a b\n")
    found = facts(root, {"series": {"horovod": "new"}, "definition": {"horovod": {"series": "0.28.1"}}})["patches"]
    assert found == [{"component": "horovod", "series": "0.28.1", "patches": [
        {"file": "0001-b.patch", "title": "[PATCH] Is there"}, {"file": "0002-c.patch", "title": ""}]}]


def test_versions_are_those_that_were_built_before_those_that_were_asked_for(root):
    write(root / RELEASE / ".torchstack" / "pytorch.json", {"version": "2.13.0+cpu", "cuda": None, "origin": "a wheel"})
    write(root / RELEASE / ".torchstack" / "imports.json", {
        "modules": ["torch"], "mapped": {"a": 1}, "allowed": [],
        "reported": {
            "torch.__version__": "2.13.0", "MPI.Get_library_version()": "MPICH Version:      4.3.2\nmore", "x": True,
        },
    })
    resolved = {"definition": {"pytorch": {"version": "2.13.0"}, "mpi4py": {"version": "4.1.2"}}}
    found = facts(root, resolved)
    versions = {row["name"]: row["version"] for row in found["versions"]}
    assert versions == {"PyTorch": "2.13.0+cpu", "MPI": "MPICH 4.3.2", "mpi4py": "4.1.2"}
    assert found["imports"]["reported"]["x"] == "yes"


def test_an_nccl_of_a_wheel_is_said_to_be_that_beside_the_plugin_that_was_compiled_for_it(root):
    write(root / RELEASE / ".torchstack" / "nccl.json", {"version": "2.21.5", "wheel": True})
    plugin = {"version": "1.6.0", "repository": "https://example.org/aws-ofi-nccl"}
    resolved = {"definition": {"nccl": {"version": "2.21.5", "wheel": True, "plugin": plugin}}}
    rows = [row for row in facts(root, resolved)["versions"] if row["name"].startswith("NCCL")]
    assert [(row["version"], row["origin"]) for row in rows] == [
        ("2.21.5", "of PyTorch's wheel"), ("1.6.0", "https://example.org/aws-ofi-nccl")]


def test_a_cuda_build_in_a_release_for_cpus_says_so_and_how_large_it_is(root):
    write(root / RELEASE / ".torchstack" / "pytorch.json", {
        "version": "2.13.0+cu130", "cuda": "13.0", "origin": "an index", "bytes": 4_800_000_000})
    rows = {row["name"]: row for row in facts(root, {"definition": {"pytorch": {"version": "2.13.0"}}})["versions"]}
    assert rows["PyTorch"]["origin"] == "4.8 GB with what it needs, an index"
    assert rows["CUDA"] == {
        "name": "CUDA", "version": "13.0", "origin": "of PyTorch's wheel; nothing else here is built for GPUs"}


def test_the_toolkit_of_an_nccl_alone_is_told_beside_the_cuda_of_pytorch(root):
    write(root / RELEASE / ".torchstack" / "pytorch.json", {"version": "2.13.0+cu130", "cuda": "13.0"})
    nccl = {"version": "2.28.3", "cuda": {"version": "12.9", "prefix": "/opt/cuda"}}
    resolved = {"definition": {"nccl": nccl, "pytorch": {"version": "2.13.0"}}}
    rows = {row["name"]: (row["version"], row["origin"]) for row in facts(root, resolved)["versions"]}
    assert rows["CUDA"] == ("13.0", "of PyTorch's wheel")
    assert rows["CUDA of NCCL"] == ("12.9", "/opt/cuda")


def test_a_gap_that_all_nodes_have_is_one_gap(root):
    nodes = [{"host": "n%d" % number, "not_seen": ["No kernel log."], "findings": []} for number in range(9)]
    write(root / ".torchstack" / RELEASE / "node_health.json", {"nodes": nodes, "not_checked": ["No AMD."]})
    assert facts(root)["not_checked"] == [
        {"of": "node health", "sentence": "No AMD."}, {"of": "health of 9 nodes", "sentence": "No kernel log."}]


@pytest.mark.parametrize("record", [
    "", "[]", "null", "{", '"x"',
    '{"ranks": 1, "checks": {"a": 1}, "failures": [3], "question": []}',
    '{"hosts": [1, null], "measured": [[0], "x", [0, 1, "fast"], [0, 9, 1.0], [0, 0, 1]]}',
    '{"nodes": [1, {"findings": [2, {"message": {"a": [true]}}]}], "findings": "x"}',
    '{"measurements": [{"rows": [{"bytes": -1, "busbw": 1}, {"bytes": 8, "busbw": "x"}, 3]}]}',
])
def test_no_record_can_stop_a_report(root, record):
    for name in (*report_records.AFTERWARDS,):
        write(root / ".torchstack" / RELEASE / (name + ".json"), record)
    for name in (*report_records.BUILD, *report_records.SUMMARIES):
        write(root / RELEASE / ".torchstack" / (name + ".json"), record)
    for name in ("job.json", "exit", "stamp.json"):
        write(root / RELEASE / ".torchstack" / "steps" / "s" / name, record)
    write(root / ".torchstack" / RELEASE / "acceptance.jsonl", record + "\n{torn")
    write(root / ".torchstack" / RELEASE / "publish.jsonl", record)
    content = json_document.rendered(facts(root, {"definition": [], "series": 3, "base": "x"}))
    assert json.loads(content)["schema"] == 1


def test_what_cannot_be_read_is_named_with_its_path(root):
    (root / ".torchstack" / RELEASE / "sweep.json").mkdir()
    missing = {entry["record"]: entry["message"] for entry in facts(root)["missing"]}
    path = os.path.join(".torchstack", RELEASE, "sweep.json")
    assert missing[path] == "%s cannot be read: Is a directory." % path
    assert "sweep.json" not in missing


def test_the_same_records_give_the_same_bytes_and_nothing_is_written_again(root):
    accept(root)
    assert document.update_document(str(root), RELEASE, {}, False)["changed"]
    path = root / ".torchstack" / RELEASE / "report.json"
    content = path.read_bytes()
    assert not document.update_document(str(root), RELEASE, {}, False)["changed"]
    assert path.read_bytes() == content
    assert json.loads(content) == document.update_document(str(root), RELEASE, {}, True)["facts"]
    accept(root, passed=False)
    assert document.update_document(str(root), RELEASE, {}, True)["changed"]
    assert path.read_bytes() == content


def test_a_release_that_is_not_there_is_planned_for_and_refused_in_a_sentence(tmp_path):
    planned = document.update_document(str(tmp_path), RELEASE, {}, True)
    assert planned["planned_after"] == "release" and planned["facts"]["verdict"]["word"] == "Not accepted yet"
    with pytest.raises(StackError, match=r"There are no records of release %s below %s\." % (RELEASE, tmp_path)):
        document.update_document(str(tmp_path), RELEASE, {}, False)
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_cannot_be_written_is_refused_in_a_sentence(root):
    (root / ".torchstack" / RELEASE / "report.json").mkdir()
    with pytest.raises(StackError, match=r"The report .*report\.json cannot be written: Is a directory\."):
        document.update_document(str(root), RELEASE, {}, False)


@pytest.mark.parametrize(("root", "release"), [
    ("/soft", "../elsewhere"), ("/soft", ".torchstack"), ("/soft", ""), ("soft", RELEASE)])
def test_a_name_that_leads_elsewhere_is_refused(root, release):
    with pytest.raises(StackError, match=r"is not the name of a release|not an absolute path"):
        report_records.release_files(root, release)


def test_what_came_after_the_release_was_published_is_in_its_report(root):
    afterwards = root / ".torchstack" / RELEASE
    write(afterwards / "modulefile.json", {"name": "torchstack", "version": RELEASE, "passed": True})
    write(afterwards / "retired.json", {"state": "deprecated", "successor": "2026-11-21"})
    write(afterwards / "notice.json", {"known_problems": [{"problem": "It hangs", "url": None}]})
    deprecated, gone = visible_text.Added("Use 2026-11-21."), visible_text.Added("Gone.", gone=True)
    for syntax, end, added in (("lmod", ".lua", deprecated), ("tcl", "", gone)):
        place = root / "modulefiles" / syntax / "torchstack"
        place.mkdir(parents=True)
        (place / (RELEASE + end)).write_bytes(visible_text.visible_bytes(syntax, b"first\n", added))
    found = facts(root)
    release = found["release"]
    assert (release["visible"], release["hidden"], release["gone"]) == (["lmod"], [], ["tcl"])
    assert release["said"] and tiles.make_tiles(found)[1].value == "Deprecated"
    assert release["retired"]["successor"] == "2026-11-21" and release["thawed"] is None
    assert found["known_problems"] == [{"problem": "It hangs", "workaround": "", "url": ""}]


def test_after_a_thaw_an_acceptance_of_before_is_of_another_state(root):
    freeze(root)
    accept(root)
    frozen = {"digest": "d", "frozen_at": "2026-11-20T12:00:00Z", "thawed": 1, "manifest": {"digest": "m"}}
    write(root / ".torchstack" / RELEASE / "frozen.json", frozen)
    assert verdict(root) == ("Accepted in another state", "warning")
    accept(root, subject=release_records.subject_of(frozen))
    assert verdict(root) == ("Accepted", "good")


# Partitions


@pytest.fixture(name="on")
def partitions_of_the_site(root):
    """Accept the release on a partition of its site, which has two, an optional and one that is left out."""
    said = {"a100": {}, "l40s": {}, "old": {"optional": "It goes."}, "new": {"left_out": "It comes."}}
    freeze(root)
    write(root / ".torchstack" / RELEASE / "partitions.json", said)

    def accept_on(name, **changed):
        record = {
            "passed": True, "subject": "d", "ranks": [{"rank": 0, "host": name}], "checks": [], "failures": [],
            "not_checked": ["One host."], "started": "2026-11-20T0%d:00:00Z" % len(name)}
        place = root / ".torchstack" / RELEASE / "partitions" / name
        write(place / "acceptance.json", dict(record, **changed))
        write(place / "acceptance.jsonl", json.dumps(dict(record, **changed)) + "\n")

    return accept_on


def test_a_release_is_accepted_once_it_is_on_each_partition_that_is_needed(root, on):
    assert verdict(root) == ("Not accepted yet on a100, l40s", "unknown")
    on("a100")
    assert verdict(root) == ("Not accepted yet on l40s", "unknown")
    failure = {"check": "devices", "message": "too few", "remedy": "Look."}
    on("l40s", passed=False, failures=[failure])
    assert verdict(root) == ("Not accepted on l40s", "bad")
    problem = {"of": "partition l40s, acceptance, devices", "message": "too few", "remedy": "Look."}
    assert facts(root)["verdict"]["problems"] == [problem]
    on("l40s", subject="e")
    assert verdict(root) == ("Accepted in another state on l40s", "warning")
    on("l40s")
    assert verdict(root) == ("Accepted", "good")
    on("old", passed=False, failures=[failure])
    assert verdict(root) == ("Accepted, with findings", "warning")


def test_what_happened_on_each_partition_stands_beside_the_others_and_what_is_missing_names_it(root, on):
    accept(root)
    on("a100")
    on("l40s")
    found = facts(root)
    assert [(one["name"], bool(one["acceptance"])) for one in found["partitions"]] == [
        ("a100", True), ("l40s", True), ("old", False), ("new", False)]
    assert found["acceptance"] is None and [run["partition"] for run in found["acceptances"]] == ["a100", "l40s"]
    missing = {entry["record"] for entry in found["missing"]}
    assert "partitions/old/acceptance.json" in missing and "acceptance.json" not in missing
    assert not {record for record in missing if "/new/" in record or record == "partitions/a100/acceptance.json"}
    assert {"of": "partition new", "sentence": "It is left out: It comes."} in found["not_checked"]
    assert {"of": "acceptance on a100", "sentence": "One host."} in found["not_checked"]
    shown = [(tile.name, tile.value, tile.section) for tile in tiles.make_tiles(found)]
    assert ("Acceptance, a100", "Passed", "acceptance-a100") in shown
    assert ("Acceptance, old", "Not run", "acceptance-old") in shown
    assert not any("new" in name for name, _value, _section in shown)
