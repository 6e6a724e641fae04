# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The action plugin site_lint without a play around it, and the mistakes that it is given.

As a program, in a process of its own, it lints many sites at once: how Ansible imports plugins is for a whole process.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys

import yaml

TOP = pathlib.Path(__file__).parents[2]
SITE = TOP / "tests" / "fixtures" / "lint"
WRONG = yaml.safe_load((SITE / "wrong_values.yml").read_text(encoding="utf-8"))
DOCUMENTED = 36
"""How many of them, the first ones, somebody makes who writes a site by the documentation alone."""


class Task:
    """What an action plugin knows of its task."""

    def __init__(self, options):
        self.args, self.async_val, self.check_mode, self.diff = options, 0, False, False


class Shown:
    """A display that keeps what it is told."""

    def __init__(self):
        self.lines, self.warnings = [], []

    def display(self, text, **_options):
        self.lines.append(text)

    def warning(self, text):
        self.warnings.append(text)


def lint_all(cases, environment):
    """Lint many sites, each with one host.

    Args:
        cases: mappings with ``sources``, the inventories, and ``options`` of the task, which does not fail by default.
        environment: of the process.

    Returns:
        for each case the result of the task, and as ``shown`` and ``warnings`` what it has told the terminal.
    """
    done = subprocess.run(
        [sys.executable, __file__], env={**environment, "PYTHONPATH": ""}, input=json.dumps(cases, default=str),
        text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def lint(sources, options):
    """Lint the only host of some inventories, in a process that Ansible has prepared."""
    from ansible import context
    from ansible.inventory.manager import InventoryManager
    from ansible.module_utils.common.collections import ImmutableDict
    from ansible.parsing.dataloader import DataLoader
    from ansible.template import Templar
    from ansible.vars.manager import VariableManager
    from ansible_collections.hpcml.torchstack.plugins.action import site_lint

    context.CLIARGS = ImmutableDict(inventory=sources, extra_vars=[])
    loader = DataLoader()
    loader.set_basedir(os.path.join(os.path.dirname(sources[0]), "nothing-here"))
    inventory = InventoryManager(loader=loader, sources=sources)
    (host,) = inventory.get_hosts()
    manager = VariableManager(loader=loader, inventory=inventory)
    own = manager.get_vars(host=host) if "only" not in options else {}
    variables = {**role_variables(loader, "defaults"), **own, **role_variables(loader, "vars")}
    plugin = site_lint.ActionModule(
        Task({"fail": False, **options}), None, None, loader, Templar(loader=loader, variables=variables), None)
    plugin._display = Shown()
    found = plugin.find(variables)
    return dict(found, shown=plugin._display.lines, warnings=plugin._display.warnings)


def role_variables(loader, kind):
    """The variables of the role release, as templates."""
    # Where only texts that are trusted are templates, since ansible-core 2.19.
    knows = "trusted_as_template" in loader.load_from_file.__code__.co_varnames
    trusted = {"trusted_as_template": True} if knows else {}
    return loader.load_from_file(str(TOP / "roles/release" / kind / "main.yml"), **trusted)


def written(directory, change):
    """Copy the site to a directory, with one mistake in it; the file that has it, and the line that has to be named."""
    shutil.copytree(SITE, directory, dirs_exist_ok=True)
    for part in (change, change.get("and"), change.get("plus")):
        if part:
            path = directory / part["in"]
            before = path.read_text(encoding="utf-8")
            assert part["old"] in before, part
            path.write_text(before.replace(part["old"], part["new"], 1), encoding="utf-8")
    path = directory / change["in"]
    return path, line_of(path, change)


def line_of(path, change):
    """The line that has to be named."""
    if "line" in change:
        return change["line"]
    after = path.read_text(encoding="utf-8").splitlines(keepends=True)
    if "at" in change:
        return next(number for number, line in enumerate(after, 1) if change["at"] in line)
    before = (SITE / change["in"]).read_text(encoding="utf-8").splitlines(keepends=True)
    return next(number for number, (old, new) in enumerate(zip(before, after), 1) if old != new)


if __name__ == "__main__":
    from ansible.plugins.loader import init_plugin_loader

    init_plugin_loader()
    print(json.dumps([lint(case["sources"], case.get("options") or {}) for case in json.load(sys.stdin)]))
