# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the role nccl_ofi refuses before it builds anything, and what it lets through."""

from __future__ import annotations

import copy
import pathlib
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.modules import nccl_ofi_preflight, nccl_ofi_record
from support.role_plays import play_tasks

SOURCES = pathlib.Path(__file__).parents[2] / "rehearsal" / "sources"
NCCL = {
    "version": "2.21.5", "repository": "https://git.invalid/nccl", "tag": "v2.21.5-1", "commit": "0" * 40,
    "plugin": {"version": "1.6.0", "repository": "https://git.invalid/aws-ofi-nccl", "commit": "1" * 40},
}


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """Where a toolkit and a libfabric of this version lie that were made for tests."""
    place = tmp_path_factory.mktemp("machine")
    for name, version in (("cuda", "12.2.1"), ("libfabric", "1.15.2.0")):
        subprocess.run(
            ["make", "--silent", "-C", str(SOURCES / name), "install", "PREFIX=%s" % (place / name),
             "VERSION=%s" % version], check=True)
    return place


def asked(machine, release, **plugin):
    """An open release that asks for NCCL with this plugin."""
    nccl = copy.deepcopy(NCCL)
    nccl["accept"] = plugin.pop("accept", [])
    nccl["plugin"].update({"libfabric": str(machine / "libfabric"), **plugin})
    cuda = {"version": "12.2", "prefix": str(machine / "cuda"), "architectures": ["8.0"]}
    (release / ".torchstack" / "steps").mkdir(parents=True, exist_ok=True)
    return {
        "frozen": False, "prefix": str(release), "records": str(release / ".torchstack"),
        "tools": str(release / "tools"), "compilers": {"CC": "cc", "CXX": "c++"},
        "definition": {"nccl": nccl, "cuda": cuda},
    }


def play(tasks_from, context, environment, directory):
    """Run tasks of the role; the exit code, and what was printed in one line."""
    process = play_tasks("nccl_ofi", tasks_from, {"release_context": "{{ case }}"}, [context], environment, directory)
    return process.returncode, " ".join(process.stdout.split())


def test_s20_an_unsupported_trio_is_refused_before_anything_is_built(machine, tmp_path, ansible_environment):
    release = tmp_path / "release"
    context = asked(machine, release, version="1.9.1-aws", hwloc=str(machine / "nowhere"))
    code, said = play("main", context, ansible_environment, tmp_path)
    assert code != 0
    assert "aws-ofi-nccl 1.9.1-aws is documented to need libfabric 1.18.0 or newer" in said
    assert "has 1.15.2.0" in said and "needs hwloc" in said and "Nothing was built." in said
    assert [str(path.relative_to(release)) for path in release.rglob("*")] == [".torchstack", ".torchstack/steps"]


def test_s20_what_the_release_file_accepts_with_a_reason_is_told_and_let_through(
    machine, tmp_path, ansible_environment,
):
    accept = [{"problem": name, "reason": "It ran here for a year."} for name in ("libfabric", "hwloc", "untested")]
    context = asked(machine, tmp_path / "release", version="1.9.1-aws", hwloc=str(machine / "nowhere"), accept=accept)
    code, said = play("preflight", context, ansible_environment, tmp_path)
    assert code == 0, said


def test_where_nothing_else_is_for_gpus_the_toolkit_of_nccl_is_judged(machine, tmp_path, ansible_environment):
    accept = [{"problem": "untested", "reason": "It ran here for a year."}]
    context = asked(machine, tmp_path / "release", accept=accept)
    definition = context["definition"]
    definition["nccl"]["cuda"] = definition.pop("cuda")
    code, said = play("preflight", context, ansible_environment, tmp_path)
    assert code == 0, said
    definition["nccl"]["cuda"]["version"] = "12.4"
    code, said = play("preflight", context, ansible_environment, tmp_path)
    assert code != 0
    assert "CUDA 12.4 is asked for" in said


@pytest.mark.parametrize(("entry", "words"), [
    ({"problem": "libfabrik", "reason": "It ran here."}, "nccl.accept says 'libfabrik'."),
    ({"problem": "libfabric", "reason": ""}, "nccl.accept says 'libfabric' without a reason."),
])
def test_s20_nothing_is_accepted_by_a_wrong_name_or_without_a_reason(entry, words):
    with pytest.raises(StackError) as raised:
        nccl_ofi_preflight.accepted({"accept": [entry]})
    assert raised.value.message == words
    assert raised.value.remedy.startswith("Give one of api, libfabric, cuda, hwloc, untested, and the reason")


def test_a_plan_does_not_judge_what_is_to_be_built_again(tmp_path):
    for name in ("lib/libnccl.so.2", "lib/libnccl-net.so"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"of the version before")
    given = {name: option.get("default") for name, option in nccl_ofi_record.SPEC.items()}
    given.update(prefix=str(tmp_path), path=str(tmp_path / "nccl.json"), version="2.27.7", planned_after="nccl-plugin")
    assert nccl_ofi_record.record(given, True) == {"changed": True, "planned_after": "nccl-plugin"}
    for check, planned_after in ((True, ""), (False, "nccl-plugin")):
        with pytest.raises(StackError):
            nccl_ofi_record.record(dict(given, planned_after=planned_after), check)
    assert not (tmp_path / "nccl.json").exists()
