# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""bin/matrix with a real Ansible: four releases, of which one fails; what they share is built once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from support import sites

PROGRAM = sites.TOP / "bin" / "matrix"
MATRIX = """\
extends: "2026-11-20"
release: "m-{python}-{colour}"
axes:
  python:
    "3.12": {base: {minimum: "3.12"}}
    "3.13": {base: {minimum: "3.13"}}
  colour:
    red: {}
    blue: {}
"""
PLAYBOOK = """\
- hosts: local
  gather_facts: false
  tasks:
    - hpcml.torchstack.build_step:
        name: shared
        state_dir: "{{ torchstack_root }}/{{ torchstack_release }}/.torchstack/steps"
        chdir: "{{ torchstack_root }}/{{ torchstack_release }}"
        script: "echo once >> %(count)s; echo made > made"
        produces: [made]
        cache: "{{ torchstack_root }}/.torchstack/builds"
    - name: Look for it
      ansible.builtin.fail: {msg: There is no wheel for this one.}
      when: torchstack_release == 'm-3.12-blue'
    - ansible.builtin.file:
        path: "{{ torchstack_root }}/{{ torchstack_release }}/done"
        state: touch
"""


class Place:
    """A copy of the local site with a matrix, and a playbook that takes a moment."""

    def __init__(self, directory, environment):
        self.site, self.root, self.count = directory / "local", directory / "root", directory / "count"
        shutil.copytree(sites.TOP / "inventories" / "local", self.site)
        self.matrix = self.site / "matrices" / "cpu.yml"
        self.matrix.parent.mkdir()
        self.matrix.write_text(MATRIX)
        self.playbook = directory / "play.yml"
        self.playbook.write_text(PLAYBOOK % {"count": self.count})
        self.logs = directory / "logs"
        for name in ("red", "blue"):
            for python in ("3.12", "3.13"):
                (self.root / ("m-%s-%s" % (python, name))).mkdir(parents=True)
        self.environment = {
            **environment, "TORCHSTACK_ROOT": str(self.root),
            "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])}

    def run(self, do, *words):
        options = [] if do == "write" else ["--logs", self.logs, "--playbook", self.playbook]
        done = subprocess.run(
            [PROGRAM, do, self.matrix, *options, *words], env=self.environment, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout


@pytest.fixture()
def place(tmp_path, ansible_environment):
    return Place(tmp_path, ansible_environment)


def test_what_releases_share_is_built_once_and_one_that_fails_keeps_no_other_from_its_end(place):
    assert place.run("write")[0] == 0
    code, said = place.run("rollout")
    assert code == 1, said
    lines = [line.split() for line in said.splitlines() if line.startswith("m-") and "  " in line]
    table = {words[0]: words[1:] for words in lines}
    assert {name: words[2] for name, words in table.items()} == {
        "m-3.12-red": "done", "m-3.12-blue": "failed", "m-3.13-red": "done", "m-3.13-blue": "done"}
    assert place.count.read_text() == "once\n"
    assert [table[name][-1] for name in ("m-3.12-red", "m-3.13-red", "m-3.13-blue")] == ["0", "1", "1"]
    assert table["m-3.12-blue"][4:] == ["0", "1", "Look", "for", "it"]
    log = place.logs / "rollout-m-3.12-blue.log"
    assert said.splitlines()[-1] == "m-3.12-blue: There is no wheel for this one. (%s)" % log
    done = sorted(path.parent.name for path in place.root.glob("*/done"))
    assert done == ["m-3.12-red", "m-3.13-blue", "m-3.13-red"]
    place.playbook.write_text((PLAYBOOK % {"count": place.count}).replace("m-3.12-blue", "none"))
    code, said = place.run("rollout")
    assert code == 0 and " failed " not in said and place.count.read_text() == "once\n", said


def test_a_plan_changes_nothing(place):
    place.run("write")
    code, _said = place.run("plan")
    assert code == 1 and not place.count.exists() and not list(place.root.glob("*/done"))


def test_release_files_are_written_once_and_are_short(place):
    rule = 'leave_out:\n  - {python: "3.13", colour: red, reason: it was}\n'
    place.matrix.write_text(place.matrix.read_text() + rule)
    code, said = place.run("write")
    assert code == 0 and said.count("Written: ") == 3 and "Left out: m-3.13-red, as it was\n" in said
    path = place.site / "releases" / "m-3.12-red.yml"
    assert path.read_text().count("\n") == 6
    assert place.run("write") == (
        0, "Left out: m-3.13-red, as it was\nAll release files of cpu.yml are as they have to be.\n")
    assert sites.release_text.read(path).content["base"] == {"kind": "python_overlay", "python": "", "minimum": "3.12"}


@pytest.mark.parametrize(("change", "do", "said"), [
    (lambda place: None, "rollout", "m-3.12-red.yml; bin/matrix write "),
    (lambda place: place.run("write") and (place.site / "releases" / "m-3.12-blue.yml").write_text("mpi4py: null\n"),
     "rollout", "m-3.12-blue.yml is not what the matrix says; bin/matrix write "),
    (lambda place: (place.site / "releases" / "m-3.13-red.yml").write_text("release: mine\n"), "write",
     "m-3.13-red.yml is there and not of this matrix; give one of the two another name."),
    (lambda place: place.matrix.write_text(MATRIX.replace("axes:", "axis:")), "plan",
     "cpu.yml: 'axis' is no key of a matrix; did you mean 'axes'?\n"),
    (lambda place: place.matrix.write_text("axes: [\n"), "plan", "cpu.yml has a mistake in line 2: "),
    (lambda place: place.matrix.unlink(), "plan", "cpu.yml cannot be read (No such file or directory); beside it"),
    (lambda place: place.matrix.write_text("releases: ['2026-11-20', '2026-11-02']\n"), "plan",
     "2026-11-02.yml; correct the name."),
    (lambda place: place.matrix.write_text(MATRIX.replace("{minimum:", "{minimun:")) and place.run("write"), "rollout",
     "minimun"),
    (lambda place: place.run("write"), "mirror", "say where the mirror goes: bin/matrix mirror "),
])
def test_what_cannot_be_begun_is_told_before_anything_is(place, change, do, said):
    change(place)
    code, printed = place.run(do)
    assert code == 2 and printed.startswith("matrix: ") and said in printed and printed.count("\n") == 1, printed
    assert not place.logs.exists() and not place.count.exists()


def test_a_mirror_gets_what_each_release_fetches_into_one_directory(place):
    place.run("write")
    place.playbook.write_text(
        "- hosts: \"{{ torchstack_host }}\"\n  gather_facts: false\n  tasks:\n"
        "    - ansible.builtin.copy: {dest: \"%s/{{ torchstack_release }}\", content: \"{{ release_file }}\"}\n"
        % "{{ lookup('ansible.builtin.env', 'TORCHSTACK_MIRROR') }}")
    to = place.root / "mirror"
    to.mkdir()
    code, said = place.run("mirror", "--to", to)
    assert code == 0, said
    assert {path.name: path.read_text() for path in to.iterdir()} == {
        name: str(place.site / "releases" / (name + ".yml"))
        for name in ("m-3.12-red", "m-3.12-blue", "m-3.13-red", "m-3.13-blue")}
