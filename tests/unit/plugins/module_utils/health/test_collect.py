# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The program that looks at a node: always an end, whatever hangs, and facts only."""

from __future__ import annotations

import ast
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import output as acceptance_output
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.zipapp import program_archive
from ansible_collections.hpcml.torchstack.plugins.module_utils.health import collect as health_collect
from ansible_collections.hpcml.torchstack.plugins.module_utils.health import run_programs as health_programs
from ansible_collections.hpcml.torchstack.plugins.module_utils.health import storage_probe as health_storage
from ansible_collections.hpcml.torchstack.plugins.module_utils.health import sysfs as health_sysfs

PARTS = (health_collect, health_programs, health_storage, health_sysfs)


def program(directory, text, name="nvidia-smi", mode=0o755):
    path = directory / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(mode)
    return str(directory)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__.rpartition(".")[2])
def test_the_program_is_text_for_the_python_of_old_systems(part):
    source = pathlib.Path(part.__file__).read_text(encoding="ascii")
    tree = ast.parse(source, feature_version=(3, 6))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert "__future__" not in {node.module for node in imports}  # annotations are of 3.7
    assert {node.level for node in imports} <= {0, 1}, "no other package travels with it"
    assert "capture_output" not in source and "text=True" not in source and ":=" not in source


def test_the_program_answers_by_itself_as_frames_or_as_text(tmp_path):
    archive = tmp_path / "health.pyz"
    archive.write_bytes(program_archive(health_collect))
    (tmp_path / "place").mkdir()
    question = {"directories": [str(tmp_path / "place")], "files": 5, "command_seconds": 20}
    (tmp_path / "question.json").write_text(json.dumps(question))
    command = [sys.executable, "-I", "-S", str(archive)]
    asked = [*command, str(tmp_path / "question.json"), str(time.time() + 60)]
    environment = dict(os.environ, SLURMD_NODENAME="n07")
    done = subprocess.run(asked, stdout=subprocess.PIPE, env=environment, cwd="/", check=True)
    output = done.stdout.decode()
    # srun puts what other nodes say between the parts of longer lines.
    assert max(len(line) for line in output.splitlines()) < 1024
    (facts,) = acceptance_output.hear("[n07] " + output).messages["node"]
    assert facts["host"] == "n07" and facts["schema"] == 1
    assert set(facts["parts"]) == {
        "machine", "nvidia", "driver", "pci", "fabric", "log", "storage " + str(tmp_path / "place")}
    assert all(part["problem"] == "" for part in facts["parts"].values()), facts["parts"]
    tried = facts["parts"]["storage " + str(tmp_path / "place")]["result"]
    assert tried["files"] == 5 and set(tried["operations"]) == set(health_storage.OPERATIONS)
    assert list((tmp_path / "place").iterdir()) == []
    subprocess.run([*command, "--output", str(tmp_path / "facts.json")], cwd="/", check=True)
    assert json.loads((tmp_path / "facts.json").read_text())["host"] == os.uname().nodename


# --- what programs do ------------------------------------------------------------------------------------------------


def test_a_program_that_is_missing_or_forbidden_is_said_to_be(tmp_path):
    assert health_programs.run(["nvidia-smi"], 5, str(tmp_path))["status"] == "missing"
    program(tmp_path, "exit 0\n", mode=0o644)
    assert health_programs.run(["nvidia-smi"], 5, str(tmp_path))["status"] == "denied"


def test_a_program_that_fails_keeps_what_it_said(tmp_path):
    path = program(tmp_path, "echo 'Failed to initialize NVML: version mismatch'; echo why >&2; exit 18\n")
    ran = health_programs.run(["nvidia-smi", "-q"], 5, path)
    assert (ran["status"], ran["code"], ran["error"]) == ("failed", 18, "why") and "mismatch" in ran["output"]


def ended(pid):
    try:
        return pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def test_a_program_that_hangs_is_ended_with_its_children(tmp_path):
    path = program(tmp_path, "echo before; sleep 300 & echo $! > %s/child; wait\n" % tmp_path)
    ran = health_programs.run(["nvidia-smi"], 1.0, path)
    assert ran["status"] == "hung" and ran["output"] == "before\n"
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 60
    while not ended(child):
        assert time.monotonic() < deadline, "the child of what was killed still runs"
        time.sleep(0.01)


def test_a_program_that_leaves_a_child_with_its_output_is_not_waited_for(tmp_path):
    path = program(tmp_path, "setsid sleep 300 & echo $! > %s/child; echo done\n" % tmp_path)
    ran = health_programs.run(["nvidia-smi"], 200.0, path)
    assert ran["status"] == "ok" and ran["output"] == "done\n"
    os.kill(int((tmp_path / "child").read_text()), 9)


