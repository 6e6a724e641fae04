# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""module_environment with a real Lmod and a real Environment Modules, without Ansible and as Ansible runs it."""

from __future__ import annotations

import glob
import os
import shlex
import subprocess

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import site_system
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.module_system import is_bookkeeping
from ansible_collections.hpcml.torchstack.plugins.module_utils.preflight import node_facts
from ansible_collections.hpcml.torchstack.plugins.module_utils.steps import request, script
from ansible_collections.hpcml.torchstack.plugins.modules import module_environment

LMOD = glob.glob("/usr/share/lmod/*/libexec/lmod")
EM = [
    path
    for place in ("/usr/lib/*-linux-gnu", "/usr/share/[Mm]odules/libexec", "/opt/environment-modules/usr/lib/*")
    for path in glob.glob(place + "/modulecmd.tcl")
]

SYSTEMS = {
    "lmod": pytest.param("lmod", marks=pytest.mark.skipif(not LMOD, reason="Lmod is not installed")),
    "environment-modules": pytest.param(
        "environment-modules", marks=pytest.mark.skipif(not EM, reason="Environment Modules is not installed")
    ),
}
both = pytest.mark.parametrize("system", SYSTEMS.values())
only_lmod = pytest.mark.parametrize("system", [SYSTEMS["lmod"]])
only_em = pytest.mark.parametrize("system", [SYSTEMS["environment-modules"]])

BASE = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/bin", "HOME": "/", "LC_ALL": "C.UTF-8", "CC": "cc", "GONE": "here"}

MODULEFILES = {
    "base/1.0": """
setenv BASE_ROOT /opt/base
prepend-path PATH /opt/base/bin
append-path PATH /opt/base/late
append-path MANPATH /opt/base/man
unsetenv GONE
""",
    "base/2.0": "setenv BASE_ROOT /opt/base2\n",
    "odd/1.0": r"""
setenv QUOTES "it's \"quoted\" \$HOME `x` \\ end\\"
setenv SPACES "  two  spaces "
setenv LINES "one\ntwo"
setenv EMPTY ""
setenv UNICODE "caf\u00e9"
""",
    "shell/1.0": """
set-alias say {echo hi there}
puts stdout {echo executed;}
""",
    "rival/1.0": "conflict base\nsetenv RIVAL 1\n",
    "broken/1.0": "setenv X 1\nno-such-command here\n",
    "wordy/1.0": "puts stderr {a message}\nsetenv WORDY 1\n",
    "again/1.0": "prepend-path PATH /opt/base/bin\n",
}
STICKY = {"kept/1.0": "setenv KEPT 1\n", "other/1.0": "setenv OTHER 1\n"}
EM_ONLY = {
    ".modulerc": "module-tag sticky kept/1.0\n", **STICKY,
    "function/1.0": "set-function greet {echo fn $1}\ncomplete bash tool \"-W 'a b'\"\n",
    "push/1.0": "pushenv CC pushed\n",
    "needs/1.0": "prereq base/1.0\nsetenv NEEDS 1\n",
}
LMOD_ONLY = {
    "kept/1.0.lua": 'setenv("KEPT", "1")\nadd_property("lmod", "sticky")\n', "other/1.0": STICKY["other/1.0"],
    "function/1.0.lua": """
set_shell_function("greet", "echo fn $1", "echo fn")
complete("bash", "tool", "-W 'a b'")
execute{cmd="ulimit -s unlimited", modeA={"load"}}
""",
    "push/1.0.lua": 'pushenv("CC", "pushed")\n',
    "needs/1.0.lua": 'depends_on("base/1.0")\nsetenv("NEEDS", "1")\n',
    "strict/1.0.lua": 'prereq("base/1.0")\nsetenv("STRICT", "1")\n',
    "hier/1.0.lua": 'prepend_path("MODULEPATH", pathJoin(os.getenv("DEEPER"), "deeper"))\n',
}


DEFAULTS = {
    "modules": [], "use": [], "purge": False, "system": "auto", "command": None, "init": [], "init_script": "",
    "setup": "",
    "environment": None, "timeout": 120,
}


