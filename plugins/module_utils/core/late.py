# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Parts of the collection that are imported when they are needed, for filters.

Ansible loads all files of filters, with what they import, in the process of each task that uses any filter of the
collection, and compiles them there every time.
"""

from __future__ import annotations

import importlib
from typing import Any


class Late:
    """One of these modules, which stands for itself until something of it is asked for.

    Args:
        name: of the module beside this one.
    """

    def __init__(self, name: str) -> None:
        self._name = "%s.%s" % (__name__.rpartition(".core.")[0], name)

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)
