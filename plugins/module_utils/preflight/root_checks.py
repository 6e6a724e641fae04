# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check the facts about a root for a rollout: its name, its owner, its file system. Pure."""

from __future__ import annotations

import os
import re
from typing import Any, Mapping

from ..core.findings import Finding, error, note, warning
from .root_facts import still_needed

#: Characters of a root that every shell, wrapper, linker option and shebang line takes literally.
_PLAIN = re.compile(r"[A-Za-z0-9._/+@~=,-]*")
#: Characters of a first line of a script that every kernel reads (127 up to Linux 5.0, see execve(2)).
SHEBANG_LIMIT = 127

Facts = Mapping[str, Any]


def format_bytes(count: float) -> str:
    """Return bytes as people say them."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return "%.4g %s" % (count, unit)
        count /= 1024
    return "%.4g TiB" % count


def judge_path(root: str, shebang_reserve: int) -> list[Finding]:
    """Check whether the root's name can be one; first lines of scripts have so many characters beside it."""
    wrong = sorted(set(_PLAIN.sub("", root)))
    if not os.path.isabs(root):
        return [error("root.path", "The root '%s' is not an absolute path." % root, "Write it in full, from / on.")]
    if wrong:
        names = {" ": "space", "'": "single quote", '"': "double quote"}
        shown = ", ".join(names.get(letter, letter if letter.isprintable() else repr(letter)) for letter in wrong)
        return [error(
            "root.path", "The root '%s' has characters that break compiler wrappers and the first lines of scripts: %s."
            % (root, shown), "Choose a path of letters, digits and . _ / + @ ~ = , - only.")]
    plain = os.path.normpath(root)
    if plain in ("/", "//"):
        return [error("root.path", "The root '%s' is the whole machine." % root,
                      "Name a directory for releases alone, such as /opt/torchstack.")]
    if plain != root:
        return [error(
            "root.path", "The root '%s' is not a plain name of a directory." % root, "Write it as %s." % plain)]
    length = len(root) + shebang_reserve
    if length > SHEBANG_LIMIT:
        return [warning(
            "root.shebang", "The root has %d characters, so that the first line of an installed script would have "
            "about %d, and some kernels read only %d." % (len(root), length, SHEBANG_LIMIT),
            "Choose a root of at most %d characters." % (SHEBANG_LIMIT - shebang_reserve))]
    return [note("root.path", "The name of the root, %s, is fit for scripts and wrappers." % root)]


def judge_root(facts: Facts, uid: int, user: str, wanted: Facts) -> list[Finding]:
    """Check whether releases can be installed below the root by this account, by facts of :mod:`.root_facts`."""
    root, nearest = facts["path"], facts["nearest"]
    if not facts["directory"]:
        return [error("root.writable", "%s is not a directory%s." % (
            nearest, "" if facts["exists"] else ", so that %s cannot be created" % root),
            "Move it away, or choose another root.")]
    findings = _judge_owner(facts, uid, user)
    findings += _judge_writing(facts, user, bool(findings))
    if facts["noexec"]:
        findings.append(error("root.mount", "%s lies on a file system where no program can be run (%s, noexec)." % (
            root, _mount(facts)), "Choose a root elsewhere, or have it mounted without noexec."))
    if not findings:
        findings.append(note("root.writable", "%s %s by %s." % (
            root, "can be written" if facts["exists"] else "can be created", user)))
    mode = int(facts["mode"], 8)
    if facts["exists"] and mode & 0o022 and not mode & 0o1000:
        findings.append(warning(
            "root.mode", "%s can be written by others (mode %s), who could exchange a release." % (root, facts["mode"]),
            "Run 'chmod go-w %s'." % root))
    if not wanted["release_done"]:
        findings += judge_space(facts, user, wanted) + _judge_latency(facts, wanted)
    return findings


def _judge_owner(facts: Facts, uid: int, user: str) -> list[Finding]:
    owned = [thing for thing in (facts if facts["exists"] else None, facts["records"]) if thing]
    return [error(
        "root.owner", "%s belongs to %s, and this runs as %s." % (thing["path"], thing["owner"], user),
        "Run this as %s, or choose another root." % thing["owner"]) for thing in owned if thing["uid"] != uid][:1]


