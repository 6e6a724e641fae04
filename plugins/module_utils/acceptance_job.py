# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""How an acceptance is run: the account, its fresh environment, the script that loads the module, and the run."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any, BinaryIO, Iterator, Mapping, NamedTuple, Sequence

from ansible_collections.hpcml.torchstack.plugins.module_utils import acceptance_supervisor, processes
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance import EM, ENVIRONMENT, LMOD, NONE
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance_output import EVENT
from ansible_collections.hpcml.torchstack.plugins.module_utils.archive import program_archive
from ansible_collections.hpcml.torchstack.plugins.module_utils.errors import StackError

SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin"
"""PATH of a fresh login before any start-up file (login.defs(5), ENV_PATH)."""

MARGIN = 5
"""Seconds before the time limit at which a rank that still works prints its stack by itself."""

LOST = 60.0
"""Seconds after the time limit at which a supervisor that has not reported the end counts as lost."""

RUN, OUTPUT = "acceptance.run.", "output"
"""Beginning of the name of a run's directory, and the name of the file in it that has what the job prints."""

OUTPUT_LIMIT = 64 << 20
"""Bytes of the output that are read back; the reports come at the end."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARTS = (processes, acceptance_supervisor)
_MAIN = """import sys
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance_supervisor import main
sys.exit(main(sys.argv[1:]))
"""
_AS_USER = """cd "$HOME" 2> /dev/null || cd /tmp
for python in %s; do
    if "$python" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2> /dev/null; then
        exec "$python" -I -S "$@"
    fi
