# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A real Chromium for the tests of pages."""

from __future__ import annotations

import pytest
from support import browser


@pytest.fixture(scope="module", name="chromium")
def one_browser():
    if browser.program() is None:
        pytest.skip("no Chromium: %s; or name it in TORCHSTACK_CHROMIUM" % ", ".join(browser.PROGRAMS))
    with browser.Browser() as started:
        yield started
