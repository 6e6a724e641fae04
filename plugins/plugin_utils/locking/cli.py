# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Do what bin/lock is called for: make the locks of a release file, tell what changes, or move them into files."""

from __future__ import annotations

import argparse
import pathlib
import sys
from typing import Any, Mapping, NamedTuple, Sequence

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.download import Unreachable
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import locks
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.lock_lines import Places
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.packages import canonical
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file

from . import conda, facts, groups, images, lookups, moving, uv
from .around import differs
from .moving import LockError, replace

SAME, CHANGED, FAILED = 0, 1, 2


class Release(NamedTuple):
    """A release file with its parts, and the locks that it has in files."""

    path: pathlib.Path
    content: dict[str, Any]
    """with the locks as texts"""
    lock_files: dict[str, str]
    """their names, by the dotted path of the key"""
    asked: dict[str, str]
    """what these are made of, where a file says it, likewise"""
    inherited: frozenset[str]
    """the paths of those that are another release's, which this one extends"""
    own: frozenset[str]
    """the paths of the keys that the file and its parts have"""
    parts: Mapping[str, str] = {}
    """the names of the parts, by the keys at the top that they have"""
    other: Mapping[str, Any] = {}
    """the data of the release that this one extends"""

    def file_of(self, key: str) -> str:
        """Return the name of the file that a dotted path stands in, beside the release file or below."""
        return self.parts.get(Places.root(key), self.path.name)


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    found = argparse.ArgumentParser(
        prog="lock", description="Make the locks of a release file by uv. What need not change stays as it is.",
        epilog="Ends with 0; with 1, after --check, where a lock would change; with 2, where it could do nothing.")
    found.add_argument("release", type=pathlib.Path, help="the release file")
    found.add_argument("--upgrade", action="append", default=[], metavar="NAME", help="a package to renew, repeatable")
    found.add_argument("--upgrade-all", action="store_true", help="renew all packages")
    found.add_argument("--only", action="append", default=[], metavar="KEY",
                       help="a lock to make, by its key or the begin of it, such as bundles; repeatable")
    found.add_argument("--check", action="store_true", help="change nothing; tell whether a lock would change")
    found.add_argument("--split", action="store_true", help="only move the release file's locks into files beside it")
    found.add_argument("--part", action="append", default=[], metavar="KEY",
                       help="only move a key of the release file into a file of its own; repeatable")
    found.add_argument("--own", action="append", default=[], metavar="KEY",
                       help="only give a release a key of the one that it extends, with locks of its own; repeatable")
    found.add_argument("--images", type=pathlib.Path, metavar="DIRECTORY",
                       help="where the images of containers are; default: torchstack_images of the site")
    found.add_argument("--to", metavar="FILE", help="with --part: the file, which may have further keys; "
                       "default: <release>/<key>.yml")
    return found


