# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A container as a base: what a release file and a site may say of it, and what roles and users are told."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import base as bases
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import container
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.description import normalise
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.description_checks import find_faults

SUM = "0123456789abcdef" * 4
WRITTEN = {"kind": "container", "python": "3.10", "image": {"file": "pytorch.sif"}}
BASE = dict(WRITTEN, image={"file": "pytorch.sif", "sha256": SUM, "placement": "copy", "definition": ""})
CONTAINER = {
    "command": "singularity", "binds": ["/pfs", "/appl"], "method": "direct",
    "easybuild": {"command": "eb", "environment": {}, "modules_tool": "Lmod", "module_syntax": "Lua"},
}
SITE = {"torchstack_images": "/appl/images/", "torchstack_container": CONTAINER}
ROOT = "/appl/stacks"


def described(base=None, release="2.2.0-rocm-5.6.1", **container):
    site = dict(SITE, torchstack_container=dict(CONTAINER, **container))
    return bases.describe({"base": base or BASE}, ROOT, release, {}, site=site, image_bytes=7)


def test_a_container_is_described_by_the_keys_of_the_other_kinds_and_some_more():
    python = {"executable": "/usr/bin/python3", "minor": "3.11", "tag": "cp311", "platform": "linux_x86_64"}
    overlay = bases.describe(
        {"base": {"kind": "python_overlay"}, "locks": {"tools": ""}}, ROOT, "1", python)
    assert set(overlay) < set(described())
    assert overlay["rank_python"] == "/usr/bin/python3" and overlay["bytecode"] is True


def test_users_and_ranks_reach_the_images_python_by_a_wrapper_and_by_the_run_script():
    base = described()
    assert base["prefix"] == "/appl/stacks/2.2.0-rocm-5.6.1/base"
    assert base["python"] == base["prefix"] + "/bin/python3"
    assert base["rank_python"] == base["prefix"] + "/runscripts/conda-python-distributed"
    assert (base["search"], base["bytecode"], base["minor"]) == ({"PATH": [base["prefix"] + "/bin"]}, False, "3.10")


def test_s34_the_module_sets_the_documented_variables():
    prefix = described()["prefix"]
    assert described()["setenv"] == {
        "RUNSCRIPTS": prefix + "/runscripts", "RUNSCRIPTSPYTORCH": prefix + "/runscripts",
        "CONTAINERROOT": prefix, "EBROOTPYTORCH": prefix, "EBVERSIONPYTORCH": "2.2.0",
        "SINGULARITY_BIND": "/pfs,/appl,%s/runscripts:/runscripts" % prefix,
        "SINGULARITYENV_PREPEND_PATH": "/runscripts",
    }


def test_s33_the_central_image_serves_where_the_copy_is_gone():
    (found,) = described()["first_file"]
    assert found["variables"] == ["SIF", "SIFPYTORCH"]
    assert found["candidates"] == ["/appl/stacks/images/0123456789ab/pytorch.sif", "/appl/images/pytorch.sif"]
    assert found["missing"] == "There is no image for this module: neither %s nor %s is there." % tuple(
        found["candidates"])
    image = dict(BASE["image"], placement="reference")
    (found,) = described(dict(BASE, image=image))["first_file"]
    assert found["candidates"] == ["/appl/images/pytorch.sif"]
    assert found["missing"].endswith("pytorch.sif is not there.")


@pytest.mark.parametrize("base", [BASE, dict(BASE, venv={"name": "own", "lock": ""}, software="squashfs")])
def test_the_modulefile_of_a_container_can_be_written(base):
    found = described(base)
    description = {
        "name": "torchstack", "version": "2.2.0-rocm-5.6.1", "prefix": "/appl/stacks/2.2.0-rocm-5.6.1",
        "setenv": found["setenv"], "external": found["external"], "first_file": found["first_file"],
        "prepend": [{"name": name, "values": values} for name, values in found["search"].items()],
    }
    assert find_faults(normalise(description)) == []


def test_what_is_besides_the_image_is_bound_as_it_is_in_the_end():
    base = described(dict(BASE, venv={"name": "own", "lock": ""}))
    assert base["user_software"] == base["prefix"] + "/user-software"
    assert base["setenv"]["SINGULARITY_BIND"].endswith(",%s/user-software:/user-software" % base["prefix"])
    assert base["setenv"]["SINGULARITYENV_PREPEND_PATH"] == "/runscripts:/user-software/venv/own/bin"
    packed = described(dict(BASE, venv={"name": "own", "lock": ""}, software="squashfs"))
    assert packed["setenv"]["SINGULARITY_BIND"].endswith("/user-software.squashfs:/user-software:image-src=/")
    assert described()["user_software"] == ""


def test_easybuild_installs_where_its_module_says():
    base = described(method="easybuild")
    assert base["prefix"] == "/appl/stacks/2.2.0-rocm-5.6.1/easybuild/software/PyTorch/2.2.0-rocm-5.6.1"
    assert base["image"]["copy"] == base["prefix"] + "/pytorch.sif"
    assert base["setenv"]["EBROOTPYTORCH"] == base["prefix"]