def test_a_program_that_prints_without_end_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(health_programs, "MOST_BYTES", 100000)
    path = program(tmp_path, "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done\n")
    ran = health_programs.run(["nvidia-smi"], 60.0, path)
    assert ran["status"] == "endless"


def test_one_that_has_hung_is_not_asked_again(tmp_path, monkeypatch):
    program(tmp_path, "echo asked >> %s/asked; sleep 300\n" % tmp_path)
    monkeypatch.setenv("PATH", "%s:/usr/bin:/bin" % tmp_path)
    answers = health_collect.nvidia(0.5)
    assert [answer["status"] for answer in answers] == ["hung"]
    assert (tmp_path / "asked").read_text() == "asked\n"
    program(tmp_path, "if [ $1 != -q ]; then sleep 300; fi\n")
    assert [answer["status"] for answer in health_collect.nvidia(0.5)] == ["ok", "hung"]


def test_a_look_that_hangs_or_breaks_keeps_no_other_one_waiting():
    def hang():
        time.sleep(300)

    def fall():
        raise OSError("no such luck")

    def end():
        os._exit(3)

    answers = health_programs.apart({"hang": hang, "fall": fall, "end": end, "well": lambda: {"is": "well"}}, 1.5)
    assert answers["well"]["result"] == {"is": "well"} and answers["well"]["problem"] == ""
    assert answers["hang"]["problem"] == "it did not end within 1.5 seconds"
    assert answers["fall"]["problem"] == "OSError: no such luck" and answers["fall"]["result"] is None
    assert answers["end"]["problem"] == "it ended without an answer"


def test_other_peoples_programs_and_lists_of_clocks_stay_on_the_node(tmp_path, monkeypatch):
    said = "<a><supported_clocks>1</supported_clocks><process_name>/home/x/secret</process_name></a>"
    program(tmp_path, "echo '%s'\n" % said)
    monkeypatch.setenv("PATH", "%s:/usr/bin:/bin" % tmp_path)
    assert health_collect.nvidia(10)[0]["output"] == "<a><process_name/></a>\n"


# --- file systems ----------------------------------------------------------------------------------------------------


def test_s31_small_files_are_timed_and_nothing_is_left(tmp_path):
    facts = health_storage.churn(str(tmp_path), 20)
    assert facts["files"] == 20 and facts["problem"] == "" and facts["kind"]
    for times in facts["operations"].values():
        assert 0 <= times["median"] <= times["p99"] <= times["max"]
    assert list(tmp_path.iterdir()) == []


def test_s31_a_slow_file_system_is_tried_with_fewer_files(tmp_path, monkeypatch):
    monkeypatch.setattr(health_storage, "_create", lambda path, content: (time.sleep(0.05), open(path, "wb").close()))
    facts = health_storage.churn(str(tmp_path), 100, 0.2)
    assert 1 <= facts["files"] < 20 and facts["operations"]["create"]["median"] >= 50


def test_s31_a_look_that_is_ended_before_its_time_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(health_storage, "_create", lambda path, content: (open(path, "wb").close(), time.sleep(300)))
    answers = health_programs.apart({"storage": lambda: health_storage.churn(str(tmp_path))}, 1.0)
    assert "did not end" in answers["storage"]["problem"] and list(tmp_path.iterdir()) == []


def test_s31_what_a_killed_look_has_left_is_removed_by_a_later_one_of_the_same_node(tmp_path, monkeypatch):
    own, kept = health_storage.prefix(), set()
    for name, age in ((own + "old", 7200), (own + "young", 0), (health_storage.PREFIX + "n7.old", 7200)):
        left = tmp_path / name
        left.mkdir()
        (left / "file0").write_text("x")
        os.utime(left, (time.time() - age,) * 2)
        kept.add(name)
    kept.remove(own + "old")
    # What others remove at the same moment is no trouble of the file system.
    monkeypatch.setattr(health_storage, "listed", lambda path: [own + "gone", *sorted(os.listdir(path))])
    assert health_storage.churn(str(tmp_path), 3)["problem"] == ""
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_s31_a_directory_that_cannot_be_written_is_said_to_be(tmp_path):
    assert health_storage.churn(str(tmp_path / "missing"))["problem"] == "No such file or directory"


def test_the_median_and_the_late_ones():
    assert health_storage.summary([4.0, 1.0, 2.0, 3.0]) == {"median": 2.5, "p99": 4.0, "max": 4.0}
    assert health_storage.summary(list(map(float, range(1, 201))))["p99"] == 198.0


