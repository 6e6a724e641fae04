# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Compute how PyTorch is built from its source: its variables, what a site may not set, what must arrive. Pure."""

from __future__ import annotations

import re
from typing import Any, Mapping, Sequence

REFUSED = (
    "MAX_JOBS", "CMAKE_INSTALL_PREFIX", "PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "TORCH_CUDA_ARCH_LIST",
    "USE_NCCL", "USE_SYSTEM_NCCL")
"""Variables that no release file sets, besides those that the build has; setup.py gives up on CMAKE_INSTALL_PREFIX."""

REPORTED_SWITCHES = ("USE_MPI", "USE_CUDA", "USE_NCCL", "USE_CUDNN")
"""Switches that ``torch.__config__.show()`` repeats."""

PLAIN_BASE: dict[str, Any] = {
    "environment": {"PYTHONPATH": "", "PYTHONNOUSERSITE": "1"}, "prefix": "", "tag": "", "platform": ""}
"""What every kind of base has in common, for a build of which nothing is known yet."""

_SWITCH = re.compile(r"(USE|BUILD)_")


def describe_build(
    pytorch: Mapping[str, Any], given: Mapping[str, Any], base: Mapping[str, Any], toolchain: Mapping[str, Any],
    compilers: Mapping[str, str], cuda: Mapping[str, Any], nccl: Mapping[str, Any], nccl_prefix: str,
) -> dict[str, Any]:
    """Describe a build of PyTorch from source.

    Args:
        given: ``pytorch.source.environment``, with the words in braces filled in.
        toolchain: that of the step, see :func:`.toolchain.step_toolchain`.
        compilers: as given, by the name of their variable.
        cuda: empty for a build without.
        nccl: empty for the one that the build finds.

    Returns:
        ``environment`` of the step and the ``modules`` that it loads; the ``number`` of the build; ``refused``, the
        names in ``given`` that follow from the rest of the release file; ``wheel``, the name of its file; and what must
        have arrived: ``expected_tree`` in the build's tree and ``expected_installed`` in what is installed.
    """
    source = pytorch["source"]
    version = pytorch["version"] + ("+" + source["local_version"] if source.get("local_version") else "")
    number = int(source.get("build_number", 1))
    # From the second build on torch reports another version than PYTORCH_BUILD_VERSION, as setup.py does.
    reported = version + (".post%d" % number if number > 1 else "")
    used_compilers = {"CC": "cc", "CXX": "c++", **compilers, **toolchain["compilers"]}
    own = {
        "USE_MPI": "1", "USE_CUDA": "1" if cuda else "0", "PYTORCH_BUILD_VERSION": version,
        "PYTORCH_BUILD_NUMBER": str(number), **used_compilers,
        **(_cuda_variables(cuda) if cuda else {}), **(_nccl_variables(nccl_prefix) if nccl else {}),
    }
    # What the base brings is found before what a site adds. setup.py hands it on to CMake, whose lists have semicolons.
    prefixes = [base["prefix"], *filter(None, [given.get("CMAKE_PREFIX_PATH", "").replace(":", ";")])]
    environment = {
        **toolchain["environment"], **given, **base["environment"], **own, "CMAKE_PREFIX_PATH": ";".join(prefixes)}
    taken = {*own, *base["environment"], *REFUSED}
    switches = {name: value for name, value in environment.items() if _SWITCH.match(name)}
    expect = source.get("expect") or {}
    config = {
        **{name: value for name, value in switches.items() if name in REPORTED_SWITCHES},
        **({"BLAS_INFO": "mkl"} if given.get("BLAS") == "MKL" else {}), **(expect.get("config") or {})}
    return {
        "environment": environment,
        "modules": toolchain["modules"],
        "number": number,
        "refused": sorted(set(given) & taken),
        "wheel": wheel_name(reported, base["tag"], base["platform"]),
        "expected_tree": {
            "version": reported,
            "cache": {**switches, **(expect.get("cache") or {})},
            "config": config,
            "below": dict.fromkeys(("NCCL_INCLUDE_DIRS", "NCCL_LIBRARIES"), nccl_prefix) if cuda and nccl else {},
            "compilers": used_compilers,
        },
        "expected_installed": {
            "version": reported,
            "config": config,
            "mpi": True,
            "gloo": not _is_off(environment, "USE_GLOO", "USE_DISTRIBUTED"),
            "numpy": not _is_off(environment, "USE_NUMPY"),
            "no_deps": bool(source.get("no_deps", False)),
            "nccl": nccl.get("version", "") if cuda else "",
            "cuda": cuda.get("version", ""),
            "architectures": cuda.get("architectures", []),
        },
    }


