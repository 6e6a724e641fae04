# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The work of get-master: print the first host of a list, or of the nodes of this step, or of this job."""

import os
import sys

import hostlist

VARIABLES = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")


def main(arguments):
    """Print the host; the exit code."""
    if len(arguments) > 1:
        sys.stderr.write("Usage: get-master [HOSTLIST]\n")
        return 2
    text = arguments[0] if arguments else next(filter(None, map(os.environ.get, VARIABLES)), "")
    if not text:
        sys.stderr.write("get-master: there is no host list: give one, or call it in a job of Slurm (%s).\n" % (
            ", ".join(VARIABLES)))
        return 2
    try:
        host = hostlist.first(text)
    except hostlist.HostListError as error:
        sys.stderr.write("get-master: %s.\n" % error)
        return 2
    print(host)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
