# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A program made of parts of this collection, as one file that Python runs wherever it is copied to."""

from __future__ import annotations

import importlib.abc
import io
import zipfile
from types import ModuleType
from typing import Sequence, cast


def program_archive(main: str, parts: Sequence[ModuleType]) -> bytes:
    """A zip archive with a ``__main__.py``, as ``python archive.zip`` runs it (PEP 441).

    Args:
        main: source of ``__main__.py``.
        parts: modules of this collection that it imports, with all that they import; their sources are taken from
            wherever they were imported from, which on a target is Ansible's own archive.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as bundle:
        package = parts[0].__name__.split(".")[:-1]
        texts = {"/".join(package[:depth]) + "/__init__.py": "" for depth in range(1, len(package) + 1)}
        texts.update({part.__name__.replace(".", "/") + ".py": source_of(part) for part in parts})
        for name, text in {"__main__.py": main, **texts}.items():
            # Without the time of day, the same parts make the same bytes.
            bundle.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def source_of(part: ModuleType) -> str:
    """The text of a module, from wherever it was imported from."""
    source: str | bytes = cast(importlib.abc.InspectLoader, part.__loader__).get_source(part.__name__) or ""
    # Where collections are imported by Ansible's own loader, as by ansible-test, it gives bytes.
    return source.decode() if isinstance(source, bytes) else source
