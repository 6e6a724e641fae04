"""Bring the wheels of one package into a release's base, or take packages out of it.

What would land is compared with what is there before the base is touched: nothing but the package itself and what it
declares may change.
"""

import contextlib
import csv
import glob
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import HeaderParser

VERIFY = """
import importlib, importlib.metadata, json, sys

asked, answer = json.loads(sys.argv[1]), sys.argv[2]
found = {"versions": {}, "modules": {}, "errors": {}}
for name in asked["distributions"]:
    found["versions"][name] = importlib.metadata.version(name)
for module in asked["imports"]:
    try:
        found["modules"][module] = getattr(importlib.import_module(module), "__file__", None)
    except BaseException as error:
        found["errors"][module] = "%s: %s" % (type(error).__name__, error)
with open(answer, "w") as stream:
    json.dump(found, stream)
"""


class Refused(Exception):
    """What failed and what to do, in sentences for an operator."""


class Wheel:
    """What a wheel would install."""

    def __init__(self, path, minor):
        self.path = path
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
            inside = [name for name in names if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
            if len(inside) != 1:
                raise Refused("%s has %d METADATA files, so it is no wheel. Take another one." % (path, len(inside)))
            metadata = HeaderParser().parsestr(archive.read(inside[0]).decode("utf-8"))
            points = inside[0].replace("METADATA", "entry_points.txt")
            scripts = console_scripts(archive.read(points).decode("utf-8")) if points in names else []
        self.name = canonical(metadata["Name"])
        self.version = metadata["Version"]
        self.requires = metadata.get_all("Requires-Dist") or []
        self.files = {landing(name, minor, path) for name in names} | {"bin/" + script for script in scripts}


def canonical(name):
    """A distribution's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def console_scripts(text):
    """The commands that a distribution's entry points make."""
    section, found = "", []
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("["):
            section = line.strip("[]").strip()
        elif "=" in line and not line.startswith(("#", ";")) and section in ("console_scripts", "gui_scripts"):
            found.append(line.partition("=")[0].strip())
    return found


def landing(name, minor, wheel):
    """Where a file of a wheel lands below the base."""
    if name.startswith("/") or ".." in name.split("/"):
        raise Refused("%s would write outside of the base, to %s. Take it from somewhere else." % (wheel, name))
    data = re.match(r"[^/]+\.data/(\w+)/(.+)", name)
    if data and data.group(1) == "data":
        return data.group(2)
    if data and data.group(1) == "scripts":
        return "bin/" + data.group(2)
    if data and data.group(1) == "headers":
        return "include/python%s/%s" % (minor, data.group(2))
    return "lib/python%s/site-packages/%s" % (minor, data.group(2) if data else name)


class Base:
    """The release's base: its distributions, and the records of those that packages brought."""

    def __init__(self, settings):
        self.prefix = settings["base"]
        self.site = settings["site"]
        self.records = os.path.join(settings["records"], "packages")
        self.listing = os.path.join(settings["records"], "packages.json")
        self.minor = settings["minor"]
        self.of_conda = set()
        for path in glob.glob(os.path.join(self.prefix, "conda-meta", "*.json")):
            with open(path, encoding="utf-8") as stream:
                self.of_conda.update(json.load(stream).get("files", []))
        self.python = settings["python"]
        self.customization = settings["customization"]
        self.process = settings["process"]
        self.own_pip = settings["pip"]

    def distributions(self):
        """Canonical name to version, digest of the list of files, and the files below the base."""
        found = {}
        for distribution in importlib.metadata.distributions(path=[self.site]):
            name = distribution.metadata["Name"]
            if name:
                record = distribution.read_text("RECORD") or ""
                found[canonical(name)] = {
                    "version": distribution.version,
                    "record": hashlib.sha256(record.encode("utf-8")).hexdigest(),
                    "files": {
                        os.path.relpath(os.path.join(self.site, row[0]), self.prefix)
                        for row in csv.reader(record.splitlines()) if row
                    },
                }
        return found

    def recorded(self):
        """Package to its record, finished or not."""
        found = {}
        for path in sorted(glob.glob(os.path.join(self.records, "*.json"))):
            with open(path, encoding="utf-8") as stream:
                found[os.path.basename(path)[: -len(".json")]] = json.load(stream)
        return found

    def record(self, package, content):
        """Write or, with None, remove the record of a package, and write the list of all."""
        os.makedirs(self.records, exist_ok=True)
        path = os.path.join(self.records, package + ".json")
        if content is None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        else:
            write(path, content)
        finished = [record for record in self.recorded().values() if record["finished"]]
        write(self.listing, {"format": 1, "packages": finished})

    def pip(self, *arguments):
        """Run pip as the base wants it. The exit code."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        environment.update(self.own_pip["environment"], PIP_NO_INPUT="1", PIP_DISABLE_PIP_VERSION_CHECK="1")
        command = [*self.own_pip["command"], *arguments]
        return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False).returncode

    def owns(self, path):
        """Whether a path below the base is of its Python, of its search path, or of what conda installed."""
        if re.match(r"site/|conda-meta/|bin/python[\d.]*\Z", path) or path in self.of_conda:
            return True
        return path == os.path.relpath(self.customization, self.prefix) + "/sitecustomize.py"

    def uninstall(self, names):
        """Take out those of the distributions that are in the base."""
        self.sweep(names)
        present = sorted(set(names) & set(self.distributions()))
        if present and self.pip("uninstall", "--yes", *present):
            raise Refused("pip could not uninstall %s from %s. Its log is above." % (", ".join(present), self.prefix))

    def sweep(self, names):
        """Remove what a killed pip left of these distributions: a list of files is written last, so it lacks that."""
        for path in glob.glob(os.path.join(self.site, "*.dist-info")):
            name = canonical(os.path.basename(path)[: -len(".dist-info")].partition("-")[0])
            if name in names and not os.path.exists(os.path.join(path, "RECORD")):
                shutil.rmtree(path)


def write(path, content):
    """Replace a record as a whole."""
    with open(path + ".new", "w", encoding="utf-8") as stream:
        json.dump(content, stream, indent=2, sort_keys=True)
        stream.write("\n")
    os.replace(path + ".new", path)


def owner_of(name, recorded, package):
    """Who else brought a distribution, in words."""
    for other, record in recorded.items():
        if other != package and name in record["distributions"]:
            return "package '%s' installed" % other
    return "the base of the release has"


def refuse_replacements(settings, base, wanted):
    """Refuse to bring a distribution that is there already and not this package's own.

    Args:
        wanted: canonical name to the version that would land.
    """
    recorded = base.recorded()
    own = recorded.get(settings["key"], {}).get("distributions", {})
    there = base.distributions()
    for name, version in wanted.items():
        if name in there and name not in own:
            raise Refused(
                "Package '%s' would replace %s %s, which %s, by %s. Nothing was changed. Remove %s from that entry, "
                "or from where it is installed now." % (
                    settings["name"], name, there[name]["version"], owner_of(name, recorded, settings["key"]),
                    version, name)
            )
    return {name: found for name, found in there.items() if name not in own}


def prepare(settings):
    """Before anything is fetched: refuse what the names tell already, and hold all that is there for pip."""
    base = Base(settings)
    if settings["config_settings"]:
        import pip

        if tuple(int(part) for part in re.findall(r"\d+", pip.__version__)[:2]) < (23, 3):
            raise Refused("config_settings needs pip 23.3, and the build tools have %s. Raise pip in locks.tools." % (
                pip.__version__))
    others = refuse_replacements(settings, base, settings["owns"])
    with open(os.path.join(settings["stage"], "constraints.txt"), "w", encoding="utf-8") as stream:
        for name, found in sorted(others.items()):
            stream.write("%s==%s\n" % (name, found["version"]))


def check_wheels(settings, base):
    """The wheels that were fetched or built, the package's own first, when they may be installed."""
    paths = sorted(glob.glob(os.path.join(settings["stage"], "wheels", "*.whl")))
    wheels = sorted((Wheel(path, base.minor) for path in paths), key=lambda wheel: wheel.name != settings["key"])
    named = [wheel for wheel in wheels if wheel.name == settings["key"]]
    if len(named) != 1:
        raise Refused("Package '%s' gave %s, and no wheel of its name. Correct its name in the release file." % (
            settings["name"], ", ".join(os.path.basename(path) for path in paths) or "no wheel"))
    if wheels[0].version != settings["reports"]:
        raise Refused(
            "%s %s was asked for, and the wheel is of version %s. Nothing was changed. Correct version or "
            "version_reports in the release file, or the build variables that give the wheel its version." % (
                settings["name"], settings["reports"], wheels[0].version)
        )
    for wheel in wheels:
        if wheel.name not in settings["owns"]:
            raise Refused("Package '%s' would also install %s %s. Declare it under requires, or leave it out." % (
                settings["name"], wheel.name, wheel.version))
    others = refuse_replacements(settings, base, {wheel.name: wheel.version for wheel in wheels})
    refuse_collisions(settings, base, wheels, others)
    judge_requirements(settings, wheels, others)
    return wheels


def refuse_collisions(settings, base, wheels, others):
    """Refuse a wheel that would write over files of other distributions, of another wheel, or of the base itself."""
    owners = {path: name for name, found in others.items() for path in found["files"]}
    for wheel in wheels:
        for path in sorted(wheel.files):
            owner = owners.get(path)
            if owner is None and base.owns(path):
                owner = "the base itself"
            if owner is not None:
                raise Refused(
                    "Package '%s' would write over %s, which belongs to %s. Nothing was changed. Remove one of the two "
                    "from the release." % (settings["name"], os.path.join(base.prefix, path), owner)
                )
        owners.update((path, wheel.name) for path in wheel.files)


def judge_requirements(settings, wheels, others):
    """Say, or with ``no_deps: false`` refuse, what the wheels' metadata asks for and the base would not have."""
    from pip._vendor.packaging.requirements import Requirement

    versions = {name: found["version"] for name, found in others.items()}
    versions.update((wheel.name, wheel.version) for wheel in wheels)
    unmet = []
    for wheel in wheels:
        for text in wheel.requires:
            requirement = Requirement(text)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
                continue
            version = versions.get(canonical(requirement.name))
            if version is None or not requirement.specifier.contains(version, prereleases=True):
                unmet.append("%s wants %s%s, and the release has %s" % (
                    wheel.name, requirement.name, requirement.specifier, version or "none"))
    if unmet and not settings["no_deps"]:
        raise Refused(
            "Package '%s': %s. Nothing was changed. Add what is missing to its requires or to an entry before it, or "
            "say no_deps: true if it works without." % (settings["name"], "; ".join(unmet))
        )
    for sentence in unmet:
        print("Not asked for by the release: %s." % sentence)


def install(settings):
    """Install the wheels into the base, and find there what was asked for."""
    base = Base(settings)
    wheels = check_wheels(settings, base)
    before = base.distributions()
    names = [wheel.name for wheel in wheels]
    former = base.recorded().get(settings["key"], {})
    record = {
        "name": settings["name"],
        "version": settings["reports"],
        "finished": False,
        "licence": settings["licence"],
        "origin": settings["origin"],
        "distributions": {**former.get("distributions", {}), **{wheel.name: wheel.version for wheel in wheels}},
        "wheel": former.get("wheel"),
    }
    # Written first, so that after a kill the next run knows these for its own.
    base.record(settings["key"], record)
    base.sweep(names)
    try:
        code = base.pip(
            "install", *base.own_pip["options"], "--no-index", "--force-reinstall", "--constraint",
            os.path.join(settings["stage"], "constraints.txt"), *(wheel.path for wheel in wheels))
        if code:
            raise Refused("pip could not install package '%s' into %s. Its log is above." % (
                settings["name"], base.prefix))
        refuse_changes(settings, before, base.distributions(), names)
        verify(settings, base, wheels)
    except Refused as error:
        try:
            base.uninstall(record["distributions"])
        except Refused as other:
            raise Refused("%s Then %s" % (error, other)) from error
        base.record(settings["key"], None)
        raise Refused("%s It was taken out of the base again." % error) from error
    keep(settings, wheels[0], record)
    record["distributions"] = {wheel.name: wheel.version for wheel in wheels}
    record["finished"] = True
    base.record(settings["key"], record)
    print("%s %s is installed." % (settings["name"], settings["reports"]))


def refuse_changes(settings, before, after, names):
    """Refuse an installation after which any other distribution is not what it was."""
    for name in sorted((set(before) | set(after)) - set(names)):
        was, now = before.get(name), after.get(name)
        if was is None or now is None or was["record"] != now["record"] or was["version"] != now["version"]:
            raise Refused("Package '%s' changed %s from %s to %s. Let the step that installs %s run again." % (
                settings["name"], name, was["version"] if was else "none", now["version"] if now else "none", name))


def verify(settings, base, wheels):
    """In the environment of the release: the versions reported, and the modules imported from the base."""
    place = os.path.join(settings["stage"], "verify")
    os.makedirs(place, exist_ok=True)
    program, answer = os.path.join(place, "verify.py"), os.path.join(place, "found.json")
    with open(program, "w", encoding="utf-8") as stream:
        stream.write(VERIFY)
    environment = {name: value for name, value in os.environ.items() if name not in settings["environment"]}
    environment.update(
        base.process, PATH="%s/bin:%s" % (base.prefix, environment.get("PATH", "/usr/bin:/bin")),
        PYTHONDONTWRITEBYTECODE="1",
    )
    asked = {"distributions": [wheel.name for wheel in wheels], "imports": settings["imports"]}
    with contextlib.suppress(FileNotFoundError):
        os.unlink(answer)
    code = subprocess.run(
        [base.python, program, json.dumps(asked), answer],
        env=environment, stdin=subprocess.DEVNULL, check=False,
    ).returncode
    if code or not os.path.exists(answer):
        raise Refused("Python ended with code %d while it imported %s of package '%s'." % (
            code, ", ".join(settings["imports"]), settings["name"]))
    with open(answer, encoding="utf-8") as stream:
        found = json.load(stream)
    for wheel in wheels:
        if found["versions"][wheel.name] != wheel.version:
            raise Refused("%s %s was installed, and Python finds %s. Look for another one on its search path." % (
                wheel.name, wheel.version, found["versions"][wheel.name]))
    for module, error in found["errors"].items():
        raise Refused("Package '%s' cannot import %s: %s." % (settings["name"], module, error.rstrip(".")))
    for module, path in found["modules"].items():
        if path and not os.path.realpath(path).startswith(os.path.realpath(base.prefix) + os.sep):
            raise Refused("Package '%s': %s was imported from %s, outside of the release." % (
                settings["name"], module, path))


def keep(settings, wheel, record):
    """Keep the wheel that was built, in place of the one of an earlier build."""
    forget_wheel(settings["wheels"], record)
    if settings["built"]:
        record["wheel"] = os.path.basename(wheel.path)
        digest = hashlib.sha256()
        with open(wheel.path, "rb") as stream:
            for block in iter(lambda: stream.read(1 << 20), b""):
                digest.update(block)
        record["sha256"] = digest.hexdigest()
        os.makedirs(settings["wheels"], exist_ok=True)
        shutil.copyfile(wheel.path, os.path.join(settings["wheels"], record["wheel"]))


def forget_wheel(directory, record):
    """Remove the kept wheel of a record."""
    if record.get("wheel"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(directory, record["wheel"]))
    record["wheel"] = None


def stale(settings):
    """Package to what of it the release file no longer asks for: distributions, and whether it is gone as a whole."""
    base = Base(settings)
    found = {}
    for package, record in base.recorded().items():
        claims = settings["claims"].get(package)
        dropped = {name: version for name, version in record["distributions"].items() if name not in (claims or [])}
        if dropped or claims is None:
            found[package] = {"distributions": dropped, "gone": claims is None}
    return found


def remove(settings):
    """Take out of the base what the release file no longer asks for."""
    base = Base(settings)
    recorded = base.recorded()
    for package, gone in stale(settings).items():
        record = recorded[package]
        # Taken out of the records only after it was taken out of the base, so that a killed removal is done again.
        base.uninstall(gone["distributions"])
        if gone["gone"]:
            forget_wheel(settings["wheels"], record)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(settings["records"], "steps", "package-" + package, "stamp.json"))
            base.record(package, None)
        else:
            record["distributions"] = {
                name: version for name, version in record["distributions"].items()
                if name not in gone["distributions"]
            }
            base.record(package, record)


def main(mode, text):
    """Carry out one of the modes with the settings in ``text``, which is JSON."""
    settings = json.loads(text)
    os.umask(0o022)
    try:
        if mode == "stale":
            print(json.dumps(stale(settings)))
        else:
            {"prepare": prepare, "install": install, "remove": remove}[mode](settings)
    except Refused as error:
        sys.exit("ERROR: %s" % error)


if __name__ == "__main__":
    main(*sys.argv[1:])
