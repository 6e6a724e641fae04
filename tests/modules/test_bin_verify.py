# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""bin/verify as an operator types it."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys

import pytest

COMMAND = pathlib.Path(__file__).resolve().parent.parent.parent / "bin" / "verify"

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to build small libraries")


def shared(output, source, *flags):
    output.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(output), "-x", "none", *flags],
        input=source, text=True, check=True,
    )
    return output


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A tree with a library, who needs it, and who needs one that is not there."""
    top = tmp_path_factory.mktemp("built")
    good = shared(top / "lib" / "libgood.so.1", "void good(void) {}", "-Wl,-soname,libgood.so.1")
    shared(top / "user.so", "void good(void); void user(void) { good(); }", str(good), "-Wl,-rpath,$ORIGIN/lib")
    gone = shared(top / "libgone.so.1", "void gone(void) {}", "-Wl,-soname,libgone.so.1")
    shared(top / "broken" / "broken.so", "void gone(void); void broken(void) { gone(); }", str(gone))
    gone.unlink()
    return top


@pytest.fixture()
def tree(built, tmp_path):
    shutil.copytree(str(built), str(tmp_path / "tree"))
    return tmp_path / "tree"


@pytest.fixture()
def clean_tree(tree):
    shutil.rmtree(str(tree / "broken"))
    return tree


def run(*arguments, environment=None, cwd="/"):
    """The exit code, and what was printed and complained about."""
    process = subprocess.run(
        [str(COMMAND), *map(str, arguments)], capture_output=True, text=True, check=False,
        env=dict(os.environ, **(environment or {})), cwd=cwd,
    )
    return process.returncode, process.stdout, process.stderr


def words(text):
    """Lines as lists of words, so that widths of columns do not matter."""
    return [line.split() for line in text.splitlines()]


def test_a_clean_tree_is_a_table_of_providers_and_exit_code_0(clean_tree):
    code, out, err = run(clean_tree)
    assert (code, err) == (0, "")
    assert ["library", "is", "found", "by", "needed", "by"] in words(out)
    path = "lib/libgood.so.1"
    assert [line[:2] + line[-1:] for line in words(out) if line and line[0] == "libgood.so.1"] == [
        ["libgood.so.1", path, "1"]
    ]
    assert "2 objects of 2 files, 0 findings" in out.splitlines()[-1]


def test_findings_are_named_with_object_places_and_remedy_and_exit_code_1(tree):
    code, out, _err = run(tree)
    assert code == 1
    assert "%s needs libgone.so.1, which is not found" % (tree / "broken" / "broken.so") in out
    assert "searched ld.so.cache" in out and "allow_missing" in out
    assert "3 objects of 3 files, 1 finding, " in out


def test_a_single_file_and_a_path_relative_to_here_will_do(tree):
    assert run("user.so", cwd=str(tree))[0] == 0
    assert run("broken", cwd=str(tree))[0] == 1


def test_json_is_the_result_of_the_module(tree):
    code, out, _err = run(tree, "--json")
    result = json.loads(out)
    assert code == 1 and result["failed"] is True
    assert (result["missing_total"], result["missing"][0]["soname"]) == (1, "libgone.so.1")
    assert json.loads(run(tree, "--json", "--max-listed", "0")[1])["missing"] == []


def test_rules_of_a_file_are_applied(tree, tmp_path):
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps({"allow_missing": [{"name": "libgone.so.1", "reason": "comes with the driver"}]}))
    code, out, _err = run(tree, "--rules", rules)
    assert code == 0 and "libgone.so.1 may be missing" in out and "comes with the driver" in out


def test_a_library_path_is_verified_besides_none(built, clean_tree, tmp_path):
    extra = tmp_path / "extra"
    shutil.copytree(str(built / "lib"), str(extra))
    (clean_tree / "lib" / "libgood.so.1").unlink()
    code, out, _err = run(clean_tree, "--library-path", extra)
    assert code == 1 and "(without LD_LIBRARY_PATH)" in out
    assert "LD_LIBRARY_PATH (with LD_LIBRARY_PATH)" in out
    assert run(clean_tree, "--library-path", "relative:" + str(extra))[0] == 1


def release_of(top):
    """A record as the module leaves it: a rule and an LD_LIBRARY_PATH of the release."""
    (top / ".torchstack").mkdir()
    (top / ".torchstack" / "verification.json").write_text(json.dumps({
        "format": 1, "objects": {}, "paths": ["."],
        "rules": {
            "environment": {"LD_LIBRARY_PATH": "{prefix}/lib"},
            "providers": [{"name": "libgood.so*", "path": "{prefix}/lib/*"}],
        },
    }))


def test_a_release_brings_its_own_rules_and_may_have_moved(clean_tree, tmp_path):
    release_of(clean_tree)
    code, out, _err = run(clean_tree)
    assert code == 0
    assert "Rules: %s" % (clean_tree / ".torchstack" / "verification.json") in out
    assert "LD_LIBRARY_PATH" in next(line for line in out.splitlines() if line.startswith("libgood.so.1"))
    clean_tree.rename(tmp_path / "moved")
    assert run(tmp_path / "moved")[0] == 0
    (tmp_path / "moved" / "other").mkdir()
    (tmp_path / "moved" / "lib" / "libgood.so.1").rename(tmp_path / "moved" / "other" / "libgood.so.1")
    code, out, _err = run(tmp_path / "moved", "--library-path", tmp_path / "moved" / "other")
    assert code == 1 and "and not from %s/lib/*" % (tmp_path / "moved") in out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "usage:"),
        (["{tree}", "--nonsense"], "usage:"),
        (["{tree}/nothing"], "Cannot look at"),
        (["{tree}", "--rules", "{tree}/nothing.json"], "Cannot read"),
        (["{tree}", "--rules", "{tree}/user.so"], "is not JSON"),
        (["{tree}", "--rules", "{tree}/list.json"], "holds no rules"),
        (["{tree}", "--rules", "{tree}/wrong.json"], "There is no rule 'nonsense'"),
        (["{tree}", "--rules", "{tree}/future.json"], "unknown format"),
        (["{tree}/empty"], "no dynamic ELF object"),
        (["{tree}/narrow"], "nothing was checked: 1 "),
    ],
)
def test_what_cannot_be_verified_is_one_sentence_and_exit_code_2(tree, arguments, complaint):
    (tree / "list.json").write_text("[]")
    # An executable of 32 bits (the System V ABI's ELF header): its path is right.
    header = struct.pack("<16sHHIIIIIHHHHHH", b"\x7fELF\x01\x01\x01", 2, 3, 1, 0, 52, 0, 0, 52, 32, 0, 0, 0, 0)
    (tree / "narrow").write_bytes(header.ljust(200, b"\0"))
    (tree / "wrong.json").write_text('{"nonsense": []}')
    (tree / "future.json").write_text('{"format": 99, "rules": {}}')
    (tree / "empty").mkdir()
    code, out, err = run(*[argument.replace("{tree}", str(tree)) for argument in arguments])
    assert (code, out) == (2, "")
    assert complaint in err and "Traceback" not in err


def test_it_needs_nothing_from_the_environment_and_leaves_nothing_behind(clean_tree, tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')")
    before = sorted(str(path) for path in [*clean_tree.rglob("*"), *COMMAND.parent.rglob("*")])
    environment = {
        "PYTHONPATH": str(tmp_path), "PYTHONHOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "", "HOME": "/nonexistent",
        "CDPATH": "/usr", "LC_ALL": "C",
    }
    code, _out, err = run(clean_tree, environment=environment, cwd=str(tmp_path))
    assert (code, err) == (0, "")
    assert sorted(str(path) for path in [*clean_tree.rglob("*"), *COMMAND.parent.rglob("*")]) == before


def test_it_runs_through_a_link_to_it(clean_tree, tmp_path):
    link = tmp_path / "verify"
    link.symlink_to(COMMAND)
    assert subprocess.run([str(link), str(clean_tree)], stdout=subprocess.DEVNULL, check=False).returncode == 0


def tools(directory, *names):
    directory.mkdir()
    for name in names:
        (directory / name).symlink_to(shutil.which(name))
    return directory


def test_an_old_python_first_on_path_is_passed_over(clean_tree, tmp_path):
    place = tools(tmp_path / "bin", "dirname", "readlink")
    (place / "python3").write_text("#!/bin/sh\nexit 1\n")
    (place / "python3").chmod(0o755)
    code, _out, err = run(clean_tree, environment={"PATH": str(place)})
    assert code == 2 and "needs Python 3.8" in err
    (place / "python3.9").write_text('#!/bin/sh\nexec "%s" "$@"\n' % sys.executable)
    (place / "python3.9").chmod(0o755)
    assert run(clean_tree, environment={"PATH": str(place)})[0] == 0


def test_a_reader_that_leaves_early_is_no_error(clean_tree):
    shell = '"$0" "$1" | head -1'
    process = subprocess.run(
        ["sh", "-c", shell, str(COMMAND), str(clean_tree)], capture_output=True, check=False
    )
    assert process.stderr == b""
