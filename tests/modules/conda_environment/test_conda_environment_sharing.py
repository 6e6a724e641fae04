# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Prefixes that others use, and that share a cache."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tempfile

import pytest
from support import conda_channel, conda_prefixes
from support.conda_prefixes import DIRECTLY, answer, names, prefix_of, tree


@pytest.mark.parametrize("served", [False, True], ids=["directory", "server"])
def test_two_releases_at_once_from_one_cold_cache_are_both_right(drive, place, channel, serve, tmp_path, served):
    cache, url = str(tmp_path / "cache"), serve(channel.directory) if served else channel.url
    both = [
        place("python", "pip", "libtoy", channels=[url], cache=cache, prefix=str(tmp_path / "release" / name / "base"))
        for name in ("one", "two")
    ]
    for arguments in both:
        prefix_of(arguments).parent.mkdir()
    running = [drive.begin(arguments, DIRECTLY) for arguments in both]
    results = [json.loads(process.communicate()[0]) for process in running]
    assert [result.get("changed") for result in results] == [True, True], results
    one, two = (tree(prefix_of(arguments)) for arguments in both)
    assert sorted(one) == sorted(two)
    for arguments in both:
        program = str(prefix_of(arguments) / "bin" / "toy")
        assert subprocess.check_output([program], text=True) == "42 %s\n" % arguments["prefix"]
        assert not answer(drive(dict(arguments, verify="contents"), DIRECTLY))["changed"]


def test_two_runs_on_one_prefix_wait_for_each_other(drive, place, tmp_path):
    arguments = place("libtoy", cache=str(tmp_path / "cache"))
    running = [drive.begin(arguments) for _run in range(2)]
    results = [json.loads(process.communicate()[0]) for process in running]
    assert sorted(result["changed"] for result in results) == [False, True]


def test_s03_umask_of_the_caller_and_setgid_of_the_directory(run_module, place):
    arguments = place("python", "pip", "libtoy")
    prefix = prefix_of(arguments)
    prefix.parent.chmod(0o2755)
    old = os.umask(0o077)
    try:
        run_module("conda_environment", dict(arguments, cache=str(prefix.parent.parent / "cold")))
    finally:
        os.umask(old)
    group = prefix.parent.stat().st_gid
    for path in [prefix, *prefix.rglob("*")]:
        found = path.lstat()
        mode = stat.S_IMODE(found.st_mode)
        assert found.st_gid == group
        if path.is_dir() and not path.is_symlink():
            assert mode == 0o2755, path
        elif not path.is_symlink():
            assert mode in (0o644, 0o755), path


def test_a_hot_fix_in_one_release_reaches_neither_the_cache_nor_a_sibling(drive, place, tmp_path):
    cache = tmp_path / "cache"
    one, two = (
        place("libtoy", cache=str(cache), prefix=str(tmp_path / "release" / name)) for name in ("one", "two")
    )
    for arguments in (one, two):
        answer(drive(arguments))
    entry, sibling = tree(cache / "toydata-2.0.0-0"), tree(prefix_of(two))
    fixed = prefix_of(one) / "share" / "toydata" / "version"
    with open(fixed, "a") as stream:
        stream.write("hot fix\n")
    fixed.chmod(0o600)
    assert (tree(cache / "toydata-2.0.0-0"), tree(prefix_of(two))) == (entry, sibling)
    assert {path.stat().st_nlink for path in prefix_of(two).rglob("*") if path.is_file()} == {1}


def test_a_site_may_opt_in_to_hard_links(drive, place, tmp_path):
    arguments = place("toydata", cache=str(tmp_path / "cache"), link_method="hardlink")
    answer(drive(arguments))
    assert (prefix_of(arguments) / "share" / "toydata" / "version").stat().st_nlink == 2


def test_s18_scripts_of_packages_are_there_for_activation_and_name_the_prefix(drive, place):
    arguments = place("toysettings")
    answer(drive(arguments))
    script = prefix_of(arguments) / "etc" / "conda" / "activate.d" / "toysettings.sh"
    assert script.read_text() == "export TOY_SETTING=%s/share\n" % arguments["prefix"]
    assert (prefix_of(arguments) / "etc" / "conda" / "deactivate.d" / "toysettings.sh").exists()


