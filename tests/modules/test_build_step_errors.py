# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Builds that real tools fail at: what an operator reads first is what went wrong."""

from __future__ import annotations

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import textwrap

import pytest
from support.role_plays import play_tasks

SETUP = """
import subprocess, sys
for number in range(60):
    print("running build_ext", number, flush=True)
def build():
    subprocess.check_call(sys.argv[1:])
class Command:
    def run(self):
        build()
Command().run()
"""
"""As a setup.py does: what it calls says the cause, and its own traceback stands at the end."""

CXX = "int main() { return 0; }\n"


def needed(*programs):
    """Skip where one of these is not there."""
    absent = [name for name in programs if not shutil.which(name)]
    if absent:
        pytest.skip("not installed: " + ", ".join(absent))


@pytest.fixture(name="build")
def failed_build(run_module, tmp_path):
    """Run a script that fails in a directory with these files; the result of the step."""
    place = tmp_path / "a build's place"

    def run(script, files=None, **options):
        for name, text in (files or {}).items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        place.mkdir(exist_ok=True)
        arguments = {
            "name": "s", "state_dir": str(tmp_path / "steps"), "script": script, "chdir": str(place),
            "environment": {"LC_ALL": "C.UTF-8", "PYTHON": sys.executable, "HERE": str(place)}, **options,
        }
        result = run_module("build_step", arguments)
        assert "| FAILED! =>" in result.console
        result.log = pathlib.Path(result["log"]).read_text(errors="replace").splitlines()
        return result

    return run


def told(result):
    """The lines of the log that a failure shows: number and text; each is at its place in the log."""
    lines = []
    for line in result["msg"].split("\n")[1:-1]:
        words, _colon, text = line.partition(": ")
        number = int(words.split()[-1])
        assert words == "log line %d" % number
        assert result.log[number - 1].rstrip().startswith(text[:60])
        lines.append((number, text))
    return lines


def causing(result, kind, *words):
    """Make sure that the first error is of this kind, has these words, and stands on no line twice."""
    lines = told(result)
    first = result["errors"][0]
    assert (first["kind"], first["line"]) == (kind, lines[0][0]), result["msg"]
    until = result["errors"][1]["line"] if len(result["errors"]) > 1 else None
    block = []
    for number, text in lines:
        if number == until:
            break
        block.append(text.strip())
    for word in words:
        assert word in " ".join(block), result["msg"]
    assert len({number for number, _text in lines}) == len(lines)
    assert len(lines) <= 21
    assert "log_tail" not in result
    assert "The log is %s. " % result["log"] in result["msg"]
    return result["msg"].rpartition("The log is ")[2]


def cmake(text):
    """A project of CMake that begins so."""
    return {"src/CMakeLists.txt": textwrap.dedent(text), "src/main.cc": CXX, "setup.py": SETUP}


CONFIGURE = '"$PYTHON" setup.py cmake -S src -B build'
PROJECT = "cmake_minimum_required(VERSION 3.15)\nproject(stack LANGUAGES CXX)\n"


def test_no_cuda_toolkit_below_the_traceback_of_whoever_called_cmake(build, tmp_path):
    needed("cmake", "c++")
    nvcc = tmp_path / "cuda" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n")
    nvcc.chmod(0o755)
    result = build(CONFIGURE + ' "-DCUDAToolkit_ROOT=%s"' % (tmp_path / "cuda"),
                   cmake(PROJECT + "find_package(CUDAToolkit REQUIRED)\n"))
    assert any("CalledProcessError" in line for line in result.log[-5:])
    remedy = causing(result, "cuda_toolkit", "CMake Error at ", "CUDAToolkit")
    assert "Install a complete CUDA toolkit" in remedy
    assert "CalledProcessError" not in result["msg"]


def test_a_cmake_that_is_too_old(build):
    needed("cmake")
    result = build(CONFIGURE, cmake("cmake_minimum_required(VERSION 99.1)\nproject(stack)\n"))
    assert "Take a CMake" in causing(result, "cmake_version", "CMake 99.1 or higher is required")


