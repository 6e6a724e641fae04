# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Verify a modulefile in every session that it has to pass on this machine, and record them."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from typing import Mapping, NamedTuple, Sequence

from ..core.errors import StackError
from ..core.files import read_json
from . import module_system
from .description import normalise, under_each_name
from .layout import (
    DESCRIPTION,
    SYNTAXES,
    digest,
    read_bytes,
    relative_path,
)
from .session import (
    SHELLS,
    STATES,
    judge,
    resolve_first_files,
    run_session,
    starting_environment,
)
from .site_system import AUTO, OPTION, SYSTEMS, syntaxes_of

SESSIONS: dict[str, dict] = {
    "module_path": {"type": "list", "elements": "path", "default": []},
    "shells": {"type": "list", "elements": "str", "choices": list(SHELLS), "default": list(SHELLS)},
    "lmod_command": {"type": "path"}, "modulecmd_command": {"type": "path"}, **OPTION,
}
"""The options that plugins/doc_fragments/_sessions.py documents."""

FORMAT = 1
"""Number of the record's layout and of what the sessions check; another number makes them run again."""


class Check(NamedTuple):
    """One session that is to be run."""

    syntax: str
    system: module_system.ModuleSystem
    system_version: str
    shell: str
    state: str
    name: str = ""
    """the further name of the module that it is loaded by; empty for its own"""

    def as_dict(self) -> dict:
        """Return plain data for the record."""
        found = {
            "syntax": self.syntax, "system": self.system.title, "command": self.system.command,
            "version": self.system_version, "shell": os.path.basename(self.shell), "state": self.state}
        return {**found, "name": self.name} if self.name else found


class Plan(NamedTuple):
    """What is to be checked, what cannot be and why, and what the outcome depends on besides."""

    files: dict
    checks: list
    not_checked: list
    description: Mapping
    module_path: list
    chosen: dict
    """the file that each variable of ``first_file`` names"""
    left_out: tuple
    """the kinds of modulefile whose module system the site's users do not have"""
    also: Mapping
    """the files of each further name of the module"""

    @property
    def inputs(self) -> str:
        """Return the digest of all that the outcome depends on."""
        return self.inputs_with([check.as_dict() for check in self.checks], self.not_checked)

    def inputs_with(self, checked: Sequence[Mapping], not_checked: Sequence[Mapping]) -> str:
        """Return what that digest would be with these sessions."""
        outcome = [FORMAT, self.description, self.files, list(checked), list(not_checked), self.module_path]
        outcome += [part for part in (self.chosen, self.also) if part]
        return digest(json.dumps(outcome, sort_keys=True).encode("utf-8"))


def read_description(stage: str) -> dict:
    """Return the description of the staged modulefiles. Raises StackError: it is not there, or cannot be read."""
    path = os.path.join(stage, DESCRIPTION)
    remedy = "Run the role modulefile for this release first."
    try:
        description = read_json(path)
    except (OSError, ValueError) as error:
        raise StackError("Cannot read the description %s: %s." % (path, error), "read", remedy, path) from error
    if not isinstance(description, dict):
        raise StackError("There is no description %s." % path, "read", remedy, path, planned_after="modulefile")
    return normalise(description)


def find_commands(commands: Mapping[str, str | None], environment: Mapping[str, str], system: str = AUTO) -> dict:
    """Return the module command of each kind of modulefile, as (system, version), or a sentence why there is none.

    ``commands`` has the paths of those that are not looked for. What users of ``system`` do not read is not in the
    result. Raises StackError: a command is named and does not exist.
    """
    found: dict = {}
    for syntax in syntaxes_of(system):
        kind, named = SYSTEMS[syntax], commands.get(syntax)
        try:
            one = module_system.find_system(environment, kind, named or None)
        except StackError:
            if named:
                raise
            found[syntax] = "%s was not found on this machine." % module_system.TITLES[kind]
            continue
        found[syntax] = (one, module_system.version(one, environment, 60))
    return found


