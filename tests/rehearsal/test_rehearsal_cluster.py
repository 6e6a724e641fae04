# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a site's operator finds on the rehearsal cluster: nodes, accounts, jobs, modules, and no way out."""

from __future__ import annotations

import subprocess

import pytest
from support.polling import eventually

from rehearsal.cluster import DIGEST, LABEL, Cluster
from rehearsal.rollout import STARTED, end_rollout
from rehearsal.trouble import TroubleError

ROUTE = "ip -o route get 192.0.2.1"
"""Asks the kernel for the way to an address that is kept for documentation (RFC 5737); nothing is sent there."""


def everywhere(cluster):
    return [node for node in cluster.names.nodes if node != "control"]


def test_a_job_runs_on_two_nodes_at_once(cluster, on):
    answer = on("login", "srun --nodes=2 --ntasks-per-node=1 --account=staff hostname")
    assert sorted(answer.text.split()) == list(cluster.names.compute)


def test_accounting_knows_a_job_and_how_it_ended(on):
    job = on("login", "sbatch --parsable --output=/dev/null --wrap 'exit 7'").text.strip()

    def ended():
        line = "sacct --allocations --noheader --parsable2 --jobs=%s --format=state,exitcode,account,user" % job
        said = on("login", line).text.strip()
        return said if said.startswith("FAILED") else ""

    assert eventually(ended, "accounting to know how job %s ended" % job) == "FAILED|7:0|staff|rollout"


def test_an_account_that_accounting_does_not_know_is_refused(on):
    refused = on("login", "sbatch --account=nobodys --wrap true", check=False)
    assert refused.returncode != 0
    assert "Invalid account" in refused.text


def test_accounts_have_the_same_numbers_on_all_nodes(cluster, on):
    for user in ("rollout", "researcher"):
        assert len({on(node, "id; echo $HOME", user=user).text for node in everywhere(cluster)}) == 1


def test_what_one_node_writes_all_others_see(cluster, on):
    nodes = everywhere(cluster)
    for node in nodes:
        on(node, "mkdir -p /shared/software/torchstack/seen && cd $_ && hostname > $(hostname)")
    for node in nodes:
        assert sorted(on(node, "cat /shared/software/torchstack/seen/*").text.split()) == sorted(nodes)
    on("login", "rm -r /shared/software/torchstack/seen")


def test_only_login_nodes_have_a_way_out(cluster, on):
    assert all(" via " in on(node, ROUTE).text for node in cluster.names.login)
    for node in (*cluster.names.compute, "control"):
        lost = on(node, ROUTE, user="root", check=False)
        assert lost.returncode != 0
        assert "unreachable" in lost.text


def test_a_compute_node_knows_the_other_nodes_and_no_other_name(cluster, on):
    names = cluster.names.nodes
    for node in cluster.names.compute:
        found = on(node, "getent hosts %s; ! getent hosts example.org" % " ".join(names)).text
        assert [line.split()[1] for line in found.splitlines()] == list(names)


def test_a_variable_of_a_proxy_does_not_reach_a_node(cluster, on):
    for node in cluster.names.nodes:
        assert "proxy" not in on(node, "tr '\\0' '\\n' < /proc/1/environ", user="root").text.lower()


def test_an_ordinary_user_cannot_write_where_software_is_nor_enter_the_rollout_accounts_home(cluster, on):
    places = ("torchstack", "modulefiles", "lmod-cache", ".")
    line = "for place in %s; do touch /shared/software/$place/mine; done; ls /shared/home/rollout" % " ".join(places)
    for node in everywhere(cluster):
        refused = on(node, line, user="researcher", check=False).text.splitlines()
        assert len(refused) == len(places) + 1
        assert all("Permission denied" in sentence for sentence in refused)


def test_the_rollout_account_becomes_the_ordinary_user_and_nobody_else(cluster, on):
    for node in everywhere(cluster):
        become = on(node, "sudo -n -u researcher id -un; ! sudo -n id -un && ! sudo -n -u slurm id -un").text
        assert become.splitlines()[0] == "researcher"
        assert on(node, "sudo -n id -un", user="researcher", check=False).returncode != 0


