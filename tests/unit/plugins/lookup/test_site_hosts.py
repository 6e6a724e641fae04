# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A play without a host says which inventory to give."""

from __future__ import annotations

import pathlib

import pytest
from ansible.errors import AnsibleLookupError
from ansible.parsing.dataloader import DataLoader
from ansible.utils import context_objects
from ansible_collections.hpcml.torchstack.plugins.lookup import site_hosts

INVENTORIES = pathlib.Path(__file__).parents[4] / "inventories"


def test_a_site_of_the_collection_has_its_hosts_file_named():
    said = site_hosts.missing("polaris", INVENTORIES)
    assert said == (
        "The inventory has no host for 'polaris': give the site's, as in -i %s/polaris/hosts.yml, or one of your own."
        % INVENTORIES)


@pytest.mark.parametrize("pattern", ["mysite", "all:!polaris", "../polaris", "", "rehearsal"])
def test_for_anything_else_the_sites_are_listed(pattern):
    said = site_hosts.missing(pattern, INVENTORIES)
    assert said == (
        "The inventory has no host for '%s': give the hosts file of that site with -i; the collection has "
        "cirrus/hosts.yml, derecho/hosts.yml, local/hosts.yml, lumi/hosts.yml, polaris/hosts.yml in %s."
        % (pattern, INVENTORIES))


@pytest.fixture()
def look(monkeypatch):
    """Look a pattern up in groups; ``syntax`` is what --syntax-check says."""
    def run(pattern, groups, syntax=False):
        monkeypatch.setattr(site_hosts.context, "CLIARGS", context_objects.CLIArgs({"syntax": syntax}))
        return site_hosts.LookupModule(loader=DataLoader()).run([pattern], variables={"groups": groups})

    return run


@pytest.mark.parametrize("pattern", ["polaris", "login1", "all", "polaris:&all"])
def test_a_pattern_with_a_host_is_given_back_as_it_is(look, pattern):
    assert look(pattern, {"all": ["login1"], "polaris": ["login1"]}) == [pattern]


@pytest.mark.parametrize("groups", [{}, {"all": [], "polaris": []}, {"all": ["x"], "local": ["x"]}])
def test_a_pattern_without_one_ends_the_run(look, groups):
    with pytest.raises(AnsibleLookupError, match="no host for 'polaris'"):
        look("polaris", groups)


def test_a_check_of_the_syntax_needs_no_hosts(look):
    assert look("polaris", {}, syntax=True) == ["polaris"]
    assert look("", {"all": ["x", "y"], "here": ["x"], "there": ["y"]}, syntax=True) == ["local"]


@pytest.mark.parametrize(("groups", "site"), [
    ({"all": ["login1"], "ungrouped": [], "mysite": ["login1"]}, "mysite"),
    ({"all": ["login1", "login2"], "gpu": ["login2"], "mysite": ["login1", "login2"]}, "mysite"),
    ({"all": ["x", "me"], "ungrouped": ["me"], "mysite": ["x"]}, "mysite"),
    ({"all": ["x", "y"], "mysite": ["x"], "local": ["y"]}, "local"),
])
def test_the_only_site_of_an_inventory_needs_not_be_named(look, groups, site):
    assert look("", groups) == [site]


def test_of_several_sites_one_has_to_be_named(look):
    with pytest.raises(AnsibleLookupError, match=r"name one, as in -e torchstack_host=here; .*here, there"):
        look("", {"all": ["x", "y"], "there": ["x"], "here": ["y"]})


def test_without_any_site_the_local_one_is_missed(look):
    with pytest.raises(AnsibleLookupError, match="no host for 'local': give the site's"):
        look("", {"all": [], "ungrouped": []})
