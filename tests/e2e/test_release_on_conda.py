# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The local site's release on a conda base, from a channel of real packages that the test builds; rolled out once.

Without Horovod, which takes minutes to compile; TORCHSTACK_WHOLE_RELEASE=1 has all of it. mpi4py and xxhash are
compiled for that base in any case.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys

import pytest
from rollouts import Site, find_module_system
from support import conda_channel
from support.installed_release import KERNEL
from support.sites import whole_text
from uses import InUse, InUseWithHorovod

RELEASE = "2026-11-21"
FILES = {
    KERNEL: json.dumps({
        "argv": ["{python}", "-m", "site_kernel", "-f", "{connection_file}"], "language": "python",
        "display_name": "PyTorch {pytorch.version} of {release}"}),
    "site-packages/site_kernel.py": (
        "import json, sys, torch\n"
        "with open(sys.argv[2]) as stream:\n"
        "    print(torch.__version__.partition('+')[0], sys.prefix, json.load(stream)['key'])\n"),
    "site-packages/sitecustomize.py": (
        "import atexit, os, sys\n\n\ndef count():\n"
        "    if 'torch' in sys.modules and 'SITE_USAGE' in os.environ:\n"
        "        with open(os.environ['SITE_USAGE'], 'a') as stream:\n"
        "            stream.write('torch\\n')\n\n\natexit.register(count)\n"),
    "bin/site-release": "#!/bin/sh\necho {release} {base} {unknown}\n",
}
"""The site's own files in this release, by their places."""
WORDS = {KERNEL: ["python", "pytorch.version", "release"], "bin/site-release": ["release", "base"]}
"""What is filled in."""
WHOLE = os.environ.get("TORCHSTACK_WHOLE_RELEASE") == "1"


@pytest.fixture(scope="session")
def channel(site):
    """The channel, at a place that stays the same, as the digests of cached wheels depend on it."""
    python = conda_channel.Interpreter(os.environ.get("TORCHSTACK_PYTHON") or sys.executable)
    lacking = conda_channel.needed_tools(python)
    if lacking:
        pytest.skip("no channel can be built: missing " + ", ".join(lacking))
    place = pathlib.Path(str(site.root) + "-channel")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    yield conda_channel.build(place / "channel", place, python), python
    shutil.rmtree(place)


@pytest.fixture(scope="session")
def released(channel, site, tmp_path_factory, collections_path):
    """The site with this release rolled out beside the other one."""
    built, python = channel
    scratch = tmp_path_factory.mktemp("conda-site")
    variables = {"TORCHSTACK_CONDA_CHANNELS": built.url, "PATH": site.environment["PATH"]}
    conda = Site(site.root, scratch, collections_path, RELEASE, **variables)
    conda.inventory = conda.other_inventory(scratch, lambda text: re.sub(
        r"(python:? \"?)3\.11", lambda match: match.group(1) + python.short, text))
    if not WHOLE:
        extended = scratch / "local" / "releases" / "2026-11-20.yml"
        extended.write_text(without_horovod(whole_text(extended)))
    add_files(scratch / "local" / "releases" / (RELEASE + ".yml"))
    records = site.root / ".torchstack" / RELEASE
    if (records / "retired.json").exists():
        # By an earlier run of these tests; its name would be refused.
        shutil.rmtree(records)
    if not conda.is_in_use():
        conda.roll_out()
    return conda


def add_files(release_file):
    """Give a release files of the site's own, in a directory beside its release file."""
    place = release_file.parent / "files"
    place.mkdir()
    entries = []
    for number, (path, text) in enumerate(FILES.items()):
        (place / str(number)).write_text(text)
        entries.append({"source": "files/%d" % number, "path": path, "fill": WORDS.get(path, []),
                        "executable": path.startswith("bin/")})
    with open(release_file, "a", encoding="utf-8") as stream:
        stream.write("files: %s\n" % json.dumps(entries))


def without_horovod(text):
    """A release file without Horovod and the rules that speak of it; the rollout would name what is left."""
    text, dropped = re.subn(r"(?m)^horovod:\n(?: .*\n)+|^ +- \{.*\bhorovod\b.*\n|, horovod\.torch(?=\])", "", text)
    assert dropped
    return text


@pytest.fixture()
def module_system(released):
    """One module system: the modulefile differs from the other release's in its data only."""
    found = find_module_system("lmod", released) or find_module_system("environment-modules", released)
    if found is None:
        pytest.skip("no module system on this machine")
    return found


class TestInUse(InUseWithHorovod if WHOLE else InUse):
    """The release on a conda base."""


