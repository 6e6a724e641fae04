# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""ldd_verify on small libraries that play the sites' ones: as Ansible runs it, and the rules through bin/verify.

Both give the same result; a run of the command takes a tenth of the time of a run of Ansible.
"""

from __future__ import annotations

import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys

import pytest

COMMAND = pathlib.Path(__file__).resolve().parent.parent.parent / "bin" / "verify"

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to build small libraries")
not_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may read what this test takes away")

BANNER = "NCCL version 2.14.3+cuda11.8"
NCCL = 'const char nccl_banner[] = "%s"; const char *ncclGetVersion(void) { return nccl_banner; }'
USE_NCCL = "const char *ncclGetVersion(void); const char *%s(void) { return ncclGetVersion(); }"
SONAME = "-Wl,-soname,%s"
ORIGIN = "-Wl,--enable-new-dtags,-rpath,$ORIGIN"


def link(output, source, *flags, suffix=".c", environment=None):
    """Build one shared object, or a program with ``-o`` style flags of its own."""
    output.parent.mkdir(parents=True, exist_ok=True)
    code = output.parent / (output.name + suffix)
    code.write_text(source)
    compiler = "g++" if suffix == ".cpp" else "gcc"
    subprocess.run([compiler, "-o", str(output), str(code), *flags], check=True, env=environment)
    code.unlink()
    return output


def shared(output, source, *flags):
    return link(output, source, "-shared", "-fPIC", *flags)


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A release with its own NCCL, and variants of its objects, each to be put in the place of a good one."""
    top = tmp_path_factory.mktemp("built")
    nccl = shared(top / "release" / "nccl" / "lib" / "libnccl.so.2", NCCL % BANNER, SONAME % "libnccl.so.2")
    cuda = top / "release" / "torch" / "lib" / "libtorch_cuda.so"
    shared(cuda, USE_NCCL % "torch", str(nccl), SONAME % cuda.name,
           "-Wl,--enable-new-dtags,-rpath,$ORIGIN/../../nccl/lib")
    shared(
        top / "release" / "horovod" / "mpi_lib.so", "void torch(void); void horovod(void) { torch(); }",
        str(cuda), "-Wl,-rpath,$ORIGIN/../torch/lib", "-Wl,-rpath-link," + str(nccl.parent),
    )
    shared(top / "variants" / "second" / "libnccl.so.2", NCCL % "NCCL version 2.18.3+cuda12.1",
           SONAME % "libnccl.so.2")
    # The copy that PyTorch's build makes: an archive with hidden symbols, linked in, and the object stripped.
    subprocess.run(
        ["gcc", "-c", "-fPIC", "-fvisibility=hidden", "-x", "c", "-", "-o", str(top / "nccl.o")],
        input=NCCL % BANNER, text=True, check=True,
    )
    subprocess.run(["ar", "rcs", str(top / "libnccl_static.a"), str(top / "nccl.o")], check=True)
    shared(top / "variants" / "libtorch_cuda-static.so", USE_NCCL % "torch", str(top / "libnccl_static.a"), "-s",
           SONAME % "libtorch_cuda.so")
    shared(top / "variants" / "libtorch_cuda-without.so", "void torch(void) {}")
    return top


@pytest.fixture()
def release(built, tmp_path):
    place = tmp_path / "2026-11-20"
    shutil.copytree(str(built / "release"), str(place), symlinks=True)
    (place / ".torchstack").mkdir()
    return place


def rules(release, **more):
    """What a release with NCCL declares."""
    return dict({
        "paths": [str(release)],
        "providers": [{"name": "libnccl.so*", "path": "%s/nccl/lib/*" % release, "reason": "the NCCL of the release"}],
        "require": [
            {"object": "**/libtorch_cuda.so", "needs": "libnccl.so.2", "reason": "PyTorch uses the release's NCCL"}
        ],
        "embedded": [{
            "name": "NCCL", "pattern": r"NCCL version [0-9]+\.[0-9]+\.[0-9]+\+cuda",
            "provider": "%s/nccl/lib/*" % release,
        }],
    }, **more)


