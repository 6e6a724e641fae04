# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What an easyconfig says of a release, and what counts as a difference of two modules."""

from __future__ import annotations

import ast

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import base as bases
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import easyconfig

RELEASE = "2.2.0-rocm-5.6.1"
PREFIX = "/soft/2.2.0-rocm-5.6.1/easybuild/software/PyTorch/2.2.0-rocm-5.6.1"


def asked(**changed):
    """The parameters of an easyconfig for a module with these changes."""
    definition = {"base": {
        "kind": "container", "python": "3.10",
        "image": {"file": "x.sif", "sha256": "ab" * 32, "placement": "copy", "definition": ""},
    }}
    site = {
        "torchstack_images": "/images",
        "torchstack_container": {"command": "singularity", "binds": ["/soft"], "method": "easybuild", "easybuild": {}},
    }
    base = bases.describe(definition, "/soft", RELEASE, {}, site=site)
    assert base["prefix"] == PREFIX
    description = {
        "name": "PyTorch", "version": RELEASE, "prefix": "/soft/" + RELEASE, "external": base["external"],
        "setenv": base["setenv"], "first_file": base["first_file"],
        "prepend": [{"name": "PATH", "values": [PREFIX + "/bin"]}],
    }
    description.update(changed)
    return easyconfig.parameters(description, base, RELEASE)


def variables(parameters):
    return {ast.literal_eval(entry["name"]): ast.literal_eval(entry["value"]) for entry in parameters["variables"]}


def test_s39_the_installation_is_a_template_and_what_easybuild_sets_itself_is_left_to_it():
    found = variables(asked())
    assert found["CONTAINERROOT"] == "%(installdir)s"
    assert found["SINGULARITY_BIND"] == "/soft,%(installdir)s/runscripts:/runscripts"
    assert not [name for name in found if name.startswith(("EBROOT", "EBVERSION", "SIF"))]


def test_s39_version_and_suffix_are_the_release():
    found = asked()
    said = [ast.literal_eval(found[key]) for key in ("name", "version", "versionsuffix")]
    assert said == ["PyTorch", "2.2.0", "-rocm-5.6.1"]
    assert found["file"] == "PyTorch-" + RELEASE


@pytest.mark.parametrize("value", ['a "quote"', "a back\\slash", "$HOME", "${HOME}/x", "100%", "[brackets]", "it's"])
def test_s39_a_value_that_easybuild_would_change_goes_into_the_footers(value):
    found = asked(setenv={"CHOSEN": value, "PLAIN": "hsn0,hsn1"})
    assert variables(found) == {"PLAIN": "hsn0,hsn1"}
    assert 'replace("CHOSEN", ' in ast.literal_eval(found["lua"])
    assert "replace CHOSEN " in ast.literal_eval(found["tcl"])


def test_s39_a_text_that_looks_like_a_template_of_easybuild_is_none():
    found = asked(setenv={"CHOSEN": "a %(name)s", "PLACE": PREFIX + "-2/x"})
    assert 'replace("CHOSEN", "a %%(name)s")' in ast.literal_eval(found["lua"])
    assert variables(found)["PLACE"] == PREFIX + "-2/x"


def test_s39_more_search_paths_than_the_programs_are_a_matter_of_the_footers():
    programs = [{"name": "PATH", "values": [PREFIX + "/bin", "/soft/more/bin"]}]
    assert "extend(" not in ast.literal_eval(asked()["lua"]).partition("local file")[2]
    footer = ast.literal_eval(asked(prepend=programs)["lua"])
    assert 'extend("PATH", {"%(installdir)s/bin", "/soft/more/bin"}, {})' in footer


def test_s39_reasons_become_comments_beside_their_variables():
    found = asked(setenv={"NCCL_NET": "ofi"}, reasons={"NCCL_NET": "The network.\nOf GPUs."})
    assert found["variables"] == [{"name": "'NCCL_NET'", "value": "'ofi'", "reasons": ["The network.", "Of GPUs."]}]


@pytest.mark.parametrize("text", ["one line", "two\nlines\n", "back\\slash\n'''quoted'''\n", "it's"])
def test_s39_a_literal_is_what_python_reads(text):
    assert ast.literal_eval(easyconfig.literal(text)) == text


def test_s39_the_environment_of_the_comparison_has_all_that_the_module_refers_to_and_takes_away():
    found = asked(setenv={"CACHE": "${SCRATCH}/x"}, unsetenv=["PYTHONSTARTUP"])["start"]
    assert found["SCRATCH"] and found["PYTHONSTARTUP"]


def answer(unset=(), functions=None, **variables):
    return {"set": variables, "unset": list(unset), "not_captured": {"functions": functions or {}, "aliases": {}}}


def test_s39_records_of_easybuild_and_of_the_module_system_are_no_difference():
    ours = answer(SIF="/x.sif", MODULEPATH="/a")
    theirs = answer(SIF="/x.sif", MODULEPATH="/b", EBDEVELPYTORCH="/d", LOADEDMODULES="x", EBEXTSLISTPYTORCH="y")
    assert easyconfig.differences(ours, theirs) == []


def test_s39_each_difference_is_one_sentence():
    ours = answer(SIF="/x.sif", ONLY="1", unset=["TAKEN"], functions={"f": "true"})
    theirs = answer(SIF="/y.sif", EBROOTPYTORCH="/z")
    assert easyconfig.differences(ours, theirs) == [
        "EasyBuild's module sets EBROOTPYTORCH to '/z', the release's own not at all.",
        "EasyBuild's module sets ONLY not at all, the release's own to '1'.",
        "EasyBuild's module sets SIF to '/y.sif', the release's own to '/x.sif'.",
        "EasyBuild's module sets the function f not at all, the release's own to 'true'.",
        "Only the release's own module takes TAKEN away.",
    ]
