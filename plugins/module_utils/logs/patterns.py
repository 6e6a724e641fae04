# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Recognise how the tools of a build say what went wrong: the kinds of errors, and their ranks. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple, Pattern

LIMIT, RESOURCE, CAUSE, LIKELY, SURVIVED, FOLLOWS = range(6)
"""Ranks, the most telling one first: a limit of the step itself; the machine gave out; a tool says what is wrong;
something says that it failed; the same, and the tool that said it ended well; the end of a program whose cause stands
elsewhere."""

INDENTED, SOURCE, TRACEBACK, NOTED = "indented", "source", "traceback", "noted"
"""What belongs to an error: what is indented below it, source with its caret, a traceback, the supervisor's lines."""


class Rule(NamedTuple):
    """A form in which errors are written."""

    kind: str
    rank: int
    expression: Pattern[str]
    follow: str = ""


def _rules(rank: int, *forms: tuple[str, str, str]) -> tuple[Rule, ...]:
    return tuple(Rule(kind, rank, re.compile(expression), follow) for kind, expression, follow in forms)


OWN = "==== "
"""How the supervisor's own lines in a log begin."""

LIMITS = _rules(
    LIMIT, ("time_limit", r"^==== step .* was stopped after \S+ s \(timeout\)", NOTED),
    ("silence", r"^==== step .* printed nothing for .*\(no_output_timeout\)", NOTED),
)
"""What the supervisor says of a step that it stopped."""

_TOOL = (
    r"^(?:\S*/)?(?:cc1(?:plus)?|[\w.-]*gcc|[\w.-]*[gc]\+\+|cc|clang|nvcc|ptxas|cicc|f951|icpx?|[\w.-]*gfortran|hipcc"
    r"|collect2|as|ar)(?:-\d+)? ?: "
)
"""A program of a compiler that speaks of itself."""

_RESOURCES = _rules(
    RESOURCE, ("disk_full", r"No space left on device|\bENOSPC\b|[Nn]ot enough (?:free )?(?:disk )?space\b", ""),
    ("quota", r"[Qq]uota exceeded|\bEDQUOT\b", ""),
    ("file_size", r"File too large|File size limit exceeded|\bEFBIG\b", ""),
    ("killed", r"error: Killed\b|\bSIGKILL\b|due to signal 9\b|with signal 9\b", ""),
    ("killed", r"\boom[-_]kill|[Oo]ut of memory: Kill|^(?:.+: line \d+:\s+\d+ )?Killed(?:\s|$)", ""),
    ("memory", r"memory exhausted|[Oo]ut of memory|\bstd::bad_alloc\b|^MemoryError\b|Cannot allocate memory", ""),
)

_FOLLOWING = _rules(
    FOLLOWS,
    ("follows", r"^\S*make(?:\[\d+\])?: \*\*\* .*(?:Error \d+|Waiting for)|^ninja: build stopped|^FAILED: ", ""),
    ("follows", r"\bld returned \d+ exit status|^compilation terminated|linker command failed with exit code", ""),
    ("follows", r"[Cc]onfiguring incomplete, errors occurred|\bCMake configuration failed\b", ""),
    ("follows", r"subprocess-exited-with-error|metadata-generation-failed|legacy-install-failure", ""),
    ("follows", r"failed-wheel-build|Failed (?:building|to build)\b|Could not build wheels", ""),
    ("follows", r"Command errored out|Error compiling objects for", ""),
    ("follows", r"\bCalledProcessError\b|returned non-zero exit status|^SystemExit\b|\bDistutilsExecError\b", ""),
    ("follows", r"\b(?:failed|exited) with (?:exit )?(?:code|status) \d+", ""),
)

_CAUSES = _rules(
    CAUSE,
    ("header", r"error: \S+: No such file or directory$|error: '[^']+' file not found", SOURCE),
    ("header", r"cannot open source file", SOURCE),
    ("linker", r"undefined reference to\b|undefined symbol: |\b(?:find|library) -l\S|multiple definition of", ""),
    ("linker", r"DSO missing from command line|file not recognized: ", ""),
    ("linker", r"^(?:\S*/)?(?:ld\.lld|mold): (?:fatal|error): ", ""),
    ("library", r"error while loading shared libraries: |cannot open shared object file", ""),
    ("hash", r"DO NOT MATCH THE HASHES|[Hh]ash(?:es)? mismatch|[Cc]hecksums? (?:mismatch|did not match)", INDENTED),
    ("cmake", r"^CMake Error(?: at |: | in | \()", INDENTED),
    ("compiler", r"^[^\s:()][^:()]*(?::\d+(?:[:.]\d+)?|\(\d+(?:,\d+)?\)) ?: (?:fatal |internal compiler )?"
                 r"(?:error(?: #?\w+)?|Error): ", SOURCE),
    ("compiler", _TOOL + r"(?:fatal |internal compiler )?error\s*: |^nvcc (?:fatal|error)\s+: ", SOURCE),
    ("compiler", r"^error\[E\d+\]: ", SOURCE),
    ("no_rule", r"\*\*\* No rule to make target|^ninja: error: |\*\*\* missing separator|\*\*\* No targets", ""),
    ("program", r"^.+: (?:line )?\d+: \S+: (?:command )?not found$", ""),
    ("program", r"^(?:/usr/bin/)?env: .*: No such file or directory$", ""),
    ("module", r"^module load .* failed$|Lmod has detected the following error", INDENTED),
    ("module", r"Unable to locate a modulefile", ""),
    ("wall_time", r"DUE TO TIME LIMIT|job killed: walltime", ""),
)

