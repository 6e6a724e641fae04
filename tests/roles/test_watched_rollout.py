# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""torchstack rollout in a real terminal: the view stays below the lines, whatever becomes of the terminal."""

from __future__ import annotations

import json
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest
from support.polling import eventually

TOP = pathlib.Path(__file__).parents[2]
PROGRAM = TOP / "bin" / "torchstack"
HEADING = "Release 2026-11-21 of toy, step "
LOG = "[3/8] Building CXX object %s.cc.o" % "/".join(["gloo"] * 20)
COLOUR = re.compile(r"\x1b\[(3[0-7]|9[0-7])m")
LAST = ["pytorch  done in", "Release 2026-11-21 of toy", "here : ok="]


@pytest.fixture()
def site(tmp_path, ansible_environment):
    """A repository of a site whose rollout has three steps, the second of which waits for a file."""
    top, root = tmp_path / "repository", tmp_path / "root"
    (top / "inventories" / "toy" / "releases").mkdir(parents=True)
    (top / "playbooks").mkdir()
    (top / "ansible.cfg").write_text("[defaults]\ninventory = inventories/toy/hosts.yml\n")
    host = {"ansible_connection": "local", "torchstack_root": str(root)}
    (top / "inventories" / "toy" / "hosts.yml").write_text(json.dumps({"toy": {"hosts": {"here": host}}}))
    (top / "inventories" / "toy" / "releases" / "2026-11-21.yml").write_text("---\n")
    prefix, records = root / "2026-11-21", root / ".torchstack" / "2026-11-21"
    steps = prefix / ".torchstack" / "steps"
    steps.mkdir(parents=True)
    records.mkdir(parents=True)
    (prefix / ".torchstack" / "release.yml").write_text(json.dumps(
        {"release": "2026-11-21", "site": "toy", "definition": {}}))
    wait = "echo '%s'; until test -e %s; do sleep 0.1; done" % (LOG, shlex.quote(str(tmp_path / "gate")))
    lock = {"root": str(root), "release": "2026-11-21"}
    play = {"name": "Roll out a toy", "hosts": "toy", "gather_facts": False, "tasks": [
        {"name": "Take the lock", "hpcml.torchstack.rollout_lock": lock},
        *({"name": "Build it", "hpcml.torchstack.build_step": {"name": name, "state_dir": str(steps), "script": script}}
          for name, script in (("base", "true"), ("mpi4py", wait), ("pytorch", "true"))),
        {"name": "Give the lock back", "hpcml.torchstack.rollout_lock": {**lock, "state": "released"}},
        {"name": "Say", "ansible.builtin.debug": {"msg": "Release 2026-11-21 of toy"}}]}
    (top / "playbooks" / "toy.yml").write_text(json.dumps([play]))
    environment = {name: value for name, value in ansible_environment.items() if name != "ANSIBLE_CONFIG"}
    return Site(top, tmp_path / "gate", {**environment, "ANSIBLE_HOST_KEY_CHECKING": "False"})


