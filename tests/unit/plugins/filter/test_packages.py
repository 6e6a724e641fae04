# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The filters over packages, as Ansible calls them."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.hpcml.torchstack.plugins.filter.packages import FilterModule

FILTERS = FilterModule().filters()
ENTRY = {"name": "Tiny", "version": "1.0", "archive": "https://example.org/tiny-1.0.whl", "sha256": "0" * 64}


def test_packages_are_judged_and_planned():
    assert FILTERS["package_problems"]({"packages": [ENTRY]}, "r.yml") == []
    assert FILTERS["package_problems"]({"packages": [ENTRY, ENTRY]}, "r.yml") == [
        "Package 'Tiny' in r.yml is there twice; keep one of the two entries."]
    assert FILTERS["planned_packages"]([ENTRY])[0]["step"] == "package-tiny"


def test_bundles_are_judged_and_planned_after_the_packages():
    bundle = {"name": "science", "packages": ["scipy"], "lock": "scipy==1.17 --hash=sha256:%s" % ("0" * 64)}
    assert FILTERS["package_problems"]({"packages": [ENTRY], "bundles": [bundle]}, "r.yml") == []
    assert FILTERS["package_problems"]({"bundles": [dict(bundle, packages=["numpy"])]}, "r.yml") == [
        "Bundle 'science' in r.yml asks for numpy, which its lock does not have; make the lock with bin/lock."]
    assert [one["step"] for one in FILTERS["planned_packages"]([ENTRY], [bundle])] == ["package-tiny", "bundle-science"]
    with pytest.raises(AnsibleFilterError, match="no list of mappings"):
        FILTERS["planned_packages"]([ENTRY], ["science"])


def test_entries_of_another_shape_are_an_error_of_the_filter():
    for entries in (None, {}, ["tiny"]):
        with pytest.raises(AnsibleFilterError, match="no list of mappings"):
            FILTERS["planned_packages"](entries)


def test_the_sites_own_files_are_judged_and_planned():
    base = {"prefix": "/r/base", "site_packages": "/r/base/lib/python3.11/site-packages"}
    file = {"path": "bin/tool", "content": "e30K"}
    assert FILTERS["planned_files"]([file], base, {}, {})[0]["path"] == "bin/tool"
    with pytest.raises(AnsibleFilterError, match="keep one of the two"):
        FILTERS["planned_files"]([file, file], base, {}, {})
