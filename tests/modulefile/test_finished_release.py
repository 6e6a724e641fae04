# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the module modulefile does to a finished release after an upgrade of the collection."""

from __future__ import annotations


def test_a_finished_release_keeps_the_modulefiles_that_it_was_accepted_with(run_module, tmp_path):
    """As after an upgrade of the collection, which writes them in another way."""
    place = {"root": str(tmp_path), "release": "1"}
    described = {"name": "torchstack", "version": "1", "prefix": str(tmp_path / "1"), "setenv": {"WHICH": "1"}}
    assert not run_module("modulefile", {**place, "description": described}).failed
    path = str(tmp_path / ".torchstack" / "1" / "modulefiles" / "tcl" / "torchstack" / "1")
    with open(path, "a", encoding="utf-8") as stream:
        stream.write("# written by an older collection\n")
    arguments = {**place, "description": described, "finished": True}
    assert run_module("modulefile", arguments, check=True)["written"] == [path], "it is not the file that was verified"
    assert not run_module("modulefile_verify", {**place, "shells": ["bash"]}).failed
    assert not run_module("modulefile", arguments).changed
    assert run_module("modulefile", {**arguments, "finished": False}, check=True)["written"] == [path]
    changed = {**arguments, "description": {**described, "load_message": "hello"}}
    assert len(run_module("modulefile", changed, check=True)["written"]) == 3


def test_users_of_a_finished_release_read_what_they_read_before(run_module, tmp_path):
    """As after an upgrade of the collection, which says it otherwise, and to Lmod more."""
    place = {"root": str(tmp_path), "release": "1", "finished": True}
    described = {"name": "torchstack", "version": "1", "prefix": str(tmp_path / "1"), "setenv": {"WHICH": "1"}}
    old = {**described, "help": "As it was.", "whatis": {"Description": "As it was."}}
    new = {**described, "help": "Said anew.", "whatis": {"Description": "Said anew."}, "extensions": ["numpy/2.1.0"]}
    assert run_module("modulefile", {**place, "description": old}).changed
    assert not run_module("modulefile", {**place, "description": new}).changed
    changed = run_module("modulefile", {**place, "description": new, "finished": False}).changed
    assert changed and not run_module("modulefile", {**place, "description": new}).changed
    text = (tmp_path / ".torchstack" / "1" / "modulefiles" / "lmod" / "torchstack" / "1.lua").read_text()
    assert "numpy/2.1.0" in text and "As it was" not in text


def test_a_finished_release_whose_module_knows_no_programs_of_the_user_base_stays_without_them(run_module, tmp_path):
    place = {"root": str(tmp_path), "release": "1"}
    own, programs = str(tmp_path / "1" / "base" / "bin"), "${HOME}/.local/1/bin"
    former = {
        "name": "torchstack", "version": "1", "prefix": str(tmp_path / "1"),
        "prepend": [{"name": "PATH", "values": [own]}], "setenv": {"PYTHONUSERBASE": "${HOME}/.local/1"}}
    now = {
        **former, "external": [programs], "prepend": [*former["prepend"], {"name": "PATH", "values": [programs]}]}
    assert run_module("modulefile", {**place, "description": former}).changed
    assert not run_module("modulefile", {**place, "description": now, "finished": True}).changed
    assert len(run_module("modulefile", {**place, "description": now}, check=True)["written"]) == 3
    assert run_module("modulefile", {**place, "description": now}).changed
    assert not run_module("modulefile", {**place, "description": now, "finished": True}).changed


def test_a_finished_release_whose_module_tells_every_pip_goes_on_telling_it(run_module, tmp_path):
    place = {"root": str(tmp_path), "release": "1"}
    now = {
        "name": "torchstack", "version": "1", "prefix": str(tmp_path / "1"),
        "setenv": {"PYTHONUSERBASE": "${HOME}/.local/1"}}
    former = {**now, "setenv": {**now["setenv"], "PIP_BREAK_SYSTEM_PACKAGES": "1"}}
    assert run_module("modulefile", {**place, "description": former}).changed
    assert not run_module("modulefile", {**place, "description": now, "finished": True}).changed
    assert run_module("modulefile", {**place, "description": now}).changed
    assert not run_module("modulefile", {**place, "description": now, "finished": True}).changed