class Question:
    """The arguments for modules of ours, and the module's answer to them."""

    def __init__(self, directories):
        self.directories = directories

    def arguments(self, system, modules, base=None, **options):
        arguments = dict({
            "modules": modules, "use": [str(self.directories[system])], "system": system,
            "environment": BASE if base is None else base,
        }, **options)
        if system == "environment-modules":
            arguments["command"] = EM[0]
        return arguments

    def __call__(self, system, modules, base=None, **options):
        """What the module would return, without Ansible around it."""
        try:
            return module_environment.report(dict(DEFAULTS, **self.arguments(system, modules, base, **options)))
        except StackError as error:
            return error.as_result()


@pytest.fixture()
def ask(tmp_path):
    """Ask for modules of ours: ``ask(system, ["base"])``."""
    directories = {}
    for system, more in (("lmod", LMOD_ONLY), ("environment-modules", EM_ONLY)):
        for name, text in {**MODULEFILES, **more}.items():
            path = tmp_path / system / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(("" if name.endswith(".lua") else "#%Module1.0\n") + text)
        directories[system] = tmp_path / system

    return Question(directories)


def captured(**parts):
    empty = {"functions": {}, "aliases": {}, "commands": [], "completions": [], "differing": [], "not_text": []}
    return dict(empty, **parts)


@both
def test_variables_set_prepended_appended_pushed_and_unset_are_returned(ask, system):
    result = ask(system, ["base/1.0", "push"])
    assert result["set"]["BASE_ROOT"] == "/opt/base"
    assert result["set"]["PATH"].startswith("/opt/base/bin:/usr/local/bin:")
    assert result["set"]["PATH"].endswith(":/opt/base/late")
    assert result["set"]["MANPATH"].strip(":") == "/opt/base/man"
    assert result["set"]["CC"] == "pushed"
    assert result["unset"] == ["GONE"]
    assert result["exact"] is True and result["not_captured"] == captured()
    assert result["loaded"] == ["base/1.0", "push/1.0"]
    assert result["modulefiles"][0] == str(ask.directories[system] / "base" / "1.0")
    assert result["system"] == system and result["version"][0].isdigit()


@both
def test_the_records_of_the_module_system_are_kept_apart(ask, system):
    result = ask(system, ["base/1.0"])
    assert result["bookkeeping"]["LOADEDMODULES"] == "base/1.0"
    assert not [name for name in result["set"] if "LMOD" in name or "_MODULES" in name or name.startswith("_")]
    assert result["environment"]["LOADEDMODULES"] == "base/1.0"


@both
def test_a_program_runs_in_the_environment_returned(ask, system):
    environment = ask(system, ["base/1.0", "odd"])["environment"]
    output = subprocess.check_output(
        ["/bin/sh", "-c", 'printf "%s|" "$BASE_ROOT" "$QUOTES" "$LINES" "${GONE-unset}" "$HOME"'], env=environment
    )
    assert output.decode() == "/opt/base|it's \"quoted\" $HOME `x` \\ end\\|one\ntwo|unset|/|"


@both
def test_values_with_quotes_spaces_line_breaks_and_dollars_arrive_exactly(ask, system):
    result = ask(system, ["odd"])
    values = {name: result["set"][name] for name in ("QUOTES", "SPACES", "LINES", "EMPTY", "UNICODE")}
    assert values == {
        "QUOTES": "it's \"quoted\" $HOME `x` \\ end\\", "LINES": "one\ntwo", "EMPTY": "", "UNICODE": "caf\xe9",
        # Lmod itself takes blanks at the end of a Tcl modulefile's value away.
        "SPACES": "  two  spaces" if system == "lmod" else "  two  spaces ",
    }
    assert set(result["not_captured"]["differing"]) <= {"LINES"}


@only_lmod
def test_lmod_takes_repeated_path_entries_away(ask, system):
    assert ask(system, ["base/1.0"])["set"]["PATH"] == "/opt/base/bin:/usr/local/bin:/usr/bin:/bin:/opt/base/late"


@only_em
def test_environment_modules_leaves_repeated_path_entries(ask, system):
    path = ask(system, ["base/1.0", "again"])["set"]["PATH"]
    assert path == "/opt/base/bin:/usr/local/bin:/usr/bin:/bin:/usr/bin:/opt/base/late"


@both
def test_aliases_and_executed_commands_are_reported_and_not_executed(ask, system):
    result = ask(system, ["shell"])
    assert result["exact"] is False
    assert result["not_captured"]["aliases"] == {"say": "echo hi there"}
    assert [text.rstrip(";") for text in result["not_captured"]["commands"]] == ["echo executed"]


