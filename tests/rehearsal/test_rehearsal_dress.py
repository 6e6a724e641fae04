# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a site's data make of a dress: its modulefiles in either language, its parts, and where its wheels come from."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess

import pytest
import yaml
from support import sites

from rehearsal.checkout import CHECKOUT
from rehearsal.dress import laid
from rehearsal.dress_data import CATALOGUE, PLACE, dress_of
from rehearsal.modulefiles import rendered
from rehearsal.trouble import TroubleError
from rehearsal.wheels import fetch, locks_of

TREE = "/software/modulefiles"
RELEASES = "/shared/software/mysite"


def dressed(modules=None, syntax="tcl", **further):
    wanted = {"releases": RELEASES, "syntax": syntax, "modules": {TREE: modules or {}}, **further}
    return dress_of({"host": {"rehearsal_dress": {key: value for key, value in wanted.items() if value is not None}}})


def test_a_module_has_any_name_any_tree_and_the_place_that_the_site_says():
    dress = dressed({"nvidia/nvhpc-nompi/24.5": {"set": {"NVHPC_ROOT": "/sw/nvhpc/{version}"}}, "openmpi/4.1.6": {
        "place": "/sw/openmpi/{version}", "load": ["gcc/12.3.0"], "set": {"MPI_HOME": "{place}"}}})
    texts = rendered(dress)
    assert texts["software/modulefiles/nvidia/nvhpc-nompi/24.5"].endswith("\nsetenv NVHPC_ROOT {/sw/nvhpc/24.5}\n")
    assert texts["software/modulefiles/openmpi/4.1.6"].splitlines()[2:] == [
        "module load gcc/12.3.0", "setenv MPI_HOME {/sw/openmpi/4.1.6}", "prepend-path PATH {/sw/openmpi/4.1.6/bin}",
        "prepend-path LD_LIBRARY_PATH {/sw/openmpi/4.1.6/lib}"]
    assert [part[:3] for part in dress.parts] == [("openmpi", "4.1.6", "/sw/openmpi/4.1.6")]


def test_names_alone_are_modules_as_the_catalogue_has_them():
    parts = dressed(["gcc/12.3.0", "cuda/12.6.3"]).parts
    assert [part.place for part in parts] == ["/opt/gcc/12.3.0", "/opt/cuda/12.6.3"]


def test_without_a_syntax_each_module_is_there_for_both_module_systems():
    assert list(rendered(dressed(["gcc/12.3.0"], syntax=None))) == [
        "software/modulefiles/gcc/12.3.0.lua", "software/modulefiles/gcc/12.3.0"]


def test_a_setting_of_the_catalogue_is_left_out_where_the_site_gives_null():
    (text,) = rendered(dressed({"cudnn/9.1": {"set": {"CUDNN_ROOT": None, "CUDNN_HOME": "{place}"}}})).values()
    assert "CUDNN_ROOT" not in text and "setenv CUDNN_HOME {/opt/cudnn/9.1}" in text


def test_a_release_that_is_rehearsed_has_modules_and_parts_besides_and_others_instead():
    further = {"modules": {TREE: {"hdf5/1.12": {"set": {"HDF5_DIR": "/sw/hdf5"}}}}, "parts": [
        {"part": "directory", "place": "/sw/hdf5"}]}
    modules = {TREE: {"gcc/12.3.0": None, "hdf5/1.12": {"empty": True}}}
    data = {"releases": RELEASES, "syntax": "tcl", "modules": modules, "for_release": {"real": further}}
    hosts = {"host": {"rehearsal_dress": data}}
    other, real = dress_of(hosts, "other"), dress_of(hosts, "real")
    assert [module.name for module in real.modules] == [module.name for module in other.modules]
    assert [module.set for module in real.modules if module.set] == [{"HDF5_DIR": "/sw/hdf5"}]
    assert not any(module.set for module in other.modules)
    assert [part.place for part in real.parts] == [*(part.place for part in other.parts), "/sw/hdf5"]
    assert dress_of(hosts) == other


def test_what_lay_sh_reads_names_all_that_undress_sh_removes():
    dress = dressed(["gcc/12.3.0"], parts=[{"part": "module-command", "place": "/software/init", "sets": [TREE]}])
    files = laid(dress)
    assert files["parts"] == "gcc 12.3.0 /opt/gcc/12.3.0 0\nmodule-command - /software/init 1\n"
    assert files["sets/1"] == TREE + "\n" and files["sets/0"] == ""
    assert files["laid"].split() == [TREE, "/opt/gcc/12.3.0", "/software/init"]


