#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Verify what a process really has after importing the modules of a release."""

from __future__ import annotations

DOCUMENTATION = r"""
module: import_verify
version_added: 0.2.0
short_description: Verify which libraries and versions a process really has after its imports
description:
  - Imports Python modules in the environment of a release, one after the other, and looks after each at the process map
    (C(/proc/self/maps)). So it sees what no look at single files shows - the first library of a soname that is mapped
    serves everybody in the process, and libraries that are opened by name appear only here.
  - Says of each library which import brought it, and of each finding what to do.
  - The environment is O(environment) and a minimal base (C(HOME) and C(TMPDIR) empty directories, C(PATH), C(LANG)). No
    user site directory, no C(PYTHONSTARTUP), no C(PYTHONUSERBASE), no variable of whoever calls. C(sitecustomize) and
    C(.pth) files of the release count, as they do for its users.
  - Nothing is written into the release, no byte code either. An import that ends the process, crashes it or hangs is a
    finding; whatever it started is ended.
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release.planned
attributes:
  check_mode:
    description: Imports and judges all the same, and does not write O(record).
  diff_mode:
    description: The record before and after.
  idempotent:
    description: The record holds nothing that differs from run to run.
options:
  python:
    description: Absolute path of the interpreter, Python 3.8 or newer.
    type: path
    required: true
  container:
    description: Whether O(python) runs the interpreter of a container, by Singularity or Apptainer, with the directory
      of the run added to C(SINGULARITY_BIND). Paths in rules and results are then those inside of the container,
      libraries go by the names of their files instead of their sonames, C(single) with V(*) compares these, and
      O(static) cannot be given.
    type: bool
    default: false
  modules:
    description: Names of the modules to import, in the order that users have, as it can decide which library is mapped.
    type: list
    elements: str
    required: true
  environment:
    description: Environment variables, as the modulefile of the release sets them; C(HOME) and C(TMPDIR) too, for
      imports that need a short path for their sockets. An import that initializes MPI (C(mpi4py.MPI) does) may have to
      be told not to on a login node, for instance with C(MPI4PY_RC_INITIALIZE=0).
    type: dict
    default: {}
  unset:
    description: Variables to leave out, of the minimal base as well.
    type: list
    elements: str
    default: []
  providers:
    description: Where libraries have to come from. Every mapped library whose soname (else the name of whose file)
      matches C(name) must match C(path), or that of another entry about it. What does not is in RV(misplaced).
    type: list
    elements: dict
    default: []
    suboptions:
      name: &soname
        description: Glob over sonames, such as C(libnccl*).
        type: str
        required: true
      path:
        description: Glob over absolute paths, links resolved or not. C(**) spans directories.
        type: str
        required: true
      reason:
        description: Why.
        type: str
      required:
        description: Whether at least one such library must be mapped. One that is linked in statically is not.
        type: bool
        default: false
  single:
    description: Globs over sonames of which one file at most may be mapped, links to one file being one. V(*) alone
      looks at each soname for itself, without extension modules. For any other glob one file may be mapped among all
      that match - C(libgomp*) meets copies with mangled names, as C(libgomp-a34b3233.so.1), and C(libnccl*) a second
      NCCL of another version.
    type: list
    elements: str
    default: ["*"]
  expect:
    description: Values that the modules have to report. What differs is in RV(wrong_values).
    type: list
    elements: dict
    default: []
    suboptions:
      value:
        description: Python expression over the names that C(import) binds, such as C(torch.cuda.nccl.version()).
          Numbers, texts, lists and dictionaries are taken as they are, tuples and sets as lists, everything else as its
          text.
        type: str
        required: true
      equals:
        description: What it has to equal. Types count, V(2) is not V("2"), and V(true) is not V(1). For V(null), ask
          for C(value is None) to equal V(true).
        type: raw
      matches:
        description: Regular expression that has to match all of its text; what is not a text is taken as JSON.
        type: str
      reason:
        description: Why.
        type: str
  forbid:
    description: Where nothing may come from. What does is in RV(forbidden).
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Glob over absolute paths; what lies below a directory that matches, matches as well.
        type: str
        required: true
      reason: &reason
        description: Why.
        type: str
        required: true
  allow:
    description: Libraries to which no rule applies. A rule that excuses nothing is in RV(unused_allow).
    type: list
    elements: dict
    default: []
    suboptions:
      name: *soname
      path:
        description: Glob over absolute paths. Only files that match are meant.
        type: str
      reason: *reason
  static:
    description: Path of the record of M(hpcml.torchstack.ldd_verify) of the same release. Every library that it found
      for a mapped object must be mapped from the same file. What is not is in RV(misplaced).
    type: path
  timeout:
    description: Seconds for all imports and values together.
    type: float
    default: 600
  record:
    description: File to record the result in, usually C(.torchstack/imports.json) of the release. Written when there is
      no finding, and only where it would change.
    type: path
notes:
  - Globs are those of M(hpcml.torchstack.tree_permissions).
  - NCCL that is linked into another library is no mapped file; M(hpcml.torchstack.ldd_verify) finds it by its bytes.
seealso:
  - module: hpcml.torchstack.ldd_verify
"""

