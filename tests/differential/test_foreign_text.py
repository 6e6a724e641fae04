# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Parsers of foreign text on spoilt input: each answers or refuses in words, in a moment.

The targets are those of tests/fuzz, which is guided by coverage; here the inputs that such runs have kept come in every
run, and a thousand made of them, always the same.
"""

from __future__ import annotations

import base64
import pathlib
import random
import sys

import pytest

TESTS = pathlib.Path(__file__).resolve().parents[1]
CORPORA = TESTS / "fixtures" / "foreign_text"
sys.path.insert(0, str(TESTS / "fuzz"))
import targets

INPUTS = 1000
PIECES = (
    b"",
    b"\0",
    b"\xff",
    b"\n",
    b"{",
    b"[",
    b"]",
    b"(",
    b"null",
    b"-1",
    b"1e999",
    b"NaN",
    b"\\",
    b'"',
    b"'",
    b"\x1b[",
    b"|",
    b"=",
    b"9" * 5000,
    "\u00b2\u2028\ud7ff".encode(),
    b"[[]]",
    b"../",
    b"http://[",
)


def spoilt(seeds, chance):
    """An input with some of its bytes gone, doubled, or something else."""
    data = bytearray(chance.choice(seeds))
    for _time in range(chance.choice((1, 1, 2, 5, 20))):
        at = chance.randrange(len(data) + 1)
        end = min(len(data), at + chance.choice((0, 1, 1, 4, 30)))
        piece = bytes(data[at:end]) * 2 if chance.random() < 0.2 else chance.choice(PIECES)
        data[at:end] = piece
    return bytes(data)


def kept(name):
    """The inputs that coverage-guided runs have kept, as each reaches something that no other one does."""
    lines = (CORPORA / (name + ".b64")).read_text(encoding="ascii").split()
    return [base64.b64decode(line) for line in lines]


@pytest.mark.parametrize("name", sorted(targets.TARGETS))
def test_spoilt_text_ends_in_an_answer_or_in_words(name):
    target, chance = targets.TARGETS[name], random.Random(name)
    corpus = kept(name)
    assert len(corpus) > 40
    several = [*target.seeds, *corpus]
    for data in [*several, *(spoilt(several, chance) for _number in range(INPUTS))]:
        try:
            target.parse(data)
        except target.refusals as refusal:
            assert str(refusal)
        except Exception as error:
            raise AssertionError("%s on %r" % (type(error).__name__, data)) from error
