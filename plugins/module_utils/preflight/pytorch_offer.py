# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Find the build of PyTorch that a release gets from its wheel, and check what it needs; only metadata is fetched.

The places are asked in the order of the step ``pytorch-fetch``: the CPU build where the release file knows it, on its
own index and wherever pip looks; else what the lock names.
"""

from __future__ import annotations

import glob
import os
import re
import urllib.parse
from typing import Any, Iterable, Mapping, NamedTuple, Sequence

from ..core.digests import local_path
from ..core.download import Network, Unreachable
from ..core.findings import Finding, error, note, warning
from ..mirror.index import Item
from ..mirror.plan import Planner, is_cuda_build
from ..mirror.requirements import Choice, Need
from ..mirror.wheel_tags import Interpreter, parse, same_version
from .nccl_find import Place
from .root_checks import format_bytes

CPU, CUDA, UNKNOWN = "cpu", "cuda", "unknown"
STEP = "look for PyTorch's wheel"

_NEEDS_CUDA = re.compile(r"^Requires-Dist:\s*(?:nvidia|cuda)[-_]", re.M | re.I)
"""In the metadata of a wheel, whose file torch/version.py is only known once it is there."""

_MAX_METADATA_BYTES = 1 << 20


class Offer(NamedTuple):
    """The build of PyTorch that a release gets: its wheel, and how many and large all wheels of a CUDA build are."""

    build: str
    """``cpu``, ``cuda``, or ``unknown`` where its index says nothing before it is fetched"""
    file: str
    """empty where no place has one"""
    origin: str
    files: int
    bytes: int
    """-1 where an index does not say"""
    fetched: bool
    why: tuple[str, ...]
    """why it is not the CPU build that the release file knows, as ends of sentences; empty where that is not so"""


NOTHING = Offer(UNKNOWN, "", "", 0, -1, False, ())


def fetched(directory: str) -> Offer | None:
    """Return what the step ``pytorch-fetch`` has put into its directory of a release, or None."""
    wheels = glob.glob(os.path.join(directory, "wheel", "*.whl"))
    if len(wheels) != 1 or not os.path.exists(os.path.join(directory, "complete")):
        return None
    others = glob.glob(os.path.join(directory, "cuda", "*.whl"))
    total = sum(os.path.getsize(path) for path in wheels + others)
    build = CUDA if is_cuda_build(wheels[0]) else CPU
    return Offer(build, os.path.basename(wheels[0]), wheels[0], 1 + len(others), total, True, ())


def find(choice: Choice, planner: Planner, network: Network | None) -> Offer:
    """Return the wheel that the release would get, from a mirror or (through the network) from indexes."""
    why: list[str] = []
    if choice.first is not None:
        item = _item(planner, choice.first)
        if item is not None:
            return Offer(CPU, os.path.basename(item.path), item.url or item.path, 1, item.size, False, ())
        why = planner.why_not(choice.first) or ["the mirror does not have it"]
    items = [(need, _item(planner, need)) for need in choice.otherwise]
    found = [item for _need, item in items if item is not None]
    torch = next((item for need, item in items if item is not None and need.name == "torch"), None)
    if torch is None:
        return NOTHING._replace(why=tuple(why))
    build = _build(torch, planner, network)
    if build != CPU:
        found += [item for item in (_item(planner, need) for need in choice.last) if item is not None]
    sizes = [item.size for item in found]
    total = -1 if min(sizes) < 0 else sum(sizes)
    return Offer(build, os.path.basename(torch.path), torch.url or torch.path, len(found), total, False, tuple(why))


def _item(planner: Planner, need: Need) -> Item | None:
    return planner.there(need) or (planner.offer(need) if planner.indexes is not None else None)


def _build(item: Item, planner: Planner, network: Network | None) -> str:
    path = local_path(item.url) if item.url else planner.contents.absolute(item.path)
    if path is not None:
        return CUDA if is_cuda_build(path) else CPU
    if network is None:
        return UNKNOWN
    try:
        # The metadata lies beside the wheel (the specification "Simple repository API", PEP 658).
        with network.open(item.url + ".metadata") as answer:
            text = answer.read(_MAX_METADATA_BYTES).decode("utf-8", "replace")
    except (Unreachable, OSError):
        return UNKNOWN
    return CUDA if _NEEDS_CUDA.search(text) else CPU


def fitting_pythons(choice: Choice, filenames: Iterable[str], minimum: str) -> list[str]:
    """List the Pythons that the places have a wheel for, such as ``3.12``, in their order, from the lowest admitted."""
    lowest = int(minimum.split(".")[1]) if "." in minimum else 0
    wanted = [need for need in (choice.first, *choice.otherwise) if need is not None and need.name == "torch"]
    minors: set[int] = set()
    for filename in filenames:
        name = parse(filename, "torch")
        if name is None or not any(same_version(need.version, name.version) for need in wanted):
            continue
        minors.update(
            int(python[3:]) for python, abi, place in name.tags
            if re.match(r"cp3\d+\Z", python) and abi == python and "linux" in place)
    return ["3.%d" % minor for minor in sorted(minors) if minor >= lowest]


def described(offer: Offer, version: str) -> str:
    """Say which build it is, how much there is to fetch, and why it is no CPU build; as sentences."""
    kind = {CPU: "a CPU build", CUDA: "a CUDA build", UNKNOWN: "a build of which its index does not say the kind"}
    known = offer.build != UNKNOWN
    words = " with %d wheels that it needs" if known else " with %d wheels that it needs if it is a CUDA build"
    others = words % (offer.files - 1) if offer.files > 1 else ""
    amount = ", %s%s" % ("" if known else "at most ", format_bytes(offer.bytes)) if offer.bytes >= 0 else ""
    place = "fetched already" if offer.fetched else "from %s" % (
        urllib.parse.urlsplit(offer.origin).netloc or os.path.dirname(local_path(offer.origin) or offer.origin))
    said = "PyTorch %s is %s: %s%s%s, %s." % (version, kind[offer.build], offer.file, others, amount, place)
    return said + (" The CPU build was not to be had: %s." % "; ".join(offer.why) if offer.why else "")


def judge(
    offer: Offer, definition: Mapping[str, Any], interpreter: Interpreter, pythons: Sequence[str],
    unreachable: Sequence[str],
) -> list[Finding]:
    """Judge whether the release can be built with what there is.

    ``pythons`` are those that there is a wheel for, ``unreachable`` places with the reasons, as ends of sentences.
    """
    version = definition["pytorch"]["version"]
    if interpreter.abi_tag.endswith("t"):
        return [error(
            "pytorch.wheel", "Python %s (%s) is a build without the global lock, and releases are not made for those."
            % (interpreter.version, interpreter.abi_tag), "Name the ordinary build of a Python, such as python3.13.")]
    if not offer.file and unreachable:
        return [warning(
            "pytorch.wheel", "Whether there is a wheel of PyTorch %s cannot be known beforehand: %s." % (
                version, "; ".join(unreachable)), "The step pytorch-fetch will tell.")]
    if not offer.file:
        have = "There are wheels for Python %s." % ", ".join(pythons) if pythons else "There are none for any Python."
        advice = (
            "Install one of these with its venv module and headers, and name it: TORCHSTACK_PYTHON for the local site, "
            "base.python of the release file, or release_python." if pythons else
            "Name the place that has it as pytorch.index (for a CPU build: pytorch.cpu), or correct the lock under "
            "pytorch, or pip's configuration ('pip config list').")
        return [error(
            "pytorch.wheel", "No place that pip looks at has a wheel of PyTorch %s with a sha256 of the release file "
            "for this interpreter (Python %s, %s, %s). %s" % (
                version, interpreter.version, interpreter.abi_tag, interpreter.platform, have), advice)]
    if "cuda" in definition and offer.build == CPU:
        return [error(
            "pytorch.wheel", "The release is for GPUs, and %s is a CPU build." % offer.file,
            "Let the lock under pytorch name a CUDA build, or remove cuda from the release file.")]
    said = described(offer, version)
    if "cuda" not in definition and offer.build == CUDA:
        said += " What is compiled on it is built without GPUs."
    return [note("pytorch.wheel", said)]


def judge_toolkit(wanted: Mapping[str, Any], place: Place, complaint: str) -> list[Finding]:
    """Judge whether the toolkit of a release for GPUs is there, complete, and the one that was asked for."""
    prefix, version = wanted["prefix"], str(wanted["version"])
    if not place.version:
        return [error(
            "cuda.toolkit", "There is no CUDA toolkit in %s: it has no bin/nvcc that says its version." % prefix,
            "Install CUDA %s there, or correct cuda.prefix in the release file." % version)]
    if place.version.split(".")[:2] != version.split(".")[:2]:
        return [error(
            "cuda.toolkit", "The toolkit in %s is CUDA %s, and the release asks for %s." % (
                prefix, place.version, version),
            "Install that one, or correct cuda in the release file, to a version whose major one PyTorch's wheel has.")]
    if complaint:
        return [error(
            "cuda.toolkit", "The toolkit in %s cannot compile a small program: %s." % (prefix, complaint.rstrip(".")),
            "Install what it lacks: the compiler, the headers and cudart of CUDA %s, and a host compiler that it "
            "knows." % version)]
    return [note("cuda.toolkit", "The toolkit in %s, CUDA %s, compiles and links." % (prefix, place.version))]