@both
def test_functions_and_completions_are_reported_with_their_text(ask, system):
    found = ask(system, ["function"])["not_captured"]
    assert {name: text.rstrip("; ") for name, text in found["functions"].items()} == {"greet": "echo fn $1"}
    assert [text.replace("  ", " ") for text in found["completions"]] == ["complete -W 'a b' tool"]
    assert found["commands"] == (["ulimit -s unlimited;"] if system == "lmod" else [])


@both
def test_what_a_module_needs_is_loaded_with_it(ask, system):
    result = ask(system, ["base/1.0", "needs"])
    assert result["loaded"] == ["base/1.0", "needs/1.0"]
    assert result["set"]["BASE_ROOT"] == "/opt/base"


@only_lmod
def test_depends_on_loads_what_was_not_asked_for(ask, system):
    assert ask(system, ["needs"])["loaded"] == ["base/1.0", "needs/1.0"]


@both
def test_modules_are_loaded_in_the_order_given(ask, system):
    assert ask(system, ["odd", "base/1.0"])["loaded"] == ["odd/1.0", "base/1.0"]


@both
def test_a_missing_module_is_named_with_the_tools_message(ask, system):
    result = ask(system, ["base/1.0", "nosuch/3"])
    assert result["failed_step"] == "load"
    assert (result["missing"], result["refused"], result["loaded"]) == (["nosuch/3"], [], ["base/1.0"])
    assert "cannot load nosuch/3: " in result["msg"]
    assert ("are unknown" if system == "lmod" else "Unable to locate a modulefile") in result["msg"]
    assert "MODULEPATH is %s" % ask.directories[system] in result["msg"]


@both
def test_a_conflict_is_a_failure_with_the_tools_message(ask, system):
    result = ask(system, ["base/1.0", "rival"])
    assert "failed_step" in result
    assert (result["missing"], result["refused"], result["loaded"]) == ([], ["rival"], ["base/1.0"])
    assert ("loaded: base" if system == "lmod" else "Conflicting base") in result["msg"]
    assert "set purge" in result["msg"]


@both
def test_an_error_in_a_modulefile_is_a_failure_of_that_module(ask, system):
    result = ask(system, ["base/1.0", "broken"])
    assert "failed_step" in result
    assert (result["missing"], result["refused"]) == ([], ["broken"])
    assert result["messages"]


@only_lmod
def test_an_unmet_prerequisite_is_a_refusal(ask, system):
    result = ask(system, ["strict"])
    assert "failed_step" in result and result["refused"] == ["strict"]
    assert ask(system, ["base/1.0", "strict"])["set"]["STRICT"] == "1"


@only_em
def test_an_unmet_prerequisite_is_a_refusal_where_nothing_is_loaded_automatically(ask, system):
    base = dict(BASE, MODULES_AUTO_HANDLING="0")
    result = ask(system, ["needs"], base=base)
    assert "failed_step" in result and result["refused"] == ["needs"]
    assert ask(system, ["base/1.0", "needs"], base=base)["set"]["NEEDS"] == "1"


@only_lmod
def test_a_module_that_another_one_makes_visible_is_not_missing(ask, system, tmp_path):
    (tmp_path / "deeper" / "inner").mkdir(parents=True)
    (tmp_path / "deeper" / "inner" / "1.0.lua").write_text('setenv("INNER", "1")\n')
    base = dict(BASE, DEEPER=str(tmp_path))
    assert ask(system, ["hier", "inner"], base=base)["set"]["INNER"] == "1"
    result = ask(system, ["hier", "inner", "nosuch"], base=base)
    assert (result["missing"], result["loaded"]) == (["nosuch"], ["hier/1.0", "inner/1.0"])


@both
def test_purge_forgets_what_was_loaded_and_restores_what_it_changed(ask, system):
    loaded = ask(system, ["base/1.0", "push"])["environment"]
    result = ask(system, ["odd"], base=loaded, purge=True)
    assert result["loaded"] == ["odd/1.0"]
    assert "BASE_ROOT" in result["unset"] and result["set"]["CC"] == "cc"
    kept = ask(system, ["odd"], base=loaded)
    assert kept["loaded"] == ["base/1.0", "push/1.0", "odd/1.0"]
    assert "BASE_ROOT" not in kept["set"] and kept["environment"]["BASE_ROOT"] == "/opt/base"


