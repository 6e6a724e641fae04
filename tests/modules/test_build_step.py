# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""build_step through Ansible: what an operator sees.

It covers start, attempt, status, results, supervisor, supervised_job and supervised_script of module_utils/steps, as
all test_build_step_*.py do that lie beside it.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest


@pytest.fixture(name="step")
def one_step(run_module, tmp_path):
    """Run step ``s`` below a directory whose name needs quoting."""
    state = tmp_path / "it's \"the\" $steps"

    def run(check=False, diff=False, caller=None, **options):
        arguments = dict({"name": "s", "state_dir": str(state)}, **options)
        result = run_module("build_step", arguments, check=check, diff=diff, environment=caller)
        # The record that Ansible writes of a failed task has no word of the failure; the console has.
        result["failed"] = "| FAILED! =>" in result.console
        return result

    run.state = state
    run.directory = state / "s"
    return run


def record(step, name):
    return json.loads((step.directory / name).read_text())


def test_check_do_check_do(step, tmp_path):
    options = {"script": "echo hi > out", "creates": ["out"], "chdir": str(tmp_path)}
    planned = step(check=True, **options)
    assert planned.changed
    assert planned["state"] == "planned"
    assert not step.state.exists()
    done = step(**options)
    assert done.changed
    assert (done["state"], done["attached"], done["resumed"]) == ("done", False, None)
    assert done["digest"] == planned["digest"]
    records = {path.name: path.stat().st_mtime_ns for path in step.directory.iterdir()}
    for check in (True, False):
        again = step(check=check, **options)
        assert not again.changed
        assert again["state"] == "unchanged"
    assert {path.name: path.stat().st_mtime_ns for path in step.directory.iterdir()} == records


def test_nothing_that_could_shape_a_build_comes_from_the_caller(step, tmp_path):
    fake = tmp_path / "fake"
    fake.mkdir()
    (fake / "colorsys.py").write_text("raise SystemExit('FAKE colorsys')\n")
    compiler = fake / "cc"
    compiler.write_text('#!/bin/sh\ntouch %s/used\nexec gcc "$@"\n' % fake)
    compiler.chmod(0o755)
    named = dict.fromkeys((
        "CC", "CXX", "MPICC", "MPICH_CC", "OMPI_CC", "LDSHARED", "AR", "NVCC_CCBIN", "MAKEFLAGS", "MAKEFILES",
        "PERL5LIB",
        "GIT_SSL_NO_VERIFY", "GIT_CONFIG_GLOBAL", "PIP_CONSTRAINT", "TAR_OPTIONS", "LD_LIBRARY_PATH"), str(compiler))
    hostile = dict(named, PYTHONPATH=str(fake), PKG_CONFIG_PATH=str(fake))
    script = '%s -c "import colorsys"; env | cut -d= -f1 > %s/names; ${MPICH_CC:-true}' % (sys.executable, tmp_path)
    plain = step(script=script, produces=[str(tmp_path / "names")])
    assert not plain["failed"], plain.console
    shutil.rmtree(step.directory)
    done = step(script=script, produces=[str(tmp_path / "names")], caller=hostile)
    assert not done["failed"], done.console
    assert done["digest"] == plain["digest"] and done["result"] == plain["result"]
    assert not set(hostile) & set((tmp_path / "names").read_text().split()) and not (fake / "used").exists()
    log = (step.directory / "log").read_text()
    line = next(line for line in log.splitlines() if "not handed on of the caller's environment" in line)
    assert set(hostile) <= set(line.split())


def test_nothing_that_a_step_prints_makes_the_terminal_do_anything(step):
    prints = (
        r"\033]0;TITLE\007", r"\033[2J", r"[1/3] \033]52;c;ZXZpbA==\007progress\n",
        r"[2/3] \033[1A\033[2Kfake line: TASK [ok]\n", r"\302\233\061Aerror: \033[31mred\033[0m \342\200\256kcab\n")
    failed = step(script="printf '%s'; exit 3" % "".join(prints))
    assert failed["failed"] and "\x1b" not in failed.console.replace("\\x1b", "") and "\x9b" not in failed.console
    lines = [*failed.get("log_tail", []), failed["msg"], failed.get("told", "")]
    assert any("red" in line for line in lines) and all(
        mark not in line for line in lines for mark in ("\x1b", "\x9b", "\x07", "\u202e", "ZXZpbA", "TITLE"))


def test_the_step_directory_holds_what_was_promised(step):
    step(script="echo hi")
    names = {path.name for path in step.directory.iterdir() if not path.name.startswith(".")}
    assert names == {"script.sh", "inputs.json", "log", "exit", "stamp.json", "job.json"}
    by_hand = subprocess.run(["bash", str(step.directory / "script.sh")], stdout=subprocess.PIPE, check=True)
    assert by_hand.stdout == b"hi\n"


