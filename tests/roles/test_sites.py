# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The data of every site: it leaks into no other, every release file can be used, and modulefiles are as documented."""

from __future__ import annotations

import configparser
import pathlib
import re

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch import registry
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import findings, schema
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import (
    nccl_compatibility,
    release_file,
    runtime_settings,
    site_jobs,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.acceptance_plan import plan_acceptance
from support import site_modules, sites

TOP = sites.TOP
COMPATIBILITY = sites.load(TOP / "roles/nccl_ofi/vars/compatibility.yml")["nccl_ofi_compatibility"]
SPECIFIED = sites.load(TOP / "roles/release/meta/argument_specs.yml")["argument_specs"]
SITE_KEYS = SPECIFIED["site_data"]["options"]
ACCEPTANCE_KEYS = SPECIFIED["site_acceptance"]["options"]
HEALTH = sites.load(TOP / "roles/node_health/meta/argument_specs.yml")["argument_specs"]["main"]["options"]
CLUSTERS = sites.CLUSTERS
BESIDE = re.compile(r"(?m)^\| the site's own \| that of our release (\S+) \|")
DOCUMENTED = {
    page.stem: BESIDE.search(page.read_text())[1] for page in sorted((TOP / "docs/reference/sites").glob("*.md"))
    if BESIDE.search(page.read_text())}
"""The releases whose modulefile stands beside the site's own on its page."""

ROLES = ("release", "conda_base", "python_tools", "nccl_ofi", "mpi", "pytorch", "horovod", "python_packages", "verify")


PROJECT = "project-of-the-tests"


def gpus_of_jobs(options):
    """How many GPUs of each node jobs ask for, by the option or by a directive; None where neither says it."""
    typed = [re.match(r"--(?:gres=gpu|gpus-per-node=?)(?::?[A-Za-z]\w*)?[:=]?(\d+)\Z", line)
             for line in options.get("directives", [])]
    return options.get("gpus", next((int(found.group(1)) for found in typed if found), None))


def site_of(path):
    return path.parts[-3]


def title(path):
    return "%s-%s" % (site_of(path), path.stem)


@pytest.fixture(params=sites.RELEASES, ids=title)
def path(request):
    return request.param


@pytest.fixture(scope="module")
def site_data(ansible_environment):
    """What the sites that have a batch system say, filled in."""
    names = [
        "torchstack_root", "torchstack_jobs", "torchstack_ranks", "torchstack_runtime_settings", "modulefile_name",
        "torchstack_acceptance", "node_health_expected",
        *sites.CONTAINERS,
    ]
    # One whose jobs are charged to a project takes it from there.
    environment = {**ansible_environment, "TORCHSTACK_ACCOUNT": PROJECT, "TORCHSTACK_ROOT": ""}
    return {site: sites.variables(site, names, environment) for site in CLUSTERS}


def test_the_sites_together_give_each_host_what_its_own_site_does(ansible_environment):
    together = sites.raw_variables(sites.SITES, ansible_environment)
    alone = {site: sites.raw_variables([site], ansible_environment) for site in sites.SITES}
    assert together == {host: variables for site in sites.SITES for host, variables in alone[site].items()}
    assert len(together) == sum(map(len, alone.values())), "two sites have a host of the same name"


def test_ansible_finds_the_hosts_of_every_site_and_no_release_file_as_inventory():
    settings = configparser.ConfigParser()
    settings.read(TOP / "ansible.cfg")
    named = settings["defaults"]["inventory"].split(",")
    assert sorted(named) == ["inventories/%s/hosts.yml" % site for site in sites.SITES]


@pytest.mark.parametrize("site", sites.SITES)
def test_every_site_has_a_playbook_of_its_name_that_calls_the_list_of_roles(site):
    (play,) = sites.load(TOP / "playbooks" / (site + ".yml"))
    assert play["ansible.builtin.import_playbook"] == "rollout.yml"
    assert play["vars"]["torchstack_host"] == site
    assert play["name"] == "Roll out a release of " + play["vars"]["torchstack_title"]


def test_the_list_of_roles_has_all_of_them_in_their_order_and_a_report_whatever_happens():
    (play,) = sites.load(TOP / "playbooks" / "rollout.yml")
    (tasks,) = play["tasks"]
    flat = [task for entry in tasks["block"][:-1] for task in entry.get("block", [entry])]
    imported = [task.get("ansible.builtin.import_role") or task["ansible.builtin.include_role"] for task in flat]
    names = [role["name"].rpartition(".")[2] for role in imported if "tasks_from" not in role]
    assert [name for name in names if name in ROLES] == list(ROLES)
    (last,) = tasks["always"]
    assert last["block"][0]["ansible.builtin.include_role"]["name"] == "hpcml.torchstack.report"
    assert any("hpcml.torchstack.rollout_lock" in task for task in last["always"]), "the lock goes back anyway"
    of_wheel = imported.index({"name": "hpcml.torchstack.nccl_ofi", "tasks_from": "wheel"})
    assert imported[of_wheel - 1] == {"name": "hpcml.torchstack.pytorch"}, "a wheel's NCCL is there after PyTorch"


def test_a_release_file_can_be_used(path):
    definition = sites.load_release(path)
    assert release_file.problems(definition, sites.RELEASE_KEYS, path.name) == []
    assert definition["release"] == path.stem


def test_the_patch_series_of_a_release_are_there(path):
    definition = release_file.resolve(sites.load_release(path), sites.RELEASE_KEYS)
    digests = release_file.series_digests(definition, str(TOP / "roles"))
    if definition["pytorch"].get("source", {}).get("series"):
        assert re.fullmatch("[0-9a-f]{64}", digests["pytorch"])


def test_nccl_plugin_and_libfabric_of_a_release_go_together(path):
    definition = sites.load_release(path)
    nccl = definition.get("nccl")
    if not nccl or "${" in nccl["plugin"]["libfabric"] or path.stem == "rehearsal":
        pytest.skip("no NCCL of its own, one of stand-ins, or a libfabric that modules name")
    plugin, cuda = nccl["plugin"], nccl.get("cuda") or definition["cuda"]
    asked = nccl_compatibility.Asked(
        nccl["version"], plugin["repository"].rpartition("/")[2], plugin["version"],
        cuda["version"], tuple(cuda["architectures"]),
    )
    there = nccl_compatibility.There(
        pathlib.PurePath(plugin["libfabric"]).name, plugin["libfabric"], cuda["version"], "/cuda",
        bool(plugin.get("hwloc")), plugin.get("hwloc", ""),
    )
    accepted = {entry["problem"]: entry["reason"] for entry in nccl.get("accept", [])}
    verdict = nccl_compatibility.judge(COMPATIBILITY, asked, there, accepted)
    assert verdict.api is not None
    assert [finding.message for finding in verdict.findings if finding.severity == findings.ERROR] == []


@pytest.mark.parametrize("site", CLUSTERS)
def test_the_jobs_ranks_and_settings_of_a_site_can_be_used(site, site_data):
    data = site_data[site]
    assert site_jobs.problems({name: data[name] for name in SITE_KEYS}, SITE_KEYS, site) == []
    job = site_jobs.step_job(site_jobs.describe(data), "pytorch")
    script = registry.system_of(job["launcher"])().script(
        "ts-pytorch", registry.check_options(job["launcher"], job["options"]), "/soft/log", ["/bin/true"])
    assert data["torchstack_jobs"].get("options", {}).get("account", "") in script
    assert runtime_settings.problems(data["torchstack_runtime_settings"]) == []


@pytest.mark.parametrize("site", CLUSTERS)
def test_what_a_site_asks_of_an_acceptance_can_be_used_and_every_figure_has_its_source(site, site_data):
    asked = site_data[site]["torchstack_acceptance"]
    assert schema.problems({"torchstack_acceptance": asked}, ACCEPTANCE_KEYS, site) == []
    assert plan_acceptance({}, asked)["problem"] == ""
    floors = asked.get("measure", {}).get("floors", {})
    assert all(floor["source"] for rows in floors.values() for floor in rows)


@pytest.mark.parametrize("site", CLUSTERS)
def test_s29_a_site_says_how_many_gpus_a_sound_node_has(site, site_data):
    expected = {"node_health_expected": site_data[site]["node_health_expected"]}
    assert schema.problems(expected, {name: HEALTH[name] for name in expected}, site) == []
    asked = gpus_of_jobs(site_data[site]["torchstack_jobs"].get("options", {}))
    assert asked in (None, expected["node_health_expected"].get("gpus"))


@pytest.mark.parametrize("site", CLUSTERS)
def test_s17_a_site_with_slingshot_asks_for_libfabric_and_refuses_sockets(site, site_data):
    if "cxi" not in [adapter["kind"] for adapter in site_data[site]["node_health_expected"].get("fabric", [])]:
        pytest.skip("no Slingshot")
    transport = site_data[site]["torchstack_acceptance"]["transport"]
    assert transport["networks"] == ["*libfabric*", "OFI"]
    assert (transport["providers"], transport["forbidden"]) == (["cxi"], ["Socket"])


@pytest.mark.parametrize("site", CLUSTERS)
def test_a_machine_that_is_not_the_site_is_told_so_in_one_sentence_with_the_rehearsal(site, ansible_environment):
    words = ["-i", str(sites.hosts_file(site)), str(TOP / "playbooks" / (site + ".yml")), "--check", "--diff"]
    done = sites.ansible_command("ansible-playbook", words, ansible_environment)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0
    assert "is not the site %s: " % site in said
    assert "run its rehearsal: make rehearse SITE=%s." % site in said
    assert "ok=1 changed=0" in said


@pytest.fixture(scope="module")
def modulefiles(ansible_environment, site_data, tmp_path_factory):
    """What the role modulefile renders for the documented releases, by site."""
    return site_modules.render(DOCUMENTED, site_data, ansible_environment, tmp_path_factory.mktemp("roots"))


@pytest.mark.parametrize("site", DOCUMENTED)
def test_the_side_by_side_table_has_every_line_of_the_modulefile_and_no_other(site, modulefiles):
    verbs = ("family(", "conflict(", "depends_on(", "replace(", "extend(", "set_alias(", "set_shell_function(")
    rendered = [line for line in modulefiles[site].splitlines() if line.startswith(verbs)]
    page = TOP / "docs/reference/sites" / (site + ".md")
    rows = [line for line in page.read_text().splitlines() if line.startswith("|")]
    # The middle one of three columns; no cell holds a bar.
    documented = [code for row in rows if row.count("|") == 4 for code in re.findall("`([^`]+)`", row.split("|")[2])]
    assert sorted(documented) == sorted(rendered)


def test_every_setting_of_the_modulefile_has_its_reason_as_a_comment(modulefiles, site_data):
    for site, text in modulefiles.items():
        for setting in site_data[site]["torchstack_runtime_settings"]:
            assert "-- %s\nreplace(\"%s\"" % (setting["reason"], setting["name"]) in text


@pytest.mark.parametrize("name", ["roles/test_sites.py", "roles/test_site_lint.py", "roles/test_site_verification.py",
                                  "roles/test_new_site.py", "support/sites.py", "support/linting.py"])
def test_the_tests_of_sites_know_no_site_by_its_name(name):
    text = (TOP / "tests" / name).read_text()
    assert [site for site in sites.SITES if re.search(r"[\"'/]%s[\"'/]" % site, text)] == []