def test_the_innermost_and_latest_mount_is_the_file_system(tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text("a / ext4 rw 0 0\nb %s nfs rw 0 0\nc %s lustre rw 0 0\nd %sx xfs rw 0 0\n" % ((tmp_path,) * 3))
    assert health_storage.kind(str(tmp_path / "below"), str(mounts)) == "lustre"
    assert health_storage.kind("/etc", str(mounts)) == "ext4"


# --- the kernel ------------------------------------------------------------------------------------------------------


def tree(top, files):
    for name, text in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return str(top)


def test_devices_of_the_bus_with_their_links(tmp_path):
    top = tree(tmp_path, {
        "0000:c1:00.0/class": "0x030200", "0000:c1:00.0/vendor": "0x10de", "0000:c1:00.0/current_link_width": "8",
        "0000:c1:00.0/max_link_width": "16", "0000:00:1f.0/class": "0x060100", "0000:00:1f.0/vendor": "0x8086",
    })
    (found,) = health_sysfs.devices(top)
    assert found["address"] == "0000:c1:00.0" and found["current_link_width"] == "8" and found["driver"] == ""
    assert health_sysfs.devices(str(tmp_path / "missing")) == []


def test_adapters_of_every_kind(tmp_path):
    top = tree(tmp_path, {
        "infiniband/mlx5_0/fw_ver": "20.31.1014", "infiniband/mlx5_0/ports/1/state": "4: ACTIVE",
        "infiniband/mlx5_0/ports/1/rate": "200 Gb/sec (4X HDR)", "infiniband/mlx5_0/ports/1/counters/link_downed": "1",
        "cxi/cxi0/device/port/link": "up", "cxi/cxi0/device/port/speed": "BS_200G",
        "cxi/cxi0/device/properties/current_esm_link_speed": "Absent",
        "cxi/cxi0/device/current_link_speed": "16.0 GT/s PCIe",
        "cxi/cxi0/device/telemetry/hni_pcs_uncorrected_cw": "12@1700000000.1",
        "net/hsn0/device/vendor": "0x17db", "net/hsn0/operstate": "up", "net/hsn0/statistics/rx_errors": "0",
        "net/lo/operstate": "unknown",
    })
    found = health_sysfs.fabric(top)
    (port,), (cxi,), (interface,) = found["infiniband"], found["cxi"], found["net"]
    assert port["counters"] == {"link_downed": "1"} and port["state"] == "4: ACTIVE"
    assert cxi["link"] == "up" and cxi["pcie_speed"] == "16.0 GT/s PCIe"
    assert cxi["counters"]["hni_pcs_uncorrected_cw"].startswith("12@")
    assert interface["name"] == "hsn0"


def test_the_second_generation_of_slingshot_keeps_its_port_elsewhere(tmp_path):
    top = tree(tmp_path, {"cxi/cxi0/device/port/0/link/state": "up", "cxi/cxi0/device/port/0/link/speed": "ck400G"})
    (found,) = health_sysfs.fabric(top)["cxi"]
    assert (found["link"], found["speed"]) == ("up", "ck400G")


LOG = """\
[    0.5] Kernel command line: driver_async_probe=mlx5_core token=secret
[    1.5] NVRM: loading
[    2.0] something else
[ 3600.25] NVRM: Xid (PCI:0000:c1:00): 79, GPU has fallen off the bus.
"""


def test_the_log_comes_from_whoever_shows_it(tmp_path):
    path = program(tmp_path, "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1\n", "dmesg")
    program(tmp_path, "cat << 'END'\n%sEND\n" % LOG.replace("] ", "] n1 kernel: "), "journalctl")
    found = health_sysfs.log(10, (), str(tmp_path / "no-kmsg"), path)
    assert found["source"] == "journalctl" and found["total"] == 4 and found["since"] == 0.5
    assert [line[0] for line in found["lines"]] == [1.5, 3600.25]
    assert found["tried"] == {
        "/dev/kmsg": "No such file or directory", "dmesg": "dmesg: read kernel buffer failed: Operation not permitted"}
    assert health_sysfs.log(10, ("something",), str(tmp_path / "no-kmsg"), path)["lines"][1][1] == "something else"


def test_a_log_that_nobody_shows_is_no_empty_log(tmp_path):
    path = program(tmp_path, "exit 0\n", "journalctl")
    found = health_sysfs.log(10, (), str(tmp_path / "no-kmsg"), path)
    assert found["source"] == "" and found["tried"]["dmesg"] == "missing"
    assert found["tried"]["journalctl"] == "it shows nothing to this account"
