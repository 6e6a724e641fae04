# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""ldd_verify under failing calls, swapped names and large trees: a fault is told, or it changes nothing of the answer.

The module's work runs as bin/verify, whose start takes a tenth of that of Ansible. With TORCHSTACK_ALL_FAULTS=1 every
call on the tree meets every error, and the trees are as large as they get (200,000 files, 2,000 objects, 2 GB); else
each error meets all calls of a kind at once, and the second one alone, and the trees are a tenth.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest
from support import faults

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent.parent
COMMAND = CHECKOUT / "bin" / "verify"
ALL = bool(os.environ.get("TORCHSTACK_ALL_FAULTS"))
SCALE = 10 if ALL else 1
MOST_MEMORY = 200_000
"""Kilobytes."""

pytestmark = pytest.mark.skipif(faults.compiler() is None, reason="needs a C compiler to build libraries and faults")

ERRORS = {
    "open": ("EIO", "ESTALE", "EACCES", "EMFILE", "EINTR", "ENOENT"),
    "read": ("EIO", "ESTALE", "EINTR", "short"),
    "stat": ("EIO", "ESTALE", "EACCES"),
    "list": ("EIO", "EMFILE"),
    "next": ("EIO",),
    "close": ("EIO", "EINTR"),
}
ONLY_TRIED_AGAIN = {("open", "EINTR"), ("read", "EINTR"), ("read", "short"), ("close", "EIO"), ("close", "EINTR")}
"""What has to be the same as without the fault."""