@pytest.fixture()
def verify(tmp_path):
    """The result for rules that are given as to the module, through the command."""

    def run(paths, **more):
        (tmp_path / "rules.json").write_text(json.dumps(more))
        (path,) = paths
        command = [str(COMMAND), path, "--json", "--rules", str(tmp_path / "rules.json")]
        if "max_listed" in more:
            command += ["--max-listed", str(more.pop("max_listed"))]
            (tmp_path / "rules.json").write_text(json.dumps(more))
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        assert process.returncode in (0, 1), process.stderr
        result = json.loads(process.stdout)
        assert result["failed"] is (process.returncode == 1)
        return result

    return run


def kinds(result):
    """How many findings there are of each kind."""
    names = ("missing", "misplaced", "embedded", "forbidden", "required", "versions", "unreadable")
    return {name: result[name + "_total"] for name in names if result[name + "_total"]}


def put(built, release, variant):
    shutil.copy(str(built / "variants" / variant), str(release / "torch" / "lib" / "libtorch_cuda.so"))


def test_check_do_check_again_do_again_and_so_when_it_is_frozen(run_module, release):
    record = release / ".torchstack" / "verification.json"
    arguments = rules(release, record=str(record))
    planned = run_module("ldd_verify", arguments, check=True, diff=True)
    assert planned.changed and not planned["failed"] and not record.exists()
    done = run_module("ldd_verify", arguments, diff=True)
    assert done.changed and not done["failed"]
    assert done.shown_difference == planned.shown_difference
    assert "+libnccl.so.2  nccl/lib/libnccl.so.2  RUNPATH  needed by 1" in done.shown_difference
    assert (done["objects"], kinds(done)) == (3, {})
    written = record.read_bytes()
    number = os.stat(str(record)).st_ino
    (release / ".torchstack").chmod(0o555)
    try:
        for check in (True, False):
            again = run_module("ldd_verify", arguments, check=check, diff=True)
            assert not again.changed and not again["failed"] and again.shown_difference == []
        if os.geteuid():
            refused = run_module("ldd_verify", {"paths": [str(release)], "record": str(record)})
            assert refused["failed"] and refused["failed_step"] == "record" and "Thaw" in refused["msg"]
    finally:
        (release / ".torchstack").chmod(0o755)
    assert (record.read_bytes(), os.stat(str(record)).st_ino) == (written, number)
    content = json.loads(written)
    assert content["objects"]["torch/lib/libtorch_cuda.so"]["needed"]["libnccl.so.2"] == {
        "path": "nccl/lib/libnccl.so.2", "rule": "RUNPATH",
    }
    assert str(release) not in written.decode()


def test_the_record_changes_with_what_it_records_and_not_when_there_are_findings(run_module, built, release):
    record = release / ".torchstack" / "verification.json"
    arguments = rules(release, record=str(record))
    run_module("ldd_verify", arguments)
    before = record.read_bytes()
    put(built, release, "libtorch_cuda-static.so")
    assert run_module("ldd_verify", arguments)["failed"]
    assert record.read_bytes() == before
    changed = run_module("ldd_verify", {"paths": [str(release)], "record": str(record)}, diff=True)
    assert changed.changed
    assert "-libnccl.so.2  nccl/lib/libnccl.so.2  RUNPATH  needed by 1" in changed.shown_difference
    assert not [line for line in changed.shown_difference if line.startswith("+libnccl")]


def test_a_release_that_is_not_built_yet_is_a_plan_in_check_mode_alone(run_module, tmp_path):
    arguments = {"paths": [str(tmp_path / "later")], "planned_after": "horovod"}
    planned = run_module("ldd_verify", arguments, check=True)
    assert planned.changed and planned["planned_after"] == "horovod"
    done = run_module("ldd_verify", arguments)
    assert done["failed"] and done["failed_step"] == "scan" and "Correct the path" in done["msg"]


PYG = 'extern "C" void *PyModule_Create2(void *, int); extern "C" void *PyInit_pyg() { return PyModule_Create2(0, 0); }'


