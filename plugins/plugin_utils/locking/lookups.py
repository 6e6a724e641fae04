# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Look up what of a release file only an index or a repository knows, by the ways that pip and git have."""

from __future__ import annotations

import hashlib
import os
from typing import Any, Iterable, Mapping

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.download import Network, Unreachable
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.near_names import nearest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.redaction import without_credentials
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_command import run
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror import pip_config, wheel_tags
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror.package_index import Indexes

from . import facts
from .groups import MACHINES

TIMEOUT = 30.0
"""Seconds that a server may be silent."""

GIT_SECONDS = 120.0
_PIECE = 1 << 20


class FactError(Exception):
    """What an index or a repository does not have, in one sentence."""


class Lookups:
    """Looks values up; each page of an index is read once."""

    def __init__(self, pythons: Iterable[int]) -> None:
        self.pythons = tuple(pythons)
        self.indexes: Indexes | None = None

    def find(self, asked: facts.Wanted) -> facts.Value:
        """Return the value. Raises Unreachable: nobody answers; FactError: what is asked for is not there."""
        if asked.kind == facts.COMMIT:
            return self._commit(asked)
        if asked.kind == facts.ARCHIVE:
            return self._digest(asked.asked[0])
        return self._source(asked) if asked.kind == facts.SOURCE else self._wheels(asked)

    def _commit(self, asked: facts.Wanted) -> str:
        repository, tag = asked.asked
        environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
        done = run(["git", "ls-remote", "--tags", "--", repository], GIT_SECONDS, environment=environment)
        if not done.ok:
            raise Unreachable("%s does not answer (%s)" % (without_credentials(repository), _last(done.complaint)))
        tags = {name[len("refs/tags/"):]: commit for commit, _tab, name in (
            line.partition("\t") for line in done.output.splitlines())}
        # Of an annotated tag the first is an object of its own.
        commit = tags.get(tag + "^{}") or tags.get(tag)
        if commit is None:
            near = nearest(tag, [name for name in tags if not name.endswith("^{}")])
            raise FactError("'%s' is %s, which %s does not have%s." % (
                asked.after, tag, without_credentials(repository), "; did you mean %s?" % near if near else ""))
        return commit

    def _source(self, asked: facts.Wanted) -> str:
        project, version = asked.asked
        for link in self._links(asked, project):
            name = wheel_tags.parse(link.filename, project)
            if name is not None and not name.is_wheel and wheel_tags.same_version(version, name.version):
                return link.sha256 or self._digest(link.url)
        raise FactError("'%s' is %s, of which no place that pip looks at has a source archive of %s." % (
            asked.after, version, project))

    def _wheels(self, asked: facts.Wanted) -> facts.Value:
        index, version = asked.asked
        tags = dict.fromkeys(["cp3%d" % minor for minor in self.pythons] + list(asked.now or {}))
        found: dict[str, dict[str, str]] = {}
        for link in self._links(asked, "torch", index):
            name = wheel_tags.parse(link.filename, "torch")
            if name is None or not wheel_tags.same_version(version, name.version) or "+cu" in name.version:
                continue
            for python, abi, platform in name.tags:
                machine = next((one for one in MACHINES if "linux" in platform and platform.endswith(one)), "")
                if machine and python == abi and python in tags:
                    found.setdefault(python, {})[machine] = "sha256:" + (link.sha256 or self._digest(link.url))
        if not found:
            raise FactError("'pytorch.version' is %s, of which %s has no wheel for %s." % (
                version, index, ", ".join(tags)))
        return {tag: [found[tag][machine] for machine in MACHINES if machine in found[tag]]
                for tag in sorted(found)}

    def _links(self, asked: facts.Wanted, project: str, index: str = "") -> Any:
        if self.indexes is None:
            try:
                settings = pip_config.read(os.environ)
                self.indexes = Indexes(Network(TIMEOUT, settings.certificates, settings.proxy), settings)
            except (StackError, OSError) as error:
                raise Unreachable(str(error).rstrip(".")) from error
        links = self.indexes.links(project, index)
        problems = self.indexes.problems_of(project, index)
        if not links and problems:
            raise Unreachable("%s: %s" % problems[0])
        return links

    def _digest(self, url: str) -> str:
        digest = hashlib.sha256()
        network = self.indexes.network if self.indexes else Network(TIMEOUT, **_of_pip(os.environ))
        with network.open(url) as stream:
            for piece in iter(lambda: stream.read(_PIECE), b""):
                digest.update(piece)
        return digest.hexdigest()


def _of_pip(variables: Mapping[str, str]) -> dict[str, str]:
    found = pip_config.options(variables)
    return {"certificates": found.get("cert", ""), "proxy": found.get("proxy", "")}


def _last(complaint: str) -> str:
    return (complaint.strip().splitlines() or ["without a word"])[-1].rstrip(".")
