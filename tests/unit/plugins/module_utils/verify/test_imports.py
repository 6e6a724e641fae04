# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Imports that go wrong in every way, run with this very interpreter."""

from __future__ import annotations

import json
import os
import signal
import sys
import textwrap
import time

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.processes import read_process
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify import import_findings, import_probe
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify import import_runner as import_run
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.import_rules import parse_rules
from ansible_collections.hpcml.torchstack.plugins.module_utils.verify.imports import verify

CRASH = "import ctypes\nctypes.string_at(0)\n"


@pytest.fixture()
def packages(tmp_path):
    """Write modules, and get back what their names are and where they lie."""

    def write(**sources):
        directory = tmp_path / "packages"
        directory.mkdir(exist_ok=True)
        for name, source in sources.items():
            (directory / (name + ".py")).write_text(textwrap.dedent(source))
        return {"modules": list(sources), "environment": {"PYTHONPATH": str(directory)}}

    return write


@pytest.fixture()
def check(tmp_path):
    """Verify in a scratch directory that is empty each time."""
    count = iter(range(100))

    def run(given, **more):
        params = dict({"python": sys.executable, "timeout": 120.0, "single": []}, **given)
        params.update(more)
        scratch = tmp_path / ("scratch%d" % next(count))
        scratch.mkdir()
        return verify(params, parse_rules(params), str(scratch))

    return run


def test_imports_in_order_and_what_they_say(packages, check):
    given = packages(one="VERSION = '1.0'", two="import one; NUMBERS = (one.VERSION, 2.5, None, {3})")
    report = check(given, expect=[
        {"value": "one.VERSION", "equals": "1.0"}, {"value": "two.NUMBERS", "equals": ["1.0", 2.5, None, [3]]},
    ])
    assert report.error is None
    assert report.result["reported"] == {"one.VERSION": "1.0", "two.NUMBERS": ["1.0", 2.5, None, [3]]}
    assert report.result["python_version"] == ".".join(str(part) for part in sys.version_info[:3])
    assert report.result["mapped"][0]["brought_by"] == import_findings.START
    json.dumps(report.result).encode("ascii")


def test_two_runs_leave_the_same_record(packages, check, tmp_path):
    given = dict(packages(one="import ctypes, json", two="import decimal"), record=str(tmp_path / "imports.json"))
    assert check(given).record == check(given).record


def test_a_library_is_brought_by_the_import_that_needed_it_first(packages, check):
    given = packages(one="", two="import _ctypes", three="import ctypes")
    by = {entry["brought_by"] for entry in check(given).result["mapped"] if "_ctypes" in entry["path"]}
    assert by <= {"two"} and "one" not in {entry["brought_by"] for entry in check(given).result["mapped"]}


FAILURES = {
    "missing module": ("import nowhere_to_be_found", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
    "missing library": ("import ctypes\nctypes.CDLL('libnowhere.so.9')", "cannot open shared object file"),
    "any exception": ("raise RuntimeError('no CUDA')", "RuntimeError: no CUDA"),
    "syntax": ("def", "SyntaxError"),
    "sys.exit": ("import sys\nsys.exit(0)", "SystemExit: 0"),
    "interrupt": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "an exception without text": (
        "class Odd(Exception):\n    def __str__(self):\n        raise ValueError\nraise Odd", "Odd",
    ),
}


@pytest.mark.parametrize("source, complaint", FAILURES.values(), ids=FAILURES.keys())
def test_an_import_that_fails_is_a_finding_and_the_others_go_on(packages, check, source, complaint):
    report = check(packages(before="", failing=source, after="import decimal"))
    [finding] = report.result["import_errors"]
    assert finding["module"] == "failing" and complaint in finding["error"]
    assert finding["output"] and finding["remedy"]
    assert "Import of failing: " in report.error.message
    assert "Traceback" not in report.error.message
    assert report.absent == ()


def test_a_module_that_is_not_there_is_told_apart_from_one_that_lacks_something(packages, check):
    given = packages(here="import nowhere_to_be_found")
    given["modules"] += ["absent", "json.absent"]
    report = check(given)
    assert report.absent == ("absent", "json.absent")
    assert "Install absent into the release" in report.result["import_errors"][1]["remedy"]


DEATHS = {
    "os._exit(3)": ("import os\nos._exit(3)", "exit status 3"),
    "os._exit(0)": ("import os\nos._exit(0)", "exit status 0"),
    "segmentation fault": (CRASH, "signal 11 (SIGSEGV)"),
    "abort": ("import os\nos.abort()", "signal 6 (SIGABRT)"),
    "killed": ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "signal 9 (SIGKILL)"),
}