def test_check_mode_and_diff_show_what_would_change_and_write_nothing(step):
    step(script="echo hi", inputs={"commit": "abc"})
    before = {path.name: path.read_bytes() for path in step.directory.iterdir()}
    planned = step(check=True, diff=True, script="echo there", inputs={"commit": "def"})
    assert planned.changed
    lines = [line for line in planned.console.splitlines() if line[:1] in ("+", "-")]
    changes = {line for line in lines if line[:3] not in ("+++", "---")}
    assert {"-echo hi", "+echo there", '-    "commit": "abc"', '+    "commit": "def"'} < changes
    assert len(changes) == 6, "the digest in the script's header, the commit and the command"
    assert {path.name: path.read_bytes() for path in step.directory.iterdir()} == before


def test_an_input_that_is_not_known_yet_is_planned_and_otherwise_refused(step):
    inputs = {"wheel": {"planned_after": "pytorch"}}
    planned = step(check=True, script="true", inputs=inputs)
    assert (planned.changed, planned["planned_after"], planned["digest"]) == (True, "pytorch", None)
    refused = step(script="true", inputs=inputs)
    assert refused.failed
    assert refused["failed_step"] == "needs"
    assert not step.state.exists()


def test_a_missing_directory_is_planned_in_check_mode_and_otherwise_refused(step, tmp_path):
    options = {"script": "true", "chdir": str(tmp_path / "src")}
    assert step(check=True, **options)["state"] == "planned"
    refused = step(**options)
    assert refused.failed
    assert str(tmp_path / "src") in refused["msg"]


def test_a_failure_says_all_an_operator_needs(step):
    failed = step(script="for i in $(seq 50); do echo line $i; done; exit 3")
    assert failed.failed
    assert (failed["exit_code"], failed["reason"], failed["failed_step"], failed["step"]) == (3, "exit", "run", "s")
    assert "line 50" in failed["log_tail"]
    assert len(failed["log_tail"]) == 30
    assert "Step s failed with exit code 3" in failed["msg"]
    assert str(step.directory / "log") in failed["msg"]
    assert failed["retry"] in failed["msg"]
    assert not (step.directory / "stamp.json").exists()
    retry = subprocess.run(failed["retry"], shell=True, stdout=subprocess.PIPE, check=False)
    assert retry.returncode == 3
    assert failed.console.count("line 49") == 1


def test_the_exit_code_of_a_pipeline_is_honoured(step):
    assert step(script="false | tee out").failed
    assert step(script="true | tee out").changed


def test_a_missing_artefact_after_success_is_a_failure(step, tmp_path):
    failed = step(script="touch a", chdir=str(tmp_path), creates=["a", "b/c"])
    assert failed.failed
    assert (failed["failed_step"], failed["missing"]) == ("creates", [str(tmp_path / "b/c")])
    assert str(tmp_path / "b/c") in failed["msg"]
    assert not (step.directory / "stamp.json").exists()


def test_a_step_whose_artefact_has_gone_runs_again(step, tmp_path):
    options = {"script": "echo x >> runs; touch a", "chdir": str(tmp_path), "creates": ["a"]}
    step(**options)
    (tmp_path / "a").unlink()
    again = step(**options)
    assert again.changed
    assert "is gone" in again["resumed"]
    assert (tmp_path / "runs").read_text() == "x\nx\n"


def test_absent_forgets_the_stamp_and_keeps_the_log(step):
    step(script="echo hi")
    assert step(state="absent", check=True).changed
    assert (step.directory / "stamp.json").exists()
    assert step(state="absent").changed
    assert not step(state="absent").changed
    assert "hi" in (step.directory / "log").read_text()
    again = step(script="echo hi")
    assert again.changed
    assert again["resumed"] is None
    assert (step.directory / "log").read_text().count("==== attempt") == 2
    assert record(step, "stamp.json")["attempt"] == 2


def test_a_changed_step_runs_its_followers_again(step):
    def follower(**options):
        return step(name="b", script="echo b >> runs", needs=["s"], **options)

    assert follower(check=True)["planned_after"] == "s"
    refused = follower()
    assert refused.failed
    assert "needs step s" in refused["msg"]
    step(script="echo a")
    first = follower()
    assert first.changed
    assert not follower().changed
    step(script="echo a2")
    second = follower()
    assert second.changed
    assert second["digest"] != first["digest"]
    assert (step.state / "b" / "runs").read_text() == "b\nb\n"


