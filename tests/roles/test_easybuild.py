# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A container that a real EasyBuild installs, beside the same one that the role installs itself."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import base as bases
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import modulefile as release_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.lua import KEPT
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.module_load import load_modules
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.module_system import (
    EM,
    LMOD,
    find_system,
    is_bookkeeping,
)
from support import apptainer_image, easybuild_program
from support.role_plays import play_tasks

RELEASE = "2.2.0-rocm-5.6.1-python-3-singularity-20240209"
AWKWARD = 'two words, a \\, "quotes", $HOME, [brackets] and %(name)s'
"""A value that EasyBuild's generator of modules would not carry as it is."""


class Place:
    """A site of one module system, with its images, and releases below a directory for each method."""

    def __init__(self, place, environment, kind):
        self.place, self.environment, self.kind = place, environment, kind
        self.images = place / "images"
        self.images.mkdir()
        shutil.copy(apptainer_image.image(), self.images / "pytorch.sif")
        (self.images / "pytorch.docker").write_text("FROM scratch\n")
        self.sum = hashlib.sha256((self.images / "pytorch.sif").read_bytes()).hexdigest()

    def variables(self, method, **changed):
        """What the inventory and the role release would say of the release."""
        root = str(self.place / method)
        base = {
            "kind": "container", "python": apptainer_image.python_version(), "gpu": "none", "wrappers": ["pip"],
            "software": "directory", "venv": {"name": "pytorch", "lock": ""},
            "image": {
                "file": "pytorch.sif", "sha256": self.sum, "placement": "copy", "definition": "pytorch.docker",
            },
        }
        site = {
            "torchstack_images": str(self.images),
            "torchstack_container": {
                "command": apptainer_image.apptainer(), "binds": [str(self.place)], "method": method,
                "easybuild": easybuild_program.site(self.kind, self.place),
            },
        }
        described = bases.describe({"base": dict(base, **changed)}, root, RELEASE, {}, site=site)
        settings = [
            {"name": "NCCL_SOCKET_IFNAME", "value": "hsn", "reason": "The network of GPUs."},
            {"name": "AWKWARD", "value": AWKWARD, "reason": "It is."},
        ]
        mpi = {"provider": "image", "prefix": "", "bin": ""}
        module = release_module.describe(described, mpi, settings, {"unsetenv": ["PYTHONSTARTUP", "OF_A_USER"]})
        return {
            "torchstack_root": root, "torchstack_release": RELEASE, "torchstack_site": "mysite",
            "modulefile_name": "PyTorch", "modulefile_shells": ["bash"], "torchstack_images": str(self.images),
            "release_context": {
                "release": RELEASE, "root": root, "prefix": "%s/%s" % (root, RELEASE), "frozen": False,
                "records": "%s/%s/.torchstack" % (root, RELEASE), "base": described, "module": module,
                "mirror": {}, "proxy": {}, "python": {"executable": "/usr/bin/python3"},
                "definition": {"pytorch": {"version": "2.2.0"}},
            },
        }

    def roll_out(self, method, *options, roles=("container", "modulefile"), environment=None, **changed):
        """Play the roles; the exit code, and what was printed in one line."""
        tasks = [{"ansible.builtin.include_role": {"name": "hpcml.torchstack." + role}} for role in roles]
        play = {"hosts": "localhost", "gather_facts": False, "vars": self.variables(method, **changed), "tasks": tasks}
        playbook = self.place / "play.yml"
        playbook.write_text(json.dumps([play]))
        command = [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), "-i", "localhost,", "-c", "local"]
        process = subprocess.run(
            [*command, *options, str(playbook)], env=dict(self.environment, **(environment or {})), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )
        return process.returncode, " ".join(process.stdout.split())

    @property
    def easybuild(self):
        """Where EasyBuild works below the release."""
        return self.place / "easybuild" / RELEASE / "easybuild"

    def load(self, directory):
        """What loading the module from a directory sets for users, and takes away."""
        before = {"HOME": "/home/me", "PATH": "/usr/bin:/bin", "OF_A_USER": "1", "CMAKE_PREFIX_PATH": "/my/own"}
        system = find_system(os.environ, self.kind)
        after = load_modules(system, before, ["PyTorch/" + RELEASE], use=[str(directory)])[0]
        changed = {
            name: value for name, value in after.items()
            if before.get(name) != value and name != "MODULEPATH" and not is_bookkeeping(name)
            and not name.startswith(KEPT)
        }
        return changed, sorted(set(before) - set(after))

    def staged(self, method):
        """The directory of the release's own module."""
        tree = "lmod" if self.kind == LMOD else "tcl"
        return self.place / method / ".torchstack" / RELEASE / "modulefiles" / tree