@pytest.mark.parametrize("source, fate", DEATHS.values(), ids=DEATHS.keys())
def test_an_import_that_ends_the_process_is_a_finding_that_names_it(packages, check, source, fate):
    given = packages(before="import decimal", deadly=source, after="")
    report = check(given, expect=[{"value": "before.__name__", "equals": "before"}])
    [finding] = report.result["import_errors"]
    assert (finding["module"], finding["not_tried"]) == ("deadly", ["after"])
    assert fate in finding["error"] and "import before; import deadly; import after" in finding["remedy"]
    assert report.result["wrong_values"] == []
    assert any(entry["brought_by"] == import_findings.START for entry in report.result["mapped"])


def test_of_a_crash_the_finding_shows_where_it_was(packages, check):
    [finding] = check(packages(deadly=CRASH)).result["import_errors"]
    assert finding["output"][0].startswith("Fatal Python error: Segmentation fault")
    assert any("string_at" in line for line in finding["output"])


def test_a_crash_after_all_imports_is_a_finding_too(packages, check):
    report = check(packages(late="import atexit, os\natexit.register(os.abort)"))
    [finding] = report.result["import_errors"]
    assert finding["module"] == import_findings.EXIT
    assert report.error.message.startswith("After all imports, at its end, the process was killed by signal 6")


def test_a_crash_in_a_value_names_the_value(packages, check):
    report = check(packages(fine="import os"), expect=[{"value": "fine.os._exit(7)", "equals": 1}])
    assert "While fine.os._exit(7) was evaluated, the process ended with exit status 7" in report.error.message


@pytest.fixture()
def impatient(monkeypatch, tmp_path):
    """A time limit that is over as soon as a file is there, so that no test waits for a clock."""
    ready = tmp_path / "ready"
    real = import_run._wait

    def wait(process, seconds):
        if seconds != 300.0:
            return real(process, 0.5)
        while process.poll() is None and not ready.exists():
            time.sleep(0.02)
        return process.poll() is not None

    monkeypatch.setattr(import_run, "_wait", wait)
    return ready


def test_an_import_that_hangs_is_ended_with_all_it_started_and_says_where(packages, check, impatient):
    report = check(packages(hanging="""
        import os, subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        with open(%r, "w") as stream:
            stream.write("%%d %%d" %% (os.getpid(), child.pid))
        os.rename(stream.name, %r)
        time.sleep(600)
    """ % (str(impatient) + ".new", str(impatient))), timeout=300.0)
    [finding] = report.result["import_errors"]
    assert (finding["module"], "within 300 seconds" in finding["error"]) == ("hanging", True)
    assert any("hanging.py" in line for line in finding["output"])
    for pid in impatient.read_text().split():
        process = read_process(int(pid))
        assert process is None or process.ended


def test_an_import_that_ignores_every_signal_is_ended_all_the_same(packages, check, impatient):
    report = check(packages(stubborn="""
        import faulthandler, signal, time
        faulthandler.disable()
        for number in (signal.SIGABRT, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        open(%r, "w").close()
        while True:
            time.sleep(1)
    """ % str(impatient)), timeout=300.0)
    assert report.result["import_errors"][0]["module"] == "stubborn"


@pytest.fixture()
def container(tmp_path):
    """A program that runs Python with what a container sees of the machine in the file ``binds``."""
    wrapper = tmp_path / "python3"
    text = '#!/bin/sh\nprintf %%s "$SINGULARITY_BIND" > %s\nexec %s "$@"\n' % (tmp_path / "binds", sys.executable)
    wrapper.write_text(text)
    wrapper.chmod(0o755)
    return str(wrapper)


@pytest.mark.parametrize("binds", [{}, {"SINGULARITY_BIND": "/appl,/a:/b"}])
def test_a_container_sees_the_directory_of_the_run_besides_what_the_module_binds(
        packages, check, container, tmp_path, binds):
    given = packages(one="VERSION = '1.0'")
    report = check(given, python=container, container=True, environment=dict(given["environment"], **binds))
    assert report.error is None
    words = [*binds.values(), str(tmp_path / "scratch0")]
    assert (tmp_path / "binds").read_text() == ",".join(words)


