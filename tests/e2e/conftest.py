# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the end-to-end tests: one site, its release, the module systems and accounts of this machine."""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest
from rollouts import BRIEFLY, Site, find_module_system


@pytest.fixture(scope="session")
def hasty_compilers(tmp_path_factory):
    """A directory of this machine's compilers that do not optimise.

    It halves the time of the compilations; how fast the result is matters to nobody here. Those of Horovod wait as long
    as there is a file ``hold`` beside them; what a preflight compiles does not.
    """
    place = tmp_path_factory.mktemp("compilers")
    for name in ("cc", "c++", "gcc", "g++"):
        real = shutil.which(name)
        if real:
            wait = "case $* in *horovod*) while [ -e '%s' ]; do sleep 0.2; done ;; esac" % (place / "hold")
            (place / name).write_text('#!/bin/sh\n%s\nexec %s "$@" -O0 -g0\n' % (wait, real))
            (place / name).chmod(0o755)
    return place


@pytest.fixture(scope="session")
def site(tmp_path_factory, collections_path, hasty_compilers):
    """The site; its root is at a place that stays the same, as the digests of cached wheels depend on it."""
    root = os.environ.get("TORCHSTACK_TEST_ROOT", os.path.expanduser("~/torchstack-test"))
    path = "%s:%s" % (hasty_compilers, os.environ["PATH"])
    # Compilers that are killed leave their temporary files.
    with tempfile.TemporaryDirectory(prefix="ts-") as temporary:
        yield Site(root, tmp_path_factory.mktemp("site"), collections_path, TMPDIR=temporary, PATH=path)


@pytest.fixture(scope="session")
def released(site):
    """The site with its release rolled out, after any other one."""
    if not site.is_in_use():
        site.first = site.roll_out(**BRIEFLY)
    return site


@pytest.fixture(params=["lmod", "environment-modules"])
def module_system(request, released):
    """The release's modules, in each module system that this machine has."""
    found = find_module_system(request.param, released)
    if found is None:
        pytest.skip("no %s on this machine" % request.param)
    return found
