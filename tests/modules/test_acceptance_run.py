# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The module acceptance_run, with the real rank program, a small launcher and a small mpi4py.

The tests at the end take a real stack: an install prefix with mpiexec, PyTorch and Horovod, named by
TORCHSTACK_TEST_STACK; they are skipped without one. ACCEPTANCE_TEST_USER, or TORCHSTACK_ORDINARY_USER, names a second
account which this one may become by ``sudo -n``.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import pwd
import re
import shutil
import subprocess
import sys
import time

import pytest
from support.polling import eventually

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
STAND_IN = CHECKOUT / "tests" / "fixtures" / "acceptance"


@pytest.fixture()
def site(tmp_path):
    """A site with a small launcher and mpi4py, and the module's arguments for it."""
    top = tmp_path / "site"
    release = top / "r1"
    packages = release / "lib"
    (packages / "mpi4py").mkdir(parents=True)
    (packages / "mpi4py" / "__init__.py").write_text('__version__ = "4.0"\n')
    shutil.copy(str(STAND_IN / "MPI.py"), str(packages / "mpi4py" / "MPI.py"))
    (release / "bin").mkdir()
    launcher = release / "bin" / "mpiexec"
    launcher.write_text("#!/usr/bin/env python3\n" + (STAND_IN / "mpiexec.py").read_text())
    launcher.chmod(0o755)
    python = release / "bin" / "python3"
    python.symlink_to(sys.executable)
    exchange = tmp_path / "exchange"
    exchange.mkdir()
    return {
        "root": str(top), "release": "r1", "subject": "sha256:1", "module_system": "none", "ranks": 2,
        "environment": {
            "PATH": "%s/bin:/usr/bin:/bin" % release, "PYTHONPATH": str(packages), "FAKE_MPI_DIRECTORY": str(exchange),
        },
        "imports": ["mpi4py.MPI"], "checks": ["mpi4py"], "where_possible": [], "timeout": 300,
    }


def with_environment(site, **variables):
    return dict(site, environment=dict(site["environment"], **variables))


def records(site):
    """The last record, and the history."""
    state = pathlib.Path(site["root"]) / ".torchstack" / site["release"]
    history = [json.loads(line) for line in (state / "acceptance.jsonl").read_text().splitlines()]
    return json.loads((state / "acceptance.json").read_text()), history


