# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The packages of a release: what an entry says reaches its build, and nothing but the package moves."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess

import pytest
import yaml
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import packages, release_file
from support import sites
from support.console import changed_in
from support.package_release import CHECKOUT, PROGRAM, Release, entry, git, locked, make_wheel


def test_s11_a_package_that_would_move_numpy_or_torch_is_refused_and_nothing_is_touched(release):
    older = make_wheel(release.wheels, "numpy", "1.26.4")
    plain = make_wheel(release.wheels, "moves", "1.0", requires=["numpy<2"])
    before = release.snapshot()
    code, said = release.roll_out([entry(plain, requires=locked(older))])
    assert code != 0
    assert "Package 'moves' would replace numpy 2.4.6, which the base of the release has, by 1.26.4." in said
    assert "Nothing was changed." in said
    assert release.snapshot() == before
    assert not (release.records / "packages.json").exists()

    code, said = release.roll_out([entry(plain, no_deps=False)])
    assert code != 0
    assert "moves wants numpy<2, and the release has 2.4.6. Nothing was changed." in said
    assert release.snapshot() == before


@pytest.mark.parametrize(
    ("name", "files", "words"),
    [
        ("torch", None, "would replace torch 2.13.0+cpu, which the base of the release has, by 2.13.0"),
        ("hides", {"numpy/__init__.py": "", "hides.py": ""}, "numpy/__init__.py, which belongs to numpy"),
        ("takes", {"takes-2.13.0.data/data/bin/python3": ""}, "bin/python3, which belongs to the base itself"),
        ("escapes", {"../../../../outside.py": ""}, "would write outside of the base"),
    ],
)
def test_s11_a_wheel_that_would_write_over_something_else_is_refused_before_it_lands(release, name, files, words):
    wheel = make_wheel(release.wheels, name, "2.13.0", files)
    before = release.snapshot()
    code, said = release.program("install", entry(wheel, imports=[]), wheel)
    assert code == 1
    assert words in said
    assert release.snapshot() == before


def test_s11_a_command_of_another_distribution_is_not_replaced(release):
    release.put(make_wheel(release.wheels, "former", "1.0", commands=["tool"]))
    before = release.snapshot()
    wheel = make_wheel(release.wheels, "latter", "1.0", commands=["tool"])
    code, said = release.program("install", entry(wheel), wheel)
    assert code == 1
    assert "bin/tool, which belongs to former" in said
    assert release.snapshot() == before


def test_s11_another_build_of_the_same_version_is_a_change():
    spec = importlib.util.spec_from_file_location("package", PROGRAM)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    before = {"torch": {"version": "2.13.0", "record": "a"}, "mine": {"version": "1.0", "record": "b"}}
    after = {**before, "mine": {"version": "2.0", "record": "c"}}
    program.refuse_changes({"name": "mine"}, before, after, ["mine"])
    for torch in ({"version": "2.13.0", "record": "d"}, {"version": "2.13.0+cpu", "record": "a"}):
        with pytest.raises(program.Refused, match=r"Package 'mine' changed torch from 2\.13\.0 to "):
            program.refuse_changes({"name": "mine"}, before, {**after, "torch": torch}, ["mine"])


def test_s11_a_wheel_that_nobody_declared_is_refused(release):
    wheel, other = (make_wheel(release.wheels, name, "1.0") for name in ("declared", "undeclared"))
    code, said = release.program("install", entry(wheel), wheel, other)
    assert code == 1
    assert "Package 'declared' would also install undeclared 1.0." in said
    assert release.installed() == ["numpy-2.4.6", "torch-2.13.0+cpu"]


def test_s06_a_wheel_of_another_version_than_the_one_asked_for_is_refused(release):
    wheel = make_wheel(release.wheels, "tiny", "2.0.0a0+gite9ebda2")
    code, said = release.program("install", entry(wheel, version="2.0.0"), wheel)
    assert code == 1
    assert "tiny 2.0.0 was asked for, and the wheel is of version 2.0.0a0+gite9ebda2." in said
    assert "tiny-2.0.0a0+gite9ebda2" not in release.installed()
    declared = entry(wheel, version="2.0.0", version_reports="2.0.0a0+gite9ebda2")
    assert release.program("install", declared, wheel)[0] == 0
    assert "tiny-2.0.0a0+gite9ebda2" in release.installed()


