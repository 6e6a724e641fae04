# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Locks that are not what somebody locked: one sentence with file, line and remedy, and nothing is installed."""

from __future__ import annotations

import functools
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading

import pytest
from support import role_plays, sites
from support.package_release import Release, locked, make_wheel

RELEASES = sites.TOP / "inventories" / "local" / "releases"


@pytest.fixture()
def release_file(tmp_path):
    """A copy of the local release, with its locks."""
    shutil.copytree(RELEASES / "2026-11-20", tmp_path / "2026-11-20")
    return shutil.copy(RELEASES / "2026-11-20.yml", tmp_path)


def cut(text):
    return text[:text.index("--hash") + 40]


@pytest.mark.parametrize(("file", "change", "what"), [
    ("packages/einops.txt", lambda text: text.split()[0] + "\n", "line 1): 'einops' has no hash; give it its --hash"),
    ("packages/einops.txt", lambda text: text.replace("==0.8.2", "==0.8.1"),
     "has version 0.8.2 and a lock for 0.8.1 (2026-11-20/packages/einops.txt, line 1); correct one of the two."),
    ("pytorch.txt", lambda text: text.replace("torch==2.13.0", "torch==2.12.0"),
     "is 2.13.0, and pytorch.lock has torch==2.12.0 (2026-11-20/pytorch.txt, line 1); correct one of the two."),
    ("base.txt", lambda text: text.replace("sha256:", "sha256:g", 1), "which is no sha256 of 64 hexadecimal digits."),
    ("tools.txt", cut, "(2026-11-20/tools.txt, line 1): the lock ends in the middle of "),
    ("tools.txt", lambda text: "", "2026-11-20/tools.txt is empty; have it back from version control, or from bin/"),
    ("tools.txt", lambda text: "--index-url https://mirror.example/simple\n" + text,
     "(2026-11-20/tools.txt, line 1): '--index-url https://mirror.example/simple' says where packages come from"),
    ("base.txt", lambda text: "-e git+https://a.example/x.git#egg=x\n" + text,
     "(2026-11-20/base.txt, line 1): '-e git+https://a.example/x.git#egg=x' installs a tree that may change;"),
    ("base.txt", lambda text: "x @ https://a.example/x.whl --hash=sha256:%s\n" % ("0" * 64) + text,
     "(2026-11-20/base.txt, line 1): 'x @ https://a.example/x.whl"),
    ("base.txt", lambda text: "-r ../../../../etc/other.txt\n" + text, "reads another file; write here what is in it"),
    ("pytorch-cuda.txt", lambda text: text + "sympy==1.0 --hash=sha256:%s\n" % ("0" * 64),
     "has sympy=="),
])
def test_a_lock_that_was_tampered_with_is_one_sentence_and_nothing_is_looked_at(
    release_file, file, change, what, ansible_environment,
):
    lock = pathlib.Path(release_file).parent / "2026-11-20" / file
    changed = change(lock.read_text())
    assert changed != lock.read_text()
    lock.write_text(changed)
    place = lock.parents[len(pathlib.PurePath(file).parts)]
    process = role_plays.play_tasks(
        "release", "definition", {"release_file": "{{ case.file }}"}, [{"file": str(release_file)}],
        ansible_environment, place, "-e", "torchstack_release=2026-11-20", "-e", "torchstack_site=local")
    said = " ".join(process.stdout.split())
    assert process.returncode == 2 and what in said, said
    # ansible-core 2.19 prints the message and, above it, its first line again.
    message = re.search(r'"msg": "(.*?)"(?:,|\s*})', process.stdout)
    if message:
        assert len(re.findall(r"\.(?: |$)", message.group(1))) == 1, message.group(1)


