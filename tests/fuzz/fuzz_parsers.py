# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Coverage-guided fuzzing of the parsers of foreign text with atheris; see README.md beside this file.

The first argument names the target, the others are libFuzzer's.
"""

from __future__ import annotations

import pathlib
import sys
import time

import atheris

with atheris.instrument_imports(include=["ansible_collections"]):
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    import targets

MOST_SECONDS = 20.0
"""Far above what an answer takes, because coverage counters and a shared core slow it down."""


def main() -> None:
    """Fuzz one target, from its seeds where the corpus has nothing yet."""
    name = sys.argv.pop(1)
    target = targets.TARGETS[name]
    corpus = next((pathlib.Path(word) for word in sys.argv[1:] if not word.startswith("-")), None)
    if corpus is not None and not any(corpus.iterdir()):
        for number, seed in enumerate(target.seeds):
            (corpus / ("seed-%d" % number)).write_bytes(seed)

    def one_input(data: bytes) -> None:
        started = time.monotonic()
        try:
            target.parse(data)
        except target.refusals as refusal:
            if not str(refusal):
                raise AssertionError("a refusal without a word") from refusal
        if time.monotonic() - started > MOST_SECONDS:
            raise AssertionError("it takes too long")

    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
