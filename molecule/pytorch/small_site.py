# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Make what a site has for a build of PyTorch, once, and the repositories of the stand-in; print the commit of that."""

from __future__ import annotations

import pathlib
import sys

PROJECT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT), str(PROJECT / "tests")]

from support import fake_torch

if __name__ == "__main__":
    print(fake_torch.make_site(pathlib.Path(sys.argv[1])))
