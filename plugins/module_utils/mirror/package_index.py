# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find the files that indexes and directories (``--find-links``) have of a project, as pip would.

Indexes answer by the specification "Simple repository API" (PEP 503 as HTML, PEP 691 as JSON).
"""

from __future__ import annotations

import contextlib
import html.parser
import json
import os
import re
import urllib.parse
import urllib.request
from typing import Any, NamedTuple

from ..core.download import Network, Unreachable
from ..definition.packages import canonical
from .pip_config import Settings

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html; q=0.2, text/html; q=0.1"
MAX_PAGE_BYTES = 64 << 20
"""Bytes; the longest pages of public indexes have some megabytes."""


class Link(NamedTuple):
    """A file that is offered."""

    filename: str
    url: str
    sha256: str
    """empty where the offer does not say"""
    size: int
    """bytes; -1 where the offer does not say"""


class Indexes:
    """The places that a machine's pip would look at unless an entry says otherwise; each page is read once."""

    def __init__(self, network: Network, settings: Settings) -> None:
        self.network = network
        self.settings = settings
        self.pages: dict[str, list[Link]] = {}
        self.problems: dict[str, str] = {}

    def links(self, project: str, index: str = "") -> list[Link]:
        """Return the files of ``index`` or of all places, those of directories first, as they need no network."""
        if index.startswith("/"):
            return self._page(index)
        if index:
            return self._page(self._project_page(index, project))
        found = [link for place in self.settings.find_links for link in self._page(place)]
        for one in self.settings.indexes:
            found += self._page(self._project_page(one, project))
        return found

    def problems_of(self, project: str, index: str = "") -> list[tuple[str, str]]:
        """Return the places of :meth:`links` that could not be read, with reasons that end a sentence."""
        asked = [index] if index else [*self.settings.find_links, *self.settings.indexes]
        pages = {self.network.without_login(place) for place in asked}
        pages |= {self.network.without_login(self._project_page(place, project)) for place in asked}
        return sorted((page, problem) for page, problem in self.problems.items() if page in pages)

    @staticmethod
    def _project_page(index: str, project: str) -> str:
        page = "%s/%s/" % (index.rstrip("/"), canonical(project))
        return page + "index.html" if page.startswith("file:") else page

    def _page(self, place: str) -> list[Link]:
        if place not in self.pages:
            found: list[Link] = []
            try:
                found = self._read(place)
            except Unreachable as error:
                self.problems[self.network.without_login(place)] = str(error)
            self.pages[place] = found  # only now, as another thread may ask for it
        return self.pages[place]

    def _read(self, place: str) -> list[Link]:
        directory = urllib.request.url2pathname(place[len("file://"):]) if place.startswith("file://") else place
        if os.path.isdir(os.path.expanduser(directory)):
            return directory_links(os.path.abspath(os.path.expanduser(directory)))
        url = place if "://" in place else "file://" + urllib.parse.quote(os.path.abspath(directory))
        with self.network.open(url, {"Accept": ACCEPT}) as answer:
            try:
                text = answer.read(MAX_PAGE_BYTES).decode("utf-8", "replace")
            except OSError as error:
                raise Unreachable("it stops to answer (%s)" % error) from error
            kind = answer.headers.get("Content-Type") or ""
            return page_links(text, answer.geturl() or url, "json" in kind)


def directory_links(directory: str) -> list[Link]:
    """Return the files in a directory; their digests are not known without reading them."""
    with os.scandir(directory) as entries:
        return [
            Link(entry.name, "file://" + urllib.parse.quote(entry.path), "", entry.stat().st_size)
            for entry in sorted(entries, key=lambda entry: entry.name) if entry.is_file()]


def page_links(text: str, url: str, is_json: bool) -> list[Link]:
    """Return the files that a page, of this address, offers. Raises Unreachable: it is no page of an index."""
    if not is_json:
        reader = _Anchors(url)
        try:
            reader.feed(text)
        except (AssertionError, NotImplementedError) as error:
            # The library's own words for a declaration that never was one, such as "<![" and a line break.
            raise Unreachable("it is no page that can be read") from error
        return reader.links
    try:
        entries = json.loads(text)["files"]
        return [_json_link(entry, url) for entry in entries]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreachable("it does not answer as an index does") from error


def _json_link(entry: dict[str, Any], url: str) -> Link:
    size = entry.get("size")
    return Link(
        entry["filename"], urllib.parse.urljoin(url, entry["url"]), str((entry.get("hashes") or {}).get("sha256", "")),
        size if isinstance(size, int) else -1)


class _Anchors(html.parser.HTMLParser):
    """Collects the links of an HTML page."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.base = url
        self.links: list[Link] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See :class:`html.parser.HTMLParser`. What is no address is no link."""
        with contextlib.suppress(ValueError):
            self._take(tag, dict(attrs).get("href"))

    def _take(self, tag: str, target: str | None) -> None:
        if target is None:
            return
        if tag == "base":
            self.base = urllib.parse.urljoin(self.base, target)
        if tag != "a":
            return
        url, _hash, fragment = urllib.parse.urljoin(self.base, target).partition("#")
        filename = urllib.parse.unquote(urllib.parse.urlsplit(url).path.rpartition("/")[2])
        digest = re.search(r"(?:^|&)sha256=([0-9a-fA-F]{64})", fragment)
        if filename:
            self.links.append(Link(filename, url, digest.group(1).lower() if digest else "", -1))
