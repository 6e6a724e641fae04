# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Resolve what glibc's dynamic loader would map for an object, without running anything.

The rules are those of ld.so(8) as glibc's sources have them (``elf/dl-load.c``, ``dl-deps.c``, ``dl-version.c``):

* a name that a mapped object has (its path, a name it was asked for by, or its soname) is that object: the first one
  mapped wins, whatever a search would find;
* else the RPATH of the needing object, of the one that brought it, and so on up, then of the main program; none of
  these where the needing object has a RUNPATH;
* then LD_LIBRARY_PATH, the RUNPATH of the needing object alone, the cache, and the default directories; the last two
  without the default directories where the object says so (NODEFLIB);
* a file for another machine is passed over in a search; a broken one ends everything, as it ends the program;
* a file that is mapped already under another name (device and inode) is not mapped twice;
* breadth first: all that an object needs comes before what those need.

An object on its own is resolved as ``ldd`` does: as if it were the main program. With a program or with objects mapped
before it, a shared object is resolved as ``dlopen`` in that process does.
"""

from __future__ import annotations

import fnmatch
import os
from typing import Sequence

from ..core.errors import StackError
from .elf_object import ET_DYN, ET_EXEC, ElfObject
from .glibc import System
from .library_search import ObjectSearch
from .link_map import LinkMap, Mapped
from .resolution import (
    Edge,
    Plugin,
    Resolution,
)
from .search_paths import Candidate, Files
from .symbol_versions import VersionChecks


class Loader:
    """Resolve objects for one environment; what was read is kept for the next object.

    Args:
        system: the loader of this machine's programs; programs that name another one are resolved by that one's rules.
        library_path: the directories of LD_LIBRARY_PATH, or its text as one item.
        files: the file system, where something was looked at before.
    """

    def __init__(self, system: System, library_path: Sequence[bytes] = (), files: Files | None = None) -> None:
        self._environment = b":".join(library_path)
        self._main = _Engine(files or Files(system), self._environment)
        self._engines: dict[bytes, _Engine | str] = {system.interpreter: self._main}

    def resolve(
        self, path: bytes, preloaded: Sequence[bytes] = (), program: bytes | None = None,
        plugins: Sequence[Plugin] = (),
    ) -> Resolution:
        """Resolve what the loader maps for an object.

        Args:
            path: the object. A program has its $ORIGIN where this path lies, as for ldd; the kernel would follow
                symbolic links first, so give the real path where that matters.
            preloaded: shared objects that the process opens before, in this order; programs start without them.
            program: the program that opens the object; its RPATH counts, and what it needs is mapped.
            plugins: libraries that mapped ones open at run time.

        Raises:
            StackError: the program or a preloaded object cannot be mapped itself.
        """
        if b"/" not in path:
            path = b"./" + path
        candidate = self._main.files.candidate(path)
        elf = candidate.elf
        if candidate.problem or elf is None:
            return Resolution(path, problem=candidate.problem or candidate.skipped or "no such file")
        if not elf.dynamic:
            return Resolution(path, problem="not dynamic")
        engine, warning = self._engine(elf)
        if engine is None:
            return Resolution(path, problem=warning)
        resolution = engine.resolve(path, elf, candidate.identity, tuple(preloaded), program, plugins)
        return resolution._replace(problem=resolution.problem or warning)

    def unknown(self, elf: ElfObject) -> str:
        """Tell why the loader that a program names is not known; empty where it is known."""
        engine, warning = self._engine(elf)
        return "" if engine else warning

    def _engine(self, elf: ElfObject) -> tuple[_Engine | None, str]:
        """Return the loader that a program names, and what is wrong with it; none if its rules are unknown."""
        name = elf.interpreter
        if name is None or name == self._main.system.interpreter:
            return self._main, ""
        known = self._engines.get(name)
        if known is None:
            known = self._engines[name] = self._other_engine(name)
        return (None, known) if isinstance(known, str) else (known, known.warning)

    def _other_engine(self, name: bytes) -> _Engine | str:
        system = self._main.system
        try:
            if os.path.samefile(name, system.interpreter):
                return self._main
        except OSError:
            if not os.path.exists(name):
                # The rest is still worth knowing: the usual loader's rules show what else is missing.
                warning = "its loader %s does not exist, so it cannot be started" % os.fsdecode(name)
                return _Engine(Files(system, self._main.files.known), self._environment, warning)
        try:
            return _Engine(Files(System.of_interpreter(name), self._main.files.known), self._environment)
        except StackError as error:
            return error.message


class _Engine:
    """Resolve by the rules of one loader, with all that it has read."""

    def __init__(self, files: Files, environment: bytes, warning: str = "") -> None:
        self.system = system = files.system
        self.warning = warning
        self.files = files
        self._environment = environment
        self._contexts: dict[tuple[object, ...], ObjectSearch] = {}
        self._version_checks = VersionChecks()
        self._prepared: dict[tuple[bytes | None, tuple[bytes, ...]], LinkMap] = {}
        self._interpreter = self.files.candidate(system.interpreter).elf or ElfObject(
            system.bits, system.little_endian, system.machine, ET_DYN, os_abi=0, flags=0,
            soname=os.path.basename(system.interpreter),
        )

    def resolve(
        self, path: bytes, elf: ElfObject, identity: tuple[int, int] | None, preloaded: tuple[bytes, ...],
        program: bytes | None, plugins: Sequence[Plugin],
    ) -> Resolution:
        """Resolve one object that could be read."""
        if _is_program(elf) or (program is None and not preloaded):
            process = self._process(path, elf.interpreter)
            root = process.map_main(path, elf)
        else:
            process = self._prepare_process(program, preloaded, path)
            root = process.open(path, elf, identity)
        order = process.complete(root)
        edges = [edge for mapped in order for edge in mapped.edges or ()]
        problem = process.problem
        if not problem:
            self._open_plugins(process, order, edges, plugins)
        checked = self._version_checks.check(process, order)
        if root.path != path:
            edges = [edge._replace(needer=path) if edge.needer == root.path else edge for edge in edges]
        return Resolution(
            path, tuple(edges), tuple((mapped.name, mapped.path) for mapped in order[1:]), checked.missing,
            problem or checked.problem or self._find_newer_level(order), checked.unversioned,
        )

    def _process(self, main: bytes, interpreter: bytes | None) -> LinkMap:
        origin = os.path.dirname(os.path.join(os.getcwdb(), main))
        process = LinkMap(self.files, self._contexts, self._environment, origin)
        process.map_interpreter(self.system.interpreter, interpreter or self.system.interpreter, self._interpreter)
        return process

    def _prepare_process(self, program: bytes | None, preloaded: tuple[bytes, ...], path: bytes) -> LinkMap:
        """Prepare the process that opens an object: the program, its libraries, and what was opened before."""
        key = (program, preloaded)
        if program is None and b"$" in self._environment:
            key = (path, preloaded)  # $ORIGIN there is the program's; unknown, the object's own directory stands in
        process = self._prepared.get(key)
        if process is None:
            if program is None:
                process = self._process(path, None)
            else:
                real = os.path.realpath(program)
                elf = self._require_candidate(real, "The program %s cannot be started: %s.").elf
                process = self._process(real, elf.interpreter if elf else None)
                if elf is not None:
                    process.complete(process.map_main(real, elf))
            for name in preloaded:
                candidate = self._require_candidate(name, "%s cannot be mapped before other libraries: %s.")
                if candidate.elf is not None:
                    process.open(name, candidate.elf, candidate.identity)
            if process.problem:
                raise _input_error("What is mapped before other libraries cannot be mapped: %s." % process.problem)
            self._prepared[key] = process
        return process.continued()

    def _require_candidate(self, path: bytes, message: str) -> Candidate:
        candidate = self.files.candidate(path)
        if candidate.problem or candidate.elf is None or not candidate.elf.dynamic:
            reason = candidate.problem or candidate.skipped or ("not dynamic" if candidate.elf else "no such file")
            raise _input_error(message % (os.fsdecode(path), reason), os.fsdecode(path))
        return candidate

    @staticmethod
    def _open_plugins(process: LinkMap, order: list[Mapped], edges: list[Edge], plugins: Sequence[Plugin]) -> None:
        """Open the plugins of all that is mapped, and of the plugins; order and edges grow."""
        seen = {id(mapped) for mapped in order}
        for caller in order if plugins else ():
            soname = caller.elf.soname or os.path.basename(caller.path)
            for plugin in plugins:
                if not fnmatch.fnmatchcase(soname, plugin.caller):
                    continue
                edge, opened = process.open_plugin(caller, plugin.name)
                edges.append(edge)
                for mapped in process.complete(opened) if opened else ():
                    if id(mapped) not in seen:
                        seen.add(id(mapped))
                        order.append(mapped)
                        edges.extend(mapped.edges or ())
                process.problem = ""

    def _find_newer_level(self, order: list[Mapped]) -> str:
        """Find an object built for a later level of x86-64 than this processor's; glibc refuses them since 2.33."""
        if self.system.isa is None or self.system.glibc < (2, 33):
            return ""
        for mapped in order:
            if mapped.elf.isa_needed & ~self.system.isa:
                return "%s: CPU ISA level is lower than required" % os.fsdecode(mapped.path)
        return ""


def _is_program(elf: ElfObject) -> bool:
    return elf.kind == ET_EXEC or elf.pie or (elf.interpreter is not None and elf.soname is None)


def _input_error(message: str, path: str = "") -> StackError:
    return StackError(
        message, "resolve libraries", "Correct `program` or `preloaded`: each is an object of this machine.", path=path
    )
