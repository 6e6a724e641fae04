# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""PyTorch from source: what the build asked for has to arrive, and a build to which something happened says what.

The role builds the stand-in once. Its build scripts, which are whole recipes, are then run again in copies of that
release, each with one thing that goes wrong on a real site.
"""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import base as bases
from ansible_collections.hpcml.torchstack.plugins.module_utils.elf.reader import read_elf
from ansible_collections.hpcml.torchstack.plugins.module_utils.patches import series
from support import fake_torch, sites
from support.console import changed_in

CHECKOUT = pathlib.Path(__file__).parents[2]
ROLES = CHECKOUT / "roles"
SERIES = ROLES / "pytorch" / "files" / "series" / "stand-in"
PYTHON = getattr(sys, "_base_executable", sys.executable)
BANNER = "NCCL version [0-9]+[.][0-9]+[.][0-9]+[+]cuda"


class Site:
    """A site and a release on it that was built from source, with what Ansible printed each time."""

    def __init__(self, place, environment, release="release"):
        # The sources' submodules are directories of this account.
        home = place / "home"
        home.mkdir(exist_ok=True)
        (home / ".gitconfig").write_text('[protocol "file"]\n\tallow = always\n')
        self.place, self.environment = place, {**environment, "HOME": str(home)}
        self.tools, self.site, self.prefix = place / "tools", place / "site", place / release
        self.records = self.prefix / ".torchstack"
        self.commit = ""

    def prepare(self):
        """The build tools, all that the site has, and a release with an empty base."""
        self.commit = fake_torch.make_site(self.site)
        release = sites.load_release(CHECKOUT / "inventories/local/releases/2026-11-20.yml")
        names = "pip|setuptools|wheel|packaging|cmake|ninja"
        wanted = re.findall(r"^(?:%s)==(?:.*\\\n)*.*\n" % names, release["locks"]["tools"], re.M)
        subprocess.run([PYTHON, "-m", "venv", str(self.tools)], check=True)
        (self.tools / "lock").write_text("".join(wanted))
        process = subprocess.run(
            [str(self.tools / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes",
             "--requirement", str(self.tools / "lock")],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )
        if process.returncode:
            return "pip cannot fetch the build tools here: " + process.stdout[-300:]
        for program in ("fetch-git", "node_jobs.py", "relocate-wheel"):
            shutil.copy(ROLES / "python_tools" / "files" / program, self.tools / "bin")
        (self.tools / "bin" / "fetch-git").chmod(0o755)
        self.make_base()
        return ""

    def make_base(self):
        """An empty base with what PyTorch needs of one."""
        (self.records / "steps").mkdir(parents=True)
        (self.prefix / "base" / "site").mkdir(parents=True)
        shutil.copy(ROLES / "python_tools" / "files" / "sitecustomize.py", self.prefix / "base" / "site")
        numpy = self.prefix / "base" / "lib" / ("python%d.%d" % sys.version_info[:2]) / "site-packages" / "numpy"
        numpy.mkdir(parents=True)
        (numpy / "__init__.py").write_text("def zeros(number):\n    return [0] * number\n")

    def variables(self, **source):
        """Those of the role."""
        minor = "%d.%d" % sys.version_info[:2]
        tag, platform = "cp" + minor.replace(".", ""), "linux_" + os.uname().machine
        facts = {"executable": PYTHON, "minor": minor, "tag": tag, "platform": platform}
        base = bases.describe(
            {"base": {"kind": "python_overlay"}, "locks": {"tools": ""}}, str(self.place), self.prefix.name, facts)
        base["pip"]["install"] = base["pip"]["install"].replace(base["tools"], str(self.tools))
        definition = {
            "cuda": {"version": "11.8", "prefix": str(self.site / "cuda"), "architectures": ["8.0"]},
            "nccl": {"version": "2.18.3"},
            "pytorch": {"version": "2.3.1", "source": {
                "repository": (self.site / "git" / "pytorch.git").as_uri(), "tag": "v2.3.1", "commit": self.commit,
                "series": "stand-in",
                "environment": {
                    "BLAS": "MKL", "BUILD_TEST": "0", "CMAKE_PREFIX_PATH": str(self.site / "mkl"), "USE_CUDNN": "1",
                    "CUDNN_INCLUDE_DIR": str(self.site / "cudnn" / "include"), **source},
            }},
        }
        return {
            "pytorch_needs": [], "pytorch_nccl_prefix": str(self.site / "nccl"),
            "pytorch_cache": str(self.place / ".torchstack" / "builds"),
            "release_context": {
                "prefix": str(self.prefix), "records": str(self.records), "tools": str(self.tools), "frozen": False,
                "base": base, "definition": definition, "series": {"pytorch": series.load_series(str(SERIES)).digest},
                "compilers": {"CC": str(self.site / "bin" / "gcc"), "CXX": str(self.site / "bin" / "g++")},
                "mpi": {"provider": "prefix", "prefix": str(self.site / "mpi"), "bin": str(self.site / "mpi" / "bin")},
            },
        }

    def roll_out(self, place, *options, **source):
        """Run the role; the exit code, and what it printed."""
        (place / "variables.json").write_text(json.dumps(self.variables(**source)))
        playbook = place / "playbook.yml"
        playbook.write_text("- hosts: localhost\n  gather_facts: false\n  roles: [hpcml.torchstack.pytorch]\n")
        process = subprocess.run(
            [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), "-i", "localhost,", "-c", "local",
             "-e", "@%s" % (place / "variables.json"), str(playbook), *options],
            env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )
        return process.returncode, process.stdout


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A directory of all processes that run these tests."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def site(shared, ansible_environment):
    """The site, with the release built by whichever process comes first."""
    place = shared / "pytorch-source"
    place.mkdir(exist_ok=True)
    site = Site(place, ansible_environment)
    with open(place / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "printed.json").exists():
            trouble = site.prepare()
            printed = {"trouble": trouble}
            if not trouble:
                before = tree_of(site.prefix)
                printed["plan"] = site.roll_out(place, "--check", "--diff")
                printed["planned"] = tree_of(site.prefix) == before
                printed["built"] = site.roll_out(place)
                printed["second plan"] = site.roll_out(place, "--check", "--diff")
                printed["second run"] = site.roll_out(place)
            (place / "printed.json").write_text(json.dumps(printed))
    site.printed = json.loads((place / "printed.json").read_text())
    if site.printed["trouble"]:
        pytest.skip(site.printed["trouble"])
    site.commit = fake_torch.make_site(site.site)
    assert site.printed["built"][0] == 0, site.printed["built"][1][-6000:]
    return site


def tree_of(directory):
    """Names and sizes of all below a directory."""
    return sorted([str(path.relative_to(directory)), path.lstat().st_size] for path in directory.rglob("*"))


class Rebuild:
    """A copy of the release, in which the scripts of its steps are run by hand."""

    def __init__(self, site, place):
        self.site, self.prefix = site, place / "release"
        shutil.copytree(site.prefix, self.prefix, symlinks=True)
        self.tree = self.prefix / "src" / "pytorch-2.3.1"
        self.records = self.prefix / ".torchstack"
        self.wheels = self.prefix / "wheels"
        self.package = next(self.prefix.glob("base/lib/python*/site-packages")) / "torch"
        self.scripts = {}
        for step in ("pytorch-requirements", "pytorch", "pytorch-install"):
            text = (self.records / "steps" / step / "script.sh").read_text()
            self.scripts[step] = text.replace(str(site.prefix), str(self.prefix))

    def edit(self, pattern, replacement, step="pytorch"):
        """Change a script; what is changed has to be there."""
        self.scripts[step], number = re.subn(pattern, replacement, self.scripts[step], flags=re.M)
        assert number, pattern

    def run(self, *steps, **environment):
        """Run steps until one fails; the exit code, and what all of them printed."""
        code, said = 0, ""
        for step in steps or ("pytorch", "pytorch-install"):
            process = subprocess.run(
                ["bash", "-c", self.scripts[step]], env={**os.environ, **environment}, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            code, said = process.returncode, said + process.stdout
            if code:
                break
        return code, said

    def errors(self, said):
        """The sentences for an operator in what a step printed."""
        return [line for line in said.splitlines() if line.startswith("ERROR: ")]


@pytest.fixture()
def rebuild(site, tmp_path):
    return Rebuild(site, tmp_path)


def test_a_plan_writes_nothing_and_what_is_built_is_not_built_again(site):
    for name in ("plan", "second plan", "second run"):
        assert site.printed[name][0] == 0, site.printed[name][1][-3000:]
    assert site.printed["planned"]
    assert changed_in(site.printed["plan"][1]) > 0
    assert changed_in(site.printed["built"][1]) > 0
    assert changed_in(site.printed["second plan"][1]) == 0
    assert changed_in(site.printed["second run"][1]) == 0


def test_another_release_takes_the_wheel_over(site, ansible_environment, tmp_path):
    other = Site(site.place, ansible_environment, "other")
    other.commit = site.commit
    other.make_base()
    code, said = other.roll_out(tmp_path)
    assert code == 0, said[-6000:]
    assert "taken over from release release" in said
    assert len(list((other.prefix / "wheels").glob("torch-*.whl"))) == 1


def test_the_series_of_the_release_file_is_kept_where_a_site_has_its_own(site, tmp_path):
    shutil.copytree(SERIES, tmp_path / "own")
    (tmp_path / "own" / "0009-ours.patch").write_text("ours\n")
    own = json.dumps({"release_series_directories": {"pytorch": str(tmp_path / "own")}})
    code, said = site.roll_out(tmp_path, "--check", "-e", own)
    task = said.partition("Keep the patch series with the release]")[2].partition("TASK")[0]
    assert code == 0 and "changed: [localhost]" in task, said


def test_s06_the_wheel_is_kept_and_torch_reports_the_version_that_was_asked_for(site):
    record = json.loads((site.records / "pytorch.json").read_text())
    assert record["version"] == record["distribution"] == "2.3.1"
    assert record["origin"].endswith("pytorch.git@" + site.commit)
    assert {path: len(commit) for path, commit in record["build"]["submodules"].items()} == {
        "third_party/cpuinfo": 40, "third_party/nccl": 40}
    assert sorted(record["build"]["submodule_urls"]) == ["third_party/cpuinfo", "third_party/nccl"]
    assert [path.name.split("-")[:2] for path in (site.prefix / "wheels").iterdir()] == [["torch", "2.3.1"]]


def test_s02_what_is_compiled_has_an_rpath_whatever_the_wrappers_of_the_mpi_ask_for(site):
    package = next(site.prefix.glob("base/lib/python*/site-packages")) / "torch"
    linked = {path.name: read_elf(str(path)) for path in package.glob("lib/*.so")}
    assert str(site.site / "mpi" / "lib") in os.fsdecode(linked["libtorch_cpu.so"].rpath)
    assert [name for name, facts in linked.items() if facts.runpath or not facts.rpath] == []


def test_s02_torch_reports_the_nccl_of_the_release(site):
    record = json.loads((site.records / "pytorch.json").read_text())
    assert record["nccl"] == [2, 18, 3]
    assert record["build"]["cache"]["USE_SYSTEM_NCCL"] == "1"
    assert record["build"]["cache"]["NCCL_LIBRARIES"] == str(site.site / "nccl" / "lib" / "libnccl.so")


def test_s05_a_compiler_that_dispatches_on_its_own_name_is_never_resolved(site, rebuild):
    record = json.loads((site.records / "pytorch.json").read_text())
    given = site.site / "bin" / "g++"
    assert given.is_symlink()
    assert record["build"]["cache"]["CMAKE_CXX_COMPILER"] == str(given)
    rebuild.edit(r"^export CXX=.*$", "export CXX=%s" % given.resolve())
    code, said = rebuild.run("pytorch")
    assert code != 0
    assert "there is no compiler of this name" in said


def export(name, value=""):
    """An edit that gives a variable another value, or takes it away."""
    return r"^export %s=.*$" % name, "export %s=%s" % (name, value) if value else "unset %s" % name


LOST = {
    "s02_the_flag_for_nccl_did_not_arrive": (
        [export("USE_SYSTEM_NCCL")],
        "USE_SYSTEM_NCCL=1 was asked for, and build/CMakeCache.txt has USE_SYSTEM_NCCL=OFF. PyTorch compiles the copy"),
    "another_nccl_was_found_first": (
        [export("NCCL_ROOT", "{other}"), export("NCCL_LIB_DIR"), export("NCCL_INCLUDE_DIR")],
        "NCCL_LIBRARIES has to lie below {site}/nccl, and build/CMakeCache.txt has {other}/lib/libnccl.so"),
    "the_header_of_nccl_is_of_another_version": (
        [(r"{site}/nccl\b", "{mixed}")],
        "USE_NCCL=1 was asked for, and build/CMakeCache.txt has USE_NCCL=OFF. NCCL was not found"),
    "cmake_found_no_mpi": (
        [(r"^(export CC=.*)$", r"\1\nexport CMAKE_DISABLE_FIND_PACKAGE_MPI=ON")],
        "USE_MPI=1 was asked for, and build/CMakeCache.txt has USE_MPI=OFF. CMake found no MPI"),
    "another_switch_excludes_it": (
        [(r"^(export CC=.*)$", r"\1\nexport USE_DISTRIBUTED=0")],
        "USE_NCCL=1 was asked for, and build/CMakeCache.txt has USE_NCCL=OFF."),
    "cmake_found_no_cuda": (
        [(r"{site}/cuda\b", "/nowhere"), (r'"\$PATH"$', "/usr/bin:/bin\nexport CMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF")],
        "USE_CUDA=1 was asked for, and build/CMakeCache.txt has USE_CUDA=OFF. CMake found no CUDA toolkit"),
    "there_is_no_cudnn": (
        [(r"{site}/cudnn\b", "/nowhere"), export("CUDNN_INCLUDE_DIR")],
        "USE_CUDNN=1 was asked for, and build/CMakeCache.txt has USE_CUDNN=OFF. cuDNN was not found"),
    "s06_the_build_number_is_missing": (
        [export("PYTORCH_BUILD_NUMBER")],
        "PyTorch 2.3.1 was asked for, and build/CMakeCache.txt says 2.3.0a0+git{sha}. Both"),
    "another_blas_was_found": (
        [export("BLAS"), (r";[^;]*/mkl'$", "'")],
        "BLAS_INFO=mkl was asked for, and build/caffe2/core/macros.h has BLAS_INFO=generic. A BLAS that"),
    "a_switch_of_the_release_file_did_not_arrive": (
        [export("BUILD_TEST", "1")], "BUILD_TEST=0 was asked for, and build/CMakeCache.txt has BUILD_TEST=1."),
    "the_compiler_is_another_one": (
        [export("CC", "cc")], "CC={site}/bin/gcc was given, and build/CMakeCache.txt has CMAKE_C_COMPILER=/"),
}
"""What happens to a build that then ends well, and the sentence about it: by edits of its script."""


def filled(text, words):
    """A text with the words in braces replaced that are known."""
    return re.sub(r"\{(\w+)\}", lambda name: str(words[name[1]]), text)


@pytest.mark.parametrize("case", LOST)
def test_a_build_to_which_this_happened_fails(rebuild, case, tmp_path):
    edits, sentence = LOST[case]
    site = rebuild.site
    words = {"site": site.site, "other": tmp_path / "other", "mixed": tmp_path / "mixed", "sha": site.commit[:7]}
    fake_torch.make_nccl(tmp_path / "other", "2.19.4")
    fake_torch.make_nccl(tmp_path / "mixed", "2.18.3", header="2.14.3")
    # What is expected stays as the role wrote it.
    head, expected, judged = rebuild.scripts["pytorch"].partition("\nexpected=")
    for pattern, replacement in edits:
        pattern, replacement = filled(pattern, words), filled(replacement, words)
        head, number = re.subn(pattern, replacement, head, flags=re.M)
        assert number, pattern
    rebuild.scripts["pytorch"] = head + expected + judged
    (rebuild.records / "pytorch-build.json").unlink()
    code, said = rebuild.run("pytorch")
    assert code == 1
    assert any(filled(sentence, words) in line for line in rebuild.errors(said)), said[-3000:]
    assert "Running CMake alone" in said and "compilations at a time" not in said
    assert list(rebuild.tree.glob("build/**/*.o")) == [] and not (rebuild.records / "pytorch-build.json").exists()


def test_what_configuring_did_not_find_is_found_once_it_is_there(rebuild, tmp_path):
    # The same settings of the step, whose digest leaves the tree as it is.
    rebuild.edit(r";[^;]*/mkl'$", ";%s'" % (tmp_path / "mkl"))
    rebuild.edit(*export("BLAS"))
    code, said = rebuild.run("pytorch")
    assert code == 1 and len(rebuild.errors(said)) == 1, said[-3000:]
    fake_torch.make_mkl(tmp_path / "mkl")
    code, said = rebuild.run()
    assert code == 0, said[-3000:]


def test_a_source_that_cannot_be_configured_alone_is_judged_when_it_is_built(rebuild):
    setup = rebuild.tree / "setup.py"
    setup.write_text(setup.read_text().replace("--cmake-only", "--no-such-word"))
    rebuild.edit(*export("BUILD_TEST", "1"))
    code, said = rebuild.run("pytorch")
    assert code == 1 and "Running CMake alone" not in said
    (line,) = rebuild.errors(said)
    assert "BUILD_TEST=0 was asked for, and build/CMakeCache.txt has BUILD_TEST=1." in line


INSTALLED = {
    "a_source_that_does_not_write_down_its_settings": (
        [export("BLAS"), (r";[^;]*/mkl'$", "'"),
         (r"^  echo \"Running CMake alone\"$", "sed -i /BLAS_INFO/d caffe2/core/macros.h.in")],
        "BLAS_INFO=mkl was asked for, and torch.__config__.show() has nothing of that name. A BLAS that"),
    "architectures": (
        [export("TORCH_CUDA_ARCH_LIST")],
        "GPU code for sm_80 was asked for, and torch has that for compute_90, sm_50, sm_60, sm_70, sm_80, sm_90."),
    "gloo": (
        [(r"^(export CC=.*)$", r"\1\nexport USE_GLOO=0")],
        "torch.distributed.is_gloo_available() is false. See 'Gloo' in the step's log"),
    "numpy": (
        [(r"^(export CC=.*)$", r"\1\nexport USE_NUMPY=0")],
        "torch takes no array of NumPy, since it was built without. Put numpy into locks.base"),
}
"""What only the installed PyTorch tells."""


@pytest.mark.parametrize("case", INSTALLED)
def test_a_pytorch_that_says_this_fails(rebuild, case):
    edits, sentence = INSTALLED[case]
    for pattern, replacement in edits:
        rebuild.edit(pattern, replacement)
    code, said = rebuild.run()
    assert code == 1
    assert any(sentence in line for line in rebuild.errors(said)), said[-3000:]


WANTS = """ distclass=BinaryDistribution,
        install_requires=["SymPy==1.13.1", "numpy", "never ; python_version < '3'"],
        extras_require={"optree": ["optree"]},
