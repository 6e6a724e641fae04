# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Do what bin/new-site is called for: ask, write, lint, and say what comes next."""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
from typing import Callable, Sequence

from ansible_collections.hpcml.torchstack.plugins.plugin_utils import ansible_programs

from . import interview, questions, repository
from .questions import AnswerError

LINT = "hpcml.torchstack.lint"


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    found = argparse.ArgumentParser(
        prog="new-site", description="Write a repository with the data of a site, from answers to questions.")
    found.add_argument("directory", nargs="?", type=pathlib.Path, help="the new repository")
    found.add_argument("--answers", type=pathlib.Path, metavar="FILE", help="answers in YAML; nothing is asked")
    found.add_argument("--like", metavar="KIND", help="take the defaults of a kind of site: %s" % ", ".join(kinds()))
    found.add_argument("--set", action="append", default=[], metavar="NAME=ANSWER", help="one answer, repeatable")
    found.add_argument("--defaults", action="store_true", help="take the default of what is not answered; ask nothing")
    found.add_argument("--questions", action="store_true", help="print a file of answers with every default, and end")
    return found


def kinds() -> list[str]:
    """List the kinds of sites whose answers can be begun with, by name."""
    return sorted(path.stem for path in (repository.HOME / "like").glob("*.yml"))


def proposals(kind: str | None) -> dict[str, str]:
    """Read the answers that a kind of site begins with. Raises AnswerError: there is no such kind."""
    if kind is None:
        return {}
    if kind not in kinds():
        raise AnswerError("There is no kind of site '%s'%s Known are: %s." % (
            kind, questions.meant(kind, kinds()), ", ".join(kinds())))
    return interview.from_file(repository.HOME / "like" / (kind + ".yml"))


def given(arguments: argparse.Namespace) -> dict[str, str]:
    """Take the answers of the file and of the command line together. Raises AnswerError: one cannot be read."""
    found = interview.from_file(arguments.answers) if arguments.answers else {}
    for word in arguments.set:
        name, mark, text = word.partition("=")
        if not mark:
            raise AnswerError("'--set %s' has no '=': give NAME=ANSWER." % word)
        found[name] = text
    return found


def main(words: Sequence[str], ask: Callable[[str], str] = input) -> int:
    """Run the program; its exit code: 0 for a repository that lints clean, 1 for another one, 2 for none."""
    described = parser()
    arguments = described.parse_args(words)
    asked = questions.read(repository.HOME / "questions.yml")
    silent = arguments.questions or arguments.answers or arguments.defaults
    try:
        if arguments.directory is None and not arguments.questions:
            described.error("name the directory of the new repository")
        if not arguments.questions:
            repository.refuse_overwriting(arguments.directory)
        answers = interview.collect(
            asked, given(arguments), repository.further_context, None if silent else ask,
            usual=proposals(arguments.like))
        if arguments.questions:
            print(interview.to_file(asked, answers.values), end="")
            return 0
        files = repository.render(answers)
        repository.write(arguments.directory, files)
    except AnswerError as error:
        print("new-site: %s" % error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nnew-site: nothing was written.", file=sys.stderr)
        return 130
    print("Written: %s, %d files." % (arguments.directory, len(files)), flush=True)
    return finish(arguments.directory)


def finish(directory: pathlib.Path) -> int:
    """Lint a repository, and say what comes next; the exit code."""
    linted = lint(directory)
    marks = sum(path.read_text(encoding="utf-8").count(repository.UNVERIFIED) for path in directory.rglob("*.yml"))
    if linted:
        print("Lint finds mistakes, which are said above; correct them, then: ansible-playbook %s" % LINT)
        return 1
    print("Lint finds nothing. %d lines are marked unverified: check each, and remove its mark. Next, in %s:" % (
        marks, directory))
    print("  ansible-galaxy collection install -r requirements.yml -p collections")
    print("  ansible-playbook hpcml.torchstack.rollout --check --diff")
    return 0


def lint(directory: pathlib.Path) -> int:
    """Run the playbook lint in a repository; its exit code."""
    program = ansible_programs.find("ansible-playbook")
    if not program:
        print("There is no ansible-playbook to lint it with.")
        return 1
    environment = {
        **{name: value for name, value in os.environ.items() if name != "ANSIBLE_INVENTORY"},
        "ANSIBLE_CONFIG": str(directory.resolve() / "ansible.cfg"),
    }
    collections = ansible_programs.collections_path()
    if collections:
        environment["ANSIBLE_COLLECTIONS_PATH"] = collections
    done = subprocess.run(
        [program, LINT], cwd=directory, env=environment, text=True, check=False, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        print(done.stdout)
    return done.returncode
