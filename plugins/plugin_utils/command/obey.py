# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Do what each word of the command asks for."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import sys
import time
from typing import Any, Mapping, NamedTuple, Sequence

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.near_names import nearest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.text import printable
from ansible_collections.hpcml.torchstack.plugins.module_utils.report import formatting
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.files import StepFiles

from . import document, overview, playbook, progress, releases, rollout, watching
from . import why as reasons
from .places import (
    CommandError,
    Target,
    Workspace,
    directory_of_release,
    find_workspace,
    known_release,
    read_target,
)
from .playbook import DONE, FOUND
from .verbs import PLAYBOOKS
from .wording import as_typed

POLL_SECONDS = 1.0
CHUNK = 1 << 16
ROOT = "{'root': torchstack_root, 'connection': ansible_connection | default('ssh')}"


class Place(NamedTuple):
    """Where records are read."""

    root: str
    target: Target


def run_playbook(
    word: str, words: tuple[str, ...], given: Mapping[str, Any], further: Sequence[str], dry_run: bool,
    plain: bool = False, as_json: bool = False,
) -> int:
    """Run a playbook, or print the line that would run it.

    Args:
        word: of :data:`.verbs.PLAYBOOKS`.
        plain: whether a rollout prints lines on a terminal, too.
    """
    workspace, verb = find_workspace(), PLAYBOOKS[word]
    target = read_target(workspace, words, verb.most)
    if verb.needs_release and not target.releases:
        raise CommandError("Name the release: it is not the site's default that is meant by itself.")
    if verb.playbook in ("", "lint", "mirror"):
        for release in target.releases:
            known_release(workspace, target.site, release)
    if "torchstack_mirror" in given:
        given = dict(given, torchstack_mirror=os.path.abspath(given["torchstack_mirror"]))
    line = playbook.compose(verb, workspace, target, given, further)
    if dry_run:
        if as_json:
            document.print_data(document.describe(word, line, target, {}, None))
        else:
            print(line.shown())
        return DONE
    about, builds = " ".join([target.site, *target.releases]).strip(), not verb.playbook and "--check" not in line.words
    if verb.playbook:
        _known_where_it_lies(workspace, target)
    if as_json:
        return document.run(
            word, line, target, (lambda record: rollout.after_interruption(record, about)) if builds else None)
    if not builds:
        return playbook.run(line)
    return rollout.run(line, about, plain or any(re.fullmatch("-v+|--verbose", word) for word in line.words))


def _known_where_it_lies(workspace: Workspace, target: Target) -> None:
    """Refuse a release without a file of which there is no record either, where this machine can tell."""
    unknown = [release for release in target.releases if release not in workspace.release_files(target.site)]
    if not unknown or not target.site:
        return
    try:
        root = find_place(workspace, (target.site,), None).root
    except CommandError:
        return
    for release in unknown:
        known_release(workspace, target.site, release, tuple(releases.names(root)))


def find_place(workspace: Workspace, words: tuple[str, ...], root: str | None, most: int = 1) -> Place:
    """Find the root, and what is asked for of it. Raises CommandError: nothing says where it is, or it is elsewhere."""
    target = read_target(workspace, words, most)
    here = directory_of_release()
    if root or (here.prefix and not target.site) or target.prefix:
        return Place(root or os.path.dirname(here.prefix), target)
    if not target.site:
        raise CommandError("Name the site: there are %s." % (", ".join(workspace.sites) or "none"))
    found = playbook.ask(workspace, target.site, ROOT)
    if found["connection"] != "local":
        raise CommandError("The releases of site '%s' are on another machine (its connection is %s), and this reads "
                           "files: run it there, or give --root." % (target.site, found["connection"]))
    return Place(found["root"], target)


def _one(words: tuple[str, ...], root: str | None) -> releases.Release:
    """Read the release that words name, or else the newest."""
    place = find_place(find_workspace(), words, root)
    if place.target.releases:
        return releases.read(place.root, place.target.releases[0])
    found = progress.newest(place.root)
    if found is None:
        raise CommandError("There is no release below %s yet." % place.root)
    return found


def list_(words: tuple[str, ...], root: str | None, as_json: bool, wide: bool) -> int:
    """List the releases below a root; on a terminal in lines that fit it, unless they may be ``wide``."""
    place = find_place(find_workspace(), words, root, 0)
    found, broken = releases.read_all(place.root)
    rows = [releases.row(release) for release in found]
    rows.sort(key=lambda row: str(row["since"] or ""), reverse=True)
    if as_json:
        document.print_data({"root": place.root, "releases": rows, "broken": broken})
        return DONE
    print("Releases below %s%s" % (place.root, "" if rows or broken else ": none yet"))
    if rows:
        width = None if wide or not sys.stdout.isatty() else shutil.get_terminal_size().columns
        lines, left_out = releases.fitted([releases.cells(row) for row in rows], width)
        print("\n".join(lines))
        if left_out:
            print("Without room for %s: torchstack list --wide" % ", ".join(left_out))
    for name, sentence in broken.items():
        print("%s cannot be described: %s" % (name, sentence))
    return DONE


