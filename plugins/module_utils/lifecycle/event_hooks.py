# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Tell the site's people and programs what has happened: by mail, to a web hook, by a command of the site's own."""

from __future__ import annotations

import email.message
import email.policy
import json
import smtplib
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Mapping, NamedTuple, Sequence

from ..core.errors import StackError
from ..core.files import regular_file
from ..core.redaction import credential_in
from ..core.run_command import run
from ..core.text import printable
from .event_message import EVENTS, Message

WAYS = ("mail", "post", "run")
SMTP_PORT = 25


class Hook(NamedTuple):
    """Hold one way to tell somebody, of one of :data:`WAYS`, with its settings as the site's data have them."""

    events: tuple[str, ...]
    way: str
    settings: Any
    timeout: float

    @property
    def name(self) -> str:
        """What it is called in front of operators; nothing of it is secret."""
        if self.way == "mail":
            return "mail to %s" % ", ".join(self.settings["to"])
        if self.way == "run":
            return str(self.settings[0])
        return "post to %s" % (urllib.parse.urlsplit(str(self.settings.get("url") or "")).hostname
                               or self.settings.get("url_file"))


def read_hooks(given: Sequence[Mapping[str, Any]]) -> list[Hook]:
    """Read the hooks of the site's data, which have the keys that the module documents.

    Raises:
        StackError: one of them names no way, several, or one that is not whole.
    """
    return [_read_hook(number, entry) for number, entry in enumerate(given, 1)]


def _read_hook(number: int, entry: Mapping[str, Any]) -> Hook:
    ways = [way for way in WAYS if entry.get(way)]
    if len(ways) != 1:
        raise _wrong(number, "has %s; it has to have one of mail, post, run" % (" and ".join(ways) or "no way to tell"))
    settings = entry[ways[0]]
    if ways[0] == "post" and bool(settings.get("url")) == bool(settings.get("url_file")):
        raise _wrong(number, "posts to %s; give one of url and url_file" % (
            "two addresses" if settings.get("url") else "no address"))
    if ways[0] == "mail" and not settings.get("to"):
        raise _wrong(number, "writes a mail to nobody; name addresses under to")
    if ways[0] == "run":
        exposed = credential_in("\n".join(map(str, settings)))
        if exposed:
            raise _wrong(
                number, "has %s on a command line, which everybody sees; let the program read it from a file" % exposed)
    return Hook(tuple(entry.get("events") or EVENTS), ways[0], settings, float(entry.get("timeout") or 30))


def _wrong(number: int, what: str) -> StackError:
    return StackError(
        "torchstack_hooks: entry %d %s." % (number, what), "hooks", "Correct it in the site's data.")


def tell(hook: Hook, message: Message) -> str:
    """Tell a message; return why that failed, as the end of a sentence, and nothing where it did not."""
    try:
        {"mail": _send_mail, "post": _post, "run": _run}[hook.way](hook, message)
    except _RefusedError as error:
        return str(error)
    except smtplib.SMTPRecipientsRefused as error:
        return "was refused: %s" % ", ".join(_answer(*said) for said in error.recipients.values())
    except smtplib.SMTPResponseException as error:
        return "was refused: %s" % _answer(error.smtp_code, error.smtp_error)
    except (OSError, smtplib.SMTPException, ValueError) as error:
        # An address in an error may be a secret: only the reason is told.
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
        return "failed: %s" % (reason or (error if hook.way == "mail" else type(error).__name__))
    return ""


def _answer(code: int, words: bytes | str) -> str:
    """Return the answer of a mail server as it gave it."""
    said = words.decode("utf-8", "replace") if isinstance(words, bytes) else words
    return printable("%d %s" % (code, said)).replace("\n", " ")


class _RefusedError(Exception):
    """The other side has refused a message; the text is the end of a sentence."""


def _send_mail(hook: Hook, message: Message) -> None:
    settings = hook.settings
    letter = email.message.EmailMessage(email.policy.SMTP)
    letter["Subject"] = "torchstack " + printable(message.subject).replace("\n", " ")
    letter["To"] = ", ".join(settings["to"])
    letter["From"] = settings.get("from") or settings["to"][0]
    letter["Auto-Submitted"] = "auto-generated"
    letter.set_content(message.body)
    host, _colon, port = str(settings.get("server") or "localhost").partition(":")
    with smtplib.SMTP(host, int(port or SMTP_PORT), timeout=hook.timeout) as server:
        refused = server.send_message(letter)
    if refused:
        raise _RefusedError("was not taken for %s" % ", ".join(sorted(refused)))


def _post(hook: Hook, message: Message) -> None:
    settings = hook.settings
    url = settings.get("url") or _first_line(settings["url_file"])
    data = message.data if settings.get("body") == "event" else {"text": message.body}
    request = urllib.request.Request(
        url, data=json.dumps(data).encode("utf-8"), headers={"Content-Type": "application/json"}, method="POST")
    if request.type not in ("http", "https"):
        raise _RefusedError("has an address that is neither http nor https")
    try:
        with urllib.request.build_opener().open(request, timeout=hook.timeout):
            pass
    except urllib.error.HTTPError as error:
        raise _RefusedError("was answered with status %d" % error.code) from error


def _first_line(path: str) -> str:
    """Read an address that only this account may know."""
    with open(path, encoding="utf-8", opener=regular_file) as stream:
        return stream.readline().strip()


def _run(hook: Hook, message: Message) -> None:
    done = run([str(word) for word in hook.settings], hook.timeout, given=message.json)
    if done.problem:
        raise _RefusedError("failed: " + done.problem)
    if not done.ok:
        said = ": " + printable(done.complaint) if (done.output + done.errors).strip() else ""
        raise _RefusedError("ended with status %d%s" % (done.code or 0, said))