def still_running(text):
    """Command lines of living processes that have a text in them."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                words = pathlib.Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
                line = b" ".join(words).decode("utf-8", "replace")
                state = pathlib.Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if text in line and state not in "ZX":
                found.append(line)
    return found


def test_check_do_check_again_do_again(run_module, site):
    planned = run_module("acceptance_run", site, check=True, diff=True)
    assert planned.changed and planned["passed"] is None, planned.console
    assert planned["command"] == "mpiexec -n 2 python3 ranks.pyz"
    assert "+acceptance: to be run" in planned.console
    assert not (pathlib.Path(site["root"]) / ".torchstack").exists()
    done = run_module("acceptance_run", site)
    assert done.get("passed") is True, done.console
    assert done.changed and done["passed"] is True
    for check in (True, False):
        again = run_module("acceptance_run", site, check=check, diff=True)
        assert not again.changed, again.console
        assert again["passed"] is True and again["reason"] == ""
        assert again["table"] == done["table"]
    assert len(records(site)[1]) == 1


def test_the_record_has_the_table_the_checks_and_what_was_not_checked(run_module, site):
    result = run_module("acceptance_run", site)
    record, history = records(site)
    assert history == [record]
    assert record["passed"] is True and record["subject"] == "sha256:1" and record["through"] == "environment"
    assert [row["rank"] for row in record["ranks"]] == [0, 1]
    assert record["ranks"][1]["source"] == "pmi"
    assert {check["name"]: check["status"] for check in record["checks"]}["mpi4py"] == "passed"
    account = pwd.getpwuid(os.geteuid()).pw_name
    assert record["user"] == account and record["ordinary_user"] is False
    assert "Not as an ordinary user: as the rollout account %s itself" % account in record["not_checked"][0]
    assert "Not through the module: the inventory says that there are none." in record["not_checked"]
    assert result["table"].splitlines()[0].split() == ["rank", "local", "host", "pid", "device", "cores", "numa"]
    assert result["summary"].startswith("Accepted: 2 ranks on 1 host as the rollout account %s itself" % account)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", record["started"])
    state = pathlib.Path(site["root"]) / ".torchstack" / "r1"
    assert sorted(path.name for path in state.iterdir()) == ["acceptance.json", "acceptance.jsonl", "acceptance.log"]
    assert "rank 1 on %s: mpi4py" % os.uname().nodename in (state / "acceptance.log").read_text()


def test_s21_a_planted_wrong_value_fails_and_the_record_says_so(run_module, site):
    result = run_module("acceptance_run", with_environment(site, FAKE_MPI_OFF_BY_ONE="1"))
    assert result.get("failed_step") == "mpi4py"
    wrong = "rank 1 on %s: sum of 4099 float64: index 17: got 13.0, expected 12 (1 of 4099 values are wrong)"
    assert result["failures"][0] == wrong % os.uname().nodename
    assert wrong % os.uname().nodename in result["msg"] and "Do not publish" in result["msg"]
    assert result["record"] in result["msg"] and result["log"] in result["msg"]
    record = records(site)[0]
    assert record["passed"] is False
    assert record["failures"][0]["message"] == result["failures"][0]


def test_s21_parts_that_come_in_another_order_are_refused_though_every_sum_is_right(run_module, site):
    result = run_module("acceptance_run", with_environment(site, FAKE_MPI_SWAPS="0"))
    assert result.get("failed_step") == "mpi4py", result.console
    wrong = "all_gather of 1 float64: index 0: got 8.0, expected 1 (2 of 2 values are wrong)"
    assert result["failures"][0] == "rank 0 on %s: %s" % (os.uname().nodename, wrong)


def test_after_a_failure_it_runs_again_and_the_history_keeps_both(run_module, site):
    run_module("acceptance_run", with_environment(site, FAKE_MPI_OFF_BY_ONE="0"))
    result = run_module("acceptance_run", site)
    assert result.changed and result["passed"] is True, result.console
    assert result["reason"] == "the last acceptance did not pass"
    assert [record["passed"] for record in records(site)[1]] == [False, True]


def test_another_subject_or_another_question_is_another_acceptance(run_module, site):
    run_module("acceptance_run", site)
    assert run_module("acceptance_run", dict(site, subject="sha256:2"), check=True).changed
    assert "ranks" in run_module("acceptance_run", dict(site, ranks=3), check=True)["reason"]
    assert not run_module("acceptance_run", dict(site, timeout=99), check=True).changed
    again = run_module("acceptance_run", dict(site, again=True))
    assert again.changed and len(records(site)[1]) == 2


def test_a_rank_that_raises_is_named_and_the_others_are_not_waited_for(run_module, site):
    started = time.monotonic()
    result = run_module("acceptance_run", dict(with_environment(site, FAKE_MPI_RAISES="1"), timeout=900))
    assert time.monotonic() - started < 600
    assert result.get("failed_step") == "mpi4py"
    assert result["failures"][0].endswith("RuntimeError: MPI_ERR_OTHER: fabric down")
    assert any("Traceback" in line or "RuntimeError" in line for line in result["last_lines"])


def test_s32_a_hang_ends_at_the_timeout_with_stacks_and_no_process_left(run_module, site):
    hanging = dict(with_environment(site, FAKE_MPI_HANGS="1:2"), timeout=16)
    result = run_module("acceptance_run", hanging)
    assert result.get("failed_step") == "timeout", result.console
    host = os.uname().nodename
    assert "rank 0 on %s was in mpi4py, rank 1 on %s was in mpi4py" % (host, host) in result["msg"]
    log = pathlib.Path(result["log"]).read_text()
    assert re.search(r'File ".*/mpi4py/MPI\.py", line \d+ in allgather', log)
    assert re.search(r'File ".*ranks/backend_checks\.py", line \d+ in mpi4py', log)
    assert "== was_running: " in log
    assert still_running(site["root"]) == []
    assert records(site)[0]["passed"] is False


def test_s32_a_launcher_that_ignores_signals_is_ended_too(run_module, site):
    launcher = pathlib.Path(site["root"]) / "r1" / "bin" / "mpiexec"
    launcher.write_text("#!/bin/bash\ntrap '' TERM INT HUP\nsetsid sleep 7654 &\nwhile :; do sleep 1; done\n")
    result = run_module("acceptance_run", dict(site, timeout=4))
    assert result.get("failed_step") == "timeout" and "no rank had begun" in result["msg"]
    assert still_running("sleep 7654") == []


def test_fewer_ranks_than_asked_are_refused(run_module, site):
    # The ranks that are there would wait for the missing one.
    result = run_module("acceptance_run", dict(with_environment(site, LAUNCHER_STARTS="1"), timeout=12))
    assert result.get("failed_step") == "timeout"
    assert "rank 0" in result["msg"] and "rank 1" not in result["msg"]


def test_a_library_of_another_mpi_than_the_launcher_s_is_refused(run_module, site):
    result = run_module("acceptance_run", with_environment(site, FAKE_MPI_SIZE="1"))
    assert result.get("failed_step") == "start"
    seen = re.search(r"mpi4py sees rank (\d) of 1 where the launcher started rank (\d) of 2", result["failures"][0])
    assert seen and seen.group(1) == seen.group(2), "of whichever rank was there first"


def test_s14_packages_from_outside_the_release_are_refused(run_module, site):
    result = run_module("acceptance_run", with_environment(site, FAKE_MPI_FILE="/usr/lib/mpi4py/MPI.py"))
    assert result.get("failed_step") == "imports"
    assert "imports mpi4py.MPI from /usr/lib/mpi4py/MPI.py, not from the release in" in result["failures"][0]


def test_s14_the_rollout_s_own_environment_does_not_reach_the_ranks(run_module, site, tmp_path):
    startup = tmp_path / "startup.py"
    startup.write_text("raise SystemExit('reached')\n")
    leak = {"PYTHONSTARTUP": str(startup), "FAKE_MPI_OFF_BY_ONE": "0", "PYTHONHOME": "", "BASH_ENV": str(startup)}
    result = run_module("acceptance_run", site, environment=leak)
    assert result.get("passed") is True, result.console


def test_a_variable_of_the_batch_job_is_kept_where_the_site_names_it(run_module, site):
    arguments = dict(site, environment_keep=["FAKE_MPI_OFF_*"])
    assert run_module("acceptance_run", arguments, environment={"FAKE_MPI_OFF_BY_ONE": "0"})["passed"] is False


@pytest.mark.parametrize(("changes", "step"), [
    ({"subject": ""}, "subject"),
    ({"prefix": "/nonexistent/prefix"}, "prefix"),
    ({"user": "no-such-account"}, "user"),
    ({"user": "root"}, "user"),
    ({"launcher": ["mpiexec", "{rank}"]}, "launcher"),
    ({"nodes": 3}, "launcher"),
    ({"release": "../r1"}, "release"),
    ({"measure": {"largest": "many"}}, "measure"),
    ({"user": "nobody", "become_command": ["/bin/false"]}, "user"),
    ({"user": "nobody", "become_command": ["/nonexistent/sudo"]}, "user"),
])
def test_bad_input_is_refused_and_leaves_no_record(run_module, site, changes, step):
    result = run_module("acceptance_run", dict(site, **changes))
    assert result.get("failed_step") == step, result.console
    assert result["remedy"]
    assert not list(pathlib.Path(site["root"]).glob(".torchstack/*/acceptance*"))


def test_a_plan_before_the_freeze_says_what_comes_first(run_module, site):
    result = run_module("acceptance_run", dict(site, subject="", prefix=site["root"] + "/none"), check=True)
    assert result.get("planned_after") == "freeze" and result.changed, result.console


def test_what_keeps_the_ranks_from_starting_is_named(run_module, site):
    result = run_module("acceptance_run", dict(site, launcher=["aprun", "-n", "{ranks}"]))
    assert result.get("failed_step") == "launcher" and "aprun is not on PATH" in result["msg"]
    result = run_module("acceptance_run", dict(site, module_system="lmod", module="m/1", module_init=[os.devnull]))
    assert result.get("failed_step") == "module" and "where lmod is expected" in result["msg"]


def test_one_acceptance_of_a_release_at_a_time(run_module, site):
    place = pathlib.Path(site["root"]) / "r1" / "bin"
    place.joinpath("mpiexec").rename(place / "mpiexec.real")
    waiting, go = place / "waiting", place / "go"
    place.joinpath("mpiexec").write_text(
        '#!/bin/bash\ntouch %s\nuntil [ -e %s ]; do sleep 0.1; done\nexec "$0.real" "$@"\n' % (waiting, go)
    )
    place.joinpath("mpiexec").chmod(0o755)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(run_module, "acceptance_run", site)
        try:
            eventually(waiting.exists, "the first one runs")
            second = run_module("acceptance_run", site)
        finally:
            go.touch()
        assert second.get("failed_step") == "lock", second.console
        assert first.result().get("passed") is True


def test_when_whoever_asked_is_killed_the_job_ends_too(collections_path, site):
    state = pathlib.Path(site["root"]) / ".torchstack" / "r1"
    slow = dict(
        with_environment(site, FAKE_MPI_HANGS="0:2"), timeout=120, module="", module_init=[], modulepaths={},
        environment_keep=[], python="python3", prefix=site["root"], launcher=["mpiexec", "-n", "2"],
    )
    code = (
        "import json, sys\n"
        "from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import local_run, login\n"
        "from ansible_collections.hpcml.torchstack.plugins.module_utils.core.zipapp import program_archive\n"
        "from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import program\n"
        "question = dict(json.loads(sys.argv[1]), account=login.find_account(''), become=[])\n"
        "local_run.run_job(question, program_archive(program), sys.argv[2])\n"
    )
    state.mkdir(parents=True)
    asker = subprocess.Popen(
        [sys.executable, "-c", code, json.dumps(slow), str(state)],
        env=dict(os.environ, PYTHONPATH=str(collections_path)),
    )
    # The script's own subshells come and go under its command line; only the launcher and the ranks name the program.
    eventually(
        lambda: len([line for line in still_running(str(state)) if "ranks.pyz" in line]) >= 3,
        "the launcher and two ranks run",
    )
    asker.kill()
    asker.wait()
    eventually(lambda: not still_running(str(state)), "all of them end")


# --- with a real stack -----------------------------------------------------------------------------------------------

STACK = os.environ.get("TORCHSTACK_TEST_STACK", "")
needs_stack = pytest.mark.skipif(not STACK, reason="TORCHSTACK_TEST_STACK names no prefix with torch and horovod")

OFF_BY_ONE = """
import importlib.util, os, sys
import horovod
place = os.path.join(os.environ["REAL_HOROVOD"], "torch", "__init__.py")
horovod.__path__.append(os.environ["REAL_HOROVOD"])
specification = importlib.util.spec_from_file_location(
    "horovod.torch", place, submodule_search_locations=[os.path.dirname(place)]
)
real = importlib.util.module_from_spec(specification)
sys.modules["horovod.torch"] = real
specification.loader.exec_module(real)
right = real.allreduce


