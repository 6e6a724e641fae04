# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The record beside a prefix, the process of py-rattler, its errors, and what cache entries are worth."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda import cache as conda_cache
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda import errors as conda_failures
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda import state as conda_state
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda.package import Package
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda.rattler_worker import Worker
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda.state import Journal, State, Store
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError

CONTENT = b"archive"
PACKAGE = Package("tool", "1", "0", "noarch", "", "", hashlib.sha256(CONTENT).hexdigest())


def test_a_record_is_read_as_it_was_written(tmp_path):
    store = Store(str(tmp_path / "base"))
    assert store.read() == State()
    journal = Journal(conda_state.LINK, ["own"], [list(PACKAGE)], "old\n", True)
    store.open(journal)
    assert store.read() == State(journal=journal)
    store.close("digest", [PACKAGE])
    assert store.read() == State("digest", (PACKAGE.identity,))
    store.forget()
    assert store.read() == State()


def test_only_a_prefix_of_which_nothing_was_there_is_fresh():
    assert Journal(conda_state.LINK, [], [], "", True).fresh
    assert not Journal(conda_state.LINK, ["own"], [], "", True).fresh
    assert not Journal(conda_state.LINK, [], [list(PACKAGE)], "", True).fresh


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_record_that_is_none_is_an_error_with_the_remedy(tmp_path, text):
    store = Store(str(tmp_path / "base"), str(tmp_path / "records"))
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / ".base.conda.json").write_text(text)
    with pytest.raises(StackError) as caught:
        store.read()
    assert "Remove it" in caught.value.remedy and caught.value.path == store.path


def test_a_prefix_is_held_by_one_run_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(conda_state, "WAIT", 0.0)
    with Store(str(tmp_path / "base")).held():
        with pytest.raises(StackError) as caught, Store(str(tmp_path / "base")).held():
            pass
        assert "Another run" in caught.value.message
    with Store(str(tmp_path / "base")).held():
        pass


def offered():
    def fail():
        raise StackError("It failed.", "solve", "Try.", "/p", explanation="why")

    return {"double": lambda number: number * 2, "fail": fail, "die": lambda: os.kill(os.getpid(), signal.SIGKILL),
            "umask": lambda: os.umask(0o022)}


def test_the_process_answers_under_its_own_umask_and_hands_errors_over():
    old = os.umask(0o077)
    try:
        with Worker(offered) as worker:
            assert worker.call("double", number=21) == 42
            assert worker.call("umask") == 0o022
            with pytest.raises(StackError) as caught:
                worker.call("fail")
            assert caught.value.as_result() == {
                "msg": "It failed. Try.", "failed_step": "solve", "path": "/p", "remedy": "Try.", "explanation": "why",
            }
    finally:
        os.umask(old)


def test_a_process_that_dies_is_an_error_and_not_a_hang():
    with Worker(offered) as worker, pytest.raises(StackError) as caught:
        worker.call("die")
    assert "signal 9" in caught.value.message


@pytest.mark.parametrize("kind, text, step, said", [
    ("SolverError", "Cannot solve: no candidates for x", "solve", "no candidates for x"),
    ("InvalidMatchSpecError", "unable to parse version spec: >", "solve", "unable to parse"),
    ("GatewayError", "could not find subdir\nCaused by: No such file", "read the channel", "No such file"),
    ("InstallerError", "failed to fetch a-1-0.conda\nCaused by: layer\nCaused by: Invalid checksum",
     "fetch the packages", "a-1-0.conda cannot be fetched or is damaged: Invalid checksum"),
    ("InstallerError", "failed to fetch a\nCaused by: hash mismatch when extracting http://x/a to /c/.a: expected 11, "
     "got 22, total size 3", "fetch the packages", "http://x/a has sha256 22 where 11 was expected"),
    ("InstallerError", "failed to link a\nCaused by: No space left on device (os error 28)", "link", "No space left"),
    ("ParseCondaLockError", "bad yaml", "read the lock", "bad yaml"),
    ("PanicException", "index out of bounds", "resolve", "PanicException: index out of bounds"),
])
def test_errors_of_the_library_say_what_failed_and_what_to_do(kind, text, step, said):
    error = conda_failures.translate(kind, text, "resolve")
    assert error.failed_step == step and said in error.message and error.remedy
    assert "\n" not in error.message or kind == "SolverError"


@pytest.fixture()
def cache(tmp_path):
    """A cache with one entry, as py-rattler lays it out."""
    entry = tmp_path / "tool-1-0"
    (entry / "info").mkdir(parents=True)
    (entry / "share").write_text("data")
    paths = [{"_path": "share", "path_type": "hardlink", "size_in_bytes": 4}]
    (entry / "info" / "paths.json").write_text(json.dumps({"paths": paths}))
    (tmp_path / "tool-1-0.lock").write_bytes(b"\0" * 7 + b"\1" + bytes.fromhex(PACKAGE.sha256))
    conda_cache.note([PACKAGE], str(tmp_path))
    return tmp_path


