#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Tell the site what has happened to a release; the work is in module_utils/lifecycle."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_event
version_added: 0.2.0
short_description: Tell the site's people and programs what has happened to a release
description:
  - Sends a mail, posts to a web hook of a chat, or runs a command of the site's own, each for the events that the
    site's data name.
  - What is told is how the release stands by its report, with what failed, the lines of the log that say why, and where
    the report is. A program gets it as one line of JSON on its standard input.
  - A way to tell that fails is a warning and fails nothing, as what has happened has happened. The next one is tried
    all the same.
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release
attributes:
  check_mode:
    description: Nobody is told; the result is who would be.
  diff_mode:
    support: none
    description: Nothing is written.
  idempotent:
    support: none
    description: What is told is told again.
options:
  site:
    description: The name of the site.
    type: str
    required: true
  events:
    description: What has happened, in its order. Nothing is told where this is empty.
    type: list
    elements: str
    choices: [finished, failed, accepted, not_accepted, published, rolled_back]
    required: true
  sentences:
    description: What the play says of it.
    type: list
    elements: str
    default: []
  hooks:
    description: Who is told, and how.
    type: list
    elements: dict
    required: true
    suboptions:
      events:
        description: The events that are told this way; without, all of them.
        type: list
        elements: str
        choices: [finished, failed, accepted, not_accepted, published, rolled_back]
      mail:
        description: Send a mail.
        type: dict
        suboptions:
          to:
            description: The addresses.
            type: list
            elements: str
            required: true
          from:
            description: The sender; without one the first address.
            type: str
          server:
            description: The mail server, C(host) or C(host:port).
            type: str
            default: localhost
      post:
        description: Post to a web hook, as chats have them.
        type: dict
        suboptions:
          url:
            description: The address.
            type: str
          url_file:
            description: A file whose first line is the address, where that is a secret.
            type: path
          body:
            description: Post C({"text"}) with the message for people, which chats take, or the event as a command
              gets it.
            type: str
            choices: [text, event]
            default: text
      run:
        description: Run a command, which gets the event as one line of JSON on its standard input.
        type: list
        elements: str
      timeout:
        description: Seconds for one message.
        type: float
        default: 30
seealso:
  - module: hpcml.torchstack.release_report
  - module: hpcml.torchstack.release_notice
"""

EXAMPLES = r"""
- name: Tell operators that a rollout has stopped, and the chat that a release is there
  hpcml.torchstack.release_event:
    root: /soft/torchstack
    release: "2026-11-20"
    site: mysite
    events: [finished, accepted]
    hooks:
      - events: [failed, not_accepted]
        mail: {to: [hpc-operators@example.org], server: mail.example.org}
      - events: [published]
        post: {url_file: /etc/torchstack/chat-address}
      - run: [/usr/local/sbin/record-event]
"""

RETURN = r"""
told:
  description: Who was told, or would be.
  returned: success
  type: list
  elements: str
  sample: [mail to hpc-operators@example.org]
not_told:
  description: Who was not told, and why.
  returned: success
  type: list
  elements: str
  sample: ["mail to hpc-operators@example.org failed: Connection refused"]
failed_step:
  description: What failed - C(hooks), which contradict themselves.
  returned: failure
  type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.clock import now
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.files import read_json
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.lenient_json import mapping
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import RELEASE, run_module
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import event_hooks
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle.event_message import EVENTS, compose


def run(module: AnsibleModule) -> dict:
    """Tell what has happened to those who want to know it."""
    params = module.params
    concerned = [
        hook for hook in event_hooks.read_hooks(params["hooks"])
        if any(event in hook.events for event in params["events"])]
    if module.check_mode or not concerned:
        return {"changed": bool(concerned), "told": [hook.name for hook in concerned], "not_told": []}
    place = os.path.join(params["root"], ".torchstack", params["release"])
    try:
        report = mapping(read_json(os.path.join(place, "report.json")))
    except (OSError, ValueError):
        report = {}
    told, not_told = [], []
    for hook in concerned:
        events = [event for event in params["events"] if event in hook.events]
        message = compose(
            params["site"], params["release"], events, params["sentences"], report,
            os.path.join(place, "report.html"), now())
        obstacle = event_hooks.tell(hook, message)
        if obstacle:
            not_told.append("%s %s" % (hook.name, obstacle))
            module.warn("Not told: %s." % not_told[-1])
        else:
            told.append(hook.name)
    return {"changed": bool(told), "told": told, "not_told": not_told}


def main() -> None:
    """Run the module."""
    events = {"type": "list", "elements": "str", "choices": list(EVENTS)}
    run_module(run, {
        **RELEASE, "site": {"type": "str", "required": True}, "events": {**events, "required": True},
        "sentences": {"type": "list", "elements": "str", "default": []},
        "hooks": {"type": "list", "elements": "dict", "required": True, "options": {
            "events": events,
            "mail": {"type": "dict", "options": {
                "to": {"type": "list", "elements": "str", "required": True}, "from": {"type": "str"},
                "server": {"type": "str", "default": "localhost"}}},
            "post": {"type": "dict", "options": {
                "url": {"type": "str"}, "url_file": {"type": "path"},
                "body": {"type": "str", "choices": ["text", "event"], "default": "text"}}},
            "run": {"type": "list", "elements": "str"},
            "timeout": {"type": "float", "default": 30},
        }},
    })


if __name__ == "__main__":
    main()
