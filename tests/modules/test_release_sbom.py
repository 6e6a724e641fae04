# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The bill of materials of a release, judged by the format's own validator."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.release import licences, sbom_file, spdx
from ansible_collections.hpcml.torchstack.plugins.module_utils.release.installed import installed
from support import faults, installed_release

VALIDATOR = os.path.join(os.path.dirname(sys.executable), "pyspdxtools")
COMMIT = installed_release.COMMIT


WRITE = """
import json, sys
from ansible_collections.hpcml.torchstack.plugins.modules import release_sbom
asked = {"prefix": sys.argv[1], "resolved": json.loads(sys.argv[2]), "path": None, "planned_after": None}
print(json.dumps(release_sbom.update_document(asked, False)))
"""


@pytest.fixture()
def prefix(tmp_path):
    return tmp_path / "root" / "2026-11-20"


def validate(path):
    """What the format's own validator has to say; empty where there is nothing wrong."""
    process = subprocess.run([VALIDATOR, "-i", str(path)], capture_output=True, text=True, check=False)
    return process.stdout + process.stderr + ("" if process.returncode == 0 else "exit %d" % process.returncode)


def arguments(prefix, resolved):
    return {"prefix": str(prefix), "resolved": resolved}


def by_id(document):
    return {one["SPDXID"]: one for one in document["packages"]}


def relations(document):
    return {
        (one["spdxElementId"], one["relationshipType"], one["relatedSpdxElement"]) for one in document["relationships"]
    }


@pytest.mark.skipif(not os.path.exists(VALIDATOR), reason="needs spdx-tools")
@pytest.mark.parametrize("make", [installed_release.make, installed_release.container])
def test_the_formats_own_validator_finds_nothing(prefix, make):
    broken = sbom_file.make_sbom(str(prefix), make(prefix))
    (prefix / "sbom.spdx.json").write_bytes(sbom_file.as_bytes(broken))
    assert validate(prefix / "sbom.spdx.json") == ""
    broken["packages"][0]["downloadLocation"] = "somewhere"
    (prefix / "broken.spdx.json").write_text(json.dumps(broken))
    assert "download_location" in validate(prefix / "broken.spdx.json")


@pytest.mark.skipif(not os.path.exists(VALIDATOR), reason="needs spdx-tools")
def test_every_licence_that_is_not_quoted_is_on_the_list_of_spdx():
    from license_expression import get_spdx_licensing

    known = get_spdx_licensing()
    wrong = [name for name in licences.IDENTIFIERS if known.validate(name).errors]
    wrong += [name for name in licences.EXCEPTIONS if known.validate("MIT WITH " + name).errors]
    assert wrong == []


def test_check_do_check_again_do_again(run_module, prefix):
    asked = arguments(prefix, installed_release.make(prefix))
    place = prefix / ".torchstack" / "sbom.spdx.json"
    planned = run_module("release_sbom", asked, check=True, diff=True)
    assert planned.changed and not place.exists()
    done = run_module("release_sbom", asked, diff=True)
    assert done.changed and done["packages"] == planned["packages"] == len(json.loads(place.read_text())["packages"])
    assert planned.shown_difference == done.shown_difference
    assert "+Component-nccl 2.21.5" in str(done.shown_difference)
    assert not run_module("release_sbom", asked, check=True).changed
    assert not run_module("release_sbom", asked).changed


def test_killed_at_any_write_the_next_run_completes_it_and_leaves_nothing_else(
    prefix, fault_library, collections_path, tmp_path
):
    resolved = json.dumps(installed_release.container(prefix))
    records = prefix / ".torchstack"
    before = sorted(os.listdir(str(records)))

    def run(fault):
        environment = dict(os.environ, PYTHONPATH=str(collections_path), PYTHONDONTWRITEBYTECODE="1", **fault)
        command = [sys.executable, "-c", WRITE, str(prefix), resolved]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    counted = tmp_path / "calls"
    whole = run(faults.variables(fault_library, "none", faults.CHANGES, records, log=counted))
    assert whole.returncode == 0, whole.stderr
    wanted = (records / "sbom.spdx.json").read_bytes()
    calls = len(counted.read_text().splitlines())
    assert calls >= 4
    for at in range(1, calls + 1):
        (records / "sbom.spdx.json").unlink()
        killed = run(faults.variables(fault_library, "kill", faults.CHANGES, records, at=at))
        assert killed.returncode == -signal.SIGKILL, at
        assert run({}).returncode == 0, at
        assert (records / "sbom.spdx.json").read_bytes() == wanted, at
        assert sorted(os.listdir(str(records))) == sorted([*before, "sbom.spdx.json"]), at
        assert json.loads(run({}).stdout)["changed"] is False


