# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Which batch system a rehearsal has, what is laid into its nodes, and what is refused before anything begins."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import types

import pytest
import yaml

from rehearsal.archives import write_programs
from rehearsal.batch_systems import batch_system_of
from rehearsal.checkout import CHECKOUT
from rehearsal.cluster import Cluster
from rehearsal.image import RECIPE, packages, recipe_digest
from rehearsal.nodes import names_of_the_cluster
from rehearsal.pbs import NEEDED, QUEUEJOB
from rehearsal.podman import Podman
from rehearsal.rollout import roll_out
from rehearsal.site import of_the_checkout
from rehearsal.slurm import Slurm
from rehearsal.trouble import MissingError, TroubleError

COMPUTE = ("compute1", "compute2")
REHEARSALS = CHECKOUT / "inventories" / "rehearsal"
GIVEN = {
    "system": "pbs", "queues": {"preemptable": {"nodes": 10, "walltime": "72:00:00"}, "debug": None},
    "resources": {"ncpus": 64, "ngpus": 4}, "required": {"filesystems": ["home", "eagle"]},
}


def asked_for(**changes):
    given = {key: value for key, value in {**GIVEN, **changes}.items() if value is not None}
    return batch_system_of({"host": {"rehearsal_batch_system": given}})


def test_a_rehearsal_that_names_none_has_slurm():
    assert isinstance(batch_system_of({"host": {}}), Slurm)


@pytest.mark.parametrize("given, sentence", [
    ({"system": "pbss"}, "rehearsal_batch_system.system is 'pbss'; did you mean 'pbs'?"),
    ("pbs", "has to be a mapping with the key system: slurm or pbs"),
    ({"queues": {}}, "has to be a mapping with the key system"),
    ({"system": "slurm", "queues": {}}, "has the unknown key 'queues'"),
    ({"system": "pbs"}, "rehearsal_batch_system.queues is missing"),
    ({**GIVEN, "queue": {}}, "unknown key 'queue'; did you mean 'queues'?"),
    ({**GIVEN, "queues": {"debug": {"wall_time": "1"}}}, "queues.debug has the unknown key 'wall_time'; did you mean"),
    ({**GIVEN, "queues": {"debug; delete server": None}}, "'debug; delete server' has to be a word"),
    ({**GIVEN, "queues": {"debug": {"walltime": 4.5}}}, "times stand in quotes"),
    ({**GIVEN, "resources": {"ngpus": "four"}}, "resources.ngpus is 'four'; it has to be a whole number"),
    ({**GIVEN, "required": {"filesystems": "home"}}, "required.filesystems has to be a list of words"),
])
def test_what_a_rehearsal_cannot_ask_for_is_refused_in_a_sentence(given, sentence):
    with pytest.raises(TroubleError) as refused:
        batch_system_of({"host": {"rehearsal_batch_system": given}})
    assert sentence in str(refused.value)


def test_each_node_starts_what_is_its_own_of_pbs():
    started = {}
    for node in ("login", "control", *COMPUTE):
        files = asked_for().files(node, COMPUTE)
        lines = dict(line.split("=") for line in files["etc/pbs.conf"].splitlines())
        assert lines["PBS_SERVER"] == "control"
        started[node] = [name for name in ("SERVER", "SCHED", "COMM", "MOM") if lines["PBS_START_" + name] == "1"]
        assert ("etc/rehearsal/mom.conf" in files) == (node in COMPUTE)
        assert ("etc/rehearsal/qmgr" in files) == (node == "control")
    assert started == {
        "login": [], "control": ["SERVER", "SCHED", "COMM"], "compute1": ["MOM"], "compute2": ["MOM"]}


