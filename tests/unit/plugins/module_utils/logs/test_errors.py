# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a log says of a failure: which lines, in which order, and which not (errors, lines, patterns, remedies)."""

from __future__ import annotations

import io
import itertools
import random

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.logs import errors, patterns, remedies
from ansible_collections.hpcml.torchstack.plugins.module_utils.logs.lines import MAX_LINE_BYTES, plain_text, raw_lines


def found(text, offset=0):
    data = text if isinstance(text, bytes) else text.encode()
    return errors.find_errors(raw_lines(io.BytesIO(data), offset))


def kinds(text):
    return [error.kind for error in found(text)]


ONE = [
    ("disk_full", "tar: lib/x.so: Cannot write: No space left on device"),
    ("disk_full", "OSError: [Errno 28] No space left on device: '/soft/x'"),
    ("disk_full", "/tmp/ccX.s: Fatal error: can't write 11 bytes to section .text of a.o: 'No space left on device'"),
    ("quota", "ar: libx.a: Disk quota exceeded"),
    ("file_size", "OSError: [Errno 27] File too large"),
    ("killed", "c++: fatal error: Killed signal terminated program cc1plus"),
    ("killed", "collect2: fatal error: ld terminated with signal 9 [Killed]"),
    ("killed", "/soft/it's the place/script.sh: line 31: 4711 Killed                  python setup.py bdist_wheel"),
    ("killed", "nvcc error   : 'cicc' died due to signal 9 (Kill signal)"),
    ("killed", "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.batch."),
    ("killed", "subprocess.CalledProcessError: Command '['ninja']' died with <Signals.SIGKILL: 9>."),
    ("memory", "cc1plus: out of memory allocating 65536 bytes after a total of 3014656 bytes"),
    ("memory", "virtual memory exhausted: Cannot allocate memory"),
    ("memory", "terminate called after throwing an instance of 'std::bad_alloc'"),
    ("header", "csrc/a.cc:12:10: fatal error: mpi.h: No such file or directory"),
    ("header", "csrc/a.cc:12:10: fatal error: 'mpi.h' file not found"),
    ("python_headers", "csrc/a.cc:12:10: fatal error: Python.h: No such file or directory"),
    ("cuda_toolkit", "csrc/a.cc:12:10: fatal error: cuda_runtime.h: No such file or directory"),
    ("cuda_toolkit", "/bin/sh: 1: nvcc: not found"),
    ("cuda_toolkit", "script.sh: line 12: nvcc: command not found"),
    ("cuda_toolkit", "/usr/bin/ld: cannot find -lcudart: No such file or directory"),
    ("program", "script.sh: line 12: mpicxx: command not found"),
    ("no_compiler", "script.sh: line 12: g++: command not found"),
    ("program", "/usr/bin/env: 'nothing': No such file or directory"),
    ("linker", "main.cc:(.text+0x5): undefined reference to `horovod_init'"),
    ("linker", "ImportError: /x/mpi_lib.so: undefined symbol: _ZN3c104cuda20getCurrentCUDAStreamEa"),
    ("linker", "/usr/bin/ld: cannot find -lmpi_cxx"),
    ("linker", "b.o:(.bss+0x0): multiple definition of `environ_of'; a.o:(.bss+0x0): first defined here"),
    ("library", "python3: error while loading shared libraries: libmpi.so.40: cannot open shared object file: none"),
    ("compiler", "/src/a.cc:3:7: error: expected ';' before '}' token"),
    ("compiler", "/src/a.cu(112): error: identifier \"half2\" is undefined"),
    ("compiler", "/src/a.cc:3:7: error: unused variable 'x' [-Werror=unused-variable]"),
    ("compiler", "cc1: error: unrecognized command-line option '-mno-such'"),
    ("compiler", "nvcc fatal   : Unsupported gpu architecture 'compute_999'"),
    ("compiler", "/tmp/ccX.s:17: Error: no such instruction: `vpmadd52luq %zmm0'"),
    ("cmake", "CMake Error: The source directory \"/x\" does not appear to contain CMakeLists.txt."),
    ("no_rule", "make: *** No rule to make target 'all'.  Stop."),
    ("no_rule", "ninja: error: 'a.cc', needed by 'a.o', missing and no known rule to make it"),
    ("module", "module load cudatoolkit/99 failed"),
    ("wall_time", "slurmstepd: error: *** JOB 4711 ON nid001 CANCELLED AT 2026-11-20T02:00:00 DUE TO TIME LIMIT ***"),
    ("network", "fatal: unable to access 'https://git.example.org/x.git/': Could not resolve host: git.example.org"),
    ("network", "curl: (7) Failed to connect to git.example.org port 443 after 5 ms: Couldn't connect to server"),
    ("network", "socket.gaierror: [Errno -3] Temporary failure in name resolution"),
    ("network", "urllib.error.URLError: <urlopen error [Errno 111] Connection refused>"),
    ("permission", "mkdir: cannot create directory '/soft/x': Permission denied"),
    ("requirement", "ERROR: No matching distribution found for torch==2.13.0+cpu"),
    ("requirement", "ERROR: x-1-cp311-cp311-linux_x86_64.whl is not a supported wheel on this platform."),
    ("error", "ERROR: something that nobody has a name for"),
    ("error", "configure: error: no acceptable C preprocessor"),
    ("error", "fatal: not a git repository"),
    ("follows", "ninja: build stopped: subcommand failed."),
    ("follows", "make[2]: *** [Makefile:7: m.o] Error 1"),
    ("follows", "error: subprocess-exited-with-error"),
    ("follows", "ERROR: Failed building wheel for horovod"),
    ("follows", "collect2: error: ld returned 1 exit status"),
    ("follows", "RuntimeError: Error compiling objects for extension"),
    ("follows", "error: command '/usr/bin/g++' failed with exit code 1"),
    ("follows", "subprocess.CalledProcessError: Command '['cmake']' returned non-zero exit status 1."),
    ("time_limit", "==== step s was stopped after 1.5 s (timeout); what was running:"),
    ("silence", "==== step s printed nothing for 60 s and was stopped (no_output_timeout); what was running:"),
]


