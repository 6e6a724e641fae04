# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Random histories of build steps, played with real processes, and a judge that believes none of the product's records.

A *world* is a graph of two to five steps. A *controller* is a process that goes through the graph as a play does: for
each step what the module calls (``present``, then ``query`` until it ends). Supervisors are started by the product
itself. Around them, as the seed says: inputs change and change back, artefacts are lost, scripts break, a cache is at
hand, controllers come together, and controller, supervisor, script, its children or all are killed, at any moment or at
a chosen change of a file (the library of faults).

Scripts and controllers append lines to one journal, each by one write(2) with O_APPEND, so that its order is the order
in time. What has to hold, from the journal and from /proc alone:

* A success of step S with digest D is *seen* when a controller reports S as done, cached or unchanged, or its stamp is
  there, with its artefact, while nothing runs. A script that ended with 0 before its supervisor was killed has not
  been seen: nobody knew its exit code, and it runs again.
* Once seen, S does not begin with D again, unless since then S began with another digest, a controller asked S for
  another digest, or the artefact of S was removed by the world.
* Nothing is seen, and no stamp exists at any moment, unless a script of S with D has ended well before. Where no two
  controllers wanted different things at once, the artefact holds what these inputs make of the needed artefacts.
* No script of S begins while a process of an older one lives: each holds a lock, and so do its children.
* When the kills are over, the jobs end by themselves, the next run completes every step, the one after changes nothing,
  no process is left, and the directories of steps that ran hold what is documented and nothing else.
* When the module fails, it fails with a StackError that names a remedy.

Children that leave both the script's session and its environment are outside of this: no process but their living
supervisor can know them.

As a program it plays seeds and prints a line of JSON for each one: see :func:`main`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import time
import traceback
from typing import Iterator, NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support import faults
from support.polling import eventually

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
KNOWN = {
    "script.sh", "inputs.json", "log", "exit", "stamp.json", "result.json", "job.json", ".lock", ".supervisor.zip",
    "artefact",
}
PATIENCE = 60.0
"""Seconds after which something that does not end is a hang."""

FASTER = (
    ("steps/job_state", "HEARTBEAT_SECONDS = 5.0", "HEARTBEAT_SECONDS = 0.1"),
    ("steps/status", "FIRST_QUERY_SECONDS = 0.5", "FIRST_QUERY_SECONDS = 0.05"),
    ("steps/supervisor", "RECORD_SECONDS = 60.0", "RECORD_SECONDS = 0.5"),
)
"""Times of the product that are shortened in the copy that worlds use."""

SCRIPT = """
exec 9>> {root}/exclusive.{name}
{{ read -r _; read -r _ _ _ _ _ digest; }} < "${{BASH_SOURCE[0]}}"
digest=${{digest%.}}
flock -n 9 || {{ echo "violation {name} $digest two jobs at once" >> {root}/journal; exit 9; }}
echo "begin {name} $digest $$" >> {root}/journal
echo part > artefact
{work}
made={name}{version}
{bases}
if [ -e {root}/broken.{name} ]; then echo "end {name} $digest broken -" >> {root}/journal; exit 3; fi
if [ -e {root}/lazy.{name} ]; then rm artefact; echo "end {name} $digest lazy -" >> {root}/journal; exit 0; fi
echo "$made" > artefact
echo "end {name} $digest ok $made" >> {root}/journal
"""
BASE = """read -r base < ../{need}/artefact || base=none
made="$made($base)"
"""
WORKS = (
    ":",
    "sleep 0.03",
    "echo '[1/2]'; sleep 0.1; echo '[2/2]'",
    "sleep 0.2",
    "sleep 0.08 & sleep 0.05; wait",
    "(trap '' TERM; sleep 0.15) & sleep 0.05; wait",
    "setsid sleep 0.3 & sleep 0.02",
    "for i in 1 2 3 4 5 6 7; do echo \"[$i/7]\"; sleep 0.1; done",
)


def copy_collection(target: pathlib.Path, *changes: tuple[str, str, str]) -> pathlib.Path:
    """A copy of what build_step consists of, as a collections path.

    Args:
        target: where to; made here.
        changes: a file of module_utils (without its suffix), a text that is in it once, and what stands there instead.
    """
    plugins = target / "ansible_collections" / "hpcml" / "torchstack" / "plugins"
    for kind in ("modules", "module_utils"):
        shutil.copytree(str(CHECKOUT / "plugins" / kind), str(plugins / kind), ignore=shutil.ignore_patterns("__*"))
    for name, right, wrong in (*FASTER, *changes):
        path = plugins / "module_utils" / (name + ".py")
        text = path.read_text()
        assert text.count(right) == 1, "%s: %r is not there once" % (name, right)
        path.write_text(text.replace(right, wrong))
    return target


