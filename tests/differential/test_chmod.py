# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The frozen tree next to what chmod(1) and find(1) make and see of the same tree."""

from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import counters as tally
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees.permissions import Pass
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees.policy import Policy, apply_rule

pytestmark = pytest.mark.skipif(shutil.which("chmod") is None, reason="there is no chmod to compare with")


def freeze(top, state="frozen", rules=None, **options):
    top = str(top)
    return Pass(Policy(state, rules), True, **options).over(os.path.dirname(top), os.path.basename(top))


def modes(top):
    """Path to type and permission bits, of everything below and the tree itself."""
    found = {".": os.lstat(str(top)).st_mode}
    for directory, names, files in os.walk(str(top)):
        for name in names + files:
            path = os.path.join(directory, name)
            found[os.path.relpath(path, str(top))] = os.lstat(path).st_mode
    return found


def build(top, seed):
    """A tree of random shape, names, links and modes, some of which shut its owner out."""
    numbers = random.Random(seed)
    os.mkdir(str(top))
    directories, files = [str(top)], []
    names = ["plain%d", "with space %d", "new\nline%d", "-dash%d", "*%d", "caf\udce9%d", ".hidden%d", "'%d"]
    for number in range(150):
        path = os.path.join(numbers.choice(directories), numbers.choice(names) % number)
        what = numbers.random()
        if what < 0.3:
            os.mkdir(path)
            directories.append(path)
        elif what < 0.4:
            os.symlink(numbers.choice([".", "/nonexistent", "..", "../..", path]), path)
        elif what < 0.45 and files:
            os.link(numbers.choice(files), path)
        elif what < 0.5:
            os.mkfifo(path)
        else:
            with open(path, "w"):
                pass
            files.append(path)
    for path in files:
        os.chmod(path, numbers.choice([numbers.randrange(0o1000), numbers.randrange(0o10000), 0o644, 0o755]))
    for path in reversed(directories):
        os.chmod(path, numbers.choice([0o700, 0o755, 0o2500, 0o2755, 0o3777, 0o500 | numbers.randrange(0o10000)]))


@pytest.fixture()
def pair(tmp_path):
    """Two equal random trees, by seed."""
    made = []

    def make(seed):
        for name in ("ours", "theirs"):
            build(tmp_path / name, seed)
            made.append(tmp_path / name)
        assert modes(tmp_path / "ours") == modes(tmp_path / "theirs")
        return tmp_path / "ours", tmp_path / "theirs"

    yield make
    for top in made:
        subprocess.run(["chmod", "-R", "u+rwx", str(top)], check=True)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("workers", [1, 4])
def test_freezing_ends_where_chmod_ends(pair, seed, workers):
    ours, theirs = pair(seed)
    freeze(ours, workers=workers)
    subprocess.run(["chmod", "-R", "a-w,a+rX", str(theirs)], check=True)
    assert modes(ours) == modes(theirs)


def test_freezing_ends_where_chmod_a_minus_w_and_then_go_rx_ends(tmp_path):
    """For every mode of a file or directory that its owner can read; what has no special bits, as chmod clears them."""
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
        for bits in range(0o400, 0o1000):
            if bool(bits & 0o100) != bool(bits & 0o011) and bits & 0o011:
                continue  # x for others and not for the owner: a policy makes that an executable, chmod does not
            path = tmp_path / name / ("%04o" % bits)
            path.write_text("")
            path.chmod(bits)
            if bits & 0o500 == 0o500:
                path = tmp_path / name / ("%04o directory" % bits)
                path.mkdir()
                path.chmod(bits)
    freeze(tmp_path / "ours")
    subprocess.run(["chmod", "-R", "a-w", str(tmp_path / "theirs")], check=True)
    subprocess.run(["chmod", "-R", "go=rX", str(tmp_path / "theirs")], check=True)
    assert modes(tmp_path / "ours") == modes(tmp_path / "theirs")
    assert len(modes(tmp_path / "ours")) > 200
    for name in ("ours", "theirs"):
        subprocess.run(["chmod", "-R", "u+rwX", str(tmp_path / name)], check=True)


