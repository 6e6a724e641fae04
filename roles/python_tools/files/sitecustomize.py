"""Put the release on the module search path: behind what the user installed, before what the interpreter brings.

Over a site's Python, PYTHONPATH names only the directory of this file. Were the release itself on PYTHONPATH, it would
come before a user's own virtual environment and user base, and nothing installed there could replace a package of it.
In a release with a Python of its own this file lies beside the standard library, which virtual environments share.

Into a new virtual environment ensurepip installs a pip only where it sees none, so it does not get to see that of the
release: else the environment has no pip, and the command is that of the release, which installs elsewhere.

PEP 668's marker keeps pip from the packages of a site's Python, and with them from the user base of the release. Each
pip that installs there is told to go on, and no other program of the shell, which a variable of the module would tell.
"""

import importlib.machinery
import os
import re
import site
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_OF_ENSUREPIP = "TORCHSTACK_ENSUREPIP"


def _packages():
    packages = os.path.join(_HERE, "site-packages")
    if os.path.isdir(packages):
        return packages
    return os.path.join(os.path.dirname(_HERE), "lib", "python%d.%d" % sys.version_info[:2], "site-packages")


def _words():
    """Return the words of the command line, the interpreter's first."""
    if hasattr(sys, "orig_argv"):  # from Python 3.10 on
        return sys.orig_argv
    try:
        with open("/proc/self/cmdline", "rb") as file:
            return file.read().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def _is_module(name, words):
    """Tell whether the interpreter was started with -m and this name."""
    return any(word == name and before[:1] == "-" and before[-1:] == "m" for before, word in zip(words, words[1:]))


def _is_for_ensurepip():
    """Tell whether this process is ensurepip in a virtual environment, or the pip that it starts."""
    if sys.prefix == sys.base_prefix:
        return False
    if _is_module("ensurepip", _words()):
        os.environ[_OF_ENSUREPIP] = sys.prefix  # ensurepip takes away what begins with PIP_
    return os.environ.get(_OF_ENSUREPIP) == sys.prefix


def _installs_for_the_user():
    """Tell whether this process is a pip that can only write in the user base of an overlay."""
    if sys.prefix != sys.base_prefix or not os.environ.get("PYTHONUSERBASE") or not os.path.isdir(_packages()):
        return False
    words = _words()
    program = os.path.basename(next((word for word in words[1:] if word[:1] != "-"), ""))
    if not _is_module("pip", words) and not re.match(r"pip[0-9.]*$", program):
        return False
    return "--user" in words or not any(os.access(place, os.W_OK) for place in site.getsitepackages())


def _add_release(packages):
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


def _run_others(packages):
    """Run that of the release's packages, and that which would run without the release: Debian's Python has one."""
    others = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) not in (_HERE, packages)]
    for places in ([packages], others):
        spec = importlib.machinery.PathFinder.find_spec("sitecustomize", places)
        if spec is not None and spec.loader is not None:
            from importlib import util  # late: it costs every start of the interpreter some milliseconds

            spec.loader.exec_module(util.module_from_spec(spec))


if not _is_for_ensurepip():
    _add_release(_packages())
if os.path.dirname(_packages()) != _HERE and _installs_for_the_user():
    os.environ.setdefault("PIP_BREAK_SYSTEM_PACKAGES", "1")
_run_others(_packages())
