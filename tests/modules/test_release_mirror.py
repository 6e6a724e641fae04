# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A mirror holds all that a release fetches, from an index that behaves and from one that does not.

Covers mirror, plan, contents, conda_channel, conda_plan and git_archive of module_utils/mirror, too.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import http.server
import importlib.util
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import zipfile

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import download as downloads
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror.environment import mirror_context
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror.mirror import Mirror
from ansible_collections.hpcml.torchstack.plugins.modules import release_mirror
from support import conda_channel

REFUSED = "http://127.0.0.1:9"
"""Nobody listens there."""

OPTIONS = {
    "state": "present", "parts": ["python", "conda"], "python": "", "interpreter": {}, "mpi_wheel": True,
    "conda_channels": [], "conda_mirrors": {}, "conda_platform": "", "timeout": 120, "planned_after": None,
    "phase": None, "files": [],
}


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a directory, and misbehaves as the test says."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        index, path = self.server.index, self.path.partition("?")[0]
        index.requests.append((path, self.headers.get("Range")))
        if index.login and self.headers.get("Authorization") != index.login:
            self.send_error(401)
            return
        name = path.rpartition("/")[2]
        if index.refusals.get(name, 0) > 0:
            index.refusals[name] -= 1
            self.send_error(503)
            return
        if name in index.stalls:
            index.stalled.set()
            index.ended.wait()
            return
        if name in index.cut or self.headers.get("Range"):
            self.send_part(pathlib.Path(self.translate_path(self.path)).read_bytes(), name)
            return
        super().do_GET()

    def send_part(self, content, name):
        """A part of a file: from where it was asked for, and up to where the connection is cut."""
        start = int((self.headers.get("Range") or "bytes=0-")[len("bytes="):-1])
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if self.server.index.cut.get(name, 0) > 0:
            self.server.index.cut[name] -= 1
            self.wfile.write(content[start:start + (len(content) - start) // 2])
            self.close_connection = True
            return
        self.wfile.write(content[start:])

    def log_message(self, *_words):
        """Keep the console of the tests quiet."""


class Server(http.server.ThreadingHTTPServer):
    """One that says nothing of clients that hang up."""

    daemon_threads = True

    def handle_error(self, *_who):
        """A client that hung up is what some tests are about."""


class Index:
    """A package index on this machine.

    Args:
        directory: what it serves: ``files`` and the pages in ``simple``.
    """

    def __init__(self, directory):
        self.directory = directory
        (directory / "files").mkdir(parents=True)
        self.requests, self.refusals, self.cut, self.stalls, self.login = [], {}, {}, set(), None
        self.stalled, self.ended = threading.Event(), threading.Event()
        self.server = Server(("127.0.0.1", 0), functools.partial(Handler, directory=str(directory)))
        self.server.index = self
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = "http://127.0.0.1:%d/simple" % self.server.server_port

    def close(self):
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()

    def offer(self, path, project):
        """Put a file into the index; its sha256."""
        shutil.copy(path, self.directory / "files")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        page = self.directory / "simple" / project / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        with open(page, "a") as stream:
            stream.write('<a href="../../files/%s#sha256=%s">x</a>\n' % (path.name.replace("+", "%2B"), digest))
        return digest

    def fetched(self):
        """The names of files that were asked for, without pages."""
        return sorted(path.rpartition("/")[2] for path, _range in self.requests if path.startswith("/files/"))


def make_wheel(directory, name, version, size=10, files=None):
    """A wheel with a text of some length."""
    info = "%s-%s.dist-info/" % (name, version)
    contents = {"%s/__init__.py" % name: "#" * size + "\n", **(files or {})}
    contents[info + "METADATA"] = "Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (name, version)
    contents[info + "WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    lines = [
        "%s,sha256=%s,%d\n" % (
            path, base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("="), len(text))
        for path, text in contents.items()]
    contents[info + "RECORD"] = "".join(lines) + info + "RECORD,,\n"
    path = directory / ("%s-%s-py3-none-any.whl" % (name, version))
    directory.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in contents.items():
            archive.writestr(inside, text)
    return path


def make_source(directory, name, version):
    """A source archive of almost nothing."""
    path = directory / ("%s-%s.tar.gz" % (name, version))
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("%s-%s/PKG-INFO" % (name, version))
        archive.addfile(member, io.BytesIO())
    return path


class World:
    """An index with a release's files, and the release that needs them."""

    def __init__(self, place, index):
        self.place, self.index = place, index
        self.mirror = place / "mirror"
        self.variables = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": index.url, "HOME": str(place)}
        self.options = {}
        built = place / "built"
        self.pins = {}
        for name, version, size in (("cmake", "3.31", 10), ("numpy", "2.4", 3000000), ("mpich", "4.3", 10),
                                    ("einops", "0.8", 10)):
            self.pin(name, version, index.offer(make_wheel(built, name, version, size), name))
        sources = {
            name: index.offer(make_source(built, name, version), name)
            for name, version in (("mpi4py", "4.1"), ("horovod", "0.28"))}
        self.definition = {
            "release": "2026-11-20", "base": {"kind": "python_overlay"},
            "locks": {"tools": self.pins["cmake"], "base": self.pins["numpy"]}, "mpi": {"lock": self.pins["mpich"]},
            "mpi4py": {"version": "4.1", "sha256": sources["mpi4py"]},
            "horovod": {"version": "0.28", "sha256": sources["horovod"]},
            "packages": [{"name": "einops", "version": "0.8", "licence": "MIT", "lock": self.pins["einops"]}],
        }

    def pin(self, name, version, *digests):
        self.pins[name] = "%s==%s %s\n" % (name, version, " ".join("--hash=sha256:" + digest for digest in digests))
        return self.pins[name]

    def run(self, check=False, **options):
        """The module, in this process."""
        params = {**OPTIONS, "path": str(self.mirror), "definition": self.definition, **self.options, **options}
        mirror = Mirror(params, self.variables, str(self.place))
        return release_mirror.carry_out(mirror, params, check)

    def files(self):
        """What the mirror holds by relative path, with its own files."""
        return {
            str(path.relative_to(self.mirror)): path.read_bytes() for path in self.mirror.rglob("*") if path.is_file()}

    def record(self):
        return json.loads((self.mirror / "mirror.json").read_text())


NAMES = ["cmake-3.31-py3-none-any.whl", "einops-0.8-py3-none-any.whl", "horovod-0.28.tar.gz",
         "mpi4py-4.1.tar.gz", "mpich-4.3-py3-none-any.whl", "numpy-2.4-py3-none-any.whl"]
NUMPY = NAMES[-1]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    """No proxy of this machine between the tests and their index, and no long pauses."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(downloads, "PAUSE", 0.01)


@pytest.fixture()
def world(tmp_path):
    index = Index(tmp_path / "index")
    yield World(tmp_path, index)
    index.close()


def test_a_mirror_is_planned_filled_and_then_left_alone(world, run_module):
    arguments = {"path": str(world.mirror), "definition": world.definition}
    environment = {**world.variables, "ANSIBLE_VERBOSITY": "0"}
    planned = run_module("release_mirror", arguments, check=True, diff=True, environment=environment)
    assert planned.changed and not world.mirror.exists()
    assert len(planned["fetched"]) == 6 and "+numpy 2.4: " + NUMPY in planned.shown_difference
    done = run_module("release_mirror", arguments, diff=True, environment=environment)
    assert done.changed and sorted(os.listdir(world.mirror / "pip")) == NAMES
    assert [line.partition(", ")[0] for line in done.shown_difference] == planned.shown_difference
    assert done["written"] == ["mirror.json"]
    before, requests = world.files(), len(world.index.requests)
    for check in (True, False):
        again = run_module("release_mirror", arguments, check=check, environment=environment)
        assert not again.changed and not again.failed and again["kept"] == 6
    assert world.files() == before and len(world.index.requests) == requests


def test_the_list_says_what_is_there_where_it_came_from_and_who_wants_it(world):
    world.run()
    record = world.record()
    assert sorted(record["files"]) == ["pip/" + name for name in NAMES]
    for path, entry in record["files"].items():
        content = (world.mirror / path).read_bytes()
        assert entry["sha256"] == hashlib.sha256(content).hexdigest() and entry["size"] == len(content)
        assert entry["origin"] == world.index.url.replace("simple", "files/") + os.path.basename(path)
    assert record["releases"]["2026-11-20"]["python"]["files"] == sorted(record["files"])
    assert str(world.place) not in json.dumps(record)


def test_what_nobody_has_is_listed_at_once_and_nothing_is_fetched(world):
    world.definition["locks"]["base"] += world.pin("absent", "1.0", "a" * 64, "b" * 64)
    world.definition["horovod"]["sha256"] = "c" * 64
    world.definition["packages"][0]["index"] = REFUSED + "/simple"
    with pytest.raises(StackError) as caught:
        world.run()
    text = caught.value.as_result()["msg"]
    assert "3 things that release 2026-11-20 needs cannot be found" in text
    assert "absent 1.0 (sha256 one of 2, the first %s), for locks.base: " % ("a" * 64) in text and "404" in text
    assert "horovod 0.28 (sha256 %s), for horovod: the sha256 of horovod-0.28.tar.gz is none of" % ("c" * 64) in text
    assert "einops 0.8 (sha256 " in text and "refused" in text
    assert [entry["name"] for entry in caught.value.details["missing"]] == ["absent", "horovod", "einops"]
    assert world.index.fetched() == [] and not world.mirror.exists()


def test_what_the_mirror_lacks_is_listed_at_once_and_nothing_is_changed(world):
    world.run()
    pip = world.mirror / "pip"
    (pip / NAMES[0]).unlink()
    lacking = world.record()["files"]["pip/" + NAMES[0]]["sha256"]
    world.definition["locks"]["tools"] = world.pin("cmake", "3.31", "e" * 64, lacking)
    content = (pip / NUMPY).read_bytes()
    (pip / NUMPY).write_bytes(content[:1000])
    (pip / NAMES[3]).write_bytes(b"other")
    world.definition["packages"].append(
        {"name": "new", "version": "1.0", "licence": "MIT", "lock": world.pin("new", "1.0", "d" * 64)})
    before, requests = world.files(), len(world.index.requests)
    with pytest.raises(StackError) as caught:
        world.run(state="complete")
    text = caught.value.as_result()["msg"]
    assert "lacks 4 things that release 2026-11-20 needs" in text and "Nothing was changed" in text
    assert "cmake 3.31 (sha256 %s), for locks.tools\n" % lacking in text
    assert "new 1.0 (sha256 %s), for package new" % ("d" * 64) in text
    assert "pip/%s is there with 1000 bytes and sha256" % NUMPY in text
    assert "pip/%s is there with 5 bytes" % NAMES[3] in text
    assert world.files() == before and len(world.index.requests) == requests


def test_only_what_is_lacking_or_wrong_is_fetched_again(world):
    world.run()
    pip = world.mirror / "pip"
    (pip / NAMES[0]).unlink()
    (pip / NUMPY).write_bytes((pip / NUMPY).read_bytes()[:1000])
    del world.index.requests[:]
    assert world.run()["kept"] == 4
    assert world.index.fetched() == [NAMES[0], NUMPY]
    world.run(state="complete")


def test_another_content_than_the_index_says_is_refused(world):
    (world.index.directory / "files" / NUMPY).write_bytes(b"something else")
    with pytest.raises(StackError, match="is another file: its sha256 is"):
        world.run()
    assert NUMPY not in os.listdir(world.mirror / "pip") and not (world.mirror / "mirror.json").exists()
    assert not [name for name in os.listdir(world.mirror / "pip") if downloads.is_half(name)]


def test_a_cut_connection_is_taken_up_where_it_ended(world):
    world.index.cut[NUMPY] = 1
    world.index.refusals[NUMPY] = 1
    world.run()
    asked = [ranged for path, ranged in world.index.requests if path.endswith(NUMPY)]
    half = (world.mirror / "pip" / NUMPY).stat().st_size // 2
    assert asked == [None, None, "bytes=%d-" % half]


def test_a_connection_that_is_always_cut_leaves_no_whole_name(world):
    world.index.cut[NUMPY] = 100
    with pytest.raises(StackError, match="connection ends before the file does"):
        world.run()
    names = os.listdir(world.mirror / "pip")
    assert NUMPY not in names and not (world.mirror / "mirror.json").exists()
    world.index.cut.clear()
    del world.index.requests[:]
    world.run()
    assert [ranged is not None for path, ranged in world.index.requests if path.endswith(NUMPY)] == [True]
    assert sorted(os.listdir(world.mirror / "pip")) == NAMES


def test_half_a_file_of_another_content_is_given_up(world):
    (world.mirror / "pip").mkdir(parents=True)
    half = pathlib.Path(downloads.half_name(str(world.mirror / "pip" / NUMPY)))
    half.write_bytes(b"x" * 1000)
    with pytest.raises(StackError, match="is another file"):
        world.run()
    assert not half.exists()
    world.run()


DRIVER = """
import json, os, sys
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror import mirror as mirrors
from ansible_collections.hpcml.torchstack.plugins.modules import release_mirror
params = json.load(open(sys.argv[1]))
mirror = mirrors.Mirror(params, os.environ, sys.argv[2])
release_mirror.carry_out(mirror, params, False)
"""


def test_a_killed_run_is_completed_by_the_next(world):
    world.index.stalls.add(NAMES[3])
    params = world.place / "params.json"
    params.write_text(json.dumps({**OPTIONS, "path": str(world.mirror), "definition": world.definition}))
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(params), str(world.place)], env={**os.environ, **world.variables})
    assert world.index.stalled.wait(120)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (world.mirror / "mirror.json").exists()
    there = [name for name in os.listdir(world.mirror / "pip") if not downloads.is_half(name)]
    assert there and len(there) < 6
    world.index.stalls.clear()
    del world.index.requests[:]
    world.run()
    assert sorted([*there, *world.index.fetched()]) == NAMES
    assert sorted(os.listdir(world.mirror)) == [".lock", "mirror.json", "pip"]
    assert all(entry["origin"] for entry in world.record()["files"].values())


def test_what_no_release_wants_any_more_is_removed(world):
    world.run()
    (world.mirror / "pip" / "by-hand-1.0.tar.gz").write_bytes(b"")
    other = {**world.definition, "release": "2026-11-21", "packages": []}
    world.run(definition=other)
    world.definition["mpi"]["prefix"] = "/opt/mpi"
    assert world.run(mpi_wheel=False)["written"] == ["mirror.json"]
    assert (world.mirror / "pip" / NAMES[4]).exists()
    assert world.run(definition=other, mpi_wheel=False)["written"] == ["pip/" + NAMES[4], "mirror.json"]
    assert sorted(os.listdir(world.mirror / "pip")) == sorted(["by-hand-1.0.tar.gz", *NAMES[:4], NUMPY])


def test_two_contents_of_one_name_need_two_mirrors(world):
    world.run()
    other = make_wheel(world.place / "other", "numpy", "2.4", 20)
    digest = world.index.offer(other, "numpy")
    definition = {**world.definition, "release": "2026-11-21"}
    definition["locks"] = {"tools": world.pins["cmake"], "base": world.pin("numpy", "2.4", digest)}
    before = world.files()
    with pytest.raises(StackError, match=r"Two files of one name are wanted: pip/numpy-2\.4"):
        world.run(definition=definition)
    assert world.files() == before


def test_logins_are_used_and_not_recorded(world):
    world.index.login = "Basic " + base64.b64encode(b"me:s3cret/word").decode()
    with pytest.raises(StackError, match="401"):
        world.run()
    world.variables["PIP_INDEX_URL"] = world.index.url.replace("http://", "http://me:s3cret%2Fword@")
    result = world.run()
    assert "s3cret" not in json.dumps(result) + json.dumps(world.record())


def test_logins_of_a_netrc_are_used(world, monkeypatch):
    monkeypatch.setenv("HOME", str(world.place))
    world.index.login = "Basic " + base64.b64encode(b"me:s3cret").decode()
    (world.place / ".netrc").write_text("machine 127.0.0.1 login me password s3cret\n")
    (world.place / ".netrc").chmod(0o600)
    assert len(world.run()["fetched"]) == 6


def pytorch(world, cpu_index, *, cuda="None"):
    """Add PyTorch to the release: a CPU build in an index of its own, and the default build."""
    files = {"torch/version.py": "__version__ = '2.13.0'\ncuda: Optional[str] = %s\n" % cuda}
    default = world.index.offer(make_wheel(world.place / "default", "torch", "2.13.0", files=files), "torch")
    cpu = make_wheel(world.place / "cpu", "torch", "2.13.0+cpu")
    triton = world.index.offer(make_wheel(world.place / "default", "triton", "3.7"), "triton")
    world.definition["pytorch"] = {
        "version": "2.13.0", "lock": world.pin("torch", "2.13.0", default),
        "cuda_lock": world.pin("triton", "3.7", triton),
        "cpu": {"index": cpu_index, "hashes": {
            "cp%d%d" % sys.version_info[:2]: "sha256:" + hashlib.sha256(cpu.read_bytes()).hexdigest()}},
    }
    return cpu


def mirrored(world):
    return sorted(set(os.listdir(world.mirror / "pip")) - set(NAMES))


def test_the_cpu_build_of_pytorch_is_mirrored_where_it_is_to_be_had(world):
    cpu = pytorch(world, REFUSED)
    world.variables["PIP_FIND_LINKS"] = str(cpu.parent)
    world.run()
    assert mirrored(world) == [cpu.name]
    world.run(state="complete")
    (world.mirror / "pip" / cpu.name).unlink()
    with pytest.raises(StackError, match=r"torch 2\.13\.0\+cpu \(sha256"):
        world.run(state="complete")


@pytest.mark.parametrize("cuda, names", [
    ("None", ["torch-2.13.0-py3-none-any.whl"]),
    ("'12.6'", ["torch-2.13.0-py3-none-any.whl", "triton-3.7-py3-none-any.whl"]),
])
def test_else_the_default_build_is_with_what_a_cuda_build_needs(world, cuda, names):
    pytorch(world, REFUSED, cuda=cuda)
    remarks = world.run()["remarks"]
    assert mirrored(world) == names and "is not to be had (" in remarks[0]
    world.run(state="complete")


def git(*words, **keys):
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always"]
    command = ["git", *identity, *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **keys).stdout.strip()


@pytest.fixture()
def repository(world, monkeypatch):
    """A git repository with a submodule; the later of its two commits."""
    if shutil.which("git") is None:
        pytest.skip("no git")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "protocol.file.allow")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "always")
    inner, outer = world.place / "inner", world.place / "outer"
    for place in (inner, outer):
        git("init", "--quiet", str(place))
        (place / "file").write_text("one\n")
        git("add", "file", cwd=place)
        git("commit", "--quiet", "-m", "one", cwd=place)
    git("submodule", "--quiet", "add", inner.as_uri(), "inner", cwd=outer)
    git("commit", "--quiet", "-m", "two", cwd=outer)
    commit = git("rev-parse", "HEAD", cwd=outer)
    world.definition["packages"].append(
        {"name": "outer", "version": "1.0", "licence": "MIT", "repository": outer.as_uri(), "commit": commit})
    return outer


def test_a_git_commit_is_mirrored_with_its_submodules(world, repository):
    commit = world.definition["packages"][-1]["commit"]
    world.run()
    archive, = (world.mirror / "git").iterdir()
    assert archive.name == "%s.%s.tar" % (commit, hashlib.sha256(archive.read_bytes()).hexdigest())
    shutil.rmtree(repository)
    shutil.rmtree(world.place / "inner")
    assert world.run()["kept"] == 7 and world.run(state="complete")
    with tarfile.open(archive) as stream:
        names = stream.getnames()
    assert len(names) == 2 and commit + ".pack" in names and all(name.endswith(".pack") for name in names)


def test_a_false_archive_of_a_commit_is_made_again(world, repository):
    world.run()
    archive, = (world.mirror / "git").iterdir()
    half = world.place / "half.tar"
    with tarfile.open(archive) as stream, tarfile.open(half, "w") as other:
        # Right packs under each other's names: every object is whole, and none is the commit's.
        one, two = stream.getmembers()
        for member, source in ((one, two), (two, one)):
            swapped = tarfile.TarInfo(member.name)
            swapped.size = source.size
            other.addfile(swapped, stream.extractfile(source))
    archive.unlink()
    digest = hashlib.sha256(half.read_bytes()).hexdigest()
    half.replace(archive.with_name("%s.%s.tar" % (archive.name[:40], digest)))
    with pytest.raises(StackError, match=r"does not prove commit"):
        world.run(state="complete")
    assert [entry["name"] for entry in world.run()["fetched"]] == ["outer"]
    world.run(state="complete")


def test_a_spoilt_archive_of_a_commit_is_made_again(world, repository):
    world.run()
    archive, = (world.mirror / "git").iterdir()
    archive.write_bytes(archive.read_bytes()[:-1])
    with pytest.raises(StackError, match=r"outer 1\.0 \(commit "):
        world.run(state="complete")
    assert [entry["name"] for entry in world.run()["fetched"]] == ["outer"]
    world.run(state="complete")


def test_a_commit_that_nobody_has_is_said(world, repository):
    world.definition["packages"][-1]["commit"] = "1" * 40
    with pytest.raises(StackError, match=r"1{40} cannot be fetched from file://"):
        world.run()


def test_a_submodule_out_of_reach_is_named_by_its_place_and_not_looked_for_in_the_release_file(world, repository):
    (world.place / "inner").rename(world.place / "elsewhere")
    with pytest.raises(StackError, match=r"/inner, the submodule inner of file://\S*/outer: ") as refused:
        world.run()
    assert refused.value.remedy.startswith(
        "Repository and commit are those of its .gitmodules and its tree, and not of the release file.")


def test_an_archive_lies_below_its_digest(world):
    source = make_source(world.place, "far", "2.0")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    world.definition["packages"].append({
        "name": "far", "version": "2.0", "licence": "MIT", "archive": source.as_uri() + "#egg=far", "sha256": digest})
    world.run()
    assert (world.mirror / "archives" / digest / "far-2.0.tar.gz").read_bytes() == source.read_bytes()


def test_a_mirror_of_another_account_is_enough(world):
    world.run()
    before = world.files()
    for path in [*world.mirror.rglob("*"), world.mirror]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        world.run(state="complete")
        assert world.files() == before
    finally:
        for path in [world.mirror, *world.mirror.rglob("*")]:
            path.chmod(0o755)


def test_a_full_disk_is_said(world, monkeypatch):
    def full(*_arguments):
        raise OSError(28, "No space left on device", str(world.mirror))

    monkeypatch.setattr(downloads, "_copied", full)
    with pytest.raises(StackError, match="No space left on device") as caught:
        world.run()
    assert "Make room on the file system" in caught.value.remedy
    assert sorted(name for name in os.listdir(world.mirror / "pip") if not downloads.is_half(name)) == []


@pytest.fixture()
def conda(world):
    """A release on a conda base, and the channel of its packages."""
    lacking = [name for name in ("rattler", "conda_package_streaming") if importlib.util.find_spec(name) is None]
    if lacking:
        pytest.skip("no channel can be built: missing " + ", ".join(lacking))
    channel = conda_channel.Channel(world.place / "channel")
    for name, version, depends in (("data", "1.0", ()), ("data", "2.0", ()), ("python", "3.11.9", ("data >=1",))):
        channel.add(name, version, {"share/%s" % name: version + "\n"}, depends)
    channel.index()
    world.definition["base"] = {
        "kind": "conda", "python": "3.11", "channels": [channel.url], "specs": ["python 3.11.*", "data <2"], "lock": "",
        "mirrors": {}, "virtual_packages": {}, "channel_priority": "strict", "accept_defaults_licence": False,
    }
    world.definition["locks"]["conda"] = world.pins["cmake"]
    world.channel = channel
    return world


def test_the_packages_of_a_conda_base_are_a_channel_in_the_mirror(conda, run_module):
    result = conda.run()
    assert [entry["name"] for entry in result["fetched"]].count("data") == 1
    channel, = (conda.mirror / "conda").iterdir()
    assert sorted(path.name for path in channel.glob("*/*.conda")) == [
        conda.channel.package("data", "1.0").name, conda.channel.package("python").name]
    conda.run(state="complete")
    again = conda.run()
    assert (again["changed"], again["written"]) == (False, [])
    base, url = conda.definition["base"], conda.channel.url
    shutil.move(conda.channel.directory, conda.place / "away")
    made = run_module("conda_environment", {
        "prefix": str(conda.place / "prefix"), "channels": base["channels"], "specs": base["specs"],
        "mirrors": mirror_context(str(conda.mirror), conda.definition, ())["channels"],
        "cache": str(conda.place / "cache")})
    assert not made.failed, made.console
    assert [package["channel"] for package in made["packages"]] == [url, url]
    assert (conda.place / "prefix" / "share" / "data").read_text() == "1.0\n"
    # An explicit lock says itself which packages it wants: the same ones, under the same names.
    base.update(specs=[], channels=[], lock=made["lock"])
    assert conda.run(parts=["conda"])["fetched"] == []
    conda.run(state="complete")


def test_a_conda_base_that_was_never_mirrored_or_is_spoilt_is_said(conda):
    conda.run(parts=["python"])
    with pytest.raises(StackError, match=r"conda base, for base: python 3\.11\.\*, data <2 were never mirrored"):
        conda.run(state="complete")
    conda.run()
    package, = conda.mirror.glob("conda/*/*/data-1.0*.conda")
    package.write_bytes(b"half")
    with pytest.raises(StackError, match=r"data 1\.0 \S+ \(sha256 \w{64}\), for base: conda/\S+ is there with 4 bytes"):
        conda.run(state="complete")
    index, = package.parent.glob("../noarch/repodata.json")
    index.unlink()
    conda.run()
    conda.run(state="complete")
