# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The program that runs in the released environment: imports, looks at its own process map, evaluates, reports.

Its source is given to the release's interpreter with ``-c``. So it imports nothing that the interpreter does not have
anyway (a process map that differs because somebody looked would be worth little), and it reports into a file of its
own, one Python literal per line, because what is imported may print, close descriptors, or end the process at once.
"""

from __future__ import annotations

import os
import sys

DEEPEST = 20
LAST_LINES = 12


def plain(value, depth=0):
    """A value as numbers, texts, lists and dictionaries, whatever class it has; everything else becomes its text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if value - value == 0 else repr(float(value))
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return bytes(value).decode("utf-8", "backslashreplace")
    if depth < DEEPEST and isinstance(value, dict):
        return {str.__str__(str(key)): plain(entry, depth + 1) for key, entry in value.items()}
    if depth < DEEPEST and isinstance(value, (list, tuple)):
        return [plain(entry, depth + 1) for entry in value]
    if depth < DEEPEST and isinstance(value, (set, frozenset)):
        return sorted((plain(entry, depth + 1) for entry in value), key=repr)
    return str.__str__(str(value))


def describe(error):
    """Class and text of an exception, whose own text may fail."""
    try:
        text = str.__str__(str(error))
    except Exception:  # pylint: disable=broad-except # any class can be raised, with any __str__
        text = ""
    name = type(error).__name__
    return "%s: %s" % (name, text) if text else name


def last_lines(error):
    """The end of a traceback."""
    try:
        import traceback

        lines = "".join(traceback.format_exception(type(error), error, error.__traceback__)).splitlines()
    except Exception:  # pylint: disable=broad-except # the release may have broken this module too
        lines = [describe(error)]
    return lines[-LAST_LINES:]


class Probe:
    """Does the imports and reports every step before and after it.

    Args:
        report: path of the file to write to; events are appended, each by one write.
        maps: path of the process map.
    """

    def __init__(self, report, maps="/proc/self/maps"):
        self.report = report
        self.maps = maps
        self.process = os.getpid()
        self.calls = (open, os.open, os.write, os.close, os.getpid)
        self.flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)

    def tell(self, *event):
        """Report one event, unless this is a child that an import forked."""
        _open, open_file, write, close, getpid = self.calls
        if getpid() != self.process:
            return
        text = ascii(event).encode("ascii") + b"\n"
        descriptor = open_file(self.report, self.flags, 0o600)
        try:
            while text:
                text = text[write(descriptor, text) :]
        finally:
            close(descriptor)

    def look(self):
        """The process map now."""
        with self.calls[0](self.maps, "rb") as stream:
            return stream.read()

    def run(self, modules, expressions):
        """Import all modules in order, then evaluate all expressions over them."""
        names = {}
        self.tell("start", sys.version.split()[0], sys.executable or "", self.look())
        for module in modules:
            self.tell("import", module)
            try:
                top = __import__(module)
            except BaseException as error:  # pylint: disable=broad-except # sys.exit and its like are findings too
                missing = getattr(error, "name", None) if isinstance(error, ImportError) else None
                kind = [base.__name__ for base in type(error).__mro__]
                self.tell("failed", module, kind, str(missing or ""), describe(error), last_lines(error), self.look())
            else:
                names[module.partition(".")[0]] = top
                self.tell("imported", module, self.look())
        for expression in expressions:
            self.tell("evaluate", expression)
            try:
                value = plain(eval(expression, dict(names)))  # pylint: disable=eval-used # it is what was asked for
                self.tell("value", expression, value, self.look())
            except BaseException as error:  # pylint: disable=broad-except # sys.exit and its like are findings too
                self.tell("no value", expression, describe(error), self.look())
        self.tell("end")


def main():
    """Take the arguments away from what is imported, as if nobody had given any, and begin.

    The arguments are the report, the number of modules, the modules, and the expressions.
    """
    report, count, rest = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    del sys.argv[1:]
    sys.path[:] = [entry for entry in sys.path if entry]
    Probe(report).run(rest[:count], rest[count:])


if __name__ == "__main__":
    main()
