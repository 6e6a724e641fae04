# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""List what texts of a release file and of a site's data must look like. Pure.

They are not in the schema, as the checkers of argument specifications refuse a key ``pattern`` there.
"""

from __future__ import annotations

from typing import Dict

Rule = Dict[str, str]
"""``pattern``, a regular expression for the whole text, and ``says``, the rule in words."""

SHA256: Rule = {"pattern": "[0-9a-f]{64}", "says": "64 hexadecimal digits"}
COMMIT: Rule = {"pattern": "[0-9a-f]{40}", "says": "40 hexadecimal digits"}
PLACE: Rule = {
    "pattern": "(/|[$][{][A-Za-z_]).*", "says": "an absolute path, or one that begins with a variable of a module"}
INDEX: Rule = {"pattern": "([a-z]+:/)?/\\S+|", "says": "the address of an index or the absolute path of a directory"}
VERSION: Rule = {"pattern": "[0-9]\\S*", "says": "a version such as 2.6.0, without a v"}
VARIABLE: Rule = {"pattern": "[A-Za-z_][A-Za-z0-9_]*", "says": "the name of an environment variable"}
VERSION_OF_CUDA: Rule = {"pattern": "[0-9]+[.][0-9]+([.][0-9]+)?", "says": "the version of a CUDA toolkit, such as %s"}
SIZE: Rule = {"pattern": "[0-9]+ *[KMGTkmgt]i?[Bb]?", "says": "a whole number with its unit, such as 240G"}
FILE_NAME: Rule = {
    "pattern": "[A-Za-z0-9][A-Za-z0-9._+-]*", "says": "the name of a file in the central place, without a directory"}
CAPABILITY: Rule = {"pattern": "[0-9]+[.][0-9]", "says": "a compute capability such as 8.0, in quotes"}
MODULE: Rule = {"pattern": "[A-Za-z_]\\w*([.][A-Za-z_]\\w*)*", "says": "the name of a module"}
LABEL: Rule = {"pattern": "[A-Za-z0-9][A-Za-z0-9._-]*", "says": "letters, digits, dots, dashes and underscores"}


def _cuda(example: str) -> Rule:
    return dict(VERSION_OF_CUDA, says=VERSION_OF_CUDA["says"] % example)


RELEASE: dict[str, Rule] = {
    "release": LABEL,
    "base.minimum": {"pattern": "3[.][0-9]+", "says": "a Python version such as 3.11"},
    "base.channels[]": {"pattern": "\\S+", "says": "an address, a directory or a name, without spaces"},
    "base.name": {
        "pattern": "[A-Za-z][A-Za-z0-9_-]*", "says": "letters, digits, underscores and dashes, a letter first"},
    "base.image.file": FILE_NAME,
    "base.image.definition": dict(FILE_NAME, pattern="(%s)?" % FILE_NAME["pattern"]),
    "base.image.sha256": SHA256,
    "base.wrappers[]": {"pattern": "[A-Za-z0-9][A-Za-z0-9._+-]*", "says": "the name of a command"},
    "base.venv.name": LABEL,
    "cuda.version": _cuda("12.2"),
    "cuda.architectures[]": {"pattern": "[0-9]+[.][0-9]+[a-f]?([+]PTX)?", "says": "a compute capability such as 8.0"},
    "cuda.prefix": PLACE,
    "cuda.libraries[]": PLACE,
    "packages[].name": {"pattern": "[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", "says": "the name of a distribution"},
    "packages[].commit": COMMIT,
    "packages[].sha256": SHA256,
    "packages[].archive": {"pattern": "[a-z]+://\\S+", "says": "an address such as https://example.org/a-1.0.tar.gz"},
    "packages[].index": INDEX,
    "packages[].unset[]": VARIABLE,
    "packages[].imports[]": MODULE,
    "bundles[].name": {
        "pattern": "[a-z0-9]([a-z0-9-]*[a-z0-9])?", "says": "lower-case letters, digits and dashes, as 'science'"},
    "bundles[].imports[]": MODULE,
    "files[].path": {
        "pattern": "(bin|etc|share|site-packages)(/(?![.]{1,2}(/|$))[A-Za-z0-9._+@-]+)+",
        "says": "a path that begins with bin/, etc/, share/ or site-packages/, without blanks and without '..'"},
    "files[].fill[]": {
        "pattern": "[A-Za-z_][A-Za-z0-9_.]*", "says": "a word such as release, without its braces"},
}
"""Of the keys that are no component's, by dotted path; ``[]`` stands for each element of a list."""

SITE: dict[str, Rule] = {
    "torchstack_jobs.node.memory": SIZE,
    "torchstack_jobs.node.tmpdir_space": SIZE,
    "torchstack_jobs.node.tmpdir": {"pattern": "/\\S*", "says": "an absolute path without spaces"},
    "torchstack_jobs.node.cuda": _cuda("12.4"),
}
"""Of a site's data about jobs."""
