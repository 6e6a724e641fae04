# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What is fuzzed: a parser of foreign text each, with examples to begin with, and the refusals that it may answer with.

Anything else that comes out of a parser is a finding; so is an answer that takes long.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import re
import tempfile
from typing import Any, Callable, NamedTuple

from ansible_collections.hpcml.torchstack.plugins.module_utils.batch import flux, pbs, slurm
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.commands import Answer
from ansible_collections.hpcml.torchstack.plugins.module_utils.conda import lockfile
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import json_lines, lenient_json, redaction
from ansible_collections.hpcml.torchstack.plugins.module_utils.core import text as core_text
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import markers, packages, release_file
from ansible_collections.hpcml.torchstack.plugins.module_utils.health import nvidia_smi, sysfs
from ansible_collections.hpcml.torchstack.plugins.module_utils.logs import errors, lines
from ansible_collections.hpcml.torchstack.plugins.module_utils.mirror import index, package_index, wheel_tags
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import layout, module_output, visible_text
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.parser import parse_patch
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import nccl_log
from ansible_collections.hpcml.torchstack.plugins.module_utils.release import suppliers
from ansible_collections.hpcml.torchstack.plugins.module_utils.standalone import hostlist, topology
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps import progress, proxy_requests
from ansible_collections.hpcml.torchstack.plugins.module_utils.trees import manifest_entry
from ansible_collections.hpcml.torchstack.plugins.plugin_utils import release_file as release_reader

TESTS = pathlib.Path(__file__).resolve().parents[1]


class Target(NamedTuple):
    """A parser, or several of one kind of text."""

    parse: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    refusals: tuple[type[Exception], ...] = (StackError,)


def decoded(data: bytes) -> str:
    """What a program's output is for us."""
    return data.decode("utf-8", "replace")


class Canned:
    """The commands of a batch system: the first answers with the input up to two empty lines, others with the rest."""

    def __init__(self, output: str) -> None:
        first, _lines, rest = output.partition("\n\n\n")
        self.answers = [Answer(0, first, ""), Answer(0, rest or first, "")]

    def ask(self, *words: str) -> Answer:
        # PBS names the job in one answer, and describes it in the other.
        if words[0] == "qselect":
            return Answer(0, "1.server\n", "")
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def program(self, name: str) -> str:
        return "/usr/bin/" + name

    def unanswered(self, name: str, _answer: Answer) -> StackError:
        return StackError("%s does not answer" % name, "ask", "Wait.")


def scheduler(kind: Callable[[], Any]) -> Callable[[bytes], object]:
    """Ask a batch system of which every command answers with the input."""

    def find(data: bytes) -> object:
        system = kind()
        system.commands = Canned(decoded(data))
        return system.find("name")

    return find


def health(data: bytes) -> None:
    text = decoded(data)
    for parse in (
        nvidia_smi.parse,
        nvidia_smi.parse_nvlink_speeds,
        nvidia_smi.parse_nvlink_errors,
        nvidia_smi.parse_remapped_rows,
        nvidia_smi.pci_address,
        nvidia_smi.leading_number,
        sysfs.parse_log,
    ):
        with contextlib.suppress(StackError, ValueError):
            parse(text)


def modules(data: bytes) -> None:
    module_output.parse_lmod_python(data)
    module_output.parse_em_python(data)
    module_output.parse_shell(data, {})
    visible_text.read_added(data)
    layout.release_of(data)
    for syntax in layout.SYNTAXES:
        layout.hidden_versions(syntax, decoded(data))
        layout.default_version(syntax, decoded(data))


def logs(data: bytes) -> None:
    numbered = list(lines.raw_lines(io.BytesIO(data)))
    errors.find_errors(iter(numbered))
    for _number, line in numbered:
        lines.plain_text(line)
    progress.parse_progress(data)
    progress.last_lines(data)
    text = core_text.printable(decoded(data))
    if re.search("[\x1b\x9b\x07]", text):
        raise AssertionError("a terminal would obey %r" % text)
    redaction.without_credentials(decoded(data))
    redaction.redacted(decoded(data), ["s3cretvalue"])
    nccl_log.parse(decoded(data))


def records(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "mirror.json")
        pathlib.Path(path).write_bytes(data)
        for entry in json_lines.entries(path):
            lenient_json.moment(entry.get("time"))
            lenient_json.whole(entry.get("code"))
        with contextlib.suppress(StackError):
            index.read(directory)
    for line in data.splitlines():
        with contextlib.suppress(ValueError):
            entry = manifest_entry.decode_entry(line)
            manifest_entry.decode_entry(manifest_entry.without_content(line))
            del entry


