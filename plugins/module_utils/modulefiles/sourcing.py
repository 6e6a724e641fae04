# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Source start-up files and the set-up of a toolchain in bash, and return the environment after them."""

from __future__ import annotations

import os
import shlex
from typing import Mapping, Sequence

from ..core.errors import StackError
from . import site_system
from .module_system import run_module_command

_SHELL_OWN = ("_", "SHLVL", "PWD", "OLDPWD")


def source_init(environment: Mapping[str, str], files: Sequence[str], timeout: float, text: str = "") -> dict[str, str]:
    """Return the environment after bash has read start-up files, whatever they print, and then ``text``, in it.

    Raises StackError: a file is missing, or bash did not get to the end.
    """
    step = "init"
    for path in files:
        if not os.path.isfile(path):
            raise StackError("The start-up file %s does not exist." % path, step, "Correct init.", path)
    script = 'for torchstack_init in "$@"; do . "$torchstack_init"; done >&2; %sexec env -0' % (
        "{\n%s\n} >&2\n" % text if text else "")
    code, output, errors = run_module_command(
        ("/bin/bash", "--noprofile", "--norc", "-c", script, "init", *files), environment, timeout, step)
    if code or not output:
        raise StackError(
            "bash ended with exit status %d while it read %s: %s" % (
                code, ", ".join(files) or "the text of init_script",
                " ".join(errors.decode("utf-8", "replace").split())[-300:],
            ), step, "Run it by hand: bash --noprofile --norc -c '. FILE; env'.")
    return _without_own(output, environment)


def _without_own(output: bytes, environment: Mapping[str, str]) -> dict[str, str]:
    """Return what ``env -0`` has printed, without what is the shell's own."""
    pairs = (entry.decode("utf-8", "surrogateescape").partition("=") for entry in output.split(b"\0") if entry)
    after = {name: value for name, _equals, value in pairs if name not in _SHELL_OWN}
    after.update((name, environment[name]) for name in _SHELL_OWN if name in environment)
    return after


def source_setup(
    environment: Mapping[str, str], defining: Sequence[str], setup: str, use: Sequence[str], purge: bool, timeout: float
) -> dict[str, str]:
    """Return the environment after a toolchain's set-up, which may call ``module``, as a build step sources it.

    Args:
        defining: lines of bash that define ``module``; none where nothing does.
        use: directories, the first of which is searched first.

    Raises:
        StackError: its last command failed, or bash did not get to the end.
    """
    step = "setup"
    modules = ["module use " + shlex.quote(directory) for directory in reversed(use)]
    modules += ["module purge"] if purge else []
    lines = [
        "exec 3>&1 >&2", *defining, *(modules if defining else []), *site_system.setup_lines(setup), "exec env -0 >&3"]
    code, output, errors = run_module_command(
        ("/bin/bash", "--noprofile", "--norc", "-c", "\n".join(lines)), environment, timeout, step)
    if code or not output:
        said = " ".join(errors.decode("utf-8", "replace").split())[-300:]
        raise StackError(
            "The set-up of the toolchain ended with exit status %d: %s" % (code, said or "it said nothing"), step,
            "Run it by hand in a plain shell; its last command has to succeed.")
    return _without_own(output, environment)
