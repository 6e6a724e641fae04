"""Judge an installed PyTorch by what it says. Lies beside judge_build.py and judge_requirements.py.

    judge_installed.py EXPECTED ANSWERS BUILD ORIGIN RECORD

EXPECTED is JSON with the keys of :func:`installed_findings` and ``no_deps``, ANSWERS what ask_build.py wrote.
"""

import json
import re
import sys

from judge_build import HINTS, read, report, value_findings, version_finding, write
from judge_requirements import installed, requirement_findings


def parse_config(text):
    """The build settings in what torch.__config__.show() prints, by name."""
    match = re.search(r"Build settings:(.*)", text)
    pairs = re.split(r",\s+(?=\w+=)", match.group(1).strip().rstrip(", ")) if match else []
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def wanted_architectures(names):
    """Words of the compiler for architectures as TORCH_CUDA_ARCH_LIST has them: "9.0+PTX" for instance."""
    words = set()
    for name in names:
        number = name.replace(".", "").replace("+PTX", "")
        words.add("sm_" + number)
        if name.endswith("+PTX"):
            words.add("compute_" + number)
    return words


def installed_findings(expected, answers):
    """All that is wrong with an installed PyTorch, by what it says.

    Args:
        expected: has ``version``, ``config`` (values by name), ``mpi``, ``gloo`` and ``numpy`` (bools),
            ``nccl`` and ``cuda`` (version or empty) and ``architectures``.
        answers: as ask_build.py writes them.
    """
    sentences = version_finding(answers["version"], expected["version"], "torch.__version__")
    sentences += version_finding(answers["distribution"], expected["version"], "the installed distribution")
    sentences += value_findings(parse_config(answers["config"]), expected["config"], "torch.__config__.show()")
    if expected["mpi"] and not answers["mpi"]:
        sentences.append("torch.distributed.is_mpi_available() is false. " + HINTS["USE_MPI"])
    if expected["gloo"] and not answers["gloo"]:
        sentences.append("torch.distributed.is_gloo_available() is false. See 'Gloo' in the step's log, or say "
                         "USE_GLOO: \"0\" in pytorch.source.environment.")
    if expected["numpy"] and not answers["numpy"]:
        sentences.append("%s. Put numpy into locks.base, let the step pytorch run again, or say USE_NUMPY: \"0\" in "
                         "pytorch.source.environment." % (
                             "The release has no NumPy" if answers["numpy"] is None else
                             "torch takes no array of NumPy, since it was built without"))
    nccl = ".".join(str(number) for number in answers["nccl"] or [])
    if expected["nccl"] and nccl != expected["nccl"]:
        sentences.append("NCCL %s was asked for, and torch.cuda.nccl.version() says %s. Look for another libnccl "
                         "before that of the release, or inside of libtorch_cuda.so." % (
                             expected["nccl"], nccl or "that there is none"))
    wanted, built = wanted_architectures(expected["architectures"]), set(answers["architectures"])
    if expected["architectures"] and built != wanted:
        sentences.append("GPU code for %s was asked for, and torch has that for %s. TORCH_CUDA_ARCH_LIST has to reach "
                         "CMake, in a tree where nothing else was configured before." % (
                             ", ".join(sorted(wanted)), ", ".join(sorted(built)) or "none"))
    minor = ".".join((answers["cuda"] or "none").split(".")[:2])
    if expected["cuda"] and minor != ".".join(expected["cuda"].split(".")[:2]):
        sentences.append("CUDA %s was asked for, and torch.version.cuda says %s. Look for another toolkit on the "
                         "step's PATH." % (expected["cuda"], answers["cuda"]))
    return sentences


def judge_installed(expected, answers, build, origin, record):
    """Judge the installed PyTorch, and record what it says."""
    found = json.loads(read(answers))
    releases = installed(found.pop("path"))
    unmet = requirement_findings(releases["torch"].requires, releases, expected["no_deps"])
    report(installed_findings(expected, found) + unmet)
    found["config"] = parse_config(found["config"])
    write(record, dict(found, origin=origin, build=json.loads(read(build))))
    print("torch %s, NCCL %s, MPI %s, CUDA %s for %s" % (
        found["version"], found["nccl"], found["mpi"], found["cuda"], found["architectures"]))


if __name__ == "__main__":
    expected_text, *rest = sys.argv[1:]
    judge_installed(json.loads(expected_text), *rest)
