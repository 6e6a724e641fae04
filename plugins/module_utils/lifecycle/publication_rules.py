# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Refuse to publish or to hide a release that must not be, by StackError. Pure."""

from __future__ import annotations

import os

from ..core.errors import StackError
from ..modulefiles.layout import (
    ACCEPTANCE,
    RECORD,
    default_path,
    digest,
    relative_path,
    stage_directory,
)
from ..modulefiles.visible_text import one_line
from ..release.states import REMOVED
from .publication_facts import STEP, Facts, command_of_default, others_listed
from .publication_first import SYSTEMS


def require_publishable(facts: Facts, without_acceptance: str) -> None:
    """Refuse to publish what was removed, may still change, is not what was verified, or was not accepted.

    ``without_acceptance`` is the reason to do without a successful acceptance; empty for never.
    """
    require_not_removed(facts)
    if facts.thawed:
        raise StackError(
            "Release %s is thawed (%s): what may still change is not published." % (
                facts.release, one_line(str(facts.thawed.get("why", "")))), STEP,
            "Freeze it again, playbooks/thaw.yml -e torchstack_release=%s -e thaw_state=refrozen, and accept it, "
            "playbooks/accept.yml -e torchstack_release=%s." % (facts.release, facts.release),
            stage_directory(facts.root, facts.release))
    require_verified_bytes(facts)
    _require_acceptance(facts, without_acceptance)


def require_not_removed(facts: Facts) -> None:
    """Refuse to let users load what is not there any more, or is going."""
    if facts.retired.get("state") in REMOVED:
        raise StackError(
            "Release %s was retired: its files are gone, or going." % facts.release, STEP,
            "Roll out a release of another name.", stage_directory(facts.root, facts.release))


def require_verified_bytes(facts: Facts) -> None:
    """Refuse modulefiles that are not those that were verified with success."""
    stage = stage_directory(facts.root, facts.release)
    remedy = "Run the role modulefile for this release again."
    for other in facts.others:
        _require_verified(other, stage, remedy)
    if facts.record["passed"] is not True:
        raise StackError(
            "The modulefile of release %s failed its verification." % facts.release, STEP, remedy,
            os.path.join(stage, RECORD))
    _require_verified(facts, stage, remedy)


def _require_verified(facts: Facts, stage: str, remedy: str) -> None:
    for syntax in facts.syntaxes:
        content = facts.staged[syntax]
        path = os.path.join(stage, relative_path(syntax, facts.name, facts.version))
        if content is None or digest(content) != facts.record["files"].get(syntax, {}).get("sha256"):
            raise StackError("%s is not the file that was verified." % path, STEP, remedy, path)


def _require_acceptance(facts: Facts, without: str) -> None:
    if without.strip():
        return
    path = os.path.join(stage_directory(facts.root, facts.release, next(iter(facts.acceptances), "")), ACCEPTANCE)
    remedy = (
        "Accept it: playbooks/accept.yml -e torchstack_release=%s. Or give the reason for doing without in "
        "publish_without_acceptance." % facts.release)
    if facts.standing.state != "passed":
        # In a plan, what a rollout accepts before it publishes is still to come.
        details = {} if facts.standing.state == "failed" else {"planned_after": "acceptance"}
        raise StackError(facts.standing.sentence, STEP, remedy, path, **details)
    for partition, accepted in facts.acceptances.items():
        digests = (accepted if isinstance(accepted, dict) else {}).get("modulefiles") or {}
        for syntax in facts.syntaxes:
            verified = facts.record["files"][syntax]["sha256"]
            if digests.get(syntax, verified) != verified:
                raise StackError(
                    "Release %s was accepted%s with another %s modulefile than the one that is to be published." % (
                        facts.release, " on partition %s" % partition if partition else "", syntax), STEP, remedy,
                    os.path.join(stage_directory(facts.root, facts.release, partition), ACCEPTANCE))


def require_not_default(facts: Facts) -> None:
    """Refuse to hide what ``module load NAME`` means."""
    for syntax in facts.syntaxes:
        if facts.defaults[syntax] == facts.version:
            raise StackError(
                "%s is the default for %s, and the default cannot be hidden." % (
                    facts.full_name, SYSTEMS[syntax]), STEP,
                " ".join(["Give it back: playbooks/rollback.yml.", *(
                    "Or make another one the default: %s." % command_of_default(facts, syntax, version)
                    for version in others_listed(facts, syntax)[-1:])]),
                os.path.join(facts.root, default_path(syntax, facts.name)))
