# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The interpreter's own pip, in place of the bootstrap script that ansible-test fetches from an address of its own."""

import subprocess
import sys

arguments = [argument for argument in sys.argv[1:] if argument not in ("--no-setuptools", "--no-wheel")]
subprocess.check_call([sys.executable, "-m", "ensurepip", "--default-pip"], stdout=subprocess.DEVNULL)
if "--no-setuptools" in sys.argv:
    # Before Python 3.12 ensurepip brings it, and it warns in the middle of what ansible-test reads.
    subprocess.check_call([sys.executable, "-m", "pip", "uninstall", "--quiet", "--yes", "setuptools"])
sys.exit(subprocess.call([sys.executable, "-m", "pip", "install", "--upgrade", *arguments]))
