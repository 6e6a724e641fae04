# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A release of the local site that is a container: planned, rolled out by a real Apptainer, and left as it is."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess

import pytest
from rollouts import CHECKOUT, Site, find_module_system
from support import apptainer_image as small_images
from support import use_page

RELEASE = "2.2.0-small-python-%s"

RELEASE_FILE = """\
release: {release}
title: a small image
base:
  kind: container
  python: "{python}"
  image:
    file: small.sif
  wrappers: [python]
pytorch:
  version: "2.2.0"
acceptance:
  checks: [imports, devices]
  where_possible: []
"""

SITE = """
torchstack_images: {images}
torchstack_container:
  binds: ["{top}"]
modulefile_shells: [bash]
torchstack_ranks:
  launcher: ["{launcher}", "{{ranks}}"]
"""

LAUNCHER = """\
#!/bin/bash
# Starts ranks as a launcher does, on this machine: launcher RANKS PROGRAM [ARGUMENT ...]
export MASTER_ADDR=127.0.0.1 WORLD_SIZE=$1 LOCAL_WORLD_SIZE=$1
MASTER_PORT=$(python3 -c 'import socket; s = socket.create_server(("", 0)); print(s.getsockname()[1])')
export MASTER_PORT
shift
ranks=()
for ((rank = 0; rank < WORLD_SIZE; rank++)); do
  RANK=$rank LOCAL_RANK=$rank "$@" &
  ranks+=($!)
done
status=0
for process in "${ranks[@]}"; do wait "$process" || status=$?; done
exit $status
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory, collections_path, small_image):
    """The local site with a central place of images, and a release of one of them that is not rolled out yet."""
    top = tmp_path_factory.mktemp("container")
    top.chmod(0o755)
    image = small_image()
    asked = [small_images.PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    python = subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    images = top / "images"
    images.mkdir()
    shutil.copy(image, images / "small.sif")
    digest = hashlib.sha256(image.read_bytes()).hexdigest()
    (images / "SHA256SUMS").write_text("%s  small.sif\n" % digest)
    launcher = top / "launcher"
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
    release = RELEASE % python
    made = Site(top / "root", tmp_path_factory.mktemp("logs"), collections_path, release=release)
    made.environment["TORCHSTACK_ORDINARY_USER"] = ""
    inventory = top / "local"
    shutil.copytree(CHECKOUT / "inventories" / "local", inventory)
    (inventory / "host_vars").mkdir()
    (inventory / "host_vars" / "torchstack-local.yml").write_text(
        SITE.format(images=images, top=top, launcher=launcher))
    made.file = inventory / "releases" / (release + ".yml")
    made.file.write_text(RELEASE_FILE.format(release=release, python=python))
    made.inventory = ["-i", str(inventory / "hosts.yml")]
    made.images, made.digest = images, digest
    yield made
    made.remove()


@pytest.fixture(scope="module")
def rolled_out(site):
    site.plan = site.roll_out("--check")
    assert not site.root.exists()
    site.first = site.roll_out()
    return site


def test_the_plan_names_the_image_and_its_steps(rolled_out):
    text = rolled_out.plan.text
    assert "Image: small.sif, sha256 %s" % rolled_out.digest[:12] in text
    assert "container-image  would run" in text
    assert re.search(r"container        would run, inputs [0-9a-f]{12}\n", text)


def test_imports_are_proven_inside_of_the_image_through_the_wrapper(rolled_out):
    record = json.loads((rolled_out.prefix / ".torchstack" / "imports.json").read_text())
    assert record["python"] == "base/bin/python3"
    assert record["reported"]["torch.__version__"] == "2.2.0"
    assert any(entry["path"].startswith("/opt/miniconda3/") for entry in record["mapped"])
    assert "PyTorch 2.2.0 and Python" in rolled_out.first.text
    assert "Not checked: the files inside the image" in rolled_out.first.text


def test_ranks_are_accepted_by_the_run_script_through_the_module(rolled_out):
    record = json.loads((rolled_out.root / ".torchstack" / rolled_out.release / "acceptance.json").read_text())
    assert [(rank["rank"], rank["size"], rank["source"]) for rank in record["ranks"]] == [
        (0, 2, "environment"), (1, 2, "environment"),
    ]
    assert all(rank["files"]["torch"].startswith("/opt/miniconda3/") for rank in record["ranks"])
    assert all(rank["executable"].startswith("/opt/miniconda3/") for rank in record["ranks"])


def test_the_page_that_the_rollout_has_written_for_users_is_followed_to_the_letter(rolled_out, tmp_path):
    system = find_module_system("lmod", rolled_out)
    if system is None:
        pytest.skip("no Lmod on this machine")
    page = rolled_out.root / ".torchstack" / rolled_out.release / "use.md"
    assert "How it is used: %s" % page in rolled_out.first.text
    said = system.run("cd\n" + use_page.script(page.read_text()), home=str(tmp_path), load=False).stdout
    assert "PyTorch 2.2.0 sees 0 GPUs" in said
    told = system.run("module help torchstack/%s" % rolled_out.release).stdout
    assert "How it is used: %s" % page in told


def test_a_second_run_changes_nothing_even_where_the_list_of_checksums_has_gone(rolled_out):
    before = rolled_out.snapshot()
    (rolled_out.images / "SHA256SUMS").unlink()
    again = rolled_out.roll_out()
    assert "changed=0 " in again.text
    assert rolled_out.snapshot() == before


def test_a_frozen_release_refuses_another_image_of_that_name(rolled_out):
    (rolled_out.images / "SHA256SUMS").write_text("%s  small.sif\n" % ("0" * 64))
    text = " ".join(rolled_out.refused().text.split())
    assert "is frozen since" in text and "(definition.base.image.sha256). Make a new release" in text