def allreduce(tensor, **options):
    result = right(tensor, **options)
    if real.rank() == 1 and result.numel() > 9:
        result[9] += 1
    return result


real.allreduce = allreduce
"""


@pytest.fixture()
def stack(tmp_path):
    """The module's arguments for the real stack."""
    packages = next(pathlib.Path(STACK).glob("lib/python3*/site-packages"))
    root = tmp_path / "site"
    root.mkdir()
    return {
        "root": str(root), "release": "r1", "prefix": STACK, "subject": "sha256:1", "module_system": "none",
        "environment": {"PATH": "%s/bin:/usr/bin:/bin" % STACK, "PYTHONPATH": str(packages)},
        "timeout": 90,
    }


@needs_stack
def test_a_real_stack_is_accepted_with_two_ranks(run_module, stack):
    result = run_module("acceptance_run", stack)
    assert result.get("passed") is True, result.console
    status = {check["name"]: check["status"] for check in result["acceptance"]["checks"]}
    assert {status[name] for name in ("horovod", "torch_gloo")} == {"passed"}
    rows = result["acceptance"]["ranks"]
    assert [row["rank"] for row in rows] == [0, 1]
    assert rows[0]["libraries"]["libmpi"] == rows[1]["libraries"]["libmpi"] and rows[0]["libraries"]["libtorch"]
    assert rows[0]["versions"]["mpi"]


