# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check what is asked of a step. Pure."""

from __future__ import annotations

import os
import re
from typing import Any, Mapping, NamedTuple

from ..core.errors import StackError
from ..core.redaction import credential_in, named_credential
from .files import STEP_NAME, StepFiles, absolute_paths, step_files
from .own_place import OwnPlace, place_of

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


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
    module_system: str = ""
    """whose ``module`` has to be; empty for any"""
    setup: str = ""
    """what is sourced before modules are loaded: shell text, or the absolute path of a file"""
    private_logs: bool = False
    """whether the records of a step with secrets are their owner's only"""

    @property
    def place(self) -> OwnPlace:
        """The release that the step belongs to."""
        return place_of(os.path.dirname(self.files.directory))

    @property
    def produced_paths(self) -> list[str]:
        """The paths of ``produces``, from the root."""
        return absolute_paths(self.produces, self.chdir, normal=True)

    @property
    def created_paths(self) -> list[str]:
        """The paths of ``creates`` and ``produces``, from the root."""
        paths = absolute_paths(self.creates, self.chdir)
        return [*paths, *(path for path in self.produced_paths if path not in paths)]


def _text(value: object, what: str) -> str:
    """Return ``value`` as text if it can stand in a script and in JSON."""
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


def check_request(params: Mapping[str, Any]) -> Request:
    """Check the options of the module, and return the step that they describe; StackError: one cannot be used."""
    files = step_files(params["state_dir"], params["name"])
    chdir = params.get("chdir")
    if chdir is not None and not os.path.isabs(chdir):
        raise StackError("chdir %r is not an absolute path." % chdir, "options", "Give it from the root.")
    creates, produces = _paths(params, "creates", chdir), _paths(params, "produces", chdir)
    needs, judged_by = list(params.get("needs") or []), tuple(params.get("judged_by") or ())
    for need in needs:
        if need == files.name or not STEP_NAME.match(need):
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
        files, _text(params["script"], "script"), None if chdir is None else _text(chdir, "chdir"), modules,
        None if module_init is None else _text(module_init, "module_init"), environment,
        sorted({_variable(name) for name in params.get("unset") or []}), params.get("inputs"), needs, creates,
        params.get("network", True), secrets, tuple(produces), judged_by, bool(params.get("foundation")),
        module_system=params.get("module_system") or "", setup=_text(params.get("setup") or "", "setup"),
        private_logs=bool(params.get("private_logs")),
    )


def _paths(params: Mapping[str, Any], key: str, chdir: str | None) -> list[str]:
    paths = [_text(path, key) for path in params.get(key) or []]
    for path in paths:
        if not os.path.isabs(path) and chdir is None:
            raise StackError("%s: %r is relative, and there is no chdir." % (key, path), "options", "Give either.")
    return paths


def _refuse_credentials(name: str, params: Mapping[str, Any], environment: dict[str, str]) -> None:
    """Refuse what would be a secret in script.sh, which everybody may read."""
    found = [(key, credential_in(value) or named_credential(key, value)) for key, value in environment.items()]
    found += [(key, credential_in(str(params.get(key) or ""))) for key in ("script", "module_init", "setup", "chdir")]
    found += [("creates", credential_in(str(path))) for path in params.get("creates") or []]
    for key, what in found:
        if what:
            raise StackError(
                "Step %s has %s in %s, and everybody may read its script." % (name, what, key), "options",
                "Name a variable in secrets and use it, or let the program read a file such as ~/.netrc.",
            )
