# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a toolkit's directories say, and what its module and package are made of."""

from __future__ import annotations

import os

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import cuda_toolkit as subject
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.layout import MAKER

FILES = ("bin/nvcc", "include/cuda_runtime.h", "lib64/libcudart.so")


def make(prefix, *files):
    for file in files:
        path = prefix / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")


@pytest.fixture()
def prefix(tmp_path):
    make(tmp_path / "cuda", *FILES)
    (tmp_path / "cuda" / "include" / "cuda.h").write_text("#ifndef X\n#  define CUDA_VERSION 11080\n#endif\n")
    return tmp_path / "cuda"


def given(prefix, **changes):
    return {"name": "cudatoolkit", "version": "11.8", "prefix": str(prefix), **changes}


def refused(prefix, **changes):
    with pytest.raises(StackError) as caught:
        subject.find_toolkit(given(prefix, **changes))
    return str(caught.value)


def described(toolkit, header_variables=(), **extra):
    return subject.describe(toolkit, "/soft/torchstack", list(header_variables), extra)


def entries(description, name):
    return [value for entry in description["prepend"] if entry["name"] == name for value in entry["values"]]


def test_a_toolkit_has_of_its_parts_what_is_there(prefix):
    assert subject.find_toolkit(given(prefix)).includes == [str(prefix / "include")]
    make(prefix, "nvvm/include/nvvm.h", "nvvm/lib64/libnvvm.so", "extras/CUPTI/lib64/libcupti.so")
    make(prefix.parent, "math/include/cublas.h")
    toolkit = subject.find_toolkit(given(prefix, math=str(prefix.parent / "math")))
    assert toolkit.includes == [
        str(prefix / "include"), str(prefix / "nvvm/include"), str(prefix.parent / "math/include")]
    assert toolkit.libraries == [
        str(prefix / "lib64"), str(prefix / "nvvm/lib64"), str(prefix / "extras/CUPTI/lib64")]
    assert subject.usual_libraries(toolkit) == ["cupti", "cudart"]


def test_libraries_may_lie_in_lib(prefix):
    (prefix / "lib64").rename(prefix / "lib")
    assert subject.find_toolkit(given(prefix)).libraries == [str(prefix / "lib")]


def test_s08_everything_that_is_missing_is_said_in_one_sentence(prefix, tmp_path):
    os.unlink(prefix / "include" / "cuda_runtime.h")
    os.rename(prefix / "lib64", prefix / "elsewhere")
    sentence = refused(prefix, math=str(tmp_path / "math"))
    assert sentence == "The toolkit cudatoolkit/11.8 lacks %s, %s, %s." % (
        prefix / "include/cuda_runtime.h", prefix / "lib64", "%s (math)" % (tmp_path / "math"))


@pytest.mark.parametrize("version", ["12.2", "11.1", "12.8"])
def test_s08_a_directory_with_another_version_is_refused(prefix, version):
    assert refused(prefix, version=version) == (
        "The toolkit cudatoolkit/%s in %s is CUDA 11.8, as its cuda.h says." % (version, prefix))


@pytest.mark.parametrize("version", ["11.8.0", "11.8-beta", "site"])
def test_a_version_may_say_more_or_nothing(prefix, version):
    assert subject.find_toolkit(given(prefix, version=version)).package == "ctk-" + version


def test_libraries_that_hide_the_driver_are_refused(prefix):
    make(prefix, "lib64/libcuda.so.1")
    assert "hide the driver" in refused(prefix)


@pytest.mark.parametrize("path", ["cuda", "/opt/cuda/", "/opt/my cuda", "/opt/$CUDA", "/opt/../cuda", "/opt/a:b"])
def test_a_directory_that_package_files_or_shells_would_misread_is_refused(path):
    assert "not an absolute path in its shortest form" in refused(path)


def test_a_package_with_an_odd_name_is_refused(prefix):
    assert "is not one plain word" in refused(prefix, pkg_config="ctk 11.8")


def test_the_module_has_what_the_site_s_own_has(prefix):
    toolkit = subject.find_toolkit(given(prefix))
    description = described(toolkit)
    assert description["setenv"] == {
        "CUDA_HOME": str(prefix), "CRAY_CUDATOOLKIT_VERSION": "11.8", "cudatoolkit_VERSION": "11.8"}
    assert entries(description, "PATH") == [str(prefix / "bin")]
    assert entries(description, "LD_LIBRARY_PATH") == [str(prefix / "lib64")]
    assert entries(description, "PKG_CONFIG_PATH") == ["/soft/torchstack/modulefiles/pkgconfig"]
    assert entries(description, "PE_PKGCONFIG_LIBS") == ["ctk-11.8"]
    assert not [entry for entry in description["prepend"] if entry["name"] in subject.HEADER_VARIABLES]


def test_variables_for_headers_come_on_request(prefix):
    description = described(subject.find_toolkit(given(prefix)), ["C_INCLUDE_PATH"])
    assert entries(description, "C_INCLUDE_PATH") == [str(prefix / "include")]


def test_a_site_adds_to_the_module_and_wins(prefix):
    description = described(
        subject.find_toolkit(given(prefix)), setenv={"CUDA_HOME": "/opt/x", "CUDA_PATH": str(prefix)},
        external=["/opt/x"], conflicts=["nvhpc"], prepend=[{"name": "LD_LIBRARY_PATH", "values": ["/opt/x/lib"]}],
        reasons={"CUDA_PATH": "CMake looks here."}, help="own words",
    )
    assert description["setenv"]["CUDA_HOME"] == "/opt/x" and description["setenv"]["CUDA_PATH"] == str(prefix)
    assert entries(description, "LD_LIBRARY_PATH") == [str(prefix / "lib64"), "/opt/x/lib"]
    assert description["conflicts"] == ["nvhpc"] and description["help"] == "own words"
    assert set(description["reasons"]) == {"PE_PKGCONFIG_LIBS", "CUDA_PATH"}


def test_a_site_s_addition_is_judged_like_any_description(prefix):
    with pytest.raises(StackError, match=r"LDFLAGS in a modulefile leaks"):
        described(subject.find_toolkit(given(prefix)), setenv={"LDFLAGS": "-L/x"})


def test_a_package_names_its_directories_once_and_no_stubs_to_link(prefix):
    make(prefix, "lib64/stubs/libcuda.so", "nvvm/include/nvvm.h")
    make(prefix.parent, "math/include/cublas.h", "math/lib64/libcublas.so")
    toolkit = subject.find_toolkit(given(prefix, math=str(prefix.parent / "math")))
    text = subject.package_text(toolkit, ["cudart"])
    assert text == "\n".join([
        "# cudatoolkit/11.8, %s." % MAKER,
        "# Changes made here are lost: the file is written anew from the site's toolkits.",
        "prefix=%s" % prefix, "nvvm=${prefix}/nvvm", "math=%s/math" % prefix.parent, "stubs=${prefix}/lib64/stubs", "",
        "Name: cudatoolkit", "Description: CUDA toolkit", "Version: 11.8",
        "Cflags: -I${prefix}/include -I${nvvm}/include -I${math}/include",
        "Libs: -L${prefix}/lib64 -L${math}/lib64 -Wl,--push-state,--as-needed,-lcudart,--pop-state", "",
    ])
    assert "-Wl" not in subject.package_text(toolkit, [])
