# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compare two releases as their users see them: parts, packages, the site's files, build options, settings. Pure.

Both sides are what is installed, as :mod:`installed` describes it, and the description of the modulefile. A place
inside of its own release is no difference, wherever the release lies.
"""

from __future__ import annotations

from typing import Any, Iterable, Iterator, Mapping, NamedTuple

from ..core.lenient_json import mapping, mappings, text, texts
from ..core.versions import CHANGED, direction
from ..definition.packages import canonical
from ..release.installed_records import Places

ADDED, REMOVED, REBUILT = "added", "removed", "rebuilt"

DISTRIBUTIONS = {"pytorch": "torch"}
"""Parts whose Python distribution has another name than their key."""

_NO_DISTRIBUTION = ("mpi", "cuda", "nccl", "image")


class Side(NamedTuple):
    """One of two releases."""

    places: Places
    installed: Mapping[str, Any]
    module: Mapping[str, Any]

    @property
    def components(self) -> dict[str, dict[str, Any]]:
        """Return the parts by their keys, a Python distribution with the version that is installed."""
        python = self.python
        parts = _by_key(self.installed.get("components"), "key")
        return {
            key: dict(part, version=text(python[_distribution(key)].get("version")))
            if _distribution(key) in python else part for key, part in parts.items()}

    @property
    def python(self) -> dict[str, dict[str, Any]]:
        """Return its Python distributions by their canonical names."""
        return {canonical(text(entry.get("name"))): entry for entry in mappings(self.installed.get("python"))}

    @property
    def conda(self) -> dict[str, dict[str, Any]]:
        """Return its conda packages that are no Python distributions, by their names."""
        owned = {text(entry.get("conda_package")) for entry in mappings(self.installed.get("python"))}
        known = _by_key(self.installed.get("conda"), "name")
        return {name: entry for name, entry in known.items() if name not in owned}

    def compared(self, value: object) -> str:
        """Return a value as text, without the places that differ between any two releases."""
        return self.places.generic(text(value))

    def shown(self, value: object) -> str:
        """Return a value as its release has it: the opposite of :meth:`compared`."""
        said = text(value)
        for path, name in self.places.names:
            said = said.replace(name, path)
        return said


def diff_components(before: Side, after: Side) -> list[dict[str, Any]]:
    """Return the parts that differ, in the order of their names.

    For each ``key``, ``name``, ``change``, the versions ``before`` and ``after``, and, where they differ, the
    ``commits``, ``places`` and ``kinds`` (two texts each) and the ``patches`` (``added`` and ``removed``: names of
    files; of a patch that was rewritten, the name is in both).
    """
    old, new = before.components, after.components
    rows = [
        _component(key, old.get(key) or _as_part(before, key, new[key]), new.get(key) or _as_part(after, key, old[key]))
        for key in sorted({*old, *new}, key=lambda key: text((new.get(key) or old[key]).get("name")).lower())]
    return [row for row in rows if row]


def _as_part(side: Side, key: str, other: Mapping[str, Any]) -> dict[str, Any] | None:
    """Tell what the other release has as a part, and this one as any Python distribution."""
    found = side.python.get(_distribution(key))
    return dict(other, version=found["version"], kind="wheel", commit="", patches=[]) if found else None


def _distribution(key: str) -> str:
    """Return the canonical name of the Python distribution that a part is; empty for any other part."""
    name = key.partition(".")[2] if key.startswith("packages.") else key
    return "" if name in _NO_DISTRIBUTION else canonical(DISTRIBUTIONS.get(name, name))


def _component(key: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> dict[str, Any]:
    versions = [_version(key, side) for side in (old, new)]
    row: dict[str, Any] = {
        "key": key, "name": _name(key, new or old or {}), "before": versions[0], "after": versions[1]}
    if old is None or new is None:
        return dict(row, change=ADDED if old is None else REMOVED)
    more: dict[str, Any] = {}
    for plural, name in (("commits", "commit"), ("places", "place"), ("kinds", "kind")):
        pair = [text(side.get(name)) for side in (old, new)]
        if pair[0] != pair[1] and all(pair):
            more[plural] = pair
    patches = _patches(old, new)
    if any(patches.values()):
        more["patches"] = patches
    if versions[0] != versions[1]:
        same_make = key != "mpi" or old.get("name") == new.get("name")
        return dict(row, **more, change=direction(versions[0], versions[1]) if same_make else CHANGED)
    if more:
        return dict(row, **more, change=CHANGED)
    sources = [text(side.get("sha256")) for side in (old, new)]
    return dict(row, change=REBUILT) if sources[0] != sources[1] and all(sources) else {}


def part_summary(key: str, part: Mapping[str, Any]) -> dict[str, str]:
    """Return a part in short: ``key``, ``name`` and ``version``, as it is spoken of."""
    return {"key": key, "name": _name(key, part), "version": _version(key, part)}


def _name(key: str, part: Mapping[str, Any]) -> str:
    return {"mpi": "MPI", "image": "Image"}.get(key) or text(part.get("name"))


def _version(key: str, part: Mapping[str, Any] | None) -> str:
    """Return the version of a part; of one that sites choose among, with what it is."""
    if part is None:
        return ""
    said = text(part.get("version"))
    return " ".join(word for word in (text(part.get("name")), said) if word) if key in ("mpi", "image") else said


def _patches(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, list[str]]:
    known = [
        {(text(patch.get("file")), text(patch.get("sha256"))) for patch in mappings(side.get("patches"))}
        for side in (old, new)]
    return {
        ADDED: sorted(name for name, _digest in known[1] - known[0]),
        REMOVED: sorted(name for name, _digest in known[0] - known[1])}


def diff_flags(before: Side, after: Side) -> list[dict[str, str]]:
    """Return the build options that differ, of parts that both releases have; those of a new part matter to nobody."""
    old, new = before.components, after.components
    rows: list[dict[str, str]] = []
    for key in sorted({*old} & {*new}, key=lambda key: text(new[key].get("name")).lower()):
        given = [mapping(part.get("flags")) for part in (old[key], new[key])]
        rows += [
            dict(row, key=key, component=_name(key, new[key])) for row in _differing(before, given[0], after, given[1])]
    return rows


def diff_packages(before: Side, after: Side) -> list[dict[str, str]]:
    """Return the packages that differ and are no parts.

    A ``python`` one is a Python distribution, whoever brought it; ``conda`` is everything else in a conda base. There,
    the same version in another build is ``rebuilt``.
    """
    parts = {_distribution(key) for side in (before, after) for key in side.components}
    python = [{name: entry for name, entry in side.python.items() if name not in parts} for side in (before, after)]
    return [*_packages("python", python[0], python[1]), *_packages("conda", before.conda, after.conda)]


def _packages(kind: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    for name in sorted({*old, *new}):
        entries = mapping(old.get(name)), mapping(new.get(name))
        versions = [text(entry.get("version")) for entry in entries]
        if not all(entries):
            change = ADDED if entries[1] else REMOVED
        elif versions[0] != versions[1]:
            change = direction(versions[0], versions[1])
        elif text(entries[0].get("build")) != text(entries[1].get("build")):
            change = REBUILT
        else:
            continue
        called = text((entries[1] or entries[0]).get("name"))
        yield {"name": called, "kind": kind, "change": change, "before": versions[0], "after": versions[1]}


def diff_files(before: Side, after: Side) -> list[dict[str, str]]:
    """Return the site's own files that differ, each with its path in the release file as ``name``, and its ``change``.

    The same file is the same although its words in braces stand for something else, as those for the release do.
    """
    old, new = (_by_key(side.installed.get("files"), "name") for side in (before, after))
    changes = {
        **dict.fromkeys(old.keys() - new.keys(), REMOVED), **dict.fromkeys(new.keys() - old.keys(), ADDED),
        **{name: CHANGED for name in old.keys() & new.keys() if old[name].get("source") != new[name].get("source")}}
    return [{"name": name, "change": change} for name, change in sorted(changes.items())]


def diff_settings(before: Side, after: Side) -> list[dict[str, str]]:
    """Return what loading the module does otherwise.

    Kinds: ``variable`` (set), ``unset`` (variable), ``directory`` (on a search path), ``order`` (of one), ``module``
    (loaded along), ``conflict`` (module), ``alias`` and ``function``.
    """
    found: list[dict[str, str]] = []
    for kind, key in (("variable", "setenv"), ("alias", "aliases"), ("function", "functions")):
        given = [
            {name: _plain(value) for name, value in mapping(side.module.get(key)).items()} for side in (before, after)]
        found += [dict(row, kind=kind) for row in _differing(before, given[0], after, given[1])]
    for kind, key in (("unset", "unsetenv"), ("module", "depends_on"), ("conflict", "conflicts")):
        names = [texts(side.module.get(key) or []) for side in (before, after)]
        found += [dict(row, kind=kind) for row in _entries(names[0], names[1])]
    found += _directories(before, after)
    reasons = mapping(after.module.get("reasons"))
    for row in found:
        row["reason"] = text(reasons.get(row["name"])) if row["kind"] == "variable" and row["change"] != REMOVED else ""
    return found


def _plain(value: object) -> str:
    """Return a value of a description as text; of one for several shells, that for sh."""
    return text(value.get("sh")) if isinstance(value, Mapping) else text(value)


def _directories(before: Side, after: Side) -> Iterator[dict[str, str]]:
    for key in ("prepend", "append"):
        sides = [
            {text(entry.get("name")): texts(entry.get("values") or []) for entry in mappings(side.module.get(key))}
            for side in (before, after)]
        for name in sorted({*sides[0], *sides[1]}):
            old = {before.compared(path): path for path in sides[0].get(name, [])}
            new = {after.compared(path): path for path in sides[1].get(name, [])}
            for path in [*(path for path in old if path not in new), *(path for path in new if path not in old)]:
                yield {
                    "kind": "directory", "name": name, "change": ADDED if path in new else REMOVED,
                    "before": old.get(path, ""), "after": new.get(path, "")}
            if [path for path in old if path in new] != [path for path in new if path in old]:
                yield {
                    "kind": "order", "name": name, "change": CHANGED,
                    "before": ":".join(old.values()), "after": ":".join(new.values())}


def _entries(old: Iterable[str], new: Iterable[str]) -> Iterator[dict[str, str]]:
    for name in [name for name in old if name not in new]:
        yield {"name": name, "change": REMOVED, "before": name, "after": ""}
    for name in [name for name in new if name not in old]:
        yield {"name": name, "change": ADDED, "before": "", "after": name}


def _differing(before: Side, old: Mapping[str, Any], after: Side, new: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Return the names whose values differ between two mappings, or that only one of them has."""
    for name in sorted({*old, *new}):
        if (name in old) == (name in new) and before.compared(old[name]) == after.compared(new[name]):
            continue
        change = ADDED if name not in old else REMOVED if name not in new else CHANGED
        yield {
            "name": name, "change": change, "before": before.shown(old.get(name)), "after": after.shown(new.get(name))}


def _by_key(entries: object, key: str) -> dict[str, dict[str, Any]]:
    return {text(entry.get(key)): entry for entry in mappings(entries) if entry.get(key)}
