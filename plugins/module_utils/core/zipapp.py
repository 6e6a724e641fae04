# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Pack a program of this collection as one file that Python runs wherever it is copied to."""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import io
import re
import zipfile
from types import ModuleType
from typing import Iterator, cast

_RELATIVE = re.compile(r"^ *from (\.+)([\w.]*) import (\([^)]*\)|[^(\n]+)", re.MULTILINE)
_MAIN = """import sys
from %s import main
sys.exit(main(sys.argv[1:]))
"""


def program_archive(program: ModuleType) -> bytes:
    """Pack a program, by its ``main(arguments)``, with all that it imports of this collection (PEP 441).

    Sources are taken from wherever the modules were imported from, which on a target is Ansible's own archive.
    """
    parts: dict[str, str] = {}
    _add(program, parts)
    packages = {"/".join(path.split("/")[:depth]) for path in parts for depth in range(1, path.count("/") + 1)}
    texts = {"__main__.py": _MAIN % program.__name__, **{path + "/__init__.py": "" for path in packages}, **parts}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name in sorted(texts):
            # Without the time of day, the same parts make the same bytes.
            bundle.writestr(zipfile.ZipInfo(name), texts[name], zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _add(part: ModuleType, parts: dict[str, str]) -> None:
    """Add the source of a module by its path, and those of the modules that it imports."""
    path = part.__name__.replace(".", "/") + ".py"
    if path in parts:
        return
    parts[path] = source_of(part)
    for module in _imported(part.__name__, parts[path]):
        _add(module, parts)


def _imported(name: str, source: str) -> Iterator[ModuleType]:
    """Import the modules that a module of this collection imports relatively, wherever it does so.

    Every step that starts looks so at the parts of its supervisor; parsing them takes longer than the start.
    """
    for dots, module, names in _RELATIVE.findall(source):
        above = name.split(".")[:-len(dots)]
        found = importlib.import_module(".".join([*above, *filter(None, [module])]))
        if hasattr(found, "__path__"):
            words = [alias.split() for alias in re.sub("#.*", "", names).strip("() \n").split(",")]
            yield from (importlib.import_module("%s.%s" % (found.__name__, alias[0])) for alias in words if alias)
        else:
            yield found


def program_text(program: ModuleType) -> str:
    """Join a program and what it imports relatively into one text, which needs no file beside it.

    Each module stands where it is first imported from, whole; names are not made unique.
    """
    return _joined(program, set())


def _joined(part: ModuleType, seen: set[str]) -> str:
    lines = source_of(part).splitlines(keepends=True)
    for node in reversed(ast.parse("".join(lines)).body):
        if not isinstance(node, ast.ImportFrom):
            continue
        place = slice(node.lineno - 1, node.end_lineno)
        if node.level:
            (found,) = _imported(part.__name__, "".join(lines[place]))
            text = "" if found.__name__ in seen else _joined(found, seen)
            seen.add(found.__name__)
            lines[place] = [text.replace("from __future__ import annotations\n", "")]
    return "".join(lines)


def source_of(part: ModuleType) -> str:
    """Return the text of a module, from wherever it was imported from."""
    source: str | bytes = cast(importlib.abc.InspectLoader, part.__loader__).get_source(part.__name__) or ""
    # Where collections are imported by Ansible's own loader, as by ansible-test, it gives bytes.
    return source.decode() if isinstance(source, bytes) else source