@both
def test_the_first_directory_to_use_comes_first(ask, system, tmp_path):
    other = tmp_path / "other"
    (other / "base").mkdir(parents=True)
    (other / "base" / "1.0").write_text("#%Module1.0\nsetenv BASE_ROOT /other\n")
    ours = str(ask.directories[system])
    first = ask(system, ["base/1.0"], use=[str(other), ours])
    assert first["set"]["MODULEPATH"].split(":")[:2] == [str(other), ours]
    assert first["set"]["BASE_ROOT"] == "/other"
    assert ask(system, ["base/1.0"], use=[ours, str(other)])["set"]["BASE_ROOT"] == "/opt/base"


@both
def test_messages_of_modulefiles_are_returned(ask, system):
    assert "a message" in ask(system, ["wordy"])["messages"]


@both
def test_no_modules_asked_for_changes_nothing_but_the_module_path(ask, system):
    result = ask(system, [], use=[])
    assert (result["set"], result["unset"], result["loaded"]) == ({}, [], [])
    assert result["environment"] == BASE


@both
def test_a_start_up_file_gives_the_module_path(ask, system, tmp_path):
    (tmp_path / "login.sh").write_text("export MODULEPATH=%s SITE=here\n" % ask.directories[system])
    result = ask(system, ["base/1.0"], use=[], init=[str(tmp_path / "login.sh")])
    assert (result["set"]["SITE"], result["set"]["BASE_ROOT"]) == ("here", "/opt/base")


@only_lmod
def test_the_module_system_that_the_environment_names_is_found(ask, system):
    base = dict(BASE, LMOD_CMD=LMOD[0])
    arguments = dict(ask.arguments(system, ["base/1.0"], base=base), system="auto")
    result = module_environment.report(dict(DEFAULTS, **arguments))
    assert (result["system"], result["command"]) == ("lmod", LMOD[0])


@both
def test_nothing_is_written_into_the_home(ask, system, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    ask(system, ["base/1.0"], base=dict(BASE, HOME=str(home)))
    ask(system, ["nosuch"], base=dict(BASE, HOME=str(home)))
    assert os.listdir(str(home)) == []


@both
def test_a_real_bash_that_loads_the_modules_gets_the_same_variables(ask, system):
    """Next to the shell function's own way: bash evaluates what the module command prints for it."""
    result = ask(system, ["base/1.0", "push", "shell", "odd"])
    command = LMOD[0] if system == "lmod" else EM[0]
    script = 'eval "$("$0" bash load base/1.0 push shell odd)" >&2; exec env -0'
    output = subprocess.check_output(
        ["bash", "--noprofile", "--norc", "-c", script, command],
        env=dict(BASE, MODULEPATH=str(ask.directories[system])), stderr=subprocess.DEVNULL,
    )
    theirs = dict(entry.decode().split("=", 1) for entry in output.split(b"\0") if entry)
    differing = set(result["not_captured"]["differing"])
    assert differing <= {"LINES"}
    for name, value in result["set"].items():
        if name not in differing:
            assert theirs[name] == value, name
    assert not set(result["unset"]) & set(theirs)
    records = {name for name in {**theirs, **result["environment"]} if is_bookkeeping(name)}
    assert set(theirs) - records - {"_", "SHLVL", "PWD"} == set(result["environment"]) - records


@both
def test_ansible_gets_the_same_answer_in_check_mode_and_outside(run_module, ask, system):
    expected = ask(system, ["base/1.0", "shell"])
    for check in (True, False):
        result = run_module("module_environment", ask.arguments(system, ["base/1.0", "shell"]), check=check)
        assert not result.failed and not result.changed
        assert {key: result[key] for key in expected} == expected


@only_em
def test_a_value_that_is_no_utf8_comes_through_ansible(run_module, ask, system):
    path = ask.directories[system] / "latin" / "1.0"
    path.parent.mkdir()
    path.write_text("#%Module1.0\nsetenv LATIN caf\\u00e9\nsetenv PLAIN 1\n")
    result = run_module("module_environment", ask.arguments(system, ["latin"], base=dict(BASE, LC_ALL="C")))
    assert not result.failed
    assert result["set"]["PLAIN"] == "1"
    assert result["not_captured"]["not_text"] == ["LATIN"]


@both
def test_a_failed_load_fails_the_task_with_its_details(run_module, ask, system):
    result = run_module("module_environment", ask.arguments(system, ["base/1.0", "rival", "nosuch"]))
    assert result.failed
    assert (result["missing"], result["refused"], result["loaded"]) == (["nosuch"], ["rival"], ["base/1.0"])


@both
def test_the_tasks_own_environment_is_the_default(run_module, ask, system):
    arguments = ask.arguments(system, ["base/1.0"])
    del arguments["environment"]
    result = run_module("module_environment", arguments, environment={"FROM_TASK": "yes"})
    assert result["environment"]["FROM_TASK"] == "yes"
    assert "FROM_TASK" not in result["set"]


def test_a_machine_without_modules_says_so(run_module):
    result = run_module("module_environment", {"system": "none", "environment": {"A": "1", "N": 5}})
    assert result["environment"] == {"A": "1", "N": "5"}
    assert (result["set"], result["loaded"], result["exact"], result["system"]) == ({}, [], True, "none")
    refused = run_module("module_environment", {"system": "none", "modules": ["gcc"], "environment": {}})
    assert refused.failed and "system is none" in refused["msg"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"modules": ["--a"]}, "is not the name of a module"),
        ({"modules": ["-"]}, "is not the name of a module"),
        ({"modules": [""]}, "is not the name of a module"),
        ({"modules": ["gcc"], "environment": {"A": True}}, "Write it in quotes"),
        ({"modules": ["gcc"], "command": "/nonexistent/lmod"}, "does not exist"),
        ({"modules": ["gcc"], "init": ["/nonexistent/init"]}, "does not exist"),
    ],
)
def test_bad_input_is_refused_with_a_remedy(run_module, arguments, words):
    result = run_module("module_environment", arguments)
    assert result.failed and words in result["msg"]
    assert result["remedy"] and result["failed_step"]