def shared(output, source, *flags):
    output.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [faults.compiler(), "-shared", "-fPIC", "-x", "c", "-", "-o", str(output), "-x", "none", *flags],
        input=source, text=True, check=True,
    )
    return output


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A library with a banner, and who needs it."""
    top = tmp_path_factory.mktemp("built")
    source = 'const char banner[] = "NCCL version 2"; void good(void) {}'
    good = shared(top / "lib" / "libgood.so.1", source, "-Wl,-soname,libgood.so.1")
    shared(top / "sub" / "user.so", "void good(void); void user(void) { good(); }", str(good),
           "-Wl,-rpath,$ORIGIN/../lib")
    (top / "text").write_text("x" * 100)
    return top


@pytest.fixture()
def tree(built, tmp_path):
    shutil.copytree(str(built), str(tmp_path / "tree"))
    return tmp_path / "tree"


def rules_for(tree):
    """Rules that need everything looked at: two environments, and the inside of each file."""
    rules = tree.parent / "rules.json"
    rules.write_text(json.dumps({
        "environment": {"LD_LIBRARY_PATH": str(tree / "lib")},
        "embedded": [{"name": "NCCL", "pattern": "NCCL version 2", "provider": "**/libgood.so.1"}],
    }))
    return rules


def command(tree):
    return [str(COMMAND), str(tree), "--rules", str(rules_for(tree)), "--json"]


def verify(tree, variables=None):
    """Exit code, result without what differs each time, and what was complained about."""
    process = subprocess.run(
        command(tree), env={**os.environ, **(variables or {})}, capture_output=True, text=True, check=False
    )
    result = json.loads(process.stdout) if process.returncode in (0, 1) else {}
    result.pop("seconds", None)
    return process.returncode, result, process.stderr


def calls_of(group, tree, library, log):
    """How many calls of a group a verification makes on a tree."""
    verify(tree, faults.variables(library, "none", (group,), tree, log=log))
    return len(log.read_text().splitlines())


@pytest.mark.parametrize(
    ("group", "error"), [(group, error) for group, errors in ERRORS.items() for error in errors]
)
def test_a_failing_call_is_told_or_changes_nothing_of_the_answer(tree, fault_library, tmp_path, group, error):
    clean = verify(tree)
    assert clean[0] == 0 and clean[1]["objects"] == 2
    action = error if error == "short" else "error:" + error
    numbers = range(1, calls_of(group, tree, fault_library, tmp_path / "log") + 1) if ALL else (2,)
    # An interrupt that never ends would have Python try for ever.
    for at in [*numbers, *([] if error == "EINTR" else [None])]:
        code, result, complaint = verify(tree, faults.variables(fault_library, action, (group,), tree, at))
        assert "Traceback" not in complaint
        if code == 2:
            assert complaint.startswith("verify: ") and complaint.count("\n") == 1 and str(tree) in complaint
            assert (group, error) not in ONLY_TRIED_AGAIN
        elif code == 1:
            assert (group, error) not in ONLY_TRIED_AGAIN
            assert str(tree) in result["msg"]
            listed = [entry for kind in ("unreadable", "missing") for entry in result[kind]]
            assert listed and all(entry["remedy"] for entry in listed)
        elif error != "ENOENT":  # what is not there any more when it is opened is not part of the tree
            assert (code, result) == clean[:2]


@pytest.mark.parametrize(("group", "error", "told"), [
    ("write", "ENOSPC", "No space left on device"), ("create", "EROFS", "Read-only file system"),
    ("rename", "EIO", "Input/output error"), ("sync", "EDQUOT", "Disk quota exceeded"),
])
def test_a_record_that_cannot_be_written_is_named_with_what_to_do_and_the_old_one_stays(
    run_module, tree, fault_library, group, error, told
):
    place = tree / ".torchstack"
    place.mkdir()
    record = place / "verification.json"
    record.write_text('{"format": 1}')  # of no use, and no reason to fail
    variables = faults.variables(fault_library, "error:" + error, (group,), place)
    failed = run_module("ldd_verify", {"paths": [str(tree)], "record": str(record)}, environment=variables)
    assert failed.failed and failed["failed_step"] == "record" and failed["path"] == str(record)
    assert str(record) in failed["msg"] and told in failed["msg"] and "has room" in failed["remedy"]
    assert record.read_text() == '{"format": 1}' and os.listdir(str(place)) == [record.name]


def stopped(tree, library, group, place, at):
    """A verification that stands still right before one of its calls on a place."""
    process = subprocess.Popen(
        command(tree), env={**os.environ, **faults.variables(library, "stop", (group,), place, at)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    _pid, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), "it made no such call"
    return process


def finish(process):
    process.send_signal(signal.SIGCONT)
    output, complaint = process.communicate()
    assert "Traceback" not in complaint and process.returncode in (0, 1), (process.returncode, complaint)
    return json.loads(output)


def test_a_file_that_is_truncated_while_it_is_read_is_a_finding_and_ends_nothing(tree, fault_library):
    library = tree / "lib" / "libgood.so.1"
    for at in (2, 3, 4):
        process = stopped(tree, fault_library, "read", library, at)
        content = library.read_bytes()
        os.truncate(str(library), 100)
        result = finish(process)
        assert str(library) in [finding["object"] for finding in result["unreadable"]]
        library.write_bytes(content)


@pytest.mark.parametrize("what", ["link", "pipe"])
def test_a_name_that_is_swapped_during_the_walk_leads_nowhere_and_is_not_waited_for(
    tree, fault_library, tmp_path, what
):
    outside = tmp_path / "outside"
    shutil.copytree(str(tree / "sub"), str(outside))
    shutil.copy(str(outside / "user.so"), str(outside / "second.so"))
    place = tree / "sub" if what == "link" else tree / "sub" / "user.so"
    process = stopped(tree, fault_library, "open", place, 1)
    if what == "link":
        shutil.rmtree(str(place))
        place.symlink_to(outside)
    else:
        place.unlink()
        os.mkfifo(str(place))
    result = finish(process)
    assert result["objects"] == 1 and "second.so" not in json.dumps(result) and not result["failed"]


def test_an_object_that_is_replaced_before_its_inside_is_searched_is_not_taken_for_the_one_that_was_verified(
    tree, fault_library, tmp_path
):
    user = tree / "sub" / "user.so"
    process = stopped(tree, fault_library, "open", user, 2)
    other = tmp_path / "other"
    other.write_bytes(b"NCCL version 2")
    os.rename(str(other), str(user))
    result = finish(process)
    assert result["embedded"] == [] and [finding["object"] for finding in result["unreadable"]] == [str(user)]
    assert "another file has taken its place" in result["unreadable"][0]["reason"]


def test_names_of_any_bytes_are_told_in_the_result_and_in_the_record(run_module, built, tmp_path):
    top = tmp_path / "tree"
    place = os.path.join(os.fsencode(top), b"new\nline-\xff")
    os.makedirs(place)
    soname = b"lib\xfe\n.so.1"
    library = tmp_path / "library.so"
    subprocess.run(
        [faults.compiler(), "-shared", "-fPIC", "-x", "c", "-", "-o", str(library), b"-Wl,-soname," + soname],
        input=b"void strange(void) {}", check=True,
    )
    subprocess.run(
        [faults.compiler(), "-shared", "-fPIC", "-x", "c", "-", "-o", os.path.join(place, b"user.so"), "-x", "none",
         str(library), b"-Wl,-rpath,$ORIGIN/\xfd"],
        input=b"void strange(void); void user(void) { strange(); }", check=True,
    )
    failed = run_module("ldd_verify", {"paths": [str(top)]})
    (finding,) = failed["missing"]
    assert failed.failed and finding["object"].endswith("/new\\nline-\\xff/user.so")
    assert finding["soname"] == "lib\\xfe\\n.so.1" and "/new\\nline-\\xff/\\xfd (" in finding["searched"][0]
    os.mkdir(os.path.join(place, b"\xfd"))
    shutil.copy(os.fsencode(library), os.path.join(place, b"\xfd", soname))
    record = tmp_path / "record.json"
    for changed in (True, False):
        found = run_module("ldd_verify", {"paths": [str(top)], "record": str(record)})
        assert (found.failed, found.changed) == (False, changed), found.console
    needed = json.loads(record.read_text())["objects"]["new\\nline-\\xff/user.so"]["needed"]
    assert needed["lib\\xfe\\n.so.1"]["path"] == "new\\nline-\\xff/\\xfd/lib\\xfe\\n.so.1"


MEASURED = """
import sys
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify import library_cli as library_command
code = library_command.main(sys.argv[1:])
with open("/proc/self/status") as status:
    peak = [line.split()[1] for line in status if line.startswith("VmHWM:")]
