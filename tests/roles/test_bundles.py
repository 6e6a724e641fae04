# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Bundles of packages: fetched and installed as one step with one proof, and nothing else moves."""

from __future__ import annotations

import importlib.util
import json
import os

import pytest
import yaml
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import bundles, release_file
from support import sites
from support.console import changed_in
from support.package_release import CHECKOUT, Release, entry, locked, make_wheel

_spec = importlib.util.spec_from_file_location("freeze_bytecode", CHECKOUT / "roles/freeze/files/bytecode.py")
freeze_bytecode = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(freeze_bytecode)


@pytest.fixture()
def release(tmp_path, tools, ansible_environment):
    # A bundle comes from where pip is configured to look.
    return Release(tmp_path, tools, {**ansible_environment, "PIP_NO_INDEX": "1",
                                     "PIP_FIND_LINKS": str(tmp_path / "index"), "PIP_CONFIG_FILE": os.devnull})


def bundle(*wheels, **keys):
    names = [wheel.name.split("-")[0] for wheel in wheels]
    return {"name": "science", "packages": names[:1], "lock": "\n".join(map(locked, wheels)) + "\n",
            "imports": names, **keys}


def records(release):
    return json.loads((release.records / "packages.json").read_text())["packages"]


def test_a_bundle_is_installed_by_one_step_after_the_packages_and_a_second_run_does_nothing(release):
    alone, first, second = (make_wheel(release.wheels, name, "1.0") for name in ("alone", "first", "second"))
    other = "\nfar==1.0 ; python_version < '3' --hash=sha256:%s\n" % ("0" * 64)
    asked = bundle(first, second)
    asked["lock"] += other
    code, said = release.roll_out([entry(alone)], bundles=[asked])
    assert code == 0, said
    assert release.installed() == ["alone-1.0", "first-1.0", "numpy-2.4.6", "second-1.0", "torch-2.13.0+cpu"]
    assert [(one["name"], sorted(one["distributions"])) for one in records(release)] == [
        ("alone", ["alone"]), ("bundle science", ["first", "second"])]
    steps = {path.name for path in (release.records / "steps").iterdir()}
    assert steps == {"package-alone", "package-alone-fetch", "bundle-science", "bundle-science-fetch"}

    for arguments in ((), ("--check",)):
        code, said = release.roll_out([entry(alone)], *arguments, bundles=[asked])
        assert code == 0 and changed_in(said) == 0, said


def test_the_modules_of_a_bundle_have_the_bytecode_that_the_freeze_takes_for_valid_and_it_goes_with_them(release):
    template = "def {{ name }}(): pass\n"
    first = make_wheel(release.wheels, "first", "1.0", {
        "first/__init__.py": "", "first/never_imported.py": "A = 1\n", "first/template.py": template})
    code, said = release.roll_out([], bundles=[bundle(first)])
    assert code == 0, said
    found = {source.name: freeze_bytecode.is_current(source, importlib.util.cache_from_source(source, optimization=""))
             for source in (release.site / "first").glob("*.py")}
    assert found == {"__init__.py": True, "never_imported.py": True, "template.py": False}
    # pip lists the bytecode that it has made itself, on one processor.
    assert "__pycache__" not in (release.site / "first-1.0.dist-info" / "RECORD").read_text()
    code, said = release.roll_out([])
    assert code == 0 and not (release.site / "first").exists(), said


def test_s11_a_bundle_that_would_move_what_is_there_is_refused_and_nothing_is_touched(release):
    first, older = make_wheel(release.wheels, "first", "1.0"), make_wheel(release.wheels, "numpy", "1.26.4")
    before = release.snapshot()
    code, said = release.roll_out([], bundles=[bundle(first, older)])
    assert code != 0
    assert ("Bundle 'science' would replace numpy 2.4.6, which the base of the release has, by 1.26.4. "
            "Nothing was changed.") in said
    assert release.snapshot() == before and not (release.records / "packages.json").exists()