EXAMPLES = r"""
- name: Verify that PyTorch and Horovod share one NCCL, the one of the release
  hpcml.torchstack.import_verify:
    python: /soft/pytorch/2026-11-20/base/bin/python3
    modules: [torch, horovod.torch]
    environment: {LD_LIBRARY_PATH: /soft/pytorch/2026-11-20/nccl/lib}
    single: ["*", "libnccl*"]
    providers:
      - {name: "libnccl*", path: /soft/pytorch/2026-11-20/nccl/**, required: true}
    expect:
      - value: torch.cuda.nccl.version()
        equals: [2, 18, 3]
        reason: the NCCL that the network plugin was built for
    forbid:
      - {path: "**/stubs", reason: a stub has no code}
    static: /soft/pytorch/2026-11-20/.torchstack/verification.json
    record: /soft/pytorch/2026-11-20/.torchstack/imports.json
"""

RETURN = r"""
mapped:
  description: Every program and library that was mapped at some time, by the import that brought it, then by path.
  returned: once the interpreter ran
  type: list
  elements: dict
  sample:
    - {path: /soft/pytorch/2026-11-20/nccl/lib/libnccl.so.2.18.3, soname: libnccl.so.2, brought_by: torch,
       deleted: false}
misplaced:
  description: Libraries that come from elsewhere than declared (C(rule) is V(providers)), or than the static
    verification found for the object itself (V(static)).
  returned: once the interpreter ran
  type: list
  elements: dict
  sample:
    - {path: /soft/pytorch/2026-11-20/base/lib/libnccl.so.2, soname: libnccl.so.2, brought_by: torch, deleted: false,
       expected: /soft/pytorch/2026-11-20/nccl/**, rule: providers, reason: "",
       remedy: Import what brings the declared one first.}
duplicates:
  description: Several files where O(single) allows one.
  returned: once the interpreter ran
  type: list
  elements: dict
  sample:
    - soname: libgomp*
      rule: libgomp*
      files: [{path: /usr/lib64/libgomp.so.1.0.0, soname: libgomp.so.1, brought_by: torch, deleted: false}]
      remedy: Let everything lead to one of them.
forbidden:
  description: Libraries from where nothing may come from.
  returned: once the interpreter ran
  type: list
  elements: dict
reported:
  description: What the expressions of O(expect) gave.
  returned: once the interpreter ran
  type: dict
  sample: {torch.cuda.nccl.version(): [2, 18, 3]}
wrong_values:
  description: Expressions that gave something else, or failed.
  returned: once the interpreter ran
  type: list
  elements: dict
  sample:
    - value: torch.cuda.nccl.version()
      expected: be [2, 18, 3]
      actual: [2, 14, 3]
      error: ""
      reason: ""
      remedy: Install the version that the release file names.
import_errors:
  description: Imports that failed, or ended the process. C(output) holds the last lines of the traceback or of stderr,
    C(not_tried) the modules that came later.
  returned: once the interpreter ran
  type: list
  elements: dict
  sample:
    - {module: horovod.torch, error: "ImportError: libmpi.so.12: cannot open shared object file", output: [],
       not_tried: [], remedy: Rebuild what needs it with a RUNPATH.}
allowed:
  description: What O(allow) excused.
  returned: once the interpreter ran
  type: list
  elements: dict
  sample:
    - {kind: duplicates, soname: libgomp-a34b3233.so.1, path: /soft/py/sklearn.libs/libgomp-a34b3233.so.1,
       reason: scikit-learn brings its own and uses it alone}
unused_allow:
  description: Rules of O(allow) that excused nothing.
  returned: once the interpreter ran
  type: list
  elements: dict
python_version:
  description: Version of the interpreter.
  returned: once the interpreter ran
  type: str
seconds:
  description: How long the run took.
  returned: once the interpreter ran
  type: float
planned_after:
  description: The step that builds the release.
  returned: check mode, where something does not exist yet and O(planned_after) was given
  type: str
failed_step:
  description: What failed - C(plan), C(import) (the interpreter does not start), C(verify) (findings) or C(record).
  returned: failure
  type: str
"""

