# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A small conda channel of real packages: an interpreter, pip, a compiled library and program, some data.

Python is the interpreter that runs the tests (the one behind a virtual environment), or another one of this machine,
made relocatable; pip and setuptools are the wheels that came with it. Packages have the layout of conda-build's,
py-rattler indexes them; nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile

try:
    from conda_package_streaming.create import conda_builder
except ImportError:
    conda_builder = None

SUBDIR = {"x86_64": "linux-64", "aarch64": "linux-aarch64", "ppc64le": "linux-ppc64le"}.get(platform.machine(), "")
"""The channel's directory for packages of this machine."""

PYTHON_VERSION = "%d.%d.%d" % sys.version_info[:3]
SHORT_VERSION = "%d.%d" % sys.version_info[:2]
FACTS = """
import json, sys, sysconfig
print(json.dumps({
    "version": "%d.%d.%d" % sys.version_info[:3], "base": sys.base_prefix, "stdlib": sysconfig.get_path("stdlib"),
    "headers": sysconfig.get_path("include"),
}))
"""
PLACEHOLDER_LENGTH = 230
"""Characters of the prefix that packages are built with: one in a binary file can only be replaced by a shorter one."""

PLACEHOLDER = "/placeholder".ljust(PLACEHOLDER_LENGTH, "_")
"""The prefix in packages of text files."""

TIME = 1700000000
"""When everything in a package was changed last, in seconds."""

INDEX = """
import asyncio, os, sys
from rattler.index import index_fs
asyncio.run(index_fs(sys.argv[1], write_zst=False, write_shards=False, force=True))
os._exit(0)
"""

LIBRARY_SOURCE = "int toy(void) { return 42; }\n"
PROGRAM_SOURCE = """#include <stdio.h>
int toy(void);
static const char prefix[] = PREFIX;
int main(void) { printf("%d %s\\n", toy(), prefix); return 0; }
"""


class Interpreter:
    """An interpreter of this machine that becomes a package.

    Args:
        executable: the interpreter; the one behind it, where it is in a virtual environment.
    """

    def __init__(self, executable: str = sys.executable) -> None:
        command = [executable, "-I", "-c", FACTS]
        facts = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        self.version = facts["version"]
        self.short = self.version.rpartition(".")[0]
        self.base = pathlib.Path(facts["base"])
        self.stdlib = pathlib.Path(facts["stdlib"])
        self.headers = pathlib.Path(facts["headers"])

    def wheels(self) -> dict[str, pathlib.Path]:
        """The wheels that came with it, by project; Debian keeps them elsewhere."""
        # Its own come last and win: another interpreter's pip may not know this one.
        places = [pathlib.Path("/usr/share/python-wheels"), self.stdlib / "ensurepip" / "_bundled"]
        return {wheel.name.split("-")[0]: wheel for place in places for wheel in sorted(place.glob("*.whl"))}


def needed_tools(python: Interpreter | None = None) -> list[str]:
    """What building the channel lacks here: modules and programs, by name."""
    python = python or Interpreter()
    missing = [name for name in ("cc", "patchelf", "strip") if shutil.which(name) is None]
    for name in ("rattler", "conda_package_streaming"):
        if importlib.util.find_spec(name) is None:
            missing.append(name)
    if not python.wheels().get("pip"):
        missing.append("a wheel of pip beside %s" % python.base)
    if not SUBDIR:
        missing.append("a name for %s among conda's platforms" % platform.machine())
    return missing