@needs_stack
def test_s21_a_real_horovod_that_is_off_by_one_is_refused(run_module, stack, tmp_path):
    double = tmp_path / "double" / "horovod"
    (double / "torch").mkdir(parents=True)
    (double / "__init__.py").write_text("")
    (double / "torch" / "__init__.py").write_text(OFF_BY_ONE)
    packages = stack["environment"]["PYTHONPATH"]
    stack["environment"].update(PYTHONPATH="%s:%s" % (double.parent, packages), REAL_HOROVOD=packages + "/horovod")
    result = run_module("acceptance_run", dict(stack, where_possible=[]))
    assert result.get("failed_step") == "horovod", result.console
    expected = "rank 1 on %s: sum of 4099 float32 on cpu: index 9: got " % os.uname().nodename
    assert result["failures"][0].startswith(expected)
    assert records(stack)[0]["passed"] is False


@needs_stack
def test_s21_no_fault_of_a_backend_goes_unnoticed(collections_path, stack):
    paths = [str(collections_path), stack["environment"]["PYTHONPATH"]]
    done = subprocess.run(
        [STACK + "/bin/python3", str(STAND_IN / "faults.py")], capture_output=True, text=True, check=False,
        env={"PATH": stack["environment"]["PATH"], "PYTHONPATH": ":".join(paths)},
    )
    assert done.returncode == 0, done.stderr
    noticed = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert [noticed.pop("none " + form) for form in ("dense", "lone")] == ["0 problems"] * 2
    assert len(noticed) == 16
    assert set(noticed.values()) == {"noticed by every rank with every type"}


