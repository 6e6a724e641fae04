# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The site's cache of the module system, renewed for what users see."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import spider_cache as subject


@pytest.fixture()
def root(tmp_path):
    (tmp_path / "modulefiles" / "tcl" / "t").mkdir(parents=True)
    return tmp_path


def renew(root, words, timeout=60):
    """Whether it was renewed."""
    cache = subject.look(str(root), words)
    if not cache.is_current:
        subject.renew(str(root), cache, timeout)
    return not cache.is_current


def test_each_change_of_what_users_see_asks_for_a_renewal_and_nothing_else_does(root):
    assert not renew(root, ["false"]), "where there is nothing to see, there is nothing to renew"
    place = root / "modulefiles" / "tcl" / "t"
    (place / "1").write_text("one")
    assert renew(root, ["true"]) and not renew(root, ["true"])
    (place / "1").write_text("two")
    assert renew(root, ["true"]) and not renew(root, ["true"])
    (place / "2").symlink_to("1")
    assert renew(root, ["true"]) and not renew(root, ["true"])
    (place / ".1.ab12cd34").write_text("what a killed run had begun to write")
    (root / "modulefiles" / "empty").mkdir()
    (place / "1").touch()
    assert not renew(root, ["true"])
    (place / "2").unlink()
    (place / "1").unlink()
    assert renew(root, ["true"]) and not renew(root, ["true"])
    assert renew(root, ["sh", "-c", "true"]), "another command renews another cache"


def test_the_command_runs_as_it_is_in_the_root_and_its_passwords_are_not_kept(root):
    (root / "modulefiles" / "file").write_text("")
    words = ["sh", "-c", "pwd > \"$0\"", "a b; c", "https://me:secret99@example.org/"]
    assert renew(root, words)
    assert (root / "a b; c").read_text() == "%s\n" % root
    assert "secret99" not in (root / ".torchstack" / "module_cache.json").read_text()
    assert not renew(root, words)


@pytest.mark.parametrize(("words", "timeout", "said"), [
    (["sh", "-c", "echo no space; exit 3"], 60, "ended with 3: no space"), (["false"], 60, "ended with 1: no output"),
    (["/nowhere/x"], 60, "'/nowhere/x' cannot be run: No such file"), (["sleep", "60"], 0.1, "took more than"),
])
def test_what_failed_is_said_and_done_again_by_the_next_run(root, words, timeout, said):
    (root / "modulefiles" / "file").write_text("")
    with pytest.raises(StackError, match=said) as caught:
        renew(root, words, timeout)
    assert "when it is run again" in caught.value.remedy
    assert not subject.look(str(root), words).is_current


@pytest.mark.parametrize("content", ["{", "[]", "\udcff"])
def test_a_damaged_record_costs_one_renewal(root, content):
    (root / "modulefiles" / "file").write_text("")
    assert renew(root, ["true"])
    (root / ".torchstack" / "module_cache.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    assert renew(root, ["true"]) and not renew(root, ["true"])


def test_a_cache_that_lies_in_the_module_tree_does_not_ask_for_its_own_renewal(root):
    (root / "modulefiles" / "tcl" / "t" / "1").write_text("")
    script = "date +%N > modulefiles/tcl/.modulecache; mkdir -p modulefiles/.c; date +%N > modulefiles/.c/x"
    words = ["sh", "-c", script]
    assert renew(root, words) and not renew(root, words)


def test_a_change_while_the_command_runs_asks_for_another_renewal(root):
    (root / "modulefiles" / "file").write_text("")
    words = ["sh", "-c", "date +%N > modulefiles/file"]
    assert renew(root, words) and renew(root, words)
