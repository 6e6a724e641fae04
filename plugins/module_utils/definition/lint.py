# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find everything that is wrong with a site's data and its release files, and where it stands.

The judgement is that of the modules that later tasks ask. Pure, but for the patch series, which are read.
"""

from __future__ import annotations

import os
from typing import Any, Mapping, NamedTuple, Sequence

from ..batch import registry
from ..core.errors import StackError
from . import (
    components,
    lint_variables,
    lock_lines,
    modulefile,
    partitions,
    release_file,
    runtime_settings,
    site_data,
    step_names,
    stored_release,
)
from .lint_places import Places, Problem, located, names_in

THIS = "This file"
"""What sentences call a release file that stands in front of them."""

NOT_FILLED = "/not-filled-in"
"""What stands in the place of a text whose template cannot be filled in."""


class Release(NamedTuple):
    """One release file, as it was read."""

    file: str
    """as sentences name it"""
    name: str
    """what its file's name says; empty where that says nothing"""
    content: Mapping[str, Any]
    places: lock_lines.Places
    """where its keys and locks are written"""
    parts: Mapping[str, str] = {}
    """the files of its parts, as sentences name them, by the keys at the top"""


class Asked(NamedTuple):
    """What is judged."""

    site: site_data.Site
    specified: Mapping[str, Any]
    """the entry points of the role release"""
    options: Mapping[str, Mapping[str, Any]]
    """the variables that may be given, see :func:`.lint_variables.options_of`"""
    given: Mapping[str, Any]
    """the variables that the site gives, as the roles get them"""
    places: Places
    """where these stand"""
    releases: Sequence[Release]
    others: Sequence[Mapping[str, Any]]
    """the content of release files that are not judged"""
    roles: str
    """the directory of the roles"""
    own_series: str = ""
    """the directory of the site's own patch series; empty for none"""


def problems(asked: Asked) -> list[Problem]:
    """Find all problems, those of the site first; each is there once."""
    settings = runtime_settings.problems(asked.site["runtime_settings"])
    alone = site_data.problems(asked.site, asked.specified, {}, submits=False)
    found = located(_of_variables(asked, settings, alone), asked.places)
    for release in asked.releases:
        found += _of_release(asked, release, settings, alone)
    # Of what could not be filled in, nothing more is known.
    return [problem for problem in dict.fromkeys(found) if NOT_FILLED not in problem.message]


def _of_variables(asked: Asked, settings: Sequence[str], alone: Sequence[str]) -> list[str]:
    source = "the data of site %s" % asked.site["site"]
    contents = [stored_release.asked_for(content) for content in (
        *(release.content for release in asked.releases), *asked.others)]
    return [
        *lint_variables.problems(asked.given, asked.options, source),
        *lint_variables.proxy_problems(asked.given),
        *lint_variables.command_problems(asked.given),
        *settings,
        *alone,
        *step_names.job_problems(asked.site["jobs"], contents),
        *step_names.partition_problems(asked.site.get("partitions"), contents),
        *partitions.left_out_problems(asked.site.get("partitions"), {
            *(release.name for release in asked.releases if release.name),
            *(str(content["release"]) for content in contents if content.get("release"))}),
    ]


def _of_release(asked: Asked, release: Release, settings: Sequence[str], alone: Sequence[str]) -> list[Problem]:
    """Find the problems of a release file, and of its fit with the site; not those that the site has without it."""
    keys = asked.specified["release_file"]["options"]
    places = Places(release.places.lines, release.parts, release.file, _names(release.content))
    stored = stored_release.is_stored(release.content)
    # That of a release was checked when it was written, and has every default in it.
    own = [] if stored else release_file.problems(release.content, keys, "", release.places)
    if not own and release.name and release.content.get("release") != release.name:
        own.append("'release' is %s, and the name of the file says %s; they must be the same." % (
            release.content.get("release"), release.name))
    if own:
        return located(own, places)
    try:
        definition = release_file.define(release.content, keys, asked.roles, asked.own_series).definition
    except StackError as error:
        return located([_series_sentence(release.content, error.message, asked)], places)
    site = asked.site.copy()
    site["file"], begin = THIS, THIS + ": "
    site["release"] = str(release.content.get("release") or site["release"])
    fit = [text[len(begin):] if text.startswith(begin) else text
           for text in site_data.release_problems(site, definition, frozen=False)]
    fit = [text for text in fit if text not in settings]
    if not fit and not settings:
        merged = runtime_settings.merge(asked.site["runtime_settings"], definition.get("runtime") or {})
        fit = modulefile.rendering_problems(definition, merged, asked.site["root"])
    of_site = [text for text in site_data.problems(site, asked.specified, definition, submits=False)
               if text not in alone]
    # Of what goes with the site, some stands in its data and some in the release file.
    return [*located(fit, places), *located(of_site, asked.places._replace(file=release.file))]


def _series_sentence(content: Mapping[str, Any], message: str, asked: Asked) -> str:
    """Say which key names the patch series that cannot be used, and which ones there are."""
    for _name, keys, role in components.series_of_roles():
        series = components.value_at(content, (*keys, "series"))
        places = release_file.series_places(asked.roles, asked.own_series, role)
        if series and any(os.path.join(place, str(series)) in message for place in places):
            there = sorted({name for place in places if os.path.isdir(place) for name in os.listdir(place)})
            return "'%s.series' is %s, and there are %s: %s" % (
                ".".join(keys), series, ", ".join(there) or "none", message)
    return message


def _names(content: Mapping[str, Any]) -> dict[str, str]:
    """Return what sentences call by its name in a release file."""
    runtime = content.get("runtime")
    settings = runtime.get("settings") if isinstance(runtime, Mapping) else None
    listed = {key: names_in(content.get(key), key) for key in ("packages", "bundles")}
    return {**listed["packages"], **listed["bundles"], **names_in(settings, "runtime.settings")}


def doubts(site: site_data.Site) -> list[str]:
    """Find directives of jobs of which nothing is known, and those that a step drops, a sentence for each.

    A site may have options of its own, and may mean it.
    """
    jobs = site["jobs"] if isinstance(site["jobs"], Mapping) else {}
    launcher, steps = str(jobs.get("launcher")), jobs.get("steps")
    if launcher not in registry.SYSTEMS:
        return []
    system = registry.system_of(launcher)
    levels = [jobs.get("options"), *(steps.values() if isinstance(steps, Mapping) else ())]
    lines = [line for level in levels if isinstance(level, Mapping) for line in level.get("directives") or []]
    return _dropped(jobs.get("options"), steps) + [
        "The directive '%s' is none that %s is known to have; if the site has it, leave it." % (line, system.title)
        for line in dict.fromkeys(lines) if isinstance(line, str) and system.options.directives.unknown(line.strip())
    ]


def _dropped(options: object, steps: object) -> list[str]:
    """Find the site's directives that a step with directives of its own does without."""
    of_all = [str(line) for line in (options.get("directives") if isinstance(options, Mapping) else None) or []]
    found = []
    for name, own in steps.items() if isinstance(steps, Mapping) else ():
        lines = own.get("directives") if isinstance(own, Mapping) else None
        lost = [line for line in of_all if line not in (lines or [])]
        if lines and lost:
            found.append(
                "'torchstack_jobs.steps.%s.directives' replaces the site's as a whole, and leaves out %s; repeat what "
                "the step needs of it." % (name, ", ".join(lost)))
    return found
