# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Where a base puts a release on the search path: a user's own packages win over it, it wins over the site's."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

FILE = pathlib.Path(__file__).parents[2] / "roles" / "python_tools" / "files" / "sitecustomize.py"
MINOR = "python%d.%d" % sys.version_info[:2]
ORIGIN = "import shared; print(shared.origin)"


@pytest.fixture()
def overlay(tmp_path):
    """A prefix with the overlay's sitecustomize and one package, as the role lays it out."""
    packages = tmp_path / "base" / "lib" / MINOR / "site-packages"
    packages.mkdir(parents=True)
    (packages / "shared.py").write_text("origin = 'release'\n")
    (tmp_path / "base" / "site").mkdir()
    shutil.copy(FILE, tmp_path / "base" / "site" / "sitecustomize.py")
    return tmp_path / "base"


def ask(python, overlay, program, **variables):
    environment = {"PATH": os.environ["PATH"], "HOME": str(overlay), "PYTHONPATH": str(overlay / "site"), **variables}
    return subprocess.run(
        [str(python), "-c", program], env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


def base_python():
    return getattr(sys, "_base_executable", sys.executable)


def test_s27_the_release_is_seen(overlay):
    assert ask(base_python(), overlay, ORIGIN) == "release"


def test_s27_the_release_comes_before_what_the_interpreter_brings(overlay):
    program = "import json, site, sys; print(json.dumps([sys.path, site.getsitepackages([sys.base_prefix])]))"
    path, own = json.loads(ask(base_python(), overlay, program))
    release = path.index(str(overlay / "lib" / MINOR / "site-packages"))
    assert all(path.index(entry) > release for entry in own if entry in path)


def test_s14_a_user_base_of_the_release_wins_over_it(overlay, tmp_path):
    mine = tmp_path / "mine" / "lib" / MINOR / "site-packages"
    mine.mkdir(parents=True)
    (mine / "shared.py").write_text("origin = 'user'\n")
    assert ask(base_python(), overlay, ORIGIN, PYTHONUSERBASE=str(tmp_path / "mine")) == "user"
    assert ask(base_python(), overlay, ORIGIN, PYTHONUSERBASE=str(tmp_path / "mine"), PYTHONNOUSERSITE="1") == "release"


def test_a_users_virtual_environment_sees_the_release_and_wins_over_it(overlay, tmp_path):
    subprocess.run([base_python(), "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    assert ask(python, overlay, ORIGIN) == "release"
    (tmp_path / "venv" / "lib" / MINOR / "site-packages" / "shared.py").write_text("origin = 'user'\n")
    assert ask(python, overlay, ORIGIN) == "user"


def test_beside_a_standard_library_it_serves_the_virtual_environments_of_that_python(overlay, tmp_path):
    library = overlay / "lib" / MINOR
    (overlay / "site" / "sitecustomize.py").rename(library / "sitecustomize.py")
    subprocess.run([base_python(), "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    assert ask(python, overlay, ORIGIN, PYTHONPATH=str(library)) == "release"
    (tmp_path / "venv" / "lib" / MINOR / "site-packages" / "shared.py").write_text("origin = 'user'\n")
    assert ask(python, overlay, ORIGIN, PYTHONPATH=str(library)) == "user"


def test_a_sitecustomize_of_the_site_still_runs(overlay, tmp_path):
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites" / "sitecustomize.py").write_text("import sys\nsys.the_site = 'was here'\n")
    path = "%s:%s" % (overlay / "site", tmp_path / "sites")
    assert ask(base_python(), overlay, "import sys; print(sys.the_site)", PYTHONPATH=path) == "was here"


def test_that_of_a_package_of_the_release_runs_beside_the_one_that_the_interpreter_has(overlay, tmp_path):
    """Debian's Python has one of its own, which comes before all packages."""
    packages = overlay / "lib" / MINOR / "site-packages"
    (packages / "sitecustomize.py").write_text("import sys\nsys.of_the_release = 'as well'\n")
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites" / "sitecustomize.py").write_text("import sys\nsys.the_site = 'was here'\n")
    path = "%s:%s" % (overlay / "site", tmp_path / "sites")
    said = ask(base_python(), overlay, "import sys; print(sys.the_site, sys.of_the_release)", PYTHONPATH=path)
    assert said == "was here as well"


def test_an_interpreter_of_another_version_is_left_alone(overlay):
    (overlay / "lib" / MINOR).rename(overlay / "lib" / "python3.1")
    path = ask(base_python(), overlay, "import sys; print(sys.path)")
    assert str(overlay / "site") in path
    assert str(overlay / "lib") not in path