@needs_stack
def test_bandwidth_latency_and_the_time_of_the_import_are_measured_and_held_against_what_is_asked(run_module, stack):
    measure = {
        "operations": ["all_reduce"], "smallest": "32 KiB", "largest": "64 KiB", "warmups": 1, "trials": 2,
        "latency": {"bytes": [8], "iterations": 5},
    }
    asked = dict(stack, checks=["torch_gloo"], where_possible=[], imports=["torch"], measure=measure)
    passed = run_module("acceptance_run", asked)
    assert passed.get("passed") is True, passed.console
    record = passed["acceptance"]
    assert [row["bytes"] for row in record["measurements"][0]["rows"]] == [32768, 65536]
    assert record["latency"][0]["ranks"] == [0, 1] and record["transports"] == []
    assert record["import_seconds"]["torch"]["slowest"]["seconds"] > 0
    line = {"backend": "gloo", "operation": "all_reduce", "bytes": "32 KiB", "busbw": 1e6, "source": "a wish"}
    refused = run_module("acceptance_run", dict(
        asked, measure=dict(measure, floors={"bandwidth": [line]}), import_ceiling=0.001,
    ))
    assert refused.get("failed_step") == "import_time", refused.console
    assert "the floor is" in refused["failures"][1] and "a wish" in refused["failures"][1]


@needs_stack
def test_s07_a_rank_with_another_libmpi_is_refused_though_its_values_are_right(run_module, stack, tmp_path):
    library = next(pathlib.Path(STACK).glob("lib*/libmpi.so.12")).resolve()
    other = tmp_path / "libmpi.so.12"
    shutil.copy(library, other)
    wrapper = tmp_path / "wrapper"
    # What the library needs in turn it finds by its own place.
    for name in ("mpich", "libfabric.so.1"):
        if (library.parent / name).exists():
            (tmp_path / name).symlink_to(library.parent / name)
    wrapper.write_text('#!/bin/sh\n[ "$PMI_RANK" != 1 ] || export LD_PRELOAD=%s\nexec "$@"\n' % other)
    wrapper.chmod(0o755)
    result = run_module("acceptance_run", dict(
        stack, launcher=["mpiexec", "-n", "{ranks}", str(wrapper)], checks=["mpi4py"], where_possible=[],
        imports=["mpi4py.MPI"], timeout=40,
    ))
    assert result.get("failed_step") == "libraries", result.console
    assert "has libmpi from %s (" % library in result["failures"][0]
    assert "rank 1 on %s from %s (" % (os.uname().nodename, other) in result["failures"][0]


@needs_stack
def test_s36_two_jobs_on_one_node_do_not_collide(run_module, stack, tmp_path):
    quick = dict(stack, checks=["torch_gloo"], where_possible=[])
    (tmp_path / "other").mkdir()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(run_module, "acceptance_run", dict(quick, root=root))
                for root in (stack["root"], str(tmp_path / "other"))]
        results = [job.result() for job in jobs]
    assert all(result.get("passed") for result in results), [result.console for result in results]
    ports = {row["port"] for result in results for row in result["acceptance"]["ranks"]}
    assert len(ports) == 2


@needs_stack
def test_another_account_runs_the_ranks_and_the_rollout_account_keeps_the_record(run_module, stack, tmp_path):
    other = os.environ.get("ACCEPTANCE_TEST_USER") or os.environ.get("TORCHSTACK_ORDINARY_USER", "")
    if not other or subprocess.call(["sudo", "-n", "-u", other, "--", "true"], stderr=subprocess.DEVNULL):
        pytest.skip("ACCEPTANCE_TEST_USER names no account that this one may become without a password")
    # With several processes of pytest there is one directory more below that of all accounts.
    for directory in [tmp_path, *tmp_path.parents][:4]:
        if directory.stat().st_uid == os.getuid():
            directory.chmod(0o755)
    result = run_module("acceptance_run", dict(stack, user=other, where_possible=[]))
    assert result.get("passed") is True, result.console
    record = records(stack)[0]
    assert record["user"] == other and record["ordinary_user"] is True
    assert {row["uid"] for row in record["ranks"]} == {pwd.getpwnam(other).pw_uid}
    assert not any("ordinary user" in sentence for sentence in record["not_checked"])
    assert os.stat(result["record"]).st_uid == os.geteuid()
