# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The whole rollout of the local site, in the order of its life: planned, interrupted, built, frozen, used, refused."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess

import pytest
from rollouts import BRIEFLY, CHECKOUT, OPEN, RELEASE, wait_for
from support.link_programs import COMPILERS, link_programs
from uses import InUseWithHorovod

STEPS = (
    "python_overlay",
    "tools",
    "base-fetch",
    "base",
    "pytorch-fetch",
    "pytorch",
    "mpi4py-source",
    "mpi4py",
    "mpi4py-install",
    "horovod-source",
    "horovod",
    "horovod-install",
    "package-einops-fetch",
    "package-einops",
    "package-xxhash-fetch",
    "package-xxhash-wheel",
    "package-xxhash",
)
COMPILED = re.compile(r"^\[(\d+)/(\d+)\] Building CXX object (\S+)", re.M)


def compiled(site):
    return COMPILED.findall(site.log("horovod"))


def controller_processes(site):
    """Processes on this machine that have this site's root in their environment and belong to Ansible."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/environ" % name, "rb") as stream:
                    mine = ("TORCHSTACK_ROOT=%s\0" % site.root).encode() in stream.read()
                with open("/proc/%s/cmdline" % name, "rb") as stream:
                    command = stream.read().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if mine and ("ansible-playbook" in command or "AnsiballZ" in command or "ansible_collections" in command):
                found.append((int(name), command))
    return found


def test_a_plan_on_an_empty_machine_is_complete_and_writes_nothing(site):
    site.remove()
    rollout = site.roll_out("--check", "--diff")
    assert not site.root.exists()
    for step in (*STEPS, "bytecode"):
        what = r"would (run|be taken over from release \S+)(: .+)?, inputs ([0-9a-f]{12}|known after )"
        assert re.search(r"(?m)^ *%s +%s" % (step, what), rollout.text), step
    assert re.search(r"(?m)^ *horovod +would (run|be taken over from release \S+): Horovod 0\.28\.1, ", rollout.text)


def test_s13_a_killed_controller_and_a_killed_build_cost_nothing_that_was_done(site, hasty_compilers, tmp_path):
    site.remove()
    cache = {"TORCHSTACK_CACHE": str(tmp_path / "cache")}
    first = site.start(playbook=OPEN, **cache)
    wait_for(lambda: len(compiled(site)) >= 8 or first.process.poll() is not None, 1800, "Horovod compiling")
    assert first.process.poll() is None, first.text[-6000:]
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait()
    wait_for(lambda: not controller_processes(site), 300, "the followers of the killed controller to leave")
    done = len(compiled(site))
    wait_for(lambda: len(compiled(site)) > done, 600, "the build to go on without its controller")

    # However long the second controller takes, the build is not over when it comes; one that is killed before somebody
    # follows it is begun again by who comes then.
    (hasty_compilers / "hold").touch()
    try:
        second = site.start(playbook=OPEN, **cache)
        followed = re.compile(r"(?m)^horovod  ")
        wait_for(
            lambda: followed.search(second.text) or second.process.poll() is not None, 1800, "the second controller")
    finally:
        (hasty_compilers / "hold").unlink()
    wait_for(lambda: len(compiled(site)) >= 24 or second.process.poll() is not None, 1800, "more of Horovod")
    assert second.process.poll() is None, second.text[-6000:]
    job = site.job("horovod")
    assert job["attempt"] == 1, "the second controller started a second build"
    for pid in [job["pid"], *descendants(job["pid"])]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert second.wait() != 0, "a killed build counts as done"
    assert not (site.step("horovod") / "stamp.json").exists()

    third = site.start(playbook=OPEN, **cache)
    assert third.wait() == 0, third.text[-6000:]
    objects = [name for _number, _total, name in compiled(site)]
    twice = {name for name in objects if objects.count(name) > 1}
    assert len(set(objects)) > 40
    assert len(twice) <= 4, "compiled again: %s" % sorted(twice)
    if site.environment["TORCHSTACK_CACHE"]:
        shutil.copytree(cache["TORCHSTACK_CACHE"], site.environment["TORCHSTACK_CACHE"], dirs_exist_ok=True)


def descendants(pid):
    """All processes that come from a process, nearest first."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name) as stream:
                    table.setdefault(int(stream.read().rpartition(")")[2].split()[1]), []).append(int(name))
            except OSError:
                continue
    found = []
    queue = [pid]
    while queue:
        children = table.get(queue.pop(0), [])
        found += children
        queue += children
    return found