def test_a_bundle_that_lacks_what_its_packages_want_is_refused_unless_the_file_says_so(release):
    first = make_wheel(release.wheels, "first", "1.0", requires=["absent>=2", "numpy>=2"])
    before = release.snapshot()
    code, said = release.roll_out([], bundles=[bundle(first)])
    assert code != 0
    assert "Bundle 'science': first wants absent>=2, and the release has none. Nothing was changed." in said
    assert "Add what is missing to its packages, and make its lock anew, or say no_deps: true" in said
    assert release.snapshot() == before
    for keys in ({"no_deps": True}, {"left_out": {"Absent": "this system has it"}}):
        code, said = release.roll_out([], bundles=[bundle(first, **keys)])
        assert code == 0, said


def test_a_bundle_of_which_one_module_cannot_be_imported_is_taken_out_again_as_a_whole(release):
    first = make_wheel(release.wheels, "first", "1.0")
    broken = make_wheel(release.wheels, "broken", "1.0", {"broken/__init__.py": "raise RuntimeError('no luck')\n"})
    before = release.snapshot()
    code, said = release.roll_out([], bundles=[bundle(first, broken)])
    assert code != 0
    assert ("Bundle 'science' cannot import broken: RuntimeError: no luck. All of it was taken out of the base again."
            ) in said
    assert release.snapshot() == before and records(release) == []


def test_a_file_of_two_packages_of_a_bundle_is_refused_before_either_lands(release):
    first = make_wheel(release.wheels, "first", "1.0", {"shared.py": "", "first/__init__.py": ""})
    second = make_wheel(release.wheels, "second", "1.0", {"shared.py": "", "second/__init__.py": ""})
    before = release.snapshot()
    code, said = release.roll_out([], bundles=[bundle(first, second)])
    assert code != 0 and "shared.py, which belongs to first. Nothing was changed." in said
    assert release.snapshot() == before


def test_a_lock_whose_hash_is_another_file_s_installs_nothing(release):
    first = make_wheel(release.wheels, "first", "1.0")
    asked = bundle(first)
    asked["lock"] = asked["lock"].replace(asked["lock"].split("sha256:")[1].strip(), "0" * 64)
    before = release.snapshot()
    code, said = release.roll_out([], bundles=[asked])
    assert code != 0 and "bundle-science-fetch" in said
    assert release.snapshot() == before


def test_what_a_bundle_no_longer_has_is_uninstalled_and_so_is_a_bundle_that_is_gone(release):
    first, second, newer = (make_wheel(release.wheels, name, version) for name, version in (
        ("first", "1.0"), ("second", "1.0"), ("first", "2.0")))
    code, said = release.roll_out([], bundles=[bundle(first, second)])
    assert code == 0, said
    code, said = release.roll_out([], bundles=[bundle(newer)])
    assert code == 0 and "uninstalled now: second 1.0 (of package bundle-science)." in said, said
    assert release.installed() == ["first-2.0", "numpy-2.4.6", "torch-2.13.0+cpu"]
    code, said = release.roll_out([])
    assert code == 0, said
    assert release.installed() == ["numpy-2.4.6", "torch-2.13.0+cpu"] and records(release) == []


@pytest.mark.parametrize(("change", "words"), [
    ({"import": []}, "Unknown key 'bundles[0].import' in releases/x.yml; did you mean 'imports'?"),
    ({"packages": None}, "'bundles[0].packages' in releases/x.yml must be a list"),
    ({"name": "Data Science"}, "it must be lower-case letters, digits and dashes, as 'science'"),
    ({"imports": ["a b"]}, "it must be the name of a module"),
])
def test_a_bundle_that_means_nothing_is_refused_with_the_release_file(change, words):
    definition = sites.load_release(CHECKOUT / "inventories/local/releases/2026-11-20-bundles.yml")
    schema = specified()
    assert release_file.problems(definition, schema, "releases/x.yml") == []
    definition["bundles"][0].update(change)
    assert words in " ".join(release_file.problems(definition, schema, "releases/x.yml"))


def test_the_defaults_of_a_bundle_are_those_of_the_release_file():
    options = specified()["bundles"]["options"]
    assert {name: option["default"] for name, option in options.items() if "default" in option} == bundles.DEFAULTS
    assert "default" not in specified()["bundles"], "a release without bundles has the digest that it always had"


def specified():
    specs = yaml.safe_load((CHECKOUT / "roles" / "release" / "meta" / "argument_specs.yml").read_text())
    return specs["argument_specs"]["release_file"]["options"]
