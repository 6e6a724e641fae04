# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The states of release_context; what each one composes is tested beside module_utils/definition."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.action import release_context
from ansible_collections.hpcml.torchstack.plugins.action.release_context import STATES, Request
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.control_action import RefusedError

SITE = {
    "root": "/soft", "release": "r", "site": "mysite", "file": "r.yml", "python": "python3", "account": "",
    "builds": "", "mirror": "/mirror", "proxy": {}, "conda_channels": [], "conda_mirrors": {}, "runtime_settings": [],
    "module_init": "", "module_path": [], "module_system": "auto",
    "compilers": [], "jobs": {}, "ranks": {}, "acceptance": {}, "images": "",
    "container": {}, "topology": {},
}
DEFINITION = {
    "release": "r", "base": {"kind": "python_overlay", "minimum": "3.11"}, "locks": {"tools": ""},
    "mpi": {"prefix": "${MPI}", "allow_path": True},
    "toolchain": {"modules": ["gcc", "mpi"], "steps": {"nccl": {"modules": ["gcc"]}}},
}
NEW = {"content": None, "frozen": None, "freezing": None, "thawed": None, "retired": None, "subject": None}
ANSWER = {"loaded": [], "environment": {}, "set": {"MPI": "/opt/mpi"}, "unset": []}
MODULES = {"purged": dict(ANSWER, set={}), "loaded": ANSWER}
PREFLIGHT = {
    "python": {"executable": "/usr/bin/python3", "minor": "3.11", "tag": "cp311", "platform": "linux_x86_64"},
    "compilers": {}, "mpi": {"provider": "wheel"},
}


def call(state, submits=True, **options):
    asked = {"site": SITE, "records": NEW, "definition": DEFINITION, "digest": "d", "modules": MODULES, **options}
    return STATES[state](Request(asked, submits))


def test_checked_says_which_modules_are_asked_and_refuses_what_cannot_be_used():
    assert call("checked") == {
        "frozen": False, "freezing": False, "modules": ["gcc", "mpi"], "setup": "",
        "step_modules": [{"step": "nccl", "modules": ["gcc"]}]}
    frozen = call("checked", records=dict(NEW, frozen={"digest": "d"}, subject="d"))
    assert (frozen["frozen"], frozen["modules"], frozen["step_modules"]) == (True, [], [])
    wrong = dict(SITE, jobs={"launcher": "slrum"}, builds="x")
    with pytest.raises(RefusedError, match=r"did you mean 'slurm'.* torchstack_cache of site mysite is 'x'"):
        call("checked", site=wrong)
    charged = dict(SITE, jobs={"launcher": "slurm"})
    with pytest.raises(RefusedError, match="Set TORCHSTACK_ACCOUNT"):
        call("checked", site=charged)
    assert call("checked", submits=False, site=charged)["frozen"] is False


def test_planned_says_what_to_look_for_and_refuses_variables_that_no_module_sets():
    found = call("planned")
    assert found["mpi"]["prefix"] == found["expanded"]["mpi"]["prefix"] == "/opt/mpi"
    assert found["modules_environment"] == {"MPI": "/opt/mpi"} and found["python"]["command"] == "python3"
    with pytest.raises(RefusedError, match=r"'mpi.prefix' in r.yml has \$\{MPI\}, which none of the modules"):
        call("planned", modules=dict(MODULES, loaded=dict(ANSWER, set={})))


def test_opened_has_the_resolved_release_file_and_the_context_of_a_rollout():
    found = call("opened", series={}, preflight=PREFLIGHT)
    assert found["resolved"]["digest"] == "d" and found["resolved"]["definition"]["mpi"]["prefix"] == "/opt/mpi"
    assert found["context"]["mirror"]["directory"] == "/mirror" and found["context"]["proxy"] == {}
    assert found["context"]["prefix"] == "/soft/r"


def test_a_frozen_release_and_a_later_play_have_the_context_of_the_records():
    records = dict(NEW, content="digest: d\nrelease: r\ndefinition: {}\n", frozen={"digest": "d"}, subject="s")
    found = call("opened", records=records, modules={}, series={}, preflight={})
    assert found["context"]["definition"] == {} and found["context"]["subject"] == "s"
    later = call("recorded", records=records, definition=None, modules=None, digest="")["context"]
    assert later == {key: value for key, value in found["context"].items() if key in later}
    assert "mirror" not in later and "proxy" not in later


@pytest.mark.parametrize("records, said", [
    (NEW, "Release r was never opened below /soft"),
    (dict(NEW, retired={"state": "removing", "since": "2026-11-20T1"}), "was retired on 2026-11-20: there is nothing"),
])
def test_what_is_not_there_has_no_context(records, said):
    with pytest.raises(RefusedError, match=said):
        call("recorded", records=records)


def test_the_states_are_those_of_the_documentation():
    import yaml
    from ansible_collections.hpcml.torchstack.plugins.modules import release_context as documented

    options = yaml.safe_load(documented.DOCUMENTATION)["options"]
    assert list(STATES) == options["state"]["choices"]
    assert release_context.ActionModule._requires_connection is False