@pytest.fixture(scope="module")
def opened(site):
    """The site with its release built and not yet frozen."""
    if (site.root / ".torchstack" / RELEASE / "frozen.json").exists() or not site.prefix.exists():
        site.remove()
    site.roll_out(playbook=OPEN)
    return site


def plan_of(rollout):
    """Step to what the plan says of it."""
    states = "would run|done|would be taken over from release"
    return dict(re.findall(r"(?m)^ *(\S+) +(%s)(?: [^\s:,]+)?(?:: .+)?, inputs" % states, rollout.text))


def changed_collection(tmp_path, collections_path, name, change):
    """A collections path whose collection has one changed file."""
    original = collections_path / "ansible_collections" / "hpcml" / "torchstack"
    copy = tmp_path / "ansible_collections" / "hpcml" / "torchstack"
    copy.mkdir(parents=True)
    for entry in ("plugins", "meta", "galaxy.yml"):
        (copy / entry).symlink_to(original / entry)
    shutil.copytree(original / "roles", copy / "roles")
    (copy / name).write_text(change((copy / name).read_text()))
    return str(tmp_path)


UNTOUCHED = tuple(step for step in STEPS if not step.startswith("horovod"))


def test_a_built_release_that_is_still_open_has_nothing_left_to_build(opened):
    plan = plan_of(opened.roll_out("--check", playbook=OPEN))
    assert set(plan.values()) == {"done"}
    assert set(STEPS) <= set(plan)


def test_a_changed_flag_rebuilds_horovod_and_nothing_else(opened, tmp_path):
    def change(text):
        return text.replace("HOROVOD_WITH_GLOO", "HOROVOD_WITHOUT_GLOO")

    plan = plan_of(opened.roll_out(*opened.other_inventory(tmp_path, change), "--check", playbook=OPEN))
    assert {step: plan[step] for step in UNTOUCHED} == dict.fromkeys(UNTOUCHED, "done")
    assert plan["horovod-source"] == "done"
    assert plan["horovod"] == plan["horovod-install"] == "would run"


PATCH = "roles/horovod/files/series/0.28.1/0003-include-what-is-used.patch"


def reworded(text):
    return text.replace("Include the standard", "Do include the standard")


def test_a_changed_patch_fetches_the_source_again_and_rebuilds_horovod_only(opened, tmp_path, collections_path):
    path = changed_collection(tmp_path, collections_path, PATCH, reworded)
    plan = plan_of(opened.roll_out("--check", playbook=OPEN, ANSIBLE_COLLECTIONS_PATH=path))
    assert {step: plan[step] for step in UNTOUCHED} == dict.fromkeys(UNTOUCHED, "done")
    assert {plan[step] for step in ("horovod-source", "horovod", "horovod-install")} == {"would run"}


def test_a_changed_expectation_is_judged_again_without_a_build(opened, tmp_path):
    def change(text):
        return text.replace("operations: [MPI, Gloo]", "operations: [Gloo, MPI]")

    before = opened.job("horovod")
    opened.roll_out(*opened.other_inventory(tmp_path, change), playbook=OPEN)
    assert opened.job("horovod") == before
    assert opened.job("horovod-install")["attempt"] >= 2


def test_s23_a_capability_that_was_not_built_fails_the_release(opened, tmp_path):
    def change(text):
        return text.replace("operations: [MPI, Gloo]", "operations: [MPI, NCCL]")

    rollout = opened.start(*opened.other_inventory(tmp_path, change), playbook=OPEN)
    assert rollout.wait() != 0
    assert "operations: NCCL" in rollout.message


