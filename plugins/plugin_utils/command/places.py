# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find the directory that playbooks are run in, its sites and their release files; without Ansible, as it is slow."""

from __future__ import annotations

import configparser
import os
import pathlib
from typing import Any, Mapping, NamedTuple

import yaml
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.lenient_json import mapping, text
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.near_names import nearest
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.ansible_programs import TOP
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.release_file import FAST

LOCAL = "local"
"""The site of whoever names none, where it is there."""

RECORD = os.path.join(".torchstack", "release.yml")


class CommandError(Exception):
    """Why nothing was done, in sentences."""


class Workspace(NamedTuple):
    """Where the playbooks are run."""

    directory: pathlib.Path
    """with the ansible.cfg"""
    sites: Mapping[str, pathlib.Path]
    """the hosts file of each site"""

    @property
    def is_collection(self) -> bool:
        """Whether it is the collection itself, whose playbooks are files there."""
        return self.directory.resolve() == TOP

    def release_files(self, site: str) -> dict[str, pathlib.Path]:
        """List the release files of a site by the names of the releases."""
        hosts = self.sites.get(site)
        places = [hosts.parent / "releases", hosts.parent.parent / "releases"] if hosts else []
        found = next((place for place in places if place.is_dir()), None)
        return {path.stem: path for path in sorted(found.glob("*.yml"))} if found else {}

    def default_site(self) -> str:
        """Return the site that is meant where none is named; empty where there are several."""
        return LOCAL if LOCAL in self.sites else next(iter(self.sites)) if len(self.sites) == 1 else ""


class Target(NamedTuple):
    """What a command is about."""

    site: str
    """empty: the site that the playbook takes"""
    releases: tuple[str, ...] = ()
    """none: the site's own default"""
    prefix: str = ""
    """of the release that the current directory lies in; empty where it lies in none"""


def find_workspace(start: pathlib.Path | None = None) -> Workspace:
    """Find the nearest directory above with an ansible.cfg; where there is none, the collection's own."""
    start = start or pathlib.Path.cwd()
    directory = next((place for place in (start, *start.parents) if (place / "ansible.cfg").is_file()), TOP)
    return Workspace(directory, _sites(directory))


def _sites(directory: pathlib.Path) -> dict[str, pathlib.Path]:
    config = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        config.read(directory / "ansible.cfg", encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise CommandError("%s cannot be read: %s." % (directory / "ansible.cfg", error)) from error
    found: dict[str, pathlib.Path] = {}
    for word in config.get("defaults", "inventory", fallback="").split(","):
        source = directory / os.path.expanduser(word.strip())
        files = [source] if source.is_file() else sorted(source.glob("*.yml")) if word.strip() else []
        for path in files:
            found.update((site, path) for site in _groups(path) if site not in found)
    return found


def _groups(path: pathlib.Path) -> list[str]:
    """List the groups that a hosts file has at its top, or below ``all``; none of what cannot be read."""
    content = _yaml(path)
    names = [*mapping(mapping(content.get("all")).get("children")), *(name for name in content if name != "all")]
    return [name for name in names if isinstance(name, str)]


def _yaml(path: pathlib.Path) -> dict[str, Any]:
    try:
        return mapping(yaml.load(path.read_text(encoding="utf-8"), Loader=FAST))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}


def directory_of_release(start: pathlib.Path | None = None) -> Target:
    """Say which release the current directory lies in, by the release's own record."""
    start = start or pathlib.Path.cwd()
    for place in (start, *start.parents):
        if (place / RECORD).is_file():
            content = _yaml(place / RECORD)
            return Target(text(content.get("site")), (text(content.get("release")) or place.name,), str(place))
    return Target("")


def site_of_directory(workspace: Workspace, start: pathlib.Path | None = None) -> str:
    """Say in which site's data the current directory lies; empty where it lies in none."""
    start = (start or pathlib.Path.cwd()).resolve()
    own = {path.parent.resolve(): site for site, path in workspace.sites.items()}
    return next((own[place] for place in (start, *start.parents) if place in own and len(workspace.sites) > 1), "")


def read_target(workspace: Workspace, words: tuple[str, ...], most: int = 1) -> Target:
    """Tell site and releases apart in the words of a command line.

    Args:
        most: how many releases the command takes.

    Raises CommandError: there are more words, or one of them is probably a slip.
    """
    sites = [word for word in words if word in workspace.sites]
    releases = tuple(word for word in words if word not in workspace.sites)
    if len(sites) > 1:
        raise CommandError("Two sites are named, %s: name one." % " and ".join(sites))
    if len(releases) > most:
        raise CommandError(_too_many(workspace, releases, most))
    here = directory_of_release()
    if not words and here.releases and most == 1:
        return here
    site = sites[0] if sites else here.site or site_of_directory(workspace) or workspace.default_site()
    return Target(site, releases)


def _too_many(workspace: Workspace, releases: tuple[str, ...], most: int) -> str:
    known = list(workspace.sites)
    near = [(word, nearest(word, known)) for word in releases]
    said = next(("There is no site '%s'; did you mean '%s'?" % (word, other) for word, other in near if other), "")
    return said or "%s %s (there are %s), and %s" % (
        " and ".join("'%s'" % word for word in releases), "is no site" if len(releases) == 1 else "are no sites",
        ", ".join(known) or "none", "one release can be named." if most else "no release is named here.")


def known_release(workspace: Workspace, site: str, release: str, others: tuple[str, ...] = ()) -> None:
    """Refuse a release that has neither a file nor, among ``others``, a directory. Raises CommandError."""
    known = [*workspace.release_files(site), *others]
    if release in known or not known:
        return
    near = nearest(release, [*known, *workspace.sites])
    raise CommandError("There is no release '%s' of site '%s'%s" % (
        release, site, "; did you mean '%s'?" % near if near else ": there are %s." % ", ".join(sorted(set(known)))))