def problems(definition: object, source: str = "") -> list[str]:
    """Find build variables of PyTorch that no release file sets, and a build number without meaning.

    Args:
        definition: a release file's data, as written; what has the wrong type is passed over.
        source: the file that the sentences name.
    """
    pytorch = definition.get("pytorch") if isinstance(definition, Mapping) else None
    build = pytorch.get("source") if isinstance(pytorch, Mapping) else None
    if not isinstance(definition, Mapping) or not isinstance(pytorch, Mapping) or not isinstance(build, Mapping):
        return []
    where, number = " in %s" % source if source else "", build.get("build_number", 1)
    given = build.get("environment")
    texts = {str(name): str(value) for name, value in given.items()} if isinstance(given, Mapping) else {}
    # Which variables follow is asked, not their values, which may have any type yet.
    cuda, nccl = ({"version": ""} if isinstance(definition.get(key), Mapping) else {} for key in ("cuda", "nccl"))
    nothing: dict[str, Any] = {"environment": {}, "modules": [], "compilers": {}}
    plain = {"version": str(pytorch.get("version")), "source": {}}
    refused = describe_build(plain, texts, PLAIN_BASE, nothing, {}, cuda, nccl, "")["refused"]
    found = [
        "'pytorch.source.environment'%s has %s, which follow from the rest of the release file: version, toolchain, "
        "mpi, cuda and nccl; remove %s." % (where, ", ".join(refused), "it" if len(refused) == 1 else "them")
    ] if refused else []
    if isinstance(number, int) and not isinstance(number, bool) and number < 1:
        found.append("'pytorch.source.build_number'%s is %d. PyTorch counts builds from 1; from 2 on the version "
                     "ends in .post<number>." % (where, number))
    return found


def _is_off(environment: Mapping[str, str], *names: str) -> bool:
    """Tell whether one of CMake's switches is off; those that are not named are on."""
    return any(str(environment.get(name, "1")).upper() in ("0", "OFF", "NO", "FALSE", "N") for name in names)


def wheel_name(version: str, tag: str, platform: str) -> str:
    """Compose the file name of PyTorch's wheel; the version is spelt as PEP 440 normalises it."""
    return "torch-%s-%s-%s-%s.whl" % (re.sub("[-_]", ".", version.lower()), tag, tag, platform)


def _cuda_variables(cuda: Mapping[str, Any]) -> dict[str, str]:
    """Point the build to a toolkit, and to the NCCL that NCCL_ROOT or the system has."""
    prefix = cuda.get("prefix", "")
    architectures: Sequence[str] = cuda.get("architectures", [])
    return {
        "CUDA_HOME": prefix, "CUDA_PATH": prefix, "CUDACXX": prefix + "/bin/nvcc",
        "TORCH_CUDA_ARCH_LIST": ";".join(architectures), "USE_NCCL": "1", "USE_SYSTEM_NCCL": "1"}


def _nccl_variables(prefix: str) -> dict[str, str]:
    return {"NCCL_ROOT": prefix, "NCCL_INCLUDE_DIR": prefix + "/include", "NCCL_LIB_DIR": prefix + "/lib"}