@pytest.mark.parametrize("workers", [1, 4])
def test_files_and_directories_that_another_process_deletes_meanwhile_are_survived(tmp_path, workers):
    top = tmp_path / "tree"
    for number in range(60):
        (top / ("kept%d" % number)).mkdir(parents=True)
        for name in range(20):
            (top / ("kept%d" % number) / str(name)).write_text("")
    busy = 'while :; do mkdir -p "$1/kept$((i % 60))/gone/deep"; : > "$1/kept$((i % 60))/gone/deep/$i";'
    busy += ' rm -rf "$1/kept$(((i + 59) % 60))/gone"; i=$((i + 1)); done'
    # A policy that leaves directories writable, so that the other process can go on.
    other = subprocess.Popen(["/bin/sh", "-c", "i=0; " + busy, "sh", str(top)], stderr=subprocess.DEVNULL)
    try:
        one_pass = [
            Pass(Policy("writable", {"files": "0644", "directories": "u+w"}), True, workers=workers)
            for _number in range(15)
        ]
        tallies = [each.over(str(tmp_path), "tree") for each in one_pass]
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    assert all(tally.refused.total == tally.foreign.total == 0 and tally.files >= 1200 for tally in tallies)
    freeze(top)
    assert all(not mode & 0o222 for mode in modes(top).values())
    subprocess.run(["chmod", "-R", "u+rwX", str(top)], check=True)


@pytest.mark.parametrize("seed", range(12, 18))
def test_thawing_ends_where_chmod_ends(pair, seed):
    ours, theirs = pair(seed)
    freeze(ours)
    freeze(ours, "writable")
    subprocess.run(["chmod", "-R", "a-w,a+rX", str(theirs)], check=True)
    subprocess.run(["chmod", "-R", "u+w", str(theirs)], check=True)
    assert modes(ours) == modes(theirs)


@pytest.mark.parametrize("rule", ["a-w,go=rX", "u-w,go-w", "ug=rX,o=", "a=rX", "u-w,g=r,o=X,g-w"])
def test_symbolic_policies_end_where_chmod_ends_with_special_bits_kept(pair, rule):
    """chmod's ``=`` takes setuid, setgid and sticky of files away; a policy never does."""
    ours, theirs = pair(99)
    special = {path: mode & 0o7000 for path, mode in modes(ours).items()}
    freeze(ours, rules={"files": rule, "executables": rule, "directories": rule})
    subprocess.run(["chmod", "-R", rule, str(theirs)], check=True)
    after = modes(ours)
    assert {path: mode & ~0o7000 for path, mode in after.items()} == {
        path: mode & ~0o7000 for path, mode in modes(theirs).items()
    }
    assert {path: mode & 0o7000 for path, mode in after.items()} == special


def test_every_clause_means_what_it_means_to_chmod(tmp_path):
    numbers = random.Random(5)
    file, directory = tmp_path / "file", tmp_path / "directory"
    file.write_text("")
    directory.mkdir()
    for _number in range(150):
        rule = ",".join(
            "".join(numbers.sample("ugo", numbers.randrange(1, 4)) if numbers.random() < 0.8 else "a")
            + "".join(
                numbers.choice("+-=") + "".join(numbers.sample("rwxX", numbers.randrange(0, 4)))
                for _change in range(numbers.randrange(1, 3))
            )
            for _clause in range(numbers.randrange(1, 4))
        )
        before = numbers.randrange(0o1000)
        for path in (file, directory):
            path.chmod(before)
            subprocess.run(["chmod", "--", rule, str(path)], check=True)
            after = stat.S_IMODE(os.lstat(str(path)).st_mode)
            assert "%04o" % apply_rule(rule, before, path is directory) == "%04o" % after, (rule, oct(before))
    directory.chmod(0o700)


@pytest.mark.parametrize("seed", [3, 4])
def test_find_sees_nothing_writable_and_every_directory_open(pair, seed):
    ours, _theirs = pair(seed)
    freeze(ours)

    def find(*conditions):
        return subprocess.check_output(["find", str(ours), *conditions])

    assert find("!", "-type", "l", "-perm", "/222") == b""
    assert find("-type", "d", "!", "-perm", "-555") == b""
    assert find("!", "-type", "l", "!", "-perm", "-444") == b""
    assert find("-type", "d", "-perm", "-2000") != b""


def test_counts_equal_those_of_find(pair):
    ours, _theirs = pair(8)
    tally = freeze(ours)

    def count(*conditions):
        return subprocess.check_output(["find", str(ours), *conditions, "-printf", "x"]).count(b"x")

    assert tally.directories == count("-type", "d")
    assert tally.symlinks == count("-type", "l")
    assert tally.files == count("!", "-type", "d", "!", "-type", "l")
    assert tally.hardlinked == count("!", "-type", "d", "!", "-type", "l", "-links", "+1")
    assert tally.hardlinked_outside == 0