@both
def test_a_plan_for_modulefiles_that_an_earlier_step_creates_names_that_step(run_module, ask, system):
    def run(modules, check):
        arguments = ask.arguments(system, modules, planned_after="nccl install")
        return run_module("module_environment", arguments, check=check)

    planned = run(["base/1.0", "later/1"], check=True)
    assert not planned.failed
    assert (planned["planned_after"], planned["missing"], planned["loaded"]) == (
        "nccl install", ["later/1"], ["base/1.0"]
    )
    assert run(["later/1"], check=False).failed
    assert run(["base/1.0", "rival"], check=True).failed


def defining(system, ask):
    """Define the command as the start-up file of the system does, and name our directory."""
    if system == "lmod":
        command = "export LMOD_CMD=%s; module() { eval \"$($LMOD_CMD bash \"$@\")\"; }" % LMOD[0]
    else:
        command = "module() { eval \"$(tclsh8.6 %s bash \"$@\")\"; }" % EM[0]
    return command + "\nmodule use " + shlex.quote(str(ask.directories[system]))


def in_a_step(system, ask, tmp_path, modules, setup="", before=()):
    """Run the script of a build step that prints its environment; its exit status, output and variables."""
    text = script.render_script(request.check_request({
        "name": "probe", "state_dir": str(tmp_path), "script": "env -0 > %s" % shlex.quote(str(tmp_path / "seen")),
        "modules": modules,
        "module_init": "\n".join([defining(system, ask), *("module load " + name for name in before)]),
        "setup": setup, "module_system": system}), "digest", {})
    done = subprocess.run(
        ["bash", "--noprofile", "--norc"], input=text, env=BASE, cwd=tmp_path, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, check=False)
    seen = (tmp_path / "seen").read_bytes() if (tmp_path / "seen").exists() else b""
    return done.returncode, done.stdout, dict(
        entry.decode().split("=", 1) for entry in seen.split(b"\0") if b"=" in entry)


@both
def test_a_module_that_is_unloaded_again_leaves_nothing_and_one_that_is_not_loaded_does_not_matter(ask, system):
    result = ask(system, ["base/1.0", "wordy", "-base", "-rival", "rival/1.0"])
    assert result["loaded"] == ["wordy/1.0", "rival/1.0"] and "BASE_ROOT" not in result["set"]
    assert ask(system, ["-never/there"])["loaded"] == []


