# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What Lmod and Environment Modules print, as recorded from Lmod 8.6.19 and Environment Modules 5.2.0."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.module_output import (
    parse_em_python,
    parse_lmod_python,
    parse_shell,
    read_word,
    unquote_lua,
)

LMOD_PYTHON = b"""raw out
import os
os.environ["A_NL"] = "line1\\
line2";
os.environ["A_QUOTE"] = "it's \\"quoted\\" $HOME `x`";
os.environ["BS"] = "x\\\\";
os.environ["CTRL"] = "a\\9b\\13c\\1d\\27[0m\\127 \xc3\xa9 end";
os.environ["EMPTY"] = "";
os.environ["FAKE"] = "v\\";\\
os.environ[\\"INJECTED\\"] = \\"1";
os.environ["GONE"] = ''
del os.environ["GONE"]
os.environ["LOADEDMODULES"] = "a/1.0:b/1.0";
_mlstatus = True
"""

LMOD_BASH = b"""raw out
A_NL=line1
line2;
export A_NL;
A_QUOTE=it\\'s\\ \\"quoted\\"\\ \\$HOME\\ \\`x\\`;
export A_QUOTE;
BS=x\\\\;
export BS;
EMPTY=;
export EMPTY;
unset GONE;
LOADEDMODULES=a/1.0:b/1.0;
export LOADEDMODULES;
alias aa=echo\\ hi\\ there;
alias old 2> /dev/null
unalias gone 2> /dev/null || true;
unset -f gonefunction 2> /dev/null || true;
[[ -n "${BASH_VERSION:-}" ]] && complete -W 'a b' gcmd;
bf () { local x=1
if true; then
 echo hi
};
fi;\x20
};
echo hello; export X=1;
multi
line cmd;
"""

EM_PYTHON = b"""import os
os.environ['GONE'] = ''
del os.environ['GONE']
os.environ['A_NL'] = 'line1
line2'
os.environ['A_QUOTE'] = 'it\\'s "quoted" $HOME `x`'
os.environ['BS'] = 'x\\'
os.environ['BSQ'] = 'x\\\\'y'
os.environ['FAKE'] = 'v\\'
os.environ[\\'INJECTED\\'] = \\'1'
os.environ['EMPTY'] = ''
echo from-stdout
os.chdir('/tmp')
_mlstatus = True
"""

EM_BASH = b"""unset GONE;
A_NL=line1
line2; export A_NL;
A_QUOTE=it\\'s\\ \\"quoted\\"\\ \\$HOME\\ \\`x\\`; export A_QUOTE;
BS=x\\\\; export BS;
EMPTY=; export EMPTY;
alias aa=echo\\ hi\\ there;
unalias gone;
df () { echo fn $1; }; export -f df;
complete -W 'a b' gcmd;
echo from-stdout
cd '/tmp';
test 0;
"""


def test_the_python_output_of_lmod_is_read_by_luas_rules():
    changes, status = parse_lmod_python(LMOD_PYTHON)
    assert status is True
    assert changes == {
        "A_NL": "line1\nline2",
        "A_QUOTE": "it's \"quoted\" $HOME `x`",
        "BS": "x\\",
        "CTRL": "a\tb\rc\x01d\x1b[0m\x7f \xe9 end",
        "EMPTY": "",
        "FAKE": 'v";\nos.environ["INJECTED"] = "1',
        "GONE": None,
        "LOADEDMODULES": "a/1.0:b/1.0",
    }


@pytest.mark.parametrize(
    ("quoted", "plain"),
    [
        (b"\\r", b"\r"), (b"\\000x", b"\0x"), (b"\\0", b"\0"), (b"\\0091", b"\t1"), (b"\\200", b"\xc8"),
        (b"\\n", b"\n"), (b'\\"', b'"'), (b"\\\n", b"\n"), (b"\\\\9", b"\\9"),
    ],
)
def test_luas_escapes_of_every_version_are_undone(quoted, plain):
    assert unquote_lua(quoted) == plain


def test_the_python_output_of_environment_modules_is_read_by_its_own_rules():
    changes, status = parse_em_python(EM_PYTHON)
    assert status is True
    assert changes == {
        "GONE": None,
        "A_NL": "line1\nline2",
        "A_QUOTE": "it's \"quoted\" $HOME `x`",
        "BS": "x\\",
        "BSQ": "x\\'y",
        "FAKE": "v'\nos.environ['INJECTED'] = '1",
        "EMPTY": "",
    }


