# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import os
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.logs import masking
from ansible_collections.hpcml.torchstack.plugins.module_utils.logs.masking import LogFilter

SECRET = "0123secret456"


class Logged:
    """A filter with a log behind it, and the end of the pipe that a script has."""

    def __init__(self, path):
        self.path = path
        self.log = os.open(str(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.filter = LogFilter(self.log, [SECRET])
        self.script = os.dup(self.filter.writer)
        self.filter.start()

    def write(self, text):
        os.write(self.script, text.encode())

    def text(self):
        return self.path.read_bytes().decode("utf-8", "surrogateescape")

    def shows(self, text, seconds=60.0):
        end = time.monotonic() + seconds
        while self.text() != text and time.monotonic() < end:
            time.sleep(0.01)
        return self.text() == text

    def end(self):
        os.close(self.script)
        self.script = -1
        self.filter.close()
        return self.text()

    def close(self):
        for descriptor in (self.script, self.log):
            with contextlib.suppress(OSError):
                os.close(descriptor)


@pytest.fixture(name="logged")
def a_filter(tmp_path):
    made = Logged(tmp_path / "log")
    yield made
    made.close()


def test_what_has_no_secret_is_in_the_log_byte_for_byte(logged):
    text = b"one\r\n\xff\xfe two\r[1/2] x\n\0 \xe2\x80\xa8\x0c last without end"
    os.write(logged.script, text)
    logged.end()
    assert logged.path.read_bytes() == text


def test_a_secret_that_comes_in_pieces_is_never_in_the_log(logged):
    pieces = ("the word is 0123", "sec", "ret456 and https://me:pass", "word@host/x\nexport A_TOK", "EN=abcdefgh\n")
    for piece in pieces:
        logged.write(piece)
        assert not logged.shows(piece, 2 * masking.IDLE_SECONDS if piece is pieces[0] else 0)
        assert "0123" not in logged.text()
    assert logged.end() == "the word is *** and https://***@host/x\nexport A_TOKEN=***\n"


@pytest.mark.parametrize("piece", ["configuring ... ", "....", "\r 45%", "[12/220] ", "##########  1.2 MB/s"])
def test_the_beginning_of_a_line_is_shown_when_nothing_follows(logged, piece):
    logged.write(piece)
    assert logged.shows(piece)


@pytest.mark.parametrize("piece", ["password: ", "https://me", "A_TOKEN=", "the word is 01", "Authorization: Bearer "])
def test_the_beginning_of_a_credential_waits_for_its_end(logged, piece):
    logged.write(piece)
    assert not logged.text()
    assert logged.filter.seen in (0, len(piece))
    assert logged.end()


def test_a_private_key_is_left_out_line_by_line(logged):
    logged.write("a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\n")
    logged.write("vQIB\n-----END RSA PRIVATE KEY-----\nb\n")
    assert logged.end() == "a\n-----BEGIN RSA PRIVATE KEY-----***\n-----END RSA PRIVATE KEY-----\nb\n"


def test_a_line_without_an_end_does_not_grow_in_memory_and_its_secret_is_found(logged):
    for _count in range(40):
        logged.write("x" * 10000)
    logged.write(SECRET + "\n")
    assert logged.end() == "x" * 400000 + "***\n"


def test_a_process_that_hangs_with_the_pipe_does_not_hold_up_the_end(logged, monkeypatch):
    monkeypatch.setattr(masking, "DRAIN_SECONDS", 0.1)
    logged.write("whole\nhalf of " + SECRET)
    logged.filter.close()
    assert logged.text() == "whole\nhalf of ***"


def test_a_log_that_cannot_be_written_costs_its_text_and_not_the_script(logged):
    # A descriptor for reading only: every write fails.
    for_reading = os.open(str(logged.path), os.O_RDONLY)
    os.dup2(for_reading, logged.log)
    os.close(for_reading)
    logged.write("lost\n" * 100)
    assert logged.end() == ""
    assert logged.filter.lost == 500


@pytest.mark.parametrize("after", ["error: expected ';'", "[1/2] Building CXX object a.o", "-- Looking for x - found"])
def test_a_log_goes_on_behind_what_only_begins_like_a_key(logged, after):
    logged.write('t.py:3: if s.startswith("-----BEGIN RSA PRIVATE KEY-----"):\n%s\n' % after)
    assert logged.end() == 't.py:3: if s.startswith("-----BEGIN RSA PRIVATE KEY-----"):***\n%s\n' % after


def test_a_key_without_an_end_takes_no_more_lines_than_a_key_has(logged):
    logged.write("-----BEGIN PRIVATE KEY-----\n" + "MIIE\n" * (masking.MAX_KEY_LINES + 3))
    assert logged.end() == "-----BEGIN PRIVATE KEY-----***\n" + "MIIE\n" * 3
