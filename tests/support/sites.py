# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The sites of a checkout, as Ansible sees their data."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import yaml
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import schema
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import base as bases
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import modulefile as release_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import release_file as release_files
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import runtime_settings
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file as release_text

TOP = pathlib.Path(__file__).parents[2]
SITES = sorted(path.parent.name for path in TOP.glob("inventories/*/hosts.yml"))
RELEASES = sorted(TOP.glob("inventories/*/releases/*.yml"))
CLUSTERS = [
    site for site in SITES
    if "torchstack_jobs" in yaml.safe_load((TOP / "inventories" / site / "group_vars" / (site + ".yml")).read_text())]
"""The sites that have a batch system."""

SPECIFIED = yaml.safe_load((TOP / "roles/release/meta/argument_specs.yml").read_text())["argument_specs"]
RELEASE_KEYS = SPECIFIED["release_file"]["options"]
CONTAINER_KEYS = SPECIFIED["site_container"]["options"]
PYTHON = {"executable": "/usr/bin/python3", "minor": "3.12", "tag": "cp312", "platform": "linux_x86_64"}
CRAY_MPICH = {
    "provider": "prefix", "prefix": "/opt/cray/pe/mpich/8.1.27/ofi/gnu/9.1", "bin": "/opt/cray/pe/craype/2.7.23/bin",
}
"""What the preflight finds on a Cray, as far as a modulefile depends on it: the wrappers are not the MPI's own."""

IMAGE_MPI = {"provider": "image", "prefix": "", "bin": ""}
CONTAINERS = ("torchstack_images", "torchstack_container")
"""What a site says of containers, where it has any."""


def hosts_file(site, top=TOP):
    return top / "inventories" / site / "hosts.yml"


def ansible_command(program, words, environment):
    """Run one of Ansible's commands of the interpreter that runs the tests.

    Args:
        program: as ansible-inventory.
        words: of its command line.
        environment: variables besides those of the process.

    Returns:
        The finished process; stderr is apart, as warnings are no part of an answer.
    """
    command = [os.path.join(os.path.dirname(sys.executable), program), *words]
    return subprocess.run(
        command, env={**os.environ, "ANSIBLE_NOCOLOR": "1", **environment}, text=True, capture_output=True, check=False)


def raw_variables(sites, environment):
    """The variables of every host, as they are written: by host, for the sites' inventories taken together."""
    sources = [word for site in sites for word in ("-i", str(hosts_file(site)))]
    answer = ansible_command("ansible-inventory", [*sources, "--list"], environment)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)["_meta"]["hostvars"]


def variables(site, names, environment, top=TOP):
    """Variables of a site with everything in them filled in.

    Args:
        site: the site, whose group has its name and one host.
        names: which ones; None is the value of those that the site does not have.
        environment: variables of the caller.
        top: the checkout.
    """
    wanted = "{{ {%s} | to_json }}" % ", ".join("'%s': %s | default(none)" % (name, name) for name in names)
    answer = ansible_command(
        "ansible", [site, "-i", str(hosts_file(site, top)), "-m", "ansible.builtin.debug", "-a", "msg=" + wanted],
        {"ANSIBLE_CALLBACK_RESULT_FORMAT": "json", **environment},
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    message = json.loads(answer.stdout.partition("=>")[2])["msg"]
    return json.loads(message) if isinstance(message, str) else message


def load(path):
    return yaml.safe_load(pathlib.Path(path).read_text())


def load_release(path):
    """The data of a release file, with its locks as texts."""
    return release_text.read(pathlib.Path(path)).content


def whole_text(path):
    """The text of a release file with that of its parts in it, as one file would have it."""
    path = pathlib.Path(path)
    text = path.read_text()
    parts = [(path.parent / name).read_text() for name in yaml.safe_load(text).get("parts", [])]
    return "".join([
        re.sub(r"(?m)^parts:.*\n(?:  - .*\n)*", "", text),
        *(re.sub(r"(?m)^(?:---|# yaml-language-server:.*)\n", "", part) for part in parts)])


def write_release(text, path, original):
    """Write the text of a release file elsewhere, with the locks of the one that it was made from beside it."""
    path.write_text(text)
    shutil.copytree(original.with_suffix(""), path.parent / original.stem, dirs_exist_ok=True)


def modulefile_description(release_file, data, root):
    """What the role release hands to the role modulefile for a release of a site.

    Args:
        release_file: path of the release file.
        data: run-time settings of the site, and :data:`CONTAINERS`.
        root: the directory of the releases.
    """
    definition = release_files.resolve(load_release(release_file), RELEASE_KEYS)
    mpi, site = CRAY_MPICH, {}
    if definition["base"]["kind"] == "container":
        # The sites publish no checksums, which the central place's own list has then.
        definition["base"]["image"].setdefault("sha256", "0" * 64)
        mpi = IMAGE_MPI
        site = schema.resolved({name: data[name] for name in CONTAINERS}, CONTAINER_KEYS)
    base = bases.describe(definition, str(root), definition["release"], PYTHON, site=site)
    runtime = runtime_settings.merge(data["torchstack_runtime_settings"], definition.get("runtime") or {})
    return release_module.describe(base, mpi, runtime, definition.get("module") or {})
