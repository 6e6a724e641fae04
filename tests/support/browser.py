# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A real Chromium without a window, told what to do over a pipe by its DevTools protocol; nothing else is needed."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")

SECONDS = 60.0


PHONE, DESK = (390, 844), (1280, 900)

CONTRAST = """
(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = (color) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = (color) => { const [r, g, b] = color.slice(0, 3).map((part) => part / 255)
    .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (element) => { for (; element; element = element.parentElement) {
    const color = rgb(getComputedStyle(element).backgroundColor);
    if (color[3] === 255) return color; } return [255, 255, 255, 255]; };
  document.querySelectorAll('details').forEach((element) => { element.open = true; });
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement, style = getComputedStyle(element);
    if (!walker.currentNode.data.trim() || !element.getClientRects().length || element.closest('style')) continue;
    const one = light(rgb(element.closest('svg') ? style.fill : style.color)), other = light(behind(element));
    found.push([Math.round(100 * (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05)) / 100,
      walker.currentNode.data.trim().slice(0, 40)]);
  }
  return found;
})()
"""
"""The contrast of every text with what is behind it, by the formula of WCAG 2.2."""

LEAST_CONTRAST = 4.5
"""WCAG 2.2, success criterion 1.4.3, for text of usual size."""


def show(page, name):
    """Make a picture for people, where they want one."""
    if os.environ.get("TORCHSTACK_PICTURES"):
        place = pathlib.Path(os.environ["TORCHSTACK_PICTURES"])
        place.mkdir(parents=True, exist_ok=True)
        page.picture(place / (name + ".png"))


def program():
    """The browser of this machine; None where there is none."""
    found = [os.environ.get("TORCHSTACK_CHROMIUM", ""), *PROGRAMS]
    return next((path for path in map(shutil.which, filter(None, found)) if path), None)


class Browser:
    """One browser; a context manager."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="ts-browser-", ignore_cleanup_errors=True)
        theirs, self.writing = os.pipe()
        self.reading, answers = os.pipe()
        # The browser reads commands from descriptor 3 and answers on 4.
        command = 'exec "$@" 3<&%d 4>&%d' % (theirs, answers)
        options = [
            "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--disable-background-networking", "--disable-component-update",
            "--user-data-dir=" + self.profile.name, "about:blank",
        ]
        self.process = subprocess.Popen(
            ["bash", "-c", command, "bash", program(), *options], pass_fds=(theirs, answers), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ, HOME=self.profile.name),
        )
        os.close(theirs)
        os.close(answers)
        self.numbers = itertools.count(1)
        self.buffer = b""
        self.events = []

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        # Its other processes end with it, and nothing is written any more.
        with contextlib.suppress(Exception):
            self.call("Browser.close")
        os.close(self.writing)
        os.close(self.reading)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.profile.cleanup()

    def message(self, deadline):
        """The next message of the browser."""
        while b"\0" not in self.buffer:
            ready = select.select([self.reading], [], [], max(0.0, deadline - time.monotonic()))[0]
            data = os.read(self.reading, 1 << 16) if ready else b""
            assert data, "The browser says nothing." if not ready else "The browser has ended."
            self.buffer += data
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, session=None, **parameters):
        """The result of a command; events that come meanwhile are kept."""
        number = next(self.numbers)
        asked = {"id": number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        os.write(self.writing, json.dumps(asked).encode() + b"\0")
        deadline = time.monotonic() + SECONDS
        while True:
            message = self.message(deadline)
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    def open(self, path, width=1280, height=900, dark=False):
        """A new page with this file, loaded."""
        return Page(self, path, width, height, dark)


class Page:
    """One page of a browser."""

    def __init__(self, browser, path, width, height, dark):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2, mobile=width < 600
        )
        self.media("", dark)
        self.address = path.resolve().as_uri()
        self.call("Page.navigate", url=self.address)
        deadline = time.monotonic() + SECONDS
        while not self.told("Page.loadEventFired"):
            self.browser.events.append(self.browser.message(deadline))

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def media(self, kind, dark):
        """Show the page as it is, or as it would be on paper (``print``)."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=kind, features=[scheme])

    def told(self, *methods):
        """What the browser has said of this page by itself."""
        return [
            event["params"] for event in self.browser.events
            if event.get("sessionId") == self.session and event["method"] in methods
        ]

    def evaluate(self, expression):
        """The value of a JavaScript expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    @property
    def complaints(self):
        """Everything on the console, and uncaught errors."""
        return [
            *(entry["entry"]["text"] for entry in self.told("Log.entryAdded")),
            *(call["args"] for call in self.told("Runtime.consoleAPICalled")),
            *(error["exceptionDetails"] for error in self.told("Runtime.exceptionThrown")),
        ]

    @property
    def requests(self):
        """Addresses that were asked for, but for the page itself and what it carries."""
        asked = [event["request"]["url"] for event in self.told("Network.requestWillBeSent")]
        return [address for address in asked if address != self.address and not address.startswith("data:")]

    def picture(self, path, whole=True):
        """The page, or what is seen of it, as a PNG file."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def printed(self):
        """The page as a PDF for A4."""
        printed = self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=True)
        return base64.b64decode(printed["data"])