"""


def test_what_torch_s_source_wants_and_the_release_has_not_is_told_before_the_build(rebuild):
    code, said = rebuild.run("pytorch-requirements")
    assert code == 0, said
    setup = rebuild.tree / "setup.py"
    setup.write_text(setup.read_text().replace(" distclass=BinaryDistribution,\n", WANTS))
    for name, version in (("sympy", "1.14.0"), ("Numpy", "2.0")):
        there = rebuild.package.parent / ("%s-%s.dist-info" % (name, version))
        there.mkdir()
        (there / "METADATA").write_text("Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (name, version))
    code, said = rebuild.run("pytorch-requirements")
    assert code == 1
    assert rebuild.errors(said) == [
        "ERROR: torch wants SymPy==1.13.1, and the release has 1.14.0. Correct the lock that brings it, or say "
        "pytorch.source.no_deps: true if torch works with what is there."]
    rebuild.edit(r'egg-info" false', 'egg-info" true', step="pytorch-requirements")
    code, said = rebuild.run("pytorch-requirements")
    assert (code, rebuild.errors(said)) == (0, [])
    assert "torch wants SymPy==1.13.1, and the release has 1.14.0." in said


def test_a_source_that_does_not_tell_what_it_wants_is_built(rebuild):
    setup = rebuild.tree / "setup.py"
    setup.write_text("raise SystemExit('build me first')\n" + setup.read_text())
    code, said = rebuild.run("pytorch-requirements")
    assert code == 0
    assert "build me first\nsetup.py does not say what torch wants of the release" in said


def test_a_torch_whose_own_requirements_are_not_met_is_refused_unless_that_is_known(rebuild):
    metadata = next(rebuild.package.parent.glob("torch-*.dist-info")) / "METADATA"
    asked = "Requires-Dist: sympy==1.13.1\nRequires-Dist: never; extra == 'optree'\n"
    # Installed as it is by the step before; what follows only asks and judges.
    rebuild.edit(r"^.* --force-reinstall .*$", "true", step="pytorch-install")
    metadata.write_text(metadata.read_text().replace("Name: torch\n", "Name: torch\n" + asked))
    code, said = rebuild.run("pytorch-install")
    assert code == 1
    assert rebuild.errors(said) == [
        "ERROR: torch wants sympy==1.13.1, and the release has none. Correct the lock that brings it, or say "
        "pytorch.source.no_deps: true if torch works with what is there."]
    rebuild.edit('"no_deps": false', '"no_deps": true', step="pytorch-install")
    code, said = rebuild.run("pytorch-install")
    assert code == 0, said[-3000:]
    assert "torch wants sympy==1.13.1, and the release has none." in said


def test_s02_another_nccl_in_ld_library_path_does_not_win_and_one_that_is_loaded_first_fails(rebuild, tmp_path):
    fake_torch.make_nccl(tmp_path / "older", "2.14.3")
    older = tmp_path / "older" / "lib"
    code, said = rebuild.run("pytorch-install", LD_LIBRARY_PATH=str(older))
    assert code == 0, said[-3000:]
    code, said = rebuild.run("pytorch-install", LD_PRELOAD=str(next(older.glob("libnccl.so.2*"))))
    assert code == 1
    assert "NCCL 2.18.3 was asked for, and torch.cuda.nccl.version() says 2.14.3." in said


def test_s02_the_rehearsals_seal_the_nccl_that_the_role_links_their_pytorch_with(rebuild, run_module):
    (sealed,) = {json.dumps(sites.load_release(path)["verification"]["libraries"]["sealed"])
                 for path in sites.RELEASES if path.stem == "rehearsal" and path.parts[-3] in ("polaris", "derecho")}
    asked = {"paths": [str(rebuild.package)], "sealed": json.loads(sealed)}
    assert not run_module("ldd_verify", asked).failed
    rebuild.edit(r"-Wl,--disable-new-dtags", "-Wl,--enable-new-dtags")
    rebuild.edit(r"relocate-wheel --rpath", "relocate-wheel")
    code, said = rebuild.run()
    assert code == 0, said[-3000:]
    result = run_module("ldd_verify", asked)
    assert {(os.path.basename(one["object"]), one["rule"]) for one in result["unsealed"]} == {
        ("libtorch_cuda.so", "RUNPATH")}


def test_s02_a_static_and_stripped_copy_of_nccl_fails_the_verification(rebuild, run_module):
    rules = [{"name": "NCCL", "pattern": BANNER, "provider": str(rebuild.site.site / "nccl" / "lib" / "*")}]
    asked = {"paths": [str(rebuild.package / "lib"), str(rebuild.site.site / "nccl")], "embedded": rules}
    assert not run_module("ldd_verify", asked).failed
    rebuild.edit(*export("USE_SYSTEM_NCCL"))
    rebuild.edit(r"^  python -B .*judge_build.*$", "  true")
    judged = "^%s/bin/python -B [^ ]*/judge_installed.py" % re.escape(str(rebuild.site.tools))
    rebuild.edit(judged, "true ", step="pytorch-install")
    code, said = rebuild.run()
    assert code == 0, said[-3000:]
    library = rebuild.package / "lib" / "libtorch_cuda.so"
    subprocess.run(["strip", str(library)], check=True)
    assert b"libnccl" not in subprocess.run(["readelf", "-d", str(library)], stdout=subprocess.PIPE, check=True).stdout
    result = run_module("ldd_verify", asked)
    assert result.failed
    (found,) = result["embedded"]
    assert (found["object"], found["text"]) == (str(library), "NCCL version 2.14.3+cuda")


def test_a_missing_submodule_is_noticed_before_setup_py_would_download_it(rebuild):
    shutil.rmtree(rebuild.tree / "third_party" / "cpuinfo")
    code, said = rebuild.run("pytorch")
    assert code == 1
    assert re.search(r"^-[0-9a-f]{40} third_party/cpuinfo\nERROR: These submodules are missing", said, re.M)
    # Without that look, the build fetches it, as it lies on this machine: what changed is seen afterwards.
    rebuild.edit(r'^git submodule status(.*)\nif grep(.*\n)*?fi$', r"git submodule status\1")
    local = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.file.allow", "GIT_CONFIG_VALUE_0": "always"}
    code, said = rebuild.run("pytorch", **local)
    assert code == 1
    assert "ERROR: The build changed the submodule third_party/cpuinfo, which is a download" in said


def test_what_the_build_asked_the_network_for_fails_it(rebuild):
    refused = rebuild.records / "steps" / "pytorch" / "refused.jsonl"
    refused.write_text('{"host": "example.org", "url": "https://example.org/x.tar"}\n')
    code, said = rebuild.run("pytorch")
    assert code == 1
    assert "ERROR: The build asked the network for https://example.org/x.tar, and went on without." in said


def test_mkl_that_was_asked_for_and_is_not_there_aborts_the_build(rebuild):
    rebuild.edit(r";[^;]*/mkl'$", "'")
    code, said = rebuild.run("pytorch")
    assert code != 0
    assert "Could NOT find MKL" in said
    assert "python setup.py" not in said.splitlines()[-1]


def test_a_build_goes_on_where_it_was_and_begins_anew_with_other_settings(rebuild):
    assert rebuild.run("pytorch")[0] == 0
    mark = rebuild.tree / "build" / "mark"
    mark.touch()
    code, said = rebuild.run("pytorch")
    assert code == 0
    assert mark.exists()
    assert "Performing" not in said
    rebuild.edit(r"^(export CC=.*)$", r"\1\nexport USE_MKLDNN=0")
    code, said = rebuild.run("pytorch")
    assert code == 0, said[-2000:]
    assert not mark.exists()
    assert "USE_MKLDNN:BOOL=0" in (rebuild.tree / "build" / "CMakeCache.txt").read_text()


def test_a_tree_that_ignores_nothing_is_built_again(rebuild):
    (rebuild.tree / ".gitignore").unlink()
    (rebuild.tree / "build" / "mark").touch()
    (rebuild.tree / "build" / "torchstack-settings").unlink()
    rebuild.edit(r"^MAX_JOBS=", "exit 7\nMAX_JOBS=")
    code, said = rebuild.run("pytorch")
    assert code == 7, said
    assert os.listdir(rebuild.tree / "build") == ["torchstack-settings"]


NUMBER = 'module.attr("_DEFAULT_NUM_WORKER_THREADS") = 16;\n'
WITH_TENSORPIPE = "#ifdef USE_TENSORPIPE\n%s#endif // USE_TENSORPIPE\n"
ASKED = "from torch._C._distributed_rpc import (\n    _DEFAULT_INIT_METHOD,\n    _DEFAULT_NUM_WORKER_THREADS,\n)\n"


@pytest.mark.parametrize("compiled, asked, switches, code", [
    (WITH_TENSORPIPE % NUMBER, ASKED, {"USE_TENSORPIPE": "off"}, 1),
    (WITH_TENSORPIPE % NUMBER, ASKED, {"USE_TENSORPIPE": "0", "USE_DISTRIBUTED": "No"}, 0),
    (WITH_TENSORPIPE % NUMBER, ASKED, {"USE_TENSORPIPE": "1"}, 0),
    (WITH_TENSORPIPE % NUMBER, ASKED, {}, 0),
    (WITH_TENSORPIPE % NUMBER, "DEFAULT_NUM_WORKER_THREADS = 16\n", {"USE_TENSORPIPE": "0"}, 0),
    (WITH_TENSORPIPE % "" + NUMBER, ASKED, {"USE_TENSORPIPE": "0"}, 0),
])
def test_a_torch_that_could_not_be_imported_for_want_of_tensorpipe_is_not_built(
        rebuild, compiled, asked, switches, code):
    for name, text in (("csrc/distributed/rpc/init.cpp", compiled), ("distributed/rpc/constants.py", asked)):
        path = rebuild.tree / "torch" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    found, said = rebuild.run("pytorch-requirements", **switches)
    assert found == code, said
    assert rebuild.errors(said) == ([
        "ERROR: USE_TENSORPIPE is off, and torch/distributed/rpc of this source asks for what is compiled with it "
        "only: nobody could import this torch (pytorch/pytorch#97397). Take USE_TENSORPIPE out of "
        "pytorch.source.environment."
    ] if code == 1 else [])


def test_variables_that_the_role_sets_are_refused(site, tmp_path):
    code, said = site.roll_out(tmp_path, USE_SYSTEM_NCCL="0", MAX_JOBS="4")
    assert code != 0
    assert "pytorch.source.environment has MAX_JOBS, USE_SYSTEM_NCCL, which follow from" in " ".join(said.split())
