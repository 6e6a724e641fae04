# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Which release a release takes the place of: the default before it. Pure."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ..release.states import ReleaseState


def outgoing(
    release: ReleaseState, releases: Sequence[ReleaseState], publications: Sequence[Mapping[str, Any]],
) -> ReleaseState | None:
    """The release whose users a notice about ``release`` is for.

    It is the same before ``release`` becomes the default, while it is, and when it no longer is: what an announcement
    says does not depend on when it is written.

    Args:
        release: what is announced.
        releases: all of the root, removed ones too, in the order of their freezes.
        publications: the journal of what users saw, oldest first.

    Returns:
        None for the first release, before which there was no default.
    """
    same_module = {state.version: state for state in releases if state.name == release.name}
    before = [
        same_module[entry["previous"]] for entry in publications
        if entry.get("release") == release.release and entry.get("action") == "default"
        and entry.get("version") == release.version and entry.get("previous") in same_module
    ]
    now = next((state for state in same_module.values() if state.is_default), None)
    known = before[-1] if before else None
    if now is None or now.release == release.release:
        return known
    order = [state.release for state in releases]
    followed = release.defaulted_at and order.index(now.release) > order.index(release.release)
    return known if followed else now