@pytest.mark.parametrize(
    ("output", "status"),
    [(b"_mlstatus = False\n", False), (b"_mlstatus = True\n", True), (b"", None), (b"import os\n", None)],
)
def test_the_verdict_is_taken_as_printed(output, status):
    assert parse_lmod_python(output).status is status
    assert parse_em_python(output).status is status


def test_what_only_a_shell_gets_from_lmod_is_told_apart():
    parts = parse_shell(LMOD_BASH, parse_lmod_python(LMOD_PYTHON).changes)
    assert parts.functions == {"bf": "local x=1\nif true; then\n echo hi\n};\nfi", "gonefunction": None}
    assert parts.aliases == {"aa": "echo hi there", "gone": None}
    assert parts.completions == ["complete -W 'a b' gcmd"]
    assert parts.commands == [
        "raw out", "alias old 2> /dev/null", "echo hello; export X=1;\nmulti\nline cmd;",
    ]
    assert not parts.failed


def test_a_variable_that_a_line_break_cuts_for_the_shell_is_named():
    changes = parse_lmod_python(LMOD_PYTHON).changes
    assert parse_shell(LMOD_BASH, changes).differing == ["A_NL", "CTRL", "FAKE"]
    changes = parse_em_python(EM_PYTHON).changes
    assert parse_shell(EM_BASH, changes).differing == ["A_NL", "BSQ", "FAKE"]


def test_a_line_break_that_a_newer_version_quotes_reaches_the_shell():
    newer_lmod = b'NL=line1"\n"line2;\nexport NL;\n'
    newer_em = b"NL='line1\nline2'; export NL;\n"
    for output in (newer_lmod, newer_em):
        assert parse_shell(output, {"NL": "line1\nline2"}).differing == []
    quote = b"Q='it'\\''s; export Q;\n'; export Q;\n"
    assert parse_shell(quote, {"Q": "it's; export Q;\n"}) == parse_shell(b"", {})


def test_what_only_a_shell_gets_from_environment_modules_is_told_apart():
    parts = parse_shell(EM_BASH, parse_em_python(EM_PYTHON).changes)
    assert parts.functions == {"df": "echo fn $1"}
    assert parts.aliases == {"aa": "echo hi there", "gone": None}
    assert parts.completions == ["complete -W 'a b' gcmd"]
    assert parts.commands == ["echo from-stdout\ncd '/tmp';"]


@pytest.mark.parametrize(("output", "failed"), [(b"test 0 = 1;\n", True), (b"\nfalse\n", True), (b"test 0;\n", False)])
def test_the_verdict_for_a_shell_is_no_command(output, failed):
    parts = parse_shell(output, {})
    assert (parts.failed, parts.commands) == (failed, [])


def test_statements_about_variables_that_the_python_output_does_not_know_are_commands():
    assert parse_shell(b"OTHER=1; export OTHER;\nunset THIRD;\n", {}).commands == [
        "OTHER=1; export OTHER;\nunset THIRD;"
    ]


def test_output_that_ends_anywhere_is_read_to_its_end():
    changes = parse_lmod_python(LMOD_PYTHON).changes
    complete = parse_shell(LMOD_BASH, changes)
    for length in range(len(LMOD_BASH)):
        assert set(parse_shell(LMOD_BASH[:length], changes).aliases) <= {*complete.aliases, "old"}
        assert set(parse_shell(EM_BASH[:length], changes).functions) <= {"df"}
    for length in range(len(LMOD_PYTHON)):
        assert set(parse_lmod_python(LMOD_PYTHON[:length]).changes) <= set(changes)
        assert set(parse_em_python(EM_PYTHON[:length]).changes) <= {*changes, "BSQ"}


@pytest.mark.parametrize(
    ("text", "value", "broken"),
    [
        (b"plain; x", b"plain", False), (b"a\\ b\\;c; x", b"a b;c", False), (b"'a;b'c; x", b"a;bc", False),
        (b"a\nb; x", b"a\nb", True), (b'a"\n"b; x', b"a\nb", False), (b"unfinished", b"unfinished", False),
    ],
)
def test_a_shell_word_is_read_as_a_shell_reads_it(text, value, broken):
    assert read_word(text, 0)[0] == value
    assert read_word(text, 0)[2] is broken
