# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A verification of objects that were written byte by byte, for an invented machine."""

from __future__ import annotations

import os
import struct

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf.resolver import System
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify import library_record, library_scan
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.libraries import verify
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.library_rules import parse_rules

NEEDED, STRTAB, STRSZ, SONAME, RPATH, RUNPATH = 1, 5, 10, 14, 15, 29
MACHINE = System(default_directories=(b"/nonexistent/",))


def elf(soname="", needed=(), runpath="", rpath="", machine=62, kind=3, abi=0):
    """A shared object of one segment: header, two program headers, dynamic section, strings."""
    strings = b"\0"
    dynamic = []
    for tag, value in [(SONAME, soname), (RUNPATH, runpath), (RPATH, rpath), *[(NEEDED, name) for name in needed]]:
        if value:
            dynamic.append((tag, len(strings)))
            strings += os.fsencode(value) + b"\0"
    start = 64 + 2 * 56
    table = start + (len(dynamic) + 3) * 16
    dynamic += [(STRTAB, table), (STRSZ, len(strings)), (0, 0)]
    body = b"".join(struct.pack("<QQ", *entry) for entry in dynamic) + strings
    header = b"\x7fELF\x02\x01\x01" + bytes([abi]) + bytes(8)
    header += struct.pack("<HHIQQQIHHHHHH", kind, machine, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    size = start + len(body)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 4096)
    section = struct.pack("<IIQQQQQQ", 2, 6, start, start, start, len(dynamic) * 16, len(dynamic) * 16, 8)
    return header + load + section + body


@pytest.fixture()
def tree(tmp_path):
    """Writes objects below a directory, by relative path."""

    def write(**objects):
        for name, content in objects.items():
            path = tmp_path / "tree" / name.replace("__", "/").replace("_so", ".so")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return str(tmp_path / "tree")

    return write


def run(top, **rules):
    return verify(parse_rules(rules), [top], MACHINE)


def found(outcome):
    """The findings in short: kind, file name, soname, environment."""
    return [
        (entry.kind, os.path.basename(entry.object), entry.soname, entry.environment.partition(" ")[0])
        for entry in outcome.findings
    ]


def test_a_library_in_both_environments_one_or_none(tree, tmp_path):
    top = tree(user_so=elf(needed=["liba.so", "libb.so", "libc.so"], runpath="$ORIGIN"), liba_so=elf("liba.so"))
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "libb.so").write_bytes(elf("libb.so"))
    outcome = run(top, environment={"LD_LIBRARY_PATH": str(tmp_path / "extra")})
    assert found(outcome) == [
        ("missing", "user.so", "libb.so", "without"), ("missing", "user.so", "libc.so", "with"),
    ]
    assert outcome.findings[1].environment == "with and without LD_LIBRARY_PATH"
    assert found(run(top)) == [
        ("missing", "user.so", "libb.so", "without"), ("missing", "user.so", "libc.so", "without"),
    ]


def test_what_is_missing_for_a_library_elsewhere_is_reported_once_with_for_whom(tree, tmp_path):
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / "liba.so").write_bytes(elf("liba.so", ["libgone.so"]))
    user = elf(needed=["liba.so"], runpath=str(tmp_path / "system"))
    outcome = run(tree(one_so=user, two_so=user))
    assert found(outcome) == [("missing", "liba.so", "libgone.so", "without")]
    details = dict(outcome.findings[0].details)
    assert (os.path.basename(details["root"]), details["roots"]) == ("one.so", 2)


def test_an_object_and_the_link_by_which_it_is_needed_are_one(tree):
    top = tree(**{"lib__liba_so.1.2": elf("liba.so.1", ["libgone.so"])},
               user_so=elf(needed=["liba.so.1"], runpath="$ORIGIN/lib"))
    os.symlink("liba.so.1.2", os.path.join(top, "lib", "liba.so.1"))
    outcome = run(top)
    assert found(outcome) == [("missing", "liba.so.1.2", "libgone.so", "without")]
    assert len(outcome.scan.objects) == 2


def test_a_missing_library_is_excused_for_the_objects_that_are_meant_and_no_others(tree):
    top = tree(plugin_so=elf(needed=["libgone.so"]), user_so=elf(needed=["libgone.so"]))
    rule = {"name": "libgone.so", "object": "**/plugin.so", "reason": "opened where it is"}
    outcome = run(top, allow_missing=[rule])
    assert found(outcome) == [("missing", "user.so", "libgone.so", "without")]
    assert [(entry["soname"], entry["objects_total"]) for entry in outcome.allowed] == [("libgone.so", 1)]
    assert run(top, allow_missing=[dict(rule, object="")]).findings == []


def test_a_library_is_known_by_its_soname_even_if_asked_for_by_another_name(tree):
    top = tree(user_so=elf(needed=["libnccl.so"], runpath="$ORIGIN/lib"), lib__libnccl_so=elf("libnccl.so.2"))
    provider = {"name": "libnccl.so.2", "path": "/elsewhere/*"}
    assert found(run(top, providers=[provider])) == [("misplaced", "user.so", "libnccl.so", "without")]
    assert run(top, providers=[provider, {"name": "libnccl*", "path": "**/lib/*"}]).findings == []
    assert run(top, require=[{"object": "**/user.so", "needs": "libnccl.so.2", "reason": "x"}]).findings == []


def test_what_is_needed_through_an_object_that_was_mapped_before_counts(tree, tmp_path):
    (tmp_path / "site").mkdir()
    before = tmp_path / "site" / "libtorch.so"
    before.write_bytes(elf("libtorch.so", ["libgtl.so.0"], runpath="$ORIGIN"))
    (tmp_path / "site" / "libgtl.so.0").write_bytes(elf("libgtl.so.0"))
    top = tree(ext_so=elf("ext.so", ["libtorch.so"]))
    require = [{"object": "**/ext.so", "needs": "libgtl.so*", "reason": "x"}]
    assert run(top, preloaded=[str(before)], require=require).findings == []
    require[0]["needs"] = "libother.so"
    assert found(run(top, preloaded=[str(before)], require=require)) == [
        ("required", "ext.so", "libother.so", "without")
    ]