def test_every_module_of_the_catalogue_has_parts_that_there_are_and_locks_that_can_be_read():
    names = [name + "/1.0" for name in yaml.safe_load(CATALOGUE.read_text())]
    assert len(dressed(names).modules) == len(names)
    for program in (PLACE / "parts").glob("*.sh"):
        assert all((CHECKOUT / lock).is_file() for lock in locks_of(program)), program


LANGUAGES = {"lua": ("luac", "luac5.3", "luac5.4", "luac5.1"), "tcl": ("tclsh",)}


@pytest.mark.parametrize("syntax", LANGUAGES)
def test_every_module_of_the_catalogue_is_a_program_of_its_language(syntax, tmp_path):
    program = next(filter(None, map(shutil.which, LANGUAGES[syntax])), None)
    if program is None:
        pytest.skip("there is none of " + " ".join(LANGUAGES[syntax]))
    names = [name + "/1.0" for name in yaml.safe_load(CATALOGUE.read_text())]
    for number, text in enumerate(rendered(dressed(names, syntax)).values()):
        file = tmp_path / str(number)
        file.write_text(text if syntax == "lua" else "if {![info complete {%s}]} {exit 1}\n" % text)
        command = [program, "-p", file] if syntax == "lua" else [program, file]
        assert subprocess.run(command, check=False).returncode == 0, text


@pytest.mark.parametrize("wanted, sentence", [
    ({"modules": {"cdua/12.6": {}}}, r"'cdua/12\.6' is like none of .*did you mean 'cuda'\?.*empty: true"),
    ({"modules": {"openmpi": {}}}, "'openmpi' has to be name/version"),
    ({"modules": {"openmpi/4.1": {"plase": "/sw"}}}, "unknown key 'plase'; did you mean 'place'"),
    ({"modules": {"x/1": {"part": "opnmpi", "place": "/sw"}}}, "no part 'opnmpi'; did you mean 'openmpi'"),
    ({"modules": {"x/1": {"part": "directory"}}}, "has a part and no place"),
    ({"modules": {"openmpi/4.1": {"place": "/usr/mpi"}}}, "names the place '/usr/mpi'"),
    ({"modules": {"openmpi/4.1": {"place": "/shared/mpi"}}}, "names the place '/shared/mpi'"),
    ({"modules": {"openmpi/4.1": {"place": "/sw/../etc"}}}, "names the place '/sw/../etc'"),
    ({"parts": [{"part": "cuda"}]}, "each has to have a part and a place"),
    ({"parts": [{"part": "cuda", "place": "/sw/cuda", "set": 1}]}, "unknown key 'set'; did you mean 'sets'"),
    ({"kind": "cray"}, "unknown key 'kind'"),
    ({"for_release": {"": {"syntax": "lua"}}}, "for_release: '' has the unknown key 'syntax'"),
    ({"syntax": "tlc"}, "syntax is 'tlc'; it has to be one of: lua, tcl"),
    ({"releases": "/soft/x"}, "releases has to be torchstack_root"),
])
def test_a_dress_that_cannot_be_made_is_refused_before_anything_is_done(wanted, sentence):
    with pytest.raises(TroubleError, match=sentence):
        dressed(**wanted)


@pytest.mark.parametrize("place", ["/usr/lib64/openmpi", "/usr/local/cuda-12.6", "/cvmfs/software", "/global/sw"])
def test_a_place_is_free_where_sites_have_their_own(place):
    assert dressed({"openmpi/4.1": {"place": place}}).parts[0].place == place


def test_a_site_without_a_dress_has_none():
    assert dress_of({"host": {"torchstack_root": "/soft"}}) is None


TORCH = pathlib.Path("rehearsal/dress/parts/image/torch.txt")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
INDEX_BUILD = "image/cuda.lock"


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
    login = Login("image/torch.txt", index)
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
    with pytest.raises(TroubleError, match=r"image/cuda\.lock, a part of the dress.*No matching distribution"):
        fetch(Login("nothing", ""), TORCH)


def test_both_locks_have_the_wheels_that_the_release_of_the_machine_at_hand_pins():
    pytorch = sites.load_release(sites.TOP / "inventories/local/releases/2026-11-20.yml")["pytorch"]
    digests = set(re.findall("sha256:[0-9a-f]{64}", str(pytorch)))
    for lock in (TORCH, TORCH.with_name("cuda.lock")):
        assert set(re.findall("sha256:[0-9a-f]{64}", (CHECKOUT / lock).read_text())) <= digests