def test_in_a_container_links_of_this_machine_do_not_change_what_a_rule_means(packages, check, container, tmp_path):
    place = os.path.realpath(sys.executable)
    (tmp_path / "link").symlink_to(place)
    given, forbid = packages(one=""), [{"path": place, "reason": "it is elsewhere"}]
    assert check(given, python=container, container=True, forbid=forbid).error is not None
    forbid = [{"path": str(tmp_path / "link"), "reason": "it is elsewhere"}]
    assert check(given, python=container, container=True, forbid=forbid).error is None


def test_the_static_record_says_nothing_of_a_container(packages, check, container):
    with pytest.raises(StackError, match="The files of a container are not those of the static record"):
        check(packages(one=""), python=container, container=True, static="/soft/r/.torchstack/verification.json")


def test_what_imports_print_does_not_disturb(packages, check):
    given = packages(noisy="""
        import os, sys
        print("('end',)\\n" * 20000)
        sys.stderr.write("('failed',)\\n" * 20000)
        sys.stdout.flush()
        for number in range(3, 64):
            try:
                os.close(number)
            except OSError:
                pass
    """, after="")
    report = check(given, expect=[{"value": "after.__name__", "equals": "after"}])
    assert (report.error, report.result["reported"]) == (None, {"after.__name__": "after"})


def test_a_child_that_an_import_forks_and_forgets_reports_nothing(packages, check):
    report = check(packages(forking="import os\nif os.fork() == 0:\n    VALUE = 1\n", after=""))
    assert {entry["brought_by"] for entry in report.result["mapped"]} == {import_findings.START}
    assert report.result["import_errors"] == []


WRONG = {
    "another value": ("one.VERSION", {"equals": "2.0"}, 'one.VERSION has to be "2.0" and is "1.0".'),
    "another type": ("one.NUMBER", {"equals": "3"}, 'one.NUMBER has to be "3" and is 3.'),
    "no match": ("one.VERSION", {"matches": r"2\..*"}, r'one.VERSION has to match 2\..* and is "1.0".'),
    "an exception": ("one.NOTHING", {"equals": 1}, "one.NOTHING has to be 1 and gives AttributeError"),
    "not imported": ("two.VERSION", {"equals": 1}, "two.VERSION has to be 1 and gives NameError"),
    "not Python": ("one.", {"equals": 1}, "one. has to be 1 and gives SyntaxError"),
}


