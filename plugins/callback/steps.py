# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Print a line for each step and event of a playbook, and nothing for what is as it has to be."""

from __future__ import annotations

DOCUMENTATION = r"""
name: steps
type: stdout
short_description: A line for each step and event
version_added: 0.2.0
author:
  - The hpcml.torchstack contributors (@hpcml)
description:
  - Prints a line for each build step that ran, for each other task that changed something, for warnings and failures,
    and what M(ansible.builtin.debug) says. Tasks that have nothing to do print nothing, and no task has a heading.
  - A summary is told without its details where nothing was changed.
  - A failure is told by its message, without the rest of the result, and once more in one line at the end.
  - After Ctrl-C while a step is built it says that the step goes on.
  - In check mode it leaves out what each task would do, as the plan at the end says it. C(--diff) shows that, too.
  - With C(-v) it prints what P(ansible.builtin.default#callback) prints.
extends_documentation_fragment:
  - default_callback
  - result_format_callback
requirements:
  - set as stdout in configuration
options:
  names_words:
    description: Whether messages name C(torchstack publish) where they say C(playbooks/publish.yml), as it is set by
      C(torchstack).
    type: bool
    default: false
    env:
      - name: TORCHSTACK_NAMES_WORDS
  names_site:
    description: The site that these words name; empty where they take it by themselves.
    type: str
    default: ""
    env:
      - name: TORCHSTACK_NAMES_SITE
"""

import atexit
from typing import Any

from ansible import constants as C
from ansible import context
from ansible.plugins.callback.default import CallbackModule as Default
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.lenient_json import text, texts
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.text import printable
from ansible_collections.hpcml.torchstack.plugins.module_utils.report import formatting
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.command.wording import as_typed

SAYS = ("ansible.builtin.debug", "debug")
PRINTED = ("stderr", "module_stderr", "stdout", "module_stdout")
MOST_PRINTED = 5
"""Lines of what a failed program has printed."""

DETAILS = "__summary_has_details"
"""A variable of a task whose message has indented lines, which are left out where nothing was changed."""

STEP = "hpcml.torchstack.build_step"
ENDED_EARLY = """Ended at: %s. A step that has begun goes on by itself, and the same command goes on from there.
Watch it: torchstack status -f, and torchstack logs -f. Stop it: docs/how-to/recover-a-stopped-rollout.md."""
"""Of a run that ends before its end, by Ctrl-C; of its own, torchstack says more."""

REPEATED_AFTER = 5
"""Lines after a failure from which on its cause is told again at the end."""


def sentence_of(found: dict[str, Any]) -> list[str]:
    """Return the message of a failed task, in lines, and the last ones of what its program printed."""
    said = _lines(found, "msg")
    if "rc" in found or not said:
        printed = next(filter(None, (_lines(found, key) for key in PRINTED)), [])
        said += printed[-MOST_PRINTED:]
    return said or ["It says nothing of why; -v shows its whole result."]


def _lines(found: dict[str, Any], key: str) -> list[str]:
    return [line for entry in texts(found.get(key)) for line in printable(entry).splitlines() if line.strip()]


def of_step(found: dict[str, Any]) -> str:
    """Say what a build step has done; empty where it had nothing to do."""
    name, state = text(found.get("step")), text(found.get("state"))
    if not found.get("changed") or state == "cached":
        # The action plugin has said of whom it was taken over.
        return ""
    if state == "done":
        return "%s  done in %s" % (name, formatting.duration(found.get("seconds")))
    return "%s  %s" % (name, state or "changed")


def without_role(name: str) -> str:
    """Return a task's name without that of the role, and the role's in short before it."""
    role, mark, own = name.partition(" : ")
    return "%s: %s" % (role.rpartition(".")[2], own) if mark else name


def rescued(task: Any) -> bool:
    """Tell whether a task stands in a block, or below one, whose ``rescue`` goes on after its failure."""
    child, parent = task, task._parent
    while parent is not None:
        if getattr(parent, "rescue", None):
            caught = {one._uuid for one in [*parent.rescue, *parent.always]}
            if child._uuid not in caught:
                return True
        child, parent = parent, parent._parent
    return False


