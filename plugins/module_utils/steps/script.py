# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write the shell script of a step. Pure."""

from __future__ import annotations

import shlex
from typing import Mapping

from ..modulefiles import site_system
from .network_refusals import NO_NETWORK
from .request import Request

_MODULE_CHECK = """
if ! type module >/dev/null 2>&1; then
    echo 'There is no module command in this shell; name the file that defines it in module_init.' >&2
    exit 1
fi
"""


def render_script(request: Request, digest: str, needs: Mapping[str, str]) -> str:
    """Write the step as a shell script that stands alone.

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
        if request.module_system:
            lines += site_system.requiring_lines(request.module_system)
        lines.append("module purge")
        lines += site_system.setup_lines(request.setup)
        for module in request.modules:
            if module.startswith("-"):
                lines += site_system.unloading_lines(module[1:])
                continue
            lines.append("module load %s || { echo %s >&2; exit 1; }" % (
                quote(module), quote("module load %s failed" % module)))
        lines.append("set -eu")
    elif request.setup:
        lines += ["", "set +eu", *site_system.setup_lines(request.setup), "set -eu"]
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