def test_the_plan_of_a_play_cascades(step, ansible_environment, tmp_path):
    """In check mode a follower of a step that would run is planned, although its stamp still fits the old one."""

    def play(script, *options):
        tasks = [
            {
                "hpcml.torchstack.build_step": {
                    "name": name, "state_dir": str(step.state), "script": text, "needs": needs
                },
                "register": name,
            }
            for name, text, needs in (("a", script, []), ("b", "echo b", ["a"]), ("c", "echo c", []))
        ]
        words = "{{ [a.state, b.state, b.planned_after | default('-', true), c.state] | join(' ') }}"
        tasks.append({"ansible.builtin.debug": {"msg": "seen: " + words}})
        book = tmp_path / "play.yml"
        book.write_text(
            json.dumps([{"hosts": "localhost", "gather_facts": False, "connection": "local", "tasks": tasks}])
        )
        command = [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), str(book), *options]
        output = subprocess.run(
            command, env=ansible_environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=True,
        ).stdout
        return output.split("seen: ")[1].split('"')[0].split()

    assert play("echo 1", "--check") == ["planned", "planned", "-", "planned"]
    assert play("echo 1") == ["done", "done", "-", "done"]
    assert play("echo 1", "--check") == ["unchanged", "unchanged", "-", "unchanged"]
    assert play("echo 2", "--check") == ["planned", "planned", "-", "unchanged"]
    assert play("echo 2") == ["done", "done", "-", "unchanged"]


def test_the_cache_serves_only_the_recorded_bytes(step, tmp_path):
    artefact = tmp_path / "out" / "x.whl"
    options = {
        "script": "echo run >> '%s'; mkdir -p out; echo wheel > out/x.whl" % (tmp_path / "runs"),
        "chdir": str(tmp_path), "produces": ["out/x.whl"], "cache": str(tmp_path / "cache dir"),
    }
    first = step(**options)
    assert (first["state"], first["from_cache"]) == ("done", False)
    shutil.rmtree(str(artefact.parent))
    shutil.rmtree(str(step.state))
    second = step(**options)
    assert (second.changed, second["state"], second["from_cache"]) == (True, "cached", True)
    assert artefact.read_text() == "wheel\n"
    assert record(step, "stamp.json")["from_cache"]
    assert not step(**options).changed
    entry = tmp_path / "cache dir" / first["digest"]
    (entry / "0").write_text("wheeL\n")
    artefact.unlink()
    third = step(**options)
    assert (third["state"], third["from_cache"]) == ("done", False)
    assert artefact.read_text() == "wheel\n"
    assert "sha256 differs" in (step.directory / "log").read_text()
    assert (tmp_path / "runs").read_text() == "run\nrun\n"
    assert (entry / "0").read_text() == "wheel\n"


def test_a_cache_that_cannot_be_written_warns_and_the_step_succeeds(step, tmp_path):
    (tmp_path / "file").write_text("")
    done = step(script="touch a", chdir=str(tmp_path), produces=["a"], cache=str(tmp_path / "file" / "cache"))
    assert done.changed
    assert "nothing was kept for other releases" in " ".join(done.console.split())


def test_an_open_patch_journal_refuses_the_step(step, tmp_path):
    from ansible_collections.hpcml.torchstack.plugins.module_utils.patches.journal import Place

    tree = tmp_path / "src"
    tree.mkdir()
    journal = pathlib.Path(Place(str(tree), str(tmp_path / "patches")).journal)
    journal.parent.mkdir()
    journal.write_text("{}")
    options = {"script": "true", "trees": [{"src": str(tree), "state_dir": str(tmp_path / "patches")}]}
    refused = step(**options)
    assert refused.failed
    assert refused["failed_step"] == "trees"
    assert "patch_series" in refused["msg"]
    assert not step.state.exists()
    journal.unlink()
    assert step(**options).changed


@pytest.mark.parametrize(
    "options",
    [
        {"name": "Bad Name"},
        {"environment": {"A": True}},
        {"chdir": "rel"},
        {"follow": "x"},
        {"planned": ["x"]},
        {"script": None},
    ],
    ids=str,
)
def test_bad_options_change_nothing(step, options):
    assert step(**dict({"script": "true"}, **options)).failed
    assert not step.state.exists()


