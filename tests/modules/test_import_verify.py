# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""import_verify as Ansible runs it, over real libraries that the real loader maps."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig

import pytest

PYTHON = getattr(sys, "_base_executable", "") or sys.executable
HEADERS = sysconfig.get_path("include")
COMPILER = shutil.which("gcc") or shutil.which("cc")

needs_compiler = pytest.mark.skipif(
    COMPILER is None or shutil.which("ldd") is None, reason="needs a C compiler and ldd to make and ask real libraries"
)

EXTENSION = """
#include <Python.h>
const char *whose(void);
static PyObject *ask(PyObject *self, PyObject *nothing) { return PyUnicode_FromString(whose()); }
static PyMethodDef methods[] = {{"whose", ask, METH_NOARGS, ""}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "NAME", "", -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit_NAME(void) { return PyModule_Create(&definition); }
"""

WITHOUT_HEADERS = "const char *whose(void); const char *ask(void) { return whose(); }"

WRAPPER = """
import ctypes, os
_library = ctypes.CDLL(os.path.join(os.path.dirname(__file__), "NAME.so"))
_library.ask.restype = ctypes.c_char_p
def whose():
    return _library.ask().decode()
"""


def compile_library(path, source, *options):
    """Make a shared library."""
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([COMPILER, "-shared", "-fPIC", "-xc", "-", "-o", str(path), *options],
                   input=source, text=True, check=True)
    return path


def provider(directory, soname="libv.so.1"):
    """A library that says whose it is."""
    source = 'const char *whose(void) { return "%s"; }' % directory.name.split("\n")[0]
    path = compile_library(directory / soname, source, "-Wl,-soname," + soname)
    if soname == "libv.so.1":
        (directory / "libv.so").symlink_to(soname)
    return path


def extension(directory, name, library):
    """A module that asks the library in another directory, to which its RUNPATH leads."""
    options = [
        "-L%s" % library, "-lv", "-Wl,-rpath,%s" % library, "-Wl,--enable-new-dtags", "-Wl,--no-as-needed",
    ]
    if os.path.isfile(os.path.join(HEADERS, "Python.h")):
        source = EXTENSION.replace("NAME", name)
        return compile_library(directory / (name + ".so"), source, "-I" + HEADERS, *options)
    (directory / (name + ".py")).write_text(WRAPPER.replace("NAME", name))
    return compile_library(directory / (name + ".so"), WITHOUT_HEADERS, *options)


@pytest.fixture()
def release(tmp_path):
    """A release with two modules; each alone finds the library that it was linked with."""
    top = tmp_path / "release"
    (top / "site").mkdir(parents=True)
    (top / ".torchstack").mkdir()
    for name in ("A", "B"):
        provider(top / name)
        extension(top / "site", "ext_" + name.lower(), top / name)
    return top


@pytest.fixture()
def modules(tmp_path):
    """Write modules of Python."""

    def write(**sources):
        directory = tmp_path / "modules"
        directory.mkdir(exist_ok=True)
        for name, source in sources.items():
            (directory / (name + ".py")).write_text(source)
        return dict({"python": PYTHON, "modules": list(sources), "environment": {"PYTHONPATH": str(directory)}})

    return write


def arguments(release, names, **more):
    return dict({"python": PYTHON, "modules": names, "environment": {"PYTHONPATH": str(release / "site")}}, **more)


def ldd(path):
    """Where ldd says that libv.so.1 of one object alone comes from."""
    listed = subprocess.run(["ldd", str(path)], stdout=subprocess.PIPE, text=True, check=True).stdout
    return next(line.split("=>")[1].split()[0] for line in listed.splitlines() if "libv.so.1" in line)


def message(result):
    return " ".join(result["msg"].split())


@needs_compiler
def test_the_wrong_one_of_two_mapped_first_is_caught_although_ldd_is_right_about_each(run_module, release):
    for letter in ("A", "B"):
        assert ldd(release / "site" / ("ext_%s.so" % letter.lower())) == str(release / letter / "libv.so.1")
    rule = {"name": "libv.so.*", "path": str(release / "B" / "*"), "reason": "the plugin is built for it"}
    wanted = {"value": "ext_b.whose()", "equals": "B"}
    result = run_module("import_verify", arguments(release, ["ext_a", "ext_b"], providers=[rule], expect=[wanted]))
    assert result.failed and result["failed_step"] == "verify"
    [finding] = result["misplaced"]
    assert (finding["path"], finding["brought_by"]) == (str(release / "A" / "libv.so.1"), "ext_a")
    assert (finding["expected"], finding["rule"], finding["reason"]) == (rule["path"], "providers", rule["reason"])
    assert result["reported"] == {"ext_b.whose()": "A"}
    assert "libv.so.1 is mapped from %s (brought by ext_a)" % (release / "A" / "libv.so.1") in message(result)
    alone = run_module("import_verify", arguments(release, ["ext_b"], providers=[rule], expect=[wanted]))
    assert not alone.failed and not alone.changed


