# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a release file may say of a container, and what verification asks of its image, with the real schema."""

from __future__ import annotations

import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import schema
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import container, release_file
from support import role_plays, sites

SPECIFIED = sites.load(sites.TOP / "roles/release/meta/argument_specs.yml")["argument_specs"]
SITE_KEYS = SPECIFIED["site_container"]["options"]
LOCAL = sites.load_release(sites.TOP / "inventories/local/releases/2026-11-20.yml")
CONTAINER = {
    "release": "2.2.0", "title": "an image", "pytorch": {"version": "2.2.0"},
    "base": {
        "kind": "container", "python": "3.10", "gpu": "amd", "wrappers": ["pip"], "software": "squashfs",
        "image": {"file": "a.sif", "sha256": "0" * 64, "placement": "reference", "definition": "a.docker"},
        "venv": {"name": "own"},
    },
}


def problems(definition):
    return release_file.problems(definition, sites.RELEASE_KEYS, "a.yml")


def changed(**keys):
    return dict(CONTAINER, base={**CONTAINER["base"], **keys})


def test_a_container_needs_neither_mpi_nor_locks_and_resolves_to_what_it_is():
    assert problems(CONTAINER) == []
    base = release_file.resolve(CONTAINER, sites.RELEASE_KEYS)["base"]
    assert base == dict(CONTAINER["base"], name="PyTorch", venv={"name": "own", "lock": ""})


@pytest.mark.parametrize("key", ["mpi", "locks", "packages", "toolchain", "cuda", "nccl", "mpi4py", "horovod"])
def test_what_the_image_has_is_refused_in_one_sentence(key):
    value = LOCAL.get(key, {"version": "12.2", "prefix": "/cuda", "architectures": ["8.0"]} if key == "cuda" else {})
    found = [one for one in problems(dict(CONTAINER, **{key: value})) if "means nothing to a container" in one]
    assert found == ["'%s' in a.yml means nothing to a container, of which only the image has it or does without; "
                     "remove it." % key]


@pytest.mark.parametrize("key", ["mpi", "locks"])
def test_every_other_release_still_needs_it(key):
    found = problems({name: value for name, value in LOCAL.items() if name != key})
    assert len(found) == 1 and found[0].startswith("'%s' is missing in a.yml; add it (" % key)


@pytest.mark.parametrize("definition, sentence", [
    (changed(image={}), "'base.image.file' is missing in a.yml"),
    (changed(image={"file": "images/a.sif"}), "'base.image.file' in a.yml is the text 'images/a.sif'; it must be the"),
    (changed(image={"file": "a.sif", "sha256": "12"}), "'base.image.sha256' in a.yml is the text '12'; it must be 64"),
    (changed(image={"file": "a.sif", "placement": "link"}), "'base.image.placement' in a.yml is 'link', which is none"),
    (changed(name="Py Torch"), "'base.name' in a.yml is the text 'Py Torch'; it must be letters"),
    (changed(wrappers=["a b"]), "'base.wrappers[0]' in a.yml is the text 'a b'; it must be the name of a command"),
    (changed(venv={"name": "../x"}), "'base.venv.name' in a.yml is the text '../x'"),
    (changed(gpu="intel"), "'base.gpu' in a.yml is 'intel', which is none of amd, nvidia, none"),
])
def test_a_slip_is_named(definition, sentence):
    (found,) = problems(definition)
    assert found.startswith(sentence)


@pytest.mark.parametrize("data, sentence", [
    ({"torchstack_images": "/appl", "torchstack_container": {"bind": ["/appl"]}}, "did you mean 'binds'?"),
    ({"torchstack_images": "/appl"}, "'torchstack_container.binds' in group_vars has nothing that shows /appl/ts"),
    ({"torchstack_images": "/appl", "torchstack_container": {"binds": ["/appl"], "method": "eb"}}, "is 'eb', which is"),
])
def test_data_of_a_site_that_cannot_be_used_are_named(data, sentence):
    found = schema.problems(data, SITE_KEYS, "group_vars")
    if not found:
        found = container.site_problems(schema.resolved(data, SITE_KEYS), "/appl/ts", "group_vars")
    (found,) = found
    assert sentence in found


def test_the_images_torch_and_python_have_to_be_those_of_the_release_file(tmp_path, ansible_environment):
    (tmp_path / "torch.py").write_text("__version__ = '1.0+rocm5.6'\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text('#!/bin/sh\nPYTHONPATH=%s exec %s "$@"\n' % (tmp_path, sys.executable))
    (tmp_path / "bin" / "python3").chmod(0o755)
    variables = {
        "verify_base": {"kind": "container", "prefix": str(tmp_path), "minor": "3.1"},
        "verify_records": str(tmp_path), "verify_prefix": str(tmp_path), "verify_module": {},
        "verify_libraries": {}, "verify_imports": {}, "verify_mpi": "",
        "release_context": {"definition": {"pytorch": {"version": "1.1"}}},
    }
    done = role_plays.play_tasks("verify", "imports", variables, [{}], ansible_environment, tmp_path)
    text = " ".join(done.stdout.split())
    assert done.returncode
    assert r"has to match 1\\.1([+].*)?" in text or r"has to match 1\.1([+].*)?" in text, text
    assert "the image's PyTorch has to be that of the release file" in text
    assert "the image's Python has to be that of the release file" in text
