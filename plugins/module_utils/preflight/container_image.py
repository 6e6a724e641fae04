# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find a release's container image and its checksum, and check facts about both. Pure."""

from __future__ import annotations

import os
import re
from typing import Any, Mapping, NamedTuple, Sequence

from ..core.findings import Finding, error, note, warning
from ..definition.container import COPIES
from .root_checks import format_bytes, judge_space

STEP = "image"

SUMS = "SHA256SUMS"
"""The file beside the images with their checksums, as sha256sum(1) writes it."""

COPY = "copy"
"""The placement of an image of which the root has a copy."""

RECORD = ".json"
"""Ending of the record beside a copy."""

INODES = 100
"""Files that a release makes besides those of a virtual environment: run scripts, commands, examples, its records."""

_VERSION = re.compile(r"\bversion v?(\d\S*)")

Facts = Mapping[str, Any]


class Places(NamedTuple):
    """Where the files of an image are; empty for no copy, and for no definition."""

    central: str
    copy: str
    definition: str


def places(image: Facts, central: str, root: str, sha256: str) -> Places:
    """Tell where the files of an image (``base.image``) are; its checksum is empty where it is not known.

    Releases with the same image share one copy of it. It lies outside of them, as a frozen release could not lose it.
    """
    copied = sha256 and image["placement"] == COPY
    return Places(
        os.path.join(central, image["file"]), os.path.join(root, COPIES, sha256[:12], image["file"]) if copied else "",
        os.path.join(central, image["definition"]) if image.get("definition") else "")


def is_recorded(record: object, sha256: str, status: os.stat_result) -> bool:
    """Tell whether a copy is the one that copy_image.py made, or found to be right, by its record beside it."""
    return record == {"bytes": status.st_size, "mtime_ns": status.st_mtime_ns, "sha256": sha256}


def runtime_version(output: str) -> str:
    """Parse the output of ``apptainer --version`` or ``singularity --version``; empty for none."""
    found = _VERSION.search(output)
    return found.group(1) if found else ""


def judge_place(central: str, there: bool) -> list[Finding]:
    """Check whether the site has a place of images; empty where its data names none."""
    if not central:
        return [error("place", "The site names no place of images.",
                      "Set torchstack_images in the site's group_vars to the directory that has them.")]
    if not there:
        return [error("place", "The place of images, %s, is not a directory that can be looked into here." % central,
                      "Correct torchstack_images in the site's group_vars, or mount that file system.")]
    return []


def judge_image(image: Facts, where: Places, there: Facts, names: list[str]) -> list[Finding]:
    """Check whether there is an image to begin with.

    Args:
        there: ``bytes`` and ``problem`` of the central image (empty where it can be read), and ``copied``, whether the
            release's own copy is there and is known to be right.
    """
    if not there["problem"]:
        return [note("image", "The image is %s (%s)." % (where.central, format_bytes(there["bytes"])))]
    if there["copied"]:
        return [note("image", "The central image %s %s; the copy %s is used." % (
            where.central, there["problem"], where.copy))]
    if image["file"] in names:
        remedy = "Ask whoever keeps the images to let this account read it."
    else:
        others = ", ".join(sorted(name for name in names if name.endswith(".sif"))) or "none"
        remedy = "Correct base.image.file, or have the image put there; that place has %s." % others
    return [error("image", "The image %s %s." % (where.central, there["problem"]), remedy)]


def judge_sum(image: Facts, listed: str, computed: str, sums: str) -> list[Finding]:
    """Check whether it is known which checksum the image must have.

    Args:
        listed: the checksum in the site's list; empty where it has none.
        computed: that of the central image, where neither is known and it could be read.
    """
    asked = str(image.get("sha256") or "").lower()
    if not asked and not listed:
        remedy = "Have the image put into its place first, and run this again to be told its sum."
        if computed:
            remedy = "If you trust the image as it is now, write this under base.image: sha256: %s" % computed
        return [error("checksum", "Nothing says which checksum %s must have: neither base.image.sha256 nor %s." % (
            image["file"], sums), remedy)]
    if asked and listed and asked != listed:
        return [warning(
            "checksum", "The release file wants %s with sha256 %s, and %s says %s." % (
                image["file"], asked, sums, listed),
            "The release file counts: if the image has been exchanged under its name, the copy will be refused.")]
    return [note("checksum", "The sum of the image is known from %s." % ("the release file" if asked else sums))]


def judge_definition(image: Facts, where: Places, problem: str) -> list[Finding]:
    """Check whether the image's definition is there, by why it cannot be read."""
    if not image.get("definition") or not problem:
        return []
    return [error("definition", "The definition %s %s." % (where.definition, problem),
                  "Correct base.image.definition, or leave it away to keep none.")]


def judge_room(where: Places, bytes_needed: int, volume: Facts, user: str) -> list[Finding]:
    """Check whether the copy has room (0 bytes: it is there), as far as file system and quota show it."""
    if not volume["directory"]:
        return [error("space", "%s is not a directory, so that the copy %s cannot be made." % (
            volume["nearest"], where.copy), "Move it away.")]
    if bytes_needed and not volume["writable"]:
        return [error("space", "%s may not write in %s, where the copy of the image would be made." % (
            user, volume["nearest"]), "Run this as %s, or let the release refer to the central image by "
            "base.image.placement: reference." % volume["owner"])]
    return judge_space(volume, user, {"required_bytes": bytes_needed, "required_inodes": INODES}, "the image")


def judge_binds(missing: Sequence[str]) -> list[Finding]:
    """Check whether what containers bind of the machine is there: with an entry that is missing, none starts."""
    if not missing:
        return []
    return [error(
        "binds", "Of what containers are to see of this machine, %s %s not there, and none would start." % (
            ", ".join(missing), "is" if len(missing) == 1 else "are"),
        "Correct torchstack_container.binds in the site's group_vars.")]


def judge_runtime(command: str, path: str, version: str, problem: str) -> list[Finding]:
    """Check whether the command that starts containers is there and answers.

    ``path`` is empty where it was not found, ``version`` where it could not be read, ``problem`` where it answers.
    """
    remedy = "Load what brings it, or name the site's own as torchstack_container.command."
    if not path:
        return [error("runtime", "There is no %s on PATH, which starts containers." % command, remedy)]
    if problem:
        return [error("runtime", "%s does not answer: %s." % (path, problem.rstrip(".")), remedy)]
    return [note("runtime", "%s is version %s." % (path, version or "of unknown number"))]
