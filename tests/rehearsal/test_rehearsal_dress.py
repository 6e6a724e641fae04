# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a site's data make of the modulefiles of a dress, in either language, and where its wheels come from."""

from __future__ import annotations

import pathlib
import re
import subprocess

import pytest
from support import sites

from rehearsal.checkout import CHECKOUT
from rehearsal.dress import dress_of, fetch, rendered
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


TORCH = pathlib.Path("rehearsal/dress/container/torch.txt")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
INDEX_BUILD = "container/cuda.lock"


class Login:
    """A login node whose pip has the wheels of a lock from one place only."""

    def __init__(self, lock, index):
        self.lock, self.index, self.asked = lock, index, []

    def execute(self, _node, *words, user):
        assert user == "rollout"
        self.asked.append(words)
        index = next((word.partition("=")[2] for word in words if word.startswith("--index-url=")), "")
        had = index == self.index and any(re.fullmatch("--requirement=.*" + self.lock, word) for word in words)
        return subprocess.CompletedProcess(words, 0 if had else 1, b"", b"No matching distribution found")

    @property
    def places(self):
        """The directories that were asked for, each once, in the order of the attempts."""
        words = [word for words in self.asked for word in words]
        return list(dict.fromkeys(word.partition("=")[2] for word in words if word.startswith("--dest=")))


@pytest.mark.parametrize("index, attempts", [("", 1), (CPU_INDEX, 2)])
def test_the_cpu_build_is_taken_where_pip_looks_or_its_index_has_it(index, attempts, capfd):
    login = Login("container/torch.txt", index)
    assert [fetch(login, TORCH)] == login.places
    assert len(login.asked) == attempts
    assert capfd.readouterr().err == ""


def test_without_a_cpu_build_the_index_build_is_taken_into_a_directory_of_its_own_and_that_is_said(capfd):
    login = Login(INDEX_BUILD, "")
    assert [fetch(login, TORCH)] == login.places[1:]
    assert len(login.asked) == 3
    assert "--retries=1" in login.asked[1]
    said = capfd.readouterr().err
    assert "neither where pip looks nor at %s." % CPU_INDEX in said
    assert re.search(r"Taking cuda\.lock: .* [0-9.]+ GB to fetch", said)


def test_wheels_that_nobody_has_are_refused_with_the_last_lock_and_the_words_of_pip():
    with pytest.raises(TroubleError, match=r"container/cuda\.lock, a part of the dress.*No matching distribution"):
        fetch(Login("nothing", ""), TORCH)


def test_both_locks_have_the_wheels_that_the_release_of_the_machine_at_hand_pins():
    pytorch = sites.load(sites.TOP / "inventories/local/releases/2026-11-20.yml")["pytorch"]
    digests = set(re.findall("sha256:[0-9a-f]{64}", str(pytorch)))
    for lock in (TORCH, TORCH.with_name("cuda.lock")):
        assert set(re.findall("sha256:[0-9a-f]{64}", (CHECKOUT / lock).read_text())) <= digests
