# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The tabulator behind torchstack in a real zsh and a real fish, on a terminal of their own."""

from __future__ import annotations

import json
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import time

import pytest
from support.command_environment import link_command

TOP = pathlib.Path(__file__).parents[2]
CONTROL = re.compile(
    r"\x1b(\[[0-9;?<>=]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[()][0-9A-B]|[=>78])|[\x00-\x09\x0b-\x1f]")
START = {
    # As in ~/.zshrc of a new account; the questions of zsh's first start are left out.
    "zsh": (["-f", "-i"], 'autoload -U compinit; compinit -u -d "$HOME/.zcompdump"; PS1="ready> "'),
    "fish": (["--no-config", "-i"], 'function fish_prompt; echo -n "ready> "; end'),
}
EVALUATED = {"zsh": 'eval "$(torchstack completion zsh)"', "fish": "torchstack completion fish | source"}
LIMIT = 60
"""Seconds after which a shell that says nothing counts as broken."""


class Shell:
    """A shell on a terminal that is wide enough for whatever it proposes."""

    def __init__(self, name, home, path):
        flags, self.setting = START[name]
        self.name = name
        self.master, slave = pty.openpty()
        environment = {"HOME": str(home), "PATH": path, "TERM": "xterm", "LC_ALL": "C.UTF-8", "COLUMNS": "300",
                       "LINES": "60", "XDG_DATA_HOME": str(home), "XDG_CONFIG_HOME": str(home), "fish_term256": "0"}
        self.process = subprocess.Popen(
            ["setsid", "--ctty", shutil.which(name), *flags], stdin=slave, stdout=slave, stderr=slave, cwd=TOP,
            env=environment)
        os.close(slave)
        self.said = ""

    def type(self, text):
        os.write(self.master, text.encode())

    def shows(self, *texts):
        """Wait until all of these have been said since the last line began; what was said."""
        end = time.monotonic() + LIMIT
        while not all(text in self.said for text in texts):
            ready = select.select([self.master], [], [], max(0, end - time.monotonic()))[0]
            assert ready, "no %s in\n%s" % (texts, self.said)
            try:
                more = os.read(self.master, 65536).decode(errors="replace")
            except OSError:
                pytest.fail("%s has ended, no %s in\n%s" % (self.name, texts, self.said))
            if "\x1b[c" in more or "\x1b[0c" in more:
                self.type("\x1b[?62c")  # what a terminal is asked by fish, which waits for the answer
            self.said += CONTROL.sub("", more)
        return self.said

    def line(self, text):
        """Run a line, and wait for the next prompt."""
        self.said = ""
        self.type(text + "; echo done-$((6 * 7))\r" if self.name == "zsh" else text + "; echo done-(math 6 x 7)\r")
        self.shows("done-42")

    def complete(self, typed, *texts):
        """Press the tabulator behind what is typed, and give the line up again."""
        self.said = ""
        self.type(typed + "\t")
        self.shows(*texts)
        self.type("\x03")
        self.line("true")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture(params=sorted(START))
def shell(request, tmp_path):
    """A shell that completes torchstack, which is on its PATH as make env puts it there."""
    if not shutil.which(request.param):
        pytest.skip("there is no %s" % request.param)
    link_command(tmp_path)
    made = Shell(request.param, tmp_path, "%s:%s" % (tmp_path / "bin", os.environ["PATH"]))
    try:
        made.line(made.setting)
        made.line(EVALUATED[request.param])
        yield made
    finally:
        made.close()


def test_commands_sites_and_releases_are_completed(shell):
    shell.complete("torchstack publ", "torchstack publish ")
    shell.complete("torchstack publish pol", "torchstack publish polaris ")
    shell.complete("torchstack publish polaris 2026", "torchstack publish polaris 2026-11-21")
    # fish leaves out what all proposals begin with.
    shell.complete("torchstack publish local 2026-11-20", "-11-20-bundles", "-11-20-cuda")


def test_steps_of_the_release_that_is_meant_are_completed(shell, tmp_path):
    release = tmp_path / "root" / "2026-11-20" / ".torchstack"
    for step in ("base", "horovod"):
        (release / "steps" / step).mkdir(parents=True)
    (release / "release.yml").write_text(json.dumps({"release": "2026-11-20", "site": "local"}))
    shell.complete("torchstack logs --root %s horo" % (tmp_path / "root"), "horovod ")