@pytest.mark.parametrize(("kind", "line"), ONE, ids=[line[:40] for _kind, line in ONE])
def test_a_line_is_of_its_kind_wherever_it_stands(kind, line):
    error, = found("[1/3] begun\n%s\n" % line)
    assert (error.kind, error.lines[0].number) == (kind, 2)
    if not kind.startswith(("time", "silence", "module")):
        error, = found("\x1b[1m      \x1b[31m%s\x1b[0m\r\n" % line)
        assert error.kind == kind and "\x1b" not in error.lines[0].text


def test_every_kind_that_is_named_has_an_example_and_those_that_somebody_can_do_something_about_a_remedy():
    named = {rule.kind for rule in patterns.RULES} | {kind for kind, _said in patterns.REFINED}
    assert named - {kind for kind, _line in ONE} == {"hash", "cmake_version", "python_module"}
    assert set(remedies.REMEDIES) <= named
    assert named - set(remedies.REMEDIES) == {"follows", "error", "compiler", "cmake", "no_rule"}


@pytest.mark.parametrize("line", [
    "c++ -Werror -Wfatal-errors -c error.cpp -o error.cpp.o", "[3/7] Building CXX object x.dir/error.cpp.o",
    "[ 50%] Linking CXX shared library liberror.so", "0 errors, 3 warnings", "errors: 0", "Error: 0", "no errors here",
    "-- Performing Test HAVE_X - Failed",
    "-- Performing C SOURCE FILE Test HAVE_LIBM failed with the following output:",
    "-- Looking for mpi.h - not found", "-- Could NOT find OpenMP (missing: OpenMP_C_FLAGS)",
    "checking for cuda.h... no",
    "a.c:3:5: warning: implicit declaration of function 'f' [-Wimplicit-function-declaration]",
    "copying torch/utils/error.py -> build/lib", "adding 'horovod/common/exceptions.py'",
    "WARNING: Killed.txt is not there",
    "==== step x failed", "==== failed after 4.0 s", "CMake Warning at CMakeLists.txt:3 (message):",
    "ERROR: pip's dependency resolver does not currently take into account all the packages that are installed.",
    "/usr/bin/c++ -DSAID='No space left on device' -c a.cc", "g++ -pthread -DX=\"Connection refused\" -c a.cc",
    "PASS: test-undefined", "memory: 4 GiB", "g++ -o undefined_symbol undefined.o", "note: in a call to 'fatal'",
])
def test_what_only_looks_like_an_error_is_none(line):
    assert found(line + "\n") == []
    assert found("      " + line + "\n") == []


