# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A variable that names the first of some files that is there, in real module systems and real shells."""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.description import normalised
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.module_system import LMOD
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.session import (
    differences,
    judge,
    run_session,
)

BASH = shutil.which("bash")
OLD, NEW = "torchstack/1", "torchstack/2"
MISSING = 'The image x[1].sif is "gone": neither your copy nor the site\'s $original is there.'
MODES = [("whatis", NEW), ("help", NEW), ("show", NEW), ("avail",), ("keyword", "torchstack")]
USER = {"SIF": 'my own "image"'}


class Place:
    """An older release without and a newer one with an image, the user's copy of it a link to the site's."""

    def __init__(self, top, system, shell, syntax):
        self.top, self.system, self.shell, self.syntax = top, system, shell, syntax
        self.copy, self.central = top / "copy" / "x $a.sif", top / "central" / "x.sif"
        for path in (self.copy, self.central):
            path.parent.mkdir()
        self.central.write_text("image")
        self.copy.symlink_to(self.central)
        self.first_file = {
            "variables": ["SIF", "SIFPYTORCH"], "candidates": [str(self.copy), str(self.central)], "missing": MISSING}
        gcc = {"name": "gcc", "version": "12", "prefix": "/gcc", "setenv": {"GCC": "12"}}
        old = {
            "name": "torchstack", "version": "1", "prefix": "/soft/1", "family": "python", "setenv": {"RELEASE": "1"}}
        self.new = {
            **old, "version": "2", "external": [str(top)], "setenv": {"RELEASE": "2"}, "depends_on": ["gcc/12"],
            "first_file": [self.first_file], "reasons": {"SIF": "What singularity starts."}}
        self.descriptions = (gcc, old, self.new)

    def run(self, *commands, **user):
        """Run module commands one after the other; the snapshots are before and after each."""
        scratch = tempfile.mkdtemp(dir=self.top)
        start = {
            "HOME": scratch, "PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8",
            "MODULEPATH": str(self.top / "modulefiles" / self.syntax), **user,
        }
        return run_session(self.shell, self.system, commands, start, scratch)

    def chooses(self, user):
        """The copy wins, the site's follows; without both nothing is loaded, and an older release is."""
        for gone, chosen in ((None, self.copy), (self.copy, self.central)):
            if gone:
                os.remove(gone)
            result = self.run(("load", NEW), ("unload", NEW), **user)
            assert judge(normalised(self.new), result) == []
            loaded = result.snapshots[1].environment
            assert loaded["SIF"] == loaded["SIFPYTORCH"] == str(chosen)
        os.remove(self.central)
        result = self.run(("load", NEW), ("load", OLD), **user)
        before, refused, old = result.snapshots
        assert result.statuses[0] != 0 and MISSING in " ".join(result.messages.split())
        assert differences(before, refused) == []
        assert not refused.environment.get("LOADEDMODULES")
        assert old.environment["RELEASE"] == "1" and old.environment.get("SIF") == user.get("SIF")


@pytest.fixture()
def place(system, modulefiles, tmp_path):
    """Make a place for a shell, in the system's own syntax or in Tcl."""

    def make(shell, syntax=""):
        here = Place(tmp_path, system, shell, syntax or ("lmod" if system.kind == LMOD else "tcl"))
        modulefiles(*here.descriptions)
        return here

    return make


def test_s33_the_copy_wins_the_site_s_image_follows_and_without_both_nothing_is_loaded(place, shell):
    place(shell).chooses(USER)


def test_s33_lmod_refuses_the_same_of_a_tcl_modulefile(place, system):
    if system.kind != LMOD:
        pytest.skip("Tcl is this system's own syntax")
    place(BASH, "tcl").chooses({})


def test_s33_only_loading_needs_an_image(place, shell):
    here = place(shell)
    before, loaded = here.run(("load", NEW), **USER).snapshots
    shutil.rmtree(here.copy.parent)
    os.remove(here.central)
    result = here.run(("unload", NEW), **loaded.environment)
    assert result.statuses == (0,), result.messages
    assert differences(before, result.snapshots[1]) == []
    result = here.run(*MODES)
    assert set(result.statuses) == {0}, result.messages
    assert MISSING not in " ".join(result.messages.split())
    assert str(here.central) in "".join(result.messages.split())
    assert differences(result.snapshots[0], result.snapshots[-1]) == []


def test_s33_a_directory_or_a_link_that_leads_nowhere_is_no_image(place):
    here = place(BASH)
    os.remove(here.copy)
    here.copy.mkdir()
    assert here.run(("load", NEW)).snapshots[1].environment["SIF"] == str(here.central)
    here.copy.rmdir()
    here.copy.symlink_to("nowhere")
    assert here.run(("load", NEW)).snapshots[1].environment["SIF"] == str(here.central)