@pytest.mark.parametrize("value, rule, sentence", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_value_is_a_finding(packages, check, value, rule, sentence):
    report = check(packages(one="VERSION = '1.0'\nNUMBER = 3"), expect=[dict(rule, value=value, reason="said so")])
    assert report.error.message.startswith(sentence)
    assert report.result["wrong_values"][0]["reason"] == "said so"


def test_no_byte_code_is_written_next_to_what_is_imported(packages, check, tmp_path):
    report = check(packages(one="""
        import os, subprocess, sys
        subprocess.check_call([sys.executable, "-c", "import two"])
    """, two=""))
    assert report.error is None
    assert sorted(os.listdir(str(tmp_path / "packages"))) == ["one.py", "two.py"]


def test_s14_only_the_given_environment_and_a_minimal_base_are_there(packages, check, monkeypatch):
    for name in ("PYTHONSTARTUP", "PYTHONINSPECT", "LD_LIBRARY_PATH", "CALLERS_OWN"):
        monkeypatch.setenv(name, "/nowhere")
    given = packages(shows="import os, site, sys\nNAMES = sorted(os.environ)\nFILES = os.listdir(os.environ['HOME'])")
    given["environment"].update(GIVEN="1", NUMBER=2, PYTHONSTARTUP="/nowhere", PYTHONUSERBASE="/nowhere")
    report = check(given, unset=["LANG"], expect=[
        {"value": "set(shows.NAMES) - {'LC_CTYPE', 'TORCHSTACK_JOB'}", "equals": sorted([
            "GIVEN", "HOME", "NUMBER", "PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONNOUSERSITE", "PYTHONPATH", "TMPDIR",
        ])},
        {"value": "shows.FILES", "equals": []},
        {"value": "bool(shows.site.ENABLE_USER_SITE)", "equals": False},
        {"value": "'' in shows.sys.path or shows.os.getcwd() in shows.sys.path", "equals": False},
        {"value": "shows.sys.argv", "equals": ["-c"]},
    ])
    assert report.error is None, report.error


REFUSED = {
    "no interpreter": ({"python": "/nowhere/python3"}, "There is no interpreter /nowhere/python3"),
    "not executable": ({"python": "/etc/passwd"}, "There is no interpreter"),
    "a switch in environment": ({"environment": {"A": True}}, "is not a text"),
    "nothing in environment": ({"environment": {"A": None}}, "is not a text"),
    "a name that is none": ({"environment": {"A=B": "c"}}, "cannot be an environment variable"),
    "no time": ({"timeout": 0.0}, "timeout is not positive"),
    "no static record": ({"static": "/nowhere/verification.json"}, "There is no record"),
}


@pytest.mark.parametrize("more, message", REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_run_is_refused_with_a_remedy(check, more, message):
    with pytest.raises(StackError, match=message) as caught:
        check({"modules": ["json"]}, **more)
    assert caught.value.remedy


def test_an_interpreter_that_is_no_program_is_refused_in_one_sentence(check, tmp_path):
    python = tmp_path / "python3"
    python.write_bytes(b"\x7fELF, but not really")
    python.chmod(0o755)
    with pytest.raises(StackError, match="cannot be started"):
        check({"modules": ["json"]}, python=str(python))


def test_an_interpreter_that_is_no_python_is_a_finding(check):
    report = check({"modules": ["json"]}, python="/bin/false")
    assert report.error.message.startswith("Before anything was imported, the process ended with exit status 1")
    assert report.result["import_errors"][0]["not_tried"] == ["json"]


EXCERPTS = {
    "nothing": ("", ()),
    "the last lines": ("1\n\n2\n3\n", ("2", "3")),
    "a fatal error from its beginning": ("x\nFatal Python error: A\n\na\nb\n", ("Fatal Python error: A", "a")),
}


@pytest.mark.parametrize("text, lines", EXCERPTS.values(), ids=EXCERPTS.keys())
def test_the_lines_that_say_why(text, lines):
    assert import_run.excerpt(text, 2) == lines


def test_a_report_that_was_cut_short_is_read_as_far_as_it_goes(tmp_path):
    path = tmp_path / "report"
    path.write_text("('start', 1)\nnonsense(\n[]\n('import', 'tor")
    assert import_run.read_report(str(path)) == (("start", 1),)
    assert import_run.read_report(str(tmp_path / "none")) == ()


def test_every_value_becomes_plain_data():
    class Version(str):
        def __repr__(self):
            return "not this"

    class Number(int):
        pass

    loop = []
    loop.append(loop)
    values = [Version("1"), Number(2), float("nan"), float("inf"), b"\xff", (1, {2: (3,)}), object, {"b", "a"}, loop]
    plain = [import_probe.plain(value) for value in values]
    assert plain[:6] == ["1", 2, "nan", "inf", "\\xff", [1, {"2": [3]}]]
    assert [type(value) for value in plain[:2]] == [str, int]
    assert plain[6:8] == ["<class 'object'>", ["a", "b"]]
    json.dumps(plain)


REMEDIES = {
    "ImportError: libmpi.so.12: cannot open shared object file: No such file": "ldd_verify",
    "ImportError: /r/x.so: undefined symbol: ncclCommInit": "mapped first",
    "ImportError: libstdc++.so.6: version `GLIBCXX_3.4.30' not found": "mapped first",
    "OSError: cannot allocate memory in static TLS block": "further up in modules",
    "RuntimeError: anything": "by hand",
}


@pytest.mark.parametrize("complaint, words", REMEDIES.items())
def test_known_complaints_have_their_own_remedy(complaint, words):
    assert words in import_findings.remedy_for(complaint, "", "by hand")


def test_the_probe_dies_with_whoever_runs_it(packages, tmp_path):
    given = packages(hanging="""
        import os, time
        with open(%r, "w") as stream:
            stream.write(str(os.getpid()))
        time.sleep(600)
    """ % str(tmp_path / "pid"))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    child = os.fork()
    if child == 0:
        plan = import_run.Plan(
            sys.executable, given["modules"], (), import_run.environment(given["environment"], (), str(scratch)), 300
        )
        import_run.run(plan, str(scratch))
        os._exit(0)
    deadline = time.monotonic() + 60
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pid = int((tmp_path / "pid").read_text())
    while time.monotonic() < deadline:
        process = read_process(pid)
        if process is None or process.ended:
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the probe outlived its parent")
