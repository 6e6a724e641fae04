# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read the checksum of a container's image in the site's central place."""

from __future__ import annotations

import os
import pathlib

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.digests import sha256_of, text_of
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.container import checksum
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight.container_image import SUMS

from . import site_data

VARIABLE = "torchstack_images"
PARTS = 10
"""Lines of progress for one image."""

_MIB = 1 << 20


class OptionalError(Exception):
    """Why an image's checksum is left out of the release file, which need not have one; half a sentence."""


def digest_of(release: pathlib.Path, name: str, given: pathlib.Path | None) -> str:
    """Read an image and return its checksum, with lines of progress.

    Args:
        release: the release file, beside whose directory the site's hosts file lies.
        given: the central place, in the place of the site's own.

    Raises OptionalError: it cannot be read here, or SHA256SUMS has it.
    """
    central = given or _central(release)
    listed = checksum(text_of(str(central / SUMS)), name)
    if listed:
        raise OptionalError("%s has it, %s" % (central / SUMS, listed[:12]))
    path = central / name
    try:
        total, read = max(1, os.stat(path).st_size // _MIB), 0
        print("Reading %s, %d MiB ..." % (path, total), flush=True)

        def tick() -> None:
            nonlocal read
            read += 1
            if total >= PARTS and read * PARTS // total > (read - 1) * PARTS // total:
                print("  [%d/%d] MiB" % (read, total), flush=True)

        return sha256_of(str(path), tick)
    except OSError as error:
        raise OptionalError(
            "%s cannot be read on this machine (%s); run this where the site's images are, or name their directory by "
            "--images" % (path, error.strerror or error)) from error


def _central(release: pathlib.Path) -> pathlib.Path:
    """Ask the site's inventory for its central place of images. Raises OptionalError: it does not say."""
    try:
        found = site_data.ask(release, "%s | default('')" % VARIABLE)
    except site_data.UnknownError as error:
        raise OptionalError("%s; name the directory of its images by --images" % error) from error
    if not found:
        raise OptionalError("the site names no %s; name the directory of its images by --images" % VARIABLE)
    return pathlib.Path(str(found))
