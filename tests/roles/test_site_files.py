# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The site's own files: written once, over nothing of anybody else's, and gone when nobody asks for them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import site_files
from ansible_collections.hpcml.torchstack.plugins.module_utils.release.installed import installed
from support.console import changed_in
from support.package_release import CHECKOUT, PYTHON, entry, make_wheel

KERNEL = "share/jupyter/kernels/torchstack/kernel.json"
SNOOPER = "import atexit, sys\natexit.register(lambda: print('used: %s' % ('json' in sys.modules)))\n"


def file(path, text, **keys):
    """An entry as it is in a release's data."""
    return {"path": path, "content": base64.b64encode(text.encode()).decode(), **keys}


def program(release, mode, *files, **more):
    """Run the program that writes and removes for these files; its exit code and what it printed."""
    settings = {
        **more,
        "base": str(release.base), "site": str(release.site), "records": str(release.records),
        "files": site_files.planned_files(list(files), release.described(), {}, {"release": "r"})}
    done = subprocess.run(
        [PYTHON, "-I", str(CHECKOUT / "roles" / "python_packages" / "files" / "site_files.py"), mode],
        input=json.dumps(settings), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def stamp(release):
    """What says that the step is done."""
    return (release.records / "steps" / "site-files" / "stamp.json").read_text()


def test_files_are_planned_written_once_and_removed_when_they_are_no_longer_listed(release, tmp_path):
    snooper, kernel = file("site-packages/sitecustomize.py", SNOOPER), file(
        KERNEL, '{"argv": ["{base}/bin/python3", "{connection_file}"]}', fill=["base"])
    tool = file("bin/site-tool", "#!/bin/sh\n", executable=True)
    before = release.snapshot()

    code, said = release.roll_out([], "--check", files=[snooper, kernel, tool])
    assert code == 0, said
    assert "The site's own files, to be written below %s: lib/python" % release.base in said
    assert "%s (0644), bin/site-tool (0755)." % KERNEL in said
    assert release.snapshot() == before and changed_in(said)

    code, said = release.roll_out([], files=[snooper, kernel, tool])
    assert code == 0, said
    assert json.loads((release.base / KERNEL).read_text())["argv"] == [
        "%s/bin/python3" % release.base, "{connection_file}"]
    assert [(release.base / path).stat().st_mode & 0o777 for path in (KERNEL, "bin/site-tool")] == [0o644, 0o755]
    python = [release.described()["python"], "-c", "import json"]
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", **release.described()["environment"]}
    assert subprocess.run(python, env=environment, text=True, check=True, stdout=subprocess.PIPE).stdout == (
        "used: True\n")
    there, done = release.snapshot(), stamp(release)

    for arguments in (["--check"], []):
        code, said = release.roll_out([], *arguments, files=[snooper, kernel, tool])
        assert code == 0 and not changed_in(said), said
        assert (release.snapshot(), stamp(release)) == (there, done)

    code, said = release.roll_out([], "--check", files=[tool])
    assert code == 0, said
    assert "No longer in the release file, and to be removed: lib/python" in said and KERNEL in said
    assert release.snapshot() == there

    code, said = release.roll_out([], files=[tool])
    assert code == 0, said
    assert set(release.snapshot()) - set(before) == {"bin/site-tool"}
    assert not (release.base / "share").exists() or not list((release.base / "share").iterdir())

    code, said = release.roll_out([])
    assert code == 0 and "removed now: bin/site-tool." in said, said
    assert release.snapshot() == before and not (release.records / "site_files.json").exists()

    code, said = release.roll_out([], files=[tool])
    assert code == 0 and (release.base / "bin" / "site-tool").exists(), said


def test_a_changed_file_replaces_the_former_one_and_the_words_of_it_are_filled_in(release):
    assert program(release, "install", file(KERNEL, "one"))[0] == 0
    assert program(release, "install", file(KERNEL, "two of {release}, {other}", fill=["release"]))[0] == 0
    assert (release.base / KERNEL).read_text() == "two of r, {other}"


def test_what_is_installed_names_each_file_that_is_there_with_its_digest(release):
    files = [file("site-packages/sitecustomize.py", SNOOPER), file(KERNEL, "{release}", fill=["release"])]
    assert program(release, "install", *files)[0] == 0
    resolved = {"base": release.described(), "definition": {"files": files}}
    found = installed(str(release.prefix), resolved)["files"]
    assert [(one["name"], one["place"]) for one in found] == [
        (KERNEL, "base/" + KERNEL),
        ("site-packages/sitecustomize.py", str((release.site / "sitecustomize.py").relative_to(release.prefix)))]
    assert [one["sha256"] for one in found] == [
        hashlib.sha256((release.prefix / one["place"]).read_bytes()).hexdigest() for one in found]
    # By what was asked for, not by what the word stands for in this release; what was changed since is another file.
    (release.base / KERNEL).write_text("{release}")
    changed = installed(str(release.prefix), resolved)["files"]
    assert [one["source"] == two["source"] for one, two in zip(found, changed)] == [False, True]


@pytest.mark.parametrize(("path", "whose"), [
    ("site-packages/numpy/__init__.py", "which belongs to numpy."),
    ("bin/of-conda", "which belongs to tool-of-conda."),
    ("etc/mine", "which belongs to the base or another step of the release."),
    ("etc/mine/deeper", "which belongs to another step of the release, and is no directory."),
    ("share/out/kernel.json", "which belongs to something outside of the release."),
    ("share/dangling", "which belongs to the base or another step of the release."),
])
def test_a_file_that_would_write_over_something_else_is_refused_and_nothing_is_written(
    release, tmp_path, path, whose
):
    (release.base / "etc").mkdir()
    (release.base / "etc" / "mine").write_text("mine\n")
    (release.base / "conda-meta").mkdir()
    (release.base / "conda-meta" / "tool-of-conda-1.json").write_text(
        json.dumps({"name": "tool-of-conda", "files": ["bin/of-conda"]}))
    (tmp_path / "outside").mkdir()
    (release.base / "share").mkdir()
    (release.base / "share" / "out").symlink_to(tmp_path / "outside")
    (release.base / "share" / "dangling").symlink_to(tmp_path / "outside" / "nothing")
    before = release.snapshot()
    code, said = program(release, "install", file("bin/first", ""), file(path, "x"))
    assert code == 1
    assert "ERROR: The file %s of the release file would write over %s" % (path, release.base) in said
    assert "%s Nothing was changed. Give it another path" % whose in said
    assert release.snapshot() == before and not list((tmp_path / "outside").iterdir())
    assert os.path.islink(release.base / "share" / "dangling")


def test_a_package_that_would_land_in_the_place_of_a_file_is_refused_before_it_does(release):
    wheel = make_wheel(release.wheels, "brings", "1.0", {
        "brings/__init__.py": "", "brings-1.0.data/data/" + KERNEL: "theirs"})
    assert release.roll_out([], files=[file(KERNEL, "ours")])[0] == 0
    code, said = release.roll_out([entry(wheel)], files=[file(KERNEL, "ours")])
    assert code != 0 and "which brings-1.0-py3-none-any.whl of package 'brings' brings." in said, said
    assert (release.base / KERNEL).read_text() == "ours" and "brings-1.0" not in release.installed()
    code, said = release.roll_out([entry(wheel)])
    assert code == 0, said
    assert (release.base / KERNEL).read_text() == "theirs"


def test_wherever_a_wheel_lands_no_file_of_the_sites_has_that_place(release):
    make_wheel(release.prefix / "fetched", "brings", "1.0", {
        "brings/__init__.py": "", "brings-1.0.data/data/" + KERNEL: "", "brings-1.0.data/scripts/script": "",
        "brings-1.0.data/purelib/pure.py": ""}, commands=["command"])
    fetched = {"package": "brings", "wheels": [str(release.prefix / "fetched"), str(release.prefix / "not-there")]}
    for path in (KERNEL, "bin/script", "bin/command", "site-packages/brings/__init__.py", "site-packages/pure.py",
                 "share/jupyter", "bin/command/deeper"):
        code, said = program(release, "wheels", file("etc/first", ""), file(path, ""), **fetched)
        assert code == 1, path
        assert "ERROR: The file %s of the release file has the place of %s/" % (path, release.base) in said
    beside = [file(place, "") for place in ("share/jupyter/kernels/torchstack/kernel.json.d", "bin/script2",
                                            "share/pure.py", "site-packages/brings/__init__.pyi")]
    assert program(release, "wheels", *beside, **fetched) == (0, "")


def test_a_file_that_somebody_has_changed_is_neither_written_over_nor_removed(release):
    assert program(release, "install", file(KERNEL, "one"))[0] == 0
    (release.base / KERNEL).write_text("by hand")
    code, said = program(release, "install", file(KERNEL, "two"))
    assert code == 1 and "was changed in %s/%s since it was written there." % (release.base, KERNEL) in said
    code, said = program(release, "remove")
    assert code == 1 and "is no longer among the files of the release file, and was changed since" in said
    assert (release.base / KERNEL).read_text() == "by hand"


def test_a_run_that_ended_between_two_files_is_done_again(release):
    first, kernel = release.base / "etc" / "first", release.base / KERNEL
    assert program(release, "install", file("etc/first", "one"), file(KERNEL, "one"))[0] == 0
    kernel.parent.chmod(0o555)
    code, said = program(release, "install", file("etc/first", "two"), file(KERNEL, "two"))
    kernel.parent.chmod(0o755)
    assert code == 1 and "cannot be written: Permission denied." in said and "Traceback" not in said
    assert (first.read_text(), kernel.read_text()) == ("two", "one")
    code, said = program(release, "install", file("etc/first", "two"), file(KERNEL, "two"))
    assert code == 0, said
    assert (first.read_text(), kernel.read_text()) == ("two", "two")
    record = json.loads((release.records / "site_files.json").read_text())
    assert [len(one["sha256"]) for one in record["files"]] == [1, 1]


def test_a_removed_file_takes_its_bytecode_and_empty_directories_along_and_nothing_else(release):
    module = file("site-packages/site_of_ours/deep/count.py", "")
    assert program(release, "install", module, file("share/a/b/c", ""), file("share/a/d", ""))[0] == 0
    place = release.site / "site_of_ours" / "deep"
    (place / "__pycache__").mkdir()
    (place / "__pycache__" / "count.cpython-311.pyc").write_bytes(b"")
    before = release.snapshot()
    assert program(release, "stale", file("share/a/d", "")) == (
        0, json.dumps(["lib/%s/site-packages/site_of_ours/deep/count.py" % release.site.parent.name, "share/a/b/c"])
        + "\n")
    code, said = program(release, "remove", file("share/a/d", ""))
    assert code == 0, said
    assert not (release.site / "site_of_ours").exists() and not (release.base / "share" / "a" / "b").exists()
    assert set(before) - set(release.snapshot()) == {
        "share/a/b/c", str((place / "count.py").relative_to(release.base))}
    assert program(release, "remove")[0] == 0
    assert not (release.base / "share" / "a").exists() and release.site.exists()


def test_a_file_without_content_is_refused_by_the_role(release):
    code, said = release.roll_out([], files=[{"path": KERNEL}])
    assert code != 0 and "'files[0]' has no source" in said
