# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""List what a PyTorch from source has of others: the sources compiled into it, and the libraries of the system."""

from __future__ import annotations

import fnmatch
import os
from typing import Any, Mapping

from ..core.lenient_json import mapping, text
from ..core.redaction import without_credentials

_LIBRARIES = "*/torch/lib/*"
_OF_THE_C_LIBRARY = ("ld-linux*", "libc.so*", "libdl.so*", "libm.so*", "libpthread.so*", "librt.so*", "libutil.so*")


def parts(build: Mapping[str, Any], components: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """List the parts of a PyTorch that was built from source; of another one there are none.

    Args:
        build: the records of the release's build.
        components: those of the release, of which the site's have a ``place``.

    Returns:
        By ``key``, as :func:`.installed_components.components` has it: ``git`` for each submodule of its source,
        ``site`` for each library outside of the release that its own libraries need, but for the C library and for
        what is in the place of a component.
    """
    made = mapping(mapping(build.get("pytorch")).get("build"))
    if not made:
        return []
    urls = mapping(made.get("submodule_urls"))
    # In records of earlier versions git's letter for the state, a blank, stands before the commit.
    commits = {path: text(commit).strip() for path, commit in sorted(mapping(made.get("submodules")).items())}
    sources = [
        {"key": "pytorch/" + path, "name": os.path.basename(path), "kind": "git", "version": commit[:12],
         "commit": commit, "url": without_credentials(text(urls.get(path)))}
        for path, commit in commits.items() if commit]
    return sources + _system_libraries(mapping(build.get("verification")), components)


def _system_libraries(verification: Mapping[str, Any], components: list[dict[str, Any]]) -> list[dict[str, Any]]:
    known = [one["place"] + "/" for one in components if one.get("place", "").startswith("/")]
    found: dict[str, str] = {}
    for path, entry in mapping(verification.get("objects")).items():
        if fnmatch.fnmatchcase(path, _LIBRARIES):
            for soname, resolved in mapping(mapping(entry).get("needed")).items():
                place = text(mapping(resolved).get("path"))
                if place.startswith("/") and not place.startswith(tuple(known)):
                    found[soname] = place
    return [
        {"key": "pytorch/" + soname, "name": soname.partition(".so")[0], "kind": "site", "place": place,
         "version": soname.partition(".so.")[2] or "0"}
        for soname, place in sorted(found.items())
        if not any(fnmatch.fnmatchcase(soname, name) for name in _OF_THE_C_LIBRARY)]
