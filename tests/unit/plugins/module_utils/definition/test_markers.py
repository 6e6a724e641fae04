# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Environment markers of requirements."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import markers

HERE = markers.environment("3.11.2", "cpython", "linux_x86_64")


@pytest.mark.parametrize("marker, applies", [
    ("", True),
    ("python_full_version < '3.12'", True),
    ("python_full_version >= '3.12'", False),
    ("python_version == '3.11'", True),
    ("python_version == '3.1'", False),
    ("python_version != '3.11.*'", False),
    ("python_version >= \"3.9\" and python_version < \"3.10\"", False),
    ("python_version ~= '3.8'", True),
    ("implementation_name != 'PyPy'", True),
    ("platform_python_implementation == 'CPython'", True),
    ("python_implementation == 'CPython'", True),
    ("sys_platform == 'win32' or platform_machine == 'x86_64'", True),
    ("sys_platform == 'linux' and (platform_machine == 'aarch64' or os_name == 'nt')", False),
    ("sys_platform == 'win32' and os_name == 'nt' or os.name == 'posix'", True),
    ("'86' in platform_machine", True),
    ("platform_machine not in 'x86_64 i686'", False),
    ("extra == 'test'", False),
    ("'3.10' <= python_version", True),
    ("platform_release >= '5'", False),
])
def test_a_requirement_is_for_this_interpreter_or_not(marker, applies):
    assert markers.applies(marker, HERE) is applies


@pytest.mark.parametrize("marker", [
    "python_version", "python_version >", "nonsense == '1'", "(os_name == 'nt'", "a b c", "os_name == 'nt' os_name",
    pytest.param("(" * 400 + "os_name == 'nt'" + ")" * 400, id="many brackets"), "os_name not 'nt'", "'a' == 'b' ;",
])
def test_what_is_no_marker_is_said(marker):
    with pytest.raises(ValueError, match="is no marker"):
        markers.applies(marker, HERE)
