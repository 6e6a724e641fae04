# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What changed from one release to the next, asked of `git diff`, bin/compare, the notice and the bill of materials."""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.packages import canonical
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import notice_document
from ansible_collections.hpcml.torchstack.plugins.module_utils.release import sbom_file
from support import installed_release, notice_releases

OLD, NEW = notice_releases.OLD, notice_releases.NEW
COMMAND = pathlib.Path(__file__).resolve().parents[2] / "bin" / "compare"
METADATA = re.compile(r"/([^/]+)-([^/-]+)[.]dist-info(/|$)")

EXPECTED = {
    (canonical(name), before, after) for name, _change, before, after in notice_releases.DIFFERENT_PACKAGES}
"""Each package that differs, with its version before and after; empty where it is not there."""


def changes(before, after):
    """What is another version, or on one side only, of two sets of pairs."""
    old, new = dict(before - after), dict(after - before)
    return {(name, old.get(name, ""), new.get(name, "")) for name in {*old, *new}}


def locked(packages):
    lines = ["%s==%s --hash=sha256:%s" % (name, version, hashlib.sha256(version.encode()).hexdigest())
             for name, version in sorted(packages.items())]
    return "\n".join([*lines, ""])


def told_by_git(directory):
    """Commit the lock of the older release, and ask for the difference of the newer one."""
    lock = directory / "base.txt"
    git = ["git", "-C", str(directory), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    directory.mkdir()
    lock.write_text(locked(notice_releases.PACKAGES[OLD]))
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "one"]):
        subprocess.run([*git, *words], check=True)
    lock.write_text(locked(notice_releases.PACKAGES[NEW]))
    said = subprocess.run([*git, "diff", "-U0"], check=True, capture_output=True, text=True).stdout
    found = {sign: {(canonical(name), version) for mark, name, version in re.findall(r"(?m)^([-+])(\S+)==(\S+) ", said)
                    if mark == sign} for sign in "-+"}
    return changes(found["-"], found["+"])


def paths_told_by_compare(root):
    process = subprocess.run([COMMAND, "--json", root / OLD, root / NEW], capture_output=True, text=True, check=False)
    assert process.returncode == 1, process.stderr
    return [(one["path"], one["detail"]) for one in json.loads(process.stdout)["differences"]["other"]]


def told_by_compare(root):
    sides = {"only in the first": set(), "only in the second": set()}
    for path, detail in paths_told_by_compare(root):
        found = METADATA.search("/" + path)
        if found:
            sides[detail].add((canonical(found.group(1)), found.group(2)))
    return changes(*sides.values())


def facts_of_the_notice(root, resolved):
    found = notice_document.compared_releases(str(root), NEW, "")
    return notice_document.write_notice(found, resolved, (None, None), "", False)["facts"]


def told_by_the_notice(root, resolved):
    return {(canonical(row["name"]), row["before"], row["after"])
            for row in facts_of_the_notice(root, resolved)["packages"]}


def bills_of(root, resolved):
    return [sbom_file.make_sbom(str(root / version), one) for version, one in zip((OLD, NEW), resolved)]


def told_by_the_bills(root, resolved):
    bills = bills_of(root, resolved)
    return changes(*({(canonical(one["name"]), one["versionInfo"]) for one in bill["packages"]
                      if any("pkg:pypi/" in ref["referenceLocator"] for ref in one.get("externalRefs", ()))}
                     for bill in bills))


@pytest.fixture()
def resolved(tmp_path):
    """The resolved release files, the older one first, of two releases below tmp_path / "root"."""
    (tmp_path / "root").mkdir()
    return notice_releases.make_both(tmp_path / "root")[::-1]


def test_all_that_tell_of_a_change_tell_the_same(tmp_path, resolved):
    root = tmp_path / "root"
    assert told_by_git(tmp_path / "site") == EXPECTED
    assert told_by_compare(root) == EXPECTED
    assert told_by_the_notice(root, resolved[::-1]) == EXPECTED
    assert told_by_the_bills(root, resolved) == EXPECTED


def test_all_that_tell_of_a_file_of_the_sites_tell_the_same(tmp_path, resolved):
    root, given = tmp_path / "root", ({"bin/gone": "", "etc/other": "one"}, {"share/new": "", "etc/other": "three"})
    for version, release_file, files in zip((OLD, NEW), resolved, given):
        for path, content in files.items():
            installed_release.site_file(root / version, release_file, path, content)
    differing = {"bin/gone", "etc/other", "share/new"}
    paths = dict(paths_told_by_compare(root))
    assert {path: paths.get("base/" + path) for path in differing} == {
        "bin/gone": "only in the first", "share/new": "only in the second", "etc/other": "3 and 5 bytes"}
    # The kernel, which names its own release's Python, differs in nothing else.
    assert "base/" + installed_release.KERNEL not in paths
    facts = facts_of_the_notice(root, resolved[::-1])
    assert {row["name"] for row in facts["files"]} == differing
    listed = [{(one["name"], one["packageFileName"]) for one in bill["packages"] if "-File-" in one["SPDXID"]}
              for bill in bills_of(root, resolved)]
    assert listed == [{(path, "base/" + path) for path in (*files, installed_release.KERNEL)} for files in given]