class Controller(NamedTuple):
    """A controller that was started."""

    name: str
    pid: int
    versions: tuple


class World:
    """One graph of steps, and what happens to it."""

    def __init__(self, root: pathlib.Path, seed: int, library: str) -> None:
        self.root, self.library, self.random = root, library, random.Random(seed)
        self.place = root / "world"
        self.state = self.place / "it's the $state"
        self.state.mkdir(parents=True)
        self.journal = root / "journal"
        self.journal.write_text("")
        self.names = list("abcde"[: self.random.choice((2, 2, 2, 3, 3, 4, 5))])
        self.needs = {
            name: [other for other in self.names[:place] if self.random.random() < 0.6]
            for place, name in enumerate(self.names)
        }
        self.works = {name: self.random.choice(WORKS) for name in self.names}
        self.cache = str(self.place / "cache") if self.random.random() < 0.3 else None
        self.wanted = dict.fromkeys(self.names, 0)
        self.controllers: dict[int, Controller] = {}
        self.all: list[tuple[Controller, float, float]] = []
        self.begun: dict[int, float] = {}
        self.history: list[str] = []
        self.found: list[str] = []
        self.content_of: dict[str, str] = {}
        self.ends: set[tuple[str, str]] = set()
        self.read_so_far = 0

    # -- what a controller does -----------------------------------------------------------------------------------

    def parameters(self, name: str, version: int) -> dict:
        """The options of build_step for one step."""
        script = SCRIPT.format(
            root=self.root, name=name, version=version, work=self.works[name],
            bases="".join(BASE.format(need=need) for need in self.needs[name]),
        )
        return {
            "name": name, "state_dir": str(self.state), "script": script, "inputs": {"version": version},
            # What is kept has to be produced; without that, steps are judged by their inputs.
            "needs": self.needs[name], "cache": self.cache,
            "produces" if self.cache else "creates": [str(self.state / name / "artefact")],
            "grace": 0.1,
        }

    def made(self, name: str, versions: dict[str, int]) -> str:
        """What the artefact of a step holds when everything was made from these versions."""
        return "%s%d%s" % (
            name, versions[name], "".join("(%s)" % self.made(need, versions) for need in self.needs[name])
        )

    def say(self, *words: object) -> None:
        """Append a line to the journal."""
        line = " ".join(str(word) for word in words) + "\n"
        descriptor = os.open(str(self.journal), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        os.write(descriptor, line.encode())
        os.close(descriptor)

    def go_through(self, who: str, versions: dict[str, int]) -> None:
        """What a controller does: every step in its order, as long as it goes well."""
        from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
        from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.files import step_files
        from ansible_collections.hpcml.torchstack.plugins.module_utils.steps.status import query
        from ansible_collections.hpcml.torchstack.plugins.modules import build_step

        defaults = {key: spec.get("default") for key, spec in build_step.ARGUMENTS.items()}
        for name in self.names:
            parameters = {**defaults, **self.parameters(name, versions[name])}
            try:
                self.say("ask", who, name, build_step.present(parameters, True, False)["digest"])
                result = build_step.present(parameters, False, False)
                while result["state"] == "running":
                    time.sleep(0.02)
                    result = query(step_files(str(self.state), name), result["nonce"])
            except StackError as error:
                answer = error.as_result()
                self.say("refused", who, name, error.failed_step, answer.get("reason", "-"), json.dumps(answer["msg"]))
                if not error.remedy:
                    self.say("violation", name, "-", "no remedy:", error.message)
                return
            except OSError as error:
                # The module says the same of them all: which file, what the system said, what to look at.
                self.say("refused", who, name, "records", "-", json.dumps("%s: %s" % (error.filename, error.strerror)))
                if not error.filename or not error.strerror:
                    self.say("violation", name, "-", "no file is named:", repr(error))
                return
            artefact = self.state / name / "artefact"
            content = artefact.read_text().strip() if artefact.exists() else "none"
            self.say("report", who, name, result["digest"], result["state"], content)

    def start(self, versions: dict[str, int], plan: dict[str, str] | None = None, own: bool = False) -> Controller:
        """Start a controller.

        Args:
            versions: what it asks for.
            plan: variables of the library of fault_library.
            own: they are for the controller, which then is a new program; else for the supervisors that it starts.
        """
        who = "c%d" % (len(self.all) + len(self.controllers) + 1)
        self.say("start", who, json.dumps(versions, separators=(",", ":")))
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            status = 99
            try:
                errors = os.open(str(self.root / "errors"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
                os.dup2(errors, 2)
                os.environ.update(plan or {})
                if own:
                    words = {"root": str(self.root), "who": who, "versions": versions, "names": self.names}
                    words.update(needs=self.needs, works=self.works, cache=self.cache)
                    os.execv(sys.executable, [sys.executable, __file__, "--controller", json.dumps(words)])
                self.go_through(who, versions)
                status = 0
            except BaseException:
                self.say("violation", "-", "-", json.dumps(traceback.format_exc()))
            finally:
                os._exit(status)
        self.controllers[pid] = Controller(who, pid, tuple(sorted(versions.items())))
        self.begun[pid] = time.monotonic()
        return self.controllers[pid]

    # -- what happens to it ---------------------------------------------------------------------------------------

    def processes(self) -> Iterator[tuple[int, str]]:
        """Living processes of supervisors, and of scripts with their children."""
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) in self.controllers or int(entry) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                if os.stat("/proc/" + entry).st_uid != os.getuid():
                    continue
                with open("/proc/%s/cmdline" % entry, "rb") as stream:
                    command = stream.read().decode("utf-8", "replace")
                if str(self.state) in command and ".supervisor.zip" in command:
                    yield int(entry), "supervisor"
                elif os.readlink("/proc/%s/cwd" % entry).startswith(str(self.place)):
                    yield int(entry), "script" if "script.sh" in command else "child"
                elif str(self.state) in command and "script.sh" in command:
                    yield int(entry), "script"

    def kill(self, targets: tuple[str, ...]) -> None:
        """Kill what is there of these kinds."""
        victims = [(pid, kind) for pid, kind in self.processes() if kind in targets]
        if "controller" in targets:
            victims += [(pid, controller.name) for pid, controller in self.controllers.items()]
        for pid, kind in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.history.append("killed %s %d" % (kind, pid))

    def look_around(self) -> None:
        """Notice controllers that ended, and stamps that should not be there."""
        for pid in list(self.controllers):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                controller = self.controllers.pop(pid)
                self.say("gone", controller.name, status)
                self.all.append((controller, self.begun.pop(pid), time.monotonic()))
        stamps = self.stamps()
        with open(str(self.journal), encoding="utf-8") as stream:
            stream.seek(self.read_so_far)
            for line in stream:
                words = line.split()
                if words[0] == "end" and words[3] == "ok":
                    self.ends.add((words[1], words[2]))
                self.read_so_far += len(line)
        for name, digest in stamps:
            if (name, digest) not in self.ends:
                self.found.append("step %s has a stamp for %s, which has not ended well" % (name, digest[:12]))

    def stamps(self) -> list[tuple[str, str]]:
        """Steps with the digests they are stamped for."""
        stamps = []
        for name in self.names:
            with contextlib.suppress(FileNotFoundError), open(str(self.state / name / "stamp.json"), "rb") as stream:
                stamps.append((name, json.load(stream)["digest"]))
        return stamps

    def wait(self, seconds: float = 0.0, all_ended: bool = False) -> None:
        """Let time pass: some seconds, or until all controllers have ended."""
        end = time.monotonic() + seconds
        while not self.found and (self.controllers if all_ended else time.monotonic() < end):
            self.look_around()
            if time.monotonic() > end + PATIENCE:
                self.found.append("a controller does not end")
            time.sleep(0.01)

    def settle(self) -> None:
        """Wait until nothing runs any more, and write down what is stamped."""
        self.wait(all_ended=True)
        end = time.monotonic() + PATIENCE
        while not self.found and any(True for _process in self.processes()):
            self.look_around()
            if time.monotonic() > end:
                self.found.append("left running: %s" % list(self.processes()))
            time.sleep(0.01)
        self.look_around()
        for name, digest in self.stamps():
            # Without its artefact a step is not complete, whatever its stamp says.
            if (self.state / name / "artefact").exists():
                self.say("stamp", name, digest)

    def round(self) -> None:
        """Change something, start one or two controllers, and let something happen to them."""
        choose = self.random
        note = self.history.append
        if choose.random() < 0.5:
            name = choose.choice(self.names)
            self.wanted[name] = choose.choice((0, 1, self.wanted[name] + 1))
            note("%s becomes version %d" % (name, self.wanted[name]))
        if choose.random() < 0.15:
            name = choose.choice(self.names)
            if choose.random() < 0.5:
                # A loss is only a loss when no script is about to make the artefact.
                self.settle()
                with contextlib.suppress(FileNotFoundError):
                    (self.state / name / "artefact").unlink()
                    self.say("lose", name)
                    note("the artefact of %s is lost" % name)
            else:
                flag = self.root / ("%s.%s" % (choose.choice(("broken", "lazy")), name))
                if flag.exists():
                    flag.unlink()
                else:
                    flag.write_text("")
                note("%s is toggled" % flag.name)
        what = choose.random()
        plan, own = None, False
        if 0.35 < what <= 0.55 and self.library:
            own = what > 0.48
            action = choose.choice(("kill", "kill", "torn"))
            at = choose.randint(1, 60 if own else 30)
            plan = faults.variables(
                pathlib.Path(self.library), action, ("write",) if action == "torn" else faults.CHANGES, self.place,
                at // 3 + 1 if action == "torn" else at, program="--controller" if own else ".supervisor.zip",
            )
            note("%s: %s at change %d" % ("controller" if own else "supervisors", action, at))
        self.start(dict(self.wanted), plan, own)
        note("controller for %s" % self.wanted)
        if choose.random() < 0.25:
            self.wait(choose.choice((0.0, choose.random() * 0.2)))
            versions = dict(self.wanted)
            if choose.random() < 0.4:
                name = choose.choice(self.names)
                versions[name] += choose.choice((1, 1, 2))
            self.start(versions)
            note("controller for %s beside it" % versions)
        if what > 0.55:
            for _kill in range(choose.choice((1, 1, 2))):
                self.wait(choose.random() ** 2 * 0.6)
                self.kill(choose.choice((
                    ("controller",), ("supervisor",), ("supervisor",), ("script",), ("script", "child"),
                    ("supervisor", "script"),
                    ("controller", "supervisor"), ("controller", "supervisor", "script", "child"),
                )))
        if choose.random() < 0.7:
            self.wait(all_ended=True)
        else:
            self.wait(choose.random() * 0.3)

    def play(self) -> None:
        """A few rounds; then, without any further kill, everything has to end well."""
        for _round in range(self.random.choice((1, 2, 2, 3))):
            if not self.found:
                self.round()
        for flag in list(self.root.glob("broken.*")) + list(self.root.glob("lazy.*")):
            flag.unlink()
        if self.random.random() < 0.5:
            name = self.random.choice(self.names)
            self.wanted[name] = 9
            self.history.append("%s becomes version 9" % name)
        self.end_well()

    def end_well(self) -> None:
        """Without any further fault, one run completes everything and the next one changes nothing; then judge."""
        self.settle()
        runs = []
        for _time in range(2):
            if not self.found:
                controller = self.start(dict(self.wanted))
                self.settle()
                runs.append(controller.name)
        if not self.found:
            self.judge_the_end(*runs)
            self.judge()

    # -- the judge ------------------------------------------------------------------------------------------------

    def lines(self) -> list[list[str]]:
        """The journal."""
        return [line.split() for line in self.journal.read_text().splitlines()]

    def judge_the_end(self, first: str, second: str) -> None:
        """The last two runs: one that completes everything, and one that finds everything complete."""
        lines = self.lines()
        where = {words[1]: place for place, words in enumerate(lines) if words[0] == "start"}
        for run, states in ((first, ("done", "cached", "unchanged")), (second, ("unchanged",))):
            reports = {words[2]: words[4] for words in lines if words[0] == "report" and words[1] == run}
            for name in self.names:
                if reports.get(name) not in states:
                    refusal = [" ".join(words) for words in lines if words[0] == "refused" and words[1] == run]
                    self.found.append("the last runs (%s): %s is %s; %s" % (run, name, reports.get(name), refusal))
        if any(words[0] == "begin" for words in lines[where[second]:]):
            self.found.append("something began in the very last run")
        ran = {words[1] for words in lines[where[first]:] if words[0] == "begin"}
        for name in ran:
            litter = set(os.listdir(str(self.state / name))) - KNOWN
            if litter:
                self.found.append("litter of step %s: %s" % (name, sorted(litter)))

    def judge(self) -> None:
        """Everything else that the journal tells."""
        lines = self.lines()
        gone = {words[1]: place for place, words in enumerate(lines) if words[0] == "gone"}
        last = len(lines)
        asked: dict[str, list[tuple[int, int, str]]] = {name: [] for name in self.names}
        seen: dict[tuple[str, str], int] = {}
        begun: dict[str, list[tuple[int, str]]] = {name: [] for name in self.names}
        lost: dict[str, list[int]] = {name: [] for name in self.names}
        ended: set[tuple[str, str]] = set()
        open_asks: dict[tuple[str, str], int] = {}
        for place, words in enumerate(lines):
            kind = words[0]
            if kind == "violation":
                self.found.append(" ".join(words[1:]))
            elif kind == "ask":
                open_asks[words[1], words[2]] = len(asked[words[2]])
                asked[words[2]].append((place, gone.get(words[1], last), words[3]))
            elif kind == "lose":
                lost[words[1]].append(place)
            elif kind == "end" and words[3] == "ok":
                ended.add((words[1], words[2]))
            elif kind == "begin":
                name, digest = words[1], words[2]
                since = seen.get((name, digest))
                if since is not None and not (
                    any(at > since and other != digest for at, other in begun[name])
                    or any(at > since for at in lost[name])
                    or any(until > since and other != digest for _at, until, other in asked[name])
                ):
                    self.found.append("step %s ran again for %s (line %d)" % (name, digest[:12], place + 1))
                begun[name].append((place, digest))
            elif kind in ("report", "refused"):
                at = place
                if (words[1], words[2]) in open_asks:
                    index = open_asks.pop((words[1], words[2]))
                    at, _until, digest = asked[words[2]][index]
                    asked[words[2]][index] = (at, place, digest)
                if kind == "report":
                    self.judge_report(words, ended, place)
                    seen[words[2], words[3]] = at
            elif kind == "stamp":
                seen[words[1], words[2]] = place
                if (words[1], words[2]) not in ended:
                    self.found.append("step %s is stamped for %s, which never ended well" % (words[1], words[2][:12]))

    def judge_report(self, words: list[str], ended: set[tuple[str, str]], place: int) -> None:
        """A controller was told that a step is complete."""
        _kind, who, name, digest, state, content = words
        if (name, digest) not in ended:
            self.found.append("%s was told that %s is %s, which never ended well (line %d)" % (
                who, name, state, place + 1))
        mine, start, end = next(entry for entry in self.all if entry[0].name == who)
        if any(other.versions != mine.versions and since < end and until > start for other, since, until in self.all):
            return
        wanted = self.made(name, dict(mine.versions))
        if content != wanted:
            self.found.append("%s was told that %s is %s; it holds %s instead of %s (line %d)" % (
                who, name, state, content, wanted, place + 1))

    def clean_up(self) -> None:
        """Leave nothing behind."""
        for _time in range(50):
            self.kill(("controller", "supervisor", "script", "child"))
            self.look_around()
            if not self.controllers and not list(self.processes()):
                break
            time.sleep(0.02)


def play_seed(scratch: pathlib.Path, seed: int, library: str) -> dict:
    """Play one seed.

    Returns:
        ``seed``; ``found``, what is wrong, empty where nothing is; and what happened.
    """
    root = scratch / ("seed-%d" % seed)
    root.mkdir()
    world = World(root, seed, library)
    try:
        world.play()
    finally:
        world.clean_up()
    answer: dict = {"seed": seed, "found": world.found}
    lines = world.lines()
    answer["begun"] = sum(words[0] == "begin" for words in lines)
    answer["killed"] = sum(entry.startswith("killed") for entry in world.history)
    if world.found:
        answer.update(history=world.history, needs=world.needs, journal=[" ".join(words) for words in lines])
    else:
        shutil.rmtree(str(root))
    return answer


def play_change(scratch: pathlib.Path, number: int, library: str, who: str, action: str) -> dict:
    """Let a controller or its supervisors meet a fault at their change of this number, and see that all ends well.

    Args:
        scratch: where.
        number: of the change, from 1; 0 to count only.
        library: that of fault_library.
        who: ``controller`` or ``supervisor``.
        action: see :func:`faults.variables`; with a ``+`` at its end, the changes after that one meet it too.

    Returns:
        As :func:`play_seed`, and ``changes``: how many were made until then.
    """
    root = scratch / ("%s-%s-%d" % (who, action.replace(":", "-"), number))
    root.mkdir()
    world = World(root, 0, library)
    # One step whose inputs change, with an artefact and a cache: it has all changes there are.
    world.names, world.needs, world.works, world.wanted = ["a"], {"a": []}, {"a": "sleep 0.15"}, {"a": 1}
    world.cache = str(world.place / "cache")
    log = root / "changes"
    plan = faults.variables(
        pathlib.Path(library), action.rstrip("+") if number else "none",
        ("write",) if action == "torn" else faults.CHANGES, world.place, number or None, action.endswith("+"),
        "--controller" if who == "controller" else ".supervisor.zip", log,
    )
    try:
        world.start({"a": 0}, plan if number % 2 else None, who == "controller")
        world.settle()
        world.start({"a": 1}, plan, who == "controller")
        world.end_well()
    finally:
        world.clean_up()
    changes = len(log.read_text().splitlines()) if log.exists() else 0
    refused = [" ".join(words) for words in world.lines() if words[0] == "refused"]
    if action.startswith("error:"):
        text = os.strerror(getattr(errno, action[6:].rstrip("+")))
        # A supervisor that cannot write anything any more cannot tell anybody, and here nobody else meets its fault.
        mute = who == "supervisor" and action.endswith("+")
        world.found += [
            "the cause is not named: " + line
            for line in refused if text not in line and not (mute and line.split()[4] == "killed")
        ]
    answer = {"seed": number, "found": world.found, "changes": changes, "refused": refused}
    if world.found:
        answer.update(history=[who, action], journal=[" ".join(words) for words in world.lines()])
    else:
        shutil.rmtree(str(root))
    return answer


def play_story(scratch: pathlib.Path, number: int, story: str) -> dict:
    """Play a history that is known to be a trap; as :func:`play_seed`.

    Args:
        scratch: where.
        number: tells plays of one story apart.
        story: ``together``, where two controllers want a step at the same moment; or ``orphan``, where a controller
            comes to a step whose script has lost its supervisor.
    """
    root = scratch / ("%s-%d" % (story, number))
    root.mkdir()
    world = World(root, 0, "")
    world.names, world.needs, world.works, world.wanted = ["a"], {"a": []}, {"a": "sleep 2"}, {"a": 1}
    world.cache = None
    try:
        world.start({"a": 1})
        if story == "orphan":
            eventually(lambda: any(words[0] == "begin" for words in world.lines()), "the script begins", PATIENCE)
            world.kill(("controller", "supervisor"))
        world.start({"a": 1})
        world.end_well()
    finally:
        world.clean_up()
    lines = [" ".join(words) for words in world.lines()]
    return {"seed": number, "found": world.found, "history": [story], "journal": lines}


def act_as_controller(words: dict) -> None:
    """A controller that is a program of its own, for faults that it meets itself."""
    world = World.__new__(World)
    world.root = pathlib.Path(words["root"])
    world.place = world.root / "world"
    world.state = world.place / "it's the $state"
    world.journal = world.root / "journal"
    world.names, world.needs, world.works, world.cache = (
        words["names"], words["needs"], words["works"], words["cache"]
    )
    world.go_through(words["who"], words["versions"])


def main(arguments: list[str]) -> None:
    """Play seeds: ``SCRATCH LIBRARY FIRST COUNT STEP [WHO ACTION|STORY]``, with a copy of the collection on PYTHONPATH.

    ``LIBRARY`` is that of faults, or empty. With ``WHO`` and ``ACTION``, the numbers are those of changes, see
    :func:`play_change`; with ``STORY`` they are repetitions, see :func:`play_story`. Stops at the first number that
    finds something, as do those that play beside it.
    """
    if arguments[0] == "--controller":
        act_as_controller(json.loads(arguments[1]))
        return
    scratch, library = pathlib.Path(arguments[0]), arguments[1]
    first, count, step = (int(word) for word in arguments[2:5])
    os.umask(0o022)
    # Imported once, before the first controller is forked.
    from ansible_collections.hpcml.torchstack.plugins.modules import build_step  # noqa: F401 as said

    stop = scratch.parent / "stop"
    for seed in range(first, first + count, step):
        if stop.exists():
            break
        if len(arguments) == 6:
            answer = play_story(scratch, seed, arguments[5])
        elif arguments[6:]:
            answer = play_change(scratch, seed, library, *arguments[5:])
        else:
            answer = play_seed(scratch, seed, library)
        print(json.dumps(answer), flush=True)
        if answer["found"]:
            stop.write_text("")


if __name__ == "__main__":
    main(sys.argv[1:])
