# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What users believe of a finished release, whatever it stands on."""

from __future__ import annotations

import json
import re
import shlex
import stat
import struct
import subprocess

import index_settings
import pytest
from support import use_page


def has_dynamic_section(path):
    """Whether a file is an ELF object that the loader loads, as readelf sees it."""
    with open(path, "rb") as stream:
        if stream.read(4) != b"\x7fELF":
            return False
    told = subprocess.run(["readelf", "-lW", str(path)], stdout=subprocess.PIPE, text=True, check=True).stdout
    return re.search(r"(?m)^ +DYNAMIC ", told) is not None


def python_files(prefix):
    """What an interpreter may import from the release, but for what cannot be compiled."""
    failed = json.loads((prefix / ".torchstack" / "bytecode.json").read_text())["failed"]
    for place in [prefix / "base" / "site", *prefix.glob("base/lib/python*")]:
        for path in place.rglob("*.py"):
            if str(path.relative_to(prefix)) not in failed:
                yield path


def make_wheel(directory):
    """A tiny wheel that replaces a package of the release."""
    source = directory / "source"
    source.mkdir()
    (source / "cloudpickle.py").write_text("__version__ = '99.0'\n")
    (source / "setup.py").write_text(
        "from setuptools import setup\nsetup(name='cloudpickle', version='99.0', py_modules=['cloudpickle'])\n"
    )
    return source


ASK = "import cloudpickle, mpi4py, torch; print('cloudpickle', cloudpickle.__version__, torch.__version__)"


class InUse:
    """Tests of a release that was rolled out; a module that has a class of these says which one is ``released``."""

    modules = ("torch", "mpi4py.MPI")
    """what was compiled or is linked with what was"""
    checks = ("imports", "devices", "mpi4py", "torch_gloo")
    """of the acceptance"""

    def test_the_verification_names_every_object_of_the_release(self, released):
        files = [path for path in released.prefix.rglob("*") if path.is_file() and not path.is_symlink()]
        objects = {str(path.relative_to(released.prefix)) for path in files if has_dynamic_section(path)}
        record = json.loads((released.prefix / ".torchstack" / "verification.json").read_text())
        assert len(record["objects"]) > 100
        assert {name for name in objects ^ set(record["objects"]) if "/torch/bin/test_" not in name} == set()

    def test_s04_every_python_file_has_valid_bytecode(self, released):
        invalid = []
        for path in python_files(released.prefix):
            status = path.stat()
            facts = struct.pack("<LLL", 0, int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)
            found = list((path.parent / "__pycache__").glob(path.stem + ".cpython-*.pyc"))
            if not any(entry.read_bytes()[4:16] == facts for entry in found):
                invalid.append(str(path))
        assert invalid == []

    def test_s04_another_user_imports_everything_and_nothing_is_written(self, module_system, released, ordinary_user):
        before = released.snapshot()
        script = "python3 -v -c 'import %s, numpy, yaml, einops; print(torch.__file__)' 2>&1" % ", ".join(self.modules)
        said = module_system.run(script, user=ordinary_user).stdout
        assert str(released.prefix) in said
        assert re.findall(r"code object from '(%s/[^']*\.py)'" % re.escape(str(released.prefix)), said) == []
        assert "# wrote" not in said
        assert released.snapshot() == before

    def test_a_second_rollout_changes_nothing(self, released):
        before = released.snapshot()
        rollout = released.roll_out()
        assert rollout.changed == 0, rollout.text
        after = released.snapshot()
        assert {path for path in {**before, **after} if before.get(path) != after.get(path)} == set()

    def test_s27_the_loaded_module_gives_a_python_with_everything(self, module_system):
        process = module_system.run("python3 -c 'import %s; print(torch.__version__)'" % ", ".join(self.modules))
        assert process.stdout.strip().startswith("2.13.0")

    def test_nothing_in_the_release_is_writable_by_mode(self, released):
        writable = [
            str(path)
            for path in [released.prefix, *released.prefix.rglob("*")]
            if not path.is_symlink() and path.lstat().st_mode & 0o222
        ]
        assert writable == []

    def test_s14_each_release_has_its_own_user_base_and_no_startup_file(self, module_system, tmp_path):
        process = module_system.run(
            "echo base=$PYTHONUSERBASE startup=${PYTHONSTARTUP-none}", PYTHONSTARTUP="/tmp/x.py", home=str(tmp_path)
        )
        assert "base=%s/" % tmp_path in process.stdout
        assert module_system.release in process.stdout
        assert "startup=none" in process.stdout

    def test_a_users_own_environment_sees_the_release_and_replaces_its_packages(self, module_system, tmp_path):
        source = make_wheel(tmp_path)
        process = module_system.run(
            "cd %s; python3 -m venv mine; mine/bin/python -c \"%s\"; "
            "mine/bin/pip install --quiet --no-index --no-build-isolation --no-deps %s; "
            "mine/bin/python -c \"%s\""
            % (tmp_path, ASK, source, ASK),
            home=str(tmp_path),
        )
        seen = re.findall(r"cloudpickle (\S+) 2\.13\.0", process.stdout)
        assert seen[0] != "99.0" and seen[1] == "99.0", process.stdout

    def test_pip_install_user_lands_in_the_releases_user_base_and_wins(self, module_system, tmp_path):
        source = make_wheel(tmp_path)
        process = module_system.run(
            "cd %s; python3 -c \"%s\"; "
            "python3 -m pip install --user --quiet --no-index --no-build-isolation --no-deps %s; python3 -c \"%s\"; "
            "find $PYTHONUSERBASE -name cloudpickle.py" % (tmp_path, ASK, source, ASK),
            home=str(tmp_path),
        )
        seen = re.findall(r"cloudpickle (\S+) 2\.13\.0", process.stdout)
        assert seen[0] != "99.0" and seen[1] == "99.0", process.stdout
        assert module_system.release in process.stdout.splitlines()[-1]

    def test_s30_s44_the_acceptance_checked_and_measured_every_backend_of_the_release(self, released):
        records = released.root / ".torchstack" / released.release
        found = json.loads((records / "acceptance.json").read_text())
        passed = {check["name"] for check in found["checks"] if check["status"] == "passed"}
        assert passed >= set(self.checks)
        assert {row["backend"] for row in found["measurements"]} == {"gloo", "mpi"}
        for measured in found["measurements"]:
            # A busy machine leaves the largest sizes out, and says so.
            sizes, rows = [2**power for power in range(15, 21)], [row["bytes"] for row in measured["rows"]]
            assert rows and rows == sizes[:len(rows)]
            assert rows == sizes or "sizes" in measured["left_out"]
            assert all(row["verified"] and row["busbw"] > 0 for row in measured["rows"])
        assert {row["backend"] for row in found["latency"]} == {"gloo", "mpi"}
        assert all(0 < row["microseconds"]["min"] <= row["microseconds"]["median"] for row in found["latency"])
        slowest = found["import_seconds"]["torch"]["slowest"]
        assert slowest["seconds"] > 0 and slowest["rank"] in (0, 1)
        health = json.loads((records / "node_health.json").read_text())
        assert health["passed"] and [node["host"] for node in health["nodes"]] == [found["ranks"][0]["host"]]

    def test_the_page_about_the_rollout_has_its_facts_and_asks_nothing_of_the_network(self, released):
        page = (released.root / ".torchstack" / released.release / "report.html").read_text()
        assert released.release in page and "2.13.0" in page
        assert re.findall(r"""(?:src|href)=["']?(?:https?:)?//[^"'> ]+""", page) == []

    def test_s03_no_directory_of_the_release_shuts_users_out(self, released):
        for path in [released.prefix, *(p for p in released.prefix.rglob("*") if p.is_dir() and not p.is_symlink())]:
            assert stat.S_IMODE(path.lstat().st_mode) & 0o555 == 0o555, path


