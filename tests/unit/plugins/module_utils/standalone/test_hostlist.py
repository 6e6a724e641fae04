# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Slurm's compressed notations."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.standalone import hostlist


@pytest.mark.parametrize(("text", "hosts"), [
    ("", []),
    ("login", ["login"]),
    ("nid[001-003,007]", ["nid001", "nid002", "nid003", "nid007"]),
    ("nid[005,007]", ["nid005", "nid007"]),
    ("nid001-a[1-2],nid005", ["nid001-a1", "nid001-a2", "nid005"]),
    ("r[0-1]n[01-02]", ["r0n01", "r0n02", "r1n01", "r1n02"]),
    ("a[1-2]b[3-4]c[5-6]", ["a1b3c5", "a1b3c6", "a2b3c5", "a2b3c6", "a1b4c5", "a1b4c6", "a2b4c5", "a2b4c6"]),
    ("n[9-11],n[09-11],n[001-3]", ["n9", "n10", "n11", "n09", "n10", "n11", "n001", "n002", "n003"]),
    ("n[2-2,1-1,2]", ["n2", "n1", "n2"]),
    (" a , b\tc\nd,,", ["a", "b", "c", "d"]),
    ("[1-2]", ["1", "2"]),
    ("n[1-2]-ib,[3-4]x,m[1-2][5]-a", ["n1-ib", "n2-ib", "3x", "4x", "m15-a", "m25-a"]),
])
def test_s35_a_list_of_hosts_is_written_out(text, hosts):
    assert hostlist.expand(text) == hosts
    assert hostlist.first(text) == (hosts[0] if hosts else "")


@pytest.mark.parametrize(("text", "part"), [
    ("n[3-1]", "'3-1', which ends before it begins"),
    ("a,n[1-2", "no closing bracket after 'n[1-2'"),
    ("a,n1]", "a bracket too many at 'n1]'"),
    ("n[[1-2]]", "a bracket too many at 'n[['"),
    ("n[]", "wrong at ''"),
    ("n[1-3,]", "wrong at ''"),
    ("n[1--2]", "wrong at '1--2'"),
    ("n[ 1]", "wrong at ' 1'"),
    ("n[a-b]", "wrong at 'a-b'"),
    ("n[0-99999999]", "more than 262144 hosts"),
    ("n[%s]" % ",".join(["0-199999"] * 99), "more than 262144 hosts"),
    ("n[0-9999][0-9999]", "more than 262144 hosts"),
])
def test_s35_bad_text_is_refused_where_it_is_bad(text, part):
    with pytest.raises(hostlist.HostListError) as refused:
        hostlist.expand(text)
    assert repr(text) in str(refused.value) and part in str(refused.value)


@pytest.mark.parametrize(("text", "counts"), [("", []), ("3", [3]), ("4(x2),3", [4, 4, 3]), ("1,2(x1)", [1, 2])])
def test_s35_counts_of_tasks_are_written_out(text, counts):
    assert hostlist.counts(text) == counts


@pytest.mark.parametrize("text", ["4(x2", "x", "4,,3", "4(x)", "1(x9999999)"])
def test_s35_bad_counts_are_refused(text):
    with pytest.raises(hostlist.HostListError) as refused:
        hostlist.counts(text)
    assert repr(text) in str(refused.value)
