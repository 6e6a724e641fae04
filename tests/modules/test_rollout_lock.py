# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The lock of a rollout, with real ansible-playbook processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

PLAYBOOK = """
- name: Roll out
  hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - name: Take the lock
      hpcml.torchstack.rollout_lock: {root: "ROOT", release: r1}
      register: first
    - name: Take it again
      hpcml.torchstack.rollout_lock: {root: "ROOT", release: r1}
      register: second
    - name: Say so
      ansible.builtin.copy: {content: "{{ [first, second] }}", dest: "ROOT/taken.NAME", mode: "0644"}
    - name: Build for a while
      ansible.builtin.wait_for: {path: "ROOT/go.NAME", timeout: 60, sleep: 1}
    - name: Give the lock back
      hpcml.torchstack.rollout_lock: {root: "ROOT", release: r1, state: released}
"""


class Rollouts:
    """Playbooks that take the lock and keep it until they are told to go on."""

    def __init__(self, root, environment):
        self.root = root
        self.environment = environment
        self.processes = []

    def start(self, name):
        playbook = self.root / (name + ".yml")
        playbook.write_text(PLAYBOOK.replace("ROOT", str(self.root)).replace("NAME", name))
        command = [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), "-i", "localhost,", str(playbook)]
        with open(str(self.root / (name + ".out")), "wb") as stream:
            process = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT)
        self.processes.append((name, process))
        return process

    def output(self, name):
        return (self.root / (name + ".out")).read_text()

    def wait_until_taken(self, name):
        record = self.root / ("taken." + name)
        deadline = time.monotonic() + 60
        while not record.exists() or not record.read_text().strip():
            assert time.monotonic() < deadline, self.output(name)
            time.sleep(0.05)
        return json.loads(record.read_text())

    def go_on(self, name):
        (self.root / ("go." + name)).touch()

    def end(self):
        for name, process in self.processes:
            self.go_on(name)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
            process.wait()


@pytest.fixture
def rollouts(tmp_path, ansible_environment):
    started = Rollouts(tmp_path, ansible_environment)
    yield started
    started.end()


@pytest.fixture
def lock_file(tmp_path):
    return tmp_path / ".torchstack" / "r1" / "lock.json"


def arguments(tmp_path, **more):
    return dict({"root": str(tmp_path), "release": "r1"}, **more)


def plant(lock_file, **changes):
    """A lock record, as a rollout of this host would leave it, with changes."""
    lock_file.parent.mkdir(parents=True)
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
        boot_id = stream.read().strip()
    record = {
        "host": os.uname().nodename, "machine": "", "boot_id": boot_id, "pid": os.getpid(),
        "pid_namespace": os.readlink("/proc/self/ns/pid"), "start_time": "1", "started": "2026-11-20T10:00:00Z",
        "since": "2026-11-20T10:00:01Z", "user": "stacks", "playbook": "playbooks/site.yml", "token": "0" * 16,
    }
    record.update(changes)
    lock_file.write_text(json.dumps(record))
    return record


def test_of_two_rollouts_at_once_the_second_is_refused_with_the_name_of_the_first(
        rollouts, run_module, tmp_path, lock_file):
    process = rollouts.start("one")
    first, second = rollouts.wait_until_taken("one")
    assert first["acquired"] and not first["stale"] and not first["changed"]
    assert first["holder"]["pid"] == process.pid
    assert first["holder"]["playbook"].endswith("one.yml")
    assert second["acquired"] and second["holder"] == first["holder"]

    assert rollouts.start("two").wait(60) == 2
    text = " ".join(rollouts.output("two").split())
    assert "process %d on %s" % (process.pid, os.uname().nodename) in text
    assert "started %s" % first["holder"]["started"] in text
    assert "has held its lock since %s." % first["holder"]["since"] in text

    planned = run_module("rollout_lock", arguments(tmp_path), check=True)
    assert planned["would_block"] and not planned["acquired"] and not planned.failed and not planned.changed
    assert "A rollout would be refused now." in " ".join(planned.console.split())
    left = run_module("rollout_lock", arguments(tmp_path, state="released"))
    assert not left.failed and not left["released"] and left["holder"] == first["holder"]
    assert lock_file.exists()

    rollouts.go_on("one")
    assert process.wait(60) == 0
    assert not lock_file.exists()


def test_the_lock_of_a_killed_rollout_is_recognised_and_taken_over(rollouts, run_module, tmp_path, lock_file):
    process = rollouts.start("one")
    first = rollouts.wait_until_taken("one")[0]
    process.send_signal(signal.SIGKILL)
    process.wait()
    planned = run_module("rollout_lock", arguments(tmp_path), check=True)
    assert planned["stale"] and not planned["would_block"] and planned["previous"] == first["holder"]
    assert json.loads(lock_file.read_text()) == first["holder"]
    taken = run_module("rollout_lock", arguments(tmp_path))
    assert taken["acquired"] and taken["stale"] and not taken.changed
    assert taken["previous"] == first["holder"]
    assert taken["holder"]["pid"] != process.pid
    warning = " ".join(taken.console.split())
    assert "process %d on" % process.pid in warning and "Its lock was taken over." in warning
    assert sorted(os.listdir(str(lock_file.parent))) == ["lock.json"]


