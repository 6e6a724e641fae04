# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Apache-2.0 is compatible with version 3 of the GNU General Public License, under which Ansible itself is.
"""Document the options of modules that start ranks; module_utils/ranks/module_options.py has their specifications."""

from __future__ import annotations


class ModuleDocFragment:
    """The options that mean the same in each of these modules."""

    DOCUMENTATION = r"""
options:
  partition:
    description: The partition of the site on whose nodes this is; its records are in C(partitions/<name>) beside those
      of the release. Empty for a site that names none.
    type: str
    default: ""
  modulepaths:
    description: Directories for C(module use), one for each module system that the site may have.
    type: dict
    default: {}
    suboptions:
      lmod:
        description: Directory of the Lua modulefiles.
        type: path
      tcl:
        description: Directory of the Tcl modulefiles.
        type: path
"""

    JOB = r"""
options:
  state:
    description:
      - V(present) makes sure that it has passed. Without O(job) the launcher is started by this module, where it runs.
      - With O(job) the launcher is started in a job of a batch system, which is a step of
        M(hpcml.torchstack.build_step) between two calls of this module with the same options. V(present) only says
        whether that is needed, and gives the step; V(judged) judges what came out of it, also where it has failed.
    type: str
    choices: [present, judged]
    default: present
  job:
    description: The C(launcher) of that step and its C(options), as P(hpcml.torchstack.step_job#filter) gives them. The
      wall time has to be a minute longer than O(timeout), and C(python) is tried first for what supervises the
      launcher. What a launcher knows its job by, such as C(SLURM_*), is kept beside O(environment_keep).
    type: dict
    default: {}
  wait:
    description: Seconds that a shared file system may take to show with O(state=judged) what the job has written.
    type: float
    default: 60
  module_init:
    description: Start-up files for bash, in this order, instead of C(/etc/profile).
    type: list
    elements: path
    default: []
  module_system:
    description: The module system that a login has to offer. V(auto) takes what is there; where nothing is,
      the variables are used and the record says so. V(none) does not look for one.
    type: str
    choices: [auto, lmod, environment-modules, none]
    default: auto
  module_definition:
    description: What defines C(module) of O(module_system), as O(hpcml.torchstack.build_step#module:module_init) does,
      for a login whose own is missing or of another one; what the login has loaded with that is forgotten.
    type: str
    default: ""
  environment_keep:
    description: Names of variables of this task's environment that the launcher's fresh login keeps, such as V(PBS_*)
      of a launcher that has to know the batch job it is in; V(*) stands for no secrets.
    type: list
    elements: str
    default: []
notes:
  - Where the nodes are other machines, O(root) has to be on a file system that these see at the same path.
seealso:
  - module: hpcml.torchstack.build_step
"""

    LAUNCHED = r"""
attributes:
  diff_mode:
    description: Shows the last verdict and its subject, and the new ones.
options:
  subject:
    description: Digest of the frozen release whose ranks these are. A record of another one does not count. Required,
      except in check mode, where a release that is not frozen yet has none.
    type: str
    default: ""
  module:
    description: The module to load, with its version. Empty where there are no modules; O(environment) is used then.
    type: str
    default: ""
  environment:
    description: Variables to set where no module can be loaded.
    type: dict
    default: {}
  user:
    description: The ordinary user that runs the ranks. Empty for the account of this task, with the environment of a
      fresh login; the record then says what that cannot show.
    type: str
    default: ""
  become_command:
    description: Words that run a command as O(user), which replaces C({user}); without asking for a password.
    type: list
    elements: str
    default: [sudo, -n, -u, "{user}", --]
  launcher:
    description: The site's launcher with its options; O(ranks) replaces C({ranks}), O(nodes) replaces C({nodes}), and
      the ranks of one node C({per_node}). The rank program follows.
    type: list
    elements: str
    default: [mpiexec, -n, "{ranks}"]
  python:
    description: The interpreter of the ranks, as found on the module's E(PATH).
    type: str
    default: python3
"""