@both
def test_what_is_sticky_survives_the_purge_and_goes_where_it_is_named(ask, system):
    before = ask(system, ["kept/1.0", "base/1.0"])["environment"]
    assert ask(system, [], before, purge=True)["loaded"] == ["kept/1.0"]
    result = ask(system, ["-kept", "other"], before, purge=True)
    assert result["loaded"] == ["other/1.0"] and "KEPT" not in result["environment"]


@both
def test_a_step_has_what_module_environment_answers_for_the_same_modules(ask, system, tmp_path):
    for number, modules in enumerate((["base/1.0", "-base", "rival"], ["-kept", "other"], ["-other", "wordy"])):
        place = tmp_path / str(number)
        place.mkdir()
        before = ask(system, ["kept/1.0"])["environment"]
        answer = ask(system, modules, before, purge=True)
        code, output, seen = in_a_step(system, ask, place, modules, before=["kept"])
        assert code == 0, output
        assert seen["LOADEDMODULES"].split(":") == answer["loaded"]
        for name in ("BASE_ROOT", "RIVAL", "KEPT", "OTHER", "WORDY"):
            assert seen.get(name) == answer["environment"].get(name), (modules, name)


SETUP = "module load base/1.0\nexport OF_SETUP=\"$BASE_ROOT/more\"\ndeclare -A unexported=()"


@both
@pytest.mark.parametrize("written", ["text", "file"])
def test_a_set_up_comes_after_the_purge_and_before_the_modules(ask, system, tmp_path, written):
    setup = SETUP
    if written == "file":
        setup = str(tmp_path / "setup.sh")
        (tmp_path / "setup.sh").write_text(SETUP + "\n")
    answer = ask(system, ["wordy"], use=[], setup=setup, purge=True, init_script=defining(system, ask))
    assert answer["loaded"] == ["base/1.0", "wordy/1.0"], answer
    assert answer["set"]["OF_SETUP"] == "/opt/base/more" and "unexported" not in answer["set"]
    code, output, seen = in_a_step(system, ask, tmp_path, ["wordy"], setup, before=["rival"])
    assert code == 0, output
    assert seen["OF_SETUP"] == "/opt/base/more" and seen["LOADEDMODULES"] == "base/1.0:wordy/1.0"
    assert "RIVAL" not in seen


@both
def test_a_set_up_that_fails_is_said_and_nothing_is_built(ask, system, tmp_path):
    result = ask(system, [], setup="echo no such compiler >&2; false", init_script=defining(system, ask))
    assert result["failed_step"] == "setup" and "no such compiler" in result["msg"]
    code, output, seen = in_a_step(system, ask, tmp_path, ["wordy"], "false")
    assert code == 1 and "toolchain.setup failed" in output and not seen


def test_a_set_up_needs_no_module_system():
    given = {**DEFAULTS, "system": "none", "environment": BASE, "setup": "export OF_SETUP=1"}
    result = module_environment.report(given)
    assert result["set"] == {"OF_SETUP": "1"} and result["system"] == "none"


@both
def test_a_step_refuses_the_module_command_of_the_other_system(ask, system, tmp_path):
    other = {"lmod": "environment-modules", "environment-modules": "lmod"}[system]
    text = script.render_script(request.check_request({
        "name": "probe", "state_dir": str(tmp_path), "script": "true", "modules": ["wordy"],
        "module_init": defining(system, ask), "module_system": other}), "digest", {})
    done = subprocess.run(["bash"], input=text, env=BASE, text=True, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert "module is of %s here, and the site's users have %s" % (system, other) in done.stderr


@both
def test_a_compute_node_does_the_same_before_it_is_judged(ask, system):
    modules = ["base/1.0", "-base", "other"]
    unloading = {"-base": "\n".join(site_system.unloading_lines("base"))}
    more = {"finding": "\n".join(site_system.finding_lines()), "unloading": unloading}
    setup = "\n".join(site_system.setup_lines("export PATH=/of/setup:$PATH"))
    facts = node_facts.modules(defining(system, ask), modules, setup=setup, **more)
    assert (facts["failed"], facts["setup"], facts["system"]) == ({}, "", system), facts
    assert facts["path"].startswith("/of/setup:") and "/opt/base" not in facts["path"]
    setup = "\n".join(site_system.setup_lines("false"))
    facts = node_facts.modules(defining(system, ask), modules, setup=setup, **more)
    assert facts["setup"] == "toolchain.setup failed"
