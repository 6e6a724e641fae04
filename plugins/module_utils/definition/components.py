# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""List the components of a release, one row each, and derive what follows from which are there. Pure.

A new component is a row here and the folder of its role. Readers take :data:`COMPONENTS` when they are called.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Callable, Mapping, NamedTuple, Tuple

from . import patterns
from .component_checks import Found, check_horovod, check_nccl, check_pytorch, pass_all
from .container import KIND

Keys = Tuple[str, ...]
"""Keys of a release file, from its top to a value; in those of texts, ``*`` is any key or position."""


def _always(_definition: Mapping[str, Any]) -> bool:
    return True


def _lacks_nccl(definition: Mapping[str, Any]) -> bool:
    """Tell whether NCCL is missed: not where Horovod takes that of PyTorch's wheel."""
    return "cuda" in definition and (definition.get("horovod") or {}).get("nccl") != "wheel"


def _compiles_nccl(definition: Mapping[str, Any]) -> bool:
    """Tell whether a release's NCCL is compiled, and not that of PyTorch's wheel."""
    return not (definition.get("nccl") or {}).get("wheel")


class Component(NamedTuple):
    """What roles and checks know of one component."""

    key: str
    """of the release file"""
    name: str
    """for people"""
    role: str
    """the folder below roles; its meta/argument_specs.yml may have the component's key under ``release_file``"""
    steps: tuple[str, ...] = ()
    """build steps, of which ``toolchain.steps`` can speak; one that ends in ``-source`` only fetches"""
    optional: bool = True
    """whether a release can do without"""
    assumed: bool = False
    """whether a release of which nothing is known is taken to have it"""
    missed: Callable[[Mapping[str, Any]], bool] = _always
    """whether a plan and a summary say that a release is without it"""
    distribution: str = ""
    """what pip installs, where its module has the same name"""
    words: tuple[str, ...] = ()
    """words in braces that stand for its places in rules of a verification"""
    before_packages: str = ""
    """the step after which it is there for packages that are built on it"""
    built: Callable[[Mapping[str, Any]], bool] = _always
    """whether a release that has the key builds that step"""
    imports: tuple[str, ...] = ()
    """modules that an acceptance imports"""
    checks: tuple[str, ...] = ()
    """checks that an acceptance runs on every rank"""
    series: Mapping[str, Keys] = MappingProxyType({})
    """patch series: name, and the keys of the mapping that names it; its files are in files/series of the role"""
    sources: tuple[Keys, ...] = ()
    """mappings that may name a git repository"""
    commands: Mapping[Keys, tuple[str, ...]] = MappingProxyType({})
    """commands of the machine that are needed where the value of these keys is not empty"""
    places: tuple[Keys, ...] = ()
    """texts that may have ``${NAME}`` for a variable of a module, and are places of the machine"""
    environments: tuple[Keys, ...] = ()
    """the same of build variables"""
    patterns: Mapping[str, patterns.Rule] = MappingProxyType({})
    """what texts must look like, by dotted path"""
    check: Callable[[Mapping[str, Any], Mapping[str, Any]], Found] = pass_all
    """finds contradictions, see :mod:`.component_checks`"""


