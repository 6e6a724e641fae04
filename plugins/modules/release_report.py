#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Ansible module release_report; the work is in module_utils/report."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_report
short_description: Gather what the records of a release say into one document
version_added: 0.2.0
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release
description:
  - Reads the records of a release's steps, verifications, acceptances, pair sweep and node health, and writes what they
    say as C(<root>/.torchstack/<release>/report.json); beside it, where O(templates) says how, a page for people,
    C(report.html), and in C(reports) those of the last acceptances. The page is made on the control node.
  - No record has to be there, and none has to be whole. What is missing or cannot be read is named in the report.
  - The same records give the same bytes; the time of the report is not in it.
attributes:
  diff_mode:
    support: none
    description: The report repeats records that have differences of their own.
options:
  resolved:
    description: The content of the resolved release file. Empty where the release was never opened.
    type: dict
    default: {}
  templates:
    description: The directory of the page's templates on the control node. Without it no page is made.
    type: path
  kept:
    description: How many pages of acceptances are kept; with V(0) none is added or removed.
    type: int
    default: 30
  page:
    description: Internal, and refused in a task. The page that the action plugin has made.
    type: str
seealso:
  - module: hpcml.torchstack.release_record
"""

EXAMPLES = r"""
- name: Write the report, for people and for programs
  hpcml.torchstack.release_report:
    root: /soft/torchstack
    release: "2026-11-20"
    resolved: "{{ recorded.content | from_yaml }}"
    templates: "{{ role_path }}/templates"
  register: gathered
"""

RETURN = r"""
facts:
  description:
    - The facts, as they are in the file, of the version C(schema). What was not looked at is null.
    - C(verdict) is how the release stands (C(word), C(tone), C(problems)), C(release) has its name, site, digest,
      manifest, module, and who sees it. C(versions) has name, version and origin of each part, C(packages) further
      ones, C(patches) those of each component, C(known_problems) those of the last announcement.
    - C(steps) has state, start, seconds, host and job of each, of one that failed errors, log and remedy. C(libraries)
      is who provides which library, C(imports) what the imported modules reported, C(modulefile) in which module
      systems it was loaded, C(published) the journal of what users saw, C(compute) what was found on a compute node.
    - C(acceptance) is the last one (ranks, checks, transports, bandwidth, floors), C(acceptances) are all in short,
      C(sweep) is the pair sweep, C(health) that of the nodes. C(missing) are records that are missing or cannot be
      read, C(not_checked) sentences about what was not checked.
  returned: success
  type: dict
  sample:
    verdict: {word: Accepted, tone: good, problems: []}
    versions: [{name: PyTorch, version: 2.13.0+cpu, origin: ""}]
    steps: [{name: horovod, state: done, seconds: 151.2}]
    missing: [{record: sweep.json, message: No pair sweep was run.}]
    not_checked: [{of: acceptance, sentence: "All ranks ran on n1: nothing went from node to node."}]
path:
  description: Path of the document.
  returned: success
  type: str
planned_after:
  description: The role that makes the directory of the records; in check mode, where it is not there yet.
  returned: in check mode, when it is missing
  type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import RELEASE, run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.report import document, pages


def run(module: AnsibleModule) -> dict:
    """Renew the facts of the report, and its page where it is given."""
    os.umask(0o022)
    params = module.params
    result = document.update_document(params["root"], params["release"], params["resolved"], module.check_mode)
    if "planned_after" in result:
        return result
    place = os.path.dirname(result["path"]), pages.acceptance_of(result["facts"]), params["kept"]
    if params["page"] is None:
        return dict(result, page_made_from=pages.made_from(*place))
    written = pages.write_pages(place[0], params["page"], *place[1:], module.check_mode)
    return dict(result, changed=written or result["changed"])


def main() -> None:
    """Run the module."""
    run_module(run, {
        **RELEASE, "resolved": {"type": "dict", "default": {}}, "templates": {"type": "path"},
        "kept": {"type": "int", "default": 30}, "page": {"type": "str"},
    })


if __name__ == "__main__":
    main()
