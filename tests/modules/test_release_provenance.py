# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Where a release comes from: stated by its freeze, signed by ssh-keygen, verified elsewhere and by publish."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import types

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import signatures
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.release import provenance, provenance_file, sbom_file
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import manifest
from support import installed_release, published_release

COMMAND = pathlib.Path(__file__).resolve().parent.parent.parent / "bin" / "verify-release"
VERSION = "2026-11-1"
DIGEST = "d" * 64

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")


def make_key(path, *, comment="x", passphrase=""):
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", comment, "-f", str(path)], check=True)
    return path


@pytest.fixture(scope="session")
def keys(tmp_path_factory):
    """The site's key, one with a passphrase, a stranger's, and the file that allows the first two."""
    top = tmp_path_factory.mktemp("keys")
    ours, locked = make_key(top / "ours"), make_key(top / "locked", passphrase="a secret one")
    allowed = top / "allowed_signers"
    allowed.write_text("".join(
        "%s namespaces=\"%s\" %s" % (name, provenance.NAMESPACE, key.with_suffix(".pub").read_text())
        for name, key in (("builds@mysite.example.org", ours), ("locked@mysite.example.org", locked))))
    return types.SimpleNamespace(ours=ours, locked=locked, strange=make_key(top / "strange"), allowed=allowed)


@pytest.fixture()
def world(tmp_path):
    """A root with a release that has one of everything, frozen and accepted."""
    root = tmp_path / "root"
    prefix = root / VERSION
    resolved = installed_release.make(prefix)
    published_release.stage(root, VERSION)
    sbom_file.write(sbom_file.sbom_path(str(prefix)), sbom_file.as_bytes(sbom_file.make_sbom(str(prefix), resolved)))
    record = prefix / ".torchstack" / "manifest.json"
    done = manifest.record(manifest.Request(str(prefix), str(root), str(record)), True)
    published_release.record_manifest(root, VERSION, done)
    return types.SimpleNamespace(
        root=root, prefix=prefix, record=record, statement=root / ".torchstack" / VERSION / "provenance.json",
        signature=root / ".torchstack" / VERSION / "provenance.json.sig")


def arguments(world, keys=None, **more):
    asked = {"root": str(world.root), "release": VERSION, "digest": DIGEST, "builder": "hpcml.torchstack:mysite"}
    if keys is not None:
        asked.update(key=str(keys.ours), allowed_signers=str(keys.allowed))
    return {**asked, **more}


def state(world, keys=None, **more):
    """Write the statement, without Ansible."""
    asked = arguments(world, keys, **more)
    return provenance_file.update(provenance_file.Request(
        asked["root"], asked["release"], asked["digest"], asked["builder"], asked.get("key", ""),
        asked.get("allowed_signers", "")), apply=True)


def verify(prefix, *more, cwd="/"):
    """The exit code of bin/verify-release, and what it says."""
    process = subprocess.run(
        [str(COMMAND), str(prefix), *map(str, more)], capture_output=True, text=True, check=False, cwd=str(cwd))
    return process.returncode, process.stdout + process.stderr


@pytest.fixture()
def elsewhere(world, keys, tmp_path):
    """A copy of a signed release, as on another machine: another place, the statement beside it."""
    state(world, keys)
    shutil.copytree(str(world.prefix), str(tmp_path / "elsewhere" / "copy"), symlinks=True)
    for path in (world.statement, world.signature):
        shutil.copy2(str(path), str(tmp_path / "elsewhere"))
    copy = tmp_path / "elsewhere" / "copy"
    return types.SimpleNamespace(
        prefix=copy, statement=tmp_path / "elsewhere" / "provenance.json",
        signature=tmp_path / "elsewhere" / "provenance.json.sig", record=copy / ".torchstack" / "manifest.json",
        asked=("--statement", tmp_path / "elsewhere" / "provenance.json", "--allowed-signers", keys.allowed))


