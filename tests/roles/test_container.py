# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the role container refuses before anything is installed, and what it tells the roles that follow."""

from __future__ import annotations

import hashlib
import os

import pytest
from support.role_plays import play_tasks


@pytest.fixture()
def site(tmp_path):
    """A place of images with one image, a root, and a runtime that says its version."""
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "small.sif").write_bytes(b"an image")
    (tmp_path / "root").mkdir()
    runtime = tmp_path / "singularity"
    runtime.write_text("#!/bin/sh\necho singularity-ce version 4.1.3\n")
    runtime.chmod(0o755)
    return tmp_path


def judge(site, environment, *cases):
    """Run the preflight for images; the exit code, and what was printed in one line."""
    variables = {
        "torchstack_container": {"binds": ["{{ case.bind | default('/usr') }}:/usr:ro", str(site / "root" / "later")]},
        "container_base": {"image": "{{ case }}"}, "container_root": str(site / "root"),
        "container_images": str(site / "images"), "container_command": str(site / "singularity"),
    }
    process = play_tasks("container", "preflight", variables, list(cases), environment, site, "-v")
    return process.returncode, " ".join(process.stdout.split())


SUM = hashlib.sha256(b"an image").hexdigest()


def test_an_image_is_judged_and_handed_on_by_the_checksum_of_either_place(site, ansible_environment):
    (site / "images" / "SHA256SUMS").write_text("%s *small.sif\n" % SUM)
    code, said = judge(site, ansible_environment, {"file": "small.sif"}, {"file": "small.sif", "sha256": "0" * 64})
    assert code == 0, said
    assert '"copy": "%s"' % (site / "root" / "images" / SUM[:12] / "small.sif") in said
    assert '"copy": "%s"' % (site / "root" / "images" / ("0" * 12) / "small.sif") in said
    assert '"bytes": 8' in said and '"version": "4.1.3"' in said
    assert "and %s/images/SHA256SUMS says %s." % (site, SUM) in said
    assert os.listdir(site / "root") == []


def test_without_a_checksum_the_image_is_refused_with_the_line_to_write(site, ansible_environment):
    code, said = judge(site, ansible_environment, {"file": "small.sif"})
    assert code != 0
    assert "write this under base.image: sha256: %s Nothing was installed." % SUM in said


def test_s33_everything_that_is_missing_is_told_at_once(site, ansible_environment):
    (site / "singularity").write_text("#!/bin/sh\necho no such instruction >&2\nexit 1\n")
    case = {"file": "other.sif", "sha256": SUM, "definition": "other.docker", "bind": "/nonexistent/flash"}
    code, said = judge(site, ansible_environment, case)
    assert code != 0
    for words in ("other.sif is not there. Correct base.image.file", "that place has small.sif.",
                  "The definition %s/images/other.docker is not there." % site,
                  "singularity does not answer: no such instruction.",
                  "/nonexistent/flash is not there, and none would start.", "Nothing was installed."):
        assert words in said, said
