# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Collect facts of a compute node: GPUs, links, fabric, kernel log, file systems; judge nothing.

Runs on compute nodes with the system's own Python, 3.6 or later, without this collection around it; as any account, and
says what that one was not allowed to see. What the facts mean is in checks.py.
"""

import argparse
import base64
import json
import os
import re
import signal
import sys
import time
import zlib
from typing import Any, Dict, Iterator, List, Mapping, Sequence

from . import storage_probe, sysfs
from .run_programs import end_all, read_text, run, run_apart

SCHEMA = 1

COMMAND_SECONDS = 45.0
"""For one program. A driver without persistence mode takes some seconds for each GPU to wake up."""

ALL_SECONDS = 150.0
"""For everything, where the question does not say."""

NVIDIA = (
    ["nvidia-smi", "-q", "-x"], ["nvidia-smi", "nvlink", "-s"], ["nvidia-smi", "nvlink", "-e"],
    ["nvidia-smi", "--query-remapped-rows=gpu_bus_id,remapped_rows.correctable,remapped_rows.uncorrectable,"
     "remapped_rows.pending,remapped_rows.failure", "--format=csv,noheader"],
)

SPARE_SECONDS = 4.0
"""Before the deadline, for what hangs to be ended and the facts to be printed."""

PIECE = 300
"""Characters of a frame's text: srun carries 1024 bytes of a line at once, and puts those of other nodes between."""

_CLOCKS = re.compile(r"[ \t]*<supported_clocks>.*?</supported_clocks>\n?", re.DOTALL)
_NAMES = re.compile(r"<process_name>.*?</process_name>", re.DOTALL)


def query_nvidia(seconds: float) -> List[Dict[str, Any]]:
    """Query nvidia-smi; when it has hung once, it is not run again."""
    answers = []  # type: List[Dict[str, Any]]
    for words in NVIDIA:
        if answers and answers[-1]["status"] in ("hung", "missing", "denied"):
            break
        asked = run(words, seconds)
        # The clocks are two thirds of the text and not used; process names of other users are private.
        asked["output"] = _NAMES.sub("<process_name/>", _CLOCKS.sub("", asked["output"]))
        answers.append(asked)
    return answers


def describe_machine() -> Dict[str, Any]:
    """Describe the node itself."""
    here = os.uname()
    uptime = (read_text("/proc/uptime") or "").split()
    return {
        "kernel": here.release, "uid": os.geteuid(), "uptime": float(uptime[0]) if uptime else None,
        "boot_id": read_text("/proc/sys/kernel/random/boot_id"),
        "dmesg_restrict": read_text("/proc/sys/kernel/dmesg_restrict"), "modules": sysfs.module_versions(),
    }


def collect(question: Mapping[str, Any], seconds: float) -> Dict[str, Any]:
    """Collect all facts.

    Args:
        question: ``directories`` of file systems to try, ``command_seconds`` for one program, ``files`` in each
            directory, ``patterns`` of messages of the kernel to keep besides the usual ones; all may be missing.

    Returns:
        ``schema``, ``host``, ``collected`` (UTC), ``seconds``, ``parts``: name -> ``result``, ``problem``,
        ``seconds``.
        Parts are ``machine``, ``nvidia``, ``driver``, ``pci``, ``fabric``, ``log``, and ``storage <directory>``.
    """
    begin = time.time()
    limit = float(question.get("command_seconds") or COMMAND_SECONDS)
    files = int(question.get("files") or storage_probe.FILES)
    tasks = {
        "machine": describe_machine, "nvidia": lambda: query_nvidia(limit), "driver": sysfs.read_driver,
        "pci": sysfs.read_devices, "fabric": sysfs.read_fabric,
        "log": lambda: sysfs.read_log(limit, question.get("patterns") or ()),
    }  # type: Dict[str, Any]
    for directory in question.get("directories") or ():
        tasks["storage " + directory] = lambda directory=directory: storage_probe.probe_directory(directory, files)
    parts = run_apart(tasks, seconds)
    return {
        # The name by which the batch system knows the node, where that tells it.
        "schema": SCHEMA, "host": os.environ.get("SLURMD_NODENAME") or os.uname().nodename,
        "collected": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(begin)),
        "seconds": round(time.time() - begin, 1), "parts": parts,
    }


def encode_frames(kind: str, key: str, data: Any) -> Iterator[str]:
    """Encode data as lines for the mixed output of a launcher, as :func:`.ranks.output.encode_frames` does."""
    text = base64.b64encode(zlib.compress(json.dumps(data).encode("utf-8"), 9)).decode("ascii")
    pieces = [text[start:start + PIECE] for start in range(0, len(text), PIECE)]
    for number, piece in enumerate(pieces):
        checksum = zlib.crc32(piece.encode("ascii")) & 0xFFFFFFFF
        yield "@torchstack:%s:%s:%d/%d:%08x:%s@\n" % (kind, key, number, len(pieces), checksum, piece)


def main(arguments: Sequence[str]) -> int:
    """Run the program: ``[QUESTION [DEADLINE]] [--directory DIR]... [--output FILE]``.

    With a question, the facts are printed as frames for a launcher's output; without, as JSON for people.
    """
    parser = argparse.ArgumentParser(prog="node_health", description="Collect facts about this node's health.")
    parser.add_argument("question", nargs="?", help="a JSON file with directories, command_seconds, files, patterns")
    parser.add_argument("deadline", nargs="?", type=float, help="when to be done, in seconds since 1970")
    parser.add_argument("--directory", action="append", default=[], help="a directory to try with small files")
    parser.add_argument("--output", help="the file for the facts, instead of standard output")
    options = parser.parse_args(list(arguments))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end_all)
    question = {"directories": options.directory}  # type: Dict[str, Any]
    if options.question:
        with open(options.question, "rb") as stream:
            question = json.loads(stream.read().decode("utf-8"))
    seconds = float(question.get("seconds") or ALL_SECONDS)
    if options.deadline:
        seconds = max(1.0, min(seconds, options.deadline - time.time() - SPARE_SECONDS))
    facts = collect(question, seconds)
    if options.question and not options.output:
        key = "%08x%08x" % (zlib.crc32(facts["host"].encode("utf-8")) & 0xFFFFFFFF, os.getpid())
        # Twice, as another process's line may cut one of them.
        for line in list(encode_frames("node", key, facts)) * 2:
            os.write(1, line.encode("ascii"))
        return 0
    text = json.dumps(facts, indent=1, sort_keys=True) + "\n"
    if options.output:
        with open(options.output, "w") as stream:
            stream.write(text)
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
