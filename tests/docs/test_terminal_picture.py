# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Pictures of terminals are what was on the terminal, small, and fetch nothing."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
ADDRESS = re.compile(r"https?://(?!www\.w3\.org/)")


def words_of(picture):
    return re.sub(r"<[^>]*>", " ", picture).replace("&#160;", " ").split()


def test_a_picture_has_what_the_terminal_had_in_its_colours(tmp_path):
    program, picture = TOP / "docs" / "terminal_picture.py", tmp_path / "a.svg"
    shown = "\x1b[1mRelease 1\x1b[0m\n  \x1b[32mdone\x1b[39m  base & more\n\n\n"
    subprocess.run([sys.executable, program, picture, "a title"], input=shown, text=True, check=True)
    drawn = picture.read_text()
    for word in ("Release", "done", "base", "&amp;", "title"):
        assert word in words_of(drawn), drawn
    assert len(set(re.findall(r"fill: #[0-9a-f]+", drawn))) >= 2 and not ADDRESS.search(drawn)


def test_the_one_of_the_readme_is_small_and_fetches_nothing():
    picture = TOP / "docs" / "images" / "rollout.svg"
    assert picture.stat().st_size < 150_000 and not ADDRESS.search(picture.read_text())
    assert "(docs/images/rollout.svg)" in (TOP / "README.md").read_text()