def test_the_statement_is_in_totos_with_slsas_provenance_and_has_inputs_by_digest_and_steps(world):
    state(world)
    statement = json.loads(world.statement.read_text())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    assert statement["subject"] == [{"name": VERSION + "/.torchstack/manifest.json", "digest": {
        "sha256": subprocess.run(
            ["sha256sum", str(world.record)], capture_output=True, text=True, check=True).stdout.split()[0]}}]
    build = statement["predicate"]["buildDefinition"]
    inputs = {one["name"]: one for one in build["resolvedDependencies"]}
    assert all(one["digest"] for one in inputs.values())
    commits = {one["digest"].get("gitCommit") for one in inputs.values()}
    assert installed_release.COMMIT in commits
    assert any(name.startswith("0001-first.patch") for name in inputs)
    assert VERSION + "/.torchstack/release.yml" in inputs
    assert [step["name"] for step in build["internalParameters"]["steps"]][-1] == "horovod"
    assert build["externalParameters"] == {"release": VERSION, "digest": DIGEST}
    assert statement["predicate"]["runDetails"]["builder"]["id"] == "hpcml.torchstack:mysite"


def test_it_is_written_once_planned_before_and_the_same_again(run_module, world, keys):
    asked = arguments(world, keys)
    planned = run_module("release_provenance", asked, check=True, diff=True)
    assert planned.changed and not world.statement.exists()
    done = run_module("release_provenance", asked, diff=True)
    assert done.changed and done["signer"] == "builds@mysite.example.org" and world.signature.exists()
    assert planned.shown_difference == done.shown_difference
    before = world.statement.read_bytes(), world.signature.read_bytes()
    assert not run_module("release_provenance", asked, check=True).changed
    again = run_module("release_provenance", asked)
    assert not again.changed and again["signer"] == done["signer"]
    assert before == (world.statement.read_bytes(), world.signature.read_bytes())


def test_in_a_plan_the_release_may_be_still_to_come(run_module, tmp_path):
    asked = {"root": str(tmp_path), "release": "new", "digest": DIGEST, "builder": "b:c"}
    assert run_module("release_provenance", dict(asked, planned_after="bytecode"), check=True).changed
    refused = run_module("release_provenance", asked)
    assert refused.failed and "Freeze the release first" in refused["msg"]


def test_whether_a_key_can_sign_is_known_before_anything_is_built(run_module, tmp_path, keys):
    asked = {"root": str(tmp_path), "release": "new", "state": "signable", "allowed_signers": str(keys.allowed)}
    assert not run_module("release_provenance", dict(asked, key=str(keys.ours)), check=True).failed
    refused = run_module("release_provenance", dict(asked, key=str(tmp_path / "none")))
    assert refused.failed and "is not there" in refused["msg"]


def test_a_key_with_a_passphrase_is_refused_and_nothing_waits_for_one(world, keys):
    with pytest.raises(StackError, match="Nothing can be signed") as refusal:
        state(world, keys, key=str(keys.locked))
    assert "without a passphrase" in refusal.value.remedy
    assert not world.statement.exists()


def test_the_public_part_of_a_key_signs_through_the_accounts_agent(world, keys, tmp_path, monkeypatch):
    if shutil.which("ssh-agent") is None:
        pytest.skip("needs ssh-agent")
    socket = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL) as agent:
        try:
            monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
            subprocess.run(["bash", "-c", "until [ -S \"$1\" ]; do sleep 0.1; done", "-", str(socket)], check=True)
            subprocess.run(["ssh-add", "-q", str(keys.ours)], check=True, stderr=subprocess.DEVNULL)
            public = tmp_path / "ours.pub"
            shutil.copy(str(keys.ours.with_suffix(".pub")), str(public))
            assert state(world, keys, key=str(public))["signer"] == "builds@mysite.example.org"
        finally:
            agent.terminate()


def test_a_signer_whom_the_site_does_not_allow_signs_nothing(world, keys):
    with pytest.raises(StackError, match="signed by nobody whom"):
        state(world, keys, key=str(keys.strange))
    assert not world.signature.exists()


def test_what_changes_the_release_makes_a_new_statement_and_no_old_signature_stays_beside_it(world, keys):
    state(world, keys)
    frozen = world.root / ".torchstack" / VERSION / "frozen.json"
    frozen.write_text(json.dumps(dict(
        json.loads(frozen.read_text()), thawed=1, refrozen_at="2026-12-01T00:00:00Z")))
    assert state(world)["changed"] and not world.signature.exists()
    statement = json.loads(world.statement.read_text())
    assert statement["predicate"]["buildDefinition"]["internalParameters"]["thaws"] == 1
    assert state(world, keys)["signer"] == "builds@mysite.example.org"


def test_another_machine_verifies_signature_manifest_and_files(elsewhere):
    code, said = verify(elsewhere.prefix, *elsewhere.asked)
    assert (code, said.count("\n")) == (0, 1)
    assert "is release %s as" % VERSION in said and "signed by builds@mysite.example.org" in said


