# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What users have of a container that was rolled out, with a real image and a real Apptainer."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import stat
import subprocess

import pytest

PLACE = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "root"
ROOT = PLACE / "stacks"
BASE = ROOT / "first" / "base"
CENTRAL = PLACE / "images" / "small.sif"
IMAGE = json.loads((ROOT / "first" / ".torchstack" / "image.json").read_text())
COPY = pathlib.Path(IMAGE["copy"])
MODULES = ROOT / ".torchstack" / "first" / "modulefiles" / "lmod"
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": os.environ["HOME"], "LC_ALL": "C.UTF-8"}


def loaded(text):
    """What a shell does in which the module was loaded."""
    start = ". /usr/share/lmod/lmod/init/bash && module use %s && module load PyTorch/first && " % MODULES
    return subprocess.run(
        ["bash", "-c", start + text], env=ENVIRONMENT, text=True, capture_output=True, check=False)


def run(*command):
    """What a program prints without the module."""
    return subprocess.run(
        [str(word) for word in command], env=ENVIRONMENT, text=True, capture_output=True, check=False)


@contextlib.contextmanager
def without(*paths):
    """Files that are not there meanwhile."""
    for path in paths:
        path.rename(path.with_name(path.name + ".away"))
    try:
        yield
    finally:
        for path in paths:
            path.with_name(path.name + ".away").rename(path)


def test_s34_the_module_sets_every_variable_that_is_documented():
    process = loaded("env")
    assert process.returncode == 0, process.stderr
    found = dict(line.partition("=")[::2] for line in process.stdout.splitlines())
    expected = {
        "SIF": COPY, "SIFPYTORCH": COPY, "RUNSCRIPTS": BASE / "runscripts", "RUNSCRIPTSPYTORCH": BASE / "runscripts",
        "EBROOTPYTORCH": BASE, "EBVERSIONPYTORCH": "first", "CONTAINERROOT": BASE,
        "SINGULARITY_BIND": "%s,/var/lib,%s/runscripts:/runscripts,%s/user-software:/user-software" % (
            PLACE, BASE, BASE),
        "SINGULARITYENV_PREPEND_PATH": "/runscripts:/user-software/venv/pytorch/bin",
    }
    assert {name: found.get(name) for name in expected} == {name: str(value) for name, value in expected.items()}
    assert "SINGULARITY_BINDPATH" not in found
    assert found["PATH"].split(":")[0] == str(BASE / "bin")
    assert (BASE / "share" / "docker-defs" / "small.docker").read_text() == "FROM scratch\n"
    assert (BASE / "share" / "examples" / "all_reduce.py").exists()


def test_s34_inside_the_run_scripts_are_on_the_path_and_the_image_has_with_conda():
    program = "import os, sys, torch; print(torch.__version__, os.environ['WITH_CONDA'], sys.prefix, sep='|')"
    process = loaded('singularity exec $SIF conda-python-simple -c "%s"' % program)
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[-1] == (
        "2.2.0|source /opt/miniconda3/bin/activate pytorch|/user-software/venv/pytorch")
    process = loaded("singularity exec $SIF bash -c 'command -v get-master conda-python-distributed pip'")
    assert process.stdout.splitlines() == [
        "/runscripts/get-master", "/runscripts/conda-python-distributed", "/user-software/venv/pytorch/bin/pip"]


def test_s33_with_the_copy_gone_the_module_falls_back_to_the_central_image():
    assert COPY.stat().st_mode & 0o222 == 0 and os.access(COPY.parent, os.W_OK)
    with without(COPY):
        process = loaded('echo $SIF $SIFPYTORCH; singularity exec $SIF conda-python-simple -c "print(40 + 2)"')
    assert process.stdout.split() == [str(CENTRAL), str(CENTRAL), "42"]


def test_s33_with_both_gone_loading_fails_with_a_sentence_and_sets_nothing():
    with without(COPY, CENTRAL):
        process = loaded("env")
        assert process.returncode != 0
        said = " ".join(process.stderr.split())
        assert "There is no image for this module: neither %s nor %s is there." % (COPY, CENTRAL) in said
        assert "SIF=" not in loaded("true; env").stdout
        assert run("bash", "-c", ". /usr/share/lmod/lmod/init/bash && module use %s && module -t avail" % MODULES
                   ).returncode == 0
    assert loaded("true").returncode == 0


def test_s33_an_image_with_another_checksum_leaves_no_copy_and_the_old_module_loads():
    assert not list((ROOT / "images" / ("0" * 12)).iterdir())
    assert not (ROOT / "third" / "base").exists()
    assert loaded("echo $SIF").stdout.split() == [str(COPY)]


@pytest.mark.parametrize("name", ["python", "python3"])
def test_commands_of_the_image_can_be_called_from_outside_with_and_without_the_module(name):
    program = "import sys, torch; print(torch.__version__, sys.prefix)"
    for process in (run(BASE / "bin" / name, "-c", program), loaded('%s -c "%s"' % (name, program))):
        assert process.stdout.splitlines()[-1:] == ["2.2.0 /user-software/venv/pytorch"], process.stderr


def test_a_packed_environment_has_what_was_locked_and_the_directory_is_gone():
    second = ROOT / "second" / "base"
    assert (second / "user-software.squashfs").is_file() and not (second / "user-software").exists()
    process = run(second / "bin" / "python3", "-c", "import probe, torch; print(probe.ANSWER, probe.__file__)")
    assert process.stdout.split()[0] == "42", process.stderr
    assert process.stdout.split()[1].startswith("/user-software/venv/pytorch/lib/")
    assert json.loads((ROOT / "second" / ".torchstack" / "image.json").read_text())["copy"] == ""


def test_everything_is_frozen_but_the_directory_of_the_copy():
    writable = [path for path in BASE.rglob("*") if not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) & 0o222]
    assert writable == []
    assert sorted(path.name for path in COPY.parent.iterdir()) == ["small.sif", "small.sif.json"]
