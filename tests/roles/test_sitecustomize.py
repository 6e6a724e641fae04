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
import zipfile

import pytest
from support import conda_channel

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


@pytest.fixture()
def own_python(tmp_path):
    """A release with a Python and a pip of its own, and a package that users may replace."""
    python = conda_channel.Interpreter()
    missing = [name for name in ("patchelf", "strip") if shutil.which(name) is None]
    if missing or not python.wheels().get("pip") or not (python.stdlib / "ensurepip").is_dir():
        pytest.skip("a prefix with a Python and a pip of its own cannot be made here")
    prefix = tmp_path / "release"
    conda_channel.stage_python(prefix, python)
    library = prefix / "lib" / MINOR
    shutil.copy(FILE, library)
    with zipfile.ZipFile(python.wheels()["pip"]) as wheel:
        wheel.extractall(library / "site-packages")
    (library / "site-packages" / "shared.py").write_text("origin = 'release'\n")
    return prefix / "bin" / "python3"


def make_wheel(directory):
    """A wheel of the package that the release has, too, and with a program."""
    files = {
        "shared.py": "origin = 'user'\ndef main():\n    print('program of the', origin)\n",
        "shared-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: shared\nVersion: 1\n",
        "shared-1.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "shared-1.dist-info/entry_points.txt": "[console_scripts]\nshared-program = shared:main\n",
    }
    path = directory / "shared-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
        wheel.writestr("shared-1.dist-info/RECORD", "".join("%s,,\n" % name for name in [*files, "RECORD"]))
    return path


@pytest.mark.parametrize("by_hand", [False, True], ids=["by venv", "by ensurepip"])
def test_s14_a_virtual_environment_of_the_releases_own_python_has_a_pip_that_installs_into_it(
    own_python, tmp_path, by_hand
):
    def say(*command):
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PIP_NO_INDEX": "1",
                       "PYTHONUSERBASE": str(tmp_path / "base")}
        done = subprocess.run([str(word) for word in command], env=environment, text=True, capture_output=True,
                              check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    mine = tmp_path / "mine"
    if by_hand:
        say(own_python, "-m", "venv", "--without-pip", mine)
        say(mine / "bin" / "python", "-m", "ensurepip", "--default-pip")
    else:
        say(own_python, "-m", "venv", mine)
    assert str(mine) in say(mine / "bin" / "pip", "--version")
    assert say(mine / "bin" / "python", "-c", ORIGIN) == "release"
    say(mine / "bin" / "pip", "install", make_wheel(tmp_path))
    assert say(mine / "bin" / "python", "-c", ORIGIN) == "user"
    assert say(mine / "bin" / "shared-program") == "program of the user"
    assert say(own_python, "-c", ORIGIN) == "release"


def test_u18_only_a_pip_for_the_user_base_of_an_overlay_passes_the_marker_of_an_externally_managed_python(
    own_python, overlay, tmp_path
):
    library = own_python.parents[1] / "lib" / MINOR
    (library / "sitecustomize.py").unlink()
    (library / "EXTERNALLY-MANAGED").write_text("[externally-managed]\nError=Leave this Python alone\n")
    program, wheel = tmp_path / "pip3", make_wheel(tmp_path)
    program.write_text("#!%s\nfrom pip._internal.cli.main import main\nraise SystemExit(main())\n" % own_python)
    program.chmod(0o755)
    loaded = {"PYTHONPATH": str(overlay / "site"), "PYTHONUSERBASE": str(tmp_path / "mine")}

    def say(*command, **variables):
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PIP_NO_INDEX": "1", **variables}
        done = subprocess.run([str(word) for word in command], env=environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        return done.returncode, done.stdout

    for pip in ([own_python, "-m", "pip"], [program]):
        for words, variables in (
                (["--user"], {}), (["--user"], {"PYTHONPATH": loaded["PYTHONPATH"]}), ([], loaded)):
            code, said = say(*pip, "install", *words, wheel, **variables)
            assert code == 1 and "Leave this Python alone" in said, said
        code, said = say(*pip, "install", "--user", "--ignore-installed", wheel, **loaded)
        assert code == 0, said
        assert say(own_python, "-c", ORIGIN, **loaded) == (0, "user\n")
        shutil.rmtree(tmp_path / "mine")
    for place in (library, library / "site-packages"):
        place.chmod(0o555)
    try:
        code, said = say(program, "install", wheel, **loaded)
    finally:
        for place in (library, library / "site-packages"):
            place.chmod(0o755)
    assert code == 0 or os.geteuid() == 0, said
    asked = "import os; print('PIP_BREAK_SYSTEM_PACKAGES' in os.environ)"
    assert say(own_python, "-c", asked, **loaded) == (0, "False\n")


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