def test_a_package_that_cannot_be_imported_is_taken_out_again(release):
    wheel = make_wheel(release.wheels, "broken", "1.0", {"broken.py": "raise ImportError('libx.so => not found')\n"})
    before = release.snapshot()
    code, said = release.program("install", entry(wheel), wheel)
    assert code == 1
    assert "Package 'broken' cannot import broken: ImportError: libx.so => not found." in said
    assert release.snapshot() == before
    assert json.loads((release.records / "packages.json").read_text())["packages"] == []


def test_an_installation_that_was_killed_is_done_again(release):
    wheel = make_wheel(release.wheels, "tiny", "1.0")
    asked = entry(wheel)
    assert release.program("install", asked, wheel)[0] == 0
    record = release.records / "packages" / "tiny.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "finished": False}))
    (release.site / "tiny-1.0.dist-info" / "RECORD").unlink()
    code, said = release.program("install", asked, wheel)
    assert code == 0, said
    assert (release.site / "tiny-1.0.dist-info" / "RECORD").exists()
    assert json.loads(record.read_text())["finished"] is True


SETUP = """
import json, os, sys
import helper, torch
from setuptools import setup

flags = [word for word in sys.argv if word in ("--cpp_ext", "--cuda_ext")]
sys.argv[:] = [word for word in sys.argv if word not in flags]
names = ("DS_BUILD_OPS", "CFLAGS", "CPPFLAGS", "LDFLAGS", "CC")
os.makedirs("reached", exist_ok=True)
with open("reached/__init__.py", "w") as stream:
    stream.write("facts = %r" % {
        "flags": flags, "environment": {name: os.environ.get(name) for name in names}, "torch": torch.version,
        "helper": helper.version, "source": open("source.txt").read().strip(),
        "submodule": open("part/part.txt").read(),
    })
setup(name="reached", version="1.0", packages=["reached"])
"""


BACKEND = """
import importlib.util, os, zipfile

def build_wheel(directory, config_settings=None, metadata_directory=None):
    info = "isolated-1.0.dist-info/"
    seen = {"torch": importlib.util.find_spec("torch") is not None, "settings": config_settings}
    files = {
        "isolated.py": "facts = %r" % seen,
        info + "METADATA": "Metadata-Version: 2.1\\nName: isolated\\nVersion: 1.0\\n",
        info + "WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    files[info + "RECORD"] = "".join(name + ",,\\n" for name in [*files, info + "RECORD"])
    with zipfile.ZipFile(os.path.join(directory, "isolated-1.0-py3-none-any.whl"), "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return "isolated-1.0-py3-none-any.whl"
"""