def build_pyg(top, release, ldflags):
    """The package step of a small C++ extension, under the caller's LDFLAGS as pip builds under them."""
    source = top / "pyg.cpp"
    source.write_text(PYG)
    target = release / "site-packages" / "libpyg.so"
    target.parent.mkdir(exist_ok=True)
    subprocess.run(
        ["sh", "-c", 'g++ -shared -fPIC "$1" -o "$2" ${LDFLAGS:-}', "sh", str(source), str(target)],
        check=True, env=dict(os.environ, LDFLAGS=ldflags),
    )
    return target


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_s01_an_extension_built_under_ldflags_needs_a_libpython_that_is_not_there(run_module, release, tmp_path):
    python = tmp_path / "conda" / "lib"
    shared(python / "libpython3.10.so.1.0", "void *PyModule_Create2(void *a, int b) { return a; }",
           SONAME % "libpython3.10.so.1.0")
    (python / "libpython3.10.so").symlink_to("libpython3.10.so.1.0")
    gone = tmp_path / "moved" / "lib"
    extension = build_pyg(tmp_path, release, "-L%s -Wl,-rpath,%s -lpython3.10" % (python, gone))
    result = run_module("ldd_verify", {"paths": [str(release)]})
    assert result["failed"] and kinds(result) == {"missing": 1}
    finding = result["missing"][0]
    assert (finding["object"], finding["soname"]) == (str(extension), "libpython3.10.so.1.0")
    assert any(str(gone) in place and place.split(":")[0] in ("RPATH", "RUNPATH") for place in finding["searched"])
    assert any("ld.so.cache" in place for place in finding["searched"])
    assert "LDFLAGS unset" in finding["remedy"]
    for word in (str(extension), "libpython3.10.so.1.0", "LDFLAGS unset"):
        assert word in result["msg"]
    build_pyg(tmp_path, release, "")
    fixed = run_module("ldd_verify", {"paths": [str(release)]})
    assert not fixed["failed"] and fixed["objects"] == 4


def test_s02_a_static_hidden_stripped_copy_of_nccl_is_caught_and_the_linked_object_passes(run_module, built, release):
    assert not run_module("ldd_verify", rules(release))["failed"]
    put(built, release, "libtorch_cuda-static.so")
    symbols = subprocess.run(
        ["nm", "-D", str(release / "torch" / "lib" / "libtorch_cuda.so")], check=True, stdout=subprocess.PIPE, text=True
    )
    assert "nccl" not in symbols.stdout
    result = run_module("ldd_verify", rules(release, require=[]))
    assert result["failed"] and kinds(result) == {"embedded": 1}
    finding = result["embedded"][0]
    assert finding["object"].endswith("/torch/lib/libtorch_cuda.so")
    assert finding["text"].startswith("NCCL version 2.14.3+cuda")
    assert "USE_SYSTEM_NCCL" in finding["remedy"]


def test_a_copy_that_an_object_uses_alone_may_be_there_for_a_reason_and_no_other(verify, built, release):
    put(built, release, "libtorch_cuda-static.so")
    mine = {"name": "NCCL", "object": "**/torch/lib/libtorch_cuda.so", "reason": "it is this test's"}
    result = verify(**rules(release, require=[], allow_embedded=[mine]))
    assert not result["failed"] and "allow_embedded" not in [one["rule"] for one in result["unused"]]
    (copy,) = result["own_copies"]
    assert copy["object"].endswith("/torch/lib/libtorch_cuda.so") and copy["text"].startswith("NCCL version 2.14.3")
    assert (copy["name"], copy["reason"]) == ("NCCL", "it is this test's")
    result = verify(**rules(release, require=[], allow_embedded=[dict(mine, object="**/other.so")]))
    assert result["failed"] and kinds(result) == {"embedded": 1}
    assert {"rule": "allow_embedded", "name": "NCCL", "reason": "it is this test's"} in result["unused"]


def test_s02_an_object_that_should_need_nccl_and_does_not_is_caught(verify, built, release):
    put(built, release, "libtorch_cuda-without.so")
    result = verify(**rules(release))
    assert result["failed"] and kinds(result) == {"required": 1}
    assert result["required"][0]["object"].endswith("libtorch_cuda.so")
    assert result["required"][0]["soname"] == "libnccl.so.2"


def test_s02_a_second_nccl_on_the_library_path_is_misplaced_only_where_it_is_taken(verify, built, release):
    second = str(built / "variants" / "second")
    result = verify(**rules(release, environment={"LD_LIBRARY_PATH": second}))
    assert result["failed"] and kinds(result) == {"misplaced": 1}
    finding = result["misplaced"][0]
    assert (finding["path"], finding["rule"]) == (second + "/libnccl.so.2", "LD_LIBRARY_PATH")
    assert finding["environment"] == "with LD_LIBRARY_PATH"
    assert finding["object"].endswith("libtorch_cuda.so")
    assert "Take %s out of LD_LIBRARY_PATH" % second in finding["remedy"]
    places = result["providers"]["libnccl.so.2"]
    assert sorted(place["environment"] for place in places) == ["with LD_LIBRARY_PATH", "without LD_LIBRARY_PATH"]


