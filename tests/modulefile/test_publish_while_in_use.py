# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Users list and load modules while releases are published, made the default, taken back, and retired.

The users' shells run the real module commands; with Lmod there is a real spider cache, from which loads are served too.
Version 9 is listed and never the default: whoever missed the default for a moment would get it, as the highest.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import threading
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.lifecycle import spider_cache
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.layout import default_path, stage_directory
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.module_system import EM, LMOD, QUIET
from support.published_release import change, stage

#: Turns of the user of each module system, with one ``module avail`` and one ``module load`` in each.
TURNS = int(os.environ.get("TORCHSTACK_MODULE_TURNS", "500"))
MESSAGE = "torchstack/3 goes soon, please use torchstack."

# Records end with \x1e, their fields with \x1f.
USER = r"""
turn=0
while [ $turn -lt $TURNS ]; do
  turn=$((turn + 1))
  # Half of the users of Lmod look at the module tree itself.
  if [ $((turn % 4)) -lt 2 ]; then unset LMOD_IGNORE_CACHE; else export LMOD_IGNORE_CACHE=yes; fi
  code=$("$@" bash -t avail 2> "$HOME/said"); (eval "$code") > /dev/null
  printf 'avail\x1f%s\x1f%s\x1e' $? "$(cat "$HOME/said")"
  name=torchstack; [ $((turn % 2)) = 0 ] || name=torchstack/3
  code=$("$@" bash load $name 2> "$HOME/said")
  (eval "$code" && printf '%s\x1f%s\x1f%s\x1f%s\x1e' $name "$WHICH" "${PATH%%:*}" "$(cat "$HOME/said")") ||
    printf '%s\x1ffailed\x1f\x1f%s\x1e' $name "$(cat "$HOME/said")"
done
"""


@pytest.fixture()
def place(system, tmp_path):
    """Releases of which 1 is the default and 9 the highest, and what a user's shell starts with."""
    syntax = "tcl" if system.kind == EM else "lmod"
    for version in ("1", "2", "3", "4", "9"):
        stage(tmp_path / "root", version)
        if version != "4":
            change(tmp_path / "root", version, default=version == "1")
    (tmp_path / "home").mkdir()
    environment = {
        "HOME": str(tmp_path / "home"), "PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8",
        "MODULEPATH": str(tmp_path / "root" / "modulefiles" / syntax), **QUIET[system.kind],
    }
    return tmp_path / "root", environment


@pytest.fixture()
def renew(system, place, tmp_path):
    """Renew the cache of Lmod as the module module_cache does; Environment Modules has none."""
    root, environment = place
    if system.kind != LMOD:
        return lambda: None
    program = os.path.join(os.path.dirname(os.path.realpath(system.command)), "update_lmod_system_cache_files")
    if not os.path.exists(program):
        pytest.fail("this Lmod has no %s" % program)
    cache = tmp_path / "cache"
    cache.mkdir()
    (tmp_path / "lmodrc.lua").write_text(
        'scDescriptT = { { dir = "%s", timestamp = "%s/timestamp" } }\n' % (cache, cache))
    environment.update(LMOD_RC=str(tmp_path / "lmodrc.lua"), LMOD_CACHED_LOADS="yes")
    words = [program, "-d", str(cache), "-t", "%s/timestamp" % cache, environment["MODULEPATH"]]

    def renew():
        looked = spider_cache.read_cache(str(root), words)
        if not looked.is_current:
            spider_cache.renew_cache(str(root), looked, 60)

    renew()
    return renew


def life(root):
    """One change after the other, for ever, and what is done to which release."""
    for _round in itertools.count():
        yield change(root, "2", default=True)
        yield change(root, "3", "deprecated", notice=MESSAGE)
        yield change(root, "2", "rolled_back")
        yield change(root, "4")
        yield change(root, "3", "hidden")
        yield change(root, "2", default=True)
        yield change(root, "4", "deprecated", notice="torchstack/4 goes.")
        yield change(root, "4", "hidden")
        yield change(root, "1", default=True)
        yield change(root, "4", "gone", notice="torchstack/4 is gone.")
        yield change(root, "3", revive=True)
        yield change(root, "1", "rolled_back")
        yield change(root, "4", "withdrawn")
        yield change(root, "2", "rolled_back")


def wrong(record):
    """What a user must never be told."""
    kind, *fields = record.split("\x1f")
    if kind == "avail":
        code, said = fields
        return code != "0" or "rror" in said or "arning" in said or not {"torchstack/1", "torchstack/2"} <= {
            word.partition("(")[0] for word in said.split()}
    which, path, said = fields
    allowed = ("3",) if kind == "torchstack/3" else ("1", "2")
    return which not in allowed or path != "/soft/%s/bin" % which or said.strip() not in ("", MESSAGE)