def main(words: Sequence[str]) -> int:
    """Run the program; returns its exit code."""
    arguments = parser().parse_args(words)
    try:
        if arguments.to and not arguments.part:
            raise LockError("--to says where --part moves a key; add --part KEY.")
        if arguments.part:
            return moving.move_keys(arguments.release, arguments.part, arguments.to, arguments.check)
        if arguments.own:
            return moving.own_keys(arguments.release, arguments.own, arguments.check)
        if arguments.split:
            return moving.split_up(arguments.release, arguments.check)
        return renew(read(arguments.release), arguments.upgrade, arguments.upgrade_all, arguments.check, arguments.only,
                     arguments.images)
    except (LockError, uv.UvError, ValueError) as error:
        print("lock: %s" % error, file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("\nlock: nothing was changed.", file=sys.stderr)
        return 130


def read(path: pathlib.Path) -> Release:
    """Read a release file with its locks. Raises LockError, ValueError: it cannot be read, or has locks in itself."""
    if not path.is_file():
        raise LockError(release_file.absence(path, path.parent.parent.name))
    content, places, inherited, extends = release_file.read(path, new_locks=True)[:4]
    lacking = groups.incomplete_bundle(content, path.stem)
    if lacking:
        raise LockError("In %s %s" % (path, lacking))
    files = places.files
    inline = [lock.path for lock in locks.texts(content) if lock.value and lock.path not in files]
    if inline:
        raise LockError("%s has locks in itself, such as %s; move them into files first: bin/lock --split %s" % (
            path, inline[0], path))
    faults = locks.malformed(content, path.name, places)
    if faults:
        raise LockError(" ".join(faults))
    asked = {}
    for key, name in files.items():
        beside = (path.parent / name).with_suffix(".in")
        if beside.is_file() and key.startswith("bundles["):
            raise LockError("The release file itself says what %s is made of, under packages; remove %s." % (
                name, beside))
        if beside.is_file():
            asked[key] = beside.read_text(encoding="utf-8")
    own = frozenset(places.lines) - inherited
    other = release_file.read(path.with_name(extends + ".yml"), new_locks=True).content if extends else {}
    return Release(path, content, dict(files), asked, inherited & set(files), own, places.parts, other)


def renew(
    release: Release, upgrade: Sequence[str], upgrade_all: bool, check: bool, only: Sequence[str] = (),
    images_in: pathlib.Path | None = None,
) -> int:
    """Make all locks anew, or ``only`` those whose keys begin so; write those that change, after all are there.

    Raises UvError, LockError, ValueError: one cannot be made, and none was written.
    """
    before = {lock.path: lock.value for lock in locks.texts(release.content) if lock.path in release.lock_files}
    known = {block.name for path, text in before.items() if path != conda.PATH for block in groups.blocks(text)}
    known.update(conda.packages(before.get(conda.PATH, "")))
    strange = [name for name in upgrade if canonical(name) not in known]
    if strange:
        raise LockError("No lock of %s has '%s'; a package that is new goes into a file such as base.in." % (
            release.path.name, strange[0]))
    unknown = [key for key in only if not any(path.startswith(key) for path in before)]
    if unknown:
        raise LockError("No lock of %s has a key that begins with '%s'; there are %s." % (
            release.path.name, unknown[0], ", ".join(sorted(before))))
    program, after = "", dict[str, str]()
    for group in groups.groups(release.content, release.asked, release.lock_files):
        if only and not group.paths[0].startswith(tuple(only)):
            continue
        if release.inherited.issuperset(group.paths) and not differs(group.around, group.paths[0], release.other):
            continue
        # A container may have nothing to resolve.
        program = program or uv.program()
        print("Resolving %s ..." % ", ".join(release.lock_files[path] for path in group.paths), flush=True)
        # Without hashes, as uv would give those of a held version back as they are, right or wrong.
        held = groups.without_hashes("".join(before[path] for path in group.paths))
        resolved = groups.resolved_blocks(group, uv.resolve(program, group, held, upgrade, upgrade_all))
        found, left = groups.deal(group, before, resolved)
        after.update(found)
        # What is resolved later has to fit to it.
        for lock in locks.texts(release.content):
            lock.put(found.get(lock.path, lock.value))
        for name in left:
            print("  left out: %s, as %s" % (name, group.strange))
    if conda.PATH in {*release.asked} - release.inherited and not (only and not conda.PATH.startswith(tuple(only))):
        platform = conda.platform_of(release.path)
        print("Solving %s for %s ..." % (release.lock_files[conda.PATH], platform), flush=True)
        after[conda.PATH] = conda.solve(
            release.content, release.asked[conda.PATH], before[conda.PATH], upgrade, upgrade_all, platform)
    left_alone = dict.fromkeys(sorted(release.inherited), "the release that this one extends has it")
    for path, reason in {**groups.left_alone(release.content), **left_alone}.items():
        if path in after and path == conda.PATH:
            continue
        print("Left as it is: %s, as %s." % (release.lock_files[path], reason))
    return _tell_and_write(release, before, after, [] if only else look_up(release, images_in), check)


def look_up(release: Release, images_in: pathlib.Path | None) -> list[tuple[facts.Wanted, facts.Value]]:
    """Look up what only an index or a repository knows, and return what the release file has otherwise.

    What cannot be reached is said, and stays as it is. Raises LockError: it is not there yet.

    Args:
        images_in: the directory of the site's images; None for the one that its inventory names.
    """
    found: list[tuple[facts.Wanted, facts.Value]] = []
    places = lookups.Lookups(groups.pythons_of(release.content))
    for asked in facts.wanted(release.content):
        if not facts.own(asked, release.own):
            continue
        try:
            value = (images.digest_of(release.path, asked.asked[0], images_in) if asked.kind == facts.IMAGE
                     else places.find(asked))
        except images.OptionalError as error:
            print("Left as it is: %s, as %s." % (asked.path, error))
            continue
        except lookups.FactError as error:
            raise LockError("%s" % error) from error
        except Unreachable as error:
            if not asked.now:
                remedy = (
                    "give the certificate of the proxy as 'cert' in pip's configuration" if "CERTIFICATE" in str(error)
                    else "write it by hand, or run this again where there is a network")
                raise LockError("'%s' is not known, as %s; %s." % (asked.path, error, remedy)) from error
            print("Left as it is: %s, as %s." % (asked.path, error))
            continue
        if not facts.same(asked.now, value):
            found.append((asked, value))
    return found


def told(path: str, before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Tell the difference of a lock by package, a line each."""
    difference = conda.changes if path == conda.PATH else groups.changes
    return list(difference(before[path], after[path]))


def _tell_and_write(
    release: Release, before: Mapping[str, str], after: Mapping[str, str],
    known: Sequence[tuple[facts.Wanted, facts.Value]], check: bool,
) -> int:
    changed = {path: text for path, text in after.items() if text != before[path]}
    # A list of packages that says the same in another form is no change.
    if conda.PATH in changed and not told(conda.PATH, before, changed):
        del changed[conda.PATH]
    for path in sorted(release.inherited & set(changed)):
        remedy = (
            "bin/lock %s --own bundles gives it bundles of its own" % release.path if path.startswith("bundles[")
            else "give %s a file of its own there" % path)
        raise LockError("%s would change as well, which is a lock of the release that %s extends (%s): %s." % (
            release.lock_files[path], release.path.name, ", ".join(told(path, before, changed)), remedy))
    for path in changed:
        print("%s:" % release.lock_files[path])
        for line in told(path, before, changed):
            print("  " + line)
    texts = {}
    for name in dict.fromkeys(release.file_of(asked.path) for asked, _value in known):
        of_file = [one for one in known if release.file_of(one[0].path) == name]
        texts[name] = facts.written((release.path.parent / name).read_text(encoding="utf-8"), of_file)
        print("%s:" % name)
        for asked, value in of_file:
            print("  " + facts.told(asked, value))
    if not changed and not known:
        print("All locks of %s are as they have to be." % release.path.name)
        return SAME
    further = ", and %d values of %s" % (len(known), ", ".join(texts)) if known else ""
    if check:
        print("Would change: %d of %d locks%s." % (len(changed), len(after), further))
        return CHANGED
    for name, text in texts.items():
        replace(release.path.parent / name, text)
    for path, text in changed.items():
        replace(release.path.parent / release.lock_files[path], text)
    print("Written: %d of %d locks%s." % (len(changed), len(after), further))
    return SAME
