"""Put the release on the module search path: behind what the user installed, before what the interpreter brings.

Over a site's Python, PYTHONPATH names only the directory of this file. Were the release itself on PYTHONPATH, it would
come before a user's own virtual environment and user base, and nothing installed there could replace a package of it.
In a release with a Python of its own this file lies beside the standard library, which virtual environments share.
"""

import importlib.machinery
import os
import site
import sys


def _add_release():
    here = os.path.dirname(os.path.abspath(__file__))
    packages = os.path.join(here, "site-packages")
    if not os.path.isdir(packages):
        packages = os.path.join(os.path.dirname(here), "lib", "python%d.%d" % sys.version_info[:2], "site-packages")
    if packages in sys.path or not os.path.isdir(packages):
        return
    own = set(site.getsitepackages([sys.base_prefix, sys.base_exec_prefix]))
    before = [index for index, entry in enumerate(sys.path) if entry in own]
    known = set(sys.path)
    site.addsitedir(packages)
    added = [entry for entry in sys.path if entry not in known]
    if before:
        rest = [entry for entry in sys.path if entry in known]
        sys.path[:] = rest[: before[0]] + added + rest[before[0] :]


def _run_next_sitecustomize():
    here = os.path.dirname(os.path.abspath(__file__))
    others = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        from importlib import util  # late: it costs every start of the interpreter some milliseconds

        module = util.module_from_spec(spec)
        spec.loader.exec_module(module)


_add_release()
_run_next_sitecustomize()