def test_a_thousand_module_commands_of_each_system_never_meet_an_error_or_miss_the_default(
    system, place, renew, tmp_path
):
    root, environment = place
    user = subprocess.Popen(
        ["/bin/bash", "--norc", "--noprofile", "-c", USER, "user", *system.words],
        env=dict(environment, TURNS=str(TURNS)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    told: list[str] = []
    reader = threading.Thread(target=lambda: told.extend(user.stdout.read().split("\x1e")))
    reader.start()
    rounds = 0
    try:
        for rounds, actions in enumerate(life(root), 1):
            assert actions, "a change that changes nothing shows nothing"
            renew()
            if user.poll() is not None and rounds > 28:
                break
            # The user shall have the processor too, and meet changes at any moment of a command.
            time.sleep(random.uniform(0, 0.06))
    finally:
        user.kill()
        user.wait()
        reader.join()
    assert told.pop() == "", "the shell printed something that is no record"
    assert [record for record in told if wrong(record)][:3] == []
    assert len(told) == 2 * TURNS
    loaded = {record.split("\x1f")[1] for record in told if record.startswith("torchstack\x1f")}
    messages = {record.split("\x1f")[3].strip() for record in told if record.startswith("torchstack/3")}
    assert loaded == {"1", "2"} and messages == {"", MESSAGE}, "the user saw nothing of it: nothing is shown"
    print("%d changes beside %d module commands" % (rounds, len(told)))


def test_the_numbers_of_the_journals_grow_over_all_releases(place):
    root, _environment = place
    for actions in itertools.islice(life(root), 28):
        assert actions
    numbers, defaults = [], 0
    for version in ("1", "2", "3", "4", "9"):
        with open(os.path.join(stage_directory(str(root), version), "publish.jsonl"), encoding="utf-8") as stream:
            entries = [json.loads(line) for line in stream]
        assert [entry["seq"] for entry in entries] == sorted(entry["seq"] for entry in entries)
        numbers.extend(entry["seq"] for entry in entries)
        defaults += sum(entry["action"] == "default" for entry in entries)
    assert sorted(numbers) == list(range(1, len(numbers) + 1))
    assert defaults == 2 + 2 * 2 * 6


def load(system, environment, name):
    """The version that a load gives, and what is said."""
    script = 'code=$("$@" 2> "$HOME/said"); eval "$code" || WHICH=failed; echo "$WHICH"; cat "$HOME/said"'
    done = subprocess.run(
        ["/bin/bash", "--norc", "--noprofile", "-c", script, "user", *system.words, "bash", *name], env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    which, _newline, said = done.stdout.partition("\n")
    return which, " ".join(said.split())


def test_the_default_is_what_load_without_a_version_gives_once_the_cache_is_renewed(system, place, renew):
    root, environment = place
    renew()
    assert load(system, environment, ["load", "torchstack"]) == ("1", "")
    change(root, "2", default=True)
    before = {LMOD: "1", EM: "2"}[system.kind]
    assert load(system, environment, ["load", "torchstack"]) == (before, ""), "the cache is not used: nothing is shown"
    renew()
    assert load(system, environment, ["load", "torchstack"]) == ("2", "")
    change(root, "2", "rolled_back")
    renew()
    assert load(system, environment, ["load", "torchstack"]) == ("1", "")


def test_users_are_told_at_each_stage_of_a_release_s_way_out(system, place, renew):
    root, environment = place

    def listed():
        renew()
        said = load(system, environment, ["-t", "avail"])[1]
        return "torchstack/3" in {word.partition("(")[0] for word in said.split()}

    change(root, "3", known_problems=["Horovod hangs with {2} ranks of \"one\" $node [x]."])
    assert load(system, environment, ["load", "torchstack/3"]) == ("3", "")
    helped = load(system, environment, ["help", "torchstack/3"])[1]
    assert "This is 3." in helped and 'Known problems: - Horovod hangs with {2} ranks of "one" $node [x].' in helped
    change(root, "3", "deprecated", notice=MESSAGE)
    assert listed() and load(system, environment, ["load", "torchstack/3"]) == ("3", MESSAGE)
    helped = load(system, environment, ["help", "torchstack/3"])[1]
    assert MESSAGE in helped and "Horovod hangs" in helped
    change(root, "3", "hidden")
    assert not listed() and load(system, environment, ["load", "torchstack/3"]) == ("3", MESSAGE)
    change(root, "3", "gone", notice="torchstack/3 was retired on 2026-11-22: load torchstack/9.")
    which, said = load(system, environment, ["load", "torchstack/3"])
    assert not listed() and which in ("failed", "") and "was retired on 2026-11-22: load torchstack/9." in said
    change(root, "3", revive=True)
    assert listed() and load(system, environment, ["load", "torchstack/3"]) == ("3", "")


def test_who_has_a_module_loaded_that_goes_can_unload_it(system, place, tmp_path):
    root, environment = place
    script = """
m() { eval "$("${words[@]}" bash "$@" 2>> "$HOME/said")"; }
words=("$@")
before=$(env | grep -v -i -E '^_|module|lmfiles|_modshare='); m load torchstack/3; [ "$WHICH" = 3 ] || echo "not loaded"
echo; read -r go
m unload torchstack/3; after=$(env | grep -v -i -E '^_|module|lmfiles|_modshare=')
[ "$before" = "$after" ] && echo same || diff <(echo "$before") <(echo "$after")
"""
    for state in ("deprecated", "hidden", "gone"):
        user = subprocess.Popen(
            ["/bin/bash", "--norc", "--noprofile", "-c", script, "user", *system.words], env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert user.stdout.readline() == "\n"
        change(root, "3", state, notice=MESSAGE)
        assert user.communicate("go\n")[0] == "same\n"
        change(root, "3", revive=True)
    assert MESSAGE not in (tmp_path / "home" / "said").read_text()


def test_the_first_default_is_not_taken_back_to_nothing(system, place):
    root, environment = place
    with pytest.raises(StackError, match=r"There was no default before torchstack/1, .* of 2, 3, 9"):
        change(root, "1", "rolled_back")
    assert load(system, environment, ["load", "torchstack"]) == ("1", "")


def test_no_default_is_left_over_when_the_first_one_is_withdrawn(system, place):
    root, environment = place
    change(root, "1", "withdrawn")
    assert not os.path.exists(os.path.join(str(root), default_path("tcl", "torchstack")))
    assert load(system, environment, ["load", "torchstack"]) == ("9", "")