def test_paths_are_from_where_the_command_is_typed(elsewhere, keys):
    shutil.copy(str(keys.allowed), str(elsewhere.prefix.parent / "signers"))
    code, said = verify(
        "copy", "--statement", "provenance.json", "--allowed-signers", "signers", cwd=elsewhere.prefix.parent)
    assert code == 0, said


def change_a_file(copy):
    target = copy.prefix / "base" / "lib" / "python3.11" / "site-packages" / "torch-2.3.1.dist-info" / "METADATA"
    target.write_bytes(target.read_bytes().replace(b"2.3.1", b"6.6.6"))


def add_a_file(copy):
    (copy.prefix / "base" / "sitecustomize.py").write_text("import os\n")


def make_one_writable(copy):
    (copy.prefix / ".torchstack" / "release.yml").chmod(0o666)


def change_the_manifest_with_the_file(copy):
    change_a_file(copy)
    copy.record.unlink()
    manifest.record(manifest.Request(str(copy.prefix), str(copy.prefix.parent), str(copy.record)), True)


def change_all_three(copy):
    change_the_manifest_with_the_file(copy)
    wanted = json.loads(copy.statement.read_text())
    wanted["subject"][0]["digest"]["sha256"] = provenance.sha256_of(str(copy.record))
    copy.statement.write_bytes(provenance.as_bytes(wanted))


def remove_the_signature(copy):
    copy.signature.unlink()


def damage_the_signature(copy):
    copy.signature.write_text(copy.signature.read_text()[:100])


@pytest.mark.parametrize(("attack", "sentence"), [
    (change_a_file, r"is not as .*manifest\.json has it \(1 content\), first .*METADATA"),
    (add_a_file, r"\(1 added\), first base/sitecustomize\.py"),
    (make_one_writable, r"\(1 mode\), first \.torchstack/release\.yml"),
    (change_the_manifest_with_the_file, r"The manifest .*manifest\.json is not the one that .* was written for"),
    (change_all_three, r"signature does not hold: .*incorrect signature"),
    (remove_the_signature, r"is not signed: there is no .*provenance\.json\.sig"),
    (damage_the_signature, r"signature does not hold: Couldn't parse signature"),
])
def test_what_does_not_hold_is_refused_in_one_sentence(elsewhere, attack, sentence):
    attack(elsewhere)
    code, said = verify(elsewhere.prefix, *elsewhere.asked)
    assert code == 1 and said.count("\n") == 1 and re.search(sentence, said), said


def test_a_strangers_signature_is_no_signature(elsewhere, keys):
    made = signatures.sign(elsewhere.statement.read_bytes(), str(keys.strange), provenance.NAMESPACE)
    elsewhere.signature.write_bytes(made)
    code, said = verify(elsewhere.prefix, *elsewhere.asked)
    assert code == 1 and "was signed by nobody whom %s names" % keys.allowed in said


def test_a_signature_that_was_made_for_another_purpose_is_none(elsewhere, keys):
    elsewhere.signature.write_bytes(signatures.sign(elsewhere.statement.read_bytes(), str(keys.ours), "git"))
    code, said = verify(elsewhere.prefix, *elsewhere.asked)
    assert code == 1 and "signature does not hold" in said


def test_what_is_no_statement_is_said(elsewhere, keys):
    elsewhere.statement.write_text("[]")
    code, said = verify(elsewhere.prefix, "--statement", elsewhere.statement, "--unsigned")
    assert code == 1 and "is no statement of where a release comes from" in said


def test_nobody_is_believed_by_accident(elsewhere):
    assert verify(elsewhere.prefix, "--statement", elsewhere.statement)[0] == 2
    code, said = verify(elsewhere.prefix, "--statement", elsewhere.statement, "--unsigned")
    assert code == 0 and "its signature was not asked for" in said


