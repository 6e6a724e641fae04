# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Short commands with a time limit."""

from __future__ import annotations

import os
import signal
import sys
import time

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.run_command import run


def python(code):
    return [sys.executable, "-c", code]


def test_a_command_is_answered_with_its_code_and_what_it_said():
    outcome = run(python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"), 20)
    assert (outcome.code, outcome.output, outcome.errors, outcome.ok) == (3, "out\n", "err\n", False)
    assert outcome.complaint == "err"


def test_the_complaint_is_the_line_with_the_error():
    said = "import sys; print('In file x.c:\\nx.c:1: fatal error: no header\\nended', file=sys.stderr); sys.exit(1)"
    assert run(python(said), 20).complaint == "x.c:1: fatal error: no header"
    assert run(python("import sys; sys.exit(7)"), 20).complaint == "it ended with exit code 7"


def test_a_command_that_is_not_there_is_no_crash(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("")
    for words in (["/no/such/command"], [str(plain)]):
        outcome = run(words, 20)
        assert outcome.code is None and not outcome.ok and outcome.complaint.startswith("it cannot be run (")


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path):
    mark = tmp_path / "child"
    begin = time.monotonic()
    outcome = run(["sh", "-c", "sleep 60 & echo $! > %s; wait" % mark], 0.5)
    assert time.monotonic() - begin < 50
    assert outcome.code is None and outcome.complaint == "it did not finish within 0.5 seconds"
    child = mark.read_text().strip()
    deadline = time.monotonic() + 60
    while _works(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _works(child)


def _works(pid):
    try:
        with open("/proc/%s/stat" % pid, encoding="ascii", errors="replace") as stream:
            return stream.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_child_that_left_the_group_does_not_keep_us_waiting(tmp_path):
    mark = tmp_path / "child"
    code = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    open(%r, 'w').write(str(os.getpid()))\n"
    code += "    time.sleep(60)\n    os._exit(0)\ntime.sleep(60)"
    begin = time.monotonic()
    assert run(python(code % str(mark)), 2).code is None
    assert time.monotonic() - begin < 50
    os.kill(int(mark.read_text()), signal.SIGKILL)


def test_messages_are_asked_for_in_plain_english_and_input_is_empty():
    outcome = run(python("import os, sys; print(os.environ['LC_ALL'], repr(sys.stdin.read()))"), 20)
    assert outcome.output == "C ''\n"


def test_only_the_given_environment_is_seen(tmp_path):
    outcome = run(
        python("import os; print(os.environ.get('A'), os.environ.get('HOME'), os.getcwd())"), 20, str(tmp_path),
        {"A": "1", "PATH": os.environ["PATH"]})
    assert outcome.output == "1 None %s\n" % os.path.realpath(str(tmp_path))