def test_what_was_mapped_before_has_to_be_there(tree):
    with pytest.raises(StackError) as caught:
        run(tree(ext_so=elf(needed=["libtorch.so"])), preloaded=["/nonexistent/libtorch.so"])
    assert "/nonexistent/libtorch.so" in caught.value.message and caught.value.remedy


def test_forbidden_places_are_seen_through_origin_dots_and_links(tree, tmp_path):
    (tmp_path / "cuda" / "stubs").mkdir(parents=True)
    (tmp_path / "alias").symlink_to("cuda/stubs")
    forbid = [{"path": str(tmp_path / "cuda" / "stubs"), "reason": "for linking"}]
    top = tree(
        one_so=elf(rpath="${ORIGIN}/../cuda/lib/../stubs"), two_so=elf(runpath="/usr/lib:%s" % (tmp_path / "alias")),
        three_so=elf(runpath=str(tmp_path / "cuda" / "stubs-real")),
    )
    (tmp_path / "cuda" / "lib").mkdir()
    assert [entry[:2] for entry in found(run(top, forbid=forbid))] == [("forbidden", "one.so"), ("forbidden", "two.so")]
    outcome = run(top, environment={"LD_LIBRARY_PATH": str(tmp_path / "alias")}, forbid=forbid, exclude=["*.so"])
    assert found(outcome) == [("forbidden", "LD_LIBRARY_PATH", "", "with")]


@pytest.mark.parametrize("value", [":/opt/lib", "/opt/lib:", "/opt/lib::/usr/lib", "lib", "/opt/lib;"])
def test_a_library_path_that_means_the_current_directory_is_a_finding(tree, value):
    outcome = run(tree(user_so=elf()), environment={"LD_LIBRARY_PATH": value})
    assert [entry[:2] for entry in found(outcome)] == [("forbidden", "LD_LIBRARY_PATH")]


def test_a_broken_library_ends_what_needs_it(tree):
    top = tree(user_so=elf(needed=["libbad.so"], runpath="$ORIGIN"), libbad_so=elf("libbad.so")[:100])
    assert [entry[:2] for entry in found(run(top))] == [("unreadable", "libbad.so"), ("unreadable", "user.so")]


def test_objects_of_other_machines_and_systems_are_not_checked(tree):
    outcome = run(tree(mips_so=elf(machine=8), bsd_so=elf(abi=9), part_o=elf(kind=1), mine_so=elf()))
    assert (len(outcome.scan.objects), outcome.findings) == (1, [])
    assert [os.path.basename(entry.path) for entry in outcome.not_checked] == [b"bsd.so", b"mips.so", b"part_o"]


def test_a_record_is_the_same_wherever_the_release_lies(tree, tmp_path):
    top = tree(user_so=elf(needed=["liba.so"], runpath="$ORIGIN/lib"), lib__liba_so=elf("liba.so"))
    records = []
    for place in (top, str(tmp_path / "moved")):
        if place != top:
            os.rename(top, place)
        rules = parse_rules({"providers": [{"name": "liba.so", "path": place + "/lib/*"}]})
        outcome = verify(rules, [place], MACHINE)
        records.append(library_record.build(rules, [place], outcome, os.fsencode(place)))
    assert records[0] == records[1]
    assert records[0]["objects"]["user.so"] == {"needed": {"liba.so": {"path": "lib/liba.so", "rule": "RUNPATH"}}}
    assert library_record.rules_for("/new", records[0])["providers"][0]["path"] == "/new/lib/*"


def test_a_record_tells_where_it_differs_without_the_library_path(tree, tmp_path):
    library = elf("liba.so")
    top = tree(user_so=elf(needed=["liba.so"], runpath="$ORIGIN"), liba_so=library, other__liba_so=library)
    rules = parse_rules({"environment": {"LD_LIBRARY_PATH": top + "/other"}})
    record = library_record.build(rules, [top], verify(rules, [top], MACHINE), os.fsencode(top))
    assert record["objects"]["user.so"] == {
        "needed": {"liba.so": {"path": "other/liba.so", "rule": "LD_LIBRARY_PATH"}},
        "needed_without": {"liba.so": {"path": "liba.so", "rule": "RUNPATH"}},
    }
    assert record["rules"]["environment"] == {"LD_LIBRARY_PATH": "{prefix}/other"}
    assert library_record.top_of(str(tmp_path / ".torchstack" / "verification.json"), [top]) == os.fsencode(
        str(tmp_path)
    )


class Backwards:
    """A directory that lists its entries the other way round."""

    def __init__(self, entries):
        self.entries = entries

    def __enter__(self):
        return iter(sorted(self.entries, key=lambda entry: entry.name, reverse=True))

    def __exit__(self, *_exception):
        self.entries.close()

    def close(self):
        self.entries.close()


def test_results_are_the_same_in_whatever_order_the_directory_lists_its_files(tree, monkeypatch):
    user = elf(needed=["libgone.so", "libaway.so"])
    top = tree(**{"user%d_so" % number: user for number in range(5)})
    first = run(top, exclude=[]).as_result(3)
    monkeypatch.setattr(library_scan.os, "scandir", lambda path, real=os.scandir: Backwards(real(path)))
    second = run(top, exclude=[]).as_result(3)
    assert dict(first, seconds=0) == dict(second, seconds=0)
    assert (len(first["missing"]), first["missing_total"]) == (3, 10)
