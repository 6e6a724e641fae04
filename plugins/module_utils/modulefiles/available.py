# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Ask the module command which versions of a module are there, and which of them a range stands for."""

from __future__ import annotations

from typing import Iterable, Mapping, Sequence

from . import module_ranges
from .module_system import LMOD, QUIET, ModuleSystem, run_module_command


def listing(
    system: ModuleSystem, environment: Mapping[str, str], name: str, timeout: float, options: Sequence[str] = ()
) -> str:
    """Return what the terse form of ``module avail`` prints of a module."""
    words = (*system.words, "python", "-t", *options, "avail", name + "/")
    _code, _output, errors = run_module_command(words, {**environment, **QUIET[system.kind]}, timeout, "avail")
    return errors.decode("utf-8", "replace")


def versions(system: ModuleSystem, environment: Mapping[str, str], name: str, timeout: float) -> list[str]:
    """Return the full names of a module's versions that are there, in the order of the module command."""
    words = [word.partition("(")[0] for word in listing(system, environment, name, timeout).split()]
    return [word for word in words if word.startswith(name + "/") and word != name + "/"]


def of_range(
    system: ModuleSystem, environment: Mapping[str, str], wanted: module_ranges.Range, loaded: Sequence[str],
    timeout: float,
) -> str:
    """Return the full name of the module that a range of versions stands for; empty where there is none."""
    default = listing(system, environment, wanted.name, timeout, ("-d",)) if system.kind == LMOD else ""
    return module_ranges.choose(wanted, loaded, listing(system, environment, wanted.name, timeout), default)


def instead(
    system: ModuleSystem, environment: Mapping[str, str], names: Iterable[str], timeout: float
) -> dict[str, list[str]]:
    """Return which versions there are of modules that are not there, by the names that were looked for."""
    found = {name: versions(system, environment, module_ranges.name_and_path(name), timeout) for name in names}
    return {name: there for name, there in found.items() if there}
