# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How the page of a report groups what it shows; tests/report has the page in a browser."""

from __future__ import annotations

from ansible_collections.hpcml.torchstack.plugins.module_utils.report import (
    page,
)


def test_the_libraries_that_matter_come_first_with_whose_they_are():
    paths = {"libmpi_gnu_123.so.12": "/opt/cray/lib/libmpi_gnu_123.so.12", "libnccl.so.2": "nccl/lib/libnccl.so.2",
             "libstdc++.so.6": "/usr/lib64/libstdc++.so.6", "libz.so.1": "/lib64/libz.so.1", "libncclient.so": "x"}
    providers = [{"name": name, "path": path, "rules": [], "needed_by": 1} for name, path in paths.items()]
    found = page.library_table({"objects": 1, "providers": providers, "allowed": []})
    assert [(row["name"], row["place"]) for row in found["key"]] == [
        ("libmpi_gnu_123.so.12", "the site"), ("libnccl.so.2", "this release"), ("libstdc++.so.6", "the system")]
    assert [row["name"] for row in found["others"]] == ["libz.so.1", "libncclient.so"]
