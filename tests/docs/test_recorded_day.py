# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The recorded day of an operator is what the command knows today, what the picture shows, and what the page counts."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
CAST, PICTURE = TOP / "docs/images/day.cast", TOP / "docs/images/day.svg"
PAGE = TOP / "docs/how-to/use-the-command.md"
ADDRESS = re.compile(r"""(?:href|src)="(?!#)|url\(|@import|https?://(?!www\.w3\.org/)""")

# The release of that day was nobody else's; one that is here has a name that is as long.
OF_THE_DAY, HERE, BEFORE = "2026-11-28", "2026-11-21", "2026-11-20"

specification = importlib.util.spec_from_file_location("recording", TOP / "docs" / "recording.py")
recording = importlib.util.module_from_spec(specification)
specification.loader.exec_module(recording)
COMMANDS = recording.read(CAST).commands()


def torchstack(*words, **environment):
    environment["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    done = subprocess.run([TOP / "bin" / "torchstack", *words], cwd=TOP, env={**os.environ, **environment}, text=True,
                          check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def text_of(picture):
    return re.sub(r"<[^>]*>", "\n", picture).replace("\N{NO-BREAK SPACE}", " ").splitlines()


def test_typed_lines_are_told_from_keys_and_from_what_a_terminal_answers(tmp_path):
    typed = ["\x1b[>84;0;0c", *"torchstack list", "\r", *"cat torchstack.txt", "\r", "\x02", '"', *"torchstack why a ",
             "\r", "\x04", *"torchstack sho"]
    events = [[number / 10, kind, key] for number, key in enumerate(typed) for kind in "io"]
    (tmp_path / "a.cast").write_text("\n".join(map(json.dumps, [{"version": 2, "width": 80, "height": 24}, *events])))
    assert recording.read(tmp_path / "a.cast").commands() == ["torchstack list", "torchstack why a"]


@pytest.mark.parametrize("typed", dict.fromkeys(COMMANDS))
def test_what_was_typed_is_what_the_command_takes(typed):
    word, *others = typed.split()[1:]
    code, said = torchstack(word, "--help")
    assert code == 0, said
    for option in [other for other in others if other.startswith("-")]:
        assert re.search(r"^ +%s\b" % option, said, re.M), "%s of %s is not in its help" % (option, word)


def test_the_picture_is_that_of_the_recording_small_and_fetches_nothing():
    drawn = PICTURE.read_text()
    assert 'data-recording="%s"' % hashlib.sha256(CAST.read_bytes()).hexdigest() in drawn, (
        "docs/terminal_picture.py draws it anew")
    missing = [typed for typed in COMMANDS if "$ " + typed not in text_of(drawn)]
    assert missing == [] and not ADDRESS.search(drawn) and "<script" not in drawn
    assert PICTURE.stat().st_size < 300_000 and CAST.stat().st_size < 200_000
    assert "(docs/images/day.svg)" in (TOP / "README.md").read_text()


def without_the_command(typed, root):
    """The shortest line that does the same without torchstack; empty where no other program does it."""
    words = typed.replace(OF_THE_DAY, HERE).split()[1:]
    _code, said = torchstack("--dry-run", *words, TORCHSTACK_ROOT=str(root))
    lines = [said.strip().replace("%s/" % TOP, "").replace(str(root), "~/torchstack")]
    if words[0] in ("plan", "rollout"):
        lines.append(" ".join(["make", words[0], *("RELEASE=" + word for word in words[1:])]))
    if not lines[0].startswith(("ansible-playbook ", "bin/")):
        return ""
    return min(lines, key=len).replace(HERE, OF_THE_DAY)


def test_the_page_counts_what_was_typed(tmp_path):
    for release in (HERE, BEFORE):
        (tmp_path / release / ".torchstack").mkdir(parents=True)
        (tmp_path / release / ".torchstack/release.yml").write_text("{release: %s, site: local}\n" % release)
    rows, pairs = [], []
    for typed in dict.fromkeys(COMMANDS):
        line, times = without_the_command(typed, tmp_path), COMMANDS.count(typed)
        pairs += [(len(typed), len(line))] * times
        rows.append("| `%s`%s | %d | %s | %s |" % (
            typed, ", %d times" % times if times > 1 else "", len(typed) * times, "`%s`" % line if line else "",
            len(line) * times or ""))
    both = [pair for pair in pairs if pair[1]]
    rows.append("| all %d | %d | | |" % (len(pairs), sum(typed for typed, _other in pairs)))
    rows.append("| the %d that have another line | %d | | %d |" % (len(both), *map(sum, zip(*both, strict=True))))
    assert "\n".join(rows) + "\n" in PAGE.read_text(), "these are the rows:\n" + "\n".join(rows)
