# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Report the progress of a py-rattler installation, one line for each package."""

from __future__ import annotations

from typing import Callable


class Reporter:
    """Writes a line for each package that is linked or removed, so that a long run can be watched.

    The methods are those of py-rattler's InstallerReporter.
    """

    def __init__(self, path: str) -> None:
        self.stream = open(path, "w", encoding="utf-8")  # noqa: SIM115 - open as long as the installation runs

    def _line(self, text: str) -> int:
        self.stream.write(text + "\n")
        self.stream.flush()
        return 0

    def on_transaction_start(self, total_operations: int) -> None:
        self._line("%d operations" % total_operations)

    def on_populate_cache_start(self, operation: int, package_name: str) -> int:
        return self._line("look for %s in the cache" % package_name)

    def on_unlink_start(self, operation: int, package_name: str) -> int:
        return self._line("remove %s" % package_name)

    def on_link_start(self, operation: int, package_name: str) -> int:
        return self._line("link %s" % package_name)

    def on_transaction_complete(self) -> None:
        self._line("done")

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name.startswith("on_"):
            return lambda *_arguments: 0
        raise AttributeError(name)