@pytest.fixture(scope="module")
def reached(tmp_path_factory, tools, ansible_environment):
    """What a build from a git commit saw, and the release that it was built for."""
    place = tmp_path_factory.mktemp("reached")
    release = Release(place, tools, ansible_environment)
    part, project, isolated = place / "part", place / "project", place / "isolated"
    for directory in (part, project, isolated):
        directory.mkdir()
        git(directory, "init", "--quiet", "--initial-branch=main")
    (part / "part.txt").write_text("first")
    git(part, "add", "part.txt")
    git(part, "commit", "--quiet", "--message=first")
    (project / "setup.py").write_text(SETUP)
    (project / "source.txt").write_text("wanted\n")
    git(project, "submodule", "--quiet", "add", str(part), "part")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "--message=wanted")
    commit = git(project, "rev-parse", "HEAD")
    (project / "source.txt").write_text("newer\n")
    git(project, "commit", "--quiet", "--all", "--message=newer")
    (part / "part.txt").write_text("second")
    git(part, "commit", "--quiet", "--all", "--message=second")
    (isolated / "backend.py").write_text(BACKEND)
    (isolated / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n')
    git(isolated, "add", ".")
    git(isolated, "commit", "--quiet", "--message=first")
    alone = {
        "name": "isolated", "version": "1.0", "licence": "MIT", "imports": ["isolated"], "build_isolation": True,
        "repository": str(isolated), "commit": git(isolated, "rev-parse", "HEAD"), "config_settings": {"a": "b c"},
    }
    asked = {
        "name": "reached", "version": "1.0", "licence": "MIT", "imports": ["reached"],
        "repository": str(project), "commit": commit, "index": str(release.wheels),
        "build_requires": locked(make_wheel(release.wheels, "helper", "3.0")),
        "config_settings": {"--build-option": ["--cpp_ext", "--cuda_ext"]},
        "environment": {
            "DS_BUILD_OPS": "1", "CPPFLAGS": "-I{base}/include -DA={B} -DC=${base}",
            "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.file.allow", "GIT_CONFIG_VALUE_0": "always",
        },
    }
    code, said = release.roll_out(
        [asked, alone], LDFLAGS="-Wl,-rpath,/caller", CFLAGS="-DCALLER", GIT_CONFIG_GLOBAL="/dev/null", CC="callers-cc")
    log = release.records / "steps" / "package-reached" / "log"
    assert code == 0, said[-1000:] + (log.read_text()[-3000:] if log.exists() else "")
    namespace = {}
    exec((release.site / "reached" / "__init__.py").read_text(), namespace)
    release.asked = [asked, alone]
    return release, namespace["facts"]


def test_s12_commit_environment_config_settings_and_isolation_reach_the_build(reached):
    release, facts = reached
    assert facts["source"] == "wanted"
    assert facts["submodule"] == "first"
    assert facts["flags"] == ["--cpp_ext", "--cuda_ext"]
    assert facts["environment"]["DS_BUILD_OPS"] == "1"
    assert facts["environment"]["CPPFLAGS"] == "-I%s/include -DA={B} -DC=${base}" % release.base
    # Not isolated: the build sees the torch of the release, and of its own what build_requires locks.
    assert facts["torch"] == "2.13.0+cpu"
    assert facts["helper"] == "3.0"
    assert release.installed() == ["isolated-1.0", "numpy-2.4.6", "reached-1.0", "torch-2.13.0+cpu"]
    namespace = {}
    exec((release.site / "isolated.py").read_text(), namespace)
    assert namespace["facts"] == {"torch": False, "settings": {"a": "b c"}}


def test_s11_pip_gets_everything_that_the_base_has_as_constraints(reached):
    release, _facts = reached
    stages = release.prefix / "src" / "packages"
    assert (stages / "reached" / "constraints.txt").read_text() == "numpy==2.4.6\ntorch==2.13.0+cpu\n"
    assert "reached==1.0\n" in (stages / "isolated" / "constraints.txt").read_text()
    assert "--constraint" in (release.records / "steps" / "package-reached" / "script.sh").read_text()


def test_s01_linker_flags_of_the_caller_do_not_reach_the_build(reached):
    _release, facts = reached
    assert facts["environment"]["LDFLAGS"] is None
    assert facts["environment"]["CFLAGS"] is None
    assert facts["environment"]["CC"] == "cc"


def test_the_built_wheel_is_kept_and_recorded(reached):
    release, _facts = reached
    listing = json.loads((release.records / "packages.json").read_text())
    record = next(record for record in listing["packages"] if record["name"] == "reached")
    kept = release.prefix / "wheels" / record["wheel"]
    assert record["sha256"] == hashlib.sha256(kept.read_bytes()).hexdigest()
    assert (record["licence"], record["distributions"]) == ("MIT", {"reached": "1.0"})
    assert record["origin"]["commit"] == release.asked[0]["commit"]


def test_a_second_run_does_nothing_and_a_check_says_so(reached):
    release, _facts = reached
    for arguments in ([], ["--check"]):
        code, said = release.roll_out(release.asked, *arguments)
        assert code == 0, said
        assert changed_in(said) == 0, said


def test_what_the_file_no_longer_lists_is_uninstalled_and_said(release):
    first, second, helper = (make_wheel(release.wheels, name, "1.0") for name in ("first", "second", "helper"))
    newer = make_wheel(release.wheels, "second", "2.0")
    code, said = release.roll_out([entry(first), entry(second, requires=locked(helper), needs=[])])
    assert code == 0, said
    assert release.installed() == ["first-1.0", "helper-1.0", "numpy-2.4.6", "second-1.0", "torch-2.13.0+cpu"]

    changed = [entry(newer)]
    before = release.snapshot()
    code, said = release.roll_out(changed, "--check")
    assert code == 0, said
    assert "to be uninstalled: first 1.0 (of package first), helper 1.0 (of package second)." in said
    assert release.snapshot() == before

    code, said = release.roll_out(changed)
    assert code == 0, said
    assert "uninstalled now: first 1.0 (of package first), helper 1.0 (of package second)." in said
    assert release.installed() == ["numpy-2.4.6", "second-2.0", "torch-2.13.0+cpu"]
    assert not (release.records / "steps" / "package-first" / "stamp.json").exists()
    assert [record["name"] for record in json.loads((release.records / "packages.json").read_text())["packages"]] == [
        "second"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"comit": "0"}, "Unknown key 'packages[0].comit' in releases/x.yml; did you mean 'commit'?"),
        ({"licence": None}, "'packages[0].licence' in releases/x.yml must be text, but it is empty"),
        ({"repository": "https://example.org/a", "commit": "v1"}, "it must be 40 hexadecimal digits"),
        ({"index": "wheels"}, "it must be the address of an index or the absolute path of a directory"),
        ({"imports": ["a b"]}, "it must be the name of a module"),
        ({"archive": "https://example.org/a.tar.gz", "sha256": "0" * 64},
         "Package 'einops' in releases/x.yml has more than one origin, lock and archive; keep one."),
        ({"name": "numpy"}, "would replace numpy, which locks.base installs; remove it from one of the two."),
    ],
)
def test_an_entry_that_means_nothing_is_refused_with_the_release_file(change, words):
    specs = yaml.safe_load((CHECKOUT / "roles" / "release" / "meta" / "argument_specs.yml").read_text())
    schema = specs["argument_specs"]["release_file"]["options"]
    definition = sites.load_release(CHECKOUT / "inventories/local/releases/2026-11-20.yml")

    def problems():
        return release_file.problems(definition, schema, "releases/x.yml")

    assert problems() == []
    definition["packages"][0].update(change)
    assert words in " ".join(problems())


