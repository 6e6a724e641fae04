#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Verify that every ELF object finds every library, from the provider that was declared."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ldd_verify
version_added: 0.2.0
short_description: Verify where the libraries of a tree come from
description:
  - Every dynamic ELF object below some directories finds every library that it needs, where it has to come from. Says
    who needs what, where it was looked for and by which rule.
  - The rules are those of glibc's loader, with its order of RPATH, LD_LIBRARY_PATH, RUNPATH, cache and default
    directories. Nothing that is inspected is ever executed.
  - Each object is verified as its own root, with all that it brings, with and without the LD_LIBRARY_PATH of
    O(environment).
  - Links are not followed; a file is an object because of what is in it. Objects for another machine, statically linked
    ones, relocatable ones and separate debug information are counted and not checked.
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release.planned
attributes:
  check_mode:
    description: Verifies as always, and does not write O(record).
  diff_mode:
    description: The record before and after - where each library comes from, and the rules.
options:
  paths:
    description: Files or directories to verify, absolute.
    type: list
    elements: path
    required: true
  environment:
    description: The environment that the modulefile sets. Only E(LD_LIBRARY_PATH) matters.
    type: dict
    default: {}
  allow_missing:
    description: Libraries that may be missing on this host. An entry that excuses nothing is in RV(unused).
    type: list
    elements: dict
    default: []
    suboptions:
      name: &soname
        description: Glob over sonames.
        type: str
        required: true
      object:
        description: Glob over the absolute paths of the objects for which it may be missing. By default all.
        type: str
      reason: &reason
        description: Why.
        type: str
        required: true
  preloaded:
    description: Objects that are always mapped before the others, with what they need, as absolute paths, such as the
      libraries that C(import torch) maps. They do not count for programs, which start with nothing.
    type: list
    elements: path
    default: []
  program:
    description: The ELF file that loads the objects, such as the interpreter, whose RPATH counts for them.
    type: path
  providers:
    description: Where libraries have to come from. A matching soname has to resolve to the path of one of its entries.
    type: list
    elements: dict
    default: []
    suboptions:
      name: *soname
      path:
        description: Glob over absolute paths. C(*) and C(?) stay within a name, C(**) spans directories.
        type: str
        required: true
      reason:
        description: Why it has to come from there.
        type: str
  require:
    description: Objects that have to need a library, directly or not. One that no object matches is a finding, too.
    type: list
    elements: dict
    default: []
    suboptions:
      object: &paths
        description: Glob over absolute paths.
        type: str
        required: true
      needs: *soname
      reason: *reason
  embedded:
    description: Texts that only the provider of a library may hold, such as the version banner of NCCL, by which a
      static copy in any other ELF file is found.
    type: list
    elements: dict
    default: []
    suboptions:
      pattern:
        description: Regular expression over bytes. One that begins with a fixed text is searched for about forty times
          as fast. Matches longer than 4096 bytes may be cut.
        type: str
        required: true
      provider:
        description: Glob over the absolute paths of the files that may hold it.
        type: str
        required: true
      name:
        description: What it is.
        type: str
        required: true
  allow_embedded:
    description: Objects that may hold such a copy, which nobody but themselves uses. An entry that excuses nothing is
      in RV(unused).
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The O(embedded[].name) of what they hold.
        type: str
        required: true
      object: *paths
      reason: *reason
  forbid:
    description: Paths, such as stubs, at or below which no library may be found, and which neither LD_LIBRARY_PATH nor
      the RPATH or RUNPATH of an object may name. An entry of LD_LIBRARY_PATH that is empty or not absolute is always a
      finding.
    type: list
    elements: dict
    default: []
    suboptions:
      path: *paths
      reason: *reason
  plugins:
    description: Libraries that others open by name at run time. They have to be found as if they were needed.
    type: list
    elements: dict
    default: []
    suboptions:
      caller:
        description: Glob over the sonames of what opens it.
        type: str
        required: true
      name:
        description: The name that it opens.
        type: str
        required: true
  sealed:
    description:
      - Libraries that nobody may replace by a directory of his own in E(LD_LIBRARY_PATH). Every object is resolved once
        more, with a directory in front that has a library of each of these names.
      - Only an RPATH comes before E(LD_LIBRARY_PATH), or an object that is mapped already; a RUNPATH and the system's
        directories come after it. What a modulefile has in it, others may come before.
    type: list
    elements: dict
    default: []
    version_added: 0.3.0
    suboptions:
      name: *soname
      reason: *reason
  exclude:
    description: Globs, relative to each of O(paths), of what is left out, with everything below it.
    type: list
    elements: str
    default: []
  unopened:
    description: Endings of the names of files that are counted and not opened, as no loader is given such a name, and
      each would cost a question to the metadata server of a shared file system. An empty list opens every file.
    type: list
    elements: str
    default: [.py, .pyc, .pyi, .pxd, .pyx, .h, .hpp, .cuh, .c, .cc, .cpp, .cu, .f90, .js, .ts, .json, .yaml, .yml, .txt,
      .md, .rst, .html]
  record:
    description: Where to write what was found, absolute, in a directory that exists. Paths in it are relative to the
      release that has it in C(.torchstack), else to the first of O(paths). It is not written when there are findings.
    type: path
  max_listed:
    description: How many entries each list of the result has at most. Totals count all.
    type: int
    default: 100