class CallbackModule(Default):
    """Prints little; with -v all that Ansible's own does."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "hpcml.torchstack.steps"

    def __init__(self) -> None:
        super().__init__()
        self.failed: str = ""
        """the first line of what has ended the run first: what comes after may only follow from that"""
        self.since_failure = 0
        self.changed = False
        self.step = ""
        """the task of the step that is built now"""

    @property
    def brief(self) -> bool:
        """Whether this one prints, and not Ansible's."""
        return self._display.verbosity == 0

    def say(self, line: str, color: str | None = None) -> None:
        """Print a line."""
        self.since_failure += 1
        if self.get_option("names_words"):
            line = as_typed(line, self.get_option("names_site"))
        self._display.display(line, color=color)

    @staticmethod
    def found(result: Any) -> dict[str, Any]:
        """Return the result of a task, on every ansible-core."""
        given = result.result if hasattr(result, "result") else result._result
        return dict(given)

    def warn(self, result: Any) -> None:
        """Print the warnings of a result; not what Ansible says of a failure, which is told by its message."""
        self._handle_warnings(self.found(result))

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """See :class:`ansible.plugins.callback.CallbackBase`, as for all below."""
        if not self.brief:
            super().v2_playbook_on_start(playbook)
        elif not self.get_option("names_words"):
            # Ansible calls nothing after Ctrl-C. Its workers, which are forks, leave without this.
            atexit.register(self.end_early)

    def end_early(self) -> None:
        """Say what goes on where the run ends while a step is built."""
        if self.step and not context.CLIARGS.get("check"):
            for line in (ENDED_EARLY % self.step).splitlines():
                self.say(line)

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Print its name."""
        if not self.brief:
            super().v2_playbook_on_play_start(play)
            return
        self._play = play
        name = play.get_name().strip()
        if name:
            self.say("%s%s" % (name, " (check mode: nothing is changed)" if context.CLIARGS.get("check") else ""))

    def _task_start(self, task: Any, prefix: str | None = None) -> None:
        self.step = without_role(task.get_name().strip()) if task.action == STEP else ""
        if not self.brief:
            super()._task_start(task, prefix)

    def v2_playbook_on_include(self, included_file: Any) -> None:
        """Print nothing."""
        if not self.brief:
            super().v2_playbook_on_include(included_file)

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Print nothing."""
        if not self.brief:
            super().v2_runner_on_skipped(result)

    def v2_runner_item_on_skipped(self, result: Any) -> None:
        """Print nothing."""
        if not self.brief:
            super().v2_runner_item_on_skipped(result)

    def v2_runner_retry(self, result: Any) -> None:
        """Print nothing."""
        if not self.brief:
            super().v2_runner_retry(result)

    def v2_runner_on_ok(self, result: Any) -> None:
        """Print what it says, has built or changed."""
        if not self.brief:
            super().v2_runner_on_ok(result)
            return
        found, task = self.found(result), result._task
        self.changed = self.changed or bool(found.get("changed"))
        self.warn(result)
        if task.action in SAYS:
            if not found.get("results"):
                self.tell(found, without_details=DETAILS in task.vars and not self.changed)
        elif "step" in found and "digest" in found:
            if not context.CLIARGS.get("check") and of_step(found):
                self.say(of_step(found), C.COLOR_CHANGED)
        elif found.get("changed") and not context.CLIARGS.get("check"):
            self.say(without_role(task.get_name().strip()), C.COLOR_CHANGED)

    def v2_runner_item_on_ok(self, result: Any) -> None:
        """Print what it says; what was changed is told of all items together."""
        if not self.brief:
            super().v2_runner_item_on_ok(result)
        elif result._task.action in SAYS:
            self.tell(self.found(result))

    def tell(self, found: dict[str, Any], without_details: bool = False) -> None:
        """Print the message of a debug task, or its variables."""
        if "msg" in found:
            lines = [line for entry in texts(found["msg"]) for line in entry.splitlines()]
            for line in lines:
                if not (without_details and line.startswith("  ")):
                    self.say(line)
        else:
            self.say(self._dump_results({key: value for key, value in found.items() if not key.startswith("_")}))

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Print the message."""
        if not self.brief:
            super().v2_runner_on_failed(result, ignore_errors)
            return
        found = self.found(result)
        self.warn(result)
        if ignore_errors:
            return
        if found.get("results") and result._task.loop:
            # Each item has told its own.
            return
        self.fail("Failed", result, found)

    def v2_runner_item_on_failed(self, result: Any) -> None:
        """Print the message of one item."""
        if not self.brief:
            super().v2_runner_item_on_failed(result)
        elif not result._task.ignore_errors:
            self.fail("Failed", result, self.found(result))

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Print why."""
        if not self.brief:
            super().v2_runner_on_unreachable(result)
        else:
            self.fail("%s cannot be reached" % result._host.get_name(), result, self.found(result), False)

    def fail(self, what: str, result: Any, found: dict[str, Any], may_go_on: bool = True) -> None:
        """Print a failure, and keep the first one that nothing goes on after."""
        lines = sentence_of(found)
        self.say("%s: %s" % (what, without_role(result._task.get_name().strip())), C.COLOR_ERROR)
        for line in lines:
            self.say("  " + line, C.COLOR_ERROR)
        if not self.failed and not (may_go_on and rescued(result._task)):
            self.failed, self.since_failure = lines[0], 0

    def v2_on_file_diff(self, result: Any) -> None:
        """Print differences, where they are asked for, below the name of their task."""
        if not self.brief:
            super().v2_on_file_diff(result)
            return
        found = self.found(result)
        entries = found["results"] if result._task.loop and "results" in found else [found]
        shown = [self._get_diff(entry["diff"]) for entry in entries if entry.get("diff") and entry.get("changed")]
        if any(shown):
            self.say(without_role(result._task.get_name().strip()), C.COLOR_CHANGED)
            self._display.display("\n".join(filter(None, shown)))

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Print the counts in a line for each host, and last why it failed, unless that stands just above."""
        self.step = ""
        if not self.brief:
            super().v2_playbook_on_stats(stats)
            return
        bad = False
        for host in sorted(stats.processed):
            own = stats.summarize(host)
            bad = bad or bool(own["failures"] or own["unreachable"])
            self.say("%s : ok=%d changed=%d unreachable=%d failed=%d" % (
                host, own["ok"], own["changed"], own["unreachable"], own["failures"]))
        if bad and self.failed and self.since_failure > REPEATED_AFTER:
            self.say("The cause, as above: " + self.failed, C.COLOR_ERROR)