def _judge_writing(facts: Facts, user: str, of_others: bool) -> list[Finding]:
    """Find why nothing can be written; of what is another account's not that it is closed, which follows from that."""
    root, nearest = facts["path"], facts["nearest"]
    problem = (facts.get("probe") or {}).get("error", "")
    if facts["read_only"] or problem == "EROFS":
        return [error("root.mount", "%s lies on a file system that is mounted read-only (%s)." % (root, _mount(facts)),
                      "Choose another root, or run this where it can be written.")]
    if not facts["writable"] or problem in ("EACCES", "EPERM"):
        return [] if of_others else [error(
            "root.writable", "%s cannot be %s, because %s may not write in %s." % (
                root, "written" if facts["exists"] else "created", user, nearest),
            "Let %s write there, or choose another root." % user if facts["exists"] else
            "Run this as the account that owns it, or let that account create %s for %s." % (root, user))]
    if problem in ("ENOSPC", "EDQUOT"):
        return [error("root.space", "Not even a small file can be created in %s: %s." % (
            nearest, _shortage(problem, user)), "Make room, ask for more, or choose another root.")]
    if problem:
        return [error("root.writable", "A file could not be written in %s (%s)." % (nearest, problem),
                      "Look at that directory by hand, as %s." % user)]
    return []


def _mount(facts: Facts) -> str:
    return "%s at %s" % (facts["mount"]["type"] or "unknown type", facts["mount"]["point"] or facts["nearest"])


def _shortage(name: str, user: str) -> str:
    return {
        "ENOSPC": "the file system is full", "EDQUOT": "the quota of %s is used up" % user,
        "EFBIG": "files may not grow that large, see 'ulimit -f'",
    }.get(name, name)


def judge_space(facts: Facts, user: str, wanted: Facts, what: str = "the release") -> list[Finding]:
    """Check whether there is room below a directory.

    Args:
        facts: from :func:`.root_facts.examine`; ``probe`` where that was run, ``held`` where something may be there.
        wanted: ``required_bytes`` and ``required_inodes``; 0 for what need not be there.
    """
    findings = []
    held = facts.get("held") or {"bytes": 0, "inodes": 0}
    needed = still_needed(wanted["required_bytes"], held["bytes"])
    files = still_needed(wanted["required_inodes"], held["inodes"])
    more = " more, of %s in all: %s are there already" % (
        format_bytes(wanted["required_bytes"]), format_bytes(held["bytes"])) if held["bytes"] else ""
    reservation = (facts.get("probe") or {}).get("reservation")
    if needed and facts["free_bytes"] < needed:
        findings.append(error("root.space", "%s (%s) has %s free, and %s needs about %s%s." % (
            facts["path"], _mount(facts), format_bytes(facts["free_bytes"]), what, format_bytes(needed), more),
            "Make room, retire an old release, or choose another root."))
    elif reservation and reservation["error"]:
        findings.append(error(
            "root.space", "Of the %s that %s needs, %s could be reserved below %s: %s." % (
                format_bytes(needed), what, format_bytes(reservation["reserved"]), facts["path"],
                _shortage(reservation["error"], user)),
            "Make room, ask for more, or choose another root."))
    elif reservation and not reservation["supported"]:
        findings.append(note("root.space", "%s are free, and %s cannot reserve space, so a quota may still be met." % (
            format_bytes(facts["free_bytes"]), _mount(facts)), "Look at the quota of %s by hand." % user))
    elif needed:
        reserved = "" if not reservation else "; %s could be reserved" % format_bytes(reservation["reserved"])
        wants = "; %s needs about %s%s" % (what, format_bytes(needed), more) if more else ""
        findings.append(note("root.space", "%s are free%s%s." % (format_bytes(facts["free_bytes"]), reserved, wants)))
    if files and facts["free_inodes"] is not None and facts["free_inodes"] < files:
        findings.append(error("root.inodes", "%s (%s) has room for %d more files, and %s needs about %d%s." % (
            facts["path"], _mount(facts), facts["free_inodes"], what, files,
            " more, of %d in all" % wanted["required_inodes"] if held["inodes"] else ""),
            "Remove files, retire an old release, or choose another root."))
    return findings


def _judge_latency(facts: Facts, wanted: Facts) -> list[Finding]:
    measured = (facts.get("probe") or {}).get("latency")
    limit = wanted["latency"]["warn_ms"]
    if not measured or not measured["files"]:
        return []
    said = "A small file takes %.3g ms (median of %d) on %s" % (measured["median_ms"], measured["files"], _mount(facts))
    if limit and measured["median_ms"] > limit:
        return [warning(
            "root.latency", "%s, more than the %.3g ms that this site allows." % (said, limit),
            "A release has many thousand small files: keep it on a file system made for them.")]
    return [note("root.latency", said + ".")]