@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_a_header_that_is_missing(build, generator):
    needed("cmake", "c++", "ninja" if generator == "Ninja" else "make")
    files = cmake(PROJECT + "add_library(error SHARED error.cpp fine.cpp)\n")
    files["src/error.cpp"] = "#include <no_such/header.h>\n"
    files["src/fine.cpp"] = "int f(int unused) { int x; return 0; }\n"
    configure = "cmake -G '%s' -S src -B build -DCMAKE_CXX_FLAGS='-Wall -Wextra'" % generator
    result = build(configure + " && cmake --build build -j 2", files)
    causing(result, "header", "error.cpp:1:", "no_such/header.h")
    assert "fine.cpp" not in result["msg"]
    assert len(result["errors"]) == 1


def test_a_symbol_that_nothing_defines(build):
    needed("cmake", "c++", "ninja")
    files = cmake(PROJECT + "add_executable(main main.cc)\n")
    files["src/main.cc"] = "int somewhere_else(); int main() { return somewhere_else(); }\n"
    result = build("cmake -G Ninja -S src -B build && cmake --build build", files)
    causing(result, "linker", "somewhere_else")
    assert "ld returned" not in result["msg"]


def test_a_library_that_is_not_there(build):
    needed("c++")
    result = build("c++ main.cc -lno_such_library", {"main.cc": CXX})
    causing(result, "linker", "-lno_such_library")


def test_a_compiler_that_the_kernel_kills(build, tmp_path):
    needed("g++")
    own = tmp_path / "cc1plus"
    own.write_text("#!/bin/sh\nkill -9 $$\n")
    own.chmod(0o755)
    result = build('g++ -B "%s/" -c main.cc || { echo make: giving up; exit 1; }' % tmp_path, {"main.cc": CXX})
    remedy = causing(result, "killed", "Killed signal terminated program")
    assert "fewer compilers at once (horovod_jobs" in remedy


def test_a_compiler_without_memory(build):
    needed("c++")
    source = "#include <regex>\n#include <map>\n#include <iostream>\n" + CXX
    result = build("ulimit -v 60000; c++ -O2 -c main.cc", {"main.cc": source})
    assert "more memory" in causing(result, "memory")


def test_a_script_that_is_killed_has_a_remedy_without_a_line(build):
    result = build("kill -9 $$")
    assert result["errors"] == []
    assert "more memory" in result["msg"]


def test_a_disk_that_is_full(build):
    needed("c++")
    if os.geteuid() == 0:
        pytest.skip("as root a compiler would replace /dev/full")
    result = build("c++ -c main.cc -o /dev/full", {"main.cc": CXX})
    assert "GiB in " in causing(result, "disk_full", "No space left on device")


def test_a_file_that_may_not_grow(build):
    result = build('ulimit -f 1; "$PYTHON" -c "open(\'big\', \'wb\').write(bytes(4000000))"')
    assert "ulimit -f" in causing(result, "file_size", "File too large")


def test_the_headers_of_python_are_missing(build):
    needed("cc")
    result = build('"$PYTHON" setup.py cc -I"$HERE/python3.11" -c module.c',
                   {"module.c": '#include "Python.h"\n', "setup.py": SETUP})
    assert "python3-dev" in causing(result, "python_headers", "module.c:1:", "Python.h")


def test_an_index_that_refuses(build):
    if subprocess.run([sys.executable, "-m", "pip", "--version"], stdout=subprocess.PIPE, check=False).returncode:
        pytest.skip("this Python has no pip")
    with socket.socket() as bound:
        # Bound and not listening: nobody else gets the port, and whoever asks is refused.
        bound.bind(("127.0.0.1", 0))
        index = "http://127.0.0.1:%d/simple" % bound.getsockname()[1]
        result = build(
            '"$PYTHON" -m pip --isolated install --retries 1 --target t --index-url %s einops==0.8.1' % index,
            environment={"PYTHON": sys.executable, "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"},
        )
    assert "https_proxy" in causing(result, "network", "onnection")


def test_a_wheel_that_is_another_one(build, tmp_path):
    pip = subprocess.run([sys.executable, "-m", "pip", "--version"], stdout=subprocess.PIPE, check=False)
    if pip.returncode:
        pytest.skip("this Python has no pip")
    (tmp_path / "thing-1.0.tar.gz").write_bytes(b"not what was promised")
    result = build('"$PYTHON" -m pip --isolated install --no-deps --no-index --find-links "%s" --target t '
                   "--require-hashes -r lock" % tmp_path, {"lock": "thing==1.0 --hash=sha256:" + "0" * 64 + "\n"})
    assert "another" in causing(result, "hash", "Expected sha256 " + "0" * 64) or "renew the lock" in result["msg"]


