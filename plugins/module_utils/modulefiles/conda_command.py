# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Define ``conda`` in the shell of a user who loads a module, so that unload undoes it. Pure.

While the module is loaded, the release's prefix is the active environment at conda's first level: that is what its
variables say. ``conda activate base`` then only activates it anew, and the last ``conda deactivate`` leaves it to the
module, with the search path that the module has made. conda's hook would keep functions, variables and an entry of the
search path after unload; here one function is all that a shell gets, which reads a file of the prefix.
"""

from __future__ import annotations

import re
from typing import Any, Iterator, Mapping

KEY = "conda_command"
DIRECTORY = "torchstack"
"""Of the files that the functions read, below the prefix's ``etc/conda``."""

_PLAIN = re.compile(r"/[A-Za-z0-9_./+@%,=-]*\Z")
_CHANGES = ("install", "update", "upgrade", "remove", "uninstall")
"""Commands of conda after which an environment is activated anew, as conda's own hook has it."""

_EMPTY = (
    "_CE_M", "_CE_CONDA", "CONDA_PROMPT_MODIFIER", '"CONDA_PREFIX_$CONDA_SHLVL"',
    '"CONDA_STACKED_$((CONDA_SHLVL + 1))"')
"""Variables that conda may have taken away, as words of a shell of the Bourne family."""


def prefix_of(description: Mapping) -> str:
    """Return the conda prefix of a release."""
    return "%s/base" % description["prefix"]


def is_wanted(raw: Mapping) -> bool:
    """Tell whether a description, not normalised yet, asks for the command."""
    return raw.get(KEY) is True


def expanded(raw: Mapping) -> dict[str, Any]:
    """Return a description that asks for the command with its function and variables in place of the key."""
    prefix = prefix_of(raw)
    place = "%s/etc/conda/%s/conda" % (prefix, DIRECTORY)
    found = {key: value for key, value in raw.items() if key != KEY}
    found["setenv"] = {**(raw.get("setenv") or {}), **settings(prefix)}
    found["functions"] = {**(raw.get("functions") or {}), "conda": {
        "sh": '. "%s.sh"' % place, "csh": 'source "%s.csh" $*' % place, "fish": 'source "%s.fish"' % place}}
    return found


def settings(prefix: str) -> dict[str, str]:
    """Return the variables by which conda knows that the prefix, its own, is active."""
    return {
        "CONDA_PREFIX": prefix, "CONDA_DEFAULT_ENV": "base", "CONDA_SHLVL": "1", "CONDA_EXE": prefix + "/bin/conda",
        "CONDA_PYTHON_EXE": prefix + "/bin/python", "_CONDA_EXE": prefix + "/bin/conda", "_CONDA_ROOT": prefix}


def faults(raw: Mapping) -> list[str]:
    """Find why a description, not normalised yet, cannot have the command, one sentence each."""
    if KEY in raw and raw[KEY] not in (True, False, None):
        return ["conda_command is %r, which is neither true nor false." % (raw[KEY],)]
    if not is_wanted(raw):
        return []
    found = []
    if not _PLAIN.match(prefix_of(raw)):
        found.append("conda_command needs a prefix that every shell takes as it is, and %s is none." % raw["prefix"])
    for key in ("functions", "aliases"):
        if "conda" in (raw.get(key) or {}):
            found.append("conda_command and %s both define conda; keep one of them." % key)
    return found


def files(module: str, prefix: str) -> dict[str, str]:
    """Return the files that the functions read, by their paths below the prefix's ``etc/conda``."""
    head = "# What the function conda of the module %s does." % module
    return {
        "%s/conda.%s" % (DIRECTORY, suffix): "\n".join([head, *lines(prefix)]) + "\n"
        for suffix, lines in (("sh", _sh), ("csh", _csh), ("fish", _fish))}