_LIKELIES = _rules(
    LIKELY, ("network", r"NewConnectionError|NameResolutionError|Failed to establish a new connection", ""),
    ("network", r"[Nn]ame or service not known|[Nn]ame resolution\b|Could not resolve (?:host|proxy)", ""),
    ("network", r"Connection (?:refused|timed out|reset by peer)|Network is unreachable|No route to host", ""),
    ("network", r"Max retries exceeded|Failed to connect to \S+ port|(?:Read|Connect)TimeoutError|ProxyError", ""),
    ("network", r"Tunnel connection failed|fatal: unable to access|CERTIFICATE_VERIFY_FAILED|SSLError", ""),
    ("permission", r"Permission denied|Operation not permitted|Read-only file system", ""),
    ("requirement", r"No matching distribution found|Could not find a version that satisfies", ""),
    ("requirement", r"ResolutionImpossible|conflicting dependencies", ""),
    ("requirement", r"requires a different Python|not a supported wheel on this platform", ""),
    ("error", r"^(?:FATAL(?: ERROR)?|[Ff]atal(?: [Ee]rror)?|ERROR|[Ee]rror)(?: [A-Z_]+\d*)?: ?(?!0\b)\S", ""),
    ("error", r"^(?:-- )?[\w./+-]+: (?:fatal )?(?:error|Error|ERROR): \S|^ERROR!? \S", ""),
)

RULES = (*LIMITS, *_RESOURCES, *_FOLLOWING, *_CAUSES, *_LIKELIES)
"""In the order in which they are tried. What only follows comes before what could be a cause, since it quotes it."""

TRACE = Rule("exception", LIKELY, re.compile(r"^Traceback \(most recent call last\):"), TRACEBACK)

EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:: .*|:|)$")
"""The last line of a traceback."""

REFINED = (
    ("cmake_version", re.compile(r"CMake \S+ or higher is required|Compatibility with CMake < \S+ has been removed")),
    ("python_headers", re.compile(r"\bPython\.h\b|Could NOT find Python\d? .*(?:Development|INCLUDE_DIR)")),
    ("cuda_toolkit", re.compile(
        r"CUDAToolkit|CUDA_TOOLKIT_ROOT_DIR|CMAKE_CUDA_COMPILER|Could NOT find CUDA\b|CUDA_HOME environment variable"
        r"|\b(?:cuda(?:_runtime(?:_api)?|_fp16)?|cublas_v2)\.h\b|\bnvcc: (?:command )?not found|-l(?:cudart|cublas)\b"
        r"|Could not find nvcc")),
    ("no_compiler", re.compile(
        r"No CMAKE_\w+_COMPILER could be found|\b(?:gcc|g\+\+|cc|c\+\+): (?:command )?not found")),
    ("python_module", re.compile(r"^ModuleNotFoundError: ")),
)
"""Kinds that are told by what an error says, whoever says it."""

WELL = re.compile(
    r"^Successfully (?:built|installed)\b|^-- (?:Configuring|Generating) done|^-- Build files have been written"
)
"""After these lines, what was an error before them did not matter to the tool that says them."""

IGNORED = re.compile(r"pip's dependency resolver does not currently")
"""What calls itself an error, and is none."""

WORDS = (
    b"rror", b"RROR", b"atal", b"FATAL", b"ail", b"FAIL", b"annot", b"ndefined ", b"illed", b"SIGKILL", b"oom",
    b"space", b"SPC", b"uota", b"QUOT", b"too large", b"size limit", b"FBIG", b"emory", b"bad_alloc", b"enied",
    b"ermitted", b"Read-only", b"uch file", b"raceback", b"***", b"efused", b"esol", b"imed out", b"imeout",
    b"reset by", b"nreach", b"route", b"etries", b"not ", b" NOT", b"ismatch", b"ultiple def", b"DSO", b"walltime",
    b"TIME LIMIT", b"VERIFY", b"atching", b"satisfies", b"ifferent Python", b"to locate", b"signal 9", b"status",
    b"erminated", b" -l", b"Success", b"-- ", b"exited with", b"SystemExit", b"printed nothing",
)
"""A line that has none of these is in none of the forms; most lines of a log are done with so."""

DOING = re.compile(rb"\s*(?:cd \S+ && )?(?:\[ *\d+(?:/\d+|%)\] |(?:/\S+/)?[\w.+-]*(?:cc|\+\+|clang|fortran|ld|ar) -)")
"""The beginning of a line in which a build says what it does: commands and names of files quote words of errors."""
