# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Describe a CUDA toolkit as a module and as a package of pkg-config.

Two parties look for its headers. Cray's compiler wrappers ask pkg-config for the packages in ``PE_PKGCONFIG_LIBS``, and
builds ask it by the package's name. Compilers that are called directly search ``CPATH``, ``C_INCLUDE_PATH`` and
``CPLUS_INCLUDE_PATH``, if a site wants that: pkg-config leaves directories that are in those variables out of its
answer (pkg-config(1), PKG_CONFIG_SYSTEM_INCLUDE_PATH), and ``CPATH`` comes before what a build names by ``-isystem``
(gcc(1), ENVIRONMENT), so that the toolkit's headers would replace those that a project brings.
"""

from __future__ import annotations

import os
import re
from typing import Mapping, NamedTuple

from ..core.errors import StackError
from .description import normalise
from .description_checks import find_faults
from .layout import MAKER, read_bytes

HEADER_VARIABLES = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
PACKAGES = os.path.join("modulefiles", "pkgconfig")
"""Where the package files lie, below the root: beside the directories of modulefiles and in nobody's MODULEPATH."""

STEP = "check the toolkit"

_PARTS = {"nvvm": "nvvm", "cupti": os.path.join("extras", "CUPTI"), "math": ""}
"""What may lie elsewhere than in the toolkit, and where in the toolkit it is otherwise."""

_LIBRARIES = ("lib64", "lib")
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9._+@,=~/-]*\Z")
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*\Z")
_CUDA_VERSION = re.compile(rb"^\s*#\s*define\s+CUDA_VERSION\s+(\d+)", re.M)


class Directory(NamedTuple):
    """One directory of a toolkit and what it has for compilers; an empty text is something that it does not have."""

    name: str
    path: str
    include: str
    libraries: str


class Toolkit(NamedTuple):
    """A toolkit as it was found: its own directory first, then the others that it has."""

    name: str
    version: str
    package: str
    directories: tuple
    stubs: str

    @property
    def prefix(self) -> str:
        """Return its own directory."""
        return self.directories[0].path

    @property
    def includes(self) -> list:
        """Return directories of headers, in the order of search."""
        return [directory.include for directory in self.directories if directory.include]

    @property
    def libraries(self) -> list:
        """Return directories of shared libraries, in the order of search."""
        return [directory.libraries for directory in self.directories if directory.libraries]


def find_toolkit(given: Mapping) -> Toolkit:
    """Look at the directories of a toolkit.

    ``given``: ``name``, ``version``, ``prefix`` and, each empty for the usual, ``nvvm``, ``cupti``, ``math`` (paths)
    and ``pkg_config`` (name of the package). Raises StackError: a name is unfit, something is missing, it is another
    version, or its libraries hide the driver.
    """
    package = given.get("pkg_config") or "ctk-%s" % given["version"]
    paths = {"cuda": given["prefix"], **{name: given.get(name) or "" for name in _PARTS}}
    _require_names(given, package, paths)
    directories = [_directory("cuda", paths["cuda"])]
    for name, usual in _PARTS.items():
        path = paths[name] or (os.path.join(paths["cuda"], usual) if usual else "")
        directory = _directory(name, path)
        if paths[name] or directory.include or directory.libraries:
            directories.append(directory)
    _require_complete(given, directories)
    _require_version(given, directories[0])
    _require_no_driver(given, directories)
    stubs = os.path.join(directories[0].libraries, "stubs")
    return Toolkit(given["name"], given["version"], package, tuple(directories), stubs if os.path.isdir(stubs) else "")


def _directory(name: str, path: str) -> Directory:
    include = os.path.join(path, "include")
    libraries = [os.path.join(path, entry) for entry in _LIBRARIES]
    return Directory(
        name, path, include if path and os.path.isdir(include) else "",
        next((entry for entry in libraries if path and os.path.isdir(entry)), ""))


def _title(given: Mapping) -> str:
    return "%s/%s" % (given["name"], given["version"])


def _require_names(given: Mapping, package: str, paths: Mapping[str, str]) -> None:
    for path in paths.values():
        if path and not (_PLAIN_PATH.match(path) and os.path.normpath(path) == path):
            raise StackError(
                "The directory %r of the toolkit %s is not an absolute path in its shortest form, of characters that "
                "mean nothing to a shell." % (path, _title(given)), STEP, "Correct torchstack_toolkits.", path)
    if not _PACKAGE.match(package):
        raise StackError(
            "The pkg_config %r of the toolkit %s is not one plain word." % (package, _title(given)), STEP,
            "Correct torchstack_toolkits.")


def _require_complete(given: Mapping, directories: list) -> None:
    own = directories[0]
    missing = [
        os.path.join(own.path, entry) for entry in ("bin", os.path.join("include", "cuda_runtime.h"))
        if not os.path.exists(os.path.join(own.path, entry))]
    if not own.libraries:
        missing.append(os.path.join(own.path, _LIBRARIES[0]))
    for part in directories[1:]:
        if not part.include and not part.libraries:
            missing.append("%s (%s)" % (part.path, part.name))
    if missing:
        raise StackError(
            "The toolkit %s lacks %s." % (_title(given), ", ".join(missing)), STEP,
            "Correct its directories in torchstack_toolkits, or leave the toolkit out on this site.", own.path)


