"""Write the site's own files into a release's base, or take out of it those that the release file no longer lists.

Or refuse wheels that would land in their places.

Nothing that something else has brought is written over: all places are looked at before the first file is written.
"""

import base64
import configparser
import contextlib
import csv
import glob
import hashlib
import importlib.metadata
import json
import os
import re
import stat
import sys
import zipfile


class Refused(Exception):
    """What failed and what to do, in sentences for an operator."""


class Base:
    """The release's base, and the record of the files that the site has there."""

    def __init__(self, settings):
        self.prefix, self.site = settings["base"], settings["site"]
        self.listing = os.path.join(settings["records"], "site_files.json")

    def recorded(self):
        """Path to its record: the digests that a file of ours has there, two of them where a run was killed."""
        try:
            with open(self.listing, encoding="utf-8") as stream:
                return {entry["path"]: entry for entry in json.load(stream)["files"]}
        except FileNotFoundError:
            return {}

    def record(self, found):
        """Replace the record as a whole, or remove it with the last file."""
        if not found:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.listing)
            return
        with open(self.listing + ".new", "w", encoding="utf-8") as stream:
            json.dump({"format": 1, "files": [found[path] for path in sorted(found)]}, stream, indent=2, sort_keys=True)
            stream.write("\n")
        os.replace(self.listing + ".new", self.listing)

    def owners(self):
        """The files below the base that packages have brought, with the names of these."""
        found = {}
        for path in glob.glob(os.path.join(self.prefix, "conda-meta", "*.json")):
            with open(path, encoding="utf-8") as stream:
                package = json.load(stream)
            found.update(dict.fromkeys(package.get("files", []), package.get("name", "a package of conda")))
        for distribution in importlib.metadata.distributions(path=[self.site]):
            for row in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
                if row:
                    path = os.path.relpath(os.path.join(self.site, row[0]), self.prefix)
                    found[path] = distribution.metadata["Name"]
        return found

    def digest(self, path):
        """The digest of the file at a path below the base; empty where there is something else, None for nothing."""
        place = os.path.join(self.prefix, path)
        try:
            if not stat.S_ISREG(os.lstat(place).st_mode):
                return ""
            with open(place, "rb") as stream:
                return hashlib.sha256(stream.read()).hexdigest()
        except (FileNotFoundError, NotADirectoryError):
            return None


def beside(path):
    """Where a file is written before it has its name."""
    return os.path.join(os.path.dirname(path), ".%s.torchstack" % os.path.basename(path))


def filled(entry):
    """What is to stand in a file."""
    content = base64.b64decode(entry["content"])
    for word, meaning in entry["words"].items():
        content = content.replace(b"{%s}" % word.encode("utf-8"), meaning.encode("utf-8"))
    return content


def refuse_collisions(base, entries, recorded):
    """Refuse a file where something else is, or that would lie outside of the base."""
    owners, prefix = base.owners(), os.path.realpath(base.prefix)
    for entry in entries:
        path, whose = entry["path"], owners.get(entry["path"])
        there = base.digest(path)
        parent = os.path.dirname(os.path.join(base.prefix, path))
        if not os.path.realpath(parent).startswith(prefix + os.sep):
            whose, path = "something outside of the release", os.path.dirname(path)
        while whose is None and not os.path.isdir(parent) and parent != base.prefix:
            if os.path.lexists(parent):
                path = os.path.relpath(parent, base.prefix)
                whose = "%s, and is no directory" % owners.get(path, "another step of the release")
            parent = os.path.dirname(parent)
        if whose is None and there is not None and path not in recorded:
            whose = "the base or another step of the release"
        if whose is not None:
            raise Refused(
                "The file %s of the release file would write over %s, which belongs to %s. Nothing was changed. "
                "Give it another path, or remove one of the two from the release." % (
                    entry["name"], os.path.join(base.prefix, path), whose))
        if there is not None and there not in recorded[path]["sha256"]:
            raise Refused(
                "The file %s of the release file was changed in %s since it was written there. Nothing was changed. "
                "Take what is there over into the release file's, and move it away." % (
                    entry["name"], os.path.join(base.prefix, path)))


