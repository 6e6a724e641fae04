"""Say which of these packages a process has imported, as the usage snooper of a site does; no process waits for it."""

import atexit
import os
import sys

COUNTED = ("torch", "mpi4py", "xxhash")


def _count():
    place = os.environ.get("SITE_USAGE")
    if place:
        with open(place, "a") as stream:
            stream.write(" ".join(name for name in COUNTED if name in sys.modules) + "\n")


atexit.register(_count)