def test_what_only_the_library_path_finds_is_missing_without_it(verify, release, tmp_path):
    place = tmp_path / "extra"
    extra = shared(place / "libextra.so.1", "void extra(void) {}", SONAME % "libextra.so.1")
    shared(release / "user.so", "void extra(void); void user(void) { extra(); }", str(extra))
    result = verify([str(release)], environment={"LD_LIBRARY_PATH": str(place)})
    assert result["failed"] and kinds(result) == {"missing": 1}
    assert result["missing"][0]["environment"] == "without LD_LIBRARY_PATH"
    assert "-Wl,-rpath,%s" % place in result["missing"][0]["remedy"]


def test_a_misspelt_object_under_require_does_not_pass(verify, release):
    require = [{"object": "**/libtorch_kuda.so", "needs": "libnccl.so.2", "reason": "x"}]
    result = verify(**rules(release, require=require))
    assert result["failed"] and kinds(result) == {"required": 1}
    assert "No object matches" in result["required"][0]["message"]


def test_s24_stubs_are_refused_in_rpath_library_path_and_as_what_is_found(verify, release, tmp_path):
    stubs = tmp_path / "cuda" / "lib64" / "stubs"
    stub = shared(stubs / "libcuda.so.1", "void cuInit(void) {}", SONAME % "libcuda.so.1")
    shared(release / "gpu.so", "void cuInit(void); void gpu(void) { cuInit(); }", str(stub))
    forbid = [{"path": "**/stubs", "reason": "stubs are for linking"}]
    allow = [{"name": "libcuda.so.1", "reason": "no driver on a login node"}]
    result = verify([str(release)], forbid=forbid)
    assert kinds(result) == {"missing": 1} and "allow_missing" in result["missing"][0]["remedy"]
    clean = verify([str(release)], forbid=forbid, allow_missing=allow)
    assert not clean["failed"]
    assert clean["allowed"] == [{
        "soname": "libcuda.so.1", "name": "libcuda.so.1", "reason": "no driver on a login node",
        "objects": [str(release / "gpu.so")], "objects_total": 1,
    }]
    environment = {"LD_LIBRARY_PATH": str(stubs)}
    exported = verify([str(release)], forbid=forbid, allow_missing=allow, environment=environment)
    assert exported["failed"] and kinds(exported) == {"forbidden": 2}
    assert {finding["object"] for finding in exported["forbidden"]} == {"LD_LIBRARY_PATH", str(release / "gpu.so")}
    shared(release / "gpu.so", "void cuInit(void); void gpu(void) { cuInit(); }", str(stub),
           "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../cuda/lib64/stubs")
    linked = verify([str(release)], forbid=forbid)
    assert linked["failed"] and kinds(linked) == {"forbidden": 2}
    assert {finding["rule"] for finding in linked["forbidden"]} == {"RPATH"}


def test_s42_a_horovod_without_the_gpu_transport_layer_is_caught_and_a_transitive_need_counts(
    verify, built, release
):
    require = [{"object": "**/mpi_lib.so", "needs": "libmpi_gtl_cuda.so*", "reason": "MPI aborts without it"}]
    result = verify([str(release)], require=require)
    assert result["failed"] and kinds(result) == {"required": 1}
    assert "MPI aborts without it" in result["msg"] and "mpi_lib.so" in result["msg"]
    gtl = shared(release / "torch" / "lib" / "libmpi_gtl_cuda.so.0", "void gtl(void) {}",
                 SONAME % "libmpi_gtl_cuda.so.0")
    shared(release / "torch" / "lib" / "libtorch_cuda.so", "void gtl(void); void torch(void) { gtl(); }",
           str(gtl), ORIGIN)
    assert not verify([str(release)], require=require)["failed"]


