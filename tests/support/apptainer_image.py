# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Small real images for a real Apptainer, laid out like the images with PyTorch that sites offer.

An image has the root of rehearsal/image_root.py and a stand-in for torch. An ordinary account makes it, and it is kept
by the digest of what it is made of.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Mapping

import pytest

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
if str(CHECKOUT) not in sys.path:
    sys.path.insert(0, str(CHECKOUT))

from rehearsal import image_root
from rehearsal.image_root import PATH, PYTHON

CACHE = (CHECKOUT if os.access(CHECKOUT, os.W_OK) else pathlib.Path.home()) / ".cache" / "images"
"""Where images are kept: below the checkout, if it is this account's."""
KEPT_SECONDS = 7 * 86400
MISSING = "There is no Apptainer (%s): run `sudo tests/machine install`"
FUSE = "Apptainer cannot mount images, as this account may not write to /dev/fuse: run `sudo chmod 666 /dev/fuse`"

TORCH = """\
\"\"\"A stand-in for torch.\"\"\"
__version__ = {version!r}


class version:
    cuda = None


class cuda:
    @staticmethod
    def is_available():
        return False

    @staticmethod
    def device_count():
        return 0
"""
TORCH_METADATA = "Metadata-Version: 2.1\nName: torch\nVersion: %s\n"


def apptainer() -> str:
    """The program; the test is skipped where it is missing, or where this account cannot run images."""
    program = shutil.which("apptainer", path=PATH) or shutil.which("singularity", path=PATH)
    if program is None:
        pytest.skip(MISSING % ("neither apptainer nor singularity is in " + PATH))
    asked = subprocess.run(
        [program, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if asked.returncode:
        pytest.skip(MISSING % ("%s --version says: %s" % (program, asked.stdout.strip())))
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip(FUSE)
    return program


def python_version() -> str:
    """The minor version of the Python in the images, such as ``3.11``."""
    return re.sub(r".*python", "", os.path.realpath(PYTHON))


def image(
    files: Mapping[str, str] | None = None, torch: str = "2.2.0", with_conda: bool = True,
    cache: pathlib.Path | None = None,
) -> pathlib.Path:
    """An image, made if no equal one is there.

    Args:
        files: further files, by path below the image's root; those below a directory named ``bin`` are programs.
        torch: the version of the stand-in for torch; empty: none.
        with_conda: whether the image's environment has WITH_CONDA.
        cache: the directory in which images are kept.

    Returns:
        A file that nobody may change: copy it, or give it by its path.
    """
    program = apptainer()
    texts = _texts(files or {}, torch, with_conda)
    place = cache or CACHE
    place.mkdir(parents=True, exist_ok=True)
    target = place / ("small-%s.sif" % _digest(texts, program))
    if target.exists():
        os.utime(target)
        return target
    with open(place / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _forget_unused(place)
            with tempfile.TemporaryDirectory(prefix="small-image-") as scratch:
                root = pathlib.Path(scratch, "root")
                image_root.fill(root, texts)
                made = pathlib.Path(scratch, "made.sif")
                built = subprocess.run(
                    [program, "build", str(made), str(root)], env={"PATH": PATH, "HOME": scratch, "TMPDIR": scratch},
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                )
                if built.returncode:
                    pytest.fail("Apptainer made no image:\n" + built.stdout, pytrace=False)
                made.chmod(0o444)
                partial = target.with_suffix(".partial")
                shutil.copy(made, partial)
                os.replace(partial, target)
    return target


def _forget_unused(place: pathlib.Path) -> None:
    """Remove the images that no test has asked for during the last days."""
    for path in place.glob("small-*.sif"):
        if path.stat().st_mtime < time.time() - KEPT_SECONDS:
            path.unlink()


def _texts(files: Mapping[str, str], torch: str, with_conda: bool) -> dict[str, str]:
    texts = image_root.texts(with_conda)
    if torch:
        information = "%s/torch-%s.dist-info/" % (image_root.PACKAGES, torch)
        texts[image_root.PACKAGES + "/torch/__init__.py"] = TORCH.format(version=torch)
        texts.update({
            information + "METADATA": TORCH_METADATA % torch, information + "INSTALLER": "conda\n",
            information + "RECORD": "",
        })
    return dict(texts, **files)


def _digest(texts: Mapping[str, str], program: str) -> str:
    digest = hashlib.sha256(pathlib.Path(image_root.__file__).read_bytes())
    for host_file in (PYTHON, shutil.which("bash", path=PATH) or "", program):
        digest.update(("%s %d %d\n" % (host_file, *_identity(host_file))).encode())
    for name in sorted(texts):
        digest.update(("%s\0%s\0" % (name, texts[name])).encode())
    return digest.hexdigest()[:16]


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_size, int(found.st_mtime)


def environment(home: pathlib.Path) -> dict[str, str]:
    """The variables under which Apptainer runs in tests: none of the caller's, and a home of its own."""
    home.mkdir(parents=True, exist_ok=True)
    return {"PATH": PATH, "HOME": str(home), "LC_ALL": "C.UTF-8"}