def test_checking_and_taking_a_free_lock_in_four_steps(run_module, tmp_path, lock_file):
    planned = run_module("rollout_lock", arguments(tmp_path), check=True)
    assert not planned["would_block"] and not planned["acquired"] and not planned.changed
    assert os.listdir(str(tmp_path)) == []
    taken = run_module("rollout_lock", arguments(tmp_path))
    assert taken["acquired"] and not taken["stale"] and not taken.changed
    assert taken["path"] == str(lock_file)
    planned = run_module("rollout_lock", arguments(tmp_path), check=True)
    assert planned["stale"] and not planned["would_block"]
    assert run_module("rollout_lock", arguments(tmp_path))["stale"]


def test_giving_back_a_lock_that_is_not_there_is_no_change(run_module, tmp_path):
    result = run_module("rollout_lock", arguments(tmp_path, state="released"))
    assert not result.failed and not result.changed and not result["released"]
    assert os.listdir(str(tmp_path)) == []


def test_the_lock_of_another_host_is_refused_and_not_guessed_at(run_module, tmp_path, lock_file):
    record = plant(lock_file, host="login-99")
    result = run_module("rollout_lock", arguments(tmp_path))
    assert result.failed and result["failed_step"] == "lock" and result["holder"] == record
    assert "cannot tell whether that process is alive" in result["msg"]
    assert "On login-99, look with 'ps -o lstart,args -p %d'" % os.getpid() in result["remedy"]
    assert str(lock_file) in result["remedy"]
    assert json.loads(lock_file.read_text()) == record


def this_machine(run_module, tmp_path):
    """How this machine names itself in a lock record."""
    return run_module("rollout_lock", {"root": str(tmp_path / "other"), "release": "r1"})["holder"]["machine"]


def test_the_lock_from_before_a_reboot_of_this_host_is_stale(run_module, tmp_path, lock_file):
    record = plant(
        lock_file, machine=this_machine(run_module, tmp_path), boot_id="11111111-2222-3333-4444-555555555555")
    result = run_module("rollout_lock", arguments(tmp_path))
    assert result["acquired"] and result["stale"] and result["previous"] == record


def test_a_process_id_that_was_used_again_does_not_keep_the_lock(run_module, tmp_path, lock_file):
    record = plant(lock_file, machine=this_machine(run_module, tmp_path))
    assert run_module("rollout_lock", arguments(tmp_path))["previous"] == record


@pytest.fixture
def target_elsewhere(tmp_path_factory):
    """An interpreter whose modules believe that they run on a host of another name."""
    wrapper = tmp_path_factory.mktemp("bin") / "python"
    wrapper.write_text(
        "#!/bin/sh\nexec unshare --user --map-root-user --uts"
        " sh -c 'hostname target-1 && exec \"$0\" \"$@\"' %s \"$@\"\n" % sys.executable)
    wrapper.chmod(0o755)
    probe = subprocess.run(
        [str(wrapper), "-c", "import os; print(os.uname().nodename)"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if probe.stdout.strip() != "target-1":
        pytest.skip("no user namespaces here: " + probe.stdout.strip())
    # A host that no inventory names would be run by Ansible's own interpreter.
    inventory = wrapper.with_name("hosts.ini")
    inventory.write_text("localhost ansible_connection=local ansible_python_interpreter=%s\n" % wrapper)
    return {"ANSIBLE_INVENTORY": str(inventory)}


def test_a_dead_process_of_the_control_node_is_recognised_from_a_target_elsewhere(
        run_module, tmp_path, lock_file, target_elsewhere):
    first = run_module("rollout_lock", arguments(tmp_path), environment=target_elsewhere)
    assert first["acquired"] and first["holder"]["host"] == os.uname().nodename
    planned = run_module("rollout_lock", arguments(tmp_path), check=True, environment=target_elsewhere)
    assert planned["stale"] and not planned["would_block"]
    second = run_module("rollout_lock", arguments(tmp_path), environment=target_elsewhere)
    assert second["acquired"] and second["stale"] and second["previous"] == first["holder"]


def test_a_living_process_of_the_control_node_is_respected_from_a_target_elsewhere(
        rollouts, run_module, tmp_path, target_elsewhere):
    process = rollouts.start("one")
    rollouts.wait_until_taken("one")
    result = run_module("rollout_lock", arguments(tmp_path), environment=target_elsewhere)
    assert result.failed and result["holder"]["pid"] == process.pid
    assert "target-1 cannot tell whether that process is alive" in result["msg"]


@pytest.mark.parametrize("release", ["", "..", "a/b", "-x", "a b", ".torchstack"])
def test_a_release_name_that_leads_elsewhere_is_refused(run_module, tmp_path, release):
    result = run_module("rollout_lock", arguments(tmp_path, release=release))
    assert result.failed and "cannot be a directory's name" in result["msg"]
    assert os.listdir(str(tmp_path)) == []


def test_a_root_that_is_not_ours_is_named_with_the_remedy(run_module, tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    result = run_module("rollout_lock", arguments(closed))
    assert result.failed and "Permission denied" in result["msg"] and "account that owns" in result["remedy"]
