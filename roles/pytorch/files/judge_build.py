"""Judge a build of PyTorch by what arrived: it goes on without what it does not find, and ends well.

    judge_build.py EXPECTED TREE BEFORE REFUSED [WHEELS RECORD]

EXPECTED is JSON with the keys of :func:`configuration_findings`. Without WHEELS nothing has been compiled yet.
"""

import fnmatch
import json
import os
import re
import subprocess
import sys

CACHE = "build/CMakeCache.txt"
SETTINGS = "build/caffe2/core/macros.h"
"""Where CMake writes what torch.__config__.show() is going to print."""

TRUE = ("1", "ON", "YES", "TRUE", "Y")
FALSE = ("0", "OFF", "NO", "FALSE", "N", "IGNORE", "NOTFOUND", "")
HINTS = {
    "USE_SYSTEM_NCCL": "PyTorch compiles the copy of NCCL in its own tree then. Look for what keeps the variable from "
                       "setup.py.",
    "USE_NCCL": "NCCL was not found, or its header and its library are of different versions: see NCCL in the step's "
                "log.",
    "USE_MPI": "CMake found no MPI: see 'MPI' in the step's log, and mpi in the release file.",
    "USE_CUDA": "CMake found no CUDA toolkit: see cuda.prefix in the release file.",
    "USE_CUDNN": "cuDNN was not found: set CUDNN_INCLUDE_DIR and CUDNN_LIBRARY in pytorch.source.environment.",
    "BLAS_INFO": "A BLAS that is not found only ends a build where pytorch.source.environment asks for it as BLAS; see "
                 "what the step's log says of it.",
    "LAPACK_INFO": "CMake could link nothing with the LAPACK of the BLAS, which may have none, or want a library that "
                   "is not there, as libgfortran; with \"*\" torch is built without.",
}
"""What to do where a value did not arrive, by its name."""

GENERAL_HINT = "Look for its name in the step's log, and correct pytorch.source in the release file."


def parse_cache(text):
    """The values of a CMakeCache.txt by name.

    A switch that another one excludes keeps its value there and becomes internal, which is off (CMakeDependentOption).
    """
    found = {}
    for line in text.splitlines():
        match = re.match(r"(?![#/])([^:=]+):([A-Z]+)=(.*)$", line)
        if match:
            name, kind, value = match.groups()
            excluded = kind == "INTERNAL" and name.startswith(("USE_", "BUILD_"))
            found[name] = "OFF" if excluded else value.strip()
    return found


def parse_settings(text):
    """The build settings in SETTINGS by name."""
    return dict(re.findall(r'^\s*\{"(\w+)", "(.*)"\}, \\$', text, re.M))


def truth(value):
    """True, False, or None for a value that CMake takes for neither."""
    word = str(value).upper()
    if word in TRUE:
        return True
    return False if word in FALSE or word.endswith("-NOTFOUND") else None


def same(found, wanted):
    """Whether a value is the one that was wanted: the same text or truth, or what matches a pattern."""
    if truth(wanted) is not None and truth(found) is not None:
        return truth(found) == truth(wanted)
    return fnmatch.fnmatchcase(str(found), str(wanted))


def value_findings(found, wanted, place):
    """A sentence for each wanted value that did not arrive.

    Args:
        found: values by name.
        wanted: patterns or truths by name; ``*`` is for anything, and nothing.
        place: where the values were read.
    """
    sentences = []
    for name, value in sorted(wanted.items()):
        arrived = "%s=%s" % (name, found[name] or "(nothing)") if name in found else "nothing of that name"
        if value != "*" and (name not in found or not same(found[name], value)):
            sentences.append("%s=%s was asked for, and %s has %s. %s" % (
                name, value, place, arrived, HINTS.get(name, GENERAL_HINT)))
    return sentences


def below_findings(found, wanted, place):
    """A sentence for each path that does not lie where it has to.

    Args:
        found: values by name.
        wanted: directory by name.
        place: where the values were read.
    """
    sentences = []
    for name, directory in sorted(wanted.items()):
        path = os.path.realpath(found.get(name) or "/nowhere")
        if not path.startswith(os.path.realpath(directory) + "/"):
            sentences.append("%s has to lie below %s, and %s has %s. Keep what was found from the step's CPATH, "
                             "LIBRARY_PATH and modules." % (
                                 name, directory, place, found.get(name) or "nothing of that name"))
    return sentences


def compiler_findings(found, wanted, place):
    """A sentence for each compiler that was called by another name than the one given.

    Wrappers decide by the name that they are called by, so that one whose links were followed is another program.

    Args:
        found: values by name.
        wanted: compiler as given, by the name of its variable: CC, CXX.
        place: where the values were read.
    """
    sentences = []
    for variable, name in (("CC", "CMAKE_C_COMPILER"), ("CXX", "CMAKE_CXX_COMPILER")):
        given, used = wanted[variable].split()[0], found.get(name, "")
        if os.path.basename(used) != os.path.basename(given) or ("/" in given and used != given):
            sentences.append("%s=%s was given, and %s has %s=%s. Give it as the step's PATH has it." % (
                variable, given, place, name, used or "(nothing)"))
    return sentences


