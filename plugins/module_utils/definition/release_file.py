# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check, resolve and digest the content of a release file. Pure, but for the patch series, which are read."""

from __future__ import annotations

import os
from typing import Any, Mapping, NamedTuple

from ..core import schema
from ..patches.series import load_series
from . import (
    amd_gpus,
    base,
    bundles,
    component_problems,
    components,
    known_problems,
    lock_lines,
    locks,
    modulefile,
    packages,
    patterns,
    pytorch_build,
    release_name,
    site_files,
    step_names,
    stored_release,
    toolchain,
    verification_rules,
)


class Definition(NamedTuple):
    """All that a release file asks for."""

    definition: dict[str, Any]
    """the release file with every default, without what a release does not depend on"""
    series: dict[str, str]
    """the digest of every patch series, by its name"""
    digest: str
    known_problems: list[str]
    """what is known to be wrong with the release, a line of text each"""

    @property
    def asked(self) -> dict[str, Any]:
        """Return what the digest is of."""
        return {"definition": self.definition, "series": self.series}


def text_patterns() -> dict[str, patterns.Rule]:
    """Return what texts of a release file must look like, by dotted path."""
    return {**patterns.RELEASE, **{path: rule for row in components.COMPONENTS for path, rule in row.patterns.items()}}


def problems(
    content: object, keys: dict[str, Any], source: str = "", places: lock_lines.Places = lock_lines.NOWHERE,
) -> list[str]:
    """Find everything that is wrong with a release file, as one sentence each.

    ``keys`` is the schema, see :mod:`..core.schema`. ``places``: where its keys and
    locks are written. Raises ValueError: the schema is wrong.
    """
    found = schema.problems(content, keys, source, text_patterns())
    whole = schema.resolved(content, keys) if isinstance(content, dict) and not found else content
    found += [
        *release_name.problems(content, source),
        *base.problems(content, source),
        *component_problems.problems(content, source, places),
        *toolchain.problems(content, source),
        *step_names.toolchain_problems(content, source),
        *packages.package_problems(content, source, places),
        *bundles.problems(content, source),
        *locks.problems(content, source, places),
        *pytorch_build.problems(content, source),
        *amd_gpus.problems(content, source),
        *modulefile.family_problems(content, source),
        *modulefile.conda_problems(content, source),
        *verification_rules.problems(whole, source),
        *site_files.problems(whole, source),
    ]
    return found or [*release_name.unwritable(content, source), *verification_rules.form_problems(whole, source)]


def known_problem_problems(content: Mapping[str, Any], keys: dict[str, Any], source: str = "") -> list[str]:
    """Find what is wrong with ``known_problems`` alone, for a release whose file may be older than the other rules."""
    only = {known_problems.KEY: content.get(known_problems.KEY) or []}
    return schema.problems(only, {known_problems.KEY: keys[known_problems.KEY]}, source)


def resolve(content: Mapping[str, Any], keys: dict[str, Any]) -> dict[str, Any]:
    """Fill in the defaults of a release file without problems, or of a release's own stored file.

    What a release does not depend on is left out. Raises ValueError: the schema is wrong.
    """
    schema.check_schema(keys)
    return known_problems.remove(base.fill_defaults(schema.resolved(stored_release.asked_for(content), keys)))


def series_places(roles: str, own: str, role: str) -> list[str]:
    """List the directories in which the patch series of a role may lie: a site's own first, ``<own>/<role>``."""
    return [*([os.path.join(own, role)] if own else []), os.path.join(roles, role, "files", "series")]


def series_directories(definition: Mapping[str, Any], roles: str, own: str = "") -> dict[str, str]:
    """Find the directory of every patch series that a release names; where there is none, that of the role.

    Args:
        definition: of the release.
        roles: the directory of the roles.
        own: the directory of a site's own series; empty for none.
    """
    found = {}
    for name, keys, role in components.series_of_roles():
        settings = components.value_at(definition, keys)
        if isinstance(settings, dict) and settings.get("series"):
            may_be = [os.path.join(place, str(settings["series"])) for place in series_places(roles, own, role)]
            found[name] = next((path for path in may_be if os.path.isdir(path)), may_be[-1])
    return found


def series_digests(definition: Mapping[str, Any], roles: str, own: str = "") -> dict[str, str]:
    """Digest every patch series that a release names, see :func:`series_directories`.

    Raises StackError: a series is not there, or a patch of it is refused.
    """
    return {name: load_series(path).digest for name, path in series_directories(definition, roles, own).items()}


def define(content: Mapping[str, Any], keys: dict[str, Any], roles: str, own: str = "") -> Definition:
    """Resolve the content of a release file and digest what it asks for, see :func:`series_digests`."""
    definition = resolve(content, keys)
    series = series_digests(definition, roles, own)
    known = known_problems.format_sentences(known_problems.read(content))
    return Definition(definition, series, digest_of(definition, series, content), known)


def digest_of(definition: Mapping[str, Any], series: Mapping[str, str], record: Mapping[str, Any]) -> str:
    """Digest what is asked for; of a stored release, as it was digested there."""
    return stored_release.asked_digest({"definition": definition, "series": series}, record)
