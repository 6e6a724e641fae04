# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Build steps as data: what is asked for, its digest, its script, its records on disk, and what is to be done. Pure.

Nothing here starts a process or writes a file.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import shlex
from typing import NamedTuple

from ..batch.outcomes import describe_end
from ..core.canonical import digest_of
from ..core.errors import StackError
from ..core.redaction import (
    credential_in,
    named_credential,
    redacted_data,
)
from .own_place import OwnPlace, place_of, placeless

SCHEMA = 1
"""Version of the digest's recipe; a change of it builds every step again."""

PLANNED = "planned_after"
"""An input ``{"planned_after": "<step>"}`` stands for a value that only exists after that step."""

NO_NETWORK = "TORCHSTACK_NO_NETWORK"
"""Variable with shell text by which a script without network sets the proxy variables again, after loading modules.

A module may set a proxy. It is empty when a script is run by hand, which leaves it the network.
"""

_STEP_NAME = re.compile(r"[a-z0-9_][a-z0-9._-]*\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_TIME = "%Y-%m-%dT%H:%M:%SZ"


class StepFiles(NamedTuple):
    """Where a step keeps its records."""

    name: str
    directory: str

    def path(self, name: str) -> str:
        """A file of the step's directory."""
        return os.path.join(self.directory, name)

    @property
    def script(self) -> str:
        """The shell script that an operator can read and run by hand."""
        return self.path("script.sh")

    @property
    def inputs(self) -> str:
        """What the digest was made of."""
        return self.path("inputs.json")

    @property
    def log(self) -> str:
        """Everything that all attempts printed."""
        return self.path("log")

    @property
    def exit(self) -> str:
        """How the last attempt ended."""
        return self.path("exit")

    @property
    def result(self) -> str:
        """What the step has produced, file by file."""
        return self.path("result.json")

    @property
    def own(self) -> str:
        """Left by a script that has made something that no other release should get."""
        return self.path("keep-to-itself")

    @property
    def again(self) -> str:
        """There while the step has to run by itself, whatever another release has."""
        return self.path("again")

    @property
    def stamp(self) -> str:
        """Written last, and only after success."""
        return self.path("stamp.json")

    @property
    def job(self) -> str:
        """Who runs the step, or ran it last."""
        return self.path("job.json")

    @property
    def by_hand(self) -> str:
        """The command that repeats the step by hand."""
        return "bash " + shlex.quote(self.script)


class Request(NamedTuple):
    """One step as it is asked for, checked by :func:`check_request`."""

    files: StepFiles
    script: str
    chdir: str | None
    modules: list[str]
    module_init: str | None
    environment: dict[str, str]
    unset: list[str]
    inputs: object
    needs: list[str]
    creates: list[str]
    network: bool = True
    secrets: tuple[str, ...] = ()
    produces: tuple[str, ...] = ()
    judged_by: tuple[str, ...] = ()
    foundation: bool = False
    places: str = ""
    """digest of where pip looks for packages, for a step that fetches some"""

    @property
    def place(self) -> OwnPlace:
        """The release that the step belongs to."""
        return place_of(os.path.dirname(self.files.directory))


def utc(seconds: float) -> str:
    """Seconds since 1970 as the records spell them: 2026-11-20T23:11:48Z."""
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime(_TIME)


def seconds_of(text: str) -> float:
    """The inverse of :func:`utc`."""
    return datetime.datetime.strptime(text, _TIME).replace(tzinfo=datetime.timezone.utc).timestamp()


def step_files(state_dir: str, name: str) -> StepFiles:
    """The records of step ``name`` below ``state_dir``.

    Raises:
        StackError: the name could not be a directory of its own.
    """
    if not _STEP_NAME.match(name):
        raise StackError(
            "The step name %r is not usable." % name,
            "options",
            "Use lower-case letters, digits, dot, dash and underscore, and start with a letter, digit or underscore.",
        )
    if not os.path.isabs(state_dir):
        raise StackError("state_dir %r is not an absolute path." % state_dir, "options", "Give it from the root.")
    return StepFiles(name, os.path.join(state_dir, name))


def _text(value: object, what: str) -> str:
    """``value`` if it can stand in a script and in JSON."""
    text = str(value)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise StackError("%s is not valid UTF-8." % what, "options", "Write it in UTF-8.") from None
    if "\0" in text:
        raise StackError("%s holds a NUL character." % what, "options", "A shell script cannot hold one.")
    return text


def _variable(name: object) -> str:
    if not _VARIABLE.match(str(name)):
        raise StackError("%r is not the name of an environment variable." % name, "options", "Correct the name.")
    return str(name)


def _value(name: str, value: object) -> str:
    # YAML turns ON into true and 2.10 into 2.1: guessing here would build the wrong thing silently.
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise StackError(
            "environment: the value of %s is %r, which is not text." % (name, value), "options", "Put it in quotes."
        )
    return _text(value, "environment: %s" % name)


def check_request(params: dict) -> Request:
    """The step that the module's options describe.

    Raises:
        StackError: an option cannot be used as it is; nothing has been touched.
    """
    files = step_files(params["state_dir"], params["name"])
    chdir = params.get("chdir")
    if chdir is not None and not os.path.isabs(chdir):
        raise StackError("chdir %r is not an absolute path." % chdir, "options", "Give it from the root.")
    creates, produces = _paths(params, "creates", chdir), _paths(params, "produces", chdir)
    needs, judged_by = list(params.get("needs") or []), tuple(params.get("judged_by") or ())
    for need in needs:
        if need == files.name or not _STEP_NAME.match(need):
            raise StackError("Step %s cannot need %r." % (files.name, need), "options", "Name other steps.")
    if judged_by and (produces or not set(judged_by) <= set(needs)):
        raise StackError(
            "Step %s cannot be judged by %s." % (files.name, " and ".join(judged_by)), "options",
            "Remove produces." if produces else "Name steps that are in its needs.",
        )
    environment = {_variable(key): _value(key, value) for key, value in (params.get("environment") or {}).items()}
    secrets = tuple(sorted({_variable(name) for name in params.get("secrets") or []}))
    for name in secrets:
        if name in environment:
            raise StackError(
                "Step %s has %s in environment and in secrets." % (files.name, name), "options",
                "Name it in secrets only, and give its value in the environment of the task.",
            )
    modules = [_text(module, "modules") for module in params.get("modules") or []]
    module_init = params.get("module_init")
    _refuse_credentials(files.name, params, environment)
    return Request(
        files,
        _text(params["script"], "script"),
        None if chdir is None else _text(chdir, "chdir"),
        modules,
        None if module_init is None else _text(module_init, "module_init"),
        environment,
        sorted({_variable(name) for name in params.get("unset") or []}),
        params.get("inputs"),
        needs,
        creates,
        params.get("network", True),
        secrets,
        tuple(produces),
        judged_by,
        bool(params.get("foundation")),
    )


def _paths(params: dict, key: str, chdir: str | None) -> list[str]:
    paths = [_text(path, key) for path in params.get(key) or []]
    for path in paths:
        if not os.path.isabs(path) and chdir is None:
            raise StackError("%s: %r is relative, and there is no chdir." % (key, path), "options", "Give either.")
    return paths


def _refuse_credentials(name: str, params: dict, environment: dict[str, str]) -> None:
    """Refuse what would be a secret in script.sh, which everybody may read."""
    told = [(key, credential_in(value) or named_credential(key, value)) for key, value in environment.items()]
    told += [(key, credential_in(str(params.get(key) or ""))) for key in ("script", "module_init", "chdir")]
    told += [("creates", credential_in(str(path))) for path in params.get("creates") or []]
    for key, what in told:
        if what:
            raise StackError(
                "Step %s has %s in %s, and everybody may read its script." % (name, what, key), "options",
                "Name a variable in secrets and use it, or let the program read a file such as ~/.netrc.",
            )


def created_paths(request_or_facts: Request | dict) -> list[str]:
    """The paths of ``creates`` and ``produces``, from the root; relative ones start at ``chdir``."""
    if isinstance(request_or_facts, dict):
        chdir, creates = request_or_facts["chdir"], request_or_facts["creates"]
    else:
        chdir, creates = request_or_facts.chdir, request_or_facts.creates
    paths = [os.path.join(chdir or "/", path) for path in creates]
    return [*paths, *(path for path in produced_paths(request_or_facts) if path not in paths)]


def produced_paths(request_or_facts: Request | dict) -> list[str]:
    """The paths of ``produces``, from the root."""
    if isinstance(request_or_facts, dict):
        chdir, produces = request_or_facts["chdir"], request_or_facts.get("produces", [])
    else:
        chdir, produces = request_or_facts.chdir, request_or_facts.produces
    return [os.path.normpath(os.path.join(chdir or "/", path)) for path in produces]


def step_facts(request: Request, needs: dict[str, str]) -> dict:
    """Everything that a step's result depends on, and nothing else.

    The step's name is not part of it, nor are the names of the steps it needs: only their results are. Time limits,
    launcher, cache and the place of the records are left out, because they do not change what is built. The order of
    modules and of ``creates`` counts, the order of unset variables does not. That a step has no network is part of it,
    and so are the names of its secrets; their values are not.

    Args:
        request: the step.
        needs: what it is judged by of each step it needs, by name (see :func:`counted`).
    """
    facts = {
        "schema": SCHEMA,
        "script": request.script,
        "chdir": request.chdir,
        "modules": request.modules,
        "module_init": request.module_init,
        "environment": request.environment,
        "unset": request.unset,
        "inputs": request.inputs,
        "creates": request.creates,
        "needs": sorted(needs.values()),
    }
    if request.produces:
        facts["produces"] = list(request.produces)
    if request.places:
        facts["places"] = request.places
    # Only then: the digests of steps from before there was a choice stay what they were.
    if not request.network:
        facts["network"] = False
    if request.secrets:
        facts["secrets"] = list(request.secrets)
    return facts


def step_record(request: Request, digest: str | None, needs: dict[str, str]) -> dict:
    """What inputs.json holds: the facts with every credential in ``inputs`` masked, which nothing reads again."""
    facts = step_facts(request, needs)
    return {"digest": digest, "facts": dict(facts, inputs=redacted_data(facts["inputs"])), "needs": needs}


def step_digest(request: Request, needs: dict[str, str]) -> str:
    """The digest of a step: that of its facts without the place of its release, as :func:`counted` says of its needs.

    Raises:
        StackError: the inputs are not plain data.
    """
    return digest_of(dict(placeless(step_facts(request, needs), request.place)))  # type: ignore[call-overload]


def pending_input(inputs: object) -> str | None:
    """The step that an input waits for (see :data:`PLANNED`), or None when all inputs are known."""
    if isinstance(inputs, dict):
        if set(inputs) == {PLANNED}:
            return str(inputs[PLANNED])
        inputs = list(inputs.values())
    if isinstance(inputs, (list, tuple)):
        for item in inputs:
            found = pending_input(item)
            if found is not None:
                return found
    return None


_MODULE_CHECK = """
if ! type module >/dev/null 2>&1; then
    echo 'There is no module command in this shell; name the file that defines it in module_init.' >&2
    exit 1
fi
"""


def render_script(request: Request, digest: str, needs: dict[str, str]) -> str:
    """The step as a shell script that stands alone.

    Module systems are not written for ``set -eu``: it is suspended around them, and each load is checked by itself.
    """
    quote = shlex.quote
    lines = [
        "#!/bin/bash",
        "# Build step %s, digest %s." % (request.files.name, digest),
        *("# Built on step %s, result %s." % item for item in sorted(needs.items())),
        "# Written by hpcml.torchstack.build_step. It is the whole recipe: read it, or run it by hand with bash.",
        "",
        "set -euo pipefail",
        "umask 022",
        "unset BASH_ENV ENV CDPATH",
    ]
    if request.modules or request.module_init:
        lines += ["", "set +eu"]
        if request.module_init:
            if request.module_init.startswith("/") and "\n" not in request.module_init:
                lines.append("test -r %s || { echo %s >&2; exit 1; }" % (
                    quote(request.module_init), quote("module_init %s cannot be read" % request.module_init)))
                lines.append(". " + quote(request.module_init))
            else:
                lines.append(request.module_init)
        lines += _MODULE_CHECK.strip("\n").split("\n")
        lines.append("module purge")
        for module in request.modules:
            lines.append("module load %s || { echo %s >&2; exit 1; }" % (
                quote(module), quote("module load %s failed" % module)))
        lines.append("set -eu")
    if request.secrets:
        lines += ["", "# Secrets of whoever runs this; their values are written nowhere."]
        lines += [': "${%s:?is not set}"' % name for name in request.secrets]
    if request.unset:
        lines += ["", "unset -v " + " ".join(request.unset)]
    if request.environment:
        lines.append("")
        lines += ["export %s=%s" % (key, quote(value)) for key, value in sorted(request.environment.items())]
    if not request.network:
        lines += [
            "", "# Without network: a download is refused and named, whatever proxies a module set.",
            'eval "${%s:-}"' % NO_NETWORK,
        ]
    lines += ["", "cd -- %s" % (quote(request.chdir) if request.chdir else '"$(dirname -- "${BASH_SOURCE[0]}")"'), ""]
    return "\n".join(lines) + "\n" + request.script.rstrip("\n") + "\n"


def describe_inputs(record: dict | None, script: str | None) -> str:
    """Inputs and script of a step as one text, for a difference that people read."""
    parts = []
    if record is not None:
        facts = {key: value for key, value in record["facts"].items() if key not in ("script", "schema", "needs")}
        facts["needs"] = record["needs"]
        parts.append(json.dumps(facts, indent=2, sort_keys=True, ensure_ascii=False))
    if script is not None:
        parts.append(script.rstrip("\n"))
    return "".join(part + "\n" for part in parts)


def is_stamped(stamp: object, digest: str) -> bool:
    """Whether the step has succeeded for exactly this digest."""
    return isinstance(stamp, dict) and stamp.get("digest") == digest


def resume_reason(name: str, standing: str, job: dict | None, outcome: dict | None, missing: list[str]) -> str | None:
    """Why a step runs although an attempt was made before, as one sentence; None for a first attempt.

    Args:
        name: the step.
        standing: how the last job stands (see :mod:`.jobs`).
        job: its record.
        outcome: the record of how it ended, when there is one.
        missing: paths of a stamped step that have gone since.
    """
    if missing:
        return "%s was complete, but %s is gone" % (name, ", ".join(missing))
    if job is None:
        return None
    where = "(host %s, pid %s, started %s)" % (job["host"], job.get("pid") or "unknown", job["started"])
    if standing == "rebooted":
        return "the machine rebooted while %s was running %s; resumed" % (name, where)
    if standing == "leftover":
        return "the supervisor of %s was killed %s; what was left of it was stopped; resumed" % (name, where)
    if standing == "unsubmitted":
        return "the controller of %s ended before its job was submitted (host %s, started %s); resumed" % (
            name, job["host"], job["started"])
    if standing == "killed":
        return "%s was killed %s; resumed" % (name, where)
    if outcome is not None and outcome["reason"] != "done":
        return "the last attempt failed: %s" % describe_outcome(name, outcome)
    return None


def describe_status(status: int) -> dict:
    """The outcome that a wait status stands for."""
    if os.WIFSIGNALED(status):
        return {"reason": "signal", "signal": os.WTERMSIG(status)}
    code = os.WEXITSTATUS(status)
    return {"reason": "exit" if code else "done", "code": code}


def describe_outcome(name: str, outcome: dict) -> str:
    """How an attempt ended, as the beginning of a sentence."""
    reason = outcome["reason"]
    if "scheduler" in outcome:
        return describe_end(name, outcome)
    if reason == "exit":
        return "step %s failed with exit code %d" % (name, outcome["code"])
    if reason == "signal":
        return "step %s was ended by signal %d" % (name, outcome["signal"])
    if reason == "timeout":
        return "step %s was stopped after %g s (timeout)" % (name, outcome["limit"])
    if reason == "no_output_timeout":
        return "step %s printed nothing for %g s and was stopped (no_output_timeout)" % (name, outcome["limit"])
    if reason == "stopped":
        return "step %s was stopped: its supervisor was asked to by signal %d" % (name, outcome["signal"])
    if reason == "creates":
        return "step %s exited with 0, but did not create %s" % (name, ", ".join(outcome["missing"]))
    if reason == "tmpdir":
        return "step %s has no place for temporary files: %s on %s: %s" % (
            name, outcome["place"], outcome["host"], outcome["error"])
    if reason == "needs":
        return "step %s is built on %s, which was run again meanwhile" % (name, ", ".join(outcome["outdated"]))
    return "step %s could not be recorded: %s" % (name, outcome["error"])