def test_an_extension_finds_what_was_mapped_before_it_and_a_program_does_not(verify, release):
    cuda = release / "torch" / "lib" / "libtorch_cuda.so"
    extension = shared(release / "ext.so", "void torch(void); void ext(void) { torch(); }", str(cuda),
                       "-Wl,-rpath-link," + str(release / "nccl" / "lib"), SONAME % "ext.so")
    alone = verify([str(release)])
    assert kinds(alone) == {"missing": 1}
    assert "$ORIGIN/torch/lib" in alone["missing"][0]["remedy"] and "preloaded" in alone["missing"][0]["remedy"]
    arguments = {"paths": [str(release)], "preloaded": [str(cuda)]}
    assert not verify(**arguments)["failed"]
    link(release / "tool", "void torch(void); int main(void) { torch(); return 0; }", str(cuda),
         "-Wl,-rpath-link," + str(release / "nccl" / "lib"))
    program = verify(**arguments)
    assert kinds(program) == {"missing": 1}
    assert program["missing"][0]["object"] == str(release / "tool") != str(extension)


def test_a_plugin_that_is_opened_by_name_has_to_be_found_from_where_its_provider_lies(verify, release):
    plugins = [{"caller": "libnccl.so.2", "name": "libnccl-net.so"}]
    result = verify([str(release)], plugins=plugins)
    assert kinds(result) == {"missing": 1}
    assert (result["missing"][0]["soname"], result["missing"][0]["object"]) == (
        "libnccl-net.so", str(release / "nccl" / "lib" / "libnccl.so.2"),
    )
    plugin = shared(release / "ofi" / "libnccl-net.so", "void net(void) {}", SONAME % "libnccl-net.so")
    shared(release / "nccl" / "lib" / "libnccl.so.2", NCCL % BANNER, SONAME % "libnccl.so.2",
           "-Wl,--enable-new-dtags,-rpath,$ORIGIN/../../ofi")
    providers = [{"name": "libnccl-net.so", "path": "%s/ofi/*" % release}]
    found = verify([str(release)], plugins=plugins, providers=providers)
    assert not found["failed"]
    assert found["providers"]["libnccl-net.so"][0]["path"] == str(plugin)


def test_an_older_library_without_the_symbol_version_is_named_with_the_version(verify, release, tmp_path):
    script = tmp_path / "versions"
    script.write_text("V_1 { global: old; };\nV_2 { global: new; } V_1;\n")
    newer = shared(tmp_path / "newer" / "libv.so.1", "void old(void) {} void new(void) {}", SONAME % "libv.so.1",
                   "-Wl,--version-script=%s" % script)
    shared(release / "lib" / "user.so", "void new(void); void user(void) { new(); }", str(newer), ORIGIN)
    script.write_text("V_1 { global: old; };\n")
    shared(release / "lib" / "libv.so.1", "void old(void) {}", SONAME % "libv.so.1",
           "-Wl,--version-script=%s" % script)
    result = verify([str(release)])
    assert result["failed"] and kinds(result) == {"versions": 1}
    finding = result["versions"][0]
    assert (finding["version"], finding["soname"]) == ("V_2", "libv.so.1")
    assert finding["path"] == str(release / "lib" / "libv.so.1")


def test_rules_that_met_nothing_are_reported_and_do_not_fail(verify, release):
    result = verify(**rules(
        release, allow_missing=[{"name": "libcuda.so.1", "reason": "no driver"}],
    ))
    assert not result["failed"]
    assert result["unused"] == [{"rule": "allow_missing", "name": "libcuda.so.1", "reason": "no driver"}]


def test_a_wrong_rule_fails_before_anything_is_looked_at(run_module, release):
    result = run_module("ldd_verify", rules(release, forbid=[{"path": "lib/stubs", "reason": "x"}]))
    assert result["failed"] and result["failed_step"] == "rules" and "objects" not in result
    assert "Begin it with /" in result["msg"]
    missing = run_module("ldd_verify", {"paths": [str(release)], "preloaded": [str(release / "nothing.so")]})
    assert missing["failed"] and "nothing.so" in missing["msg"] and "preloaded" in missing["msg"]