def test_the_server_is_set_up_as_the_data_say_and_knows_its_nodes_last():
    lines = asked_for().files("control", COMPUTE)["etc/rehearsal/qmgr"].splitlines()
    for line in (
        "create resource ngpus type=long, flag=nh", "create resource filesystems type=string",
        "set queue preemptable resources_max.nodect = 10", "set queue preemptable resources_max.walltime = 72:00:00",
        "set server default_queue = preemptable", "set server job_history_enable = True",
    ):
        assert line in lines
    assert lines[-6:] == [
        line for node in COMPUTE for line in (
            "create node " + node, "set node %s resources_available.ncpus = 64" % node,
            "set node %s resources_available.ngpus = 4" % node)]
    assert not any("resource ncpus" in line for line in lines)


@pytest.mark.parametrize("states, code, ready", [
    (("free", "job-busy"), 0, True), (("free", "offline"), 0, True), (("free", "down,offline"), 0, False),
    (("free", "state-unknown"), 0, False), (("free",), 0, False), (("free", "free"), 1, False),
])
def test_a_pbs_is_ready_when_all_nodes_have_answered(states, code, ready):
    nodes = {node: {"state": state} for node, state in zip(COMPUTE, states)}

    def answer(*words):
        return subprocess.CompletedProcess(words, code, json.dumps({"nodes": nodes}).encode(), b"")

    assert asked_for().ready(answer, COMPUTE) is ready


