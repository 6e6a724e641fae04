# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The role nccl_ofi on the real sources: NCCL by nvcc, the plugin on a real libfabric, nccl-tests.

    make test-upstream MIRROR=DIRECTORY [CUDA=PREFIX] [LIBFABRIC=PREFIX] [HWLOC=PREFIX]

MIRROR holds bare clones of NVIDIA/nccl, aws/aws-ofi-nccl and NVIDIA/nccl-tests as OWNER/NAME.git, NAME.git or
OWNER+NAME/repo. The pairs of NCCL and plugin that the sites have are built, and a newer one, as far as the toolkit goes
with them. Of NCCL only all-reduce is compiled, where its makefile can, for one architecture, which takes some minutes a
pair; TORCHSTACK_UPSTREAM_WORK names a directory that keeps them for the next run, TORCHSTACK_CC and TORCHSTACK_CXX
compilers that the toolkit knows (CUDA 11.8: GCC up to 11). Without two GPUs nothing is run on one.
"""

from __future__ import annotations

import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import NamedTuple

import pytest
import yaml
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import nccl_compatibility as compatibility
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight import nccl_find
from support import sites
from support.console import changed_in

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
MIRROR = os.environ.get("TORCHSTACK_UPSTREAM", "")
CUDA = os.environ.get("TORCHSTACK_CUDA") or "/usr/local/cuda"
LIBFABRIC = os.environ.get("TORCHSTACK_LIBFABRIC") or "/usr"
WORK = os.environ.get("TORCHSTACK_UPSTREAM_WORK", "")
HWLOC = os.environ.get("TORCHSTACK_HWLOC", "")
COMPILERS = {"CC": os.environ.get("TORCHSTACK_CC") or "gcc", "CXX": os.environ.get("TORCHSTACK_CXX") or "g++"}
REPOSITORIES = {"nccl": "NVIDIA/nccl", "plugin": "aws/aws-ofi-nccl", "tests": "NVIDIA/nccl-tests"}


class Pair(NamedTuple):
    """Tags of NCCL, its plugin and nccl-tests."""

    nccl: str
    plugin: str
    tests: str = "v2.19.6"

    @property
    def version(self):
        return self.nccl[1:].partition("-")[0]

    def __str__(self):
        return "%s-with-%s" % (self.nccl, self.plugin)


def pairs():
    """Newer ones than any site has, and those of the sites' release files, each once."""
    found = {Pair("v2.29.7-1", "v1.9.2-aws")}
    for path in sites.RELEASES:
        nccl = sites.load_release(path).get("nccl") or {}
        plugin = nccl.get("plugin") or {}
        if (nccl.get("repository"), plugin.get("repository")) == (
            "https://github.com/NVIDIA/nccl", "https://github.com/aws/aws-ofi-nccl"):
            found.add(Pair(nccl["tag"], plugin["tag"]))
    return sorted(found)


DATA = yaml.safe_load((CHECKOUT / "roles" / "nccl_ofi" / "vars" / "compatibility.yml").read_text())
TABLE = DATA["nccl_ofi_compatibility"]

pytestmark = pytest.mark.skipif(
    not MIRROR, reason="no mirrors of NCCL, its plugin and nccl-tests: make test-upstream MIRROR=DIRECTORY")


def mirror_of(repository):
    """The bare clone of a repository of GitHub."""
    owner, name = repository.split("/")
    for place in ("%s/%s.git" % (owner, name), "%s.git" % name, "%s+%s/repo" % (owner, name)):
        if (pathlib.Path(MIRROR) / place / "objects").is_dir():
            return pathlib.Path(MIRROR).resolve() / place
    pytest.skip("%s has no clone of %s" % (MIRROR, repository))


def git(repository, *words, check=True):
    """What git says of a clone, whoever owns it."""
    command = ["git", "-c", "safe.directory=*", "--git-dir", str(mirror_of(repository)), *words]
    return subprocess.run(command, text=True, check=check, stdout=subprocess.PIPE).stdout.strip()


def source(part, pair):
    repository, tag = REPOSITORIES[part], getattr(pair, part)
    commit = git(repository, "rev-parse", tag + "^{commit}")
    return {"repository": "https://github.com/" + repository, "tag": tag, "commit": commit}


def definition(toolkit, pair):
    """NCCL as a release file asks for it."""
    return {
        "cuda": {"version": toolkit, "prefix": CUDA, "architectures": ["9.0"]},
        "nccl": {
            "version": pair.version, **source("nccl", pair), "make": ["ONLY_FUNCS=AllReduce Sum f32 (RING|TREE) *"],
            "plugin": {
                "version": pair.plugin[1:], **source("plugin", pair), "libfabric": LIBFABRIC, "hwloc": HWLOC},
            "tests": source("tests", pair),
            "accept": [
                {"problem": "untested", "reason": "These tests are to tell."},
                {"problem": "libfabric", "reason": "These tests are to tell."},
            ],
        },
    }