def test_a_place_that_cannot_be_written_is_named(step, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    refused = step(script="true", state_dir=str(blocked))
    assert refused.failed
    assert str(blocked) in refused["msg"]


def test_the_environment_is_what_is_allowed_of_the_callers_without_what_is_unset(step, tmp_path):
    startup = tmp_path / "startup"
    startup.write_text("export FROM_STARTUP=1\n")
    caller = {"TZ": "UTC", "MAX_JOBS": "3", "BASH_ENV": str(startup)}
    done = step(
        script='echo "<${TZ-gone}> <$MAX_JOBS> <$SET> <${FROM_STARTUP-gone}>"', unset=["TZ"],
        environment={"SET": "it's $literal"}, caller=caller,
    )
    assert done.changed
    assert "<gone> <3> <it's $literal> <gone>\n" in (step.directory / "log").read_text()


def test_s03_the_umask_of_the_caller_does_not_reach_the_build(step, tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    tree.chmod(0o755)
    previous = os.umask(0o077)
    try:
        done = step(
            script="mkdir -p d/e; echo x > d/e/f; python3 -c 'open(\"g\", \"w\").close()'", chdir=str(tree),
            produces=["d/e/f"], cache=str(tmp_path / "cache"),
        )
    finally:
        os.umask(previous)
    assert done.changed
    seen = [tree, step.state, tmp_path / "cache"]
    for top in list(seen):
        seen += top.rglob("*")
    modes = {str(path): path.stat().st_mode & 0o7777 for path in seen}
    wrong = {
        path: oct(mode) for path, mode in modes.items()
        if mode != (0o755 if os.path.isdir(path) or path.endswith("script.sh") else 0o644)
    }
    assert not wrong
    assert len(modes) > 12


REDIRECT = """#!/bin/bash
case "${0##*/}" in
    gcc) exec /usr/bin/gcc "$@";;
    *) echo "redirect was called as ${0##*/}" >&2; exit 1;;
esac
"""


def test_s05_a_compiler_wrapper_that_dispatches_on_its_name_is_passed_as_given(step, tmp_path):
    wrappers = tmp_path / "wrappers"
    wrappers.mkdir()
    (wrappers / "redirect").write_text(REDIRECT)
    (wrappers / "redirect").chmod(0o755)
    (wrappers / "gcc").symlink_to("redirect")
    (tmp_path / "hello.c").write_text("int main(void) { return 0; }\n")
    done = step(
        script='"$CC" -o hello hello.c && ./hello && gcc --version > /dev/null', chdir=str(tmp_path),
        environment={"CC": str(wrappers / "gcc")}, creates=["hello"],
        module_init="module() { PATH='%s':$PATH; }" % wrappers,
    )
    assert done.changed, done
    assert "redirect" not in (step.directory / "script.sh").read_text()
    resolved = subprocess.run([str((wrappers / "gcc").resolve())], stderr=subprocess.DEVNULL, check=False)
    assert resolved.returncode == 1, "the wrapper would have noticed"


MAKEFILE = """
OBJECTS = a.o b.o c.o d.o
program: $(OBJECTS) main.o
\tgcc -o $@ $^
%.o: %.c
\t@echo compiling $<
\tgcc -c -o $@ $<
"""


def test_s13_a_failed_build_is_resumed_by_running_again(step, tmp_path):
    for name in "abcd":
        (tmp_path / (name + ".c")).write_text("int %s(void) { return 0; }\n" % name)
    (tmp_path / "main.c").write_text("int main(void) { return a() }\n")
    (tmp_path / "Makefile").write_text(MAKEFILE)
    options = {"script": "make", "chdir": str(tmp_path), "creates": ["program"]}
    failed = step(**options)
    assert failed.failed
    assert failed["exit_code"] == 2
    (tmp_path / "main.c").write_text("int a(void);\nint main(void) { return a(); }\n")
    resumed = step(**options)
    assert resumed.changed
    assert resumed["resumed"] == "the last attempt failed: step s failed with exit code 2"
    log = (step.directory / "log").read_text()
    assert [log.count("compiling %s.c\n" % name) for name in ("a", "b", "c", "d", "main")] == [1, 1, 1, 1, 2]
    assert not step(**options).changed


@pytest.mark.skipif(not os.path.exists("/usr/share/lmod/lmod/init/bash"), reason="Lmod is not installed")
def test_a_real_module_system_is_purged_and_loaded(step, tmp_path):
    for name, body in (("toy/1.0", "setenv TOY 1.0\n"), ("other/1.0", "setenv OTHER 1.0\n")):
        path = tmp_path / "modulefiles" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#%Module1.0\n" + body)
    init = ". /usr/share/lmod/lmod/init/bash; module use '%s'" % (tmp_path / "modulefiles")
    done = step(
        script='echo "<$TOY> <${OTHER-purged}>"', modules=["toy"], module_init=init + "; module load other",
    )
    assert done.changed, done
    assert "<1.0> <purged>\n" in (step.directory / "log").read_text()
    failed = step(script="echo reached", modules=["no-such-module"], module_init=init)
    assert failed.failed
    assert "module load no-such-module failed" in failed["msg"]