def test_in_a_plan_the_release_may_be_still_to_come(run_module, prefix):
    planned = run_module("release_sbom", dict(arguments(prefix, {}), planned_after="bytecode"), check=True)
    assert planned.changed and planned["planned_after"] == "bytecode"
    refused = run_module("release_sbom", dict(arguments(prefix, {}), planned_after="bytecode"))
    assert refused.failed and "is no release" in refused["msg"]


def test_everything_that_is_installed_is_in_it_with_its_origin(prefix):
    document = sbom_file.make_sbom(str(prefix), installed_release.make(prefix))
    found, related = by_id(document), relations(document)
    assert sorted(found) == [
        "SPDXRef-Component-cuda", "SPDXRef-Component-horovod", "SPDXRef-Component-mpi", "SPDXRef-Component-nccl",
        "SPDXRef-Component-nccl.plugin", "SPDXRef-Component-nccl.tests", "SPDXRef-Component-packages.apex",
        "SPDXRef-Component-packages.tarred", "SPDXRef-Component-pytorch", "SPDXRef-Conda-numpy", "SPDXRef-Conda-python",
        "SPDXRef-File-share-jupyter-kernels-torchstack-kernel.json",
        "SPDXRef-Patch-horovod-0001-first.patch", "SPDXRef-Patch-horovod-0002-second.patch", "SPDXRef-Python-horovod",
        "SPDXRef-Python-numpy", "SPDXRef-Python-pure-thing", "SPDXRef-Python-silent", "SPDXRef-Python-torch",
        "SPDXRef-Release",
    ]
    nccl = found["SPDXRef-Component-nccl"]
    assert nccl["downloadLocation"] == "git+https://github.com/NVIDIA/nccl@" + COMMIT
    assert nccl["externalRefs"][0]["referenceLocator"] == "pkg:github/nvidia/nccl@" + COMMIT
    assert found["SPDXRef-Component-nccl.tests"]["downloadLocation"] == "NOASSERTION"
    assert "file:///shared/nccl-tests.git" in found["SPDXRef-Component-nccl.tests"]["sourceInfo"]
    assert found["SPDXRef-Component-horovod"]["checksums"] == [{"algorithm": "SHA256", "checksumValue": "a" * 64}]
    pure = found["SPDXRef-Python-pure-thing"]
    assert pure["externalRefs"][0]["referenceLocator"] == "pkg:pypi/pure-thing@1%212.0%2Blocal"
    assert pure["checksums"][0]["checksumValue"] == "b" * 64
    for related_so in (
        ("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Release"),
        ("SPDXRef-Patch-horovod-0002-second.patch", "PATCH_APPLIED", "SPDXRef-Component-horovod"),
        ("SPDXRef-Python-horovod", "GENERATED_FROM", "SPDXRef-Component-horovod"),
        ("SPDXRef-Python-torch", "GENERATED_FROM", "SPDXRef-Component-pytorch"),
        ("SPDXRef-Conda-numpy", "CONTAINS", "SPDXRef-Python-numpy"),
        ("SPDXRef-Release", "CONTAINS", "SPDXRef-Conda-numpy"),
        ("SPDXRef-Release", "CONTAINS", "SPDXRef-Component-nccl"),
        ("SPDXRef-Release", "DEPENDS_ON", "SPDXRef-Component-mpi"),
        ("SPDXRef-Release", "DEPENDS_ON", "SPDXRef-Component-cuda"),
    ):
        assert related_so in related
    assert ("SPDXRef-Release", "CONTAINS", "SPDXRef-Component-horovod") not in related
    assert document["creationInfo"]["created"] == "2026-11-20T10:00:00Z"


def test_a_file_of_the_sites_is_a_package_of_its_own_with_the_digest_of_what_lies_there(prefix):
    resolved = installed_release.make(prefix)
    installed_release.site_file(prefix, resolved, "site-packages/sitecustomize.py", "import atexit\n")
    document = sbom_file.make_sbom(str(prefix), resolved)
    kernel = by_id(document)["SPDXRef-File-share-jupyter-kernels-torchstack-kernel.json"]
    place = "base/share/jupyter/kernels/torchstack/kernel.json"
    content = (prefix / place).read_bytes()
    assert str(prefix).encode() in content
    assert kernel["checksums"] == [{"algorithm": "SHA256", "checksumValue": hashlib.sha256(content).hexdigest()}]
    assert (kernel["name"], kernel["packageFileName"]) == (installed_release.KERNEL, place)
    assert kernel["supplier"] == "Organization: mysite" and "file of the site's own" in kernel["sourceInfo"]
    snooper = by_id(document)["SPDXRef-File-site-packages-sitecustomize.py"]
    assert snooper["packageFileName"] == "base/lib/python3.11/site-packages/sitecustomize.py"
    assert ("SPDXRef-Release", "CONTAINS", snooper["SPDXID"]) in relations(document)