done
echo "there is no Python 3.8 or later that this account can run: not %s."
"""


class Account(NamedTuple):
    """The account that runs the ranks; ``other`` when it is not the one that runs this."""

    name: str
    uid: int
    home: str
    shell: str
    other: bool


class Ended(NamedTuple):
    """How a run went: its output, and its length in seconds."""

    output: str
    seconds: float


def find_account(user: str) -> Account:
    """The account that shall run the ranks.

    Args:
        user: its name; empty for the account that this runs as.

    Raises:
        StackError: there is no such account, or it is root.
    """
    try:
        entry = pwd.getpwnam(user) if user else pwd.getpwuid(os.geteuid())
    except KeyError:
        raise StackError(
            "There is no account %s on %s." % (user or "for uid %d" % os.geteuid(), os.uname().nodename), "user",
            "Set acceptance_user to an ordinary account of this machine, or leave it empty.",
        ) from None
    if user and entry.pw_uid == 0:
        raise StackError(
            "acceptance_user is %s, which is root, not an ordinary user." % user, "user",
            "Set acceptance_user to an ordinary account, or leave it empty.",
        )
    return Account(
        entry.pw_name, entry.pw_uid, entry.pw_dir, entry.pw_shell or "/bin/sh", entry.pw_uid != os.geteuid()
    )


def launcher_words(launcher: Sequence[str], ranks: int) -> list[str]:
    """The launcher's words with the number of ranks filled in.

    Raises:
        StackError: there are none, a word has a placeholder that is not known, or no rank is asked for.
    """
    if ranks < 1:
        raise StackError("acceptance_ranks is %d." % ranks, "launcher", "Ask for at least one rank, better for two.")
    words = [word.replace("{ranks}", str(ranks)) for word in launcher]
    unknown = sorted({name for word in words for name in re.findall(r"\{[a-z_]*\}", word)})
    if not words or unknown:
        raise StackError(
            "acceptance_launcher is %s." % ("empty" if not words else "not understood: %s" % ", ".join(unknown)),
            "launcher", "Give the words of a command, such as [mpiexec, -n, '{ranks}'].",
        )
    return words


def login_environment(account: Account, keep: Sequence[str], current: Mapping[str, str]) -> dict[str, str]:
    """The variables with which a fresh login of the account begins.

    Args:
        account: whose login it is.
        keep: names of variables to hand over from ``current``; a name may end in ``*``.
        current: the variables of this process.
    """
    environment = {
        "HOME": account.home, "USER": account.name, "LOGNAME": account.name, "SHELL": account.shell,
        "LANG": "C.UTF-8", "PATH": SEARCH_PATH, "TMPDIR": "/tmp",
    }
    for pattern in keep:
        for name, value in current.items():
            if (name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1]))) and _NAME.fullmatch(name):
                environment[name] = value
    return environment


def user_command(
    account: Account, become: Sequence[str], environment: Mapping[str, str], pythons: Sequence[str]
) -> list[str]:
    """What has to stand before a Python program so that the account runs it in its home with this environment only.

    Args:
        account: who runs it.
        become: words that run a command as that account, if it is another one.
        environment: all variables.
        pythons: interpreters; the account takes the first one that it can run, for one in somebody's home it may not.
    """
    words = [word.replace("{user}", account.name) for word in become] if account.other else []
    words += ["/usr/bin/env", "-i", *("%s=%s" % item for item in sorted(environment.items()))]
    places = list(dict.fromkeys(pythons))
    return [*words, "/bin/sh", "-c", _AS_USER % (" ".join(map(shlex.quote, places)), ", ".join(places)), "acceptance"]


def _module_lines(question: Mapping[str, Any]) -> list[str]:
    """The part of the script that loads the module, or sets the environment where there are no modules."""
    system, name = question["module_system"], question["module"]
    wanted = question["modulepaths"]
    lines = [". %s" % shlex.quote(path) for path in question["module_init"]]
    lines += [
        "through=%s" % ENVIRONMENT,
        "reason='no module system on this host'",
        'if [ "$(type -t module)" = function ]; then',
        '    if [ -n "${LMOD_VERSION:-}${LMOD_CMD:-}" ]; then through=%s; else through=%s; fi' % (LMOD, EM),
        "fi",
    ]
    if system == NONE or not name:
        reason = "the inventory names no module" if system != NONE else "the inventory says that there are none"
        lines += ["through=%s" % ENVIRONMENT, "reason=%s" % shlex.quote(reason)]
    elif system in (LMOD, EM):
        message = "no module system in a login of this user, where %s is expected" % system
        lines.append('[ "$through" != %s ] || problem module %s' % (ENVIRONMENT, shlex.quote(message)))
    lines.append('event through "$through"')
    for kind, tree in ((LMOD, "lmod"), (EM, "tcl")):
        path = (wanted.get(tree) or "").rstrip("/")
        use = "from=%s; module use \"$from\"" % shlex.quote(path) if path else (
            "problem module 'acceptance_modulepaths names no directory for %s'" % kind
        )
        lines.append('if [ "$through" = %s ]; then %s; fi' % (kind, use))
    quoted = shlex.quote(name)
    lines += [
        'if [ "$through" = %s ]; then' % ENVIRONMENT,
        '    event without_module "$reason"',
        *("    export %s=%s" % (key, shlex.quote(str(value))) for key, value in question["environment"].items()),
        "else",
        "    module load %s || problem module \"$through cannot load \"%s" % (quoted, quoted),
        '    case ":${LOADEDMODULES:-}:" in',
        "        *:%s:*|*:%s/*) ;;" % (quoted, quoted),
        '        *) problem module "$through did not load "%s ;;' % quoted,
        "    esac",
        '    modulefile=$(tr : "\\n" <<< "${_LMFILES_:-}" | grep -m 1 -F -e "$from/")',
        '    [ -n "$modulefile" ] || problem module %s" was loaded from elsewhere than $from"' % quoted,
        '    event modulefile "$modulefile"',
        "fi",
    ]
    return lines


def job_script(question: Mapping[str, Any], launcher: Sequence[str], directory: str) -> str:
    """The script that an ordinary user would type: log in, load the module, start the ranks.

    Args:
        question: ``module``, ``module_system``, ``module_init``, ``modulepaths``, ``environment``, ``python``.
        launcher: the launcher's words.
        directory: where the rank program and its question are.
    """
    python = shlex.quote(question["python"])
    program = [os.path.join(directory, name) for name in ("rank_check.py", "question.json")]
    first = shlex.quote(launcher[0])
    return "\n".join([
        "#!/bin/bash",
        "event() { printf '%s %%s\\t%%s\\n' \"$1\" \"$2\"; }" % EVENT,
        "problem() { event problem \"$1 $2\"; exit 70; }",
        "if [ -r /etc/profile ]; then . /etc/profile; fi" if not question["module_init"] else "# as module_init says",
        *_module_lines(question),
        'event launcher "$(type -P %s)"' % first,
        "type -P %s > /dev/null || problem launcher %s" % (
            first, shlex.quote("%s is not on PATH after the module is loaded" % launcher[0])
        ),
        'event python "$(type -P %s)"' % python,
        "type -P %s > /dev/null || problem python %s" % (
            python, shlex.quote("%s is not on PATH after the module is loaded" % question["python"])
        ),
        "exec %s" % " ".join([*map(shlex.quote, launcher), python, *map(shlex.quote, program)]),
        "",
    ])


@contextlib.contextmanager
def locked(state: str) -> Iterator[None]:
    """One acceptance of a release at a time.

    Args:
        state: the directory of the records.

    Raises:
        StackError: another one is running.
    """
    descriptor = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # A file system without locks: two acceptances would get in each other's way, not spoil the records.
        with contextlib.suppress(OSError):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StackError(
                    "Another acceptance of this release is running.", "lock",
                    "Wait for it, then run this again; its output is %s." % os.path.join(state, RUN + "*", OUTPUT),
                    state,
                ) from None
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def shared_directory(state: str, texts: Mapping[str, bytes]) -> Iterator[str]:
    """A directory beside the records, on the file system that all nodes see, whose files every account can read.

    Args:
        state: the directory of the records.
        texts: file name -> content.
    """
    prefix = os.path.join(state, RUN)
    for leftover in glob.glob(glob.escape(prefix) + "*"):
        shutil.rmtree(leftover, ignore_errors=True)
    directory = tempfile.mkdtemp(prefix=prefix)
    try:
        os.chmod(directory, 0o755)
        for name, content in texts.items():
            write_readable(os.path.join(directory, name), content)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def write_readable(path: str, content: bytes) -> None:
    """Write a file that every account can read."""
    with open(path, "wb") as stream:
        stream.write(content)
        os.fchmod(stream.fileno(), 0o644)


def run_job(question: Mapping[str, Any], program: str, state: str) -> Ended:
    """Run the ranks and wait for the end.

    Args:
        question: everything that the script and the ranks have to know: ``account``, ``become``, ``launcher`` (words),
            ``timeout``, ``environment_keep``, and what :func:`job_script` and the rank program read.
        program: text of the rank program.
        state: directory of the records.

    Raises:
        StackError: the supervisor did not start under that account.
    """
    account: Account = question["account"]
    timeout = question["timeout"]
    asked = {key: question[key] for key in ("prefix", "imports", "checks", "where_possible")}
    files = {"rank_check.py": program.encode("utf-8"), "supervisor.zip": program_archive(_MAIN, _PARTS)}
    with shared_directory(state, files) as directory:
        started = time.time()
        margin = min(float(MARGIN), timeout / 4.0)
        asked.update(deadline=started + timeout - margin, patience=int(margin) + MARGIN)
        write_readable(os.path.join(directory, "question.json"), json.dumps(asked).encode("utf-8"))
        script = os.path.join(directory, "job.sh")
        write_readable(script, job_script(question, question["launcher"], directory).encode("utf-8"))
        environment = login_environment(account, question["environment_keep"], os.environ)
        pythons = (sys.executable, question["python"], "/usr/bin/python3")
        command = user_command(account, question["become"], environment, pythons)
        command += [os.path.join(directory, "supervisor.zip"), script, str(timeout)]
        with open(os.path.join(directory, OUTPUT), "wb") as output:
            _follow(command, account, timeout, output)
        seconds = round(time.time() - started, 1)
        return Ended(_read_back(os.path.join(directory, OUTPUT), account), seconds)


def _follow(command: Sequence[str], account: Account, timeout: float, output: BinaryIO) -> None:
    """Start the supervisor and wait for it; its standard input stays open exactly as long as this waits."""
    try:
        process = processes.start_program(
            list(command), stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            cwd="/",
        )
    except OSError as error:
        raise StackError(
            "%s cannot be started: %s." % (command[0], error.strerror), "user", _become_remedy(account)
        ) from error
    try:
        process.wait(timeout + LOST)
    except subprocess.TimeoutExpired:
        output.write(b"\n%s problem\tjob its supervisor did not report the end\n" % EVENT.encode("ascii"))
        output.flush()
    finally:
        with contextlib.suppress(OSError):
            if process.stdin:
                process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LOST)


def _read_back(path: str, account: Account) -> str:
    """The job's output.

    Raises:
        StackError: there is no sign of the supervisor in it.
    """
    with open(path, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        begun = ("%s started\t" % EVENT).encode("ascii") in stream.read(1 << 20)
        stream.seek(max(0, size - OUTPUT_LIMIT))
        output = stream.read().decode("utf-8", "replace")
    if not begun:
        said = " ".join(output.split())[:400] or "it printed nothing"
        raise StackError(
            "The acceptance did not start as %s: %s" % (account.name, said if said.endswith(".") else said + "."),
            "user", _become_remedy(account),
        )
    return output


def _become_remedy(account: Account) -> str:
    """What to do when the account cannot be used."""
    if not account.other:
        return "Look at the mode of the directories above the release's root."
    return (
        "Let this account run commands as %s without a password, and let that account read the release's root; or "
        "leave acceptance_user empty." % account.name
    )