class Site:
    def __init__(self, top, gate, environment):
        self.top = top
        self.gate = gate
        self.environment = environment

    def piped(self, *words):
        """Run a program whose output is no terminal; its exit code and what it printed."""
        done = subprocess.run([str(word) for word in words], cwd=self.top, env=self.environment, text=True, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout


class Tmux:
    """A terminal that wraps lines anew where it is made narrower, as most do."""

    def __init__(self, socket, site, columns=80, lines=24):
        self.socket = str(socket)
        self.site = site
        self.outer = []
        self("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(lines), "env", "PS1=$ ",
             "PATH=%s:%s" % (PROGRAM.parent, site.environment["PATH"]), "bash", "--norc")
        self.ended()

    def __call__(self, *words):
        environment = {**self.site.environment, "TERM": "xterm-256color"}
        return subprocess.run(["tmux", "-S", self.socket, *words], cwd=self.site.top, env=environment, text=True,
                              check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout

    def type(self, line):
        self("send-keys", line, "Enter")

    def screen(self, *words):
        """What is to be seen; with words of capture-pane also what was scrolled out, or colours."""
        return self("capture-pane", "-p", *words)

    def shows(self, *texts):
        def shown():
            screen = self.screen()
            return screen if all(text in screen for text in texts) else ""
        return eventually(shown,
                          "%s in\n%s" % (texts, self.screen()))

    def ended(self):
        """Wait for the shell's next prompt; all that there is to be seen then, also what was scrolled out."""
        eventually(lambda: self.screen().rstrip().endswith("$"), "a prompt")
        return self.screen("-S", "-")

    def attach(self, columns, lines):
        """Attach a terminal of another size to the session, as somebody does who comes back; it is a tmux's, too."""
        outer = Tmux(self.socket + str(len(self.outer)), self.site, columns, lines)
        self.outer.append(outer)
        outer.type("env -u TMUX tmux -S %s attach" % self.socket)
        size = "%dx%d" % (columns, lines - 1)
        eventually(lambda: self("display-message", "-p", "#{window_width}x#{window_height}").strip() == size, size)

    def close(self):
        for server in (*self.outer, self):
            subprocess.run(["tmux", "-S", server.socket, "kill-server"], check=False)


@pytest.fixture()
def tmux(site, tmp_path):
    if not shutil.which("tmux"):
        pytest.skip("there is no tmux")
    made = Tmux(tmp_path / "tmux", site)
    yield made
    site.gate.touch()
    made.close()


def view_of(screen):
    """The lines of the view, which is the last thing on a screen."""
    return [line for line in screen[screen.rindex(HEADING):].splitlines() if line]


def test_it_stays_right_when_the_terminal_is_resized_left_and_come_back_to_and_goes_at_the_end(tmux, site):
    tmux.type("torchstack rollout")
    screen = tmux.shows("  runs ", "37 % [####........]")
    above, view = screen[:screen.index(HEADING)].splitlines(), view_of(screen)
    assert above[-2:][0] == "Roll out a toy" and above[-1].startswith("base  done in "), screen
    assert view[0].startswith(HEADING + "2, ") and [line.split()[:2] for line in view[1:3]] == [
        ["done", "base"], ["runs", "mpi4py"]]
    assert view[3].strip() == LOG[:64] + "…", view
    tmux("resize-window", "-x", "200", "-y", "50")
    assert view_of(tmux.shows(LOG))[3].strip() == LOG
    for columns, lines in ((80, 24), (60, 30), (120, 20)):
        tmux("resize-window", "-x", str(columns), "-y", str(lines))
        eventually(lambda columns=columns: any(len(line) == columns - 1 for line in view_of(tmux.screen()))
                   or LOG in tmux.screen(), "a view of %d columns" % columns)
        # tmux wraps what is there before the next drawing takes its place; what stays twice is a fault.
        eventually(lambda: [tmux.screen("-S", "-").count(text) for text in (HEADING, "base  done in")] == [1, 1],
                   "one view, below lines that are there once")
    # To resize it by hand has taken that from its clients.
    tmux("set-option", "-w", "window-size", "latest")
    tmux.attach(100, 31)
    tmux("detach-client", "-s", "0")
    tmux.attach(70, 25)
    screen = tmux.shows("37 % [####........]")
    assert tmux.screen("-S", "-").count(HEADING) == 1, screen
    site.gate.touch()
    tmux.shows("here : ok=")
    screen = tmux.ended()
    lines = [line for line in screen.splitlines() if line][-4:]
    assert [line.startswith(begin) for line, begin in zip(lines, [*LAST, "$"])] == [True] * 4, screen
    assert HEADING not in screen and screen.count("  runs ") == 0, screen


def test_after_ctrl_c_the_step_goes_on_and_can_be_watched_and_stopped_as_it_says(tmux, site):
    tmux.type("torchstack rollout")
    tmux.shows("  runs ", "37 %")
    tmux("send-keys", "C-c")
    screen = tmux.shows("Interrupted. Step mpi4py goes on by itself")
    tmux.ended()
    said = "".join(line.ljust(80) for line in tmux.screen("-J").splitlines())
    stop = said[said.index("Stop it: ") + 9:].rpartition("$")[0].strip()
    assert "torchstack logs -f mpi4py toy 2026-11-21" in said and HEADING not in said, screen
    code, text = site.piped(PROGRAM, "status", "toy", "2026-11-21", "--json")
    assert json.loads(text)["running"][0]["state"] == "running", text
    code, text = site.piped(*shlex.split(stop))
    assert code == 0 and "cancelled" in text, text


def test_another_terminal_shows_the_same_view_until_the_rollout_has_ended(tmux, site):
    rollout = subprocess.Popen(
        [PROGRAM, "rollout"], cwd=site.top, env=site.environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    eventually(lambda: (site.top.parent / "root/2026-11-21/.torchstack/steps/mpi4py/log").exists(), "the step")
    tmux.type("torchstack status --follow")
    tmux.shows(HEADING, "  runs ", "37 % [####........]")
    site.gate.touch()
    lines = rollout.communicate()[0].splitlines()
    assert rollout.returncode == 0 and not any("\x1b" in line or HEADING in line for line in lines), lines
    tmux.shows("Steps done: 3")
    assert HEADING not in tmux.screen()


def test_without_a_terminal_and_with_plain_the_lines_are_those_of_ansible_playbook(tmux, site):
    site.gate.touch()
    site.environment["ANSIBLE_STDOUT_CALLBACK"] = "hpcml.torchstack.steps"
    assert site.piped("ansible-playbook", "playbooks/toy.yml")[0] == 0
    wanted = site.piped("ansible-playbook", "playbooks/toy.yml")
    assert wanted[0] == 0 and wanted[1].splitlines()[0] == "Roll out a toy"
    del site.environment["ANSIBLE_STDOUT_CALLBACK"]
    assert site.piped(PROGRAM, "rollout") == wanted
    for line in ("torchstack rollout --plain", "TERM=dumb torchstack rollout"):
        tmux.type("clear")
        eventually(lambda: tmux.screen().strip() == "$", "a clear screen")
        tmux.type(line)
        tmux.shows("here : ok=")
        tmux.ended()
        assert [line for line in tmux.screen().splitlines() if line and line[0] != "$"] == wanted[1].splitlines()


def test_with_no_color_the_view_is_there_without_colours(tmux):
    tmux.type("unset ANSIBLE_NOCOLOR")
    tmux.type("NO_COLOR=1 torchstack rollout")
    tmux.shows("  runs ", "37 %")
    assert not COLOUR.search(tmux.screen("-e")), tmux.screen("-e")
    tmux("send-keys", "C-c")
    tmux.ended()
    tmux.type("torchstack rollout")
    tmux.shows("  runs ", "37 %", HEADING)
    assert COLOUR.search(view_of(tmux.screen("-e"))[1])