class Channel:
    """A channel in a directory.

    Args:
        directory: where it lies, or is built.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory

    @property
    def url(self) -> str:
        """The address that solvers take."""
        return self.directory.as_uri()

    def package(self, name: str, version: str = "") -> pathlib.Path:
        """The archive of a package; of the only version, where none is given."""
        found = [
            path for path in sorted(self.directory.glob("*/%s-%s*" % (name, version)))
            if path.name.endswith((".conda", ".tar.bz2")) and path.name.rsplit("-", 2)[0] == name
        ]
        assert len(found) == 1, found
        return found[0]

    def copy(self, directory: pathlib.Path) -> Channel:
        """The same channel elsewhere, for a test that spoils it."""
        shutil.copytree(self.directory, directory)
        return Channel(directory)

    def index(self) -> None:
        """Write repodata anew, in a process of its own: the library's threads crash one that ends normally."""
        subprocess.run([sys.executable, "-c", INDEX, str(self.directory)], check=True)

    def add(
        self, name: str, version: str, files: dict[str, str], depends: tuple[str, ...] = (), build: str = "0",
        subdir: str = "noarch",
    ) -> pathlib.Path:
        """Make a package of text files, by default for every platform; ``@PREFIX@`` in them becomes the prefix.

        The caller indexes.
        """
        entries = [
            Entry(
                path, text.replace("@PREFIX@", PLACEHOLDER).encode(),
                placeholder=PLACEHOLDER if "@PREFIX@" in text else "",
            ) for path, text in files.items()
        ]
        noarch = "generic" if subdir == "noarch" else ""
        return self.write(name, version, build, entries, depends, noarch, subdir=subdir)

    def add_stage(self, name: str, version: str, build: str, stage: pathlib.Path, depends: tuple[str, ...] = ()
                  ) -> pathlib.Path:
        """Make a package for this platform of what lies in a directory, and drop that."""
        entries = []
        for path in sorted(stage.rglob("*")):
            if path.is_symlink():
                entries.append(Entry(str(path.relative_to(stage)), link=os.readlink(path)))
            elif path.is_file():
                content = path.read_bytes()
                placeholder = str(stage) if str(stage).encode() in content else ""
                mode = 0o755 if path.stat().st_mode & 0o111 else 0o644
                entries.append(Entry(str(path.relative_to(stage)), content, mode, placeholder=placeholder))
        shutil.rmtree(stage)
        return self.write(name, version, build, entries, depends)

    def write(
        self, name: str, version: str, build: str, entries: list[Entry], depends: tuple[str, ...] = (),
        noarch: str = "", more: dict[str, object] | None = None, subdir: str = SUBDIR,
    ) -> pathlib.Path:
        """Write a package as conda-build lays it out: its description below info/, then its files."""
        subdir = "noarch" if noarch else subdir
        index = {
            "name": name, "version": version, "build": build, "build_number": 0, "depends": list(depends),
            "license": "Apache-2.0", "subdir": subdir, "timestamp": TIME * 1000,
        }
        index.update({"noarch": noarch} if noarch else {"arch": platform.machine(), "platform": "linux"})
        entries = sorted(entries, key=lambda entry: entry.path)
        described: dict[str, object] = {
            "info/index.json": index, "info/about.json": {},
            "info/paths.json": {"paths": [entry.described(entries) for entry in entries], "paths_version": 1},
        }
        described.update(more or {})
        information = [Entry(path, (json.dumps(value, indent=2) + "\n").encode()) for path, value in described.items()]
        information.append(Entry("info/files", "".join(entry.path + "\n" for entry in entries).encode()))
        placeholders = [entry for entry in entries if entry.placeholder]
        if placeholders:
            lines = ["%s %s %s\n" % (entry.placeholder, entry.file_mode, entry.path) for entry in placeholders]
            information.append(Entry("info/has_prefix", "".join(lines).encode()))
        directory = self.directory / subdir
        directory.mkdir(parents=True, exist_ok=True)
        stem = "%s-%s-%s" % (name, version, build)
        with conda_builder(stem, str(directory), compression_level=1) as archive:
            for entry in information + entries:
                entry.add_to(archive)
        return directory / (stem + ".conda")


