# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""bin/lock and the packages of a conda base, with a real py-rattler and a channel of small packages in a directory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest
from support import conda_channel, sites
from support.package_release import CHECKOUT

LOCK = CHECKOUT / "bin" / "lock"
RELEASE = """\
release: one
base:
  kind: conda
  python: "3.11"
  channels: [%s]
  lock: one/conda-packages.txt
"""


class Place:
    """A release file on a conda base, and the channel that it names."""

    def __init__(self, directory, channel):
        self.channel, self.file = channel, directory / "one.yml"
        self.lock = directory / "one" / "conda-packages.txt"
        self.lock.parent.mkdir()
        self.asked = self.lock.with_suffix(".in")
        self.asked.write_text("toyuser  # what users ask for\n")
        self.file.write_text(RELEASE % channel.url)

    def run(self, *options, **variables):
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
        done = subprocess.run([LOCK, self.file, *options], env={**os.environ, "PATH": path, **variables}, text=True,
                              check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    def versions(self):
        archive = r"(?m)/(\w+)-([\d.]+)-0\.(?:conda|tar\.bz2)#sha256:[0-9a-f]{64}$"
        return dict(re.findall(archive, self.lock.read_text()))


@pytest.fixture()
def place(tmp_path):
    lacking = conda_channel.needed_tools()
    if lacking:
        pytest.skip("no channel can be built: missing " + ", ".join(lacking))
    channel = conda_channel.Channel(tmp_path / "channel")
    channel.add("toydata", "1.0.0", {"share/toydata": "1\n"})
    channel.add("toyuser", "1.0.0", {"share/toyuser": "1\n"}, ("toydata >=1.0",))
    channel.index()
    return Place(tmp_path, channel)


def test_a_lock_is_made_of_the_specs_beside_it_and_a_second_run_writes_nothing(place):
    code, said = place.run()
    assert code == 0, said
    assert "one/conda-packages.txt:\n  toydata (none) -> 1.0.0-0\n  toyuser (none) -> 1.0.0-0\n" in said
    assert place.versions() == {"toydata": "1.0.0", "toyuser": "1.0.0"} and "@EXPLICIT" in place.lock.read_text()
    before = place.lock.read_bytes()
    for version in ("toydata", "toyuser"):
        place.channel.add(version, "2.0.0", {"share/" + version: "2\n"})
    place.channel.index()
    code, said = place.run()
    assert code == 0 and "All locks of one.yml are as they have to be.\n" in said, said
    assert place.lock.read_bytes() == before and place.run("--check")[0] == 0
    assert sites.load_release(place.file)["base"]["lock"] == before.decode()


def test_what_is_to_be_renewed_is_and_nothing_else(place):
    place.run()
    for name in ("toydata", "toyuser"):
        place.channel.add(name, "2.0.0", {"share/" + name: "2\n"}, ("toydata >=1.0",) if name == "toyuser" else ())
    place.channel.index()
    code, said = place.run("--upgrade", "toydata", "--check")
    assert code == 1 and "toydata 1.0.0-0 -> 2.0.0-0" in said and place.versions()["toydata"] == "1.0.0", said
    assert place.run("--upgrade", "toydata")[0] == 0
    assert place.versions() == {"toydata": "2.0.0", "toyuser": "1.0.0"}
    assert place.run("--upgrade-all")[0] == 0
    assert place.versions() == {"toydata": "2.0.0", "toyuser": "2.0.0"}


def test_another_spec_changes_what_it_says(place):
    place.run()
    place.asked.write_text("toydata\n")
    assert place.run()[0] == 0 and place.versions() == {"toydata": "1.0.0"}


def test_an_edited_digest_is_told_and_made_right(place):
    place.run()
    right = place.lock.read_text()
    place.lock.write_text(re.sub(r"(toydata\S+sha256:)[0-9a-f]{64}", r"\g<1>" + "0" * 64, right))
    code, said = place.run("--check")
    assert code == 1 and "toydata 1.0.0: another file" in said, said
    assert place.run()[0] == 0 and place.lock.read_text() == right


@pytest.mark.parametrize(("change", "said"), [
    (lambda place: place.asked.write_text("toyuser >=3\n"), "'base.lock' cannot be solved: "),
    (lambda place: place.asked.write_text("nothing\n"), "'base.lock' cannot be solved: "),
    (lambda place: shutil.rmtree(place.channel.directory), "'base.lock' cannot be solved: "),
    (lambda place: place.file.write_text(RELEASE % ""),
     "'base.lock' cannot be solved, as no channel is named: give base.channels, or TORCHSTACK_CONDA_CHANNELS."),
    (lambda place: place.file.write_text(RELEASE % "defaults"), "'base.lock' cannot be solved: "),
])
def test_what_cannot_be_solved_is_told_and_nothing_is_written(place, change, said):
    change(place)
    code, printed = place.run(TORCHSTACK_CONDA_CHANNELS="")
    assert code == 2 and "lock: " + said in printed and not place.lock.exists(), printed
    assert "Traceback" not in printed


def test_channels_of_a_site_are_a_variable(place):
    place.file.write_text(RELEASE % "")
    assert place.run(TORCHSTACK_CONDA_CHANNELS=place.channel.url)[0] == 0
    assert place.versions() == {"toydata": "1.0.0", "toyuser": "1.0.0"}


def test_a_package_for_gpus_is_solved_where_the_release_file_says_that_its_nodes_have_them(place):
    place.channel.add("toygpu", "1.0.0", {"share/toygpu": "1\n"}, ("__cuda >=12",))
    place.channel.index()
    place.asked.write_text("toygpu\n")
    without = {"CONDA_OVERRIDE_CUDA": ""}
    assert place.run(**without)[0] == 2 and not place.lock.exists()
    place.file.write_text(place.file.read_text() + "  virtual_packages: {__cuda: '12.4'}\n")
    code, said = place.run(**without)
    assert code == 0 and place.versions() == {"toygpu": "1.0.0"}, said


OTHER = "linux-aarch64" if conda_channel.SUBDIR == "linux-64" else "linux-64"
MACHINES = {"linux-64": "x86_64", "linux-aarch64": "aarch64"}


@pytest.fixture()
def site(place):
    """A site whose nodes have another processor than this machine, and a package for either."""
    directory = place.file.parent / "releases"
    directory.mkdir()
    (directory.parent / "hosts.yml").write_text(
        "all:\n  hosts: {node: }\n  vars: {release_expect: {machine: %s}}\n" % MACHINES[OTHER])
    for subdir, version in ((OTHER, "1.0.0"), (conda_channel.SUBDIR, "2.0.0")):
        place.channel.add("toydata", version, {"share/toydata": version + "\n"}, subdir=subdir)
    (place.channel.directory / "noarch").joinpath("toydata-1.0.0-0.conda").unlink()
    place.channel.index()
    return Place(directory, place.channel)


def test_a_site_whose_nodes_have_another_processor_gets_its_packages(site):
    code, said = site.run()
    assert code == 0 and "Solving one/conda-packages.txt for %s ..." % OTHER in said, said
    assert site.versions() == {"toydata": "1.0.0", "toyuser": "1.0.0"}
    assert "/%s/toydata-1.0.0-0.conda#" % OTHER in site.lock.read_text()
    assert site.run("--check")[0] == 0


def test_such_a_node_has_neither_the_processor_nor_the_gpus_of_this_machine(site):
    for name, needed in (("fast", "__archspec 1 %s*" % MACHINES[conda_channel.SUBDIR]), ("gpu", "__cuda")):
        site.channel.add(name, "1.0.0", {}, (needed,), subdir=OTHER)
        site.channel.index()
        site.asked.write_text(name + "\n")
        code, said = site.run(CONDA_OVERRIDE_CUDA="12.4")
        assert code == 2 and "'base.lock' cannot be solved: " in said and not site.lock.exists(), said


def test_a_processor_that_conda_does_not_know_is_told(site):
    hosts = site.file.parents[1] / "hosts.yml"
    hosts.write_text(hosts.read_text().replace(MACHINES[OTHER], "riscv64"))
    code, said = site.run()
    assert code == 2 and "'base.lock' cannot be solved: conda has no platform for the processor riscv64." in said, said