KEYS = release_reader.specified()["release_file"]["options"]


def releases(data: bytes) -> None:
    content, _lines = release_reader.parse(data.decode("utf-8"))
    release_file.problems(content, KEYS, "1.yml")


def mirrors(data: bytes) -> None:
    text = decoded(data)
    for is_json in (True, False):
        with contextlib.suppress(package_index.Unreachable):
            package_index.page_links(text, "https://index.example.org/simple/x/", is_json)
    for name in text.split("\n"):
        wheel_tags.parse(name, "torch")
    with contextlib.suppress(StackError):
        lockfile.parse(text, "conda.lock")


def requirements(data: bytes) -> None:
    text = decoded(data)
    for parse in (packages.pins, packages.requirements, lambda line: markers.applies(line, HERE)):
        with contextlib.suppress(ValueError):
            parse(text)
    suppliers.of_metadata({"Author": text, "Author-email": text})
    suppliers.of_address(text)
    suppliers.of_channel(text)


def nodes(data: bytes) -> None:
    for parse in (hostlist.expand, hostlist.first, hostlist.counts, topology.gpus):
        with contextlib.suppress(ValueError):
            parse(decoded(data))


def listener(data: bytes) -> None:
    asked = proxy_requests.parse_request(data)
    proxy_requests.is_greeting(data)
    proxy_requests.refusal(data, "why", "text")
    if asked is not None:
        proxy_requests.address_in(decoded(data), asked.host)


def whole(*names: str) -> tuple[bytes, ...]:
    """Recorded answers among the tests' own, cut to what a fuzzer can work on."""
    found = [path for name in names for path in sorted(TESTS.glob(name))]
    return tuple(path.read_bytes()[:6000] for path in found[:8] if path.is_file())


HERE = markers.environment("3.11.2", "cpython", "linux_x86_64")
DIFF = (
    b"diff --git a/f.c b/f.c\nindex 0358b15..65ef4d6 100644\n--- a/f.c\n+++ b/f.c\n@@ -1,2 +1,2 @@\n-old\n+new\n same\n"
)
QUEUE = b"1|RUNNING|gpu|2026-11-20T10:00:00|n[1-2]|name|None\n2|PENDING|gpu|N/A||name|Priority\n"
SHOWN = b"JobId=1 JobName=name ExitCode=0:0 Restarts=1 Reason=None\n"
JOBS = json.dumps(
    {
        "pbs_version": "23.06.06",
        "Jobs": {
            "1.server": {
                "Job_Name": "name",
                "job_state": "F",
                "Exit_status": 271,
                "substate": 91,
                "comment": "x",
                "queue": "q",
                "exec_vnode": "(n1:ncpus=1)",
                "estimated": {"start_time": "Thu Nov 20 10:00:00 2026"},
                "run_count": 2,
            }
        },
    },
    indent=4,
).encode()
FLUX = json.dumps(
    {
        "jobs": [
            {
                "id": 1,
                "name": "name",
                "state": "INACTIVE",
                "result": "FAILED",
                "returncode": 1,
                "waitstatus": 256,
                "exception": {"occurred": True, "severity": 0, "type": "cancel", "note": "x"},
                "ranks": "0",
                "nodelist": "n[1-2]",
                "annotations": {"sched": {"t_estimate": 1.0}},
            }
        ]
    }
).encode()

