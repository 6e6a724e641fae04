# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Do what bin/torchstack is called for: the command line, by click."""

from __future__ import annotations

import sys
from typing import Any, Callable, Sequence

from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.near_names import nearest
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.ansible_programs import TOP

from . import obey, overview, programs, verbs
from .places import CommandError
from .playbook import FAILED, INTERRUPTED

NAME = "torchstack"
COMPLETE = "_TORCHSTACK_COMPLETE"
SHELLS = ("bash", "zsh", "fish")

READING: dict[str, tuple[str, Callable[..., int]]] = {
    "list": ("List the releases of a site: state, default, age, versions, size, acceptance, drift.", obey.list_),
    "show": ("Show what is known of a release.", obey.show),
    "status": ("Say how far a rollout is; from any terminal.", obey.status),
    "logs": ("Print the log of STEP, by default that of the step that runs.", obey.logs),
    "why": ("Say what changed that made STEP be built.", obey.why),
}
"""Of the commands that read records, without Ansible but for the place of the root."""

STEPPED = ("logs", "why")
"""Those of which the first word is a step."""


def main(words: Sequence[str]) -> int:
    """Run the program; its exit code."""
    try:
        import click
    except ImportError:
        print("torchstack: needs the Python package click in %s: install %s/requirements/rollout-*.txt, or click alone."
              % (sys.executable, TOP), file=sys.stderr)
        return FAILED
    own, further = list(words), []
    # What PROGRAMS get goes on whole: some have a -- of their own.
    if "--" in own and next((word for word in own if not word.startswith("-")), "") not in verbs.PROGRAMS:
        own, further = own[:own.index("--")], own[own.index("--") + 1:]
    try:
        return int(group(further).main(own, prog_name=NAME, complete_var=COMPLETE, standalone_mode=False) or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.ctx.get_help() if error.ctx else "")
        return 0
    except click.ClickException as error:
        print("torchstack: %s" % error.format_message(), file=sys.stderr)
    except (CommandError, StackError, OSError, ValueError) as error:
        said = error.as_result()["msg"] if isinstance(error, StackError) else error
        print("torchstack: %s" % said, file=sys.stderr)
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    return FAILED


def group(further: Sequence[str] = ()) -> Any:
    """Make the command with all its words.

    Args:
        further: what was typed after ``--``, for ansible-playbook.
    """
    import click

    class Words(click.Group):
        """Answers an unknown word with the nearest."""

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            """See :class:`click.Group`."""
            known = self.list_commands(ctx)
            if args[0] not in known and not args[0].startswith("-"):
                near = nearest(args[0], known)
                others = "; did you mean '%s'?" % near if near else ": there are %s." % ", ".join(known)
                ctx.fail("There is no '%s'%s" % (args[0], others))
            return super().resolve_command(ctx, args)

    made = Words(
        NAME, help="Roll out, look after and retire releases of PyTorch, by the playbooks of hpcml.torchstack.",
        epilog=verbs.EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
        params=[click.Option(["--dry-run"], is_flag=True, help="Print the line that would run, and run nothing.")])
    for name, verb in verbs.PLAYBOOKS.items():
        made.add_command(_playbook(name, verb, further))
    made.add_command(_report(made.commands["report"], further))
    for name, (text, function) in READING.items():
        made.add_command(_reading(name, text, function))
    for name, (program, text) in verbs.PROGRAMS.items():
        made.add_command(_program(name, program, text))
    made.add_command(_completion())
    return made


def _words() -> Any:
    import click

    return click.Argument(["words"], nargs=-1, metavar="[SITE] [RELEASE]", shell_complete=obey.complete_words)


def _playbook(name: str, verb: verbs.Verb, further: Sequence[str]) -> Any:
    """Make a command that runs a playbook."""
    import click

    options = [_option(option) for option in verb.options]
    if "--check" not in verb.arguments and name != "lint":
        options.append(click.Option(["--check", "given_check"], is_flag=True, help="Only say what would be done."))
    if name == "rollout":
        options.append(click.Option(["--plain"], is_flag=True, help="Print lines, also on a terminal."))
    if name in ("rollout", "plan"):
        options.append(click.Option(["--diff", "given_diff"], is_flag=True, help="Also show what differs, whole."))
    options.append(click.Option(["-v", "--verbose", "given_verbose"], count=True, help="What Ansible says besides."))
    options.append(click.Option(
        ["--json", "as_json"], is_flag=True, help="Print what came of it as data; lines go to standard error."))

    @click.pass_context
    def run(context: Any, words: tuple[str, ...], given_check: bool = False, given_diff: bool = False,
            given_verbose: int = 0, plain: bool = False, as_json: bool = False, **given: Any) -> int:
        flags = ["--check"] * given_check + ["--diff"] * given_diff + ["-" + "v" * given_verbose] * bool(given_verbose)
        dry_run = context.find_root().params["dry_run"]
        return obey.run_playbook(name, words, given, [*flags, *further], dry_run, plain, as_json)

    return click.Command(name, callback=run, params=[_words(), *options], help=verb.help, short_help=verb.help)


