# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find all that is wrong with a site's data and its release files, before anything is looked at or built."""

from __future__ import annotations

import pathlib
import re
from typing import Any, Mapping

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import lint, lint_variables
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.lint_places import (
    Places,
    Problem,
    located,
    names_in,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.health import thresholds
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import event_hooks
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import given_variables, inventory_files
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file as files
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.control_action import ControlAction, RefusedError
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.filled_variables import FilledVariables

TYPED_RELEASE = frozenset(("torchstack_release", "release_name", "release_file"))
THRESHOLDS = "node_health_site_thresholds"
HOOKS = "torchstack_hooks"
_IN_LINE = re.compile(r" in line (\d+)")


class ActionModule(ControlAction):
    """Judges what the roles will get, without asking the machine for anything."""

    def find(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        """See :meth:`ControlAction.find`.

        Raises:
            RefusedError: there are problems, which are its message.
        """
        problems, releases = self.judged(task_vars)
        order = list(dict.fromkeys(problem.file for problem in problems))
        unique = sorted(dict.fromkeys(problems), key=lambda problem: (order.index(problem.file), problem.line))
        if unique and self._task.args.get("fail", True):
            raise RefusedError("\n".join([
                "Nothing was done, as there %s:" % counted(len(unique)), *(problem.text for problem in unique)]))
        for problem in unique:
            self._display.display(problem.text, color="red")
        return {"problems": [problem._asdict() for problem in unique], "releases": releases}

    def judged(self, task_vars: dict[str, Any]) -> tuple[list[Problem], list[str]]:
        """Find the problems, and name the releases that were judged."""
        playbooks = self._loader.get_basedir()
        if self._task.args.get("only") == "inventory":
            read = inventory_files.all_files(given_variables.inventories(), playbooks)
            return [problem for file in read if file.unreadable for problem in file.problems], []
        given = given_variables.Given(self._loader, str(task_vars.get("inventory_hostname", "")))
        places, problems = inventory_files.places_of(given.sources, playbooks, given.groups, given.host)
        # What is typed stands in no file.
        typed = dict.fromkeys(given.typed, "")
        places = places._replace(files={**places.files, **typed})
        roles, specified = given_variables.specifications(), files.specified()
        problems += unknown_names(given, roles, self._task.args.get("others") or [], places)
        filled = FilledVariables(self._templar, {**given.variables, **task_vars}, specified)
        if not filled.text("release_file"):
            raise RefusedError("site_lint needs the variables of the role release: import its tasks, tasks_from: lint.")
        values, site = filled.given(given.variables, roles), filled.site(assume=not self._task.args.get("releases"))
        problems += located(filled.problems, places)
        wanted = self.wanted(given, filled)
        releases, unread = read_releases(
            wanted, pathlib.Path(filled.text("release_files")), str(site["site"]), filled.text("release_name"))
        settings = names_in(values.get("torchstack_runtime_settings"), "torchstack_runtime_settings")
        problems += unread + lint.problems(lint.Asked(
            site, specified, lint_variables.options_of(roles), values, places._replace(names=settings), releases,
            contents_of(self.beside(wanted, filled), {release.file for release in releases}), str(files.ROLES),
            filled.text("release_own_series")))
        problems += located(thresholds_problems(values) + hooks_problems(values), places)
        for sentence in lint.doubts(site):
            self._display.warning(sentence)
        return problems, [release.name for release in releases]

    def wanted(self, given: given_variables.Given, filled: FilledVariables) -> list[pathlib.Path]:
        """List the release files that are judged: those of the task, that which is typed, or all of the site."""
        asked = self._task.args.get("releases")
        file = pathlib.Path(filled.text("release_file"))
        if asked or given.typed & TYPED_RELEASE:
            return [pathlib.Path(path) for path in asked or [file]]
        return list(dict.fromkeys([*sorted(file.parent.glob("*.yml")), file]))

    def beside(self, wanted: list[pathlib.Path], filled: FilledVariables) -> list[pathlib.Path]:
        """List the release files of the site, those that are judged, and what lies beside either."""
        own = pathlib.Path(filled.text("release_files"))
        homes = dict.fromkeys([*(path.parent for path in wanted), own])
        return list(dict.fromkeys([*wanted, *(path for home in homes for path in sorted(home.glob("*.yml")))]))


def unknown_names(
    given: given_variables.Given, roles: dict[str, dict[str, Any]], others: list[str], places: Places
) -> list[Problem]:
    """Find names that nobody reads, in the inventory, in the environment and on the command line."""
    return [
        Problem("", 0, "", sentence) if " in the environment: " in sentence else located([sentence], places)[0]
        for sentence in given.unknown_names(roles, others)
    ]


def read_releases(
    paths: list[pathlib.Path], home: pathlib.Path, site: str, name: str
) -> tuple[list[lint.Release], list[Problem]]:
    """Read release files.

    Args:
        paths: of the files.
        home: the directory of the site's release files, whose names say which release they are.
        site: its name, for sentences.
        name: of the release that is rolled out, which a release's own stored file does not have.

    Returns:
        Those that can be read, and why the others cannot.
    """
    found, problems = [], []
    for path in paths:
        shown = inventory_files.shown(path)
        if not path.is_file():
            problems.append(Problem(shown, 0, "", files.absence(path, site)))
            continue
        try:
            read = files.read(path)
        except ValueError as error:
            said = _IN_LINE.search(str(error))
            of_file = inventory_files.shown(getattr(error, "path", path))
            problems.append(Problem(of_file, int(said.group(1)) if said else 0, "", str(error)))
            continue
        stem = path.stem if path.parent == home else name
        found.append(lint.Release(shown, stem, read.content, read.places, {
            key: inventory_files.shown(path.parent / name) for key, name in read.places.parts.items()}))
    return found, problems


def contents_of(paths: list[pathlib.Path], known: set[str]) -> list[dict[str, Any]]:
    """Read release files but those that are known, by the names that sentences have, as far as they can be read."""
    found = []
    for path in (one for one in paths if inventory_files.shown(one) not in known):
        try:
            content = files.read(path, new_locks=True).content
        except ValueError:
            continue
        if "release" in content:
            found.append(content)
    return found


def thresholds_problems(values: Mapping[str, Any]) -> list[str]:
    """Find thresholds of nodes that the role node_health would refuse."""
    try:
        thresholds.check_settings(values.get(THRESHOLDS) or {}, {})
    except StackError as error:
        return ["'%s': %s" % (THRESHOLDS, error.message)]
    return []


def hooks_problems(values: Mapping[str, Any]) -> list[str]:
    """Find who is to be told of a release in a way that the module release_event would refuse."""
    try:
        event_hooks.read_hooks(values.get(HOOKS) or [])
    except StackError as error:
        return ["'%s': %s" % (HOOKS, error.message)]
    return []


def counted(number: int) -> str:
    """Count mistakes in words."""
    return "is a mistake" if number == 1 else "are %d mistakes" % number