HOROVOD = """\
Processing /soft/src/horovod
  Preparing metadata (setup.py): finished with status 'done'
Building wheels for collected packages: horovod
  Building wheel for horovod (setup.py): started
  error: subprocess-exited-with-error

  \u00d7 python setup.py bdist_wheel did not run successfully.
  \u2502 exit code: 1
  \u2570\u2500> [58 lines of output]
      running bdist_wheel
      running build_ext
      -- Could NOT find NVTX (missing: NVTX_INCLUDE_DIR)
      CMake Error at /opt/cmake/share/Modules/FindPackageHandleStandardArgs.cmake:233 (message):
        Could NOT find CUDAToolkit (missing: CUDAToolkit_INCLUDE_DIR CUDA_CUDART)

        (found version "13.0.88")
      Call Stack (most recent call first):
        /opt/cmake/share/Modules/FindPackageHandleStandardArgs.cmake:603 (_FPHSA_FAILURE_MESSAGE)
        CMakeLists.txt:181 (find_package)


      -- Configuring incomplete, errors occurred!
      Traceback (most recent call last):
        File "<string>", line 2, in <module>
        File "/soft/src/horovod/setup.py", line 247, in <module>
          setup(name='horovod',
        File "/usr/lib/python3.11/subprocess.py", line 413, in check_call
          raise CalledProcessError(retcode, cmd)
      subprocess.CalledProcessError: Command '['cmake', '..']' returned non-zero exit status 1.
      [end of output]

  note: This error originates from a subprocess, and is likely not a problem with pip.
  ERROR: Failed building wheel for horovod
Failed to build horovod
ERROR: Could not build wheels for horovod, which is required to install pyproject.toml-based projects
"""

EXTENSION = """\
running build_ext
building 'thing' extension
[1/2] c++ -Werror -c error.cpp -o error.o
FAILED: error.o
c++ -Werror -c error.cpp -o error.o
error.cpp: In function 'int f()':
error.cpp:4:12: error: 'thing' was not declared in this scope
    4 |     return thing;
      |            ^~~~~
error.cpp:9:12: error: 'thing' was not declared in this scope
    9 |     return thing;
      |            ^~~~~
ninja: build stopped: subcommand failed.
Traceback (most recent call last):
  File "/x/torch/utils/cpp_extension.py", line 2500, in _run_ninja_build
    subprocess.run(
  File "/usr/lib/python3.11/subprocess.py", line 571, in run
    raise CalledProcessError(retcode, process.args,
subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/x/setup.py", line 30, in <module>
    setup(
  File "/x/torch/utils/cpp_extension.py", line 2522, in _run_ninja_build
    raise RuntimeError(message) from e
RuntimeError: Error compiling objects for extension
"""

FALLEN_BACK = """\
building '_yaml' extension
ext/_yaml.c:12:10: fatal error: yaml.h: No such file or directory
Error compiling module, falling back to pure Python
Successfully built PyYAML
Collecting nothing
ERROR: Could not find a version that satisfies the requirement nothing (from versions: none)
ERROR: No matching distribution found for nothing
"""

ON_A_LINE_OF_ITS_OWN = """\
Traceback (most recent call last):
  File "setup.py", line 3, in <module>
    check()
RuntimeError:
The detected CUDA version (12.2) mismatches the version that was used to compile
PyTorch (13.0). Please make sure to use the same CUDA versions.

"""

NETWORK = """\
WARNING: Retrying (Retry(total=1)) after connection broken by 'NewConnectionError('<x at 0x7fd2d7339c50>: refused')': /
WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('<x at 0x7fd2d733ff50>: refused')': /
ERROR: Could not find a version that satisfies the requirement einops==0.8.1 (from versions: none)
ERROR: No matching distribution found for einops==0.8.1
"""


CMAKE = """\
CMake Error at a:1 (message):
  CMake 3.31 or higher is required.  You are running version 3.25.1

-- Configuring incomplete, errors occurred!
"""

HASHES = """\
ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.
    thing:
        Expected sha256 a
             Got        b

WARNING: something else
"""


@pytest.mark.parametrize(("log", "expected"), [
    (HOROVOD, [("cuda_toolkit", [13, 14, 16])]),
    (EXTENSION, [("compiler", [7, 8, 9])]),
    (FALLEN_BACK, [("requirement", [6]), ("requirement", [7]), ("header", [2])]),
    (ON_A_LINE_OF_ITS_OWN, [("exception", [4, 5, 6])]),
    (NETWORK, [("network", [1]), ("requirement", [3]), ("requirement", [4])]),
    ("ninja: build stopped: subcommand failed.\nmake: *** [all] Error 1\n", [("follows", [1]), ("follows", [2])]),
    ("a.c:1:1: error: x\ntar: No space left on device\n", [("disk_full", [2]), ("compiler", [1])]),
    ("Traceback (most recent call last):\n  File x\nMemoryError\n", [("memory", [3])]),
    ("Traceback (most recent call last):\n  File x\n", []),
    ("Traceback (most recent call last):\n  File x\n[2/3] another\na.c:1:1: error: y\n", [("compiler", [4])]),
    ("Traceback (most recent call last):\n  a\nModuleNotFoundError: No module named 'y'\n", [("python_module", [3])]),
    (CMAKE, [("cmake_version", [1, 2])]),
    (HASHES, [("hash", [1, 2, 3, 4])]),
], ids=[
    "horovod", "extension", "fallen-back", "own-line", "network", "consequences", "disk-first", "memory", "no-end",
    "mixed", "module", "cmake-version", "hash",
])
def test_the_cause_comes_before_its_consequences(log, expected):
    assert [(error.kind, [line.number for line in error.lines]) for error in found(log)] == expected


