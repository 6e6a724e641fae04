# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The modulefiles of a site's releases, as the role modulefile renders them for Lmod."""

from __future__ import annotations

import pathlib

from support import role_plays, sites

TOP = pathlib.Path(__file__).parents[2]
DATA = ["torchstack_root", "torchstack_runtime_settings", "modulefile_name", *sites.CONTAINERS]
"""What a site says of its modules."""


def render(releases, site_data, environment, top):
    """Render the modulefile of one release of each site.

    Args:
        releases: the name of a release by that of its site.
        site_data: :data:`DATA` by the name of the site.
        environment: variables of Ansible.
        top: an empty directory.

    Returns:
        The text by site; the directory of the releases in it is that of the site.
    """
    cases = []
    for site, release in releases.items():
        root = top / site
        root.mkdir()
        file = TOP / "inventories" / site / "releases" / (release + ".yml")
        name = site_data[site]["modulefile_name"] or "torchstack"
        description = sites.modulefile_description(file, site_data[site], root)
        cases.append({
            "site": site, "release": release, "root": str(root), "name": name, "description": description,
            "kind": sites.load_release(file)["base"]["kind"],
        })
    variables = {
        "modulefile_root": "{{ case.root }}", "modulefile_release": "{{ case.release }}",
        "modulefile_site": "{{ case.site }}", "modulefile_name": "{{ case.name }}",
        "modulefile_description": "{{ case.description }}", "release_context": {"base": {"kind": "{{ case.kind }}"}},
    }
    done = role_plays.play_tasks("modulefile", "stage", variables, cases, environment, top)
    assert done.returncode == 0, done.stdout
    found = {}
    for case in cases:
        staged = pathlib.Path(case["root"], ".torchstack", case["release"], "modulefiles", "lmod", case["name"])
        text = (staged / (case["release"] + ".lua")).read_text()
        found[case["site"]] = text.replace(case["root"], site_data[case["site"]]["torchstack_root"])
    return found