def test_a_freeze_that_was_interrupted_is_undone_where_something_else_is_asked_for(opened):
    marker = opened.root / ".torchstack" / RELEASE / "freezing.json"
    marker.write_text('{"digest": "of another release file", "begun_at": "2026-11-20T12:00:00Z"}')
    frozen = opened.prefix / "base" / "site"
    frozen.chmod(0o555)
    opened.roll_out(playbook=OPEN)
    assert not marker.exists()
    assert stat.S_IMODE(frozen.stat().st_mode) == 0o755


def test_s06_the_installed_versions_are_the_ones_asked_for(opened):
    program = "import importlib.metadata as m; print(*(m.version(n) for n in ('torch', 'horovod', 'mpi4py')))"
    command = "PYTHONPATH=%s/base/site PYTHONNOUSERSITE=1 %s/base/bin/python3 -c \"%s\"" % (
        opened.prefix,
        opened.prefix,
        program,
    )
    versions = subprocess.run(["bash", "-c", command], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    assert versions[0].partition("+")[0] == "2.13.0"
    assert versions[1:] == ["0.28.1", "4.1.2"]


def test_the_summary_says_what_was_built_checked_and_not_checked(released):
    text = released.roll_out().text
    for words in ("2.13.0", "Horovod 0.28.1", "module load torchstack/" + RELEASE, "modulefiles/lmod", "Not checked"):
        assert words in text, words
    assert re.search(r"Verified: \d{2,} objects find every library", text)
    for library in (r"libmpi\S*", r"libstdc\+\+\.so\.6", r"libgomp\.so\.1", r"libtorch_cpu\.so"):
        assert re.search(library + r" from \S+, by (RUNPATH|RPATH|ld\.so\.cache|default directory)", text), library
    assert re.search(r"Verified: torch, numpy, mpi4py\.MPI, horovod\.torch imported, \d{2,} files mapped", text)
    assert re.search(r"Bytecode: \d{3,} Python files have it for Python 3\.", text)
    manifest = json.loads((released.root / ".torchstack" / RELEASE / "frozen.json").read_text())["manifest"]
    assert "Manifest: %d files" % manifest["files"] in text
    assert manifest["digest"][:12] in text
    assert str(released.root / ".torchstack" / RELEASE / "logs.tar.gz") in text


def test_what_a_run_prints_fits_its_screens(released, tmp_path):
    if released.first:
        assert len(released.first.text.splitlines()) <= 120, released.first.text
    again = released.roll_out(**BRIEFLY)
    assert again.changed == 0 and len(again.text.splitlines()) <= 40, again.text
    plan = released.roll_out("--check", TORCHSTACK_ROOT=str(tmp_path / "root"), **BRIEFLY)
    lines = plan.text.splitlines()
    assert len(lines) <= 80 and any(line.startswith("horovod ") for line in lines), plan.text
    link_programs(tmp_path / "bin", ("/usr/bin", "/bin"), COMPILERS)
    refused = released.refused(PATH=str(tmp_path / "bin"), TORCHSTACK_ROOT=str(tmp_path / "root"), **BRIEFLY)
    lines = refused.text.splitlines()
    assert len(lines) <= 40 and "compiler" in " ".join(lines[-10:]) and "TASK" not in refused.text, refused.text


def test_the_verification_is_repeated_by_hand_without_ansible(released):
    command = [str(CHECKOUT / "bin" / "verify"), str(released.prefix)]
    process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert process.returncode == 0, process.stdout[-3000:]


def test_the_manifest_matches_and_a_changed_file_is_drift(released, run_module):
    def compare():
        return run_module("tree_manifest", {
            "path": str(released.prefix), "root": str(released.root), "state": "compared",
            "record": str(released.prefix / ".torchstack" / "manifest.json"), "fail_on_drift": False,
        })

    assert compare()["matches"] is True
    changed = released.prefix / "base" / "base.lock"
    before, status = changed.read_bytes(), changed.stat()
    changed.chmod(0o644)
    try:
        changed.write_bytes(before.replace(b"sha256", b"SHA256", 1))
        changed.chmod(stat.S_IMODE(status.st_mode))
        result = compare()
    finally:
        changed.chmod(0o644)
        changed.write_bytes(before)
        os.utime(changed, ns=(status.st_atime_ns, status.st_mtime_ns))
        changed.chmod(stat.S_IMODE(status.st_mode))
    assert result["matches"] is False
    assert [(entry["path"], entry["kind"]) for entry in result["differing"]] == [("base/base.lock", "content")]


class TestInUse(InUseWithHorovod):
    """The release over the site's Python."""


def test_a_check_of_the_finished_release_reports_no_change(released):
    assert released.roll_out("--check", "--diff").changed == 0


def attempts(prefix):
    return {
        "create": "touch %s/new" % prefix,
        "create deep": "touch %s/base/bin/new" % prefix,
        "overwrite": "echo x >> %s/base/bin/horovodrun" % prefix,
        "remove": "rm -f %s/base/bin/horovodrun" % prefix,
        "rename": "mv %s/wheels %s/other" % (prefix, prefix),
        "make a directory": "mkdir %s/base/new" % prefix,
        "replace a record": "cp /dev/null %s/.torchstack/release.yml" % prefix,
        "link": "ln -s /dev/null %s/base/lib/new" % prefix,
    }


@pytest.mark.parametrize("what", sorted(attempts("")))
def test_the_owner_cannot_change_the_release(released, what):
    command = attempts(released.prefix)[what]
    assert subprocess.run(["bash", "-c", command], stderr=subprocess.DEVNULL, check=False).returncode != 0
    assert (released.prefix / "base" / "bin" / "horovodrun").stat().st_size > 0


@pytest.mark.parametrize("what", sorted(attempts("")))
def test_another_user_cannot_change_the_release(released, ordinary_user, what):
    command = attempts(released.prefix)[what]
    words = ["sudo", "-n", "-u", ordinary_user, "bash", "-c", command]
    assert subprocess.run(words, stderr=subprocess.DEVNULL, check=False).returncode != 0


def test_a_frozen_release_refuses_a_changed_flag(released, tmp_path):
    def change(text):
        return text.replace("HOROVOD_WITH_GLOO", "HOROVOD_WITHOUT_GLOO")

    rollout = released.refused(*released.other_inventory(tmp_path, change))
    assert "Make a new release" in rollout.message
    assert "definition.horovod.environment" in rollout.message


def test_a_frozen_release_refuses_a_changed_patch(released, tmp_path, collections_path):
    path = changed_collection(tmp_path, collections_path, PATCH, reworded)
    rollout = released.refused(ANSIBLE_COLLECTIONS_PATH=path)
    assert "Make a new release" in rollout.message
    assert "series.horovod" in rollout.message


MISTAKES = (
    ("\ntitle:", "\ntitel:", "did you mean 'title'"),
    ('  version: "4.1.2"', "  version: 4.1", "mpi4py.version"),
    ("  minimum:", "  channels: [a]\n  minimum:", "'base.channels' means nothing"),
    ('HOROVOD_WITHOUT_MXNET: "1"', 'HOROVOD_WITH_MXNET: "0"', "HOROVOD_WITHOUT_<PART>"),
)
"""What stands in the release file, what is written there instead, and what is said of that."""


def test_s26_the_mistakes_of_a_bad_release_file_are_told_at_once_and_nothing_is_changed(site, tmp_path):
    def change(text):
        for right, wrong, _said in MISTAKES:
            assert right in text
            text = text.replace(right, wrong)
        return text

    root = tmp_path / "root"
    rollout = site.refused(*site.other_inventory(tmp_path, change), "--check", TORCHSTACK_ROOT=str(root))
    for _right, _wrong, said in MISTAKES:
        assert said in rollout.message, said
    assert "HOROVOD_WITH_MXNET" in rollout.message
    assert not root.exists()


def test_a_release_file_of_another_release_is_refused_and_nothing_is_changed(site, tmp_path):
    def change(text):
        return text.replace('release: "2026-11-20"', 'release: "2026-11-21"')

    root = tmp_path / "root"
    rollout = site.refused(*site.other_inventory(tmp_path, change), "--check", TORCHSTACK_ROOT=str(root))
    assert "they must be the same" in rollout.message
    assert not root.exists()


def test_an_index_that_cannot_be_reached_is_said_before_anything_is_written(site, tmp_path):
    root = tmp_path / "root"
    nowhere = {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_FIND_LINKS": ""}
    rollout = site.refused(TORCHSTACK_ROOT=str(root), **nowhere)
    assert "cannot reach its package index" in rollout.message
    assert not root.exists()


def test_a_checksum_that_does_not_match_fails_the_step_and_says_so(site, tmp_path):
    def change(text):
        wrong = r"\1        --hash=sha256:%s\n" % ("0" * 64)
        text, changed = re.subn(r"(wheel==[^ ]+ \\\n)(?: +--hash=\S+(?: \\)?\n)+", wrong, text)
        assert changed == 1
        return text

    root = tmp_path / "root"
    inventory = site.other_inventory(tmp_path, change, "/tools.txt")
    rollout = site.refused(*inventory, TORCHSTACK_ROOT=str(root))
    assert "DO NOT MATCH THE HASHES" in rollout.message
    assert not list(root.glob(".torchstack/tools/*/stamp.json"))


def test_an_unknown_release_is_refused_with_the_known_ones(site, tmp_path):
    rollout = site.refused(TORCHSTACK_RELEASE="1999-01-01", TORCHSTACK_ROOT=str(tmp_path / "root"))
    assert RELEASE in rollout.message
    assert not (tmp_path / "root").exists()


def test_a_root_with_spaces_and_quotes_is_refused_before_anything_is_written(site, tmp_path):
    root = tmp_path / "with 'quotes' and spaces"
    rollout = site.refused(TORCHSTACK_ROOT=str(root))
    assert "character" in rollout.message
    assert not root.exists()


def test_a_root_that_cannot_be_written_is_refused(site):
    rollout = site.refused(TORCHSTACK_ROOT="/usr/torchstack-test")
    assert "/usr" in rollout.message


def test_a_machine_without_a_compiler_is_refused(site, tmp_path):
    commands = tmp_path / "bin"
    link_programs(commands, ("/usr/bin", "/bin"), COMPILERS)
    rollout = site.refused(PATH=str(commands), TORCHSTACK_ROOT=str(tmp_path / "root"))
    assert "compiler" in rollout.message
    assert not (tmp_path / "root").exists()


def test_an_mpi_without_a_cxx_wrapper_is_refused(site, tmp_path):
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("mpicc", "mpiexec"):
        (commands / name).write_text("#!/bin/sh\nexit 0\n")
        (commands / name).chmod(0o755)
    path = "%s:%s" % (commands, site.environment["PATH"])
    rollout = site.refused(PATH=path, TORCHSTACK_ROOT=str(tmp_path / "root"))
    assert "C++" in rollout.message
    assert not (tmp_path / "root").exists()


def test_two_rollouts_at_once_are_refused_naming_the_first(site, tmp_path):
    root = tmp_path / "root"
    first = site.start(TORCHSTACK_ROOT=str(root))
    try:
        opened = root / RELEASE / ".torchstack" / "release.yml"
        wait_for(lambda: opened.exists() or first.process.poll() is not None, 300, "the first to open its release")
        assert first.process.poll() is None, first.text
        second = site.refused(TORCHSTACK_ROOT=str(root))
        assert str(first.process.pid) in second.message
        assert os.uname().nodename in second.message
    finally:
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait()
        wait_for(lambda: not stop_builds(root), 300, "the builds to end")


def stop_builds(root):
    """Stop what still works below a root; what was found."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open("/proc/%s/cmdline" % name, "rb") as stream:
                    command = stream.read()
                if str(root).encode() in command or os.readlink("/proc/%s/cwd" % name).startswith(str(root)):
                    found.append(int(name))
                    os.kill(int(name), signal.SIGKILL)
            except OSError:
                continue
    return found