def succeeds(script, *arguments, user=None):
    """Whether a shell script succeeds, as this account or as another one."""
    command = ["sudo", "-n", "-u", user] if user else []
    command += ["/bin/sh", "-c", script, "sh", *arguments]
    return subprocess.call(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/") == 0


ATTEMPTS = {
    "write": 'echo x >> "$1/lib/data"',
    "truncate": ': > "$1/lib/data"',
    "create": ': > "$1/lib/new"',
    "make a directory": 'mkdir "$1/lib/new"',
    "rename": 'mv -T "$1/lib/data" "$1/lib/other"',
    "rename over": 'mv -fT "$1/bin/tool" "$1/lib/data"',
    "delete": 'rm -f "$1/lib/data" && ! test -e "$1/lib/data"',
    "link": 'ln "$1/lib/data" "$1/lib/link"',
    "write at the top": ': > "$1/new"',
}


@pytest.fixture()
def release(tmp_path):
    """A small tree below a directory that everyone may enter."""
    for directory in (tmp_path, *tmp_path.parents):
        if os.stat(str(directory)).st_mode & 0o005 != 0o005 and os.stat(str(directory)).st_uid == os.geteuid():
            os.chmod(str(directory), 0o755)
    top = tmp_path / "release"
    (top / "lib").mkdir(parents=True)
    (top / "bin").mkdir()
    (top / "lib" / "data").write_text("content")
    (top / "bin" / "tool").write_text("#!/bin/sh\necho ran\n")
    (top / "bin" / "tool").chmod(0o777)
    (top / "lib" / "data").chmod(0o666)
    for directory in (top, top / "lib", top / "bin"):
        directory.chmod(0o777)
    yield top
    freeze(top, "writable")


@pytest.mark.parametrize("attempt", sorted(ATTEMPTS))
def test_the_owner_cannot_change_a_frozen_tree(release, attempt):
    freeze(release)
    assert not succeeds(ATTEMPTS[attempt], str(release))
    assert (release / "lib" / "data").read_text() == "content"
    assert succeeds('test "$("$1/bin/tool")" = ran && cat "$1/lib/data"', str(release))


@pytest.mark.parametrize("attempt", sorted(ATTEMPTS))
def test_another_account_cannot_change_a_frozen_tree_and_can_use_it(release, ordinary_user, attempt):
    freeze(release)
    assert not succeeds(ATTEMPTS[attempt], str(release), user=ordinary_user)
    assert (release / "lib" / "data").read_text() == "content"
    assert succeeds('test "$("$1/bin/tool")" = ran && cat "$1/lib/data"', str(release), user=ordinary_user)


@pytest.mark.parametrize("attempt", sorted(ATTEMPTS))
def test_the_attempts_succeed_on_a_tree_that_is_not_frozen(release, attempt):
    assert succeeds(ATTEMPTS[attempt], str(release))


def test_setgid_of_a_group_that_the_owner_is_not_in_is_kept_where_chmod_loses_it(tmp_path, release, ordinary_user):
    """In a setgid directory of another account, what this one makes belongs to that account's group."""
    drop = release / "drop"
    subprocess.run(["sudo", "-n", "-u", ordinary_user, "mkdir", "-m", "2777", str(drop)], check=True)
    top = drop / "tree"
    try:
        (top / "lib").mkdir(parents=True)
        for directory in (top, top / "lib"):
            assert directory.stat().st_gid not in {os.getegid(), *os.getgroups()}
            assert directory.stat().st_mode & stat.S_ISGID
        done = Pass(Policy("frozen"), True).over(*os.path.split(str(top)))
        assert sorted(tally.problem(done, str(top)).details["setgid_lost"]) == [".", "lib"]
        assert stat.S_IMODE((top / "lib").stat().st_mode) & stat.S_ISGID
        subprocess.run(["chmod", "a-w", str(top / "lib")], check=True)
        assert not stat.S_IMODE((top / "lib").stat().st_mode) & stat.S_ISGID
    finally:
        shutil.rmtree(str(top))
        subprocess.run(["sudo", "-n", "-u", ordinary_user, "rmdir", str(drop)], check=True)