@pytest.fixture()
def toy(on):
    """A module in the site's tree and in the spider cache; both are without it afterwards."""
    tree = "/shared/software/modulefiles/toy"
    on("login", "mkdir -p %s && echo 'setenv(\"TOY\", \"1\")' > %s/1.0.lua && rehearsal-module-cache" % (tree, tree))
    yield tree
    on("login", "rm -r %s && rehearsal-module-cache" % tree)


def test_modules_are_found_through_the_spider_cache_on_all_nodes(cluster, on, toy):
    on("login", "cp %s/1.0.lua %s/2.0.lua" % (toy, toy))
    for node in everywhere(cluster):
        found = on(node, "module --terse avail 2>&1", user="researcher").text.split()
        assert {"toy/1.0", "gcc/12.2.0"} <= set(found)
        # What came after the cache was made is found when the cache is renewed, and not before.
        known = on(node, "module --terse spider toy 2>&1", user="researcher").text
        assert "toy/1.0" in known
        assert "toy/2.0" not in known
    on("login", "rehearsal-module-cache")
    for node in everywhere(cluster):
        assert "toy/2.0" in on(node, "module --terse spider toy 2>&1", user="researcher").text


def test_a_module_of_the_shared_file_system_is_loaded_in_a_job(on, toy):
    line = "srun --account=staff bash --login -c 'module load toy/1.0 && echo $TOY'"
    assert on("login", line).text.split()[-1] == "1"


def test_environment_modules_are_there_too(cluster, on):
    for node in everywhere(cluster):
        line = "tclsh $(find /opt/environment-modules -name modulecmd.tcl | head -n 1) bash --version 2>&1"
        assert "Modules Release" in on(node, line).text


def test_what_a_build_needs_is_on_the_compute_nodes(cluster, on):
    for node in cluster.names.compute:
        on(node, "g++ --version && make --version && git --version && patch --version")
        on(node, "python3 -c 'import venv, ensurepip' && test -e /usr/include/python3*/Python.h")


def test_a_rollout_that_an_interrupted_rehearsal_left_is_ended(cluster, on):
    pretended = ["sh", "-c", STARTED, "rollout", "bash", "-c", "exec -a ansible-playbook sleep 86400"]
    client = subprocess.Popen(cluster.command("login", *pretended, user="rollout", options=[]))
    eventually(lambda: on("login", "pgrep --full '^ansible-playbook'", check=False).text, "the rollout to run")
    assert end_rollout(cluster) is True
    client.wait(120)
    assert end_rollout(cluster) is False


def test_a_second_up_does_nothing(cluster, podman):
    names = [cluster.names.container(node) for node in cluster.names.nodes]

    def begun():
        return podman.ask("inspect", "--format={{.State.StartedAt}}", *names)

    before = begun()
    assert cluster.up() is False
    assert begun() == before


def test_a_stopped_node_is_started_again(cluster, podman, on):
    podman.ask("stop", "--time=0", cluster.names.container("compute2"))
    assert cluster.up() is True
    state = "sinfo --noheader --partition=compute --node=compute2 --format=%t"
    eventually(lambda: on("login", state).text.strip() == "idle", "the node to be idle")
    assert on("login", "srun --account=staff --nodelist=compute2 hostname").text.split()[-1] == "compute2"


def test_another_shape_of_the_cluster_is_refused_with_what_to_do(cluster, podman):
    other = Cluster(podman, cluster.names, mounts=["/usr"])
    with pytest.raises(TroubleError, match="make rehearse-down"):
        other.up()


def test_down_removes_everything_of_this_cluster_and_nothing_else(podman, cluster):
    name = cluster.names.cluster + "-x"
    names = cluster.names._replace(cluster=name)
    other = Cluster(podman, names)
    mine = ["--filter=label=%s=%s" % (LABEL, name)]
    podman.ask("volume", "create", "--label=%s=%s" % (LABEL, name), names.shared)
    podman.ask("network", "create", "--label=%s=%s" % (LABEL, name), "--internal", names.inside)
    before = podman.ask("ps", "--all", "--quiet", "--filter=label=" + DIGEST)
    assert sorted(other.down()) == sorted([names.shared, names.inside])
    for words in (["ps", "--all"], ["volume", "ls"], ["network", "ls"]):
        assert podman.ask(*words, "--quiet", *mine) == ""
    assert podman.ask("ps", "--all", "--quiet", "--filter=label=" + DIGEST) == before
    assert other.down() == []
