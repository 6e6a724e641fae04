# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The root of a small container image that is laid out like those with PyTorch which sites offer.

It has bash, the programs of coreutils and a few more, the host's Python and pip as the conda environment ``pytorch``
below ``/opt/miniconda3``, and ``WITH_CONDA`` in its environment. It is made of the host's own files by an ordinary
account, on Debian with its python3 and python3-venv.
"""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import zipfile
from collections.abc import Mapping

PATH = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PYTHON = "/usr/bin/python3"
ENVIRONMENT = "opt/miniconda3/envs/pytorch"
"""The conda environment, below the image's root."""
PACKAGES = ENVIRONMENT + "/lib/python3/dist-packages"
"""Where the environment's packages are."""

PROGRAMS = (
    "awk", "base64", "basename", "bash", "cat", "chmod", "chown", "comm", "cp", "cut", "date", "dd", "df", "diff",
    "dirname", "du", "echo", "env", "expr", "false", "find", "flock", "grep", "groups", "head", "hostname", "id",
    "install", "kill", "ln", "ls", "md5sum", "mkdir", "mkfifo", "mktemp", "mv", "nice", "nproc", "od", "paste",
    "printenv", "printf", "ps", "pwd", "readlink", "realpath", "rm", "rmdir", "sed", "seq", "setsid", "sh",
    "sha256sum", "sleep", "sort", "stat", "stdbuf", "stty", "tail", "tar", "taskset", "tee", "test", "timeout",
    "touch", "tr", "true", "truncate", "tty", "uname", "uniq", "wc", "which", "whoami", "xargs",
)
UNUSED = ("__pycache__", "test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "config-*", "*.a")

ACTIVATE = """\
# A stand-in for conda's own, for one environment.
case "${1:-}" in
  pytorch) ;;
  *) echo "EnvironmentNameNotFound: Could not find conda environment: ${1:-}" >&2; return 1 ;;
esac
export CONDA_PREFIX=/opt/miniconda3/envs/pytorch CONDA_DEFAULT_ENV=pytorch
export PATH=$CONDA_PREFIX/bin:$PATH
"""
PIP = """\
#!/opt/miniconda3/envs/pytorch/bin/python
import sys

from pip._internal.cli.main import main

sys.exit(main())
"""


def texts(with_conda: bool = True) -> dict[str, str]:
    """The files that make a root an image, by path below it.

    Args:
        with_conda: whether the image's environment has WITH_CONDA.
    """
    activation = "source /opt/miniconda3/bin/activate pytorch"
    return {
        "etc/passwd": "root:x:0:0:root:/root:/bin/bash\n",
        "etc/group": "root:x:0:\n",
        "etc/hosts": "127.0.0.1 localhost\n",
        "etc/resolv.conf": "",
        "etc/os-release": 'NAME="small image"\nID=small\n',
        "opt/miniconda3/bin/activate": ACTIVATE,
        ENVIRONMENT + "/bin/pip": PIP,
        ".singularity.d/env/90-environment.sh":
            "#!/bin/sh\n" + ("export WITH_CONDA='%s'\n" % activation if with_conda else ""),
    }


def fill(root: pathlib.Path, texts: Mapping[str, str]) -> None:
    """Make the tree of an image.

    Args:
        root: a directory that is not there yet.
        texts: further files, by path below it; those below a directory named ``bin`` are programs.
    """
    for name in ("dev", "etc", "home", "mnt", "opt", "proc", "root", "run", "sys", "tmp", "usr", "var/tmp"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir()
        (root / name).symlink_to("usr/" + name)
    libraries = set()
    for name in PROGRAMS:
        found = shutil.which(name, path=PATH)
        if found:
            shutil.copy(found, root / "usr" / "bin" / name)
            libraries |= _libraries(found)
    libraries |= _fill_python(root)
    for library in sorted(libraries):
        # /lib64 and /lib are links to those below /usr on the host too.
        place = root / (library if library.startswith("/usr/") else "/usr" + library).lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, place)
    locale = pathlib.Path("/usr/lib/locale/C.utf8")
    if locale.is_dir():
        shutil.copytree(locale, root / locale.relative_to("/"))
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if path.parent.name == "bin" or name.startswith(".singularity.d/") else 0o644)


def _fill_python(root: pathlib.Path) -> set[str]:
    """The host's Python as the environment's and, without its packages, as that of the system; libraries they need."""
    python = pathlib.Path(PYTHON).resolve()
    standard = python.parent.parent / "lib" / python.name
    place = root / ENVIRONMENT
    shutil.copytree(standard, place / "lib" / python.name, ignore=shutil.ignore_patterns(*UNUSED))
    (root / "usr/lib" / python.name).symlink_to("/%s/lib/%s" % (ENVIRONMENT, python.name))
    for directory in (place / "bin", root / "usr" / "bin"):
        directory.mkdir(exist_ok=True)
        shutil.copy(python, directory / python.name)
        (directory / "python3").symlink_to(python.name)
    # As in LUMI's images, `python` is that of the environment only.
    (place / "bin" / "python").symlink_to(python.name)
    # Of these the module venv makes environments.
    wheels = pathlib.Path("/usr/share/python-wheels")
    if wheels.is_dir():
        shutil.copytree(wheels, root / wheels.relative_to("/"))
    for wheel in wheels.glob("pip-*.whl"):
        zipfile.ZipFile(wheel).extractall(place / "lib/python3/dist-packages")
    extensions = [str(path) for path in standard.glob("lib-dynload/*.so")]
    return _libraries(str(python), *extensions)


def _libraries(*files: str) -> set[str]:
    """What the loader finds for programs and libraries, as ldd(1) says."""
    said = subprocess.run(["ldd", *files], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return set(re.findall(r"(?:=> |^\s+)(/\S+) \(0x", said.stdout, re.MULTILINE))