def test_a_step_that_takes_too_long_names_what_was_running(build):
    result = build("echo 'error: of no importance'; sleep 600", timeout=1)
    assert result["reason"] == "timeout"
    assert "longer timeout" in causing(result, "time_limit", "was stopped after 1 s", "sleep 600")


def test_a_step_that_falls_silent(build):
    result = build("echo begun; sleep 600", no_output_timeout=1)
    assert "no_output_timeout" in causing(result, "silence", "printed nothing for 1 s")


def test_a_module_that_is_not_there(build):
    result = build("true", module_init="module() { [ \"$1\" != load ] || { echo 'no such module' >&2; return 1; }; }",
                   modules=["no-such/1.0"])
    causing(result, "module", "module load no-such/1.0 failed")


def test_only_this_attempt_counts_and_lines_are_numbered_from_the_beginning_of_the_log(build):
    build("echo first; echo 'ERROR: of the first attempt'; exit 1")
    result = build("echo second; echo 'ERROR: of the second attempt'; exit 1")
    assert [text for _number, text in told(result)] == ["ERROR: of the second attempt"]


def test_without_a_known_error_the_last_lines_are_given_and_a_success_says_nothing(build, run_module, tmp_path):
    result = build("for i in $(seq 50); do echo line $i; done; echo '0 errors'; exit 3")
    assert result["errors"] == [] and result["log_tail"][-2:] == ["0 errors", result["log_tail"][-1]]
    assert "Correct that" in result["msg"]
    well = run_module("build_step", {"name": "t", "state_dir": str(tmp_path / "steps"), "script": "echo 'ERROR: no'"})
    assert well["state"] == "done" and "errors" not in well and "ERROR: no" not in well.console


PLAY = """
- hosts: localhost
  gather_facts: false
  connection: local
  tasks:
    - hpcml.torchstack.build_step:
        name: s
        state_dir: {state}
        script: |
          for i in $(seq 100); do echo "line $i"; done
          echo 'CMake Error at CMakeLists.txt:3 (find_package):'
          echo '  Could not find the thing'
          echo 'Traceback (most recent call last):'
          echo 'subprocess.CalledProcessError: x returned non-zero exit status 1.'
          exit 1
"""


def test_on_the_screen_each_line_is_shown_once(ansible_environment, tmp_path):
    play = tmp_path / "play.yml"
    play.write_text(PLAY.format(state=tmp_path / "steps"))
    done = subprocess.run(
        [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), str(play)],
        env=dict(ansible_environment, ANSIBLE_CALLBACK_RESULT_FORMAT="yaml"), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 2
    # Before them the log has what was kept from the step, of a caller who has such variables.
    log = (tmp_path / "steps" / "s" / "log").read_text().splitlines()
    number = log.index("CMake Error at CMakeLists.txt:3 (find_package):") + 1
    for text in (
        "log line %d: CMake Error at CMakeLists.txt:3 (find_package):" % number,
        "log line %d:   Could not find the thing" % (number + 1),
        "The log is %s." % (tmp_path / "steps" / "s" / "log"), "finished steps stay.",
    ):
        assert done.stdout.count(text) == 1, done.stdout
    assert "line %d:" % (number - 3) not in done.stdout and "CalledProcessError" not in done.stdout
    assert done.stdout.count("Could not find the thing") == 1


def test_what_a_role_asserts_is_said_before_anything_else(ansible_environment, tmp_path):
    environment = dict(ansible_environment, ANSIBLE_CALLBACK_RESULT_FORMAT="yaml")
    variables = {
        "horovod_version": "0.28.1", "horovod_environment": {"HOROVOD_WITH_MPI": "0"},
        "release_context": {
            "frozen": True, "base": {}, "records": "/r", "prefix": "/r", "tools": "/t", "mpi": {}, "compilers": {},
            "definition": {},
        },
    }
    done = play_tasks("horovod", "main", variables, [{}], environment, tmp_path)
    assert done.returncode == 2
    lines = done.stdout.splitlines()
    sentence = 'HOROVOD_WITH_MPI: Horovod ignores every value but "1" there.'
    told = [number for number, line in enumerate(lines) if sentence in line]
    failed = [number for number, line in enumerate(lines) if "FAILED!" in line]
    # Ansible itself says it before the result, since 2.19, and in it.
    assert told and told[0] <= failed[0] + 12 and len(told) <= 2, done.stdout
    assert "set HOROVOD_WITHOUT_<PART>" in " ".join(done.stdout.split())