@needs_compiler
def test_what_the_static_verification_found_for_each_object_is_compared_with_the_process(run_module, release):
    objects = {
        "site/ext_%s.so" % letter.lower(): {
            "needed": {"libv.so.1": {"path": "%s/libv.so.1" % letter, "rule": "RUNPATH"}}
        }
        for letter in ("A", "B")
    }
    static = release / ".torchstack" / "verification.json"
    static.write_text(json.dumps({"format": 1, "rules": {}, "objects": objects}))
    result = run_module("import_verify", arguments(release, ["ext_a", "ext_b"], static=str(static)))
    [finding] = result["misplaced"]
    assert (finding["rule"], finding["soname"]) == ("static", "libv.so.1")
    assert finding["path"] == str(release / "A" / "libv.so.1")
    assert finding["expected"] == str(release / "B" / "libv.so.1")
    assert "ext_b.so" in finding["reason"]
    assert not run_module("import_verify", arguments(release, ["ext_b"], static=str(static))).failed


@needs_compiler
def test_s02_a_second_nccl_that_is_mapped_is_caught_whatever_its_soname_is(run_module, release):
    copies = {"nccl": "libnccl.so.2", "bundled": "libnccl.so.2", "wheel": "libnccl-1a2b3c4d.so.2"}
    for directory, soname in copies.items():
        provider(release / directory, soname)
        (release / "site" / ("use_%s.py" % directory)).write_text(
            "import ctypes\nlibrary = ctypes.CDLL(%r)\n" % str(release / directory / soname)
        )
    same = run_module("import_verify", arguments(release, ["use_nccl", "use_bundled"]))
    [finding] = same["duplicates"]
    assert [(entry["path"], entry["brought_by"]) for entry in finding["files"]] == [
        (str(release / "nccl" / "libnccl.so.2"), "use_nccl"),
        (str(release / "bundled" / "libnccl.so.2"), "use_bundled"),
    ]
    other = arguments(release, ["use_nccl", "use_wheel"], single=["*", "libnccl*"])
    assert [finding["rule"] for finding in run_module("import_verify", other)["duplicates"]] == ["libnccl*"]
    excuse = {"name": "libnccl*", "path": str(release / "wheel" / "**"), "reason": "never used"}
    idle = {"name": "libmpi*", "reason": "nobody needs it"}
    allowed = run_module("import_verify", dict(other, allow=[excuse, idle]))
    assert not allowed.failed
    assert [(entry["kind"], entry["reason"]) for entry in allowed["allowed"]] == [("duplicates", "never used")]
    assert [entry["name"] for entry in allowed["unused_allow"]] == ["libmpi*"]


@needs_compiler
def test_names_with_line_feeds_and_links_to_one_file_are_seen_as_they_are(run_module, tmp_path):
    odd = tmp_path / "a\nb"
    library = provider(odd)
    (odd / "again.so").symlink_to("libv.so.1")
    site = tmp_path / "site"
    site.mkdir()
    for name, path in (("one", library), ("two", odd / "again.so")):
        (site / (name + ".py")).write_text("import ctypes\nlibrary = ctypes.CDLL(%r)\n" % str(path))
    given = {"python": PYTHON, "modules": ["one", "two"], "environment": {"PYTHONPATH": str(site)}}
    rule = {"name": "libv.so.1", "path": str(tmp_path / "a?b" / "*"), "required": True}
    result = run_module("import_verify", dict(given, providers=[rule]))
    assert not result.failed
    assert [entry["path"] for entry in result["mapped"] if entry["soname"] == "libv.so.1"] == [str(library)]
    forbidden = run_module("import_verify", dict(given, forbid=[{"path": str(odd), "reason": "odd"}]))
    assert [entry["path"] for entry in forbidden["forbidden"]] == [str(library)]


@needs_compiler
def test_check_do_check_again_do_again(run_module, release):
    record = release / ".torchstack" / "imports.json"
    given = arguments(
        release, ["ext_b"], record=str(record), expect=[{"value": "ext_b.whose()", "matches": "[AB]"}], timeout=120
    )
    planned = run_module("import_verify", given, check=True, diff=True)
    assert planned.changed and not planned.failed and not record.exists()
    done = run_module("import_verify", given, diff=True)
    assert done.changed and not done.failed
    written = json.loads(record.read_text())
    assert {"path": "B/libv.so.1", "soname": "libv.so.1", "brought_by": "ext_b"} in written["mapped"]
    assert (written["format"], written["modules"], written["reported"]) == (1, ["ext_b"], {"ext_b.whose()": "B"})
    assert '+      "path": "B/libv.so.1",' in planned.console and '+      "path": "B/libv.so.1",' in done.console
    before = os.stat(str(record))
    for check in (True, False):
        again = run_module("import_verify", given, check=check, diff=True)
        assert not again.changed and not again.failed
    assert os.stat(str(record)).st_mtime_ns == before.st_mtime_ns
    (release / "B" / "libv.so.1").rename(release / "B" / "libv.so.1.1")
    (release / "B" / "libv.so.1").symlink_to("libv.so.1.1")
    moved = run_module("import_verify", given, diff=True)
    assert moved.changed and '+      "path": "B/libv.so.1.1",' in moved.console