def test_an_entry_that_did_not_change_since_it_was_right_needs_no_reading(cache):
    assert not conda_cache.doubtful([PACKAGE], str(cache))
    other = PACKAGE._replace(name="other")
    assert not conda_cache.doubtful([other], str(cache))
    assert conda_cache.without_note([PACKAGE, other], str(cache), {}) == [other]


@pytest.mark.parametrize("spoil", [
    lambda cache: (cache / "tool-1-0" / "share").write_text("tada"),
    lambda cache: (cache / "tool-1-0" / "share").chmod(0o600),
    lambda cache: os.link(str(cache / "tool-1-0" / "share"), str(cache / "second-name")),
    lambda cache: (cache / "tool-1-0" / "share").unlink(),
    lambda cache: (cache / "tool-1-0.lock").unlink(),
    lambda cache: (cache / "tool-1-0.lock").write_bytes(b"\0" * 40),
    lambda cache: (cache / "tool-1-0" / "info" / "paths.json").write_text("{"),
    lambda cache: (cache / ".checked" / "tool-1-0").write_text("0" * 64),
    lambda cache: (cache / ".checked" / "tool-1-0").unlink(),
])
def test_an_entry_that_something_speaks_against_is_read(cache, spoil):
    time.sleep(0.05)  # clocks of file systems tick some hundred times a second
    spoil(cache)
    assert conda_cache.doubtful([PACKAGE], str(cache))
    assert conda_cache.without_note([PACKAGE], str(cache), looked_ahead(cache)) == [PACKAGE]


def looked_ahead(cache):
    """What a look at all entries finds."""
    known = {}
    list(conda_cache.look_ahead(str(cache), known))
    return known


def test_an_entry_that_was_looked_at_ahead_is_not_looked_at_again(cache):
    known = looked_ahead(cache)
    assert known == {"tool-1-0": PACKAGE.sha256}
    (cache / ".checked" / "tool-1-0").unlink()
    another = PACKAGE._replace(sha256="1" * 64)
    assert conda_cache.without_note([PACKAGE, another], str(cache), known) == [another]
    assert looked_ahead(cache / "none") == {}


def test_a_local_archive_is_compared_with_its_digest_unless_the_cache_has_it(tmp_path, cache):
    archive = tmp_path / "noarch" / "tool-1-0.conda"
    archive.parent.mkdir()
    package = PACKAGE._replace(url="file://%s" % archive)
    conda_cache.check_archive(package, str(cache))
    for content, said in ((None, "cannot be read"), (b"another", "where %s was expected" % PACKAGE.sha256)):
        if content is not None:
            archive.write_bytes(content)
        with pytest.raises(StackError) as caught:
            conda_cache.check_archive(package, str(tmp_path / "cold"))
        assert said in caught.value.message and str(archive) in caught.value.message
    archive.write_bytes(CONTENT)
    conda_cache.check_archive(package, str(tmp_path / "cold"))


def test_a_damaged_entry_is_only_extracted_anew_from_an_archive_that_is_right(tmp_path, cache):
    archive = tmp_path / "noarch" / "tool-1-0.conda"
    archive.parent.mkdir()
    archive.write_bytes(b"another")
    package = PACKAGE._replace(url="file://%s" % archive)
    conda_cache.check_archive(package, str(cache))
    (cache / ".checked" / "tool-1-0").unlink()
    with pytest.raises(StackError):
        conda_cache.check_archive(package, str(cache))
    archive.unlink()
    conda_cache.check_archive(package, str(cache))


def test_a_package_without_a_digest_is_refused(tmp_path):
    package = PACKAGE._replace(url="https://x/noarch/tool-1-0.conda", sha256="")
    with pytest.raises(StackError):
        conda_cache.check_archive(package, str(tmp_path))


def test_what_another_cache_has_is_taken_by_a_link_where_it_is_known_to_be_right(tmp_path, cache):
    own = tmp_path / "own"
    conda_cache.borrow([PACKAGE, PACKAGE._replace(name="other")], str(own), [str(tmp_path / "none"), str(cache)])
    assert os.readlink(str(own / "tool-1-0")) == str(cache / "tool-1-0")
    assert conda_cache.cached_digest(PACKAGE.stem, str(own)) == PACKAGE.sha256
    assert conda_cache.without_note([PACKAGE], str(own), {}) == []
    assert sorted(os.listdir(str(own))) == [".checked", "tool-1-0", "tool-1-0.lock"]


def test_a_link_to_an_entry_that_is_gone_or_another_one_is_given_up(tmp_path, cache):
    own = tmp_path / "own"
    conda_cache.borrow([PACKAGE], str(own), [str(cache)])
    (cache / "tool-1-0" / "share").unlink()
    conda_cache.borrow([PACKAGE], str(own), [str(cache)])
    assert not os.path.lexists(str(own / "tool-1-0"))
    conda_cache.borrow([PACKAGE], str(tmp_path / "third"), [str(cache)])
    assert not (tmp_path / "third").exists()