@pytest.mark.parametrize("name, variable", [("PyTorch", "PYTORCH"), ("my-torch", "MYMINTORCH")])
def test_a_name_becomes_a_variable_as_easybuild_has_it(name, variable):
    assert "RUNSCRIPTS" + variable in described(dict(BASE, name=name))["setenv"]


@pytest.mark.parametrize("release, version, suffix", [
    ("2.2.0-rocm-5.6.1-python-3.10", "2.2.0", "-rocm-5.6.1-python-3.10"), ("2.2.0", "2.2.0", ""),
    ("2026-11-20", "2026-11-20", ""),
])
def test_a_releases_version_is_what_easybuild_takes_for_it(release, version, suffix):
    assert container.versions(release) == (version, suffix)


@pytest.mark.parametrize("line", [SUM + "  pytorch.sif", SUM + " *pytorch.sif", SUM + "  ./pytorch.sif"])
def test_the_checksum_comes_from_the_list_beside_the_images(line):
    text = "%s  other.sif\n%s\nnot a line\n" % ("f" * 64, line)
    assert container.checksum(text, "pytorch.sif") == SUM
    assert container.checksum(text, "torch.sif") == ""
    assert container.checksum("%s  pytorch.sif\n%s" % ("f" * 64, text), "pytorch.sif") == SUM


def problems(**more):
    definition = {"base": dict(WRITTEN, **more)}
    return bases.problems(definition, "a.yml")


@pytest.mark.parametrize("more, sentence", [
    ({"python": "3.10.4"}, "'base.python' in a.yml must say which Python the image has"),
    ({"python": ""}, "'base.python' in a.yml must say which Python the image has"),
    ({"wrappers": ["python3"]}, "'base.wrappers' in a.yml has python3, which is there in any case"),
    ({"software": "squashfs"}, "'base.software' in a.yml says what /user-software is, which is only there for a venv"),
    ({"specs": ["python"]}, "'base.specs' in a.yml means nothing to a container; remove it, or say kind: conda."),
    ({"minimum": "3.11"}, "'base.minimum' in a.yml means nothing to a container"),
])
def test_what_contradicts_itself_is_said_in_one_sentence(more, sentence):
    (found,) = problems(**more)
    assert found.startswith(sentence) and found.endswith(".")


def test_a_container_has_an_image():
    assert problems() == []
    assert "has no image; add the name" in bases.problems({"base": {"kind": "container", "python": "3.10"}})[0]


@pytest.mark.parametrize("key", ["image", "gpu", "wrappers", "venv", "software", "name"])
def test_what_only_a_container_has_is_refused_elsewhere(key):
    base = {"kind": "python_overlay", key: "x"}
    (found,) = bases.problems({"base": base}, "a.yml")
    assert found.startswith("'base.%s' in a.yml means nothing to an overlay" % key)


def test_a_resolved_container_has_the_keys_of_its_kind_and_other_bases_stay_as_they_were():
    resolved = {"base": dict(BASE, minimum="3.11", channels=[]), "packages": []}
    assert bases.fill_defaults(resolved) == {
        "base": dict(BASE, name="PyTorch", gpu="none", wrappers=[], software="directory"), "packages": [],
    }
    overlay = {"base": {"kind": "python_overlay", "channels": []}}
    assert bases.fill_defaults(overlay) == overlay


@pytest.mark.parametrize("binds", [["/appl"], ["/pfs", "/appl/stacks"], ["/appl:/appl:ro"], ["/"]])
def test_a_site_shows_the_releases_to_containers(binds):
    data = dict(SITE, torchstack_container=dict(CONTAINER, binds=binds))
    assert container.site_problems(data, ROOT, "site") == []


@pytest.mark.parametrize("data, root, sentence", [
    ({"torchstack_images": ""}, ROOT, "'torchstack_images' in site must be an absolute path"),
    ({"binds": []}, ROOT, "'torchstack_container.binds' in site has nothing that shows /appl/stacks to containers"),
    ({"binds": ["/appl/stack"]}, ROOT, "'torchstack_container.binds' in site has nothing that shows"),
    ({"binds": ["/appl:/other"]}, ROOT, "'torchstack_container.binds' in site has nothing that shows"),
    ({"binds": ["/a,b"]}, "/a,b", "The directory of the releases, /a,b, has a comma, a colon or a space"),
    ({"command": "podman-hpc"}, ROOT, "'torchstack_container.command' in site is podman-hpc, and Podman-HPC starts"),
    ({"command": "/opt/bin/ch-run -w"}, ROOT, "'torchstack_container.command' in site is /opt/bin/ch-run -w, and"),
    ({"command": "srun"}, ROOT, "'torchstack_container.command' in site is srun, and Pyxis starts images otherwise"),
    ({"easybuild": dict(CONTAINER["easybuild"], modules_tool="EnvironmentModules")}, ROOT,
     "'torchstack_container.easybuild' in site has Lua for Environment Modules, which reads none"),
])
def test_a_site_that_cannot_serve_a_container_is_told_so(data, root, sentence):
    own = {key: value for key, value in data.items() if key != "torchstack_images"}
    images = data.get("torchstack_images", SITE["torchstack_images"])
    site = {"torchstack_images": images, "torchstack_container": dict(CONTAINER, **own)}
    (found,) = container.site_problems(site, root, "site")
    assert found.startswith(sentence) and found.endswith(".")
