# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The modulefiles of a dress, in Lua for Lmod and in Tcl for Environment Modules."""

from __future__ import annotations

import json
from collections.abc import Callable

from .dress_data import Dress, Module


def rendered(dress: Dress) -> dict[str, str]:
    """Render the modulefiles of a dress by path, relative to the root."""
    return {
        "%s/%s%s" % (module.tree.strip("/"), module.name, suffix): render(module)
        for module in dress.modules for suffix, render in (RENDERERS[syntax] for syntax in dress.syntaxes)
    }


def in_lua(module: Module) -> str:
    """Render a module for Lmod."""
    lines = ["whatis(%s)" % json.dumps("Name: " + module.name.rpartition("/")[0])]
    if module.family:
        lines.append("family(%s)" % json.dumps(module.family))
    if module.one_of:
        loaded = " or ".join("isloaded(%s)" % json.dumps(name) for name in module.one_of)
        refused = "  LmodError(%s)" % json.dumps(_needs(module))
        lines += ['if mode() == "load" and not (%s) then' % loaded, refused, "end"]
    lines += ["%s(%s)" % ("load" if "/" in name else "try_load", json.dumps(name)) for name in module.load]
    lines += ["setenv(%s, %s)" % (json.dumps(name), json.dumps(value)) for name, value in module.set.items()]
    lines += ["prepend_path(%s, %s)" % (json.dumps(name), json.dumps(value)) for name, value in module.prepend.items()]
    return "\n".join(lines) + "\n"


def in_tcl(module: Module) -> str:
    """Render a module for Environment Modules."""
    lines = ["#%Module1.0", "module-whatis %s" % _in_braces("Name: " + module.name.rpartition("/")[0])]
    if module.family:
        lines.append("family %s" % module.family)
    if module.one_of:
        loaded = " && ".join("![is-loaded %s]" % name for name in module.one_of)
        refused = "  puts stderr %s\n  break" % _in_braces(_needs(module))
        lines += ["if {[module-info mode load] && %s} {" % loaded, refused, "}"]
    for name in module.load:
        lines.append("module load %s" % name if "/" in name else "if {[is-avail %s]} {module load %s}" % (name, name))
    lines += ["setenv %s %s" % (name, _in_braces(value)) for name, value in module.set.items()]
    lines += ["prepend-path %s %s" % (name, _in_braces(value)) for name, value in module.prepend.items()]
    return "\n".join(lines) + "\n"


def _needs(module: Module) -> str:
    return "%s needs one of these to be loaded first: %s" % (module.name.rpartition("/")[0], ", ".join(module.one_of))


def _in_braces(text: str) -> str:
    """Quote a text for Tcl, which reads nothing into what stands in braces."""
    return "{%s}" % text


RENDERERS: dict[str, tuple[str, Callable[[Module], str]]] = {"lua": (".lua", in_lua), "tcl": ("", in_tcl)}
"""Syntax to the suffix of its files and who renders them."""