print(peak[0], file=sys.stderr)
sys.exit(code)
"""


def measured(collections_path, *arguments):
    """Exit code, result, and the most memory that it took, in kilobytes."""
    process = subprocess.run(
        [sys.executable, "-c", MEASURED, *map(str, arguments), "--json"], capture_output=True, text=True, check=False,
        env=dict(os.environ, PYTHONPATH=str(collections_path)),
    )
    return process.returncode, json.loads(process.stdout), int(process.stderr.split()[-1])


def test_many_files_and_many_objects_take_little_memory(collections_path, built, tmp_path):
    top = tmp_path / "tree"
    shutil.copytree(str(built), str(top))
    for number in range(20 * SCALE):
        place = top / ("directory%d" % number)
        place.mkdir()
        for name in range(1000):
            os.close(os.open(os.path.join(str(place), "file%d.py" % name), os.O_WRONLY | os.O_CREAT, 0o644))
    for number in range(200 * SCALE):
        shutil.copyfile(str(top / "sub" / "user.so"), str(top / "sub" / ("user%d.so" % number)))
    try:
        code, result, peak = measured(collections_path, top)
    finally:
        shutil.rmtree(str(top))
    assert (code, result["files"], result["objects"]) == (0, 20_200 * SCALE + 3, 200 * SCALE + 2)
    assert peak < MOST_MEMORY


def test_the_inside_of_a_large_object_is_searched_in_little_memory(collections_path, tree, tmp_path):
    size = 200_000_000 * SCALE
    with (tree / "sub" / "user.so").open("r+b") as stream:
        stream.truncate(size)
        stream.seek(size)
        stream.write(b"NCCL version 2")
    code, result, peak = measured(collections_path, tree, "--rules", rules_for(tree))
    assert code == 1 and [finding["offset"] for finding in result["embedded"]] == [size]
    assert peak < MOST_MEMORY