def make_plan(
    top: str, description: Mapping, found: Mapping, shells: Sequence[str], module_path: Sequence[str],
    syntaxes: Sequence[str] = SYNTAXES,
) -> Plan:
    """Tell what a verification of the files below ``top`` would do, with ``module_path`` for ``depends_on``.

    ``found`` is the answer of :func:`find_commands`. Raises StackError: a modulefile is not there.
    """
    named = {
        name: {syntax: _file_of(top, syntax, name, description["version"]) for syntax in syntaxes}
        for name in under_each_name(description)}
    files = named.pop(description["name"])
    checks: list[Check] = []
    absent: list[dict] = []
    left_out = tuple(syntax for syntax in syntaxes if syntax not in found)
    for syntax in syntaxes:
        entry = found.get(syntax, "The site's users do not have %s." % module_system.TITLES[SYSTEMS[syntax]])
        if isinstance(entry, str):
            absent.append({"syntax": syntax, "why": entry})
            continue
        for shell in shells:
            program = shutil.which(shell)
            if program is None:
                absent.append({"syntax": syntax, "shell": shell, "why": "%s is not installed here." % shell})
                continue
            checks.extend(
                Check(syntax, entry[0], entry[1], program, state, name) for name in ("", *named) for state in STATES)
    return Plan(
        files, checks, absent, description, list(module_path), resolve_first_files(description), left_out, named)


def _file_of(top: str, syntax: str, name: str, version: str) -> dict[str, str]:
    path = relative_path(syntax, name, version)
    content = read_bytes(os.path.join(top, path))
    if content is None:
        raise StackError(
            "There is no modulefile %s." % os.path.join(top, path), "read",
            "Run the role modulefile for this release, or publish it, first.", os.path.join(top, path),
            planned_after="modulefile")
    return {"path": path, "sha256": digest(content)}


def is_done(plan: Plan, record: object) -> bool:
    """Tell whether a record says that exactly this plan was carried out with success.

    What it says of a module system that the site's users do not have, or no longer, stays as it is.
    """
    if not isinstance(record, dict) or record.get("passed") is not True:
        return False
    checked = [
        {key: value for key, value in entry.items() if key not in ("passed", "problems")}
        for entry in record.get("checked") or []]
    planned = [check.as_dict() for check in plan.checks]

    def of_both(mine: Sequence[Mapping], recorded: Sequence[Mapping]) -> list[Mapping]:
        return [
            entry for syntax in plan.files for entry in (recorded if syntax in plan.left_out else mine)
            if entry.get("syntax") == syntax]

    return record.get("inputs") == plan.inputs_with(
        of_both(planned, checked), of_both(plan.not_checked, record.get("not_checked") or []))


def carry_out(
    plan: Plan, top: str, description: Mapping, module_path: Sequence[str], base: Mapping[str, str], scratch: str
) -> dict:
    """Run every session of a plan, and return the record. Raises StackError: a shell did not come to its end."""
    checked = []
    for check in plan.checks:
        full_name = "%s/%s" % (check.name or description["name"], description["version"])
        commands = (("load", full_name), ("unload", full_name))
        home = tempfile.mkdtemp(prefix="home-", dir=scratch)
        try:
            directories = [os.path.join(top, "modulefiles", check.syntax), *module_path]
            environment = starting_environment(description, check.state, base, home, directories)
            problems = judge(description, run_session(check.shell, check.system, commands, environment, home))
        finally:
            shutil.rmtree(home, ignore_errors=True)
        checked.append({**check.as_dict(), "passed": not problems, "problems": problems})
    record = {
        "format": FORMAT, "name": description["name"], "version": description["version"], "files": plan.files,
        "inputs": plan.inputs, "checked": checked, "not_checked": plan.not_checked,
        "passed": all(entry["passed"] for entry in checked),
    }
    if plan.chosen:
        record["chosen"] = plan.chosen
    if plan.also:
        record["also"] = plan.also
    return record


def verdict(record: Mapping, description: Mapping) -> StackError | None:
    """Return the error for a record that is not a success; None for one that is."""
    failed = [entry for entry in record["checked"] if not entry["passed"]]
    if not failed:
        return None
    first = failed[0]
    return StackError(
        "%s/%s does not load and unload cleanly with %s %s in %s (%s environment): %s" % (
            first.get("name", record["name"]), record["version"], first["system"], first["version"], first["shell"],
            first["state"],
            " ".join(first["problems"])),
        "load and unload the modulefile", _remedy(" ".join(first["problems"]), description),
        checked=record["checked"], not_checked=record["not_checked"])


def _remedy(said: str, description: Mapping) -> str:
    """Tell what to do about a module that does not load."""
    family = description["family"]
    if family and re.search("conflict", said, re.IGNORECASE):
        return (
            "Its family is %s, and Environment Modules load no two modules of which one has the other's name as its "
            "family: where a module called %s is loaded with it, give module.family another name; else leave out of "
            "module.depends_on what it conflicts with." % (family, family))
    return "Change the description, or name the directories that its dependencies are in as module_path."