class Entry:
    """A file or symbolic link of a package.

    Args:
        path: relative to the prefix.
        content: what a file holds.
        mode: its permission bits.
        link: where a symbolic link leads.
        placeholder: the prefix in its content that the installation's own replaces.
    """

    def __init__(
        self, path: str, content: bytes = b"", mode: int = 0o644, link: str = "", placeholder: str = ""
    ) -> None:
        self.path = path
        self.content = content
        self.mode = mode
        self.link = link
        self.placeholder = placeholder

    @property
    def file_mode(self) -> str:
        """How the prefix in it is replaced: of the same length in binary files, of any in texts."""
        return "binary" if b"\0" in self.content else "text"

    def described(self, others: list[Entry]) -> dict[str, object]:
        """What paths.json says of it; of a link, the size and digest of the file that it leads to."""
        content = self.content
        if self.link:
            target = os.path.normpath(os.path.join(os.path.dirname(self.path), self.link))
            reached = [entry for entry in others if entry.path == target]
            return dict(reached[0].described(others), _path=self.path, path_type="softlink")
        found: dict[str, object] = {
            "_path": self.path, "path_type": "hardlink", "sha256": hashlib.sha256(content).hexdigest(),
            "size_in_bytes": len(content),
        }
        if self.placeholder:
            found.update(prefix_placeholder=self.placeholder, file_mode=self.file_mode)
        return found

    def add_to(self, archive: tarfile.TarFile) -> None:
        """Write it into an archive."""
        member = tarfile.TarInfo(self.path)
        member.mtime, member.mode = TIME, self.mode
        if self.link:
            member.type, member.linkname, member.mode = tarfile.SYMTYPE, self.link, 0o777
            archive.addfile(member)
        else:
            member.size = len(self.content)
            archive.addfile(member, io.BytesIO(self.content))


def stage_directory(scratch: pathlib.Path, name: str) -> pathlib.Path:
    """A new directory with a name of the length that prefixes in packages have."""
    stage = pathlib.Path(str(scratch / ("stage-" + name)).ljust(PLACEHOLDER_LENGTH, "_"))
    stage.mkdir(parents=True)
    return stage


def stage_python(stage: pathlib.Path, python: Interpreter) -> None:
    """Copy an interpreter, so that it runs from any prefix and knows no other site-packages."""
    name = "python" + python.short
    base = python.base
    library = stage / "lib" / name
    left_out = shutil.ignore_patterns(
        "__pycache__", "test", "tests", "site-packages", "dist-packages", "config-*", "idlelib", "tkinter",
        "turtledemo", "lib2to3", "sitecustomize.py", "*.pyc",
    )
    shutil.copytree(python.stdlib, library, symlinks=False, ignore=left_out)
    (library / "site-packages").mkdir()
    (library / "site-packages" / "README.txt").write_text("This directory contains site-packages.\n")
    (stage / "bin").mkdir()
    shutil.copy2(base / "bin" / name, stage / "bin" / name)
    for link in ("python3", "python"):
        (stage / "bin" / link).symlink_to(name)
    for shared in base.glob("lib/libpython%s*.so*" % python.short):
        shutil.copy2(shared, stage / "lib" / shared.name, follow_symlinks=False)
    if python.headers.is_dir():
        shutil.copytree(python.headers, stage / "include" / name)
        for machine in base.glob("include/*/%s/pyconfig.h" % name):
            shutil.copytree(machine.parent.parent, stage / "include" / machine.parent.parent.name)
    undo_distribution(stage / "bin" / name, library)
    if str(base) != "/usr":
        replace_in_texts(library, str(base), str(stage))
    binaries = [stage / "bin" / name, *stage.glob("lib/libpython*.so*"), *library.glob("lib-dynload/*.so")]
    for binary in binaries:
        if not binary.is_symlink():
            binary.chmod(0o755)
            subprocess.run(["strip", "--strip-unneeded", str(binary)], check=True)
    subprocess.run(["patchelf", "--set-rpath", "$ORIGIN/../lib", str(stage / "bin" / name)], check=True)


def undo_distribution(program: pathlib.Path, library: pathlib.Path) -> None:
    """Take back what Debian changed: packages in dist-packages, and pip refused outside virtual environments.

    The module ``site`` is frozen into the program; both names have the same length.
    """
    for path in (program, library / "site.py"):
        path.write_bytes(path.read_bytes().replace(b"dist-packages", b"site-packages"))
    scheme = ("prefix_scheme = 'posix_local'", "prefix_scheme = 'posix_prefix'")
    for name, old, new in (
        ("sysconfig.py", *scheme), ("sysconfig/__init__.py", *scheme),
        ("distutils/command/install.py", 'select_scheme("unix_local")', 'select_scheme("unix_prefix")'),
    ):
        path = library / name
        if path.exists():
            path.write_text(path.read_text().replace(old, new))
    (library / "EXTERNALLY-MANAGED").unlink(missing_ok=True)


