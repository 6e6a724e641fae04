# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Write a wheel that reports what PyTorch's CPU build reports, the same bytes each time, and print its sha256."""

from __future__ import annotations

import hashlib
import os
import sys
import zipfile

INFO = "torch-0.0.1+cpu.dist-info/"
FILES = {
    "torch/__init__.py": "from torch import version\n\n__version__ = version.__version__\n",
    "torch/version.py": "__version__ = '0.0.1+cpu'\ncuda = None\n",
    INFO + "METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 0.0.1+cpu\n",
    INFO + "WHEEL": "Wheel-Version: 1.0\nGenerator: scenario\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}


def main(directory):
    """Write it."""
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, "torch-0.0.1+cpu-py3-none-any.whl")
    record = "".join("%s,,\n" % name for name in [*FILES, INFO + "RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in [*FILES.items(), (INFO + "RECORD", record)]:
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), text)
    with open(path, "rb") as stream:
        print(hashlib.sha256(stream.read()).hexdigest())


if __name__ == "__main__":
    main(sys.argv[1])
