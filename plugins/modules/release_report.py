#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Ansible module release_report; the work is in module_utils/report_*.py."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: release_report
short_description: Gather what the records of a release say into one document
version_added: 0.2.0
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release
description:
  - Reads the records of a release's steps, verifications, acceptances, pair sweep and node health, and writes what they
    say as C(<root>/.torchstack/<release>/report.json).
  - No record has to be there, and none has to be whole. What is missing or cannot be read is named in the report.
  - The same records give the same bytes; the time of the report is not in it.
  - The page for people is made from it by P(hpcml.torchstack.report_page#filter).
attributes:
  diff_mode:
    support: none
    description: The report repeats records that have differences of their own.
  idempotent:
    description: Without a changed record nothing is written.
options:
  resolved:
    description: The content of the resolved release file. Empty where the release was never opened.
    type: dict
    default: {}
seealso:
  - module: hpcml.torchstack.release_record
  - plugin: hpcml.torchstack.report_page
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Gather the facts of a report
  hpcml.torchstack.release_report:
    root: /soft/torchstack
    release: "2026-11-20"
    resolved: "{{ recorded.content | from_yaml }}"
  register: gathered
"""

RETURN = r"""
facts:
  description: The facts, as they are in the file.
  returned: success
  type: dict
  contains:
    schema: {description: Version of the form of these facts., type: int, returned: always, sample: 1}
    verdict: {description: "How the release stands: word, tone, problems.", type: dict, returned: always,
              sample: {word: Accepted, tone: good, problems: []}}
    release: {description: "Name, site, digest, manifest, module, who sees it.", type: dict, returned: always,
              sample: {name: "2026-11-20", site: example}}
    versions: {description: Name and version of each part and where it is from., type: list, elements: dict,
               returned: always, sample: [{name: PyTorch, version: "2.13.0+cpu", origin: ""}]}
    packages: {description: Further packages., type: list, elements: dict, returned: always,
               sample: [{name: einops, version: "0.8.2", licence: MIT}]}
    patches: {description: Patches by component., type: list, elements: dict, returned: always,
              sample: [{component: horovod, series: "0.28.1", patches: []}]}
    known_problems: {description: "Known problems, as the last announcement has them.", type: list, elements: dict,
                     returned: always, sample: [{problem: It hangs at exit., workaround: "", url: ""}]}
    steps: {description: "The steps: state, start, seconds, host, job; of one that failed errors, log and remedy.",
            type: list, elements: dict, returned: always, sample: [{name: horovod, state: done, seconds: 151.2}]}
    libraries: {description: Who provides which library; null where that was not verified., type: dict,
                returned: always, sample: {objects: 412, providers: [], allowed: []}}
    imports: {description: What the imported modules reported; null where they were not verified., type: dict,
              returned: always, sample: {modules: [torch], mapped: 214}}
    modulefile: {description: In which module systems the module was loaded; null where it was not., type: dict,
                 returned: always, sample: {passed: true, checked: []}}
    published: {description: The journal of what users saw., type: list, elements: dict, returned: always,
                sample: [{action: show, syntax: lmod}]}
    compute: {description: What was found on a compute node., type: list, elements: dict, returned: always, sample: []}
    acceptance: {description: "The last acceptance: ranks, checks, transports, bandwidth, floors; null without one.",
                 type: dict, returned: always, sample: {passed: true, ranks: []}}
    acceptances: {description: All acceptances in short., type: list, elements: dict, returned: always,
                  sample: [{started: "2026-11-20T12:00:00Z", passed: true}]}
    sweep: {description: The pair sweep; null where there was none., type: dict, returned: always, sample: null}
    health: {description: The health of the nodes; null where nobody looked., type: dict, returned: always,
             sample: null}
    missing: {description: Records that are missing or cannot be read., type: list, elements: dict, returned: always,
              sample: [{record: sweep.json, message: No pair sweep was run.}]}
    not_checked: {description: Sentences about what was not checked., type: list, elements: dict, returned: always,
                  sample: [{of: acceptance, sentence: "All ranks ran on n1: nothing went from node to node."}]}
path:
  description: Path of the document.
  returned: success
  type: str
  sample: /soft/torchstack/.torchstack/2026-11-20/report.json
planned_after:
  description: The role that makes the directory of the records; in check mode, where it is not there yet.
  returned: in check mode, when it is missing
  type: str
  sample: release
failed_step:
  description: What failed.
  returned: failure
  type: str
  sample: release
remedy:
  description: What to do next.
  returned: failure
  type: str
  sample: Set report_root.
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.report import document


def run(module: AnsibleModule) -> dict:
    """Renew the facts of the report."""
    os.umask(0o022)
    params = module.params
    return document.update_document(params["root"], params["release"], params["resolved"], module.check_mode)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "release": {"type": "str", "required": True},
            "resolved": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    run_module(module, run)


if __name__ == "__main__":
    main()