def records(released):
    """What conda knows of the prefix: name to record."""
    found = [json.loads(path.read_text()) for path in (released.prefix / "base" / "conda-meta").glob("*.json")]
    return {record["name"]: record for record in found}


def test_the_base_comes_from_the_channel_and_nothing_else(released, channel):
    found = records(released)
    assert set(found) == {"python", "pip"}
    assert {record["url"].rpartition("/")[0].rpartition("/")[0] for record in found.values()} == {channel[0].url}


def test_what_was_solved_is_kept_with_the_release_and_conda_knows_what_was_asked_for(released):
    locks = list((released.prefix / ".torchstack" / "conda").glob("[0-9a-f]*.lock"))
    assert len(locks) == 1
    lines = locks[0].read_text().splitlines()
    for record in records(released).values():
        assert "%s#sha256:%s" % (record["url"], record["sha256"]) in lines
    history = (released.prefix / "base" / "conda-meta" / "history").read_text()
    assert "python 3." in history and "pip" in history


def test_nothing_on_top_has_changed_what_conda_installed(released, run_module):
    lock = next((released.prefix / ".torchstack" / "conda").glob("[0-9a-f]*.lock"))
    result = run_module("conda_environment", {
        "prefix": str(released.prefix / "base"), "lock": str(lock), "verify": "contents",
        "cache": str(released.root / ".torchstack" / "conda-pkgs"),
        "state_dir": str(released.prefix / ".torchstack" / "conda"),
    }, check=True)
    assert not result.failed, result
    assert not result.changed, result


def test_python_is_the_releases_own(module_system, released):
    said = module_system.run("python3 -c 'import sys; print(sys.prefix, sys.base_prefix)'; echo $CONDA_PREFIX").stdout
    assert said.split() == [str(released.prefix / "base")] * 3


def test_s27_another_python_of_the_machine_sees_nothing_of_the_release(module_system):
    program = "import importlib.util as u; print(u.find_spec('torch'), u.find_spec('einops'))"
    assert module_system.run('%s -c "%s"' % (machine_python(), program)).stdout.split() == ["None", "None"]


def machine_python():
    """An interpreter of the machine that is of no release."""
    return os.environ.get("TORCHSTACK_PYTHON") or getattr(sys, "_base_executable", sys.executable)


def test_the_environment_of_py_rattler_is_no_part_of_the_release(released):
    tools = released.root / ".torchstack" / "tools"
    assert list(tools.glob("*/lib/python3*/site-packages/rattler"))
    assert list(released.prefix.rglob("rattler")) == []


@pytest.fixture()
def site_files(released):
    """The site's own files of the release by their places, as they lie in it."""
    packages = next((released.prefix / "base").glob("lib/python3*/site-packages"))
    return {path: packages.parent / path if path.startswith("site-packages/") else released.prefix / "base" / path
            for path in FILES}


def test_files_of_the_sites_are_in_the_release_for_reading_and_in_its_manifest_and_bill(released, site_files):
    records = released.prefix / ".torchstack"
    manifest = {entry["path"]: entry for entry in json.loads((records / "manifest.json").read_text())["entries"]}
    bill = {one.get("packageFileName"): one for one in json.loads((records / "sbom.spdx.json").read_text())["packages"]}
    for path, place in site_files.items():
        assert stat.S_IMODE(place.stat().st_mode) == (0o555 if path.startswith("bin/") else 0o444), path
        name, digest = str(place.relative_to(released.prefix)), hashlib.sha256(place.read_bytes()).hexdigest()
        assert manifest[name]["sha256"] == digest
        assert bill[name]["checksums"] == [{"algorithm": "SHA256", "checksumValue": digest}]


def test_a_program_of_the_sites_is_on_the_path_and_its_words_are_filled_in(module_system, released):
    said = module_system.run("site-release").stdout
    assert said.split() == [RELEASE, str(released.prefix / "base"), "{unknown}"]


def test_a_kernel_of_the_sites_starts_for_a_user_who_has_loaded_nothing_and_the_use_is_counted(site_files, tmp_path):
    kernel = json.loads(site_files[KERNEL].read_text())
    assert kernel["display_name"] == "PyTorch 2.13.0 of " + RELEASE
    connection, usage = tmp_path / "connection.json", tmp_path / "usage"
    connection.write_text(json.dumps({"key": "of-this-session"}))
    command = [word.replace("{connection_file}", str(connection)) for word in kernel["argv"]]
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "SITE_USAGE": str(usage)}
    said = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    base = site_files[KERNEL].parents[4]
    assert said.split() == ["2.13.0", str(base), "of-this-session"]
    assert usage.read_text() == "torch\n"