def submodule_findings(before, after):
    """Sentences about submodules that were fetched, or changed, by the build.

    Args:
        before: what `git submodule status --recursive` said before it.
        after: and afterwards.
    """
    was, now = submodules(before), submodules(after)
    changed = sorted(path for path in set(was) | set(now) if was.get(path) != now.get(path))
    if not changed:
        return []
    return ["The build changed the submodule%s %s, which is a download that the release file does not name. "
            "Let the step pytorch-source run again." % ("s" if len(changed) > 1 else "", ", ".join(changed))]


def submodules(status):
    """State and commit of each submodule, by its path."""
    return {line[1:].split()[1]: line[0] + line[1:].split()[0] for line in status.splitlines() if line.strip()}


def submodule_urls(tree):
    """Where each submodule comes from as its own repository says, by its path."""
    asked = 'printf "%s %s\\n" "$displaypath" "$(git config -f "$toplevel/.gitmodules" "submodule.$name.url")"'
    command = ["git", "submodule", "--quiet", "foreach", "--recursive", asked]
    said = subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, text=True, check=True).stdout
    return {path: url for path, _space, url in (line.partition(" ") for line in said.splitlines())}


def refused_findings(text):
    """A sentence about what the build asked the network for; ``text`` is a refused.jsonl, empty if there is none."""
    addresses = sorted({json.loads(line)["url"] or "an unknown address" for line in text.splitlines()})
    if not addresses:
        return []
    return ["The build asked the network for %s, and went on without. Bring it with the source, or switch off what "
            "needs it." % ", ".join(addresses[:5])]


def canonical(version):
    """A version as the names of wheels have it (PEP 440)."""
    return re.sub(r"[-_]", ".", version.strip().lower())


def version_finding(found, wanted, place):
    """A sentence if the version is another one than what was asked for."""
    if found is not None and canonical(found) == canonical(wanted):
        return []
    return ["PyTorch %s was asked for, and %s says %s. Both PYTORCH_BUILD_VERSION and PYTORCH_BUILD_NUMBER have to "
            "reach setup.py." % (wanted, place, found or "nothing")]


def configuration_findings(expected, cache, settings, before, after, refused):
    """All that is wrong with a build once CMake has run, which is before anything is compiled.

    Args:
        expected: has ``version``, ``cache`` and ``config`` (values by name), ``below`` (directory by name) and
            ``compilers``.
        cache: text of CMakeCache.txt.
        settings: text of the file SETTINGS, or empty.
        before: submodules before the build.
        after: and afterwards.
        refused: text of the step's refused.jsonl.
    """
    found, reported = parse_cache(cache), parse_settings(settings)
    # What is in neither is asked of the installed PyTorch.
    config = {name: value for name, value in expected["config"].items()
              if name in reported and name not in expected["cache"]}
    sentences = value_findings(found, expected["cache"], CACHE) + value_findings(reported, config, SETTINGS)
    sentences += below_findings(found, expected["below"], CACHE)
    sentences += compiler_findings(found, expected["compilers"], CACHE)
    if "TORCH_BUILD_VERSION" in found:
        sentences += version_finding(found["TORCH_BUILD_VERSION"], expected["version"], CACHE)
    return sentences + submodule_findings(before, after) + refused_findings(refused)


def wheel_findings(version, wheels):
    """All that is wrong with the names of the wheels that were made."""
    if len(wheels) != 1:
        return ["setup.py made %s. One wheel was expected." % (", ".join(wheels) or "no wheel")]
    return version_finding(wheels[0].split("-")[1], version, "the wheel " + wheels[0])


def read(path):
    """A file's text; empty where there is none."""
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except FileNotFoundError:
        return ""


def write(path, record):
    """A record, complete or not at all."""
    with open(path + ".new", "w", encoding="utf-8") as stream:
        json.dump(record, stream, indent=2, sort_keys=True)
    os.replace(path + ".new", path)


def report(sentences):
    """End with all that is wrong."""
    if sentences:
        sys.exit("\n".join("ERROR: " + sentence for sentence in sentences))


def judge_tree(expected, tree, before, refused, wheels=None, record=None):
    """Judge a build by its tree; one that has ended is recorded."""
    command = ["git", "submodule", "status", "--recursive"]
    status = subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, text=True, check=True).stdout
    cache, settings = (read(os.path.join(tree, name)) for name in (CACHE, SETTINGS))
    sentences = configuration_findings(expected, cache, settings, read(before), status, read(refused))
    if wheels is None:
        report(sentences)
        return
    made = sorted(name for name in os.listdir(wheels) if name.endswith(".whl"))
    report(sentences + wheel_findings(expected["version"], made))
    found = parse_cache(cache)
    names = sorted({*expected["cache"], *expected["below"], "CMAKE_C_COMPILER", "CMAKE_CXX_COMPILER"} & set(found))
    write(record, {
        "wheel": made[0], "cache": {name: found[name] for name in names}, "submodule_urls": submodule_urls(tree),
        "submodules": {path: commit.lstrip(" ") for path, commit in submodules(status).items()}})


if __name__ == "__main__":
    expected_text, *rest = sys.argv[1:]
    judge_tree(json.loads(expected_text), *rest)
