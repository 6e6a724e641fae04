# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The program `ansible` without its start, which costs more than what most tests run with it.

A process that has imported Ansible forks for each call; the child then does what the program does. This file is that
process, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading

READ_AT_START = ("ANSIBLE_", "PYTHON", "LC_", "LANG", "HOME")
"""How the names of variables begin that Ansible, or Python, takes note of while it starts."""

HEAD = 16


class WarmAnsible:
    """One such process.

    Args:
        environment: its variables; those of a call come on top.
    """

    def __init__(self, environment):
        self.environment = dict(environment)
        self.lock = threading.Lock()
        self.socket, other = socket.socketpair()
        with other:
            command = [sys.executable, os.path.abspath(__file__)]
            self.process = subprocess.Popen(command, env=self.environment, stdin=other, stdout=subprocess.DEVNULL)

    def close(self):
        self.socket.close()
        self.process.wait()

    def run(self, arguments, environment):
        """Run ``ansible`` with these words, and these variables on top.

        Returns:
            the finished process, with all that was printed as ``stdout``.
        """
        if not self.lock.acquire(blocking=False):
            return self._cold(arguments, environment)
        try:
            if any(name.startswith(READ_AT_START) for name in environment):
                return self._cold(arguments, environment)
            return self._warm(arguments, environment)
        finally:
            self.lock.release()

    def _cold(self, arguments, environment):
        program = os.path.join(os.path.dirname(sys.executable), "ansible")
        return subprocess.run(
            [program, *arguments], env=dict(self.environment, **environment), stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False)

    def _warm(self, arguments, environment):
        umask = os.umask(0)
        os.umask(umask)
        call = {"arguments": arguments, "environment": environment, "cwd": os.getcwd(), "umask": umask}
        body = json.dumps(call).encode()
        read, write = os.pipe()
        with open(read, encoding="utf-8", errors="replace") as stream:
            try:
                socket.send_fds(self.socket, [b"%*d" % (HEAD, len(body))], [write])
            finally:
                os.close(write)
            self.socket.sendall(body)
            # As with the program itself: whatever else holds its output keeps the caller.
            text = stream.read()
        code = int(self.socket.recv(HEAD))
        return subprocess.CompletedProcess(["ansible", *arguments], code, text)


PLUGINS = {
    "callback": ("minimal",), "inventory": ("host_list", "script", "auto", "yaml", "ini", "toml"),
    "strategy": ("linear",), "connection": ("local",), "shell": ("sh",), "action": ("normal",)}
"""What each call loads, by the kind of plugin."""


def load_plugins():
    """Read what each call would read again: where plugins have moved to, and the options of those that all use."""
    from ansible import cli
    from ansible.plugins import loader

    loader.init_plugin_loader()
    # It is done once in a process, and warns of a second time.
    cli.init_plugin_loader = lambda _paths=None: None
    for kind, names in PLUGINS.items():
        for name in names:
            getattr(loader, kind + "_loader").get(name, class_only=True)


def serve():
    """Fork for each call that comes by standard input, a socket."""
    from ansible.cli.adhoc import AdHocCLI

    load_plugins()
    calls = socket.socket(fileno=os.dup(0))
    while True:
        head, files, _flags, _address = socket.recv_fds(calls, HEAD, 1)
        if not head:
            return
        (output,) = files
        body = b""
        missing = int(head)
        while missing:
            body += calls.recv(missing)
            missing = int(head) - len(body)
        child = os.fork()
        if not child:
            calls.close()
            one_call(AdHocCLI, json.loads(body), output)
        os.close(output)
        _pid, status = os.waitpid(child, 0)
        calls.sendall(b"%*d" % (HEAD, os.waitstatus_to_exitcode(status)))


def one_call(program, call, output):
    """Do as the program does, and end as it does."""
    code = 1
    try:
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        os.close(output)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.environ.update(call["environment"])
        os.chdir(call["cwd"])
        os.umask(call["umask"])
        try:
            program.cli_executor(["ansible", *call["arguments"]])
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(bool(end.code))
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    # Modules beside this file are none of Ansible's.
    sys.path.remove(str(pathlib.Path(__file__).resolve().parent))
    serve()
