# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Build the stand-in as PyTorch's setup.py builds PyTorch: variables go to CMake, and CMake installs into torch/."""

import os
import pathlib
import shutil
import subprocess
import sys

from setuptools import Distribution, find_packages, setup

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE / "build"
FORWARDED_PREFIXES = ("BUILD_", "USE_", "CMAKE_")
FORWARDED = {
    "BLAS": "BLAS",
    "CUDA_NVCC_EXECUTABLE": "CUDA_NVCC_EXECUTABLE",
    "CUDNN_INCLUDE_DIR": "CUDNN_INCLUDE_DIR",
    "CUDNN_LIBRARY": "CUDNN_LIBRARY",
    "CUDNN_LIB_DIR": "CUDNN_LIBRARY",
    "INTEL_MKL_DIR": "INTEL_MKL_DIR",
    "JAVA_HOME": "JAVA_HOME",
    "MKLDNN_THREADING": "MKLDNN_THREADING",
    "MKL_THREADING": "MKL_THREADING",
    "USE_CUDA_STATIC_LINK": "CAFFE2_STATIC_LINK_CUDA",
    "WERROR": "WERROR",
    "_GLIBCXX_USE_CXX11_ABI": "GLIBCXX_USE_CXX11_ABI",
}
"""Variables that CMake gets, and their names there. Others, such as NCCL_ROOT, it reads from the environment or not."""

SUBMODULES = {"third_party/cpuinfo": "include/cpuinfo.h", "third_party/nccl": "nccl.h"}
"""Each with a file that is there once it is."""


class BinaryDistribution(Distribution):
    """One whose wheel is for one platform."""

    def has_ext_modules(self):
        return True


def revision():
    """The commit, or "Unknown"."""
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False)
    return asked.stdout.strip() if asked.returncode == 0 else "Unknown"


def wanted_version():
    """What the environment asks for, or else that of the file with the commit behind it."""
    version, number = os.environ.get("PYTORCH_BUILD_VERSION"), os.environ.get("PYTORCH_BUILD_NUMBER")
    if version and number:
        return version + (".post" + number if int(number) > 1 else "")
    version = (HERE / "version.txt").read_text().strip()
    return version if revision() == "Unknown" else version + "+git" + revision()[:7]


def check_submodules():
    """Try to fetch what is missing."""
    missing = [path for path, file in SUBMODULES.items() if not (HERE / path / file).exists()]
    if not missing:
        return
    print("Missing: %s. Trying to fetch submodules." % ", ".join(missing), flush=True)
    if subprocess.run(["git", "submodule", "update", "--init", "--recursive"], cwd=HERE, check=False).returncode:
        sys.exit("The submodules could not be fetched.")


def cmake_options(version):
    """The variables that reach CMake."""
    options = {}
    for name, value in os.environ.items():
        if name in FORWARDED:
            options[FORWARDED[name]] = value
        elif name.startswith(FORWARDED_PREFIXES):
            options[name] = value
    if "CMAKE_INSTALL_PREFIX" in options:
        sys.exit("CMAKE_INSTALL_PREFIX is set; this build installs into its own tree.")
    options.setdefault("CMAKE_BUILD_TYPE", "Release")
    options.update(CMAKE_INSTALL_PREFIX=str(HERE / "torch"), TORCH_BUILD_VERSION=version)
    return ["-D%s=%s" % option for option in options.items()]


def build(version, cmake_only):
    """Run CMake where it has not finished before, and build unless only that was asked for."""
    options = cmake_options(version)
    ninja = shutil.which("ninja") is not None
    if not (BUILD / "CMakeCache.txt").exists() or (ninja and not (BUILD / "build.ninja").exists()):
        BUILD.mkdir(exist_ok=True)
        generator = ["-GNinja"] if ninja else []
        subprocess.run(["cmake", *generator, *options, str(HERE)], cwd=BUILD, check=True)
    if cmake_only:
        sys.exit()
    jobs = ["-j", os.environ["MAX_JOBS"]] if "MAX_JOBS" in os.environ else []
    subprocess.run(["cmake", "--build", ".", "--target", "install", *jobs], cwd=BUILD, check=True)


def cached(name):
    """A value of CMake's cache, or None."""
    for line in (BUILD / "CMakeCache.txt").read_text().splitlines():
        if line.startswith(name + ":"):
            return line.partition("=")[2] or None
    return None


def main():
    """Build what is needed for the wheel, and make it."""
    version = wanted_version()
    if not {"clean", "egg_info", "sdist"} & set(sys.argv):
        check_submodules()
        build(version, "--cmake-only" in sys.argv)
        facts = (version, cached("CUDA_VERSION"), revision())
        (HERE / "torch" / "version.py").write_text(
            "__version__ = %r\ndebug = False\ncuda = %r\ngit_version = %r\n" % facts)
    setup(
        name="torch", version=version, packages=find_packages(include=["torch", "torch.*"]),
        package_data={"torch": ["lib/*.so"]}, distclass=BinaryDistribution,
    )


if __name__ == "__main__":
    main()
