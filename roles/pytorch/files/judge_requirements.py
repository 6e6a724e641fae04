"""Judge whether a release has what PyTorch's own metadata asks for, before it is compiled.

    judge_requirements.py METADATA NO_DEPS < PATH

METADATA is the directory that ``setup.py egg_info`` wrote, NO_DEPS ``true`` or ``false`` as in the release file. PATH
is the release's sys.path, an entry a line.
"""

import importlib.metadata
import re
import sys

from pip._vendor.packaging.requirements import Requirement

REMEDY = " Correct the lock that brings it, or say pytorch.source.no_deps: true if torch works with what is there."


def canonical(name):
    """A distribution's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(path):
    """The distributions below the entries of a sys.path, by canonical name."""
    found = {}
    for one in importlib.metadata.distributions(path=[entry for entry in path if entry]):
        if one.metadata["Name"]:
            found.setdefault(canonical(one.metadata["Name"]), one)
    return found


def requirement_findings(requires, releases, no_deps):
    """A sentence for each requirement that is not met; with ``no_deps`` it is printed only.

    Args:
        requires: requirements as metadata has them, or None.
        releases: what :func:`installed` gives.
        no_deps: whether the release file says that torch works with what is there.
    """
    sentences = []
    for requirement in map(Requirement, requires or []):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            there = releases.get(canonical(requirement.name))
            if there is None or not requirement.specifier.contains(there.version, prereleases=True):
                sentences.append("torch wants %s%s, and the release has %s." % (
                    requirement.name, requirement.specifier, there.version if there else "none"))
    if no_deps:
        print("\n".join(sentences))
        return []
    return [sentence + REMEDY for sentence in sentences]


if __name__ == "__main__":
    metadata, no_deps_word = sys.argv[1:]
    unmet = requirement_findings(
        importlib.metadata.Distribution.at(metadata).requires, installed(sys.stdin.read().splitlines()),
        no_deps_word == "true")
    if unmet:
        sys.exit("\n".join("ERROR: " + sentence for sentence in unmet))
