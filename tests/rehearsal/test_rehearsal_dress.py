# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a site's data make of the modulefiles of a dress, in either language."""

from __future__ import annotations

import pytest

from rehearsal.dress import dress_of, rendered
from rehearsal.trouble import TroubleError

TREE = "/opt/cirrus/modulefiles"


def dressed(*modules, **variables):
    wanted = {"kind": "cirrus", "modules": {TREE: list(modules)}, "variables": variables}
    return rendered(dress_of({"host": {"rehearsal_dress": wanted}}))


def test_a_modulefile_in_tcl_lies_under_its_version_and_names_the_place_of_what_it_brings():
    texts, parts = dressed("nvidia/nvhpc-nompi/24.5", "openmpi/4.1.6", python={"SITE_PYTHON": "3.12.1"})
    assert list(texts) == ["opt/cirrus/modulefiles/nvidia/nvhpc-nompi/24.5", "opt/cirrus/modulefiles/openmpi/4.1.6"]
    assert "setenv NVHPC_ROOT /opt/cirrus/nvhpc/Linux_x86_64/24.5\n" in next(iter(texts.values()))
    assert parts == ["directory 24.5 /opt/cirrus/nvhpc/Linux_x86_64/24.5", "openmpi 4.1.6 /opt/cirrus/openmpi/4.1.6"]


def test_what_a_site_sets_besides_is_set_in_tcl():
    texts, _parts = dressed("python/3.12.1-gpu", python={"SITE_PYTHON": "3.12.1"})
    assert len(texts) == 1
    text = next(iter(texts.values()))
    assert text.startswith("#%Module")
    assert text.endswith('setenv "SITE_PYTHON" "3.12.1"\n')


@pytest.mark.parametrize("module", ["nvidia/24.5", "openmpi", "nvhpc-nompi/24.5"])
def test_a_module_that_the_dress_does_not_have_is_refused_with_those_that_it_has(module):
    with pytest.raises(TroubleError, match=r"it has to be name/version, with one of these names: .*nvidia/nvhpc-nompi"):
        dressed(module)