def test_a_machine_without_openssh_says_so(elsewhere, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
    process = subprocess.run(
        [python, "-I", str(COMMAND), str(elsewhere.prefix), *map(str, elsewhere.asked)], capture_output=True, text=True,
        check=False)
    assert process.returncode == 1 and "No signature can be verified here" in process.stderr


def publish(run_module, world, **more):
    return run_module("modulefile_publish", {
        "root": str(world.root), "release": VERSION, "visible": True, "default": True, **more})


def test_publish_takes_a_release_that_is_as_it_was_frozen_and_signed(run_module, world, keys):
    state(world, keys)
    done = publish(run_module, world, allowed_signers=str(keys.allowed))
    assert done.changed and not done.failed


@pytest.mark.parametrize(("attack", "sentence"), [
    (change_the_manifest_with_the_file, "is not the one that was recorded when the release was frozen"),
    (change_a_file, "(1 content), first base/lib/"),
    (add_a_file, "(1 added), first base/sitecustomize.py"),
    (make_one_writable, "(1 mode), first .torchstack/release.yml"),
    (lambda world: world.record.unlink(), "has lost its manifest"),
])
def test_publish_refuses_a_release_that_is_not_as_it_was_frozen(run_module, world, attack, sentence):
    state(world)
    attack(world)
    refused = publish(run_module, world)
    assert refused.failed and sentence in refused["msg"]
    assert not (world.root / "modulefiles").exists()


def test_a_changed_release_is_not_shown_to_testers_or_in_a_plan_either(run_module, world):
    change_a_file(world)
    asked = {"root": str(world.root), "release": VERSION}
    for refused in (run_module("modulefile_publish", {**asked, "state": "hidden"}),
                    run_module("modulefile_publish", {**asked, "visible": True}, check=True)):
        assert refused.failed and "(1 content), first base/lib/" in refused["msg"]
        assert "playbooks/drift.yml names what was changed" in refused["msg"]
    assert not (world.root / "modulefiles").exists()


def test_who_asks_for_what_users_see_already_is_told_of_a_change_and_a_rollout_does_not_look(run_module, world):
    assert publish(run_module, world).changed
    assert not publish(run_module, world).failed
    change_a_file(world)
    for more in ({}, {"default": False}):
        refused = publish(run_module, world, **more)
        assert refused.failed and "(1 content), first base/lib/" in refused["msg"]
    again = publish(run_module, world, first_only=True)
    assert not again.failed and not again.changed


def test_a_rollback_to_a_release_on_its_way_out_says_so(run_module, world):
    assert publish(run_module, world).changed
    published_release.stage(world.root, "2026-12-01")
    assert publish(run_module, world, release="2026-12-01").changed
    told = run_module("modulefile_publish", {
        "root": str(world.root), "release": VERSION, "state": "deprecated", "notice": "It goes, load 2026-12-01."})
    assert told.changed
    asked = {"root": str(world.root), "state": "rolled_back"}
    planned = run_module("modulefile_publish", asked, check=True)
    done = run_module("modulefile_publish", asked)
    for found in (planned, done):
        said = "The default is torchstack/%s now, which is on its way out, and loading it says: It goes" % VERSION
        assert found["summary"][-1].startswith(said) and "publish_to=default" in found["summary"][-1]
    assert done["default"] == {"tcl": VERSION, "lmod": VERSION}


@pytest.mark.parametrize(("attack", "sentence"), [
    (lambda world: world.statement.unlink(), "has no statement of where it comes from"),
    (remove_the_signature, "is not signed"),
    (damage_the_signature, "signature does not hold"),
])
def test_publish_refuses_what_nobody_whom_the_site_allows_has_signed(run_module, world, keys, attack, sentence):
    state(world, keys)
    attack(world)
    refused = publish(run_module, world, allowed_signers=str(keys.allowed))
    assert refused.failed and sentence in refused["msg"]
    assert not (world.root / "modulefiles").exists()
    # Who asks for no signature needs none.
    assert not publish(run_module, world).failed


def test_publish_refuses_the_signed_statement_of_another_release(run_module, world, keys):
    state(world, keys)
    other = json.loads(world.statement.read_text())
    other["subject"][0]["name"] = "2026-10-01/.torchstack/manifest.json"
    world.statement.write_bytes(provenance.as_bytes(other))
    world.signature.write_bytes(signatures.sign(world.statement.read_bytes(), str(keys.ours), provenance.NAMESPACE))
    refused = publish(run_module, world, allowed_signers=str(keys.allowed))
    assert refused.failed and "is about release 2026-10-01" in refused["msg"]


def test_a_default_is_taken_back_from_a_release_whatever_became_of_it(run_module, world):
    assert publish(run_module, world).changed
    add_a_file(world)
    back = run_module("modulefile_publish", {"root": str(world.root), "state": "rolled_back"})
    assert back.changed and not back.failed
    os.unlink(str(world.prefix / "base" / "sitecustomize.py"))