COMPONENTS: tuple[Component, ...] = (
    Component(
        "nccl", "NCCL", "nccl_ofi",
        ("nccl-source", "nccl", "nccl-plugin-source", "nccl-plugin", "nccl-plugin-wheel", "nccl-tests-source",
         "nccl-tests"),
        missed=_lacks_nccl, words=("nccl", "libfabric"), before_packages="nccl", built=_compiles_nccl,
        sources=(("nccl",),),
        # autogen.sh of the plugin calls autoreconf, which calls the others.
        commands={("nccl",): ("make",), ("nccl", "plugin"): ("autoreconf", "automake", "libtoolize")},
        places=(("nccl", "cuda", "prefix"), ("nccl", "plugin", "libfabric"), ("nccl", "plugin", "hwloc")),
        environments=(("nccl", "environment", "*"), ("nccl", "plugin", "environment", "*")),
        patterns={
            "nccl.version": patterns.VERSION, "nccl.commit": patterns.COMMIT, "nccl.plugin.commit": patterns.COMMIT,
            "nccl.plugin.libfabric": patterns.PLACE, "nccl.tests.commit": patterns.COMMIT,
            **{path.replace("cuda", "nccl.cuda", 1): patterns.RELEASE[path] for path in (
                "cuda.version", "cuda.prefix", "cuda.architectures[]")},
        },
        check=check_nccl,
    ),
    Component(
        "pytorch", "PyTorch", "pytorch",
        ("pytorch-source", "pytorch-requirements", "pytorch", "pytorch-install", "mpi-backend-source", "mpi-backend",
         "mpi-backend-install"),
        optional=False, series={"pytorch": ("pytorch", "source"), "mpi_backend": ("pytorch", "mpi_backend")},
        sources=(("pytorch", "source"), ("pytorch", "mpi_backend")),
        environments=(("pytorch", "source", "environment", "*"),),
        patterns={
            "pytorch.version": patterns.VERSION,
            "pytorch.index": patterns.INDEX,
            "pytorch.source.commit": patterns.COMMIT,
            "pytorch.source.local_version": {
                "pattern": "([A-Za-z0-9]+([._-][A-Za-z0-9]+)*)?",
                "says": "letters and digits with dots, dashes or underscores between"},
            "pytorch.source.unset[]": patterns.VARIABLE,
            "pytorch.mpi_backend.commit": patterns.COMMIT,
            "pytorch.mpi_backend.name": {
                "pattern": "[a-z][a-z0-9_]*", "says": "lower-case letters, digits and underscores, a letter first"},
        },
        check=check_pytorch,
    ),
    Component(
        "mpi4py", "mpi4py", "mpi", ("mpi4py", "mpi4py-install"), assumed=True, distribution="mpi4py",
        before_packages="mpi4py-install", checks=("mpi4py",), environments=(("mpi4py", "environment", "*"),),
        patterns={"mpi4py.version": patterns.VERSION, "mpi4py.sha256": patterns.SHA256},
    ),
    Component(
        "horovod", "Horovod", "horovod", ("horovod", "horovod-install"), assumed=True, distribution="horovod",
        imports=("horovod.torch",), checks=("horovod",), series={"horovod": ("horovod",)},
        environments=(("horovod", "environment", "*"),),
        patterns={"horovod.version": patterns.VERSION, "horovod.sha256": patterns.SHA256}, check=check_horovod,
    ),
)
"""In the order in which they are built."""


def present(definition: Mapping[str, Any]) -> list[Component]:
    """List the components of a release; of one of which nothing is known, those that are assumed."""
    return [row for row in COMPONENTS if row.key in definition or (not definition and row.assumed)]


def in_image(definition: object) -> bool:
    """Tell whether a release is a container, of which nothing is built but the files around its image."""
    base = definition.get("base") if isinstance(definition, Mapping) else None
    return isinstance(base, Mapping) and base.get("kind") == KIND


def value_at(definition: Any, keys: Keys) -> Any:
    """Return what keys lead to; None where one of them is not there."""
    for key in keys:
        definition = definition.get(key) if isinstance(definition, Mapping) else None
    return definition


def series_of_roles() -> list[tuple[str, Keys, str]]:
    """List the patch series: name, keys, role; the last component first, as in the records of releases."""
    return [(name, keys, row.role) for row in reversed(COMPONENTS) for name, keys in row.series.items()]


def left_out(definition: Mapping[str, Any]) -> list[str]:
    """List the names of the components that a release does without; nothing is known of an image."""
    if in_image(definition):
        return []
    optional = [row for row in COMPONENTS if row.optional and row.key not in definition]
    return [row.name for row in optional if row.missed(definition)]


def torch_step(definition: Mapping[str, Any]) -> str:
    """Name the step after which torch is installed, which all that is built on torch needs."""
    return "pytorch-install" if "source" in (definition.get("pytorch") or {}) else "pytorch"


def package_needs(definition: Mapping[str, Any]) -> list[str]:
    """List the steps that every package of a release is built on."""
    own = [row.before_packages for row in present(definition) if row.before_packages and row.built(definition)]
    return ["base", torch_step(definition), *own]


def commands(definition: Mapping[str, Any]) -> list[str]:
    """List the commands of the machine that components need besides those that every release needs."""
    sources = [value_at(definition, keys) or {} for row in COMPONENTS for keys in row.sources]
    found = ["git"] if any("repository" in part for part in [*sources, *(definition.get("packages") or [])]) else []
    for row in COMPONENTS:
        for keys, needed in row.commands.items():
            found += needed if value_at(definition, keys) else ()
    return found
