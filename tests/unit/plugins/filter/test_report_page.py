# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The filter that renders a report; how the page looks is the matter of the tests in a browser."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.hpcml.torchstack.plugins.filter.report_page import report_page


@pytest.mark.parametrize("data", ["", None, {}, {"schema": 2}, []])
def test_what_is_no_report_is_refused(data, tmp_path):
    with pytest.raises(AnsibleFilterError, match="no facts of a report"):
        report_page(data, str(tmp_path))
