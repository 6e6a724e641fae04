# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What an operator is told of an image before anything is installed."""

from __future__ import annotations

import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.findings import failure
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight import container_image as images

SUM = "ab" * 32
IMAGE = {"file": "small.sif", "sha256": "", "placement": "copy", "definition": "small.docker"}
HERE = images.places(IMAGE, "/images", "/stacks", SUM)


def test_an_image_is_copied_beside_the_releases_by_its_checksum():
    assert HERE == ("/images/small.sif", "/stacks/images/abababababab/small.sif", "/images/small.docker")


def test_what_is_only_referred_to_or_not_known_has_no_copy():
    assert images.places(dict(IMAGE, placement="reference", definition=""), "/images", "/stacks", SUM)[1:] == ("", "")
    assert images.places(IMAGE, "/images", "/stacks", "").copy == ""


@pytest.mark.parametrize(("output", "version"), [
    ("apptainer version 1.4.5", "1.4.5"), ("singularity-ce version 4.1.3-1.el8", "4.1.3-1.el8"),
    ("singularity version 3.8.7", "3.8.7"), ("2.6.1-dist", ""), ("", ""),
])
def test_the_version_is_read_from_what_each_runtime_prints(output, version):
    assert images.runtime_version(output) == version


def test_a_copy_counts_as_right_while_its_size_and_time_are_those_of_its_record(tmp_path):
    copy = tmp_path / "small.sif"
    copy.write_bytes(b"image")
    status = os.stat(copy)
    record = {"bytes": 5, "mtime_ns": status.st_mtime_ns, "sha256": SUM}
    assert images.is_recorded(record, SUM, status)
    assert not images.is_recorded(dict(record, bytes=4), SUM, status)
    assert not images.is_recorded(record, "cd" * 32, status)
    assert not images.is_recorded(None, SUM, status)


def test_without_any_checksum_the_operator_is_told_the_line_to_write():
    said = failure(images.judge_sum(IMAGE, "", SUM, "/images/SHA256SUMS"))
    assert said == (
        "Nothing says which checksum small.sif must have: neither base.image.sha256 nor /images/SHA256SUMS. "
        "If you trust the image as it is now, write this under base.image: sha256: " + SUM)
    assert "Have the image put into its place first" in failure(images.judge_sum(IMAGE, "", "", "/images/SHA256SUMS"))


def test_a_list_that_contradicts_the_release_file_is_told_before_gigabytes_are_copied():
    [finding] = images.judge_sum(dict(IMAGE, sha256=SUM.upper()), "cd" * 32, "", "/images/SHA256SUMS")
    assert finding.severity == "warning" and SUM in finding.message and "cd" * 32 in finding.message
    assert not failure(images.judge_sum(dict(IMAGE, sha256=SUM), SUM, "", "/images/SHA256SUMS"))


def test_s33_a_missing_image_is_told_with_those_that_are_there():
    there = {"problem": "is not there", "bytes": 0, "copied": False}
    said = failure(images.judge_image(IMAGE, HERE, there, ["other.sif", "SHA256SUMS"]))
    assert said == (
        "The image /images/small.sif is not there. "
        "Correct base.image.file, or have the image put there; that place has other.sif.")
    said = failure(images.judge_image(IMAGE, HERE, dict(there, problem="cannot be read by me"), ["small.sif"]))
    assert said.endswith("Ask whoever keeps the images to let this account read it.")
    assert not failure(images.judge_image(IMAGE, HERE, dict(there, copied=True), []))


def test_a_site_without_a_place_of_images_is_told_so():
    assert "torchstack_images" in failure(images.judge_place("", False))
    assert "/images, is not a directory" in failure(images.judge_place("/images", False))
    assert not images.judge_place("/images", True)


def volume(**facts):
    """A directory as root_directory.examine describes it."""
    given = {
        "path": "/stacks/images", "nearest": "/stacks", "directory": True, "writable": True, "owner": "builder",
        "mount": {"type": "lustre", "point": "/stacks"}, "free_bytes": 1 << 40, "free_inodes": 1 << 20,
    }
    return dict(given, **facts)


def test_too_little_room_and_a_quota_are_told_before_gigabytes_are_copied():
    said = failure(images.judge_room(HERE, 8 << 30, volume(free_bytes=1 << 30), "me"))
    assert "has 1 GiB free, and the image needs about 8 GiB." in said
    met = {"reservation": {"wanted": 8 << 30, "reserved": 1 << 30, "error": "EDQUOT", "supported": True}}
    said = failure(images.judge_room(HERE, 8 << 30, volume(probe=met), "me"))
    assert "Of the 8 GiB that the image needs, 1 GiB could be reserved" in said and "the quota of me is used up" in said
    said = failure(images.judge_room(HERE, 8 << 30, volume(free_inodes=3), "me"))
    assert "room for 3 more files" in said
    assert not failure(images.judge_room(HERE, 0, volume(free_bytes=0), "me"))


def test_who_may_not_write_the_copy_is_told_who_may():
    said = failure(images.judge_room(HERE, 1, volume(writable=False), "me"))
    assert said.startswith("me may not write in /stacks") and "Run this as builder, or let the release refer" in said
    assert "is not a directory" in failure(images.judge_room(HERE, 1, volume(directory=False), "me"))


def test_a_runtime_that_is_missing_or_does_not_answer_is_told():
    assert "There is no singularity on PATH" in failure(images.judge_runtime("singularity", "", "", ""))
    said = failure(images.judge_runtime("singularity", "/bin/singularity", "", "libseccomp is missing."))
    assert "/bin/singularity does not answer: libseccomp is missing." in said
    assert not failure(images.judge_runtime("singularity", "/bin/singularity", "", ""))


def test_what_containers_cannot_see_is_told_before_none_of_them_starts():
    said = failure(images.judge_binds(["/flash", "/usr/lib64/libcxi.so.1"]))
    assert "/flash, /usr/lib64/libcxi.so.1 are not there, and none would start. Correct torchstack_container" in said
    assert not failure(images.judge_binds([]))


def test_a_definition_that_cannot_be_kept_is_told_and_none_is_no_problem():
    assert "/images/small.docker is not there" in failure(images.judge_definition(IMAGE, HERE, "is not there"))
    assert not images.judge_definition(dict(IMAGE, definition=""), HERE, "")
