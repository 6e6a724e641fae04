# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""patch_series in real processes that die, or whose calls fail, at every change of the file system.

One process under the library of faults forks a child for each case: the faults are counted in a file that both share,
so setting that number before the fork says at which call of the child the fault comes. ``TORCHSTACK_PATCH_FAULTS=all``
takes every call of the series of sixty patches, where otherwise every sixth is taken.
"""

from __future__ import annotations

import collections
import json
import os
import shutil
import signal
import struct
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.journal import has_open_journal
from support import faults
from test_patch_series import A0, A1, PRISTINE, Site, diff, inner, rich

AT = 1000000
OPTIONS = {"state": "present", "strip": 1, "max_offset": 0, "allow_unverified": False}
ALL = os.environ.get("TORCHSTACK_PATCH_FAULTS") == "all"
SERVER = r"""
import json, os, struct, sys
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.modules import patch_series
for line in sys.stdin:
    order = json.loads(line)
    with open(order["counter"], "r+b", buffering=0) as counter:
        counter.write(struct.pack("@l", order["from"]))
    child = os.fork()
    if not child:
        try:
            answer = patch_series.reconcile(order["params"], False, False)
        except StackError as error:
            answer = error.as_result()
        with open(order["answer"], "w") as stream:
            json.dump(answer, stream)
        os._exit(0)
    status = os.waitpid(child, os.WUNTRACED)[1]
    if os.WIFSTOPPED(status):
        print(-child, flush=True)
        status = os.waitpid(child, 0)[1]
    print(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, flush=True)
