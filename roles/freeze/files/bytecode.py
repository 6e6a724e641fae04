"""Compile every Python file of a release to bytecode beside it, so that nobody's interpreter wants to write there.

Arguments: the record to write, then the release's directory. Run by the interpreter that the release is used with.
"""

import concurrent.futures
import importlib.util
import json
import multiprocessing
import os
import pathlib
import py_compile
import struct
import sys

BATCH = 64
LONGEST_REASON = 200


def is_current(source, target):
    """Whether an interpreter would take the bytecode, judged as the import system does: magic number, time, size."""
    status = os.stat(source)
    time, size = int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF
    expected = struct.pack("<4sLLL", importlib.util.MAGIC_NUMBER, 0, time, size)
    try:
        with open(target, "rb") as stream:
            return stream.read(16) == expected
    except FileNotFoundError:
        return False


def compile_file(source):
    """Compile one file; "current", "compiled", or why it cannot be compiled."""
    target = importlib.util.cache_from_source(source, optimization="")
    if is_current(source, target):
        return "current"
    mode = py_compile.PycInvalidationMode.TIMESTAMP
    try:
        py_compile.compile(source, target, doraise=True, optimize=0, invalidation_mode=mode)
    except py_compile.PyCompileError as error:
        return "%s: %s" % (error.exc_type_name, " ".join(str(error.exc_value).split())[:LONGEST_REASON])
    return "compiled"


def compile_batch(sources):
    """What became of each of some files."""
    return [(source, compile_file(source)) for source in sources]


def python_files(prefix):
    """The files that an interpreter may import from the release, in a fixed order."""
    places = [*prefix.glob("*/site"), *prefix.glob("*/lib*/python*")]
    found = set()
    for place in sorted({os.path.realpath(place) for place in places}):
        for directory, _directories, names in os.walk(place):
            found.update(os.path.join(directory, name) for name in names if name.endswith(".py"))
    return sorted(path for path in found if os.path.isfile(path))


def main(record, prefix):
    """Compile all files, and record how many there are, and which cannot be compiled."""
    prefix = pathlib.Path(os.path.realpath(prefix))
    sources = python_files(prefix)
    batches = [sources[start : start + BATCH] for start in range(0, len(sources), BATCH)]
    compiled, failed, done = 0, {}, 0
    # Other start methods read the program again from its file; it comes from standard input and has none.
    fork = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(len(os.sched_getaffinity(0)), fork) as pool:
        for results in pool.map(compile_batch, batches):
            done += len(results)
            for source, outcome in results:
                if outcome == "compiled":
                    compiled += 1
                elif outcome != "current":
                    failed[os.path.relpath(source, prefix)] = outcome
            print("[%d/%d] byte-compiled" % (done, len(sources)), flush=True)
    for name, reason in sorted(failed.items()):
        print("cannot be compiled: %s: %s" % (name, reason))
    result = {
        "files": len(sources),
        "compiled": compiled,
        "current": len(sources) - compiled - len(failed),
        "failed": sorted(failed),
        "interpreter": "%d.%d.%d" % sys.version_info[:3],
    }
    with open(record, "w") as stream:
        json.dump(result, stream, indent=2, sort_keys=True)
    print("%(files)d Python files: %(compiled)d compiled, %(current)d had valid bytecode" % result, end="")
    print(", %d cannot be compiled by Python %s" % (len(failed), result["interpreter"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
