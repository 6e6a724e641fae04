"""How many compilations a node can run at a time, printed as a number: one for each core, as far as its memory goes.

Words: the most that is wanted (0 for no limit), and the MiB that one compilation may need.
"""

import os
import re
import sys

CGROUPS = "/sys/fs/cgroup"
MIB = 1 << 20


def jobs(cores, memory, each, most=0):
    """The number of compilations.

    Args:
        cores: that the process may use.
        memory: MiB that it may use.
        each: MiB that one compilation may need.
        most: at most so many; 0 for no limit.
    """
    found = max(1, min(cores, memory // each))
    return min(found, most) if most else found


def available(meminfo, limits):
    """The MiB that are free, or fewer where a control group allows fewer.

    Args:
        meminfo: text of /proc/meminfo (proc_meminfo(5)).
        limits: texts of the limits of the process's control groups; some say "max", or a number beyond all memory.
    """
    free = int(re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.M).group(1)) * 1024
    return min([free] + [int(limit) for limit in limits if limit.strip().isdigit()]) // MIB


def limit_files(membership, top=CGROUPS):
    """The files with the memory limits of a process, up to the topmost control group.

    Args:
        membership: text of /proc/self/cgroup (cgroups(7)).
        top: where control groups are mounted.
    """
    found = []
    for line in membership.splitlines():
        _number, controllers, group = line.split(":", 2)
        if controllers == "":
            place, name = top, "memory.max"
        elif "memory" in controllers.split(","):
            place, name = top + "/memory", "memory.limit_in_bytes"
        else:
            continue
        parts = group.strip("/").split("/") if group.strip("/") else []
        found += ["/".join([place, *parts[:depth], name]) for depth in range(len(parts), -1, -1)]
    return found


def read(path):
    """A file's text; empty where it cannot be read."""
    try:
        with open(path) as stream:
            return stream.read()
    except OSError:
        return ""


def main(most, each):
    limits = [read(path) for path in limit_files(read("/proc/self/cgroup"))]
    memory = available(read("/proc/meminfo"), limits)
    print(jobs(len(os.sched_getaffinity(0)), memory, int(each), int(most)))


if __name__ == "__main__":
    main(*sys.argv[1:])
