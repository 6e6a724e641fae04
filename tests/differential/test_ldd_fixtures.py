# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""One small library per rule of the loader: what is expected, and what glibc's own ldd says of the same files."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf.glibc import MACHINES, System
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf.ld_so_cache import parse_cache
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf.resolution import Plugin
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf.resolver import Loader

LDCONFIG = shutil.which("ldconfig", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
HERE = System.this_machine() if os.uname().machine in [machine.uname for machine in MACHINES.values()] else None

pytestmark = pytest.mark.skipif(
    HERE is None or shutil.which("gcc") is None or shutil.which("ldd") is None,
    reason="needs gcc and ldd on a machine whose rules are known",
)


def gcc(*arguments, source="int value;"):
    subprocess.run(
        ["gcc", "-x", "c", "-", "-x", "none", *map(str, arguments)], input=source, text=True, check=True,
        stderr=subprocess.PIPE,
    )


def library(path, *needed, rpath=None, runpath=None, soname=True, source="int value;", options=()):
    """A shared object without libc; its soname is its file name unless told otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arguments = ["-shared", "-fPIC", "-nostdlib", "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined", "-o", path]
    if soname:
        arguments.append("-Wl,-soname," + (path.name if soname is True else soname))
    if rpath is not None:
        arguments += ["-Wl,--disable-new-dtags", "-Wl,-rpath," + str(rpath)]
    if runpath is not None:
        arguments += ["-Wl,--enable-new-dtags", "-Wl,-rpath," + str(runpath)]
    gcc(*arguments, *options, *needed, source=source)
    return path


def ldd(path, directories=(), cwd=None):
    """({name: path or None} without the kernel's and the loader's own, the whole output) as ldd has it."""
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    if directories:
        environment["LD_LIBRARY_PATH"] = ":".join(map(str, directories))
    process = subprocess.run(
        ["ldd", str(path)], env=environment, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False,
    )
    found = {}
    for line in process.stdout.splitlines():
        match = re.match(r"\t(?:(.+) => )?(.+?)(?: \(0x[0-9a-f]+\))?$", line)
        if match and line.endswith((")", "not found")) and "vdso" not in line:
            found[match.group(1) or match.group(2)] = None if match.group(2) == "not found" else match.group(2)
    return found, process.stdout


def resolve(path, directories=(), system=None, **options):
    return Loader(system or HERE, [os.fsencode(str(item)) for item in directories]).resolve(
        os.fsencode(str(path)), **options
    )


def compare(path, directories=(), cwd=None):
    """Our resolution, after it was held against ldd's."""
    resolution = resolve(path, directories)
    found = {os.fsdecode(name): os.fsdecode(place) for name, place in resolution.loaded}
    found.update({os.fsdecode(edge.name): None for edge in resolution.edges if edge.path is None})
    theirs = ldd(path, directories, cwd)[0]
    # From glibc 2.41 on the loader is listed also where nothing needs it.
    for name in set(theirs) - set(found):
        if os.path.basename(name).startswith("ld-linux"):
            del theirs[name]
    assert found == theirs
    return resolution


def edge(resolution, name, needer=None):
    """(path, rule) of the one edge of this name."""
    edges = [
        item for item in resolution.edges
        if item.name == name.encode() and (needer is None or item.needer == os.fsencode(str(needer)))
    ]
    assert len(edges) == 1, edges
    return (os.fsdecode(edges[0].path) if edges[0].path else None, edges[0].rule)


def skipped(resolution, name):
    (found,) = [item for item in resolution.edges if item.name == name.encode()]
    return {os.fsdecode(item.directory): item.skipped for item in found.searched}


def test_rpath_comes_before_ld_library_path_and_that_before_runpath(tmp_path):
    for place in ("rp", "env"):
        library(tmp_path / place / "liba.so.1")
    stub = tmp_path / "rp/liba.so.1"
    old = library(tmp_path / "old.so", stub, rpath=tmp_path / "rp")
    new = library(tmp_path / "new.so", stub, runpath=tmp_path / "rp")
    here, there = str(stub), str(tmp_path / "env/liba.so.1")
    assert edge(compare(old, [tmp_path / "env"]), "liba.so.1") == (here, "RPATH")
    assert edge(compare(new, [tmp_path / "env"]), "liba.so.1") == (there, "LD_LIBRARY_PATH")
    assert edge(compare(new), "liba.so.1") == (here, "RUNPATH")


def test_ld_library_path_takes_both_separators_and_origin(tmp_path):
    wanted = library(tmp_path / "x/liba.so.1")
    root = library(tmp_path / "root.so", wanted)
    for text in ("/nowhere;%s" % wanted.parent, "/nowhere:$ORIGIN/x///"):
        assert edge(compare(root, [text]), "liba.so.1") == (str(wanted), "LD_LIBRARY_PATH")


def test_an_empty_entry_is_the_current_directory(tmp_path, monkeypatch):
    wanted = library(tmp_path / "liba.so.1")
    root = library(tmp_path / "sub/root.so", wanted)
    monkeypatch.chdir(tmp_path)
    assert edge(compare(root, ["/nowhere::"], tmp_path), "liba.so.1") == ("liba.so.1", "LD_LIBRARY_PATH")
    empty = library(tmp_path / "sub/empty.so", wanted, rpath="/nowhere::/nowhere2")
    assert edge(compare(empty, cwd=tmp_path), "liba.so.1") == ("liba.so.1", "RPATH")


@pytest.mark.parametrize("form", ["$ORIGIN/x", "${ORIGIN}/x", "$ORIGIN/../%s/x", "${ORIGIN}suffix/x"])
def test_origin_has_two_forms(tmp_path, form):
    base = tmp_path / "base"
    text = form % "base" if "%s" in form else form
    directory = (tmp_path / "basesuffix" if "suffix" in form else base) / "x"
    wanted = library(directory / "liba.so.1")
    root = library(base / "root.so", wanted, runpath=text)
    path, rule = edge(compare(root), "liba.so.1")
    assert (os.path.realpath(path), rule) == (str(wanted), "RUNPATH")


LIB, PLATFORM = (os.fsdecode(HERE.lib), os.fsdecode(HERE.platform)) if HERE else ("", "")


@pytest.mark.parametrize(
    "text, directory",
    [("$LIB/a", LIB + "/a"), ("${LIB}b/c", LIB + "b/c"), ("$PLATFORM/d", PLATFORM + "/d"), ("$LIBx/e", "$LIBx/e"),
     ("${ORIGIN/f", "${ORIGIN/f"), ("a$$LIB", "a$" + LIB)],
)
def test_lib_and_platform_are_replaced_and_other_words_are_not(tmp_path, text, directory):
    wanted = library(tmp_path / directory / "liba.so.1")
    root = library(tmp_path / "root.so", wanted, runpath="%s/%s" % (tmp_path, text))
    assert edge(compare(root), "liba.so.1") == (str(wanted), "RUNPATH")


def test_origin_is_where_the_library_was_found_not_where_a_link_leads(tmp_path):
    for place in ("links", "files"):
        library(tmp_path / place / "libb.so.1")
    library(tmp_path / "files/liba.so.1", tmp_path / "files/libb.so.1", runpath="$ORIGIN")
    (tmp_path / "links/liba.so.1").symlink_to(tmp_path / "files/liba.so.1")
    root = library(tmp_path / "root.so", tmp_path / "files/liba.so.1", runpath=tmp_path / "links")
    assert edge(compare(root), "libb.so.1") == (str(tmp_path / "links/libb.so.1"), "RUNPATH")


def test_the_rpath_of_ancestors_counts_and_their_runpath_does_not(tmp_path):
    leaf = library(tmp_path / "deep/libleaf.so.1")
    middle = library(tmp_path / "near/libmiddle.so.1", leaf)
    paths = "%s:%s" % (tmp_path / "near", tmp_path / "deep")
    old = library(tmp_path / "old.so", middle, rpath=paths)
    assert edge(compare(old), "libleaf.so.1") == (str(leaf), "RPATH of %s" % old)
    new = library(tmp_path / "new.so", middle, runpath=paths)
    assert edge(compare(new), "libleaf.so.1") == (None, "")


def test_an_object_with_runpath_looks_at_no_rpath_at_all(tmp_path):
    leaf = library(tmp_path / "deep/libleaf.so.1")
    middle = library(tmp_path / "near/libmiddle.so.1", leaf, runpath="/nowhere")
    root = library(tmp_path / "root.so", middle, rpath="%s:%s" % (tmp_path / "near", tmp_path / "deep"))
    resolution = compare(root)
    assert edge(resolution, "libleaf.so.1") == (None, "")
    assert skipped(resolution, "libleaf.so.1")["/nowhere/"] == "no such directory"


def test_beyond_an_object_with_runpath_the_ancestors_still_count(tmp_path):
    leaf = library(tmp_path / "deep/libleaf.so.1")
    lower = library(tmp_path / "near/liblower.so.1", leaf)
    upper = library(tmp_path / "near/libupper.so.1", lower, runpath=tmp_path / "near")
    root = library(tmp_path / "root.so", upper, rpath="%s:%s" % (tmp_path / "near", tmp_path / "deep"))
    assert edge(compare(root), "libleaf.so.1") == (str(leaf), "RPATH of %s" % root)


def patched(path, offset, data):
    content = bytearray(path.read_bytes())
    content[offset : offset + len(data)] = data
    path.write_bytes(content)


@pytest.mark.parametrize(
    "offset, data, reason", [(4, b"\1", "wrong class"), (18, struct.pack("<H", 21), "wrong machine")]
)
def test_another_class_or_machine_is_passed_over_in_a_search(tmp_path, offset, data, reason):
    wanted = library(tmp_path / "good/liba.so.1")
    root = library(tmp_path / "root.so", wanted, runpath="%s:%s" % (tmp_path / "bad", tmp_path / "good"))
    shutil.copytree(tmp_path / "good", tmp_path / "bad")
    patched(tmp_path / "bad/liba.so.1", offset, data)
    resolution = compare(root)
    assert edge(resolution, "liba.so.1") == (str(wanted), "RUNPATH")
    assert skipped(resolution, "liba.so.1")[str(tmp_path / "bad") + "/"] == reason
    direct = library(tmp_path / "direct.so", library(tmp_path / "d/libd.so", soname=False))
    patched(tmp_path / "d/libd.so", offset, data)
    assert edge(compare(direct), str(tmp_path / "d/libd.so")) == (None, "")


@pytest.mark.parametrize(
    "content, reason",
    [(b"", "file too short"), (b"\x7fELF", "file too short"), (b"GROUP ( libx.so ) " * 9, "invalid ELF header"),
     (None, "cannot read file data: ")],
)
def test_a_broken_file_ends_the_search_and_everything(tmp_path, content, reason):
    wanted = library(tmp_path / "good/liba.so.1")
    root = library(tmp_path / "root.so", wanted, runpath="%s:%s" % (tmp_path / "bad", tmp_path / "good"))
    broken = tmp_path / "bad/liba.so.1"
    broken.parent.mkdir()
    if content is None:
        broken.mkdir()
    else:
        broken.write_bytes(content)
    resolution = resolve(root)
    assert resolution.problem.startswith("%s: %s" % (broken, reason))
    assert edge(resolution, "liba.so.1") == (None, "")
    assert "%s: %s" % (broken, reason) in ldd(root)[1]


@pytest.mark.parametrize("option", ["-no-pie", "-pie"])
def test_a_program_is_refused_as_a_library(tmp_path, option):
    stand_in = library(tmp_path / "libp.so.1")
    root = library(tmp_path / "root.so", stand_in, runpath=tmp_path)
    helper = library(tmp_path / "libhelper.so")
    gcc("-nostdlib", option, "-o", stand_in, helper, "-Wl,--no-as-needed", source="void _start(void) {}")
    resolution = resolve(root)
    reason = resolution.problem.partition(": ")[2]
    assert reason.startswith("cannot dynamically load")
    assert reason in ldd(root)[1]


def test_nodeflib_leaves_out_the_default_directories_also_from_the_cache(tmp_path):
    plain = library(tmp_path / "plain.so", "-lm")
    assert edge(compare(plain), "libm.so.6")[0] is not None
    strict = library(tmp_path / "strict.so", "-lm", options=["-Wl,-z,nodefaultlib"])
    resolution = compare(strict)
    assert edge(resolution, "libm.so.6") == (None, "")
    assert any("NODEFLIB" in reason for reason in skipped(resolution, "libm.so.6").values())


def test_the_directories_of_hwcaps_are_those_that_the_loader_lists(tmp_path):
    if HERE.glibc < (2, 33):
        pytest.skip("this loader has no --help that lists them")
    text = subprocess.run([HERE.interpreter, b"--help"], stdout=subprocess.PIPE, check=True).stdout
    section = text.partition(b"Subdirectories of glibc-hwcaps directories")[2].partition(b"\n\n")[0]
    listed = tuple(re.findall(rb"^  (\S+) \(supported, searched\)", section, re.M))
    assert HERE.cache_rules.hwcaps == listed
    paths = tuple(re.findall(rb"^  (/\S+) \(system search path\)", text, re.M))
    assert tuple(directory.rstrip(b"/") for directory in HERE.default_directories) == paths


def test_sub_directories_are_searched_in_the_order_of_the_loader(tmp_path):
    wanted = library(tmp_path / "lib/liba.so.1")
    root = library(tmp_path / "root.so", wanted, runpath=tmp_path / "lib")
    for name in sorted({b"tls/", b"haswell/", b"x86_64/", b"tls/x86_64/", b"glibc-hwcaps/none/", *HERE.subdirectories}):
        if name:
            place = tmp_path / "lib" / os.fsdecode(name)
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(wanted, place)
    for name in HERE.subdirectories:
        place = tmp_path / "lib" / os.fsdecode(name) / "liba.so.1"
        assert edge(compare(root), "liba.so.1") == (str(place), "RUNPATH")
        place.unlink()
    assert edge(compare(root), "liba.so.1") == (None, "")


def test_the_first_mapped_soname_wins_over_a_search(tmp_path):
    for place in ("one", "two"):
        library(tmp_path / place / "libv.so.1")
    second = library(tmp_path / "libsecond.so.1", tmp_path / "two/libv.so.1", runpath=tmp_path / "two")
    root = library(tmp_path / "root.so", tmp_path / "one/libv.so.1", second,
                   runpath="%s:%s" % (tmp_path / "one", tmp_path))
    assert edge(compare(second), "libv.so.1") == (str(tmp_path / "two/libv.so.1"), "RUNPATH")
    resolution = compare(root)
    assert edge(resolution, "libv.so.1", root) == (str(tmp_path / "one/libv.so.1"), "RUNPATH")
    assert edge(resolution, "libv.so.1", second) == (str(tmp_path / "one/libv.so.1"), "already loaded")


def test_a_file_that_is_mapped_under_another_name_is_not_mapped_twice(tmp_path):
    first = library(tmp_path / "libfirst.so.1", soname=False)
    (tmp_path / "links").mkdir()
    other = tmp_path / "links/libother.so.1"
    stand_in = library(tmp_path / "stand/libother.so.1")
    by_name = library(tmp_path / "libname.so.1", stand_in, runpath=tmp_path / "links")
    other.symlink_to(first)
    root = library(tmp_path / "root.so", first, by_name, runpath=tmp_path)
    assert edge(compare(root), "libother.so.1") == (str(first), "already loaded")


def test_absolute_and_relative_names_are_paths(tmp_path, monkeypatch):
    absolute = library(tmp_path / "abs/liba.so", soname=False)
    monkeypatch.chdir(tmp_path)
    library(tmp_path / "sub/libr.so", soname="sub/libr.so")
    root = library(tmp_path / "root.so", absolute, "sub/libr.so")
    resolution = compare(root, cwd=tmp_path)
    assert edge(resolution, str(absolute)) == (str(absolute), "direct path")
    assert edge(resolution, "sub/libr.so") == ("sub/libr.so", "direct path")
    origin = library(tmp_path / "libo.so", soname="$ORIGIN/libo.so")
    dynamic = library(tmp_path / "dynamic.so", origin)
    assert edge(compare(dynamic, cwd="/"), str(origin)) == (str(origin), "direct path")


def versioned(path, versions):
    script = path.with_suffix(".map")
    path.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("".join("%s { global: f_%s; };\n" % (name, name) for name in versions))
    source = "".join("void f_%s(void) {}\n" % name for name in versions)
    return library(path, source=source, options=["-Wl,--version-script," + str(script)])


def test_missing_symbol_versions_are_found(tmp_path):
    provider = tmp_path / "libv.so.1"
    versioned(provider, ["V_1", "V_2"])
    source = "void f_V_1(void); void f_V_2(void); void use(void) { f_V_1(); f_V_2(); }"
    root = library(tmp_path / "root.so", provider, runpath=tmp_path, source=source)
    assert compare(root).version_problems == ()
    versioned(provider, ["V_1"])
    (problem,) = compare(root).version_problems
    assert (problem.version, problem.name, problem.weak) == (b"V_2", b"libv.so.1", False)
    assert (problem.needer, problem.library) == (os.fsencode(str(root)), os.fsencode(str(provider)))
    assert "version `V_2' not found" in ldd(root)[1]
    library(provider, source="void f_V_1(void) {} void f_V_2(void) {}")
    resolution = compare(root)
    assert resolution.version_problems == () and {item.version for item in resolution.unversioned} == {b"V_1", b"V_2"}
    assert "no version information available" in ldd(root)[1]


def elf_hash(name):
    value = 0
    for byte in name:
        value = (value << 4) + byte
        value = (value ^ (value & 0xF0000000) >> 24) & 0x0FFFFFFF
    return value


def test_a_weak_version_is_reported_as_one_and_is_no_error(tmp_path):
    provider = tmp_path / "libv.so.1"
    versioned(provider, ["V_1", "V_2"])
    source = "void f_V_1(void); void f_V_2(void); void use(void) { f_V_1(); f_V_2(); }"
    root = library(tmp_path / "root.so", provider, runpath=tmp_path, source=source)
    # Linkers seldom mark a version as weak, so the mark is set here, in the two bytes behind the name's hash.
    wanted = struct.pack("<IH", elf_hash(b"V_2"), 0)
    content = root.read_bytes()
    assert content.count(wanted) == 1
    patched(root, content.index(wanted) + 4, b"\2")
    versioned(provider, ["V_1"])
    (problem,) = compare(root).version_problems
    assert (problem.version, problem.weak) == (b"V_2", True)
    assert "weak version `V_2' not found" in ldd(root)[1]


@pytest.mark.skipif(shutil.which("patchelf") is None, reason="needs patchelf")
def test_versions_of_a_library_that_is_no_longer_needed_end_the_loader(tmp_path):
    provider = tmp_path / "libv.so.1"
    versioned(provider, ["V_1"])
    source = "void f_V_1(void); void use(void) { f_V_1(); }"
    root = library(tmp_path / "root.so", provider, library(tmp_path / "libw.so"), runpath=tmp_path, source=source)
    subprocess.run(["patchelf", "--remove-needed", "libv.so.1", str(root)], check=True)
    assert "which it does not need" in resolve(root).problem
    assert "Assertion `needed != NULL' failed" in ldd(root)[1]


@pytest.mark.parametrize("option", ["-Wl,-f,libaux.so.1", "-Wl,-F,libaux.so.1"])
def test_filters_are_mapped_like_needed_libraries(tmp_path, option):
    auxiliary = library(tmp_path / "libaux.so.1")
    middle = library(tmp_path / "libmiddle.so.1", runpath=tmp_path, options=[option])
    root = library(tmp_path / "root.so", middle, runpath=tmp_path)
    assert edge(compare(root), "libaux.so.1") == (str(auxiliary), "RUNPATH")


def test_circles_and_many_names_end(tmp_path):
    first, second = tmp_path / "libfirst.so.1", tmp_path / "libsecond.so.1"
    library(second)
    library(first, second, runpath=tmp_path)
    library(second, first, runpath=tmp_path)
    assert edge(compare(first), "libfirst.so.1") == (str(first), "already loaded")
    assert edge(compare(second), "libsecond.so.1") == (str(second), "already loaded")
    stand_ins = []
    template = library(tmp_path / "many/template.so", soname="liborigin000.so").read_bytes()
    for number in range(300):
        stand_ins.append(tmp_path / ("many/lib%d.so" % number))
        stand_ins[-1].write_bytes(template.replace(b"liborigin000", b"libnumber%03d" % number))
    root = library(tmp_path / "root.so", *stand_ins, runpath=tmp_path / "many")
    resolution = compare(root)
    assert len(resolution.edges) == 300 and not any(item.path for item in resolution.edges)


DRIVER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
static int show(struct dl_phdr_info *info, size_t size, void *data)
{ (void) size; (void) data; puts(info->dlpi_name); return 0; }
int main(int count, char **names)
{
    for (int i = 1; i < count; i++) {
        void *handle = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL);
        if (!handle) { puts(dlerror()); return 1; }
        void (*start)(void) = (void (*)(void)) dlsym(handle, "start");
        if (start) start();
    }
    dl_iterate_phdr(show, 0);
    return 0;
}
"""

CALLER = r"""
#include <dlfcn.h>
void start(void) { dlopen("libplugin.so", RTLD_NOW); }
"""


def driver(path, *options):
    gcc("-o", path, "-Wl,--no-as-needed", *options, "-ldl", source=DRIVER)
    return path


def mapped_by(program, *paths):
    process = subprocess.run(
        [str(program), *map(str, paths)], env={"LC_ALL": "C"}, stdout=subprocess.PIPE, text=True, check=True
    )
    return process.stdout.splitlines()


@pytest.mark.parametrize("where, expected", [
    ("caller's RUNPATH", "RUNPATH"), ("caller's RPATH", "RPATH"), ("program's RPATH", "RPATH of"),
    ("program's RUNPATH", None),
])
def test_a_plugin_is_searched_by_its_caller_and_the_program(tmp_path, where, expected):
    plugins = tmp_path / "plugins"
    deeper = library(tmp_path / "deeper/libdeeper.so.1")
    plugin = library(plugins / "libplugin.so", deeper, runpath=deeper.parent)
    tag = {"caller's RUNPATH": "--enable-new-dtags", "caller's RPATH": "--disable-new-dtags"}.get(where)
    caller = tmp_path / "libcaller.so.1"
    options = ["-Wl,%s" % tag, "-Wl,-rpath,%s" % plugins] if tag else []
    gcc("-shared", "-fPIC", "-o", caller, "-Wl,-soname,libcaller.so.1", *options, source=CALLER)
    tag = {"program's RPATH": "--disable-new-dtags", "program's RUNPATH": "--enable-new-dtags"}.get(where)
    program = driver(tmp_path / "driver", *(["-Wl,%s" % tag, "-Wl,-rpath,%s" % plugins] if tag else []))
    resolution = resolve(
        caller, program=os.fsencode(str(program)), plugins=[Plugin(b"libcaller.so*", b"libplugin.so")]
    )
    path, rule = edge(resolution, "libplugin.so")
    names = mapped_by(program, caller)
    assert (path in names) if path else str(plugin) not in names
    if expected is None:
        assert (path, rule) == (None, "")
    else:
        assert path == str(plugin) and rule.startswith(expected)
        assert edge(resolution, "libdeeper.so.1") == (str(deeper), "RUNPATH")
        assert str(deeper) in names


def test_what_is_mapped_before_counts_for_what_is_opened_after(tmp_path):
    for place in ("one", "two"):
        library(tmp_path / place / "libv.so.1")
    before = library(tmp_path / "libbefore.so.1", tmp_path / "one/libv.so.1", runpath=tmp_path / "one")
    after = library(tmp_path / "extension.so", tmp_path / "two/libv.so.1", runpath=tmp_path / "two", soname=False)
    program = driver(tmp_path / "driver")
    arguments = {"preloaded": [os.fsencode(str(before))], "program": os.fsencode(str(program))}
    resolution = resolve(after, **arguments)
    assert edge(resolution, "libv.so.1") == (str(tmp_path / "one/libv.so.1"), "preloaded")
    names = mapped_by(program, before, after)
    assert str(tmp_path / "one/libv.so.1") in names and str(tmp_path / "two/libv.so.1") not in names
    assert edge(resolve(after, preloaded=arguments["preloaded"]), "libv.so.1")[1] == "preloaded"


def test_a_program_with_another_loader_name_is_resolved_by_that_loader(tmp_path):
    link = tmp_path / "ld.so"
    link.symlink_to(os.fsdecode(HERE.interpreter))
    program = driver(tmp_path / "driver", "-Wl,--dynamic-linker,%s" % link)
    assert compare(program).problem == ""
    link.unlink()
    assert resolve(program).problem == "its loader %s does not exist, so it cannot be started" % link
    link.write_bytes(b"#!/bin/sh\n")
    assert "are not known" in resolve(program).problem


@pytest.mark.skipif(LDCONFIG is None, reason="needs ldconfig")
@pytest.mark.parametrize("layout", ["new", "compat", "old"])
def test_the_cache_is_read_as_ldconfig_prints_it(tmp_path, layout):
    for name in ("liba.so.1", "libb.so.2.3", "libc10.so.10"):
        library(tmp_path / "lib" / name)
    # The ldconfig of glibc 2.36 dies when it writes one of the older layouts with such sub-directories.
    for name in ("glibc-hwcaps/x86-64-v3", "glibc-hwcaps/x86-64-v2") if layout == "new" else ():
        place = tmp_path / "lib" / name
        place.mkdir(parents=True)
        shutil.copy(tmp_path / "lib/liba.so.1", place)
    configuration, cache = tmp_path / "ld.so.conf", tmp_path / "ld.so.cache"
    configuration.write_text("%s\n" % (tmp_path / "lib"))
    made = subprocess.run(
        [LDCONFIG, "-i", "-X", "-c", layout, "-f", str(configuration), "-C", str(cache)],
        stderr=subprocess.PIPE, check=False,
    )
    assert made.returncode == 0 and cache.exists(), made.stderr
    parsed = parse_cache(cache.read_bytes())
    assert parsed.problem == ""
    printed = subprocess.run([LDCONFIG, "-p", "-C", str(cache)], stdout=subprocess.PIPE, check=True).stdout
    lines = re.findall(rb"^\t(\S+) \((.*)\) => (\S+)$", printed, re.M)
    assert [(entry.name, entry.path) for entry in parsed.entries] == [(name, path) for name, _kind, path in lines]
    hwcaps = [re.search(rb'hwcap: "([^"]+)"', kind) for _name, kind, _path in lines]
    assert [entry.hwcaps for entry in parsed.entries if entry.hwcaps] == [found.group(1) for found in hwcaps if found]
    root = library(tmp_path / "root.so", tmp_path / "lib/liba.so.1", tmp_path / "lib/libc10.so.10")
    resolution = resolve(root, system=HERE._replace(cache=parsed))
    best = [name for name in HERE.cache_rules.hwcaps if b"glibc-hwcaps/%s/" % name in printed]
    place = "lib/glibc-hwcaps/%s/liba.so.1" % os.fsdecode(best[0]) if best else "lib/liba.so.1"
    assert edge(resolution, "liba.so.1") == (str(tmp_path / place), "ld.so.cache")
    assert edge(resolution, "libc10.so.10") == (str(tmp_path / "lib/libc10.so.10"), "ld.so.cache")


@pytest.mark.skipif(LDCONFIG is None, reason="needs ldconfig")
def test_the_cache_of_this_machine_is_read_as_ldconfig_prints_it():
    printed = subprocess.run([LDCONFIG, "-p"], stdout=subprocess.PIPE, check=True).stdout
    lines = re.findall(rb"^\t(\S+) \(.*\) => (\S+)$", printed, re.M)
    assert [(entry.name, entry.path) for entry in HERE.cache.entries] == lines


def opens(path):
    """Whether glibc opens an object, as a program that asks for it by dlopen(3) does."""
    program = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    process = subprocess.run([sys.executable, "-c", program, str(path)], stderr=subprocess.PIPE, text=True, check=False)
    assert process.returncode == 0 or "cannot open shared object file" in process.stderr
    return process.returncode == 0


@pytest.mark.parametrize(("option", "found"), [("filter", False), ("auxiliary", True)])
def test_r22_a_filter_that_is_missing_is_missed_as_dlopen_does_and_ldd_does_not_say(tmp_path, option, found):
    absent = library(tmp_path / "stub" / "libd.so")
    root = library(tmp_path / "root.so", options=["-Wl,--%s=libd.so" % option])
    absent.unlink()
    missing = [os.fsdecode(one.name) for one in resolve(root).edges if one.path is None]
    assert opens(root) is found
    assert missing == ([] if found else ["libd.so"])


def test_r25_an_auxiliary_library_that_is_missing_is_no_finding_though_ldd_may_list_it(tmp_path):
    middle = library(tmp_path / "liba.so.1", options=["-Wl,--auxiliary=libd.so"])
    root = library(tmp_path / "root.so", middle, runpath=tmp_path)
    resolution = resolve(root)
    assert opens(root) and resolution.problem == ""
    assert edge(resolution, "liba.so.1") == (str(middle), "RUNPATH")
    # What ldd says of a name that the loader does without is not what happens.
    named = {name for name in ldd(root)[0] if not os.path.basename(name).startswith("ld-linux")}
    assert named - {"liba.so.1", "libd.so"} == set()
    assert [one.name for one in resolution.edges if one.path is None] == []