class World:
    """A release that gets NCCL, with git told where the clones are."""

    def __init__(self, place, environment, pair, toolkit):
        self.pair = pair
        self.place, self.prefix = place, place / "release"
        self.nccl, self.records = self.prefix / "nccl", self.prefix / ".torchstack"
        self.kept = self.records.exists()
        (self.records / "steps").mkdir(parents=True, exist_ok=True)
        tools = place / "tools" / "bin"
        tools.mkdir(parents=True, exist_ok=True)
        for program in ("fetch-git", "node_jobs.py"):
            shutil.copy(CHECKOUT / "roles" / "python_tools" / "files" / program, tools)
        (tools / "python").unlink(missing_ok=True)
        (tools / "python").symlink_to(sys.executable)
        # Steps have the home of who rolls out, and none of their other variables.
        home = place / "home"
        home.mkdir(exist_ok=True)
        (home / ".gitconfig").write_text("[safe]\n\tdirectory = *\n" + "".join(
            '[url "file://%s"]\n\tinsteadOf = https://github.com/%s\n' % (mirror_of(repository), repository)
            for repository in REPOSITORIES.values()))
        self.environment = {**environment, "HOME": str(home)}
        context = {
            "prefix": str(self.prefix), "records": str(self.records), "tools": str(place / "tools"), "frozen": False,
            "compilers": COMPILERS, "definition": definition(toolkit, pair),
        }
        (place / "play.yml").write_text(yaml.safe_dump([{
            "hosts": "localhost", "gather_facts": False, "vars": {"release_context": context},
            "roles": ["hpcml.torchstack.nccl_ofi"],
        }]))

    def roll_out(self, *options):
        """Run the role; what it printed."""
        command = [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), "-i", "localhost,", "-c", "local"]
        process = subprocess.run(
            [*command, *options, str(self.place / "play.yml")], env=self.environment, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert process.returncode == 0, process.stdout[-6000:]
        return process.stdout


@pytest.fixture(scope="module", params=pairs(), ids=str)
def world(request, tmp_path_factory, ansible_environment):
    for path, name in ((CUDA + "/bin/nvcc", "CUDA"), (LIBFABRIC + "/include/rdma/fabric.h", "LIBFABRIC")):
        if not os.path.exists(path):
            pytest.skip("there is no %s: make test-upstream %s=PREFIX" % (path, name))
    pair, toolkit = request.param, nccl_find.cuda(CUDA).version
    if int(toolkit.split(".")[0]) >= 13 and tuple(map(int, pair.version.split("."))) < (2, 28):
        pytest.skip("no NCCL %s with CUDA %s, whose headers it does not know: CUDA names another" % (
            pair.version, toolkit))
    top = pathlib.Path(WORK) / str(pair) if WORK else tmp_path_factory.mktemp("nccl")
    top.mkdir(parents=True, exist_ok=True)
    found = World(top, ansible_environment, pair, toolkit)
    found.planned = found.roll_out("--check")
    found.rolled = found.roll_out()
    return found


def stamps(world):
    """How long each step took, in seconds."""
    return {
        path.parent.name: json.loads(path.read_text())["seconds"]
        for path in sorted((world.records / "steps").glob("*/stamp.json"))
    }


def test_nccl_and_the_plugin_are_built_from_the_sources_at_their_commits(world):
    record = json.loads((world.records / "nccl.json").read_text())
    assert record["version"] == world.pair.version
    assert record["runpath"] == ["$ORIGIN"]
    assert record["commit"] == source("nccl", world.pair)["commit"]
    assert record["plugin"]["used"] in record["plugin"]["api"]
    assert not list((world.nccl / "lib").glob("*.a"))
    assert "libfabric.so.1" in record["plugin"]["needed"]
    # An ONLY_FUNCS that matches nothing builds as well, and its all-reduce does nothing. Older NCCLs build everything.
    if git(REPOSITORIES["nccl"], "grep", "-l", "ONLY_FUNCS", world.pair.nccl, "--", "src", check=False):
        assert b"ncclDevKernel_AllReduce_Sum_f32" in (world.nccl / "lib" / "libnccl.so.2").read_bytes()
    print(json.dumps(record, indent=2))
    print("seconds:", stamps(world))
    libraries = [path for path in (world.nccl / "lib").glob("*.so*") if not path.is_symlink()]
    print("bytes:", {path.name: path.stat().st_size for path in libraries})


def test_a_plan_and_a_second_run_change_nothing(world):
    assert world.kept or changed_in(world.planned) > 0
    for options in (["--check"], []):
        assert changed_in(world.roll_out(*options)) == 0


def verified(run_module, world):
    # The driver is on nodes with GPUs only.
    return run_module("ldd_verify", {
        "paths": [str(world.nccl)],
        "plugins": [{"caller": "libnccl.so.2", "name": "libnccl-net.so"}],
        "providers": [
            {"name": "libnccl.so.2", "path": str(world.nccl / "lib" / "**")},
            {"name": "libnccl-net.so", "path": str(world.nccl / "lib" / "**")},
        ],
        "allow_missing": [{"name": "libcuda.so.1", "reason": "no driver here"}],
    })


def test_s17_the_plugin_is_found_from_nccl_and_its_removal_is_reported(world, run_module):
    result = verified(run_module, world)
    assert not result.failed, result.console
    print(json.dumps({name: found for name, found in result["providers"].items() if "nccl" in name}, indent=2))
    plugin = world.nccl / "lib" / "libnccl-net.so"
    plugin.rename(plugin.with_name("away"))
    try:
        result = verified(run_module, world)
    finally:
        plugin.with_name("away").rename(plugin)
    assert result.failed
    assert [(missing["soname"], os.path.basename(missing["object"])) for missing in result["missing"]] == [
        ("libnccl-net.so", "libnccl.so." + world.pair.version)], result.console
    print(" ".join(result.console.split())[-600:])


def test_nccl_tests_find_the_nccl_that_they_lie_beside(world, run_module):
    result = run_module("ldd_verify", {
        "paths": [str(world.nccl / "bin")],
        "require": [{"object": "**/all_reduce_perf", "needs": "libnccl.so.2", "reason": "they test it"}],
        "providers": [{"name": "libnccl.so.2", "path": str(world.nccl / "lib" / "**")}],
        "allow_missing": [{"name": "libcuda.so.1", "reason": "no driver here"}],
    })
    assert not result.failed, result.console


WAYS = {
    "shared-memory": ({"NCCL_P2P_DISABLE": "1"}, "via SHM/"),
    "libfabric": ({"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "FI_PROVIDER": "tcp"}, "via NET/{network}/"),
}
"""Variables that leave NCCL one way between two GPUs of a node, and what it logs of each channel."""


@pytest.mark.parametrize("way", WAYS)
def test_nccl_tests_get_right_values_on_two_gpus(world, way):
    if len(glob.glob("/dev/nvidia[0-9]*")) < 2:
        pytest.skip("there are no two GPUs here")
    variables, logged = WAYS[way]
    names = compatibility.entry_of(TABLE["plugins"]["aws-ofi-nccl"], world.pair.plugin)["networks"]
    network = "Libfabric" if "Libfabric" in names else names[0]
    done = subprocess.run(
        [str(world.nccl / "bin" / "all_reduce_perf"), "-b", "1M", "-e", "256M", "-f", "4", "-g", "1", "-t", "2"],
        env={**os.environ, "NCCL_DEBUG": "INFO", "NCCL_NET": network, **variables}, text=True, check=False,
        timeout=600, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout[-6000:]
    assert "# Out of bounds values : 0 OK" in done.stdout
    assert "Using network " + network in done.stdout and logged.format(network=network) in done.stdout
    print("\n".join(line for line in done.stdout.splitlines() if "NCCL INFO" not in line))


def interfaces(repository, pattern):
    """The versions of the interface in the sources, by the tag, for all tags with a number."""
    found = {}
    for tag in git(repository, "tag").split():
        # Since 1.12 the plugin's interface for each vendor has a file of its own; Neuron's is not NCCL's.
        said = git(repository, "grep", "-hoE", pattern, tag, "--", "src", ":!*neuron*", check=False)
        versions = sorted({int(number) for number in re.findall(r"_v(\d+)", said)})
        if versions:
            found[tag] = versions
    return found


@pytest.mark.parametrize(("repository", "known", "pattern"), [
    ("NVIDIA/nccl", TABLE["nccl"], r'"ncclNetPlugin_v[0-9]+"'),
    ("aws/aws-ofi-nccl", TABLE["plugins"]["aws-ofi-nccl"], r"\bncclNetPlugin_v[0-9]+\b"),
])
def test_s20_the_table_of_interfaces_is_what_the_sources_say(repository, known, pattern):
    compared = 0
    for tag, versions in interfaces(repository, pattern).items():
        if not re.match(r"v\d+\.\d+\.\d+(-\d|-aws)?$", tag):
            continue
        entry = compatibility.entry_of(known, tag)
        if entry is not None:
            assert (tag, entry["api"]) == (tag, [versions[0], versions[-1]])
            compared += 1
    assert compared > 20
    print("%s: %d tags compared" % (repository, compared))


def test_s17_the_table_has_every_name_that_the_sources_give_the_plugin():
    repository, known, compared = "aws/aws-ofi-nccl", TABLE["plugins"]["aws-ofi-nccl"], 0
    pattern = r'\.name *= *"(AWS Libfabric|Libfabric|OFI)"'
    for tag in git(repository, "tag").split():
        entry = compatibility.entry_of(known, tag) if re.match(r"v\d+\.\d+\.\d+(-aws)?$", tag) else None
        if entry is None:
            continue
        names = git(repository, "grep", "-hoE", pattern, tag, "--", "src", ":!*neuron*", check=False)
        assert (tag, sorted(entry["networks"])) == (tag, sorted(set(re.findall('"([^"]+)"', names))))
        compared += 1
    assert compared > 20
    print("%s: names of %d tags compared" % (repository, compared))