def _root() -> Any:
    import click

    return click.Option(["--root"], type=click.Path(exists=True, file_okay=False, resolve_path=True),
                        help="The directory of the releases; by default the site's.")


def _report(of_one: Any, further: Sequence[str]) -> Any:
    """Let the report of a release also be that of all of a root, which is made from records without a playbook."""
    import click

    @click.pass_context
    def run(context: Any, words: tuple[str, ...], all_releases: bool, root: str | None, to: str | None, as_json: bool,
            **given: Any) -> int:
        if not all_releases and (root or to):
            raise CommandError("--root and --to go with --all, the page of all releases.")
        if not all_releases:
            return int(of_one.callback(words=words, as_json=as_json, **given))
        if further:
            raise CommandError("report --all runs no ansible-playbook that could take %s." % " ".join(further))
        dry_run = context.find_root().params["dry_run"] or given["given_check"]
        return obey.report_all(words, root, to, as_json, dry_run)

    own = [
        click.Option(["--all", "all_releases"], is_flag=True, help="Write one page of all releases of the root."),
        _root(), click.Option(["--to"], type=click.Path(dir_okay=False, resolve_path=True),
                              help="With --all: the file; by default ROOT/.torchstack/%s." % overview.NAME)]
    text = "Write the report of a release again; --all: one page of all releases."
    return click.Command("report", callback=run, params=[*of_one.params, *own], help=text, short_help=text)


def _option(option: verbs.Option) -> Any:
    import click

    if option.value is not None:
        return click.Option([option.name, option.variable], flag_value=option.value, default=None, help=option.help,
                            type=click.UNPROCESSED)
    kind = click.Choice(option.choices) if option.choices else None
    return click.Option([option.name, option.variable], type=kind, multiple=option.repeated, help=option.help,
                        required=option.required)


def _reading(name: str, text: str, function: Callable[..., int]) -> Any:
    """Make a command that reads records."""
    import click

    params = [_words(), _root()]
    if name in STEPPED:
        params.insert(0, click.Argument(
            ["step"], required=name == "why", shell_complete=obey.complete_steps))
    if name == "logs":
        params.append(click.Option(["-f", "--follow"], is_flag=True, help="Go on until the step has ended."))
    else:
        if name == "status":
            params.append(click.Option(["-f", "--follow"], is_flag=True, help="Go on until the rollout has ended."))
        if name == "list":
            params.append(click.Option(["--wide"], is_flag=True, help="Print all columns, also where they do not fit."))
        params.append(click.Option(["--json", "as_json"], is_flag=True, help="Print data."))
    return click.Command(name, callback=function, params=params, help=text, short_help=text)


def _program(name: str, program: str, text: str) -> Any:
    """Make a command that hands its words to a program beside this one."""
    import click

    settings = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}

    @click.pass_context
    def run(context: Any, words: tuple[str, ...]) -> int:
        return programs.run_program(program, words, context.find_root().params["dry_run"])

    argument = click.Argument(["words"], nargs=-1, type=click.UNPROCESSED, shell_complete=obey.complete_words)
    return click.Command(name, callback=run, params=[argument], help=text, short_help=text,
                         context_settings=settings)


def _completion() -> Any:
    """Make the command that prints what a shell evaluates."""
    import click
    from click.shell_completion import get_completion_class

    def run(shell: str) -> int:
        found = get_completion_class(shell)
        if found is None:
            raise CommandError("There is no completion for '%s': there are %s." % (shell, ", ".join(SHELLS)))
        # As text: its source() asks the bash on PATH for its version.
        made = found(group(), {}, NAME, COMPLETE)
        print(made.source_template % made.source_vars())
        return 0

    text = "Print the completion for a shell: eval \"$(torchstack completion bash)\"."
    return click.Command("completion", callback=run, help=text, short_help=text,
                         params=[click.Argument(["shell"], type=click.Choice(SHELLS))])