TARGETS = {
    "slurm": Target(
        scheduler(slurm.Slurm),
        (
            QUEUE,
            QUEUE + SHOWN,
            QUEUE + b"JobId=1 Restarts=\xb1\n",
            b"1|FAILED|1:0|p|n1|name\n",
            b"9|CANCELLED by 1|0:15|p|n|name",
        ),
    ),
    "pbs": Target(scheduler(pbs.Pbs), (JOBS, JOBS.replace(b'"F"', b"{}"), *whole("pbs/records/*.json"))),
    "flux": Target(
        scheduler(flux.Flux),
        (
            FLUX,
            FLUX.replace(b'"id": 1', b'"id": -1'),
            FLUX.replace(b"INACTIVE", b"SCHED").replace(b'"annotations": {', b'"annotations": "x", "more": {'),
            FLUX.replace(b"INACTIVE", b"SCHED").replace(b'"t_estimate": 1.0', b'"t_estimate": 1e99'),
            FLUX.replace(b'"exception": {', b'"exception": [1], "more": {'),
            FLUX.replace(b'"INACTIVE"', b'"DEPEND", "dependencies": 7'),
            FLUX.replace(b"INACTIVE", b"SCHED") + b"\n\n\n1\n\xc2\xb2\n",
            *whole("flux/records/*"),
        ),
    ),
    "health": Target(
        health,
        (
            *whole("fixtures/*smi*", "fixtures/*/*smi*"),
            b"<nvidia_smi_log><gpu id='00000000:01:00.0'><uuid>u</uuid></gpu></nvidia_smi_log>",
            b"GPU 0: x (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n",
            b"6,1,2,-;NVRM: Xid (PCI:0000:01:00): 79, pid=1\n",
        ),
    ),
    "modules": Target(
        modules,
        (
            b'import os;\nos.environ["A"] = "b\\"c";\ndel os.environ["B"]\n',
            b"os.environ['A'] = 'b'\n_mlstatus = True\n",
            b"export A='b c';\nunset B;\nA=$'x\\n'; export A\n",
            b'-- torchstack:hidden v1\nhide_version("x/1")\nmodule-version x/1 default\n',
        ),
    ),
    "logs": Target(
        logs,
        (
            b"[1/3] x\n\x1b[31mfile.c:3:1: error: no such\x1b[0m\nmake: *** [x] Error 1\nninja: build stopped\n",
            b"curl -u admin:Sw0rdf1shX https://user:pw@example.org/ --token abcdef0123456789\n",
            b"NCCL INFO NET/Plugin: Loaded\n\r 45%\r",
        ),
    ),
    "records": Target(
        records,
        (
            b'{"time": "2026-11-20T10:00:00Z", "code": 1}\n{"a": NaN}\n',
            b'{"format": 1, "items": [{"kind": "file", "name": "x"}]}',
            manifest_entry.encode_entry(
                manifest_entry.Entry(
                    b"a", "file", 0o644, 3, "ab" * 32, None, {"user.x": "00", "system.posix_acl_access": "user::rwx"}
                )
            ),
        ),
    ),
    "releases": Target(
        releases,
        (
            *whole("../inventories/local/releases/*.yml"),
            b"title: x\nbase: {kind: conda, python: '3.11', specs: [numpy]}\n"
            b"pytorch: {version: 2.3.1, lock: 'torch==2.3.1'}\n",
        ),
        # Bytes that are no text are refused where the file is read.
        (release_reader.MistakeError, UnicodeDecodeError),
    ),
    "mirrors": Target(
        mirrors,
        (
            b'<html><a href="../x/torch-2.3.1-cp311-cp311-linux_x86_64.whl#sha256=' + b"a" * 64 + b'">x</a></html>',
            b'<base href="http://["><a href="http://[/x-1.whl">x</a><a href="x-1-py3-none-any.whl">y</a>',
            b"<a href='x-1.zip'>x</a><![\n\n\n\x01\n",
            b'{"files": [{"filename": "x-1.tar.gz", "url": "x-1.tar.gz", "hashes": {"sha256": "aa"}, "size": 1}]}',
            b"@EXPLICIT\nhttps://conda.example.org/forge/linux-64/x-1-0.conda#" + b"a" * 64 + b"\n",
        ),
    ),
    "requirements": Target(
        requirements,
        (
            b"torch==2.3.1 --hash=sha256:" + b"b" * 64 + b"\n",
            b"python_version >= '3.9' and (os_name == 'posix' or extra == 'x')",
            b"python_version in '3.9 3.10'",
            b"(" * 400 + b"os_name == 'nt'" + b")" * 400,
            b"Jane Doe <jane@example.org>, B",
            b"https://github.com/x/y",
        ),
    ),
    "nodes": Target(
        nodes,
        (
            b"n[1-3,5],x1000c0s0b0n[0-1],a[1-2]b[3-4]",
            b"0,GPU-1,0000:01:00.0,0-15\n",
            b"nb[3-4][0-777717],a-",
        ),
    ),
    "listener": Target(
        listener,
        (
            b"GET http://example.org/a HTTP/1.1\r\nHost: x\r\n\r\n",
            b"CONNECT example.org:443 HTTP/1.1\r\n\r\n",
            b"\x05\x01\x00",
            b"SSH git@example.org git-upload-pack x\r\n\r\n",
        ),
    ),
    "patches": Target(
        lambda data: parse_patch(data, b"x.patch"),
        (
            DIFF,
            DIFF + b"-- \n2.30\n",
            b"--- a/n\n+++ b/n\n@@ -0,0 +1 @@\n+x\n",
            b"--- a/n\n+++ b/n\n@@ -5,0 +11,0 @@\n\\\n",
        ),
    ),
}