def test_without_files_of_the_sites_a_bill_differs_in_nothing_but_them(prefix):
    resolved = installed_release.make(prefix)
    bills = [sbom_file.make_sbom(str(prefix), resolved)]
    del resolved["definition"]["files"]
    bills.append(sbom_file.make_sbom(str(prefix), resolved))
    for bill in bills:
        del bill["documentNamespace"]
        bill["packages"] = [one for one in bill["packages"] if "-File-" not in one["SPDXID"]]
        bill["relationships"] = [one for one in bill["relationships"] if "-File-" not in one["relatedSpdxElement"]]
    assert bills[0] == bills[1]


def test_a_file_of_the_sites_that_is_not_there_is_not_in_it_and_one_that_cannot_be_read_is_named(prefix):
    resolved = installed_release.make(prefix)
    kernel = prefix / "base" / installed_release.KERNEL
    kernel.unlink()
    assert [name for name in by_id(sbom_file.make_sbom(str(prefix), resolved)) if "-File-" in name] == []
    os.mkfifo(str(kernel))
    with pytest.raises(StackError, match=r"kernel\.json cannot be read: it is no regular file"):
        sbom_file.make_sbom(str(prefix), resolved)


WALKED = ("DESCRIBES", "CONTAINS", "DEPENDS_ON", "HAS_PREREQUISITE")
"""What the checker of NTIA's minimum elements follows (ntia-conformance-checker 6.0)."""


@pytest.mark.parametrize("make", [installed_release.make, installed_release.container])
def test_each_package_has_the_minimum_elements_and_hangs_on_the_release_by_what_checkers_walk(prefix, make):
    document = sbom_file.make_sbom(str(prefix), make(prefix))
    for one in document["packages"]:
        assert one["supplier"].startswith(("Person: ", "Organization: ")), one
        assert one["versionInfo"], one
    reached, edges = {"SPDXRef-DOCUMENT"}, [edge for edge in relations(document) if edge[1] in WALKED]
    for _level in edges:
        reached |= {second for first, _how, second in edges if first in reached}
    assert set(by_id(document)) <= reached


def test_what_is_compiled_into_a_pytorch_from_source_is_in_it_with_what_its_libraries_need_of_the_system(prefix):
    resolved = installed_release.make(prefix)
    records, former = prefix / ".torchstack", "9a3a3b148f6971e85ef7bbcc4590f440dd920aa9"
    (records / "pytorch.json").write_text(json.dumps({"version": "2.6.0", "build": {
        # Earlier versions wrote git's letter for the state in front of a commit.
        "submodules": {"third_party/gloo": COMMIT, "third_party/protobuf": " " + former},
        "submodule_urls": {"third_party/gloo": "https://github.com/facebookincubator/gloo.git"}}}))
    system = "/usr/lib/x86_64-linux-gnu/"
    needed = {"libopenblas.so.0": system + "libopenblas.so.0", "libc.so.6": system + "libc.so.6",
              "libmpi.so.12": "/opt/mpich/lib/libmpi.so.12", "libc10.so": "base/lib/libc10.so"}
    torch = "base/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so"
    (records / "verification.json").write_text(json.dumps({"objects": {
        torch: {"needed": {name: {"path": path, "rule": "RPATH"} for name, path in needed.items()}},
        "base/bin/other": {"needed": {"libz.so.1": {"path": system + "libz.so.1"}}}}}))
    resolved["mpi"] = {**resolved["mpi"], "prefix": "/opt/mpich"}
    document = sbom_file.make_sbom(str(prefix), resolved)
    found, source = by_id(document), "SPDXRef-Component-pytorch"
    parts = {name: one for name, one in found.items() if name.startswith("SPDXRef-Part-")}
    assert sorted(parts) == [
        "SPDXRef-Part-pytorch-libopenblas.so.0", "SPDXRef-Part-pytorch-third-party-gloo",
        "SPDXRef-Part-pytorch-third-party-protobuf"]
    gloo = parts["SPDXRef-Part-pytorch-third-party-gloo"]
    assert gloo["externalRefs"][0]["referenceLocator"] == "pkg:github/facebookincubator/gloo@" + COMMIT
    assert gloo["supplier"] == "Organization: facebookincubator"
    assert former in parts["SPDXRef-Part-pytorch-third-party-protobuf"]["sourceInfo"]
    assert system + "libopenblas.so.0" in parts["SPDXRef-Part-pytorch-libopenblas.so.0"]["sourceInfo"]
    assert (source, "CONTAINS", "SPDXRef-Part-pytorch-third-party-gloo") in relations(document)
    assert (source, "DEPENDS_ON", "SPDXRef-Part-pytorch-libopenblas.so.0") in relations(document)


