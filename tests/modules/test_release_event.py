# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Whoever wants to know what has happened to a release is told: servers that take mail and posts, and a program."""

from __future__ import annotations

import contextlib
import email
import email.policy
import http.server
import json
import socketserver
import sys
import threading

import pytest
from support import report_records

RELEASE = report_records.RELEASE
ADDRESS = "operators@example.org"


class MailServer(socketserver.StreamRequestHandler):
    """As much of RFC 5321 as one letter needs; the server's ``refuses`` is an address that it takes nothing for."""

    def handle(self):
        self.say("220 mail.example.org")
        for line in self.rfile:
            word = line.decode().split(":")[0].strip().upper().split(" ")[0]
            if word == "DATA":
                self.say("354 go on")
                self.server.letters.append(b"".join(iter(self.rfile.readline, b".\r\n")))
            refused = word == "RCPT" and self.server.refuses and self.server.refuses in line.decode()
            self.say("550 nobody of that name" if refused else "221 bye" if word == "QUIT" else "250 yes")
            if word == "QUIT":
                return

    def say(self, line):
        self.wfile.write(line.encode() + b"\r\n")


class Chat(http.server.BaseHTTPRequestHandler):
    """A web hook; what is posted below ``/closed`` is refused."""

    def do_POST(self):
        self.server.letters.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(410 if self.path == "/closed" else 200)
        self.end_headers()

    def log_message(self, *words):
        """Keep the tests' output clean."""


@contextlib.contextmanager
def serving(handler, refuses=""):
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.letters, server.refuses, server.daemon_threads = [], refuses, True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(name="tell")
def teller(run_module, tmp_path):
    """Tell of the release whose rollout has stopped in the step horovod."""
    resolved = report_records.unfinished(tmp_path)
    run_module("release_report", {"root": str(tmp_path), "release": RELEASE, "resolved": resolved})

    def call(hooks, events=("failed",), **options):
        asked = {"root": str(tmp_path), "release": RELEASE, "site": "mysite", "events": list(events), "hooks": hooks}
        return run_module("release_event", asked, **options)

    return call


def recorder(tmp_path, code=0):
    """A program of a site's that keeps what it is told."""
    program = tmp_path / "record-event"
    program.write_text("#!%s\nimport sys\nopen(%r, 'a').write(sys.stdin.read())\nprint('disk full')\nsys.exit(%d)\n" % (
        sys.executable, str(tmp_path / "events"), code))
    program.chmod(0o755)
    return [str(program)]


def test_operators_get_a_mail_with_the_lines_that_say_why_and_what_to_do(tell):
    with serving(MailServer) as server:
        place = "127.0.0.1:%d" % server.server_address[1]
        done = tell([{"events": ["failed"], "mail": {"to": [ADDRESS, "second@example.org"], "server": place}}])
    assert done["told"] == ["mail to %s, second@example.org" % ADDRESS] and done["not_told"] == []
    (letter,) = [email.message_from_bytes(sent, policy=email.policy.default) for sent in server.letters]
    assert letter["Subject"] == "torchstack %s of mysite: the rollout has stopped" % RELEASE
    assert (letter["From"], letter["To"]) == (ADDRESS, ADDRESS + ", second@example.org")
    text = letter.get_content()
    cause = "CMake Error at CMakeLists.txt:181 (find_package):"
    for said in (cause, "Install a complete CUDA toolkit", "Log: /", "Report: /"):
        assert text.count(said) == 1, said


def test_a_chat_gets_the_text_and_a_program_behind_an_address_the_event(tell, tmp_path):
    with serving(Chat) as server:
        url = "http://127.0.0.1:%d/hook?secret=s3cret" % server.server_address[1]
        (tmp_path / "address").write_text(url + "\n")
        done = tell([{"post": {"url_file": str(tmp_path / "address")}}, {"post": {"url": url, "body": "event"}}],
                    ["accepted", "published"])
    text, event = server.letters
    assert set(text) == {"text"} and text["text"].startswith("%s of mysite: accepted, published.\n" % RELEASE)
    assert event["events"] == ["accepted", "published"] and event["verdict"]["word"] == "Not built"
    assert done["told"] == ["post to %s/address" % tmp_path, "post to 127.0.0.1"]


def test_a_program_gets_the_event_on_its_standard_input(tell, tmp_path):
    assert tell([{"run": recorder(tmp_path)}])["told"] == recorder(tmp_path)
    event = json.loads((tmp_path / "events").read_text())
    assert (event["schema"], event["site"], event["release"], event["events"]) == (1, "mysite", RELEASE, ["failed"])
    assert event["verdict"]["problems"][0]["of"] == "step horovod"
    assert event["report"].endswith("%s/report.html" % RELEASE)


def test_only_who_wants_an_event_is_told_of_it_and_of_no_other(tell, tmp_path):
    hook = {"events": ["published", "rolled_back"], "run": recorder(tmp_path)}
    done = tell([hook])
    assert not done.changed and not (tmp_path / "events").exists()
    assert tell([hook], ["finished", "published"]).changed
    assert json.loads((tmp_path / "events").read_text())["events"] == ["published"]


def test_check_mode_says_who_would_be_told_and_tells_nobody(tell, tmp_path):
    done = tell([{"run": recorder(tmp_path)}], check=True)
    assert done.changed and done["told"] == recorder(tmp_path) and not (tmp_path / "events").exists()


def test_what_cannot_be_told_is_a_warning_with_the_reason_and_the_others_are_told(tell, tmp_path):
    with serving(Chat) as chat, serving(MailServer, refuses=ADDRESS) as mail:
        closed = "http://127.0.0.1:%d/closed" % chat.server_address[1]
        done = tell([
            {"post": {"url": closed}},
            {"mail": {"to": [ADDRESS], "server": "127.0.0.1:%d" % mail.server_address[1]}},
            {"mail": {"to": [ADDRESS], "server": "127.0.0.1:9"}},
            {"run": recorder(tmp_path, 3)},
            {"run": ["false"]},
            {"run": ["/nowhere/at/all"]},
            {"run": ["sleep", "60"], "timeout": 0.5},
            {"post": {"url_file": str(tmp_path / "none")}},
            {"run": ["cat"]},
        ])
    assert done["told"] == ["cat"]
    said = "\n".join(done["not_told"])
    for reason in (
        "post to 127.0.0.1 was answered with status 410", "failed: Connection refused",
        "was refused: 550 nobody of that name",
        "ended with status 3: disk full", "false ended with status 1\n", "/nowhere/at/all failed: it cannot be run",
        "sleep failed: it did not finish within 0.5 seconds",
        "%s/none failed: No such file or directory" % tmp_path,
    ):
        assert reason in said, said


@pytest.mark.parametrize("hook, said", [
    ({}, "entry 1 has no way to tell; it has to have one of mail, post, run"),
    ({"run": ["cat"], "mail": {"to": ["a@example.org"]}}, "entry 1 has mail and run"),
    ({"post": {}}, "posts to no address"),
    ({"post": {"url": "http://a", "url_file": "/b"}}, "posts to two addresses"),
    ({"mail": {"to": []}}, "writes a mail to nobody"),
    ({"run": ["curl", "https://ops:s3cret-word@chat.example.org"]}, "which everybody sees"),
])
def test_a_way_that_is_none_is_refused_before_anybody_is_told(tell, tmp_path, hook, said):
    failed = tell([{"run": recorder(tmp_path)}, hook][::-1])
    assert said in failed["msg"] and "torchstack_hooks" in failed["msg"] and not (tmp_path / "events").exists()