@pytest.fixture()
def installed(tmp_path, monkeypatch):
    """A directory that has what a PBS has, and is named as one."""
    for name in (*NEEDED, "lib/libpbs.a", "lib/libpbs.so.0"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("REHEARSAL_PBS", str(tmp_path))
    return tmp_path


def test_a_pbs_that_is_there_is_taken(installed):
    asked_for().check()


@pytest.mark.parametrize("setting, sentence", [
    ("/nowhere/at/all", "/nowhere/at/all has no bin/qsub"), ("pbs", "pbs is no absolute path")])
def test_a_pbs_that_is_not_there_is_told_with_what_to_set_before_a_node_is_made(monkeypatch, setting, sentence):
    monkeypatch.setenv("REHEARSAL_PBS", setting)
    cluster = Cluster(Podman(), names_of_the_cluster("torchstack-rehearsal-refused"))
    monkeypatch.setattr(Cluster, "up", lambda self: pytest.fail("a node was made"))
    with pytest.raises(MissingError) as refused:
        roll_out(cluster, of_the_checkout("polaris", "pbs"), [])
    assert sentence in str(refused.value)
    assert "REHEARSAL_PBS" in str(refused.value)
    assert "leave out SCHEDULER=pbs" in str(refused.value)


def test_programs_are_roots_and_what_compilers_take_is_left_out(installed):
    stream = io.BytesIO()
    write_programs(stream, *asked_for().programs)
    with tarfile.open(fileobj=io.BytesIO(stream.getvalue())) as archive:
        entries = {entry.name: entry for entry in archive.getmembers()}
    assert {"opt/pbs/" + name for name in NEEDED} <= set(entries)
    assert "opt/pbs/lib/libpbs.so.0" in entries
    assert "opt/pbs/lib/libpbs.a" not in entries
    assert {(entry.uid, entry.gid, entry.uname) for entry in entries.values()} == {(0, 0, "")}
    assert entries["opt/pbs/sbin/pbs_mom"].mode == 0o755


def test_another_batch_system_is_another_cluster_and_another_image(installed):
    names = names_of_the_cluster("torchstack-rehearsal-refused")
    systems = (Slurm(), asked_for(), asked_for(resources={"ncpus": 2}))
    assert len({Cluster(Podman(), names, system=system).digest() for system in systems}) == 3
    assert recipe_digest("slurm") != recipe_digest("pbs")
    assert {"slurmctld", "python3"} <= set(packages("slurm"))
    assert {"postgresql", "python3"} <= set(packages("pbs"))
    assert not set(packages("pbs")) & {"slurmctld", "slurmd", "mariadb-server"}


def test_a_site_is_rehearsed_on_the_batch_system_that_is_asked_for():
    plain, on_pbs = of_the_checkout("polaris"), of_the_checkout("polaris", "pbs")
    assert of_the_checkout("polaris", "slurm") == plain
    assert on_pbs.over == (*plain.over, "inventories/rehearsal/polaris/pbs/hosts.yml")
    assert on_pbs.again == "make rehearse SITE=polaris SCHEDULER=pbs"
    with pytest.raises(TroubleError, match=r"SCHEDULER=pbs, as there is no inventories/rehearsal/local/pbs/hosts\.yml"):
        of_the_checkout("local", "pbs")
    with pytest.raises(TroubleError, match="did you mean 'pbs'"):
        of_the_checkout("polaris", "pbss")


@pytest.mark.parametrize("site", sorted(path.parts[-3] for path in REHEARSALS.glob("*/pbs/hosts.yml")))
def test_the_rehearsal_asks_pbs_for_what_the_site_asks_for(site):
    """Queues, sizes, wall times and directives are the site's own, so that its words are what is rehearsed."""
    def read(*place):
        return yaml.safe_load(CHECKOUT.joinpath("inventories", *place, "group_vars", site + ".yml").read_text())

    own, here = read(site), read("rehearsal", site, "pbs")
    jobs = here["torchstack_jobs"]
    options = {**jobs["options"]}
    assert (options.pop("python"), options.pop("bin")) == ("/usr/bin/python3", "/opt/pbs/bin")
    assert (jobs["launcher"], options) == (own["torchstack_jobs"]["launcher"], own["torchstack_jobs"]["options"])
    for step, differs in own["torchstack_jobs"]["steps"].items():
        assert {**jobs["steps"][step], **differs} == jobs["steps"][step]
    system = batch_system_of({"host": here})
    asked = [options, *jobs["steps"].values()]
    assert {options["queue"], *(words["queue"] for words in asked if "queue" in words)} == set(system.data.queues)
    named = filter(None, own.get("torchstack_filesystems", "").split(":"))
    assert set(named) <= set(system.data.required.get("filesystems", ()))
    most = {key: max(words.get(key, 0) for words in asked) for key in ("cores", "gpus")}
    assert most == {"cores": system.data.resources["ncpus"], "gpus": system.data.resources["ngpus"]}


class RefusedError(Exception):
    """What a hook says."""


@pytest.fixture()
def admission(tmp_path, monkeypatch):
    """Run the hook on a job as PBS does, with a stand-in for the module of PBS's; what it refuses with, if it does."""
    configuration = tmp_path / "admission.json"
    configuration.write_text(asked_for().files("control", COMPUTE)["etc/rehearsal/admission.json"])

    def run(who, account, **resources):
        def reject(sentence):
            raise RefusedError(sentence)

        asked = dict.fromkeys(GIVEN["required"])
        job = types.SimpleNamespace(Account_Name=account, Resource_List={**asked, **resources})
        event = types.SimpleNamespace(job=job, requestor=who, reject=reject, accept=lambda: None)
        module = types.SimpleNamespace(hook_config_filename=str(configuration), event=lambda: event)
        monkeypatch.setitem(sys.modules, "pbs", module)
        path = RECIPE / "pbs" / "files" / QUEUEJOB
        exec(compile(path.read_text(), str(path), "exec"), {})

    return run


def test_the_hook_lets_in_who_names_his_account_and_his_file_systems(admission):
    admission("rollout", "staff", filesystems="home:eagle")
    admission("researcher", "science", filesystems="eagle")


@pytest.mark.parametrize("who, account, filesystems, sentence", [
    ("rollout", "science", "home", "Account science is not one that rollout may charge jobs to: qsub -A staff"),
    ("rollout", None, "home", "qsub -A staff"),
    ("rollout", "staff", None, "A job has to name its filesystems: qsub -l filesystems=home:eagle"),
    ("rollout", "staff", "home:grand", "There is no filesystems 'grand': home, eagle"),
    ("nobody", "staff", "home", "Account staff is not one that nobody may charge jobs to"),
])
def test_the_hook_refuses_a_foreign_account_and_a_job_without_file_systems(
    admission, who, account, filesystems, sentence
):
    with pytest.raises(RefusedError) as refused:
        admission(who, account, filesystems=filesystems)
    assert sentence in str(refused.value)
