# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Users list and load modules while releases are published, made the default and taken back."""

from __future__ import annotations

import json
import os
import subprocess
import threading

from ansible_collections.hpcml.torchstack.plugins.module_utils import modulefile_publication as publication
from ansible_collections.hpcml.torchstack.plugins.module_utils.environment_modules import EM, QUIET
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefile_description import normalised
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefile_layout import (
    digest,
    make_directory,
    relative_path,
    render,
    stage_directory,
)

ROUNDS = 50


def stage(root, version):
    """A release as the role modulefile and the acceptance leave it."""
    description = normalised({
        "name": "torchstack", "version": version, "prefix": "/soft/" + version, "setenv": {"WHICH": version},
        "prepend": [{"name": "PATH", "values": ["/soft/%s/bin" % version]}],
    })
    top = stage_directory(str(root), version)
    record = {"name": "torchstack", "version": version, "passed": True, "files": {}, "checked": []}
    for syntax, text in render(description, version).items():
        path = os.path.join(top, relative_path(syntax, "torchstack", version))
        make_directory(os.path.dirname(path))
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)
        record["files"][syntax] = {"sha256": digest(text.encode("utf-8"))}
    for name, content in (("modulefile.json", record), ("acceptance.json", {"passed": True})):
        with open(os.path.join(top, name), "w", encoding="utf-8") as stream:
            json.dump(content, stream)


def change(root, version, state, default=False):
    """What the module modulefile_publish does, without the start of Ansible."""
    facts = publication.read_facts(str(root), version)
    publication.carry_out(facts, publication.make_plan(facts, state, True, default, ""), "")


def test_nobody_ever_sees_half_of_a_publication(system, tmp_path):
    syntax = "tcl" if system.kind == EM else "lmod"
    for version in ("1", "2", "3"):
        stage(tmp_path, version)
    change(tmp_path, "1", "published", default=True)
    environment = {
        "HOME": str(tmp_path), "PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8",
        "MODULEPATH": str(tmp_path / "modulefiles" / syntax), **QUIET[system.kind],
    }
    seen, wrong, stop = set(), [], threading.Event()

    def ask(*words):
        process = subprocess.run(
            [*system.words, "python", *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False,
        )
        return process.returncode, process.stdout

    def use():
        while not stop.is_set():
            code, text = ask("-t", "avail")
            if code or "rror" in text or "torchstack/1" not in text or "/." in text.replace(str(tmp_path), ""):
                wrong.append(text)
            code, text = ask("load", "torchstack")
            which = [version for version in ("1", "2") if "['WHICH'] = '%s'" % version in text.replace('"', "'")]
            if code or len(which) != 1 or "/soft/%s/bin" % which[0] not in text:
                wrong.append(text)
            else:
                seen.add(which[0])

    user = threading.Thread(target=use)
    user.start()
    try:
        for _round in range(ROUNDS):
            change(tmp_path, "2", "published", default=True)
            change(tmp_path, "3", "published")
            change(tmp_path, "3", "withdrawn")
            change(tmp_path, "2", "rolled_back")
    finally:
        stop.set()
        user.join()
    assert wrong == []
    assert seen <= {"1", "2"} and seen
    with open(os.path.join(stage_directory(str(tmp_path), "2"), "publish.jsonl"), encoding="utf-8") as stream:
        entries = [json.loads(line) for line in stream]
    assert len([entry for entry in entries if entry["action"] == "default"]) == 4 * ROUNDS


def test_the_default_is_what_load_without_a_version_gives(system, tmp_path):
    syntax = "tcl" if system.kind == EM else "lmod"
    for version in ("1", "2"):
        stage(tmp_path, version)
        change(tmp_path, version, "published")

    def loaded():
        environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", **QUIET[system.kind],
                       "MODULEPATH": str(tmp_path / "modulefiles" / syntax)}
        text = subprocess.run([*system.words, "python", "load", "torchstack"], env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False).stdout
        return [version for version in ("1", "2") if "/soft/%s/bin" % version in text]

    change(tmp_path, "1", "published", default=True)
    assert loaded() == ["1"]
    change(tmp_path, "2", "published", default=True)
    assert loaded() == ["2"]
    change(tmp_path, "2", "rolled_back")
    assert loaded() == ["1"]