def _sh(prefix: str) -> Iterator[str]:
    conda = prefix + "/bin/conda"
    yield 'case "${1-}" in'
    yield "activate | deactivate) ;;"
    yield "%s) %s \"$@\" || return; \\set -- reactivate ;;" % (" | ".join(_CHANGES), conda)
    yield '*) %s "$@"; return ;;' % conda
    yield "esac"
    yield "__torchstack_path=$PATH"
    yield '__torchstack_conda=$(PS1="${PS1-}" %s shell.posix "$@") || {' % conda
    yield "  \\unset -v __torchstack_conda __torchstack_path"
    yield "  return 1"
    yield "}"
    yield '\\eval "$__torchstack_conda"'
    yield 'if [ "$1" = deactivate ] && [ "${CONDA_SHLVL:-0}" = 0 ]; then'
    yield '  \\export "PATH=$__torchstack_path"'
    yield from ("  \\export %s=%s" % (name, value) for name, value in settings(prefix).items())
    yield "fi"
    # Here conda leaves what it takes away set and empty.
    yield "for __torchstack_name in %s; do" % " ".join(_EMPTY)
    yield '  \\eval "[ -n \\"\\${$__torchstack_name-}\\" ] || \\unset -v $__torchstack_name"'
    yield "done"
    yield "\\unset -v __torchstack_conda __torchstack_path __torchstack_name"
    yield "\\hash -r 2> /dev/null || :"


def _csh(prefix: str) -> Iterator[str]:
    conda = prefix + "/bin/conda"
    yield "if ($#argv == 0) then"
    yield "  %s" % conda
    yield "  exit $status"
    yield "endif"
    yield "set torchstack_words = ( $argv:q )"
    yield 'switch ("$argv[1]")'
    yield "case activate:"
    yield "case deactivate:"
    yield "  breaksw"
    for word in _CHANGES:
        yield "case %s:" % word
    yield "  %s $argv:q" % conda
    yield "  if ($status) exit 1"
    yield "  set torchstack_words = ( reactivate )"
    yield "  breaksw"
    yield "default:"
    yield "  %s $argv:q" % conda
    yield "  exit $status"
    yield "endsw"
    # conda writes the new prompt from the old one, which it finds in the environment.
    yield "if ($?prompt) then"
    yield '  setenv prompt "$prompt"'
    yield "else"
    yield '  setenv prompt ""'
    yield "endif"
    yield 'setenv __TORCHSTACK_PATH "$PATH"'
    yield "set torchstack_lines = ( \"`%s shell.csh $torchstack_words:q`\" )" % conda
    yield "set torchstack_status = $status"
    yield "unsetenv prompt"
    yield "if ($torchstack_status == 0) then"
    yield "  set torchstack_prompt = $?prompt"
    yield '  eval "$torchstack_lines"'
    yield "  if ($torchstack_prompt == 0) unset prompt"
    yield '  if ("$torchstack_words[1]" == deactivate && "$CONDA_SHLVL" == 0) then'
    yield '    setenv PATH "$__TORCHSTACK_PATH"'
    yield from ("    setenv %s %s" % (name, value) for name, value in settings(prefix).items())
    yield "  endif"
    yield "  rehash"
    yield "endif"
    yield "unsetenv __TORCHSTACK_PATH"
    yield "unset torchstack_words torchstack_lines torchstack_prompt"
    yield "if ($torchstack_status) exit 1"


def _fish(prefix: str) -> Iterator[str]:
    conda = prefix + "/bin/conda"
    yield "set -l words $argv"
    yield 'switch "$argv[1]"'
    yield "  case activate deactivate"
    yield "  case %s" % " ".join(_CHANGES)
    yield "    %s $argv; or return" % conda
    yield "    set words reactivate"
    yield "  case '*'"
    yield "    %s $argv" % conda
    yield "    return"
    yield "end"
    yield "set -l path $PATH"
    yield "set -l lines (%s shell.fish $words); or return" % conda
    yield 'eval (string join \\n -- $lines | string collect)'
    yield 'if test "$words[1]" = deactivate -a "$CONDA_SHLVL" = 0'
    yield "  set -gx PATH $path"
    yield from ("  set -gx %s %s" % (name, value) for name, value in settings(prefix).items())
    yield "end"