@pytest.mark.parametrize(("file", "change", "what"), [
    ("data", lambda text: re.sub(r"(?m)^(pandas==\S+).*(\n .*)*", r"\1", text), "'pandas' has no hash; give it"),
    ("data", cut, "data.txt, line 1): the lock ends in the middle of "),
    ("data", lambda text: re.sub(r"(?m)^pandas==.*(\n .*)*\n", "", text),
     "asks for pandas, which its lock does not have; make the lock with bin/lock."),
    ("science", lambda text: text + "numpy==1.0 --hash=sha256:%s\n" % ("0" * 64), "would install numpy, which "),
    ("learning", lambda text: text + "pandas==1.0 --hash=sha256:%s\n" % ("0" * 64),
     "would install pandas, which bundle 'data' installs; make the lock anew with bin/lock."),
    ("notebooks", lambda text: "--extra-index-url https://mirror.example/simple\n" + text, "says where packages"),
])
def test_a_lock_of_a_bundle_that_was_tampered_with_is_told_before_anything_is_looked_at(
    release_file, file, change, what, ansible_environment,
):
    name = "2026-11-20-bundles"
    place = pathlib.Path(release_file).parent
    shutil.copytree(RELEASES / name, place / name)
    bundled = shutil.copy(RELEASES / (name + ".yml"), place)
    lock = place / name / "bundles" / (file + ".txt")
    changed = change(lock.read_text())
    assert changed != lock.read_text()
    lock.write_text(changed)
    process = role_plays.play_tasks(
        "release", "definition", {"release_file": "{{ case.file }}"}, [{"file": str(bundled)}],
        ansible_environment, place, "-e", "torchstack_release=" + name, "-e", "torchstack_site=local")
    said = " ".join(process.stdout.split())
    assert process.returncode == 2 and what in said, said


@pytest.fixture()
def index(tmp_path):
    """A package index on this machine; the directory that it serves, and its address."""
    place = tmp_path / "served"
    place.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_words):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(place)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield place, "http://127.0.0.1:%d/" % server.server_address[1]
    server.shutdown()
    server.server_close()


def play_package(release, entry, lock, environment):
    """Roll one package out, its lock being a file."""
    variables = release.prefix.parent / "variables.json"
    variables.write_text(json.dumps({
        "python_packages_needs": [], "release_lock_files": {"packages[0].lock": str(lock)},
        "release_context": {
            "prefix": str(release.prefix), "records": str(release.records), "tools": str(release.tools),
            "frozen": False, "python": {"executable": sys.executable}, "base": release.described(),
            "mpi": {"bin": "/usr/bin"}, "compilers": {"CC": "cc", "CXX": "c++"}, "definition": {"packages": [entry]},
        }}))
    playbook = release.prefix.parent / "playbook.yml"
    playbook.write_text("- hosts: localhost\n  gather_facts: false\n  roles: [hpcml.torchstack.python_packages]\n")
    process = subprocess.run(
        [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), "-i", "localhost,", "-c", "local",
         "-e", "@%s" % variables, str(playbook)],
        env={**environment, "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False)
    return process.returncode, " ".join(process.stdout.split())


def test_an_index_that_serves_another_file_than_the_locked_one_is_told_with_the_lock(
    tmp_path, tools, index, ansible_environment,
):
    place, address = index
    release = Release(tmp_path, tools, ansible_environment)
    wheel = make_wheel(place / "tiny", "tiny", "1.0")
    lock = tmp_path / "tiny.txt"
    lock.write_text("# by hand\n%s\n" % locked(wheel))
    entry = {"name": "tiny", "version": "1.0", "licence": "MIT", "lock": lock.read_text(), "index": address,
             "imports": ["tiny"]}
    before = release.snapshot()
    genuine = wheel.read_bytes()
    make_wheel(place / "tiny", "tiny", "1.0", {"tiny/__init__.py": "raise SystemExit('somebody else')\n"})
    code, said = play_package(release, entry, lock, ansible_environment)
    assert code != 0
    assert ("The file that the index has as tiny 1.0 is not the one that %s locks in line 2: nothing of it was "
            "installed; find out who changed which of the two, and take the right file from another" % lock) in said
    assert release.snapshot() == before and "tiny-1.0" not in release.installed()
    wheel.write_bytes(genuine)
    code, said = play_package(release, entry, lock, ansible_environment)
    assert code == 0, said
    assert "tiny-1.0" in release.installed()