def test_a_finding_leaves_the_old_record_as_it_is(run_module, modules, tmp_path):
    record = tmp_path / "imports.json"
    given = dict(modules(one="VERSION = '1.0'"), record=str(record))
    assert run_module("import_verify", given).changed
    before = record.read_bytes()
    wrong = run_module("import_verify", dict(given, expect=[{"value": "one.VERSION", "equals": "2.0"}]))
    assert wrong.failed and record.read_bytes() == before
    assert wrong["wrong_values"][0]["actual"] == "1.0"
    assert 'one.VERSION has to be "2.0" and is "1.0".' in message(wrong)


def test_crashes_exits_hangs_and_noise_are_findings_and_never_our_traceback(run_module, modules):
    results = {}
    for name, source, timeout in (
        ("crashing", "import ctypes\nctypes.string_at(0)\n", 120),
        ("leaving", "import os\nprint('{\"changed\": true}' * 1000)\nos._exit(3)\n", 120),
        ("hanging", "import time\ntime.sleep(600)\n", 3),
    ):
        results[name] = run_module("import_verify", dict(modules(**{name: source}), timeout=timeout))
        assert results[name].failed and results[name]["failed_step"] == "verify"
        assert "Traceback" not in results[name].console and "MODULE FAILURE" not in results[name].console
    assert "Import of crashing: the process was killed by signal 11 (SIGSEGV)" in message(results["crashing"])
    assert "Import of leaving: the process ended with exit status 3" in message(results["leaving"])
    assert "did not come to an end within 3 seconds" in message(results["hanging"])


def test_s14_the_callers_own_python_files_do_not_reach_the_verification(run_module, modules, tmp_path):
    home = tmp_path / "home"
    own = subprocess.run(
        [PYTHON, "-c", "import site; print(site.getusersitepackages())"], env={"HOME": str(home)},
        stdout=subprocess.PIPE, text=True, check=True,
    ).stdout.strip()
    os.makedirs(own)
    traces = tmp_path / "traces"
    traces.mkdir()
    for path in (os.path.join(own, "usercustomize.py"), str(home / "sitecustomize.py"), str(home / "startup.py")):
        with open(path, "w") as stream:
            stream.write("open(%r, 'w').close()\n" % str(traces / os.path.basename(path)))
    with open(os.path.join(own, "leaked.py"), "w") as stream:
        stream.write("VERSION = 'the one of the caller'\n")
    caller = {"HOME": str(home), "PYTHONSTARTUP": str(home / "startup.py"), "PYTHONNOUSERSITE": ""}
    # The plain interpreter does run what lies in the user site directory: else this test would prove nothing.
    subprocess.run([PYTHON, "-c", "import leaked"], env={"HOME": str(home)}, check=True)
    assert [entry.name for entry in traces.iterdir()] == ["usercustomize.py"]
    (traces / "usercustomize.py").unlink()
    given = modules(one="import importlib.util\nLEAKED = importlib.util.find_spec('leaked') is not None\n")
    rule = {"value": "one.LEAKED", "equals": False}
    result = run_module("import_verify", dict(given, expect=[rule]), environment=caller)
    assert not result.failed, result.console
    assert list(traces.iterdir()) == []


def test_in_check_mode_what_a_later_step_builds_is_planned(run_module, modules, tmp_path):
    given = dict(modules(one=""), record=str(tmp_path / "imports.json"), planned_after="python_packages")
    for more in (
        {"python": str(tmp_path / "none" / "python3")}, {"modules": ["one", "absent_module"]},
        {"static": str(tmp_path / "verification.json")},
    ):
        planned = run_module("import_verify", dict(given, **more), check=True)
        assert planned.changed and not planned.failed and planned["planned_after"] == "python_packages"
    assert not (tmp_path / "imports.json").exists()
    refused = run_module("import_verify", dict(given, modules=["one", "absent_module"]))
    assert refused.failed and "Install absent_module into the release" in message(refused)
    wrong = dict(given, expect=[{"value": "one.VERSION", "equals": 1}])
    assert run_module("import_verify", wrong, check=True).failed


def test_options_that_cannot_work_are_refused_with_a_remedy(run_module, modules):
    given = modules(one="")
    both = run_module("import_verify", dict(given, expect=[{"value": "one", "equals": 1, "matches": "1"}]))
    assert both.failed and "mutually exclusive" in message(both)
    relative = run_module("import_verify", dict(given, providers=[{"name": "libx*", "path": "lib/**"}]))
    assert relative.failed and relative["failed_step"] == "plan" and relative["remedy"] == "Begin it with / or **."
    gone = run_module("import_verify", dict(given, record="/nowhere/at/all/imports.json"))
    assert gone.failed and gone["failed_step"] == "record" and "Thaw the release" in message(gone)
