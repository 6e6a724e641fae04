# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The bundles of a release file: lists of packages with one lock each."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import (
    bundles,
    left_over,
    locks,
    packages,
    step_names,
    step_options,
    toolchain,
)

HASH = "--hash=sha256:" + "0" * 64


def lock(*pins):
    return "".join("%s \\\n    %s\n" % (pin, HASH) for pin in pins)


def bundle(**keys):
    return {"name": "science", "packages": ["Pandas>=2,<4", "scikit_image[data]"],
            "lock": lock("pandas==3.1", "scikit-image==0.26", "six==1.17"), **keys}


def definition(*given, **keys):
    return {"locks": {"base": lock("numpy==2.4.6")}, "packages": [{"name": "timm", "version": "1.0"}],
            "bundles": list(given), **keys}


def test_a_bundle_in_order_has_no_problems_and_a_release_without_bundles_neither():
    assert bundles.problems(definition(bundle()), "releases/x.yml") == []
    assert bundles.problems({"bundles": None}) == bundles.problems({}) == bundles.problems(None) == []


@pytest.mark.parametrize(("keys", "sentence"), [
    ({"packages": ["pandas"], "lock": "pandas>=2\n"},
     "has a lock in which 'pandas>=2' is not pinned; write name==version --hash=sha256:..."),
    ({"packages": ["pandas"], "lock": "pandas==3.1\n"},
     "has a lock in which 'pandas' has no hash; give it its --hash=sha256"),
    ({"packages": ["pandas", "xarray"]},
     "asks for xarray, which its lock does not have; make the lock with bin/lock"),
    ({"packages": ["pandsa"]},
     "asks for pandsa, which its lock does not have (it has pandas); make the lock with bin/lock"),
    ({"packages": ["pandas==3.0"]}, "asks for pandas==3.0, and its lock has 3.1; make the lock anew with bin/lock"),
    ({"packages": ["pandas", "PANDAS>2"]}, "asks for pandas twice; keep one of the two"),
    ({"packages": ["pandas @ https://example.org/p.whl"]},
     "asks for 'pandas @ https://example.org/p.whl', which is no name with versions such as 'pandas>=2,<3'"),
    ({"left_out": {"pandas": "no"}}, "asks for pandas, which it leaves out; keep one of the two"),
    ({"left_out": {"six": "old"}}, "leaves six out, which its lock has; make the lock anew with bin/lock"),
    ({"left_out": {"tensorflow": ""}}, "leaves tensorflow out without a reason; say why"),
    ({"lock": lock("pandas==3.1", "scikit-image==0.26", "NumPy==2.5")},
     "would install numpy, which locks.base installs; make the lock anew with bin/lock"),
    ({"lock": lock("pandas==3.1", "scikit-image==0.26", "timm==2")},
     "would install timm, which package 'timm' installs; make the lock anew with bin/lock"),
])
def test_a_bundle_that_contradicts_itself_or_the_release_is_one_sentence(keys, sentence):
    assert "Bundle 'science' in releases/x.yml %s." % sentence in bundles.problems(
        definition(bundle(**keys)), "releases/x.yml")


def test_two_bundles_do_not_install_the_same_and_what_one_has_the_next_may_ask_for():
    again = bundle(name="data", packages=["six"], lock=lock("tzdata==2026.1"))
    assert bundles.problems(definition(bundle(), again)) == []
    again["lock"] = lock("six==1.16")
    assert bundles.problems(definition(bundle(), again)) == [
        "Bundle 'data' would install six, which bundle 'science' installs; make the lock anew with bin/lock."]
    assert bundles.problems(definition(bundle(), bundle(lock=""))) == [
        "Bundle 'science' has the name of an entry before it; give it another one."]


def test_a_bundle_is_planned_after_all_packages_and_all_bundles_before_it():
    before = packages.planned_packages([{"name": "timm", "version": "1.0", "lock": lock("timm==1.0")}])
    first, second = bundles.planned_bundles([bundle(), bundle(name="data", lock=lock("xarray==1"))], before)
    assert (first["step"], first["step_needs"]) == ("bundle-science", ["package-timm"])
    assert second["step_needs"] == ["package-timm", "bundle-science"]
    assert first["owns"] == {"pandas": "3.1", "scikit-image": "0.26", "six": "1.17"} and first["kind"] == "wheel"
    assert first["bundle"] is True and first["no_deps"] is False and "bundle" not in before[0]


def test_a_bundle_s_steps_are_known_where_steps_are_named_and_only_its_fetch_is_on_the_machine_itself():
    given = definition(bundle(name="x-fetch"), bundle())
    assert {"package-timm", "bundle-science", "bundle-x-fetch"} <= step_names.of_components(given)
    assert step_options.toolchain_key(given, "bundle-science") == "bundle-science"
    assert step_options.toolchain_key(given, "bundle-x-fetch") == "bundle-x-fetch"
    assert step_options.toolchain_key(given, "bundle-science-fetch") == ""
    assert toolchain.unknown_steps({**given, "toolchain": {"steps": {"bundle-science": {}, "bundle-none": {}}}}) == [
        "bundle-none"]


def test_the_lock_of_a_bundle_is_one_of_the_locks_of_a_release_file():
    assert [text.path for text in locks.texts(definition(bundle()))] == ["locks.base", "bundles[0].lock"]


def test_what_a_bundle_installs_is_there_and_what_it_leaves_out_is_not():
    given = definition(bundle(left_out={"tensorflow": "the site has horovod for it"}))
    assert left_over.has(given, "pandas") and not left_over.has(given, "horovod")