def replace_in_texts(top: pathlib.Path, old: str, new: str) -> None:
    """Replace a path in the text files that describe how the interpreter was built."""
    for path in [*top.glob("_sysconfigdata*.py"), *top.glob("config-*/Makefile")]:
        path.write_text(path.read_text().replace(old, new))


def stage_toy(stage: pathlib.Path) -> None:
    """Compile a library, and a program that knows its prefix, in its own bytes and in a text file."""
    for name in ("bin", "lib", "etc"):
        (stage / name).mkdir()
    (stage / "toy.c").write_text(LIBRARY_SOURCE)
    (stage / "main.c").write_text(PROGRAM_SOURCE)
    lib = stage / "lib"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-Wl,-soname,libtoy.so.2", "-o", str(lib / "libtoy.so.2.1"), str(stage / "toy.c")],
        check=True,
    )
    (lib / "libtoy.so.2").symlink_to("libtoy.so.2.1")
    (lib / "libtoy.so").symlink_to("libtoy.so.2")
    subprocess.run(
        ["cc", '-DPREFIX="%s"' % stage, "-o", str(stage / "bin" / "toy"), str(stage / "main.c"), "-L" + str(lib),
         "-ltoy", "-Wl,-rpath,$ORIGIN/../lib"], check=True,
    )
    (stage / "etc" / "libtoy.conf").write_text("prefix=%s\n" % stage)
    for name in ("toy.c", "main.c"):
        (stage / name).unlink()


def wheel_package(channel: Channel, wheel: pathlib.Path, entry_points: tuple[str, ...] = ()) -> pathlib.Path:
    """Make a package that fits every Python of a wheel."""
    name, version = wheel.name.split("-")[:2]
    with zipfile.ZipFile(wheel) as archive:
        files = [
            Entry("site-packages/" + item, archive.read(item)) for item in archive.namelist() if not item.endswith("/")
        ]
    link = {"noarch": {"type": "python", "entry_points": list(entry_points)}, "package_metadata_version": 1}
    return channel.write(name, version, "pyh_0", files, ("python >=3.7",), "python", {"info/link.json": link})


def build(directory: pathlib.Path, scratch: pathlib.Path, python: Interpreter | None = None) -> Channel:
    """Build the channel.

    Args:
        directory: where it shall lie; not there yet.
        scratch: a directory for the stages of packages; they are removed.
        python: the interpreter that it has; the one that runs this by default.
    """
    python = python or Interpreter()
    old_umask = os.umask(0o022)
    try:
        channel = Channel(directory)
        stage = stage_directory(scratch, "python")
        stage_python(stage, python)
        channel.add_stage("python", python.version, "0_cpython", stage)
        wheels = python.wheels()
        scripts = ("pip = pip._internal.cli.main:main", "pip3 = pip._internal.cli.main:main")
        wheel_package(channel, wheels["pip"], scripts)
        if "setuptools" in wheels:
            wheel_package(channel, wheels["setuptools"])
        stage = stage_directory(scratch, "libtoy")
        stage_toy(stage)
        channel.add_stage("libtoy", "2.1.0", "h1_0", stage, ("toydata >=1.0",))
        for version in ("1.0.0", "2.0.0"):
            channel.add("toydata", version, {"share/toydata/version": version + "\n"})
        channel.add(
            "toysettings", "1.0.0",
            files={
                "etc/conda/activate.d/toysettings.sh": "export TOY_SETTING=@PREFIX@/share\n",
                "etc/conda/deactivate.d/toysettings.sh": "unset TOY_SETTING\n",
                "share/toysettings": "here @PREFIX@\n",
            },
        )
        channel.add("impossible", "1.0.0", {"share/impossible": "\n"}, ("libtoy >=9",))
        channel.add("cudatoy", "1.0.0", {"share/cudatoy": "\n"}, ("__cuda >=12",))
        channel.index()
        return channel
    finally:
        os.umask(old_umask)