import os
import shutil
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module, text_diff
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify import import_record, import_rules, imports
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.library_record import write_record

PROVIDER = {
    "name": {"type": "str", "required": True}, "path": {"type": "str", "required": True}, "reason": {"type": "str"},
    "required": {"type": "bool", "default": False},
}
EXPECTATION = {
    "value": {"type": "str", "required": True}, "equals": {"type": "raw"}, "matches": {"type": "str"},
    "reason": {"type": "str"},
}
FORBIDDEN = {"path": {"type": "str", "required": True}, "reason": {"type": "str", "required": True}}
ALLOWANCE = {
    "name": {"type": "str", "required": True}, "path": {"type": "str"}, "reason": {"type": "str", "required": True},
}


def run(module: AnsibleModule) -> dict:
    """Import, judge, and keep the record where it differs."""
    params, later = module.params, module.params["planned_after"] if module.check_mode else None
    planned = {"changed": bool(params["record"]), "planned_after": later}
    rules = import_rules.parse_rules(params)
    if later and not all(os.path.lexists(params[name]) for name in ("python", "static") if params[name]):
        return planned
    scratch = tempfile.mkdtemp(prefix="imports-", dir=module.tmpdir)
    try:
        report = imports.verify(params, rules, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if later and report.absent:
        return planned
    if report.error is not None:
        raise report.error
    result = dict(report.result, changed=False)
    if params["record"]:
        before = import_record.read_record(params["record"])
        result["changed"] = before != report.record
        if module._diff and result["changed"]:
            result["diff"] = text_diff(
                params["record"], import_record.render(before), import_record.render(report.record))
        if result["changed"] and not module.check_mode:
            write_record(params["record"], report.record)
    return result


def main() -> None:
    """Run the module."""
    run_module(run, {
        "python": {"type": "path", "required": True},
        "container": {"type": "bool", "default": False},
        "modules": {"type": "list", "elements": "str", "required": True},
        "environment": {"type": "dict", "default": {}},
        "unset": {"type": "list", "elements": "str", "default": []},
        "providers": {"type": "list", "elements": "dict", "default": [], "options": PROVIDER},
        "single": {"type": "list", "elements": "str", "default": ["*"]},
        "expect": {
            "type": "list", "elements": "dict", "default": [], "options": EXPECTATION,
            "mutually_exclusive": [("equals", "matches")], "required_one_of": [("equals", "matches")],
        },
        "forbid": {"type": "list", "elements": "dict", "default": [], "options": FORBIDDEN},
        "allow": {"type": "list", "elements": "dict", "default": [], "options": ALLOWANCE},
        "static": {"type": "path"},
        "timeout": {"type": "float", "default": 600},
        "record": {"type": "path"},
        "planned_after": {"type": "str"},
    })


if __name__ == "__main__":
    main()
