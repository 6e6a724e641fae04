# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compose what roles know of a release, on the control node; the work is in module_utils/definition."""

from __future__ import annotations

from typing import Any, Callable, Mapping, cast

from ansible.errors import AnsibleActionFail
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import (
    context,
    machine_request,
    recorded,
    site_data,
    toolchain,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror.environment import mirror_context
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file as files
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.control_action import ControlAction, refuse


class ActionModule(ControlAction):
    """Checks a site's data against a release, and composes the context from both."""

    def find(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        """See :meth:`ControlAction.find`."""
        state = self._task.args.get("state")
        if state not in STATES:
            raise AnsibleActionFail("release_context: state is %r, which is none of %s." % (state, ", ".join(STATES)))
        try:
            return STATES[state](Request(self._task.args, submits=not self._task.check_mode))
        except KeyError as error:
            raise AnsibleActionFail("release_context: state %s needs %s." % (state, error)) from error


class Request:
    """The options of one task, with what follows from them whatever the state is."""

    def __init__(self, options: Mapping[str, Any], submits: bool) -> None:
        records = options["records"]
        self.options = options
        self.submits = submits
        self.specified = files.specified()
        self.records = dict(records, record=files.parse_record(records.get("content")))
        self.site = cast(site_data.Site, dict(options["site"]))
        self.definition: dict[str, Any] = dict(options.get("definition") or {})
        self.modules: dict[str, Any] = dict(options.get("modules") or {})

    def place(self) -> dict[str, Any]:
        """Describe where the release lies and in which state it is."""
        return context.describe_place(self.site, self.records, str(self.options.get("digest") or ""))

    def check_site(self) -> None:
        """Refuse data of the site that cannot be used."""
        refuse(site_data.problems(self.site, self.specified, self.definition, self.submits))


def check(asked: Request) -> dict[str, Any]:
    """Check the site's data; say which modules have to be asked what they set."""
    asked.check_site()
    place = asked.place()
    refuse(site_data.release_problems(asked.site, asked.definition, place["frozen"]))
    tools = toolchain.describe({} if place["frozen"] else asked.definition)
    return {
        "frozen": place["frozen"], "freezing": place["freezing"], "modules": tools["modules"],
        "setup": tools["setup"], "step_modules": toolchain.step_lists(tools)}


def plan(asked: Request) -> dict[str, Any]:
    """Say what is looked for on the machine."""
    frozen = asked.place()["frozen"]
    expanded = None if frozen else context.expand(asked.site, asked.definition, asked.modules)
    if expanded:
        refuse(expanded.problems)
    wanted = machine_request.request(
        asked.site, asked.specified, asked.definition, expanded.definition if expanded else {},
        asked.records["record"], frozen)
    environment = _modules_environment(asked.modules)
    return dict(wanted, expanded=expanded.definition if expanded else {}, modules_environment=environment)


def open_release(asked: Request) -> dict[str, Any]:
    """Compose the resolved release file and the context of a rollout."""
    place = asked.place()
    opened = asked.records["record"]
    if not place["frozen"]:
        options = asked.options
        opened = context.resolve_release(
            asked.site, asked.specified, asked.definition, options["series"], options["digest"], asked.modules,
            options["preflight"], int(options.get("image_bytes") or 0))
    rollout = {
        "mirror": mirror_context(asked.site["mirror"], asked.definition, asked.site["conda_channels"]),
        "modules_environment": _modules_environment(asked.modules)}
    return {"resolved": opened, "context": context.compose(asked.site, opened, place, rollout)}


def recall(asked: Request) -> dict[str, Any]:
    """Compose the context of a release that was opened before, from its records."""
    refuse([recorded.absence(asked.records, asked.site["release"], asked.site["root"])])
    asked.check_site()
    return {"context": context.compose(asked.site, asked.records["record"], asked.place())}


def _modules_environment(modules: Mapping[str, Any]) -> dict[str, str]:
    return toolchain.task_environment(modules["purged"], modules["loaded"]) if modules else {}


STATES: dict[str, Callable[[Request], dict[str, Any]]] = {
    "checked": check, "planned": plan, "opened": open_release, "recorded": recall}
