# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the pytorch role leaves behind."""

from __future__ import annotations

import json
import os
import pathlib

PREFIX = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "root" / "2026-11-20"
RUN = "PYTHONPATH=%s/base/site PYTHONNOUSERSITE=1 %s/base/bin/python3" % (PREFIX, PREFIX)


def test_s06_torch_reports_the_version_that_was_asked_for_and_where_it_came_from(host):
    record = json.loads((PREFIX / ".torchstack" / "pytorch.json").read_text())
    assert (record["version"], record["cuda"]) == ("0.0.1+cpu", None)
    assert record["origin"].startswith("file://")


def test_s27_it_comes_from_the_release(host):
    process = host.run(RUN + " -c 'import torch; print(torch.__file__)'")
    assert process.rc == 0, process.stderr
    assert process.stdout.startswith(str(PREFIX))


def test_an_index_that_cannot_be_reached_was_tried_once(host):
    log = (PREFIX / ".torchstack" / "steps" / "pytorch-fetch" / "log").read_text()
    assert log.count("The CPU index cannot be reached") == 1
