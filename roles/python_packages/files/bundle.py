"""Bring the wheels of a bundle into a release's base together, by the judgement that one package has.

Lies beside package.py, which has it.
"""

import glob
import json
import os
import re
import subprocess
import sys

import package

COMPILE = """
import concurrent.futures, json, multiprocessing, os, py_compile, sys

def compile_batch(paths):
    for path in paths:
        py_compile.compile(
            path, doraise=False, quiet=2, optimize=0, invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)

paths = json.load(sys.stdin)
with concurrent.futures.ProcessPoolExecutor(
    len(os.sched_getaffinity(0)), multiprocessing.get_context("fork")
) as pool:
    list(pool.map(compile_batch, [paths[start:start + 64] for start in range(0, len(paths), 64)]))
"""


def check_wheels(settings, base):
    """The wheels that were fetched, when they may be installed together, and those that stay as they are."""
    paths = sorted(glob.glob(os.path.join(settings["stage"], "fetched", "wheel", "*.whl")))
    wheels = [package.Wheel(path, base.minor) for path in paths]
    named = {}
    for wheel in wheels:
        if wheel.name not in settings["owns"] or wheel.name in named:
            raise package.Refused("%s %s is not what its lock names. Let the step that fetches it run again." % (
                wheel.name, wheel.version))
        named[wheel.name] = wheel.version
    others = package.refuse_replacements(settings, base, named)
    package.refuse_collisions(settings, base, wheels, others)
    left_out = {package.canonical(name) for name in settings["left_out"]}
    for wheel in wheels:
        wheel.requires = [text for text in wheel.requires if required(text) not in left_out]
    package.judge_requirements(settings, wheels, others)
    return wheels, others


def required(requirement):
    """The canonical name of what a requirement asks for."""
    return package.canonical(re.match(r"[\w.-]*", requirement.strip()).group())


def compile_modules(base, wheels):
    """Compile the Python files of the wheels to bytecode, as pip does, which takes one processor for it.

    What cannot be compiled is left, as pip leaves it: the freeze names it.
    """
    paths = sorted(os.path.join(base.prefix, name) for wheel in wheels for name in wheel.files if name.endswith(".py"))
    done = subprocess.run(
        [base.python, "-I", "-W", "ignore", "-c", COMPILE], input=json.dumps(paths), text=True, check=False)
    if done.returncode:
        raise package.Refused("Python ended with code %d while it compiled modules to bytecode. Its log is above." % (
            done.returncode))


def install(settings):
    """Install the wheels into the base, and find there what was asked for; or leave the base as it was."""
    base = package.Base(settings)
    wheels, others = check_wheels(settings, base)
    names = [wheel.name for wheel in wheels]
    own = {wheel.name: wheel.version for wheel in wheels}
    former = base.recorded().get(settings["key"], {}).get("distributions", {})
    record = {
        "name": settings["name"], "version": settings["reports"], "finished": False, "licence": settings["licence"],
        "origin": settings["origin"], "distributions": {**former, **own}, "wheel": None,
    }
    constraints = os.path.join(settings["stage"], "constraints.txt")
    with open(constraints, "w", encoding="utf-8") as stream:
        stream.writelines("%s==%s\n" % (name, found["version"]) for name, found in sorted(others.items()))
    before = base.distributions()
    # Written first, so that after a kill the next run knows these for its own.
    base.record(settings["key"], record)
    base.sweep(names)
    try:
        code = base.pip(
            "install", *base.own_pip["options"], "--no-compile", "--no-index", "--force-reinstall",
            "--constraint", constraints, *(wheel.path for wheel in wheels)) if wheels else 0
        if code:
            raise package.Refused("pip could not install package '%s' into %s. Its log is above." % (
                settings["name"], base.prefix))
        compile_modules(base, wheels)
        package.refuse_changes(settings, before, base.distributions(), names)
        package.verify(settings, base, wheels)
    except package.Refused as error:
        try:
            base.uninstall(record["distributions"])
        except package.Refused as other:
            raise package.Refused("%s Then %s" % (error, other)) from error
        base.record(settings["key"], None)
        raise package.Refused("%s All of it was taken out of the base again." % error) from error
    base.record(settings["key"], dict(record, distributions=own, finished=True))
    print("%s is installed: %d packages." % (settings["name"].capitalize(), len(wheels)))


WORDS = (
    ("Package 'bundle ", "Bundle '"), ("package 'bundle ", "bundle '"),
    ("to its requires or to an entry before it", "to its packages, and make its lock anew"),
)
"""What the judgement says of a package, and of a bundle."""


def main(text):
    """Install what the settings in ``text``, which is JSON, say."""
    settings = json.loads(text)
    os.umask(0o022)
    try:
        install(settings)
    except package.Refused as error:
        sentence = str(error)
        for of_package, of_bundle in WORDS:
            sentence = sentence.replace(of_package, of_bundle)
        sys.exit("ERROR: %s" % sentence)


if __name__ == "__main__":
    main(sys.argv[1])