@pytest.fixture(scope="module")
def place(tmp_path_factory, ansible_environment):
    """A release by either method; before, a check of EasyBuild's, whose outcome is kept."""
    found = Place(tmp_path_factory.mktemp("site"), ansible_environment, LMOD)
    found.checked = found.roll_out("easybuild", "--check", roles=["container"])
    found.left_by_check = sorted(path.name for path in found.place.glob("easybuild/**/*"))
    code, said = found.roll_out("direct")
    assert code == 0, said
    # What the caller has set for EasyBuild is not for this one.
    mine = {"EASYBUILD_MODULE_SYNTAX": "Tcl", "EASYBUILD_FETCH": "1", "EASYBUILD_INSTALLPATH": "/nonexistent"}
    code, said = found.roll_out("easybuild", environment=mine)
    assert code == 0, said
    return found


def test_s39_a_check_plans_the_steps_and_writes_nothing(place):
    code, said = place.checked
    assert code == 0, said
    assert "changed=0" not in said and place.left_by_check == []


def test_s39_the_rendered_easyconfig_is_installed_once_and_a_second_rollout_changes_nothing(place):
    installed = place.easybuild / "software" / "PyTorch" / RELEASE
    for name in ("pytorch.sif", "bin/python3", "runscripts/conda-python-simple", "share/docker-defs/pytorch.docker",
                 "user-software/venv/pytorch/pyvenv.cfg", "easybuild/PyTorch-%s.eb" % RELEASE):
        assert (installed / name).is_file(), name
    assert sorted(path.name for path in place.easybuild.iterdir()) == ["easyconfigs", "modules", "software", "sources"]
    code, said = place.roll_out("easybuild")
    assert code == 0 and "changed=0" in said, said


def test_s39_both_methods_give_the_same_module_environment(place):
    by_easybuild, taken_away = place.load(place.easybuild / "modules" / "all")
    direct, also_taken_away = place.load(place.staged("direct"))
    records = [name for name in by_easybuild if name.startswith("EBDEVEL")]
    for name in records:
        del by_easybuild[name]
    assert records == ["EBDEVELPYTORCH"] and taken_away == also_taken_away == ["OF_A_USER"]
    places = {
        str(place.easybuild / "software" / "PyTorch" / RELEASE): "INSTALLATION",
        str(place.place / "direct" / RELEASE / "base"): "INSTALLATION",
        "%s/images/%s" % (place.place / "direct", place.sum[:12]): "INSTALLATION",
    }
    anywhere = re.compile("|".join(map(re.escape, places)))
    assert (
        {name: anywhere.sub("INSTALLATION", value) for name, value in by_easybuild.items()}
        == {name: anywhere.sub("INSTALLATION", value) for name, value in direct.items()}
    )
    assert by_easybuild["AWKWARD"] == AWKWARD and by_easybuild["EBVERSIONPYTORCH"] == "2.2.0"


def test_s39_a_module_of_easybuild_that_does_otherwise_fails_the_rollout(place):
    module = next((place.easybuild / "modules" / "all" / "PyTorch").iterdir())
    text = module.read_text()
    try:
        module.write_text(text.replace("hsn", "eth"))
        code, said = place.roll_out("easybuild", roles=["modulefile"])
        assert code != 0
        assert "EasyBuild's module sets NCCL_SOCKET_IFNAME to 'eth', the release's own to 'hsn'." in said
    finally:
        module.write_text(text)