def test_lists_are_cut_and_totals_are_not(verify, release):
    shared(release / "lib" / "libgone.so.1", "void gone(void) {}", SONAME % "libgone.so.1")
    for number in range(4):
        shared(release / "lib" / ("user%d.so" % number), "void gone(void); void user(void) { gone(); }",
               str(release / "lib" / "libgone.so.1"))
    (release / "lib" / "libgone.so.1").unlink()
    result = verify([str(release)], max_listed=2)
    assert result["failed"] and len(result["missing"]) == 2 and result["missing_total"] == 4
    assert [finding["object"] for finding in result["missing"]] == [
        str(release / "lib" / name) for name in ("user0.so", "user1.so")
    ]
    assert "4 missing" in result["msg"]
    assert not verify([str(release)], exclude=["lib/user?.so"])["failed"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the planted loader is written for x86-64")
def test_what_is_inspected_is_never_executed(run_module, release, tmp_path):
    for name in ("constructed", "interpreted"):
        (tmp_path / name).mkdir()
    planted = shared(
        release / "planted.so",
        'int creat(const char *, unsigned); __attribute__((constructor)) static void run(void) { creat("%s", 0600); }'
        % (tmp_path / "constructed" / "witness"),
    )
    # A loader without a C library: creat(2) and exit(2) by their numbers on x86-64.
    interpreter = link(
        tmp_path / "interpreter",
        'void _start(void) { long done; __asm__ volatile ("syscall" : "=a"(done) : "a"(85L), "D"("%s"), "S"(0600L)'
        ' : "rcx", "r11", "memory"); __asm__ volatile ("syscall" : "=a"(done) : "a"(60L), "D"(0L) : "rcx", "r11"); }'
        % (tmp_path / "interpreted" / "witness"),
        "-static", "-nostdlib", "-fno-stack-protector",
    )
    program = link(release / "program", "int main(void) { return 0; }", "-Wl,--dynamic-linker=%s" % interpreter)
    result = run_module("ldd_verify", {"paths": [str(release)]})
    assert result["objects"] == 4 and result["not_checked"][0]["object"] == str(program)
    subprocess.run([str(COMMAND), str(release)], check=False, stdout=subprocess.DEVNULL)
    witnesses = [tmp_path / name / "witness" for name in ("constructed", "interpreted")]
    assert [path.exists() for path in witnesses] == [False, False]
    subprocess.run([sys.executable, "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1])", str(planted)], check=True)
    subprocess.run([str(program)], check=False)
    assert [path.exists() for path in witnesses] == [True, True], "the planted objects do not do what they should"


@not_root
def test_a_hostile_tree_ends_in_findings_and_nothing_else(verify, release):
    good = (release / "nccl" / "lib" / "libnccl.so.2").read_bytes()
    os.mkfifo(str(release / "pipe.so"))
    (release / "loop").symlink_to("loop")
    (release / "up").symlink_to("..")
    (release / "alias.so").symlink_to("nccl/lib/libnccl.so.2")
    (release / "broken.so").write_bytes(good[:200])
    (release / "empty.so").write_bytes(b"")
    (release / "text.so").write_text("INPUT(libnccl.so.2)\n")
    (release / "new\nline.so").write_bytes(good)
    with open(os.path.join(os.fsencode(str(release)), b"not-utf-8-\xff.so"), "wb") as stream:
        stream.write(good)
    (release / "closed").mkdir(mode=0)
    (release / "secret.so").write_bytes(good)
    (release / "secret.so").chmod(0)
    try:
        result = verify([str(release)])
    finally:
        (release / "closed").chmod(0o700)
    assert result["failed"] and result["objects"] == 5
    assert kinds(result) == {"unreadable": 3}
    reasons = {os.path.basename(finding["object"]): finding["reason"] for finding in result["unreadable"]}
    assert reasons["closed"] == reasons["secret.so"] == "Permission denied"
    assert set(reasons) == {"closed", "secret.so", "broken.so"}
    pattern = {"name": "NCCL", "pattern": "NCCL version 2", "provider": "%s/nccl/lib/*" % release}
    embedded = verify([str(release)], exclude=["broken.so", "secret.so", "closed"], embedded=[pattern])
    assert sorted(os.path.basename(finding["object"]) for finding in embedded["embedded"]) == [
        "new\\nline.so", "not-utf-8-\\xff.so",
    ]


def test_objects_that_this_machine_does_not_load_are_counted_and_no_error(verify, release):
    link(release / "static", "int main(void) { return 0; }", "-static")
    subprocess.run(
        ["gcc", "-c", "-x", "c", "-", "-o", str(release / "part.o")], input="int x;", text=True, check=True
    )
    other = bytearray((release / "nccl" / "lib" / "libnccl.so.2").read_bytes())
    other[18:20] = (8).to_bytes(2, "little")
    (release / "mips.so").write_bytes(bytes(other))
    result = verify([str(release)])
    assert not result["failed"]
    assert {os.path.basename(entry["object"]) for entry in result["not_checked"]} == {"static", "part.o", "mips.so"}
    assert result["not_checked_total"] == 3 and result["objects"] == 3