def report_all(words: tuple[str, ...], root: str | None, to: str | None, as_json: bool, dry_run: bool) -> int:
    """Write the overview of a root, or print its data."""
    place = find_place(find_workspace(), words, root, 0)
    path = to or overview.path_of(place.root)
    if dry_run:
        print("No playbook is run; the overview would be written to %s" % path)
        return DONE
    found = overview.gather(place.root, path)
    if as_json:
        document.print_data(found)
        return DONE
    overview.write(found, path)
    for problem in found["attention"]:
        print(printable("%s: %s%s" % (problem["of"], formatting.sentence(problem["message"]),
                                      " " + problem["remedy"] if problem["remedy"] else "")))
    print("Overview of %s: %s" % (formatting.count(len(found["releases"]), "release"), path))
    return DONE


def show(words: tuple[str, ...], root: str | None, as_json: bool) -> int:
    """Show one release."""
    release = _one(words, root)
    if as_json:
        document.print_data(release.facts)
    else:
        print("\n".join(map(as_typed, releases.describe(release))))
    return DONE


def status(words: tuple[str, ...], root: str | None, as_json: bool, follow: bool) -> int:
    """Say how far a rollout is, once or until it has ended; FOUND where a step of it has failed."""
    release = _one(words, root)
    if follow and as_json:
        raise CommandError("--json is of one moment, and goes without --follow.")
    found = watching.follow(release.files.root, release.files.release) if follow else progress.look(release)
    if as_json:
        document.print_data(found)
    else:
        print("\n".join(progress.lines(found)))
    return FOUND if found["failed"] else DONE


def why(step: str, words: tuple[str, ...], root: str | None, as_json: bool) -> int:
    """Say why a step was built."""
    release = _one(words, root)
    _known_step(release, step)
    found = reasons.explain(release, step, reasons.other_release(release, step))
    if as_json:
        document.print_data(found)
    else:
        print("\n".join(found["sentences"]))
    return DONE


def logs(step: str | None, words: tuple[str, ...], root: str | None, follow: bool) -> int:
    """Print the log of a step, and go on while it is built."""
    workspace = find_workspace()
    if step in workspace.sites:
        step, words = None, (str(step), *words)
    release = _one(words, root)
    begun = [row["name"] for row in progress.begun(release)] or [row["name"] for row in release.steps]
    if not step and not begun:
        raise CommandError("Release %s has begun no step yet." % release.files.release)
    step = step or begun[-1]
    files = progress.files_of(release, step)
    if not os.path.exists(files.log):
        _known_step(release, step)
        raise CommandError("Step %s of release %s has no log at %s." % (step, release.files.release, files.log))
    print("==> %s <==" % files.log, file=sys.stderr)
    _pour(files, release, follow)
    return DONE


def _known_step(release: releases.Release, step: str) -> None:
    known = [row["name"] for row in release.steps]
    if step in known or os.path.isdir(progress.files_of(release, step).directory):
        return
    near = nearest(step, known)
    raise CommandError("Release %s has no step '%s'%s" % (
        release.files.release, step, "; did you mean '%s'?" % near if near else ": there are %s." % ", ".join(known)))


def _pour(files: StepFiles, release: releases.Release, follow: bool) -> None:
    """Write a log to the terminal as it is, and what is added to it until its step has ended."""
    with open(files.log, "rb") as stream:
        while True:
            # Asked before the last reading, so that nothing is missed.
            ended = not follow or not _begun(release, files.name)
            while True:
                chunk = stream.read(CHUNK)
                if not chunk:
                    break
                sys.stdout.buffer.write(chunk)
            sys.stdout.flush()
            if ended:
                return
            time.sleep(POLL_SECONDS)


def _begun(release: releases.Release, step: str) -> bool:
    now = releases.read(release.files.root, release.files.release)
    return any(row["name"] == step for row in progress.begun(now))


def complete_words(_context: Any, _parameter: Any, incomplete: str) -> list[str]:
    """Propose sites, and the releases of the site that was typed or is meant."""
    try:
        workspace = find_workspace()
        typed = [word for word in (_context.params.get("words") or ()) if word in workspace.sites]
        site = typed[0] if typed else workspace.default_site()
        names = [*([] if typed else workspace.sites), *workspace.release_files(site)]
    except (CommandError, OSError):
        return []
    return [name for name in names if name.startswith(incomplete)]


def complete_steps(_context: Any, _parameter: Any, incomplete: str) -> list[str]:
    """Propose the steps of the release that is meant; nothing may be said in between."""
    try:
        here, root = directory_of_release(), _context.params.get("root")
        place = find_place(find_workspace(), (), root or (os.path.dirname(here.prefix) if here.prefix else None))
        found = None if here.releases else progress.newest(place.root)
        name = here.releases[0] if here.releases else found.files.release if found else ""
        steps = pathlib.Path(place.root, name, ".torchstack", "steps")
        names = sorted(path.name for path in steps.iterdir() if path.is_dir()) if name else []
    except (CommandError, OSError):
        return []
    return [step for step in names if step.startswith(incomplete)]
