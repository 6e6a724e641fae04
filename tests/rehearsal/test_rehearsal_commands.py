# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the commands behind `make rehearse` say to one who cannot have a rehearsal."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rehearsal.__main__ import of_repositories
from rehearsal.checkout import CHECKOUT
from rehearsal.image import make_image
from rehearsal.inventory import lint
from rehearsal.podman import Podman
from rehearsal.site import of_a_repository, of_the_checkout, release_name
from rehearsal.trouble import MissingError, TroubleError

OWN = {"REHEARSAL_NAME": "torchstack-rehearsal-refused"}
"""A cluster that nobody else works on; none of these commands makes it."""


def said(*arguments, **environment):
    """Run a command that fails, and return its one sentence."""
    done = subprocess.run(
        [sys.executable, "-B", "-m", "rehearsal", *arguments],
        cwd=CHECKOUT, env={**os.environ, **OWN, **environment}, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=120, check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_machine_without_podman_or_sudo_is_told_what_to_install(tmp_path):
    sentence = said("up", PATH=str(tmp_path))
    assert "There is no " in sentence
    assert "install it" in sentence


PROGRAMS = {
    "sudo": 'shift\nexec "$@"\n',
    "podman": """echo '{"host": {"ociRuntime": {"name": "runc"}, "cgroupVersion": "v2"}}'\n""",
    "iptables": "",
}


@pytest.mark.parametrize("missing, instead, sentence", [
    ("sudo", None, "There is no sudo on this machine"),
    ("podman", None, "There is no podman on this machine"),
    ("iptables", None, "There is no iptables on this machine"),
    ("sudo", "echo 'sudo: a password is required' >&2\nexit 1\n", "The rehearsal needs podman as root"),
    ("podman", "echo 'Error: could not find netavark in /usr/lib.' >&2\nexit 125\n", "could not find netavark"),
])
def test_what_a_machine_lacks_is_said_before_anything_begins(tmp_path, monkeypatch, missing, instead, sentence):
    for name, text in {**PROGRAMS, missing: instead}.items():
        if text is not None:
            (tmp_path / name).write_text("#!/bin/sh\n" + text)
            (tmp_path / name).chmod(0o755)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("rehearsal.podman.SYSTEM", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingError) as refused:
        assert Podman().words
    assert sentence in str(refused.value)
    remedy = "allow `sudo -n podman`" if instead and missing == "sudo" else "install it"
    assert remedy in str(refused.value)


@pytest.mark.parametrize("complaint, remedy", [
    ("E: unable to pick chroot mode automatically (use --mode for manual selection)", "--add-subuids"),
    ("E: apt-get update failed", "REHEARSAL_ARCHIVE"),
])
def test_an_image_that_cannot_be_made_is_told_with_what_helps(tmp_path, monkeypatch, complaint, remedy):
    for name in ("mmdebstrap", "newuidmap"):
        (tmp_path / name).write_text("#!/bin/sh\necho '%s' >&2\nexit 1\n" % complaint)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(TroubleError) as failed:
        make_image(Podman(), "localhost/none", "slurm")
    assert complaint in str(failed.value)
    assert remedy in str(failed.value).splitlines()[-1]


def test_an_unknown_site_is_refused_with_the_known_ones():
    sentence = said("roll-out", "nowhere")
    assert "inventories/nowhere/hosts.yml" in sentence
    assert "Sites that can: cirrus, derecho, local, lumi, polaris." in sentence


def test_the_file_of_a_release_means_its_name(monkeypatch):
    monkeypatch.chdir(CHECKOUT)
    for given in ("2026-11-20", "2026-11-20.yml", "inventories/local/releases/2026-11-20.yml"):
        assert release_name(of_the_checkout("local"), given) == "2026-11-20"


@pytest.mark.parametrize("given", ["/nowhere/2026-11-20.yml", "inventories/local/releases/2001-01-01.yml"])
def test_a_file_that_is_no_release_of_the_site_is_refused_with_those_that_are(given):
    sentence = said("roll-out", "local", "--release", given)
    assert given in sentence
    assert "no release file of site 'local'" in sentence
    assert "inventories/local/releases" in sentence
    assert "2026-11-20," in sentence


@pytest.mark.parametrize(
    "name, value",
    [
        ("REHEARSAL_NAME", "somebody-elses"), ("REHEARSAL_NODES", "many"), ("REHEARSAL_LOGIN_NODES", "0"),
        ("REHEARSAL_MOUNTS", "/nowhere/at/all"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(name, value):
    sentence = said("up", **{name: value})
    assert name in sentence
    assert value in sentence


def test_make_rehearse_without_a_site_says_how_it_is_called():
    done = subprocess.run(["make", "rehearse"], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "make rehearse SITE=" in done.stdout


@pytest.mark.parametrize("words, meant", [
    ([], ["repository", "."]),
    (["--release", "2026.1"], ["repository", ".", "--release", "2026.1"]),
    (["/my/site", "--", "--check"], ["repository", "/my/site", "--", "--check"]),
    (["down", "--image"], ["down", "--image"]),
])
def test_bin_rehearse_takes_the_directory_of_a_repository_or_the_one_it_is_called_in(words, meant):
    assert of_repositories(words) == meant


def test_a_directory_that_is_no_sites_repository_is_refused_with_what_makes_one(tmp_path):
    (tmp_path / "ansible.cfg").touch()
    with pytest.raises(TroubleError, match=r"as it has no inventory\. bin/new-site makes one\."):
        of_a_repository(tmp_path)


def test_mistakes_in_the_data_are_said_before_a_node_is_made(tmp_path):
    """The same lint as every rollout's, on this machine, with the rehearsal's data over the site's own."""
    site = of_the_checkout("local")._replace(over=(str(tmp_path / "over"),))
    (tmp_path / "over" / "group_vars").mkdir(parents=True)
    (tmp_path / "over" / "hosts.yml").write_text("local: {}\n")
    (tmp_path / "over" / "group_vars" / "local.yml").write_text("torchstack_job: {launcher: slurm}\n")
    with pytest.raises(TroubleError, match=r"(?s)group_vars/local\.yml:1: .*torchstack_job.*torchstack_jobs"):
        lint(site, [])