def test_s39_a_user_installs_the_easyconfig_himself(place, tmp_path):
    site = easybuild_program.site(place.kind, place.place)
    easyconfig = next((place.easybuild / "easyconfigs").iterdir())
    process = subprocess.run(
        [site["command"], str(easyconfig), "--prefix", str(tmp_path / "mine"), "--tmpdir", str(tmp_path),
         "--sourcepath", "%s:%s" % (place.easybuild / "sources", place.images), "--robot-paths", str(tmp_path),
         "--modules-tool", site["modules_tool"], "--module-syntax", site["module_syntax"]],
        env=dict(site["environment"], HOME=str(tmp_path), SINGULARITY_BIND=str(tmp_path), https_proxy="http://127.0.0.1:9"),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )
    assert process.returncode == 0, process.stdout
    installed = str(tmp_path / "mine" / "software" / "PyTorch" / RELEASE)
    mine, _taken_away = place.load(tmp_path / "mine" / "modules" / "all")
    theirs, _taken_away = place.load(place.easybuild / "modules" / "all")
    assert mine == {
        name: value.replace(str(place.easybuild / "software" / "PyTorch" / RELEASE), installed)
        for name, value in theirs.items()
    }


def test_s39_s33_without_its_copy_the_module_falls_back_to_the_central_image(place):
    copy = place.easybuild / "software" / "PyTorch" / RELEASE / "pytorch.sif"
    aside = copy.with_suffix(".aside")
    modules = place.easybuild / "modules" / "all"
    assert place.load(modules)[0]["SIF"] == str(copy)
    copy.rename(aside)
    try:
        assert place.load(modules)[0]["SIFPYTORCH"] == str(place.images / "pytorch.sif")
    finally:
        aside.rename(copy)


def test_s39_a_site_without_easybuild_is_told_so(ansible_environment, tmp_path):
    case = {"command": "/nonexistent/eb"}
    site = {"torchstack_container": {"method": "easybuild", "easybuild": "{{ case }}"}}
    process = play_tasks("container", "easybuild_preflight", site, [case], ansible_environment, tmp_path)
    assert process.returncode != 0
    assert "EasyBuild's command /nonexistent/eb was not found on this machine." in " ".join(process.stdout.split())


def test_s39_environment_modules_load_its_module_too_and_files_are_packed(tmp_path, ansible_environment):
    place = Place(tmp_path, ansible_environment, EM)
    image = {"file": "pytorch.sif", "sha256": place.sum, "placement": "reference", "definition": ""}
    # The role compares both modules.
    code, said = place.roll_out("easybuild", image=image, software="squashfs")
    assert code == 0, said
    installed = place.easybuild / "software" / "PyTorch" / RELEASE
    assert not (installed / "pytorch.sif").exists() and not (installed / "user-software").exists()
    loaded, taken_away = place.load(place.easybuild / "modules" / "all")
    assert loaded["SIF"] == str(place.images / "pytorch.sif") and loaded["AWKWARD"] == AWKWARD
    assert loaded["SINGULARITY_BIND"].endswith(",%s/user-software.squashfs:/user-software:image-src=/" % installed)
    assert taken_away == ["OF_A_USER"] and "CMAKE_PREFIX_PATH" not in loaded


def test_s39_an_image_that_was_exchanged_is_refused_by_easybuild_and_nothing_is_left(place):
    image = place.images / "pytorch.sif"
    records = place.place / "easybuild" / RELEASE / ".torchstack" / "steps" / "container"
    (records / "stamp.json").unlink()
    image.chmod(0o644)
    with open(image, "ab") as stream:
        stream.write(b"more")
    code, said = place.roll_out("easybuild", roles=["container"])
    assert code != 0
    assert re.search(r"EasyBuild: Checksum verification for \S+/pytorch.sif .* failed.*The log is \S+/log", said), said
    assert not (place.easybuild / "software").exists() and not (place.easybuild / "modules").exists()
