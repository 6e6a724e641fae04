# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What an operator reads of a verification: remedies, the message, the table, and progress.

Covers library_findings, too.
"""

from __future__ import annotations

import collections
import io

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import cli
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify import library_cli
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.library_findings import (
    KINDS,
    Finding,
    embedded_remedy,
    misplaced_remedy,
    missing_remedy,
    rpath_to,
    sentence,
    text,
)


@pytest.mark.parametrize(
    ("soname", "words"),
    [
        ("libpython3.10.so.1.0", "LDFLAGS unset, and without -lpython3.10"),
        ("libpython3.13t.so.1.0", "LDFLAGS unset"),
        ("libcuda.so.1", "allow_missing"),
        ("libnvidia-ml.so.1", "compute node"),
        ("libc.musl-x86_64.so.1", "manylinux"),
        ("libstdc++.so.6", "compiler's run-time library"),
        ("libmpi.so.12", "belongs to MPI"),
        ("libmpi_cray.so.12", "belongs to MPI"),
        ("libother.so.1", "allow_missing with the reason"),
        ("libcudart.so.12", "allow_missing with the reason"),
    ],
)
def test_the_remedy_for_a_missing_library_depends_on_what_it_is(soname, words):
    assert words in missing_remedy(soname, b"/r/a.so", [], None, [])


def test_the_remedy_says_where_the_library_lies_and_how_to_lead_there():
    remedy = missing_remedy("libx.so", b"/r/a/b/user.so", [b"/r/c/libx.so"], None, [])
    assert "/r/c/libx.so" in remedy and "$ORIGIN/../../c" in remedy and "preloaded" in remedy
    assert rpath_to(b"/r/a/x.so", b"/r/a") == "$ORIGIN"
    alone = missing_remedy("libx.so", b"/r/a/user.so", [], b"/opt/lib/libx.so", [])
    assert "by LD_LIBRARY_PATH alone" in alone and "-Wl,-rpath,/opt/lib" in alone
    passed = "/lib32/libx.so (wrong class)"
    assert passed in missing_remedy("libx.so", b"/r/user.so", [], None, [passed])


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("LD_LIBRARY_PATH", "Take /opt out of LD_LIBRARY_PATH"), ("RPATH of /r/x.so", "instead of /opt"),
        ("already loaded", "the first one wins"), ("direct path", "written into the object"),
        ("ld.so.cache", "link it with an rpath"),
    ],
)
def test_the_remedy_for_a_misplaced_library_depends_on_the_rule_that_found_it(rule, words):
    remedy = misplaced_remedy(b"/opt/libx.so", rule, ["/r/lib/*"])
    assert words in remedy and "/r/lib/*" in remedy


def test_the_remedy_for_a_copy_of_nccl_names_the_options():
    assert "USE_SYSTEM_NCCL" in embedded_remedy("NCCL", "/r/nccl/**")
    assert "USE_SYSTEM_NCCL" not in embedded_remedy("OpenBLAS", "/r/blas/**")


def test_names_are_one_line_of_text_whatever_their_bytes():
    assert text(b"a\nb\x1b[2J\xff\xc3\xa9") == "a\\nb\\x1b[2J\\xff\u00e9"


def finding(kind, number, **more):
    return Finding(kind, "/r/%d.so" % number, "libx.so", "Wrong %d." % number, "Do %d." % number, **more)


def test_the_message_has_the_first_finding_and_counts_all():
    first = finding("missing", 1, environment="without LD_LIBRARY_PATH")
    findings = [first, finding("missing", 2), finding("embedded", 3)]
    assert sentence(findings, 7) == (
        "7 objects: 2 missing, 1 embedded. Wrong 1 (without LD_LIBRARY_PATH). Do 1."
    )


def test_the_table_shows_findings_providers_and_what_was_left_out():
    result = {kind: [] for kind in KINDS}
    result.update({kind + "_total": 0 for kind in KINDS})
    result.update(
        missing=[finding("missing", 1, searched=("RUNPATH: /r (no such file)",)).as_result()], missing_total=3,
        objects=1, files=9, unopened=6, seconds=0.25,
        unused=[{"rule": "allow_missing", "name": "libq.so", "reason": "x"}],
        own_copies=[{"object": "/r/x.so", "name": "NCCL", "text": "NCCL version 2", "reason": "its own"}],
        allowed=[{"soname": "libc.so", "objects": ["/r/1.so"], "objects_total": 2, "reason": "driver"}],
        providers={
            "libshort.so": [{"path": "/r/libshort.so", "rule": "RUNPATH", "needed_by": 12}],
            "libmuchlonger.so.1": [
                {"path": "/r/x", "rule": "RPATH", "needed_by": 3, "environment": "without LD_LIBRARY_PATH"}
            ],
        },
    )
    assert library_cli.render_table(result, collections.Counter({"statically linked": 2})) == [
        "Libraries that are not found: 3",
        "  Wrong 1.",
        "      searched RUNPATH: /r",
        "      Do 1.",
        "  and 2 more",
        "",
        "library             is              found by                         needed by",
        "libshort.so         /r/libshort.so  RUNPATH                          12",
        "libmuchlonger.so.1  /r/x            RPATH (without LD_LIBRARY_PATH)  3",
        "",
        "libc.so may be missing for /r/1.so (2): driver",
        "/r/x.so holds a copy of NCCL, 'NCCL version 2', which it may: its own",
        "The allow_missing rule for libq.so met nothing.",
        "Not checked, statically linked: 2.",
        "Not opened, for their names: 6.",
        "1 object of 9 files, 3 findings, 0.2 s",
    ]

    lines = library_cli.render_table(result, collections.Counter(), "/r")
    assert "Relative paths are below /r." in lines
    assert "libshort.so         libshort.so  RUNPATH                          12" in lines


class Terminal(io.StringIO):
    """A stream that is a terminal, or is not."""

    def __init__(self, real):
        super().__init__()
        self.real = real

    def isatty(self):
        return self.real


@pytest.mark.parametrize(
    ("real", "patience", "shown"),
    [(True, 0.0, "\r\033[K3 of 7 objects\r\033[K"), (True, 60.0, ""), (False, 0.0, "")],
)
def test_progress_is_shown_on_a_terminal_once_it_lasts(monkeypatch, real, patience, shown):
    monkeypatch.setattr(cli, "PATIENCE", patience)
    terminal = Terminal(real)
    display = cli.Display(terminal)
    display.progress("objects", 3, 7)
    display.clear()
    assert terminal.getvalue() == shown
