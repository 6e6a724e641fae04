# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Shared fixtures: the checkout as a collection, and a module run as Ansible runs it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
# Where tests/run has the collection, too.
COLLECTIONS = CHECKOUT / ".cache" / "tests" / "collections"


def _find_collection():
    """Let tests, and programs that they start, import the collection where nobody has said where it is.

    That is so where `pytest PATH` is typed in a checkout; tests/run and ansible-test say it.
    """
    with contextlib.suppress(ModuleNotFoundError):
        if "ansible_collections" in CHECKOUT.parts or importlib.util.find_spec("ansible_collections.hpcml.torchstack"):
            return
    link = COLLECTIONS / "ansible_collections" / "hpcml" / "torchstack"
    link.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):  # of another worker
        link.symlink_to(CHECKOUT)
    sys.path.insert(0, str(COLLECTIONS))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(COLLECTIONS), *filter(None, [os.environ.get("PYTHONPATH")])])


_find_collection()


def pytest_addoption(parser):
    parser.addoption("--through-ansible", action="store_true", help="only tests that start an ansible program")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--through-ansible"):
        items[:] = [item for item in items if "ansible_environment" in item.fixturenames]


@pytest.fixture(scope="session")
def collections_path(tmp_path_factory):
    """A collections path in which this checkout is hpcml.torchstack."""
    top = tmp_path_factory.mktemp("collections")
    namespace = top / "ansible_collections" / "hpcml"
    namespace.mkdir(parents=True)
    (namespace / "torchstack").symlink_to(CHECKOUT)
    return top


@pytest.fixture(scope="session")
def ansible_environment(collections_path, tmp_path_factory):
    """Environment variables for an ansible process that sees only this checkout and a scratch home."""
    home = tmp_path_factory.mktemp("home")
    environment = dict(os.environ)
    environment.update(
        ANSIBLE_COLLECTIONS_PATH=str(collections_path),
        ANSIBLE_CONFIG=str(home / "ansible.cfg"),
        ANSIBLE_HOME=str(home),
        ANSIBLE_LOCAL_TEMP=str(home / "tmp"),
        ANSIBLE_REMOTE_TEMP=str(home / "tmp"),
        ANSIBLE_NOCOLOR="1",
        ANSIBLE_LOCALHOST_WARNING="False",
        ANSIBLE_INVENTORY_UNPARSED_WARNING="False",
        ANSIBLE_PYTHON_INTERPRETER=sys.executable,
        LC_ALL="C.UTF-8",
    )
    (home / "ansible.cfg").write_text("[defaults]\ninternal_poll_interval = 0.01\n")
    return environment


class ModuleResult(dict):
    """What a module returned; ``failed`` is always there."""

    @property
    def failed(self):
        return bool(self.get("failed", False))

    @property
    def changed(self):
        return bool(self.get("changed", False))

    @property
    def shown_difference(self):
        """The lines that Ansible showed as added and removed."""
        lines = self.console.splitlines()
        return [line for line in lines if line.startswith(("+", "-")) and line[:3] not in ("+++", "---")]


@pytest.fixture(scope="session")
def warm_ansible(ansible_environment):
    """The program `ansible`, started once; see tests/support/ansible_server.py."""
    from support import ansible_server  # not beside the tests that ansible-test runs, which read this file too

    process = ansible_server.WarmAnsible(ansible_environment)
    yield process
    process.close()


@pytest.fixture()
def run_module(warm_ansible, tmp_path_factory):
    """Call a module of this collection through a real Ansible run and return its result.

    ``run_module("tree_permissions", {...}, check=True, diff=True, environment={...})``
    """

    def run(name, arguments, check=False, diff=False, environment=None):
        out = tmp_path_factory.mktemp("tree")
        words = ["localhost", "-c", "local", "-m", "hpcml.torchstack." + name, "-a", json.dumps(arguments)]
        words += ["-t", str(out)] + ["--check"] * check + ["--diff"] * diff
        process = warm_ansible.run(words, environment or {})
        record = out / "localhost"
        assert record.exists(), process.stdout
        result = ModuleResult(json.loads(record.read_text()))
        result["failed"] = process.returncode != 0
        result.console = process.stdout
        return result

    return run


@pytest.fixture(scope="session")
def ordinary_user():
    """Another account that this one can become."""
    name = os.environ.get("TORCHSTACK_ORDINARY_USER", "")
    if not shutil.which("sudo"):
        pytest.skip("not installed: sudo")
    asked = subprocess.run(["sudo", "-n", "-u", name or "nobody", "true"], stderr=subprocess.DEVNULL, check=False)
    if not name or asked.returncode:
        pytest.skip("no second account: TORCHSTACK_ORDINARY_USER is not set, or sudo refuses it")
    return name


@pytest.fixture(scope="session")
def fault_library(tmp_path_factory):
    """The library under which calls of unchanged programs fail, stop, die or take time; see tests/support/faults.py."""
    from support import faults  # not beside the tests that ansible-test runs, which read this file too

    if not faults.compiler():
        pytest.skip("no C compiler: nothing to build the library of faults with")
    return faults.build(tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="session")
def small_image():
    """Make a small image for Apptainer, see tests/support/apptainer_image.py; skips where there is no Apptainer."""
    from support import apptainer_image  # not beside the tests that ansible-test runs, which read this file too

    return apptainer_image.image
