# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check what was asked for, and bring it to one form: channels, specs or a lock, virtual packages.

Names of channels become addresses, so that nothing depends on a .condarc of the account.
"""

from __future__ import annotations

import hashlib
import os
import re
import urllib.parse
from typing import Iterable, Mapping, NamedTuple

from ..core.digests import local_path
from ..core.errors import StackError
from ..core.redaction import credential_in

ALIAS = "https://conda.anaconda.org"
"""Where a channel that is only a name lies, for every conda client."""

DEFAULTS = ("https://repo.anaconda.com/pkgs/main", "https://repo.anaconda.com/pkgs/r")
"""What conda calls ``defaults`` on Linux (conda's own default_channels)."""

_LICENSED_HOSTS = ("repo.anaconda.com", "repo.continuum.io")
_LICENSED_NAMES = ("defaults", "main", "r", "msys2", "anaconda", "pkgs")
_SPEC_NAME = re.compile(r"(?:[^:\s]+::)?([A-Za-z0-9_.-]+)")
_VIRTUAL = re.compile(r"^__[a-z0-9_]+$")
_LICENCE = "The channel %s is Anaconda's, whose terms of service ask larger organisations for a licence."
_LICENCE_REMEDY = "Set accept_defaults_licence once your organisation has agreed to them, or use conda-forge."


class Request(NamedTuple):
    """What a prefix shall hold."""

    channels: tuple[str, ...]
    specs: tuple[str, ...]
    optional_specs: tuple[str, ...]
    lock: str
    platform: str
    virtual_packages: tuple[tuple[str, str], ...]
    channel_priority: str

    def digest(self) -> str:
        """Return one value that changes whenever anything that was asked for does."""
        return hashlib.sha256(repr(tuple(self)).encode("utf-8")).hexdigest()


def channel_urls(name: str) -> list[str]:
    """Return the addresses behind a channel as an operator writes it: an address, a directory, or a name."""
    name = name.strip().rstrip("/")
    if name == "defaults":
        return list(DEFAULTS)
    if "://" in name:
        return [name]
    if name.startswith("/"):
        return ["file://" + urllib.parse.quote(os.path.normpath(name))]
    if name.startswith("pkgs/"):
        return ["https://repo.anaconda.com/" + name]
    return ["%s/%s" % (ALIAS, name)]


def needs_licence(url: str) -> bool:
    """Tell whether an address of a channel or package falls under Anaconda's terms of service."""
    parts = urllib.parse.urlsplit(url)
    first = parts.path.strip("/").split("/")[0]
    return parts.hostname in _LICENSED_HOSTS or (url.startswith(ALIAS + "/") and first in _LICENSED_NAMES)


def check_licence(urls: Iterable[str], accepted: bool) -> None:
    """Refuse what falls under Anaconda's terms unless they were accepted."""
    for url in urls:
        if not accepted and needs_licence(url):
            raise StackError(_LICENCE % url, "check the channels", _LICENCE_REMEDY)


def spec_name(spec: str) -> str:
    """Return the name of the package that a spec asks for; empty where it names none."""
    match = _SPEC_NAME.match(spec.strip())
    return match.group(1).lower() if match else ""


def named_channels(specs: Iterable[str]) -> list[str]:
    """Return channels in specs, as in ``conda-forge::python`` and ``python[channel=conda-forge]``."""
    found = []
    for spec in specs:
        match = re.match(r"^\s*([^\s\[\]]+?)::", spec)
        found += [match.group(1)] if match else []
        found += re.findall(r"channel\s*=\s*['\"]?([^\s,'\"\]]+)", spec)
    return found


def build_request(params: Mapping, lock: str) -> Request:
    """Return the request of the module's options; ``lock`` is what the lock holds, empty where specs were given."""
    channels = [url for name in params["channels"] for url in channel_urls(name)]
    if params["specs"] and not channels:
        raise StackError("Specs need a channel to be solved from.", "check the options", "Set channels.")
    if params["optional_specs"] and not params["specs"]:
        message = "A lock says exactly what the prefix holds, so that nothing is optional."
        raise StackError(message, "check the options", "Give optional_specs with specs only.")
    every = [*(params["specs"] or ()), *params["optional_specs"]]
    named = [url for name in named_channels(every) for url in channel_urls(name)]
    check_licence(channels + named, params["accept_defaults_licence"])
    for what, text in (("A channel", "\n".join(channels + named)), ("The lock", lock)):
        found = credential_in(text)
        if found:
            message = "%s has %s, which the prefix's records would show to everybody." % (what, found)
            remedy = "Name the channel without it, and the address with it in mirrors."
            raise StackError(message, "check the channels", remedy)
    virtual = {}
    for name, version in (params["virtual_packages"] or {}).items():
        if not _VIRTUAL.match(name):
            message = "%s is not the name of a virtual package." % name
            raise StackError(message, "check the options", "They begin with two underscores, as __cuda and __glibc do.")
        virtual[name] = "" if version is None else str(version)
    return Request(
        tuple(channels), tuple(sorted(params["specs"] or ())), tuple(sorted(params["optional_specs"])), lock,
        params["platform"] or this_platform(), tuple(sorted(virtual.items())), params["channel_priority"],
    )


def this_platform() -> str:
    """Return conda's name of this machine's platform."""
    return platform_of(os.uname().machine)


def platform_of(machine: str) -> str:
    """Return conda's name of a machine's platform, by what ``uname -m`` says there."""
    names = {"x86_64": "linux-64", "aarch64": "linux-aarch64", "ppc64le": "linux-ppc64le"}
    if machine not in names:
        raise StackError("conda has no platform for the processor %s." % machine, "check the options", "Set platform.")
    return names[machine]


def mirror_choices(mirrors: Mapping[str, object]) -> dict[str, list[str]]:
    """Return the mirrors of each channel, the preferred one first; names and directories become addresses."""
    result = {}
    for name, given in mirrors.items():
        sources = channel_urls(name)
        if len(sources) != 1:
            message = "A mirror cannot stand for %s, which is several channels." % name
            raise StackError(message, "check the options", "Name a mirror for each: %s." % ", ".join(sources))
        places = [channel_urls(str(place))[0] for place in (given if isinstance(given, (list, tuple)) else [given])]
        if not places:
            raise StackError("There is no mirror for %s." % name, "check the options", "Name one, or leave it out.")
        result[sources[0]] = places
    return result


def mirror_urls(mirrors: Mapping[str, object]) -> dict[str, str]:
    """Return the preferred mirror of each channel."""
    return {source: places[0] for source, places in mirror_choices(mirrors).items()}


def missing_directories(urls: Iterable[str]) -> list[str]:
    """Return the directories behind ``file://`` addresses that are not there."""
    return [path for path in map(local_path, urls) if path is not None and not os.path.isdir(path)]