def test_suppliers_are_those_whom_the_metadata_the_channel_and_the_address_name(prefix):
    resolved = installed_release.make(prefix)
    packages = prefix / "base" / "lib" / "python3.11" / "site-packages"
    installed_release.distribution(packages, "authored", "1", author="Jane Doe <jane@example.org>")
    installed_release.distribution(packages, "teamed", "1", author="Example Team <team@example.org>")
    document = sbom_file.make_sbom(str(prefix), resolved)
    named = {name[8:]: one["supplier"] for name, one in by_id(document).items()}
    assert named["Python-authored"] == "Person: Jane Doe"
    assert named["Python-teamed"] == "Organization: Example Team"
    assert named["Conda-numpy"] == "Organization: forge"
    assert named["Component-nccl"] == "Organization: NVIDIA"
    assert named["Component-packages.apex"] == "Organization: gitlab.example.org"
    # Who names nobody, and what the site itself brings.
    assert named["Python-silent"] == named["Component-mpi"] == named["Release"] == "Organization: mysite"


def test_the_wheel_that_was_installed_has_its_checksum_and_no_other_wheel_of_that_version(prefix):
    resolved = installed_release.make(prefix)
    packages = prefix / "base" / "lib" / "python3.11" / "site-packages"
    here, there = "cp311-cp311-manylinux_2_28_x86_64", "cp312-cp312-manylinux_2_28_x86_64"
    for name in ("fast_thing", "twice"):
        installed_release.distribution(packages, name, "1.5", tag=here)
    installed_release.fetched(prefix, "base-fetch", {
        "fast_thing-1.5-%s.whl" % here: "1" * 64, "fast_thing-1.5-%s.whl" % there: "2" * 64,
        "twice-1.5-%s.whl" % here: "3" * 64, "not-a-wheel.txt": "4" * 64})
    installed_release.fetched(prefix, "other-fetch", {"twice-1.5-%s.whl" % here: "5" * 64})
    found = by_id(sbom_file.make_sbom(str(prefix), resolved))
    assert found["SPDXRef-Python-fast-thing"]["checksums"] == [{"algorithm": "SHA256", "checksumValue": "1" * 64}]
    assert found["SPDXRef-Python-fast-thing"]["packageFileName"] == "fast_thing-1.5-%s.whl" % here
    assert "checksums" not in found["SPDXRef-Python-twice"]


def test_distributions_and_conda_packages_depend_on_what_their_metadata_needs_here(prefix):
    resolved = installed_release.make(prefix)
    packages = prefix / "base" / "lib" / "python3.11" / "site-packages"
    installed_release.distribution(packages, "asks", "1", requires=[
        "numpy>=1; python_version >= '3.9'", "silent; sys_platform == 'win32'", "Pure_Thing[fast] (>=1)",
        "absent", "torch; extra == 'gpu'", "silent; a marker of tomorrow"])
    metadata = packages / "Pure_Thing-1!2.0+local.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace(
        "Name:", "Requires-Dist: horovod; extra == 'fast'\nRequires-Dist: silent; extra == 'slow'\nName:", 1))
    record = prefix / "base" / "conda-meta" / "numpy-1.26.4-py311h0.json"
    said = dict(json.loads(record.read_text()), depends=["python >=3.11,<3.12.0a0", "libabsent"])
    record.write_text(json.dumps(said))
    needed = {(one[8:], other[8:]) for one, how, other in relations(sbom_file.make_sbom(str(prefix), resolved))
              if how == "DEPENDS_ON" and one != "SPDXRef-Release"}
    assert needed == {
        ("Python-asks", "Python-numpy"), ("Python-asks", "Python-pure-thing"), ("Python-pure-thing", "Python-horovod"),
        ("Conda-numpy", "Conda-python")}