def test_the_defaults_of_an_entry_are_those_of_the_release_file():
    specs = yaml.safe_load((CHECKOUT / "roles" / "release" / "meta" / "argument_specs.yml").read_text())
    options = specs["argument_specs"]["release_file"]["options"]["packages"]["options"]
    assert {name: option["default"] for name, option in options.items() if "default" in option} == packages.DEFAULTS


def test_a_site_s_own_files_come_as_a_wheel_with_a_digest_and_every_python_of_the_release_sees_them(release, tmp_path):
    snooper = "import atexit, sys\natexit.register(lambda: print('used: %s' % ('json' in sys.modules)))\n"
    kernel = "share/jupyter/kernels/torchstack/kernel.json"
    wheel = make_wheel(release.wheels, "site_files", "1", {
        "sitecustomize.py": snooper, "site_files-1.data/data/" + kernel: '{"display_name": "torchstack"}'})
    asked = entry(wheel, imports=["sitecustomize"])
    code, said = release.program("install", asked, wheel)
    assert code == 0, said
    assert json.loads((release.base / kernel).read_text()) == {"display_name": "torchstack"}
    python = [release.described()["python"], "-c", "import json"]
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", **release.described()["environment"]}
    done = subprocess.run(python, env=environment, text=True, check=True, stdout=subprocess.PIPE)
    assert done.stdout == "used: True\n"
    (record,) = json.loads((release.records / "packages.json").read_text())["packages"]
    assert record["distributions"] == {"site-files": "1"}
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() in asked["lock"]