seealso:
  - module: hpcml.torchstack.import_verify
"""

EXAMPLES = r"""
- name: Verify where the libraries of a release come from
  hpcml.torchstack.ldd_verify:
    paths: [/soft/pytorch/2026-11-20]
    environment: {LD_LIBRARY_PATH: /soft/pytorch/2026-11-20/nccl/lib}
    allow_missing:
      - {name: libcuda.so.1, reason: the login node has no GPU driver}
    preloaded: [/soft/pytorch/2026-11-20/base/lib/python3.11/site-packages/torch/lib/libtorch_python.so]
    providers:
      - {name: libnccl.so*, path: /soft/pytorch/2026-11-20/nccl/lib/*}
    require:
      - {object: "**/libtorch_cuda.so", needs: libnccl.so.2, reason: PyTorch uses the NCCL of the release}
    embedded:
      - name: NCCL
        pattern: NCCL version [0-9]+\.[0-9]+\.[0-9]+\+cuda
        provider: /soft/pytorch/2026-11-20/nccl/lib/*
    forbid:
      - {path: "**/stubs", reason: stubs are for linking}
    plugins:
      - {caller: libnccl.so.2, name: libnccl-net.so}
    record: /soft/pytorch/2026-11-20/.torchstack/verification.json
"""

RETURN = r"""
objects:
  description: Dynamic ELF objects that were verified.
  returned: always, once the paths were walked
  type: int
files:
  description: Files that there are.
  returned: always, once the paths were walked
  type: int
unopened:
  description: Those of them that were not opened, for their names.
  returned: always, once the paths were walked
  type: int
excluded:
  description: Entries that O(exclude) matched.
  returned: always, once the paths were walked
  type: int
missing:
  description:
    - The first libraries that are not found. RV(ignore:searched) has each rule and directory, and why a file there was
      passed over; RV(ignore:root) and RV(ignore:roots) are for which objects, and how many, if not for the object.
    - Every list of findings has its total next to it, as RV(missing_total).
  returned: always, once the paths were walked
  type: list
  elements: dict
  sample:
    - object: /soft/pytorch/2026-11-20/base/lib/python3.11/site-packages/libpyg.so
      soname: libpython3.11.so.1.0
      searched: ["RUNPATH: /soft/python/lib (no such file)", "ld.so.cache: /etc/ld.so.cache (no such file)"]
      message: libpyg.so needs libpython3.11.so.1.0, which is not found.
      remedy: Build it again with LDFLAGS unset.
      environment: with and without LD_LIBRARY_PATH
missing_total:
  description: How many there are.
  returned: always, once the paths were walked
  type: int
misplaced:
  description: The first libraries that come from elsewhere than O(providers) declares.
  returned: always, once the paths were walked
  type: list
  elements: dict
  sample:
    - object: /soft/pytorch/2026-11-20/lib/libtorch_cuda.so
      soname: libnccl.so.2
      path: /usr/lib64/libnccl.so.2
      rule: ld.so.cache
      declared: [/soft/pytorch/2026-11-20/nccl/lib/*]
      reason: ""
      message: libtorch_cuda.so gets libnccl.so.2 from /usr/lib64/libnccl.so.2 (ld.so.cache).
      environment: without LD_LIBRARY_PATH
embedded:
  description: The first files that hold what only another file may hold.
  returned: always, once the paths were walked
  type: list
  elements: dict
  sample:
    - {object: /soft/pytorch/2026-11-20/lib/libtorch_cuda.so, soname: NCCL, text: NCCL version 2.14.3+cuda11.8,
       offset: 73400320, provider: /soft/pytorch/2026-11-20/nccl/lib/*, message: libtorch_cuda.so holds a copy of NCCL.}
forbidden:
  description: The first libraries found, or directories named, where O(forbid) says that nothing may come from.
  returned: always, once the paths were walked
  type: list
  elements: dict
required:
  description: The first objects that do not need what O(require) says.
  returned: always, once the paths were walked
  type: list
  elements: dict
versions:
  description: The first symbol versions that a library which was found does not have.
  returned: always, once the paths were walked
  type: list
  elements: dict
unsealed:
  description: The first objects that would take a library of O(sealed) from a directory in a user's LD_LIBRARY_PATH.
  returned: always, once the paths were walked
  type: list
  elements: dict
  sample:
    - object: /soft/pytorch/2026-11-20/lib/libtorch_cuda.so
      soname: libnccl.so.2
      path: /soft/pytorch/2026-11-20/nccl/lib/libnccl.so.2
      rule: RUNPATH
      reason: another NCCL has no plugin of ours beside it
unreadable:
  description: The first files and directories that could not be looked at, and broken ELF files.
  returned: always, once the paths were walked
  type: list
  elements: dict
allowed:
  description: What O(allow_missing) excused.
  returned: always, once the paths were walked
  type: list
  elements: dict
  sample:
    - soname: libcuda.so.1
      name: libcuda.so.1
      reason: the login node has no GPU driver
      objects: [/soft/pytorch/2026-11-20/lib/libtorch_cuda.so]
      objects_total: 4
own_copies:
  description: What O(allow_embedded) excused.
  returned: always, once the paths were walked
  type: list
  elements: dict
  sample:
    - {object: /soft/pytorch/2026-11-20/base/lib/libxgboost.so, name: NCCL, text: NCCL version 2.16.5+cuda11.8,
       reason: its wheel has one that it uses alone}
unused:
  description: Entries of O(allow_missing) and O(allow_embedded) that excused nothing, and of O(providers) whose library
    nobody needs.
  returned: always, once the paths were walked
  type: list
  elements: dict
  sample: [{rule: allow_missing, name: libcuda.so.1, reason: the login node has no GPU driver}]
not_checked:
  description: The first ELF files that the loader of this machine does not load, and why.
  returned: always, once the paths were walked
  type: list
  elements: dict
  sample: [{object: /soft/pytorch/2026-11-20/base/bin/busybox, why: has no dynamic section}]
providers:
  description: For each library that is found, the files that it is, by which rule, and for how many objects.
  returned: always, once the paths were walked
  type: dict
  sample:
    libnccl.so.2:
      - path: /soft/pytorch/2026-11-20/nccl/lib/libnccl.so.2
        rule: RUNPATH
        needed_by: 3
        first: [/soft/pytorch/2026-11-20/lib/libtorch_cuda.so]
seconds:
  description: How long the verification took.
  returned: always, once the paths were walked
  type: float
planned_after:
  description: The step that creates the paths.
  returned: check mode, where a path does not exist yet and O(planned_after) was given
  type: str
failed_step:
  description: What failed - C(rules), C(scan), C(record) or, where the verification has findings, C(verify).
  returned: failure
  type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify import library_record
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.libraries import verify
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.library_findings import sentence
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.library_record import write_record
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.library_rules import (
    KEYS,
    OPTIONAL,
    UNOPENED,
    parse_rules,
)


def rule_options() -> dict[str, dict]:
    """Return the argument specification of the lists of rules."""
    return {
        kind: {
            "type": "list", "elements": "dict", "default": [],
            "options": {key: {"type": "str", "required": (kind, key) not in OPTIONAL} for key in keys},
        }
        for kind, keys in KEYS.items()
    }


def run(module: AnsibleModule) -> dict[str, object]:
    """Verify, and keep the record where it differs."""
    params, later = module.params, module.params["planned_after"]
    if module.check_mode and later and not all(os.path.lexists(path) for path in params["paths"]):
        return {"changed": True, "planned_after": later}
    if not params["paths"]:
        raise StackError("paths is empty.", "rules", "Name what is to be verified.")
    names = ("environment", "preloaded", "program", "exclude", "unopened", *KEYS)
    rules = parse_rules({name: params[name] for name in names})
    outcome = verify(rules, params["paths"])
    result = outcome.as_result(max(0, params["max_listed"]))
    if outcome.findings:
        raise StackError(sentence(outcome.findings, len(outcome.scan.objects)), "verify", **result)
    result["changed"] = False
    if params["record"]:
        top = library_record.find_top(params["record"], params["paths"])
        old, new = library_record.read(params["record"]), library_record.build(rules, params["paths"], outcome, top)
        result["changed"] = old != new
        if module._diff and result["changed"]:
            result["diff"] = {"before": library_record.render(old), "after": library_record.render(new)}
        if result["changed"] and not module.check_mode:
            write_record(params["record"], new)
    return result


def main() -> None:
    """Run the module."""
    run_module(run, {
        **rule_options(),
        "paths": {"type": "list", "elements": "path", "required": True},
        "environment": {"type": "dict", "default": {}},
        "preloaded": {"type": "list", "elements": "path", "default": []},
        "program": {"type": "path"},
        "exclude": {"type": "list", "elements": "str", "default": []},
        "unopened": {"type": "list", "elements": "str", "default": list(UNOPENED)},
        "record": {"type": "path"},
        "max_listed": {"type": "int", "default": 100},
        "planned_after": {"type": "str"},
    })


if __name__ == "__main__":
    main()