def test_s04_the_history_is_what_conda_would_have_written(drive, place, channel):
    answer(drive(place("toydata ==1.0.0")))
    answer(drive(place("libtoy", "toydata ==2.0.0")))
    prefix = prefix_of(place())
    lines = (prefix / "conda-meta" / "history").read_text().splitlines()
    assert [line for line in lines if not line.startswith(("==>", "# cmd:"))] == [
        "+%s/noarch::toydata-1.0.0-0" % channel.url,
        '# update specs: ["toydata ==1.0.0"]',
        "-%s/noarch::toydata-1.0.0-0" % channel.url,
        "+%s/%s::libtoy-2.1.0-h1_0" % (channel.url, conda_channel.SUBDIR),
        "+%s/noarch::toydata-2.0.0-0" % channel.url,
        '# update specs: ["libtoy", "toydata ==2.0.0"]',
    ]
    record = json.loads((prefix / "conda-meta" / "libtoy-2.1.0-h1_0.json").read_text())
    assert record["requested_specs"] == ["libtoy"]
    assert {path.name for path in prefix.iterdir()} == {"bin", "conda-meta", "etc", "lib", "share"}


def content_of(path, prefix):
    """A file's content with the prefix replaced; in a binary file, the zeros behind it fill what it is shorter."""
    content = path.read_bytes()
    if b"\0" in content:
        return re.sub(re.escape(prefix) + rb"([^\0]*)\0+", rb"@PREFIX@\1\0", content)
    return content.replace(prefix, b"@PREFIX@")


def remaining(path, content):
    """What two prefixes from one lock may differ in, by class of file: left out here, and the class; else none."""
    if path == "conda-meta/history":
        return b"".join(line for line in content.splitlines(True) if not line.startswith(b"==>")), "date of the history"
    if path.startswith("conda-meta/"):
        record = json.loads(content)
        for key in ("extracted_package_dir", "package_tarball_full_path", "link"):
            record.pop(key, None)
        for entry in record["paths_data"]["paths"]:
            if entry.get("prefix_placeholder") or entry["path_type"] == "unix_python_entry_point":
                for key in ("sha256", "sha256_in_prefix", "size_in_bytes"):
                    entry.pop(key, None)
        return record, "cache, and digests of files with the prefix, in records"
    return content, ""


def test_two_prefixes_from_one_lock_differ_only_in_what_names_them(drive, place, tmp_path):
    solved = place("python", "pip", "libtoy", "toysettings", prefix=str(place.release / "solved"))
    lock = tmp_path / "lock"
    lock.write_text(answer(drive(solved, check=True))["lock"])
    one, two = (
        place(specs=None, channels=None, lock=str(lock), cache=str(tmp_path / cache), prefix=str(place.release / name))
        for name, cache in (("base", "first"), ("longer-name", "second"))
    )
    made = [answer(drive(arguments)) for arguments in (one, two)]
    assert [found["lock"] for found in made] == [lock.read_text()] * 2
    here, there = prefix_of(one), prefix_of(two)
    first, second = tree(here), tree(there)
    assert sorted(first) == sorted(second)
    classes = set()
    for name, found in first.items():
        other = second[name]
        if not isinstance(found, tuple):
            assert found == other, name
            continue
        assert found[0] == other[0], name
        contents = content_of(here / name, bytes(here)), content_of(there / name, bytes(there))
        left = [remaining(name, content) for content in contents]
        assert left[0] == left[1], name
        classes.add(left[0][1])
    assert classes == {"", "date of the history", "cache, and digests of files with the prefix, in records"}
    sonames = [
        subprocess.check_output(["patchelf", "--print-soname", str(top / "lib" / "libtoy.so")], text=True)
        for top in (here, there)
    ]
    assert sonames == ["libtoy.so.2\n"] * 2