def test_the_whole_log_is_searched_and_each_error_is_told_once():
    log = "a.cc:1:10: fatal error: x.h: No such file or directory\n" + "[1/9] at work\n" * 99999
    log += "".join("%d.cc:7:10: fatal error: x.h: No such file or directory\n" % number for number in range(5000))
    error, = found(log)
    assert error.lines[0].number == 1


def test_lines_are_numbered_from_the_beginning_of_the_file():
    earlier = "ERROR: of an earlier attempt\n\n"
    error, = found(earlier + "ERROR: of this one\n", len(earlier))
    assert error.lines == ((3, "ERROR: of this one"),)
    assert found(earlier, 10**9) == []


def test_what_belongs_to_an_error_has_an_end():
    log = "CMake Error at a:1 (message):\n" + "  so\n" * 500 + "b.c:1:1: error: x\n"
    first, second = found(log)
    assert len(first.lines) == 1 + errors.MAX_LINES_BELOW
    assert second.lines[0].number == 502
    assert max(len(line.text) for line in found("x.c:1:1: error: " + "x" * 9999)[0].lines) == errors.MAX_WIDTH


def test_lines_without_end_and_bytes_that_are_no_text_cost_nothing():
    progress = b"".join(b"\r %d %%" % number for number in range(10 * MAX_LINE_BYTES))
    data = b"\xff\xfe\x00\x1b[31m\n" + b"y" * (3 * MAX_LINE_BYTES) + b"\n" + progress + b"\rERROR: \xff at last\nend\n"
    lines = list(raw_lines(io.BytesIO(data)))
    assert [number for number, _raw in lines] == [1, 2, 3, 4]
    assert max(len(raw) for _number, raw in lines) <= MAX_LINE_BYTES
    error, = found(data)
    assert error.lines == ((3, "ERROR: \ufffd at last"),)


def test_what_was_running_at_a_time_limit_is_not_taken_for_the_cause():
    log = "==== step s was stopped after 1 s (timeout); what was running:\n====   7 S cc -include cuda_runtime.h\n"
    error, = found(log + "====   8 S pip\n==== failed after 1.0 s\n")
    assert (error.kind, [line.number for line in error.lines]) == ("time_limit", [1, 2, 3])


def test_a_line_is_shown_as_a_terminal_would_have_left_it():
    assert plain_text(b"10 %\r\x1b[1mdone\x1b[0m\x07 \xc3\xa9\t.\r\n") == "done \u00e9\t."
    assert plain_text(b"\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\") == "link"


def test_lines_are_read_one_after_the_other_and_not_kept():
    seen = itertools.count()
    lines = ((next(seen) + 1, b"a.c:%d: error: %d\n" % (number, number)) for number in range(20000))
    assert len(errors.find_errors(lines)) == 1


@pytest.mark.parametrize("seed", range(60))
def test_any_log_gives_few_lines_of_its_own_once_and_in_order_of_rank(seed):
    chance = random.Random(seed)
    known = [line for _kind, line in ONE] + HOROVOD.splitlines() + EXTENSION.splitlines()
    noise = ["".join(map(chr, chance.choices(range(1, 0x300), k=chance.randrange(60)))) for _time in range(20)]
    data = "\n".join(chance.choices(known + noise, k=chance.randrange(60))).encode("utf-8", "replace")
    told = found(data)
    assert len(told) <= errors.MAX_ERRORS
    assert [error.rank for error in told] == sorted(error.rank for error in told)
    numbers = [line.number for error in told for line in error.lines]
    assert len(set(numbers)) == len(numbers)
    raw = data.split(b"\n")
    for error in told:
        assert [line.number for line in error.lines] == sorted(line.number for line in error.lines)
        for line in error.lines:
            assert line.text == plain_text(raw[line.number - 1])[:errors.MAX_WIDTH]


def test_a_remedy_ends_with_what_to_do_then():
    for kind in [*remedies.REMEDIES, "", "unknown"]:
        assert remedies.remedy_for(kind).endswith("then run the same command again: finished steps stay.")
    assert "2.0 GiB in /soft" in remedies.remedy_for("disk_full", {"/soft": 2 << 30})
    assert list(remedies.free_space("/", "/no/such/place")) == ["/"]
    preempted = {"reason": "preempted", "advice": "Wait."}
    assert remedies.remedy_of(preempted, "") == "Wait. " + remedies.RESUME
