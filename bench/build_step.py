# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What following a build costs: processor time of build_step beyond the build's own, against the same script by hand.

The build compiles small C++ files, two at a time, and prints what ninja prints. Processor time is what wait4(2) says
of a process with all descendants it waited for, and for the supervisor, which nobody waits for, its own utime and
stime in /proc/<pid>/stat, without its children's.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

CHECKOUT = pathlib.Path(__file__).resolve().parents[1]
FILES = 40
GOAL = 1.0
"""Percent of the build's processor time."""

SOURCE = """#include <functional>
#include <iostream>
#include <map>
#include <regex>
#include <string>
int main(int count, char **words) {
    std::map<std::string, std::function<bool(const std::string &)>> found;
    for (int i = 0; i < count; i++)
        found[words[i]] = [=](const std::string &text) { return std::regex_match(text, std::regex(words[i])); };
    for (auto &entry : found)
        std::cout << entry.first << entry.second("step %d");
}
"""
SCRIPT = """cd %s
seq 1 %d | xargs -P 2 -I @ sh -c 'g++ -std=c++17 -O2 -c f@.cpp -o f@.o && echo "[@/%d] g++ -c f@.cpp -o f@.o"'
"""


def processor_time(command: list[str], environment: dict[str, str]) -> float:
    """Seconds of processor time of a program and of all descendants that were waited for."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        _pid, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            raise RuntimeError("%s failed:\n%s" % (command[0], output.read().decode(errors="replace")))
    return usage.ru_utime + usage.ru_stime


class Play:
    """A playbook with one task."""

    def __init__(self, place: pathlib.Path, task: dict) -> None:
        self.book = place / ("play-%d.yml" % len(list(place.glob("play-*"))))
        play = {"hosts": "localhost", "gather_facts": False, "connection": "local", "tasks": [task]}
        self.book.write_text(json.dumps([play]))
        collections = pathlib.Path(sys.prefix) / "collections"
        self.environment = dict(os.environ, ANSIBLE_CONFIG=str(CHECKOUT / "ansible.cfg"))
        if collections.is_dir():
            self.environment["ANSIBLE_COLLECTIONS_PATH"] = str(collections)

    def command(self) -> list[str]:
        """The command that plays it."""
        return [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), str(self.book)]

    def cost(self) -> float:
        """Seconds of processor time of ansible-playbook, its workers and its modules."""
        return processor_time(self.command(), self.environment)

    def cost_with_supervisor(self, records: pathlib.Path) -> tuple[float, float]:
        """The same of a step that is being built, and the supervisor's own, which lives in ``records``."""
        reader, writer = os.pipe()
        watcher = os.fork()
        if watcher == 0:
            os.close(reader)
            os.write(writer, json.dumps(watch_supervisor(records)).encode())
            os._exit(0)
        os.close(writer)
        cost = self.cost()
        with os.fdopen(reader) as stream:
            supervisor = float(json.loads(stream.read()))
        os.waitpid(watcher, 0)
        return cost, supervisor


def watch_supervisor(records: pathlib.Path) -> float:
    """Seconds of processor time that the supervisor of a step used itself, looked at until it has gone."""
    pid, used = 0, 0.0
    while True:
        try:
            if not pid:
                pid = json.loads((records / "job.json").read_text())["pid"] or 0
            else:
                fields = pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()
                if fields[0] in "ZX":
                    return used
                used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except FileNotFoundError:
            if pid:
                return used
        time.sleep(0.02)


def compare() -> tuple[float, float, list[str]]:
    """Build by hand, then by build_step.

    Returns:
        Processor seconds of the build by hand; what supervisor and followers added to it, in processor seconds; and
        lines that say what was left apart. Nothing where there is no C++ compiler: then the times are 0.
    """
    if not shutil.which("g++"):
        return 0.0, 0.0, ["There is no g++, so there was nothing to build."]
    with tempfile.TemporaryDirectory() as scratch:
        place = pathlib.Path(scratch)
        for number in range(1, FILES + 1):
            (place / ("f%d.cpp" % number)).write_text(SOURCE % number)
        script = SCRIPT % (place, FILES, FILES)
        by_hand = processor_time(["bash", "-euo", "pipefail", "-c", script], dict(os.environ))
        step = {"name": "s", "state_dir": str(place / "steps"), "script": script}
        nothing = Play(place, {"ansible.builtin.command": "true"}).cost()
        begun = time.monotonic()
        total, supervisor = Play(place, {"hpcml.torchstack.build_step": step}).cost_with_supervisor(place / "steps/s")
        seconds = round(time.monotonic() - begun)
        waiting = Play(place, {"ansible.builtin.command": "sleep %d" % seconds}).cost() - nothing
    followers = total - nothing - waiting
    notes = [
        "supervisor %.2f s, followers %.2f s of processor time in %d s" % (supervisor, followers, seconds),
        "left apart: Ansible's start, %.2f s, and its waiting for any task that long, %.2f s" % (nothing, waiting),
    ]
    return by_hand, supervisor + followers, notes


def main() -> None:
    """Print the ratio, its parts, and the goal."""
    by_hand, overhead, notes = compare()
    if by_hand:
        share = 100 * overhead / by_hand
        print("build by hand %.1f s of processor time; build_step adds %.2f s: %.2f %% (goal: less than %.0f %%)" % (
            by_hand, overhead, share, GOAL))
    for note in notes:
        print("  " + note)


if __name__ == "__main__":
    main()