class OtherAccount:
    """Another account, a home of its own, and a place that both can reach: pytest's are closed."""

    def __init__(self, user, top):
        self.user = user
        self.top = top
        self.home = "/"
        self.home = self.run("mktemp", "-d").strip()

    def run(self, *command, **variables):
        """Run a program as that account; it must succeed and say nothing but its answer."""
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": self.home, **variables}
        done = subprocess.run(
            ["sudo", "-n", "-u", self.user, "env", "-i", *("%s=%s" % item for item in environment.items()),
             *map(str, command)],
            cwd="/", text=True, capture_output=True, check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout

    def drive(self, arguments, how):
        """Run the module's work as that account."""
        code = {"PYTHONPATH": str(self.top), "PYTHONDONTWRITEBYTECODE": "1"}
        found = json.loads(self.run(*conda_prefixes.command(arguments, how, self.home + "/scratch"), **code))
        assert "failed" not in found, found
        return found


@pytest.fixture()
def other_account(ordinary_user):
    top = pathlib.Path(tempfile.mkdtemp(prefix="torchstack-conda-"))
    top.chmod(0o755)
    account = OtherAccount(ordinary_user, top)
    try:
        able = ["sudo", "-n", "-u", ordinary_user, sys.executable, "-c", "import os, rattler; os._exit(0)"]
        if subprocess.run(able, cwd="/", stderr=subprocess.DEVNULL, check=False).returncode:
            pytest.skip("%s cannot use %s with py-rattler" % (ordinary_user, sys.executable))
        package = pathlib.Path("ansible_collections", "hpcml", "torchstack", "plugins", "module_utils")
        shutil.copytree(
            conda_prefixes.CHECKOUT / "plugins" / "module_utils", top / package,
            ignore=shutil.ignore_patterns("__pycache__"))
        subprocess.run(["chmod", "-R", "a+rX", str(top)], check=True)
        yield account
    finally:
        account.run("rm", "-rf", account.home)
        subprocess.run(["chmod", "-R", "u+w", str(top)], check=True)
        shutil.rmtree(top)


def seen(top):
    """Everything below a directory, as far as any write would change it."""
    return sorted(
        (str(path), found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
        for path in [top, *top.rglob("*")] for found in [path.lstat()]
    )


def test_s04_another_account_uses_lists_and_clones_a_frozen_prefix_and_writes_nothing(drive, channel, other_account):
    top, home = other_account.top, other_account.home
    own = channel.copy(top / "channel")
    subprocess.run(["chmod", "-R", "a+rX", str(top)], check=True)
    prefix, cache = top / "root" / "base", top / "root" / "pkgs"
    arguments = {
        "prefix": str(prefix), "channels": [own.url], "cache": str(cache),
        "specs": ["python", "pip", "libtoy", "toysettings"],
    }
    made = answer(drive(arguments))
    subprocess.run(["chmod", "-R", "a-w", str(prefix)], check=True)
    before = seen(top / "root")

    said = other_account.run(prefix / "bin" / "python", "-c", "import pip, ssl, sys; print(sys.prefix, pip.__file__)")
    assert said.split()[0] == str(prefix) and said.split()[1].startswith(str(prefix))
    listed = other_account.run(prefix / "bin" / "pip", "list", "--format=freeze")
    assert [line.split("==")[0] for line in listed.splitlines()] == ["pip"]
    assert other_account.run(prefix / "bin" / "toy") == "42 %s\n" % prefix

    found = other_account.drive(arguments, "check")
    assert found["packages"] == made["packages"] and not found["changed"]

    lock = top / "lock"
    lock.write_text(found["lock"])
    lock.chmod(0o644)
    elsewhere = dict(arguments, cache=home + "/pkgs", shared_caches=[str(cache)])
    new = other_account.drive(dict(elsewhere, prefix=home + "/new", specs=["libtoy"]), "apply")
    assert names(new["added"]) == ["libtoy", "toydata"]
    clone = other_account.drive(dict(elsewhere, prefix=home + "/clone", specs=None, lock=str(lock)), "apply")
    assert clone["packages"] == made["packages"]
    for name in ("new", "clone"):
        assert other_account.run(home + "/%s/bin/toy" % name) == "42 %s/%s\n" % (home, name)
    fetched = other_account.run("find", home + "/pkgs", "-maxdepth", "1", "-name", "*-*-*", "-type", "d")
    assert fetched == ""
    assert seen(top / "root") == before
