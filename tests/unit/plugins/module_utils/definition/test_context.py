# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What every role after the role release works from."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import context

SITE = {
    "root": "/soft", "release": "r", "site": "mysite", "file": "r.yml", "builds": "", "mirror": "", "proxy": {"a": "b"},
    "jobs": {"launcher": "slurm"}, "ranks": {}, "acceptance": {"import_ceiling": 3}, "module_init": "/init",
    "module_path": [], "module_system": "auto", "conda_channels": [], "conda_mirrors": {}, "runtime_settings": [],
}
NOTHING = {"frozen": None, "freezing": None, "thawed": None, "subject": None, "record": {}}
DEFINITION = {
    "base": {"kind": "python_overlay"}, "locks": {"tools": ""}, "mpi": {"prefix": "${MPI}"},
    "toolchain": {"modules": ["mpi"]}, "module": {"depends_on": ["mpi"]},
}
PYTHON = {"executable": "/usr/bin/python3", "minor": "3.11", "tag": "cp311", "platform": "linux_x86_64"}
MPI = {"provider": "named", "prefix": "/opt/mpi", "bin": "/opt/mpi/bin", "cc": "mpicc"}
MODULES = {
    "purged": {"loaded": [], "set": {}, "unset": [], "environment": {}},
    "loaded": {"set": {"MPI": "/opt/mpi"}, "unset": [], "environment": {}},
}


def place(digest="d", site=None, **records):
    return context.describe_place(dict(SITE, **(site or {})), {**NOTHING, **records}, digest)


def test_a_release_lies_below_its_root_and_what_is_kept_beside_all_of_them():
    assert place() == {
        "root": "/soft", "prefix": "/soft/r", "records": "/soft/r/.torchstack", "builds": "/soft/.torchstack/builds",
        "downloads": "/soft/.torchstack/builds", "afterwards": "/soft/.torchstack/r", "frozen": False,
        "freezing": False, "thawed": False, "subject": "d",
    }
    assert place(site={"builds": "none"})["builds"] == ""
    kept = place(site={"builds": "/kept", "mirror": "/mirror"})
    assert (kept["builds"], kept["downloads"]) == ("/kept", "")


@pytest.mark.parametrize("records, digest, frozen, freezing, subject", [
    ({"frozen": {"digest": "d"}, "subject": "s"}, "d", True, False, "s"),
    ({"freezing": {"digest": "d"}}, "d", True, True, "d"),
    ({"freezing": {"digest": "other"}}, "d", False, False, "d"),
    ({"freezing": {"digest": "other"}, "record": {"digest": "c"}}, "", True, True, "c"),
])
def test_a_freeze_that_was_interrupted_is_completed_unless_something_else_is_asked_for(
    records, digest, frozen, freezing, subject
):
    found = place(digest, **records)
    assert (found["frozen"], found["freezing"], found["subject"]) == (frozen, freezing, subject)


def resolved(mpi):
    return context.resolve_release(
        SITE, {}, DEFINITION, {"horovod": "s"}, "d", MODULES,
        {"python": PYTHON, "compilers": {"CC": "cc"}, "mpi": mpi, "facts": {"compilers": {"CC": {"banner": "cc 1"}}}})


def test_the_resolved_release_file_has_what_was_asked_for_and_what_was_found():
    found = resolved(MPI)
    assert list(found) == [
        "release", "site", "digest", "tools", "base", "python", "compilers", "compiler_versions", "mpi", "series",
        "module", "runtime_settings", "definition", "written"]
    assert found["definition"]["mpi"]["prefix"] == "/opt/mpi" and found["written"] == {"mpi.prefix": "${MPI}"}
    assert found["compiler_versions"] == {"CC": "cc 1"} and found["tools"] == found["base"]["tools"]
    assert found["module"]["prepend"][0] == {"name": "PATH", "values": ["/soft/r/base/bin"]}, "a module brings the MPI"


def test_the_mpi_of_a_wheel_is_in_the_release():
    assert resolved({"provider": "wheel"})["mpi"] == {
        "provider": "wheel", "prefix": "/soft/r/base", "bin": "/soft/r/base/bin", "cc": "/soft/r/base/bin/mpicc",
        "cxx": "/soft/r/base/bin/mpicxx", "launcher": "/soft/r/base/bin/mpiexec"}


def test_a_rollout_knows_more_than_a_play_that_comes_later():
    opened = resolved(MPI)
    later = context.compose(SITE, opened, place())
    assert later["jobs"]["launcher"] == "slurm" and later["ranks"]["in_job"] is True
    assert later["toolchain"]["module_init"] == "/init" and later["acceptance"] == {"import_ceiling": 3}
    assert later["definition"] == opened["definition"] and later["prefix"] == "/soft/r"
    rollout = {"mirror": {"directory": ""}, "modules_environment": {"MPI": "/opt/mpi"}}
    found = context.compose(SITE, opened, place(), rollout)
    assert found == {**later, **rollout, "proxy": {"a": "b"}}
    found["base"]["search"]["PATH"].append("x")
    assert opened == resolved(MPI), "what a role changes is its own"