def landings(wheel, packages):
    """Where the files of a wheel land below the base; ``packages`` is the directory of its packages there."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        points = [archive.read(name).decode("utf-8") for name in names if name.endswith(".dist-info/entry_points.txt")]
    for name in names:
        data = re.match(r"[^/]+\.data/(\w+)/(.+)", name)
        place = {"data": "", "scripts": "bin/"}.get(data.group(1), packages + "/") if data else packages + "/"
        yield place + (data.group(2) if data else name)
    parser = configparser.ConfigParser(delimiters="=", strict=False, interpolation=None)
    parser.optionxform = str
    for text in points:
        # pip makes no commands of what it cannot read either.
        with contextlib.suppress(configparser.Error):
            parser.read_string(text)
    for section in ("console_scripts", "gui_scripts"):
        if parser.has_section(section):
            for command in parser.options(section):
                yield "bin/" + command


def refuse_wheels(settings):
    """Refuse wheels that were fetched or built and would land where a file of the site's goes."""
    packages = os.path.relpath(settings["site"], settings["base"])
    for wheel in sorted(path for place in settings["wheels"] for path in glob.glob(glob.escape(place) + "/*.whl")):
        for path in landings(wheel, packages):
            for entry in settings["files"]:
                if (path + "/").startswith(entry["path"] + "/") or entry["path"].startswith(path + "/"):
                    raise Refused(
                        "The file %s of the release file has the place of %s, which %s of package '%s' brings. That "
                        "was not installed. Give the file another path, or remove one of the two from the release." % (
                            entry["name"], os.path.join(settings["base"], path), os.path.basename(wheel),
                            settings["package"]))


def install(settings):
    """Write all files, after a look at every place."""
    base = Base(settings)
    recorded = base.recorded()
    refuse_collisions(base, settings["files"], recorded)
    wanted = {entry["path"]: filled(entry) for entry in settings["files"]}
    done = {path: {"path": path, "sha256": [hashlib.sha256(content).hexdigest()]} for path, content in wanted.items()}
    # Written first, so that after a kill the next run knows both for its own.
    base.record({**recorded, **{
        path: dict(record, sha256=sorted({*record["sha256"], *recorded.get(path, record)["sha256"]}))
        for path, record in done.items()}})
    for entry in settings["files"]:
        path = os.path.join(base.prefix, entry["path"])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(beside(path), "wb") as stream:
            stream.write(wanted[entry["path"]])
        os.chmod(beside(path), int(entry["mode"], 8))
        os.replace(beside(path), path)
        print("%s is written." % entry["path"])
    base.record({**{path: record for path, record in recorded.items() if path not in done}, **done})


def stale(settings):
    """The paths of the files that are in the base and no longer in the release file."""
    return sorted(set(Base(settings).recorded()) - {entry["path"] for entry in settings["files"]})


def remove(settings):
    """Take out of the base what the release file no longer lists."""
    base = Base(settings)
    recorded, owners, gone = base.recorded(), base.owners(), stale(settings)
    changed = [path for path in gone if path not in owners
               and base.digest(path) not in (None, *recorded[path]["sha256"])]
    if changed:
        raise Refused(
            "%s is no longer among the files of the release file, and was changed since it was written. Nothing was "
            "removed. Move it away." % os.path.join(base.prefix, changed[0]))
    for path in gone:
        # What a package has brought there since is that package's.
        if path not in owners and base.digest(path) is not None:
            unlink(base, path)
        del recorded[path]
        base.record(recorded)


def unlink(base, path):
    """Remove a file, its bytecode, and the directories that are empty without it, but for those that every base has."""
    place = os.path.join(base.prefix, path)
    stem, suffix = os.path.splitext(os.path.basename(place))
    if suffix == ".py":
        compiled = glob.escape(os.path.join(os.path.dirname(place), "__pycache__", stem)) + ".*.pyc"
        for bytecode in glob.glob(compiled):
            os.unlink(bytecode)
    os.unlink(place)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside(place))
    directory = os.path.dirname(place)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.join(directory, "__pycache__"))
    while directory not in (base.prefix, base.site) and os.path.dirname(directory) != base.prefix:
        try:
            os.rmdir(directory)
        except OSError:
            return
        directory = os.path.dirname(directory)


def main(mode):
    """Carry out one of the modes with the settings on standard input, which are JSON."""
    settings = json.load(sys.stdin)
    os.umask(0o022)
    try:
        if mode == "stale":
            print(json.dumps(stale(settings)))
        else:
            {"install": install, "remove": remove, "wheels": refuse_wheels}[mode](settings)
    except Refused as error:
        sys.exit("ERROR: %s" % error)
    except OSError as error:
        sys.exit("ERROR: %s cannot be written: %s. Correct that, and roll out again." % (
            error.filename2 or error.filename, error.strerror))


if __name__ == "__main__":
    main(sys.argv[1])
