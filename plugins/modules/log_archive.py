#!/usr/bin/python
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Keep the logs of all build steps: in an archive, and in a git repository."""

from __future__ import annotations

DOCUMENTATION = r"""
module: log_archive
version_added: 0.2.0
short_description: Keep the logs of all build steps
description:
  - Packs the files of all steps (log, script, inputs, how it ended) into one archive that is the same byte for byte
    whenever it is made of the same files, and, if a repository is named, commits them there.
  - Hidden files of a step are left out, and all that is neither a regular file nor a directory.
  - A commit is made with an index of its own, so what somebody has changed or staged in the repository takes no part.
    Where the branch is checked out in O(repository), the committed files, and nothing else, are brought to its index
    and working tree as well; local changes to these are an error, found before anything is committed.
  - Of a step whose directory is its owner's only, as O(hpcml.torchstack.build_step#module:private_logs) leaves it,
    nothing is committed, and the archive is its owner's only.
  - Git's configuration of account and machine is not read, hooks do not run, and nothing is fetched or pushed.
author: The hpcml.torchstack contributors (@hpcml)
extends_documentation_fragment:
  - hpcml.torchstack._attributes
  - hpcml.torchstack._release.planned
attributes:
  check_mode:
    description: Builds the commit's tree in a scratch directory; writes neither archive nor repository.
  diff_mode:
    description: The files in the archive before and after, with their sizes.
options:
  steps:
    description: The directory of the steps, an absolute path. Each directory in it is a step.
    type: path
    required: true
  archive:
    description: The archive to write, a C(.tar.gz) file in a directory that exists. Its files lie below one of its
      name.
    type: path
    required: true
  repository:
    description: A bare git repository, or the top of a git working tree. Without it nothing is committed.
    type: path
  subdirectory:
    description: Where in the repository the steps are put, a relative path such as the release's name. The directory of
      each step holds the step's files and no others afterwards; what else is there stays. Needed with O(repository).
    type: str
  branch:
    description: The branch. By default the one that C(HEAD) names. One that does not exist yet begins with this commit.
    type: str
  commit_message:
    description: The message of the commit. By default one that names O(subdirectory).
    type: str
  author:
    description: Name and address of author and committer.
    type: str
    default: torchstack <torchstack@localhost>
notes:
  - Archive and commit have no credentials in them. Passwords in addresses, tokens, authorization headers and values of
    variables whose names promise secrets are replaced by C(***); the files of the steps stay as they are.
seealso:
  - module: hpcml.torchstack.build_step
"""

EXAMPLES = r"""
- name: Keep the logs of a release, and commit them to the site's repository of build logs
  hpcml.torchstack.log_archive:
    steps: /soft/pytorch/2026-11-20/.torchstack/steps
    archive: /soft/pytorch/.torchstack/2026-11-20/logs.tar.gz
    repository: /soft/pytorch/build-logs.git
    subdirectory: mysite/2026-11-20
    branch: main
"""

RETURN = r"""
digest:
  description: SHA-256 of the archive; of the one on disk where that unpacks to the same.
  returned: once the logs were read
  type: str
archive_changed:
  description: Whether the archive was written, or would be.
  returned: once the logs were read
  type: bool
files:
  description: How many files the archive holds.
  returned: once the logs were read
  type: int
private:
  description: The steps whose records are their owner's only. With any, the archive is its owner's only too, and the
    repository does not get them.
  returned: once the logs were read
  type: list
  elements: str
branch:
  description: The branch.
  returned: with O(repository)
  type: str
commit:
  description: The commit that holds the logs, the branch's own where nothing differs. Null in check mode for a new one.
  returned: with O(repository)
  type: str
committed:
  description: What the commit changes, or would change, as C(git diff --name-status) has it.
  returned: with O(repository)
  type: list
  elements: str
  sample: [A mysite/2026-11-20/pytorch/log]
planned_after:
  description: The step that creates the logs.
  returned: check mode, where steps or the archive's directory do not exist yet and O(planned_after) was given
  type: str
failed_step:
  description: What failed - C(options), C(read the logs), C(read the archive), C(write the archive) or C(commit the
    logs).
  returned: failure
  type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_module import run_module, text_diff
from ansible_collections.hpcml.torchstack.plugins.module_utils.logs import archive, repository


def check_archive(archive: str, steps: str) -> str:
    """Check where the archive goes, and return the name that its files lie below.

    Raises:
        StackError: the archive is in the wrong place, or its name does not say what it is.
    """
    directory, name = os.path.split(archive)
    if not name.endswith(".tar.gz") or name == ".tar.gz" or not os.path.isabs(archive):
        raise StackError(
            "%s is not the absolute path of a .tar.gz file." % archive, "options", "Correct archive.", archive)
    if not os.path.isdir(directory):
        raise StackError("%s does not exist." % directory, "options", "Create it first.", directory)
    if os.path.join(os.path.realpath(directory), "").startswith(os.path.join(os.path.realpath(steps), "")):
        raise StackError(
            "The archive %s lies in the directory of the steps." % archive, "options", "Put it elsewhere.", archive)
    return name[:-len(".tar.gz")]


def archive_logs(params: dict, apply: bool) -> dict:
    """Archive and commit the logs, and return what the module returns."""
    top = check_archive(params["archive"], params["steps"])
    target = repository.Target(
        params["repository"] or "", params["subdirectory"] or "", params["branch"] or "",
        params["commit_message"] or "Logs of the build steps of %s" % params["subdirectory"], params["author"])
    if params["repository"]:
        repository.check_target(target)
    files = archive.members(params["steps"])
    private = archive.private_steps(params["steps"])
    mode = 0o600 if private else 0o644
    packed = archive.pack(files, top)
    before = archive.read_archive(params["archive"])
    same = before is not None and before.tar_digest == packed.tar_digest
    wide = bool(private) and archive.mode_of(params["archive"]) & 0o077 != 0
    result: dict = {
        "digest": before.digest if same and not wide and before else packed.digest,
        "archive_changed": not same or wide, "files": len(files), "private": private}
    if not same or wide:
        result["diff"] = [text_diff(params["archive"], before.listing if before else (), packed.listing)]
        if apply:
            archive.write_archive(params["archive"], packed, mode)
    if params["repository"]:
        everybodys = [member for member in files if member.name.split("/", 1)[0] not in private]
        commit = repository.commit(target, everybodys, apply)
        result.update(branch=commit.branch, commit=commit.after or None, committed=commit.changes)
        if commit.changes:
            header = "%s (branch %s)" % (params["repository"], commit.branch)
            result.setdefault("diff", []).append(text_diff(header, None, commit.changes))
    result["changed"] = bool(result["archive_changed"] or result.get("committed"))
    return result


def run(module: AnsibleModule) -> dict:
    """Archive the logs, or plan that where there are none yet."""
    later = module.params["planned_after"]
    needed = (module.params["steps"], os.path.dirname(module.params["archive"]))
    if module.check_mode and later and not all(os.path.isdir(path) for path in needed):
        return {"changed": True, "planned_after": later}
    return archive_logs(module.params, not module.check_mode)


def main() -> None:
    """Run the module."""
    run_module(run, {
        "steps": {"type": "path", "required": True}, "archive": {"type": "path", "required": True},
        "repository": {"type": "path"}, "subdirectory": {"type": "str"}, "branch": {"type": "str"},
        "commit_message": {"type": "str"}, "author": {"type": "str", "default": "torchstack <torchstack@localhost>"},
        "planned_after": {"type": "str"},
    }, required_by={"repository": ["subdirectory"]})


if __name__ == "__main__":
    main()
