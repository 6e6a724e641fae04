#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""It is judged and recorded whether today's system still carries a release."""

from __future__ import annotations

DOCUMENTATION = r"""
module: system_drift
version_added: 0.2.0
short_description: Judge whether today's system still carries a published release
description:
  - Takes what M(hpcml.torchstack.module_environment), M(hpcml.torchstack.modulefile_verify),
    M(hpcml.torchstack.ldd_verify) and M(hpcml.torchstack.import_verify) found for a frozen release just now, compares
    it with the verification before the freeze, and names what the system has moved or removed since.
  - Looks at nothing but the records of the release, and for a library that is gone at the directories beside its own.
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release
attributes:
  check_mode:
    description: Judges all the same, and records nothing.
  diff_mode:
    description: The findings of the last look on this host and of this one.
  idempotent:
    description: The record is only written when something else was found. Its time of modification shows the look.
options:
  looks:
    description: What the modules returned; empty for a look that was not made.
    type: dict
    default: {}
    suboptions:
      modules:
        description: Of M(hpcml.torchstack.module_environment) with the modules that the release's own one loads.
        type: dict
        default: {}
      modulefile:
        description: Of M(hpcml.torchstack.modulefile_verify) of the published modulefile.
        type: dict
        default: {}
      libraries:
        description: Of M(hpcml.torchstack.ldd_verify).
        type: dict
        default: {}
      imports:
        description: Of M(hpcml.torchstack.import_verify).
        type: dict
        default: {}
  moved:
    description: What a library outside of the release is that is found elsewhere than before the freeze.
    type: str
    choices: [failure, warning]
    default: failure
seealso:
  - module: hpcml.torchstack.release_drift
"""

EXAMPLES = r"""
- name: Look at the libraries as they are today
  hpcml.torchstack.ldd_verify:
    paths: [/soft/torchstack/2026-11-20]
  register: libraries
  ignore_errors: true

- name: Judge them
  hpcml.torchstack.system_drift:
    root: /soft/torchstack
    release: "2026-11-20"
    looks:
      libraries: "{{ libraries }}"
"""

RETURN = r"""
passed:
  description: Whether nothing was found that fails.
  returned: success
  type: bool
findings:
  description: What was found. RV(ignore:kind) is C(module_missing), C(module_refused), C(modulefile), C(missing),
    C(moved), another kind of finding of the module that looked, or the name of the look.
  returned: success
  type: list
  elements: dict
  sample:
    - look: libraries
      kind: missing
      soname: libfabric.so.1
      before: [/opt/cray/libfabric/1.15.2.0/lib64/libfabric.so.1]
      now: [/opt/cray/libfabric/1.22.0/lib64/libfabric.so.1]
      objects: [plugin/lib/libnccl-net.so]
      message: libfabric.so.1 is not found any more; 1 of its objects need it, first plugin/lib/libnccl-net.so.
      remedy: Have the site bring it back, by a link or a module of the old name.
      fails: true
looked_at:
  description: The looks that were made.
  returned: success
  type: list
  elements: str
not_looked_at:
  description: Those that were not.
  returned: success
  type: list
  elements: str
allowed:
  description: Libraries that the release's rules excuse on this host, and that were not seen therefore.
  returned: success
  type: list
  elements: str
  sample: [libcuda.so.1 (the login node has no GPU driver)]
summary:
  description: The same in lines for a reader.
  returned: success
  type: list
  elements: str
  sample: ["2026-05-02: today's system carries it (its modulefile, its libraries, its imports; 281 objects)."]
failed_step:
  description: What failed - C(find the releases) or C(record).
  returned: failure
  type: str
"""

import os
import platform

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import RELEASE, run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import drift_record, drift_text, system_drift
from ansible_collections.hpcml.torchstack.plugins.module_utils.release.states import one_release


def run(module: AnsibleModule) -> dict:
    """Judge what the release needs of this system, and record what was found."""
    os.umask(0o022)
    params = module.params
    state = one_release(params["root"], params["release"])
    host = platform.node()
    outcome = system_drift.judge(state.prefix, params["looks"] or {}, params["moved"] == "failure", host)
    changed, earlier = drift_record.keep_outcome(
        params["root"], params["release"], "system on %s" % host, outcome, not module.check_mode)
    shown = [drift_text.outcome_lines(earlier), drift_text.outcome_lines(outcome)]
    before, after = ("".join(line + "\n" for line in lines) for lines in shown)
    result = {key: outcome[key] for key in ("passed", "findings", "looked_at", "not_looked_at", "allowed")}
    if module._diff:
        result["diff"] = {"before": before, "after": after}
    return dict(result, changed=changed, summary=system_drift.summary_lines(params["release"], outcome))


def main() -> None:
    """Run the module."""
    run_module(run, {
        **RELEASE,
        "looks": {
            "type": "dict", "default": {},
            "options": {name: {"type": "dict", "default": {}} for name in system_drift.CHECKS},
        },
        "moved": {"type": "str", "choices": ["failure", "warning"], "default": "failure"},
    })


if __name__ == "__main__":
    main()
