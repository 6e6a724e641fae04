# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Refuse jobs as sites do: those of a foreign account, and those that do not say what they use.

A hook of PBS for the event queuejob. Its configuration has ``accounts``, account of the system to that which it may
charge jobs to, and ``required``, resource to the words of which a job names some, with colons between them.
"""

import json

import pbs

with open(pbs.hook_config_filename) as stream:
    config = json.load(stream)
event = pbs.event()
job = event.job
who = event.requestor
expected = config["accounts"].get(who)
account = job.Account_Name
if str(account) != str(expected):
    event.reject("Account %s is not one that %s may charge jobs to: qsub -A %s" % (account, who, expected))
for resource, words in sorted(config["required"].items()):
    asked = job.Resource_List[resource]
    if asked is None:
        event.reject("A job has to name its %s: qsub -l %s=%s" % (resource, resource, ":".join(words)))
    strange = [word for word in str(asked).split(":") if word not in words]
    if strange:
        event.reject("There is no %s '%s': %s" % (resource, strange[0], ", ".join(words)))
event.accept()