def _require_version(given: Mapping, own: Directory) -> None:
    path = os.path.join(own.include, "cuda.h")
    said = _CUDA_VERSION.search(read_bytes(path) or b"")
    wanted = re.match(r"(\d+)\.(\d+)", given["version"])
    if said and wanted:
        number = int(said.group(1))
        found = (number // 1000, number % 1000 // 10)
        if found != (int(wanted.group(1)), int(wanted.group(2))):
            raise StackError(
                "The toolkit %s in %s is CUDA %d.%d, as its cuda.h says." % (_title(given), own.path, *found), STEP,
                "Correct version (in quotes) or prefix in torchstack_toolkits.", path)


def _require_no_driver(given: Mapping, directories: list) -> None:
    for directory in directories:
        driver = os.path.join(directory.libraries, "libcuda.so.1")
        if directory.libraries and os.path.lexists(driver):
            raise StackError(
                "The libraries of the toolkit %s hold %s, which would hide the driver at run time." % (
                    _title(given), driver), STEP,
                "Name the toolkit without the driver's library in torchstack_toolkits.", driver)


def describe(toolkit: Toolkit, root: str, header_variables: list, extra: Mapping) -> dict:
    """Return the description of the toolkit's module; see :mod:`.description`.

    ``setenv`` and ``reasons`` of ``extra`` win, its lists are added. Raises StackError: the description is refused.
    """
    packages = os.path.join(root, PACKAGES)
    title = "%s/%s" % (toolkit.name, toolkit.version)
    description = {
        "name": toolkit.name, "version": toolkit.version, "prefix": toolkit.prefix,
        "help": extra.get("help") or "%s: the CUDA toolkit in %s; pkg-config knows it as %s." % (
            title, toolkit.prefix, toolkit.package),
        "whatis": {"Description": "CUDA toolkit, compiler and libraries"}, "category": "compiler",
        "keywords": ["CUDA", "GPU"], "load_message": extra.get("load_message") or "",
        "external": [packages, *(part.path for part in toolkit.directories[1:]), *extra.get("external", [])],
        "conflicts": list(extra.get("conflicts", [])), "depends_on": list(extra.get("depends_on", [])),
        "prepend": [
            {"name": "PATH", "values": [os.path.join(toolkit.prefix, "bin")]},
            {"name": "LD_LIBRARY_PATH", "values": toolkit.libraries},
            {"name": "PKG_CONFIG_PATH", "values": [packages]},
            {"name": "PE_PKGCONFIG_LIBS", "values": [toolkit.package]},
            *({"name": name, "values": toolkit.includes} for name in header_variables),
            *extra.get("prepend", []),
        ],
        "append": list(extra.get("append", [])),
        "setenv": {
            "CUDA_HOME": toolkit.prefix, "CRAY_CUDATOOLKIT_VERSION": toolkit.version,
            re.sub(r"[^A-Za-z0-9_]", "_", toolkit.name) + "_VERSION": toolkit.version, **extra.get("setenv", {})},
        "reasons": {
            "PE_PKGCONFIG_LIBS": "The packages that Cray's compiler wrappers ask pkg-config for.",
            **extra.get("reasons", {})},
    }
    found = find_faults(normalise(description))
    if found:
        raise StackError(
            "The toolkit %s is refused: %s" % (title, " ".join(found)), STEP, "Correct torchstack_toolkits.",
            faults=found)
    return normalise(description)


def usual_libraries(toolkit: Toolkit) -> list:
    """Return the names of the run-time libraries that the toolkit has: CUDA's, and CUPTI's."""
    return [
        name for name in ("cupti", "cudart")
        if any(os.path.exists(os.path.join(place, "lib%s.so" % name)) for place in toolkit.libraries)]


def package_path(toolkit: Toolkit) -> str:
    """Return path of the package file, below the root."""
    return os.path.join(PACKAGES, toolkit.package + ".pc")


def package_text(toolkit: Toolkit, libraries: list) -> str:
    """Return the package file of a toolkit for pkg-config, with libraries that are linked where they are needed.

    The directory of stubs is a variable and not a part of ``Libs``: build systems turn ``-L`` into run-paths.
    """
    own = toolkit.directories[0]
    lines = [
        "# %s/%s, %s." % (toolkit.name, toolkit.version, MAKER),
        "# Changes made here are lost: the file is written anew from the site's toolkits.",
        "prefix=%s" % toolkit.prefix,
        *("%s=%s" % (part.name, _below(part.path, own, "prefix")) for part in toolkit.directories[1:]),
    ]
    names = ["prefix", *(part.name for part in toolkit.directories[1:])]
    pairs = list(zip(toolkit.directories, names))
    if toolkit.stubs:
        lines.append("stubs=%s" % _below(toolkit.stubs, own, "prefix"))
    includes = ["-I" + _below(part.include, part, name) for part, name in pairs if part.include]
    places = ["-L" + _below(part.libraries, part, name) for part, name in pairs if part.libraries]
    if libraries:
        words = ",".join("-l" + library for library in libraries)
        places.append("-Wl,--push-state,--as-needed,%s,--pop-state" % words)
    lines.extend([
        "", "Name: %s" % toolkit.name, "Description: CUDA toolkit", "Version: %s" % toolkit.version,
        "Cflags: " + " ".join(includes), "Libs: " + " ".join(places), ""])
    return "\n".join(lines)


def _below(path: str, directory: Directory, name: str) -> str:
    if path == directory.path or path.startswith(directory.path + "/"):
        return "${%s}%s" % (name, path[len(directory.path):])
    return path
