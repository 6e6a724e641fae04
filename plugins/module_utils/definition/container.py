# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Check and describe a container as the base of a release. Pure."""

from __future__ import annotations

import re
from typing import Any, Mapping

KIND = "container"
"""The kind of base."""

RUN_SCRIPTS = "/runscripts"
"""Where the run scripts are inside of a container; the documentation of sites names it."""

USER_SOFTWARE = "/user-software"
"""Where what a container has besides its image is inside of it."""

COPIES = "images"
"""The directory of copies of images, beside the releases, of which those with the same image share one."""

DEFAULTS: dict[str, Any] = {"name": "PyTorch", "gpu": "none", "wrappers": [], "software": "directory"}
"""What a release file need not say; not in the schema, where it would become a part of every other release."""

ALWAYS = "python3"
"""The wrapper that is always there."""

EASYBUILD = "easybuild"
"""The method by which EasyBuild installs the files around the image."""

OTHER_FRONT_ENDS = {
    "podman-hpc": "Podman-HPC", "podman": "Podman", "docker": "Docker", "enroot": "Enroot", "srun": "Pyxis",
    "ch-run": "Charliecloud", "sarus": "Sarus", "shifter": "Shifter", "nerdctl": "containerd",
}
"""Commands that start containers otherwise than Singularity and Apptainer, and whose they are."""

LUA, TCL_ONLY = "Lua", "EnvironmentModules"

_VERSIONED = re.compile(r"([0-9]+(?:[.][0-9]+)+)(-.+)\Z")
_SUM = re.compile(r"\\?([0-9a-f]{64}) [ *](.+)\Z")
_UNBINDABLE = re.compile(r"[,:\s]")


def versions(release: str) -> tuple[str, str]:
    """Split a release's name as EasyBuild does: 2.2.0-rocm-5.6.1 is version 2.2.0 with suffix -rocm-5.6.1."""
    match = _VERSIONED.match(release)
    return (match.group(1), match.group(2)) if match else (release, "")