def test_licences_are_those_that_the_packages_declare(prefix):
    document = sbom_file.make_sbom(str(prefix), installed_release.make(prefix))
    declared = {name: one["licenseDeclared"] for name, one in by_id(document).items()}
    assert declared["SPDXRef-Python-torch"] == "Apache-2.0 AND BSD-3-Clause"
    assert declared["SPDXRef-Python-horovod"] == "Apache-2.0"
    assert declared["SPDXRef-Python-pure-thing"] == "MIT"
    assert declared["SPDXRef-Python-silent"] == "NOASSERTION"
    assert declared["SPDXRef-Conda-python"] == "Python-2.0"
    quoted = {one["licenseId"]: one["extractedText"] for one in document["hasExtractedLicensingInfos"]}
    assert quoted == {declared["SPDXRef-Python-numpy"]: "The package's metadata says: BSD"}


def test_no_credentials_and_no_secrets_are_in_it(prefix):
    text = sbom_file.as_bytes(sbom_file.make_sbom(str(prefix), installed_release.make(prefix))).decode()
    for secret in ("tk-1234567890", "pa55word", "hunter2"):
        assert secret not in text
    assert "HOROVOD_WITH_MPI=1" in text and "git.example.org/plugin.git" in text


def test_the_same_release_elsewhere_gives_the_same_bytes(prefix, tmp_path):
    resolved = installed_release.make(prefix)
    before = sbom_file.as_bytes(sbom_file.make_sbom(str(prefix), resolved))
    moved = tmp_path / "elsewhere" / prefix.name
    moved.parent.mkdir()
    shutil.move(str(prefix), str(moved))
    assert sbom_file.as_bytes(sbom_file.make_sbom(str(moved), resolved)) == before
    built_there = json.loads(json.dumps(resolved).replace(str(prefix.parent), str(moved.parent)))
    for inputs in moved.glob(".torchstack/steps/*/inputs.json"):
        inputs.write_text(inputs.read_text().replace(str(prefix.parent), str(moved.parent)))
    assert sbom_file.as_bytes(sbom_file.make_sbom(str(moved), built_there)) == before
    assert str(tmp_path) not in before.decode()


def test_the_namespace_follows_from_the_content(prefix):
    resolved = installed_release.make(prefix)
    said = installed(str(prefix), resolved)
    first = spdx.document(said, "2026-11-20T10:00:00Z")
    assert first == spdx.document(said, "2026-11-20T10:00:00Z")
    said["python"][0]["version"] += ".post1"
    assert spdx.document(said, "2026-11-20T10:00:00Z")["documentNamespace"] != first["documentNamespace"]


def test_of_a_container_the_image_is_named_by_its_checksum(prefix):
    document = sbom_file.make_sbom(str(prefix), installed_release.container(prefix))
    found = by_id(document)
    assert found["SPDXRef-Component-image"]["packageFileName"] == "pytorch.sif"
    assert found["SPDXRef-Component-image"]["checksums"][0]["checksumValue"] == "e" * 64
    assert ("SPDXRef-Component-image", "CONTAINS", "SPDXRef-Component-pytorch") in relations(document)
    assert "SPDXRef-Python-einops" in found


def test_what_software_of_users_depends_on_is_named(prefix):
    assert installed(str(prefix), installed_release.make(prefix))["libraries"] == {
        "cuda": "12.1", "libmpi": "libmpi_gnu_91.so.12", "libnccl": "libnccl.so.2", "mpi": "CRAY MPICH 8.1.28.29",
        "nccl": "2.21.5", "numpy": "1.26.4", "python": "3.11", "torch": "2.3.1",
    }


def test_places_that_depend_on_the_root_are_named_by_words(prefix):
    found = installed(str(prefix), installed_release.make(prefix))
    assert found["runtime"]["setenv"]["CONDA_PREFIX"] == "{prefix}/base"
    assert found["runtime"]["prepend"]["PATH"] == ["{prefix}/base/bin", "/opt/cuda/bin"]
    assert {one["key"]: one["flags"] for one in found["components"]}["pytorch"] == {
        "CUDNN_LIBRARY": "{prefix}/base/lib", "USE_CUDA": "1"}


def test_a_named_pipe_in_the_place_of_a_record_is_not_waited_for(prefix):
    resolved = installed_release.make(prefix)
    (prefix / ".torchstack" / "pytorch.json").unlink()
    os.mkfifo(str(prefix / ".torchstack" / "pytorch.json"))
    with pytest.raises(StackError, match=r"pytorch\.json cannot be read: it is no regular file"):
        sbom_file.make_sbom(str(prefix), resolved)


def test_a_record_that_cannot_be_read_is_named(prefix):
    resolved = installed_release.make(prefix)
    (prefix / "base" / "conda-meta" / "numpy-1.26.4-py311h0.json").write_text("{")
    with pytest.raises(StackError) as caught:
        sbom_file.make_sbom(str(prefix), resolved)
    assert "numpy-1.26.4-py311h0.json cannot be read" in caught.value.message
