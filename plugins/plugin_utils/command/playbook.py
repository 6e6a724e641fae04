# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compose a line of ansible-playbook, and run it."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
from types import MappingProxyType
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from ansible_collections.hpcml.torchstack.plugins.plugin_utils import ansible_programs

from .places import CommandError, Target, Workspace
from .verbs import Verb

COLLECTION = "hpcml.torchstack"
DONE, FOUND, FAILED, INTERRUPTED = 0, 1, 2, 130
"""How the command ends."""

CALLBACK = "hpcml.torchstack.steps"
"""What prints; see plugins/callback."""

NAMES_WORDS = "TORCHSTACK_NAMES_WORDS"
"""An option of it: it names words of the command where messages name playbooks."""

NAMES_SITE = "TORCHSTACK_NAMES_SITE"
"""Another one: the site that these words have to name."""

ENDED_BY_CTRL_C = 99
"""How ansible-playbook ends then."""

_PLAIN = re.compile(r"[A-Za-z0-9._+@%:/-]+")


class Line(NamedTuple):
    """What is run, and where."""

    words: list[str]
    """after the program's name"""
    directory: pathlib.Path
    environment: Mapping[str, str] = {}
    """what is set besides"""
    site: str = ""
    """which further words have to name; empty where they take it by themselves"""

    def shown(self) -> str:
        """Write it as one types it."""
        return shown(["ansible-playbook", *self.words], self.directory, self.environment)


def shown(words: Sequence[str], directory: pathlib.Path, environment: Mapping[str, str] = MappingProxyType({})) -> str:
    """Write a line that is run in a directory as one types it."""
    where = [] if directory.samefile(pathlib.Path.cwd()) else ["cd %s &&" % shlex.quote(str(directory))]
    given = ["%s=%s" % (name, shlex.quote(value)) for name, value in environment.items()]
    return " ".join([*where, *given, shlex.join(words)])


def compose(
    verb: Verb, workspace: Workspace, target: Target, given: Mapping[str, Any], further: Sequence[str] = ()
) -> Line:
    """Compose the line of a command.

    Args:
        given: the variables that options have set.
        further: arguments of ansible-playbook, as they were typed.
    """
    playbook, variables = _playbook(verb, workspace, target), dict(verb.variables)
    if target.site and not playbook.endswith("%s.yml" % target.site):
        variables["torchstack_host"] = target.site
    if target.releases:
        variables[verb.releases or "torchstack_release"] = (
            list(target.releases) if verb.releases else target.releases[0])
    variables.update((name, value) for name, value in given.items() if value not in (None, (), False))
    words = [playbook, *verb.arguments]
    for name, value in sorted(variables.items(), key=lambda entry: (not entry[0].startswith("torchstack_"), entry[0])):
        words += ["-e", _variable(name, value)]
    to_name = "" if target.site == workspace.default_site() else target.site
    return Line([*words, *further], workspace.directory, collections(workspace), to_name)


def _playbook(verb: Verb, workspace: Workspace, target: Target) -> str:
    if not verb.playbook:
        own = workspace.directory / "playbooks" / ("%s.yml" % target.site if target.site else "rollout.yml")
        if own.is_file():
            return str(own.relative_to(workspace.directory))
    name = verb.playbook or "rollout"
    beside = workspace.directory / "playbooks" / ("%s.yml" % name)
    return "playbooks/%s.yml" % name if beside.is_file() else "%s.%s" % (COLLECTION, name)


def _variable(name: str, value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return "%s=%s" % (name, value)
    return json.dumps({name: list(value) if isinstance(value, tuple) else value}, ensure_ascii=False)


def collections(workspace: Workspace) -> dict[str, str]:
    """Say where this collection is, for a repository that has none of its own and says nothing of it."""
    own = workspace.directory / "collections" / "ansible_collections" / "hpcml" / "torchstack"
    path = ansible_programs.collections_path()
    if workspace.is_collection or own.exists() or not path or os.environ.get("ANSIBLE_COLLECTIONS_PATH"):
        return {}
    return {"ANSIBLE_COLLECTIONS_PATH": path}


Play = Callable[[Sequence[str], Mapping[str, str]], int]
"""Runs a command in an environment; its exit code."""


def run(line: Line, after_interruption: Callable[[], str] | None = None, player: Play | None = None) -> int:
    """Run the line, and return how the command ends.

    Args:
        after_interruption: says what to say after Ctrl-C.
        player: runs it; otherwise it has the terminal to itself.

    Raises CommandError: there is no ansible-playbook.
    """
    program = ansible_programs.find("ansible-playbook")
    if not program:
        raise CommandError("There is no ansible-playbook beside this Python or on PATH: make env makes one.")
    # What somebody has set for all playbooks stays.
    environment = {
        "ANSIBLE_STDOUT_CALLBACK": CALLBACK, NAMES_WORDS: "true", NAMES_SITE: line.site, **os.environ,
        **line.environment, "PYTHONUNBUFFERED": "1"}
    command = [program, *line.words]
    code = player(command, environment) if player else play(command, line, environment)
    if code in (ENDED_BY_CTRL_C, -2, INTERRUPTED):
        print(after_interruption() if after_interruption else "Interrupted.", file=sys.stderr)
        return INTERRUPTED
    return FAILED if code else DONE


def play(
    command: Sequence[str], line: Line, environment: Mapping[str, str], output: int | None = None
) -> int:
    """Run a command where a line is run, and wait for it, also after Ctrl-C; its exit code, negative for a signal.

    Args:
        output: the descriptor that its standard output goes to; otherwise that of this process.
    """
    with subprocess.Popen(command, cwd=line.directory, env=environment, stdout=output) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                # The terminal has told Ansible, too.
                continue


def ask(workspace: Workspace, site: str, expression: str, inventory: pathlib.Path | None = None) -> Any:
    """Ask Ansible for a value of a site's variables. Raises CommandError: it cannot say.

    Args:
        site: hosts, as a pattern of which one host is left.
        inventory: another one than the workspace's.
    """
    program = ansible_programs.find("ansible")
    if not program:
        raise CommandError("There is no ansible beside this Python or on PATH: make env makes one.")
    environment = {**os.environ, **collections(workspace), "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
                   "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"}
    given = ["-i", str(inventory.resolve())] if inventory else []
    done = subprocess.run(
        [program, site, *given, "-m", "ansible.builtin.debug", "-a", "msg={{ %s }}" % expression],
        cwd=workspace.directory, env=environment, text=True, check=False, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode == 0 and "{" in done.stdout:
        return json.loads(done.stdout[done.stdout.index("{"):])["msg"]
    said = (done.stderr + done.stdout).strip().splitlines() or ["it said nothing"]
    what = "what %s is in %s" % (expression, inventory) if inventory else "where the releases of site '%s' are" % site
    raise CommandError("Ansible cannot say %s: %s" % (what, said[0]))