def problems(base: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Find what is wrong with a container as a base: the key, and what is the matter with it."""
    found = []
    if "image" not in base:
        found.append(("'base'", "has no image; add the name that its file has in the central place, under image.file"))
    wrappers = base.get("wrappers")
    if isinstance(wrappers, list) and ALWAYS in wrappers:
        found.append(("'base.wrappers'", "has python3, which is there in any case; remove it"))
    if "software" in base and "venv" not in base:
        found.append(("'base.software'", "says what /user-software is, which is only there for a venv; remove it"))
    return found


def site_problems(data: Mapping[str, Any], root: str, source: str = "") -> list[str]:
    """Find why a site's torchstack_images and torchstack_container cannot serve a release, one sentence each."""
    where = " in %s" % source if source else ""
    found = []
    if not str(data.get("torchstack_images") or "").startswith("/"):
        found.append(
            "'torchstack_images'%s must be an absolute path, the site's central place of images, for a release that "
            "is a container." % where)
    if _UNBINDABLE.search(root):
        found.append("The directory of the releases, %s, has a comma, a colon or a space in its name, with which no "
                     "container can be told about it; choose another one." % root)
    elif not any(_shows(bind, root) for bind in data["torchstack_container"]["binds"]):
        found.append(
            "'torchstack_container.binds'%s has nothing that shows %s to containers, where what they need of the "
            "release lies; add it, or a directory above it." % (where, root))
    command = str(data["torchstack_container"]["command"])
    words = command.split()
    other = OTHER_FRONT_ENDS.get(words[0].rpartition("/")[2]) if words else None
    if other:
        found.append(
            "'torchstack_container.command'%s is %s, and %s starts images otherwise than Singularity and Apptainer: "
            "the run scripts, the module and the image of a release are for these two. Name one of them; Apptainer "
            "runs without root, from a directory of the site's own, and makes its image of the same OCI image." % (
                where, command, other))
    easybuild = data["torchstack_container"]["easybuild"]
    if (easybuild["modules_tool"], easybuild["module_syntax"]) == (TCL_ONLY, LUA):
        found.append("'torchstack_container.easybuild'%s has Lua for Environment Modules, which reads none; set "
                     "module_syntax: Tcl." % where)
    return found


def _inside(bind: str) -> str:
    """Return the path inside of a container for an entry ``source[:target[:options]]``."""
    source, target = [*bind.split(":"), ""][:2]
    return target or source


def _shows(bind: str, path: str) -> bool:
    """Tell whether a container sees ``path`` under its own name by such an entry."""
    source = bind.split(":")[0].rstrip("/") + "/"
    return _inside(bind).rstrip("/") + "/" == source and (path.rstrip("/") + "/").startswith(source)


def checksum(text: str, name: str) -> str:
    """Find the checksum of an image in a list of ``sha256sum``; the last line for it counts."""
    found = ""
    for line in text.splitlines():
        match = _SUM.match(line.strip())
        if match and match.group(2) in (name, "./" + name):
            found = match.group(1)
    return found


def fill_defaults(base: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in a container's defaults, and leave out the keys of other kinds of base."""
    own = ("kind", "name", "python", "image", "gpu", "wrappers", "venv", "software")
    found = dict(DEFAULTS, **base)
    return {key: found[key] for key in own if key in found}


def describe(
    base: Mapping[str, Any], root: str, release: str, site: Mapping[str, Any], size: int = 0
) -> dict[str, Any]:
    """Describe a container as all later roles take it; ``base`` has the checksum, ``site`` all of its defaults."""
    base, container = fill_defaults(base), site["torchstack_container"]
    prefix = "%s/%s/base" % (root, release)
    if container["method"] == EASYBUILD:
        prefix = "%s/%s/easybuild/software/%s/%s" % (root, release, base["name"], release)
    image = _image(base["image"], site["torchstack_images"], prefix, root, container["method"])
    venv = dict(base.get("venv") or {})
    software = prefix + "/user-software" if venv else ""
    if software and base["software"] == "squashfs":
        software += ".squashfs"
    candidates = [path for path in (image["copy"], image["central"]) if path]
    name = variable(base["name"])
    return {
        "prefix": prefix, "name": base["name"], "python": prefix + "/bin/" + ALWAYS, "minor": base["python"],
        "tag": "", "platform": "", "site_packages": "", "customization": "", "tools": "", "run": "",
        "environment": {}, "pip": {},
        "search": {"PATH": [prefix + "/bin"]},
        "setenv": _variables(name, prefix, release, venv, [*container["binds"], *_binds(prefix, software)]),
        "first_file": [{
            "variables": ["SIF", "SIF" + name], "candidates": candidates,
            "missing": "There is no image for this module: %s." % _absent(candidates)}],
        "external": [RUN_SCRIPTS, *(path.rpartition("/")[0] for path in candidates)],
        "image": dict(image, bytes=size), "gpu": base["gpu"], "wrappers": list(base["wrappers"]), "venv": venv,
        "software": base["software"], "user_software": software, "command": container["command"],
        "method": container["method"], "binds": list(container["binds"]), "easybuild": dict(container["easybuild"]),
        "shared": [_inside(bind) for bind in container["binds"]],
        "rank_python": prefix + "/runscripts/conda-python-distributed", "bytecode": False,
    }


def variable(name: str) -> str:
    """Return a module's name as in EasyBuild's variables: ``EBROOT<NAME>``, ``EBVERSION<NAME>``."""
    return name.upper().replace("-", "MIN")


def _image(image: Mapping[str, Any], images: str, prefix: str, root: str, method: str) -> dict[str, Any]:
    """Say where the image lies: its copy outside of what the freeze makes read-only."""
    place = prefix if method == EASYBUILD else "%s/%s/%s" % (root, COPIES, image["sha256"][:12])
    return {
        "file": image["file"], "sha256": image["sha256"], "placement": image["placement"],
        "definition": image["definition"],
        "copy": "%s/%s" % (place, image["file"]) if image["placement"] == "copy" else "",
        "central": "%s/%s" % (images.rstrip("/"), image["file"]),
    }


def _binds(prefix: str, software: str) -> list[str]:
    """List what containers see of the release under other names."""
    found = ["%s/runscripts:%s" % (prefix, RUN_SCRIPTS)]
    if software:
        found.append("%s:%s%s" % (software, USER_SOFTWARE, ":image-src=/" if software.endswith(".squashfs") else ""))
    return found


def _variables(name: str, prefix: str, release: str, venv: Mapping[str, Any], binds: list[str]) -> dict[str, str]:
    """Return the variables that the module always sets to the same."""
    search = [RUN_SCRIPTS] + (["%s/venv/%s/bin" % (USER_SOFTWARE, venv["name"])] if venv else [])
    return {
        "RUNSCRIPTS": prefix + "/runscripts", "RUNSCRIPTS" + name: prefix + "/runscripts",
        "CONTAINERROOT": prefix, "EBROOT" + name: prefix, "EBVERSION" + name: versions(release)[0],
        "SINGULARITY_BIND": ",".join(binds), "SINGULARITYENV_PREPEND_PATH": ":".join(search),
    }


def _absent(paths: list[str]) -> str:
    return "%s is not there" % paths[0] if len(paths) == 1 else "neither %s nor %s is there" % tuple(paths)