class InUseWithHorovod(InUse):
    """The same, and what they believe of Horovod."""

    modules = (*InUse.modules, "horovod.torch")
    checks = (*InUse.checks, "horovod")

    def test_s22_horovodrun_sums_over_two_ranks(self, module_system, tmp_path):
        program = tmp_path / "sum.py"
        program.write_text(
            "import torch, horovod.torch as hvd\n"
            "hvd.init()\n"
            "total = hvd.allreduce(torch.arange(8.0) + 10 * hvd.rank(), op=hvd.Sum)\n"
            "assert total.tolist() == [2.0 * i + 10 for i in range(8)], total\n"
            "print('rank %d of %d is right' % (hvd.rank(), hvd.size()))\n"
        )
        process = module_system.run("horovodrun -np 2 python3 %s" % program)
        assert sorted(re.findall(r"rank (\d) of 2 is right", process.stdout)) == ["0", "1"]

    def test_another_user_works_with_the_release_through_the_module(self, module_system, ordinary_user):
        program = "import horovod.torch as hvd; hvd.init(); print('one of', hvd.size())"
        process = module_system.run('horovodrun -np 2 python3 -c "%s"' % program, user=ordinary_user)
        assert process.stdout.count("one of 2") == 2

    def test_the_page_for_users_is_followed_to_the_letter_by_another_user(self, released, module_system, ordinary_user):
        if module_system.name != "lmod":
            pytest.skip("the page names the tree of Lmod, where a site has not said which module system its users have")

        def run(script):
            return module_system.run("export HOME=%s; cd\n%s" % (home, script), user=ordinary_user, load=False).stdout

        home = module_system.run("mktemp -d", user=ordinary_user, load=False).stdout.strip()
        try:
            pip = shlex.quote(index_settings.of_this_account())
            run("mkdir -p .config/pip; printf %%s %s > .config/pip/pip.conf; echo %s > .bash_profile" % (
                pip, shlex.quote(module_system.start)))
            said = run(use_page.script(run("cat %s/.torchstack/%s/use.md" % (released.root, released.release))))
            for line in ("\nsummed over 2 ranks on cpu", "still 2.13.0"):
                assert line in said, said
            # By the launcher of the site, and by Horovod's own command.
            assert said.count("Horovod summed over 2 ranks") == 2, said
            # A server is another Python, in a process that has loaded no module.
            kernel = "torchstack-" + released.release
            said = run(
                "python3 -m venv server; server/bin/pip -q install jupyter-client\n"
                "echo 'import sys, torch; print(sys.prefix, torch.__version__)' > asked.py\n"
                "server/bin/jupyter run --kernel=%s asked.py" % kernel)
            assert "%s/venvs/%s 2.13.0" % (home, kernel) in said, said
        finally:
            run("rm -rf '%s'" % home)
