"""Print how many compilations a step may run at a time: one for each core that it may use, as far as its memory goes.

Words: the most that is wanted (0 for no limit), and the MiB that one compilation may need.
"""

import os
import re
import sys

CGROUPS = "/sys/fs/cgroup"
MIB = 1 << 20
SHARES = ("SLURM_CPUS_ON_NODE", "NCPUS")
"""Variables by which Slurm (sbatch(1)) and PBS (pbs_resources(7)) say how many processors of this node a job has, also
where nothing binds it to them."""


def jobs(cores, memory, each, most=0):
    """Return the number of compilations.

    Args:
        cores: that the process may use.
        memory: MiB that it may use.
        each: MiB that one compilation may need.
        most: at most so many; 0 for no limit.
    """
    found = max(1, min(cores, memory // each))
    return min(found, most) if most else found


def usable(bound, quotas, environment):
    """Return the number of cores that the process may use, at least 1.

    Args:
        bound: cores that it is bound to.
        quotas: texts of the limits of its control groups: microseconds of processor time, "max" or -1 for no limit, and
            the period that they are for.
        environment: its variables, by name.
    """
    found = [bound] + [int(environment[name]) for name in SHARES if environment.get(name, "").isdigit()]
    for quota in quotas:
        words = quota.split()
        if len(words) == 2 and words[0].isdigit() and int(words[1]):
            found.append(int(words[0]) // int(words[1]))
    return max(1, min(found))


def available(meminfo, limits):
    """The MiB that are free, or fewer where a control group allows fewer.

    Args:
        meminfo: text of /proc/meminfo (proc_meminfo(5)).
        limits: texts of the limits of the process's control groups; some say "max", or a number beyond all memory.
    """
    free = int(re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.M).group(1)) * 1024
    return min([free] + [int(limit) for limit in limits if limit.strip().isdigit()]) // MIB


def limit_files(membership, controller, unified, own, top=CGROUPS):
    """List the files with a process's limits, up to the topmost control group.

    Args:
        membership: text of /proc/self/cgroup (cgroups(7)).
        controller: whose limits they are, such as "memory".
        unified: names of the files in version 2 of control groups.
        own: names of the files in a hierarchy of the controller's own.
        top: where control groups are mounted.

    Returns:
        For each group a list of paths, in the order of the names.
    """
    found = []
    for line in membership.splitlines():
        _number, controllers, group = line.split(":", 2)
        if controllers == "":
            place, names = top, unified
        elif controller in controllers.split(","):
            place, names = top + "/" + controller, own
        else:
            continue
        parts = group.strip("/").split("/") if group.strip("/") else []
        groups = ["/".join([place, *parts[:depth]]) for depth in range(len(parts), -1, -1)]
        found += [[directory + "/" + name for name in names] for directory in groups]
    return found


def read(path):
    """A file's text; empty where it cannot be read."""
    try:
        with open(path) as stream:
            return stream.read()
    except OSError:
        return ""


def main(most, each):
    membership = read("/proc/self/cgroup")
    limits = [read(path) for (path,) in limit_files(membership, "memory", ["memory.max"], ["memory.limit_in_bytes"])]
    quotas = limit_files(membership, "cpu", ["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"])
    texts = [" ".join(read(path) for path in paths) for paths in quotas]
    cores = usable(len(os.sched_getaffinity(0)), texts, os.environ)
    print(jobs(cores, available(read("/proc/meminfo"), limits), int(each), int(most)))


if __name__ == "__main__":
    main(*sys.argv[1:])