"""


class Server:
    """A process in which the fault waits; :meth:`run` lets it come at the number-th call."""

    def __init__(self, library, scratch, path, action, onwards=False, calls=faults.CHANGES):
        self.counter, self.answer = scratch / "counter", scratch / "answer"
        self.counter.write_bytes(b"\0" * 8)
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
        environment.update(faults.variables(library, action, calls, path, AT, onwards, counter=self.counter))
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, site, number, meanwhile=None, **more):
        """The signal that killed it or 0, the answer of the module or None, and whether it met its fault."""
        params = dict(OPTIONS, **site.arguments(**more))
        if self.answer.exists():
            self.answer.unlink()
        order = {"counter": str(self.counter), "from": AT - number, "params": params, "answer": str(self.answer)}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        ended = int(self.process.stdout.readline())
        if ended < 0:
            try:
                meanwhile()
            finally:
                os.kill(-ended, signal.SIGCONT)
            ended = int(self.process.stdout.readline())
        met = struct.unpack("@l", self.counter.read_bytes())[0] >= AT
        return ended, json.loads(self.answer.read_text()) if self.answer.exists() else None, met

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture()
def server(fault_library, tmp_path):
    """Start a :class:`Server` for sites below tmp_path/sites."""
    started = []

    def start(action, **more):
        scratch = tmp_path / ("server%d" % len(started))
        scratch.mkdir()
        (tmp_path / "sites").mkdir(exist_ok=True)
        started.append(Server(fault_library, scratch, tmp_path / "sites", action, **more))
        return started[-1]

    yield start
    for each in started:
        each.close()


def sixty(top):
    """Sixty patches that build on each other, over six files."""
    top.mkdir(parents=True)
    texts = {"d%d/f.c" % number: A0 for number in range(6)}
    site, patches = Site(top).tree(texts), {}
    for number in range(60):
        name = "d%d/f.c" % (number % 6)
        lines = texts[name].splitlines()
        lines[9] += " and %d" % number
        after = "\n".join(lines) + "\n"
        patches["%03d.patch" % number] = diff(name, texts[name], after)
        texts[name] = after
    return site.patches(patches)


def litter(site):
    names = [name for _folder, _folders, files in os.walk(str(site.top)) for name in files]
    return [name for name in names if name.startswith((".torchstack", ".patch-series")) or name.endswith(".journal")]


def sides(make, top):
    """The tree before and after."""
    site = make(top)
    before = site.found()
    inner(site)
    after = site.found()
    shutil.rmtree(str(top))
    return before, after


@pytest.mark.parametrize("make, state, step", [
    (rich, "present", 1), (rich, "absent", 1), (sixty, "present", 1 if ALL else 6),
], ids=["everything", "undoing", "sixty patches"])
def test_killed_for_real_at_every_change_the_next_run_completes_it(server, tmp_path, make, state, step):
    (tmp_path / "sites").mkdir()
    before, after = sides(make, tmp_path / "sites" / "reference")
    wanted = after if state == "present" else before
    kills = 0
    for deadly in (server("kill"), server("torn", calls=("write",))):
        number, met = 0, True
        while met:
            number += step
            site = make(tmp_path / "sites" / str(number))
            if state == "absent":
                inner(site)
            ended, _answer, met = deadly.run(site, number, state=state)
            assert ended == (signal.SIGKILL if met else 0), number
            kills += met
            if not has_open_journal(str(site.src), str(site.state)):
                assert site.found() in (before, after), number
            inner(site, state=state)
            assert site.found() == wanted, number
            assert not litter(site), number
            shutil.rmtree(str(site.top))
    print("%d kills" % kills)
    assert kills > (30 if make is rich else 10)


@pytest.mark.parametrize("onwards", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("error", ["ENOSPC", "EDQUOT", "EROFS", "EIO", "EINTR"])
def test_a_change_that_fails_leaves_the_tree_as_it_was_or_a_journal_to_complete(server, tmp_path, error, onwards):
    if error == "EINTR" and onwards:
        pytest.skip("a call that is interrupted for ever is repeated for ever")
    # A full disk refuses to create and to write; names can still be changed and removed.
    full = error in ("ENOSPC", "EDQUOT")
    failing = server("error:" + error, onwards=onwards, calls=("create", "write") if full else faults.CHANGES)
    before, after = sides(rich, tmp_path / "sites" / "reference")
    number, outcomes = 0, []
    while True:
        number += 1
        site = rich(tmp_path / "sites" / str(number))
        ended, answer, met = failing.run(site, number)
        assert ended == 0
        if not met:
            assert site.found() == after
            break
        outcomes.append("open" if has_open_journal(str(site.src), str(site.state)) else "closed")
        if answer.get("failed_step"):
            assert answer["failed_step"] in ("lock", "write") and answer["remedy"] and answer["path"], answer
            assert answer["msg"].count("\n") == 0
            if outcomes[-1] == "closed":
                assert site.found() == before or (onwards and not full), (number, answer)
                assert not litter(site) or (onwards and not full), number
        else:
            assert site.found() == after
        inner(site)
        assert site.found() == after and not litter(site), number
        shutil.rmtree(str(site.top))
    assert number > 20
    # What takes space comes first, so a full file system is always taken back, and so is what happens once.
    assert (onwards and not full) or "open" not in outcomes, outcomes


@pytest.mark.parametrize("what", ["directory", "file", "tree"])
def test_what_becomes_a_link_while_the_run_is_at_work_leads_nowhere(server, tmp_path, what):
    stopping = server("stop")
    outside, number, answers = tmp_path / "outside", 0, []
    while True:
        number += 1
        site = Site(tmp_path / "sites" / str(number))
        site.top.mkdir()
        site.tree({"sub/a.txt": A0}).patches({"1.patch": diff("sub/a.txt", A0, A1) + diff("sub/new/n", None, "n\n")})
        outside.mkdir()
        for folder in (outside, outside / "sub"):
            folder.mkdir(exist_ok=True)
            (folder / "a.txt").write_text(A0)
        target = {"directory": site.src / "sub", "file": site.src / "sub" / "a.txt", "tree": site.src}[what]
        goal = {"directory": outside / "sub", "file": outside / "a.txt", "tree": outside}[what]

        def swap(target=target, goal=goal):
            target.rename(str(target) + ".aside")
            target.symlink_to(goal)

        before = Site.found(type("Outside", (), {"src": outside}))
        ended, answer, met = stopping.run(site, number, swap)
        assert ended == 0
        if not met:
            break
        answers.append(answer)
        assert Site.found(type("Outside", (), {"src": outside})) == before, number
        shutil.rmtree(str(outside))
        shutil.rmtree(str(site.top))
    refused = [answer for answer in answers if answer.get("failed_step")]
    assert number > 15 and len(refused) > 3
    assert all(answer.get("remedy") and answer.get("path") and "\n" not in answer["msg"] for answer in refused), refused
    shutil.rmtree(str(outside))


def test_a_file_that_vanishes_before_it_is_replaced_is_told_and_nothing_else_changes(server, tmp_path):
    stopping = server("stop")
    (tmp_path / "sites" / "s").mkdir()
    site = Site(tmp_path / "sites" / "s").tree(PRISTINE).patches({"1.patch": diff("a.txt", A0, A1)})
    _ended, answer, met = stopping.run(site, 3, (site.src / "a.txt").unlink)
    assert met and answer["failed_step"] == "write"
    assert "a.txt changed while this run was at work" in answer["msg"]
    assert not litter(site)
    assert site.files() == {name: text for name, text in PRISTINE.items() if name != "a.txt"}


def test_what_is_no_regular_file_in_the_series_is_not_waited_for(tmp_path):
    site = Site(tmp_path).tree(PRISTINE).patches({"1.patch": diff("a.txt", A0, A1)})
    os.mkfifo(str(site.series / "2.patch"))
    with pytest.raises(StackError, match=r"Cannot read the patch .*2\.patch: Not a regular file"):
        inner(site)
    (site.series / "2.patch").unlink()
    (site.series / "2.patch").symlink_to("2.patch")
    with pytest.raises(StackError, match=r"Too many levels of symbolic links"):
        inner(site)


def test_a_path_longer_than_any_call_takes_is_patched_and_undone(tmp_path):
    site = Site(tmp_path).tree({"a.txt": A0})
    parts = ["d" * 200] * 25
    descriptor = os.open(str(site.src), os.O_RDONLY)
    for part in parts:
        os.mkdir(part, dir_fd=descriptor)
        further = os.open(part, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = further
    name = "/".join([*parts, "f.txt"])

    def content():
        with os.fdopen(os.open("f.txt", os.O_RDONLY, dir_fd=descriptor)) as stream:
            return stream.read()

    try:
        with os.fdopen(os.open("f.txt", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=descriptor), "w") as stream:
            stream.write(A0)
        site.patches({"1.patch": diff(name, A0, A1), "2.patch": diff(name.replace("f.txt", "n/new"), None, "n\n")})
        assert inner(site)["changed"]
        assert content() == A1 and sorted(os.listdir(descriptor)) == ["f.txt", "n"]
        assert inner(site, state="absent")["changed"]
        assert content() == A0 and os.listdir(descriptor) == ["f.txt"]
    finally:
        os.close(descriptor)


def test_names_with_newlines_and_other_bytes_stay_on_one_line_of_the_message(tmp_path):
    site = Site(tmp_path).tree({"a.txt": A0})
    odd = os.path.join(os.fsencode(str(site.src)), b"new\nline\xe9.txt")
    with open(odd, "wb") as stream:
        stream.write(A0.encode())
    quoted = diff("X", A0, A1).replace("a/X", '"a/new\\nline\\351.txt"').replace("b/X", '"b/new\\nline\\351.txt"')
    site.patches({"1.patch": quoted})
    assert inner(site)["files"] == ["new\\nline\\xe9.txt"]
    with open(odd, "rb") as stream:
        assert stream.read().decode() == A1
    with open(odd, "ab") as stream:
        stream.write(b"more\n")
    with pytest.raises(StackError) as caught:
        inner(site)
    assert "\n" not in caught.value.as_result()["msg"] and "new\\nline\\xe9.txt" in caught.value.message


def test_three_large_files_under_sixty_patches_take_less_than_200_mb(tmp_path):
    site = Site(tmp_path)
    site.src.mkdir()
    patches = collections.defaultdict(str)
    for name in ("f", "g", "h"):
        lines = ["line %08d of the file %s......\n" % (number, name) for number in range(320000)]
        (site.src / name).write_text("".join(lines))
        assert (site.src / name).stat().st_size >= 10000000
        for number in range(60):
            at = 20 + number * 2000
            patches["%03d.patch" % number] += "--- a/%s\n+++ b/%s\n@@ -%d,3 +%d,3 @@\n %s-%s+changed by %d\n %s" % (
                name, name, at, at, lines[at - 1], lines[at], number, lines[at + 1])
    site.patches(patches)
    program = (
        "import json, sys\n"
        "from ansible_collections.hpcml.torchstack.plugins.modules import patch_series\n"
        "patch_series.reconcile(json.loads(sys.argv[1]), False, False)\n"
        "print(*[line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')])\n"
    )
    peaks = []
    for state in ("present", "absent"):
        params = dict(OPTIONS, **site.arguments(allow_unverified=True, state=state))
        done = subprocess.run([sys.executable, "-c", program, json.dumps(params)], check=True, stdout=subprocess.PIPE,
                              env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
        peaks.append(int(done.stdout))
        assert ("changed by 59\n" in (site.src / "h").read_text()) == (state == "present")
    assert max(peaks) < 200 * 1024, peaks


def test_nothing_but_the_named_files_of_a_large_tree_is_looked_at(fault_library, tmp_path):
    site = Site(tmp_path).tree(PRISTINE).patches({"1.patch": diff("a.txt", A0, A1) + diff("sub/n", None, "n\n")})
    for number in range(300):
        (site.src / ("other%d" % number)).mkdir()
        (site.src / ("other%d" % number) / "f").write_text("")
    log = tmp_path / "log"
    program = (
        "import json, sys\n"
        "from ansible_collections.hpcml.torchstack.plugins.modules import patch_series\n"
        "patch_series.reconcile(json.loads(sys.argv[1]), False, False)\n"
    )
    params = dict(OPTIONS, **site.arguments())
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    environment.update(faults.variables(fault_library, "none", (*faults.METADATA, "next"), site.src, log=log))
    subprocess.run([sys.executable, "-c", program, json.dumps(params)], check=True, env=environment)
    calls = log.read_text()
    assert "other" not in calls and "next " not in calls
    assert len(calls.splitlines()) < 100
