# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Mask credentials in text, and recognise names that promise a secret. Pure.

What is written to logs and records passes here.

Two nets, because each has holes. What is known, such as the value of ``GITHUB_TOKEN`` in an environment, is taken out
wherever it stands. What is not known is found by its shape: the user part of an address, a conda token, an
``Authorization`` header, the assignment to a name that promises a secret, a token of a form that its issuer documents.
"""

from __future__ import annotations

import re
import urllib.parse
from typing import Iterable, Iterator, Mapping

from .command_passwords import HINTS, without_passwords
from .masks import MASK, SHORTEST, is_reference
from .spellings import spellings

COUNTED = 9
"""Digits from which on a number is not one that somebody has counted."""

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRET = re.compile(
    r".*(?:TOKEN|PASSWORD|PASSWD|PASSPHRASE|SECRET|CREDENTIAL|APIKEY|ACCESSKEY|PRIVATEKEY)S?"
    r"|SSHPASS|PAT|JWT|COOKIES?|JOBCOOKIE")
_OF_KEYS = ("ACCESS", "ACCOUNT", "API", "AUTH", "DEPLOY", "ENCRYPTION", "LICENCE", "LICENSE", "MASTER", "PRIVATE",
            "SECRET", "SIGNING", "SSH")
_ABOUT = frozenset((
    "ASKPASS", "COMMAND", "COUNT", "DIR", "DIRECTORY", "ENABLED", "EXPIRES", "EXPIRY", "FILE", "HELPER", "LENGTH",
    "NAME", "PARALLELISM", "PATH", "PROMPT", "PROVIDER", "RATE", "SEC", "SECOND", "SECONDS", "SIZE", "SOCK", "SOCKET",
    "SUPPORT", "TIMEOUT", "TYPE", "USERNAME"))
"""Last words of names that say something about a secret, and do not hold it."""

_OF_A_JOB = re.compile(r"(?:FLUX|HYDRA|LSB|OMPI|PALS|PBS|PMI|PMIX|PRTE|SLINGSHOT|SLURM)_(?!JWT\Z)")
"""Variables that a batch system or a launcher gives its job: without them it can start no ranks."""

_INNOCENT = frozenset((
    "default", "disable", "disabled", "enable", "enabled", "false", "keyring", "optional", "prompt", "required",
    "success", "system"))
"""Values that say what is to be done with a secret, or how a check for it ended."""

_WORKING = frozenset(("APPTAINER", "OLD", "SINGULARITY", "START"))
"""What stands before ``PWD`` where that is the working directory."""

_CALL = re.compile(r"[A-Za-z_][\w.:>-]*\(")
"""Begins a value that is a call, in a line of a program."""

_KEY_TEXT = r"[A-Za-z0-9+/]{%d,}={0,2}(?:\\\\[nr])*[\"',;)+]*"
_KEY_ALONE = r"[\"'+]?(?:%s|(?:Proc-Type|DEK-Info):[^\r\n]*)" % (_KEY_TEXT % 4)
KEY_LINE = re.compile(r"\s*(?:%s)?\s*|.*\s[\"']?%s\s*" % (_KEY_ALONE, _KEY_TEXT % 40), re.DOTALL)
"""What a line of a private key looks like (RFC 7468, RFC 1421), also as a literal of a program or behind a prefix."""

_NAMED = r"[A-Za-z_][A-Za-z0-9_.-]{0,80}"
_QUERY = (
    r"access_token|api_?key|auth|auth_?token|client_secret|job_token|key|oauth_token|passw(?:or)?d|private_token|"
    r"refresh_token|secret|sig|signature|token|x-amz-(?:credential|security-token|signature)")
_HEADER = (
    r"(?:proxy-)?authorization|(?:set-)?cookie|(?:deploy|job|private)-token|x-[a-z-]{0,30}(?:api-?key|secret|token)")
_ADDRESS = re.compile(r"(?<=://)[^\s/?#'\"<>\\`|]{1,512}@")
_SSH = re.compile(r"(?:ssh|rsync|sftp)://\Z", re.IGNORECASE)
_CONDA = re.compile(r"(https?://[^\s'\"<>]{1,300}?/t/)([^\s/'\"<>]+)(?=/|['\"<>\s]|\Z)")
_PARAMETER = re.compile(r"([?&;](?:%s)=)([^\s&;'\"#<>]+)" % _QUERY, re.IGNORECASE)
_FIELD = re.compile(r"((?<![\w-])(?:%s)[\"']?\s{0,8}[:=]\s{0,8}[\"']?)([^\"'\r\n]+)" % _HEADER, re.IGNORECASE)
_BEARER = re.compile(r"(\bbearer\s{1,8})([A-Za-z0-9._~+/=-]{8,})", re.IGNORECASE)
_ASSIGNED = re.compile(
    r"(?<![A-Za-z0-9_.])(--)?(%s)([\"']?\s{0,4}(?:=>|[=:])\s{0,4})(\"[^\"\r\n]*\"|'[^'\r\n]*'|[^\s'\",;}\])]+)" % _NAMED
)
_OPTION = re.compile(r"(--(%s)\s{1,4})(?!-)(\"[^\"\r\n]*\"|'[^'\r\n]*'|[^\s'\"]+)" % _NAMED)
_NETRC = re.compile(r"(\blogin\s{1,8}\S{1,200}\s{1,8}password\s{1,8})(\S+)")
_SHAPES = re.compile(
    r"\b(?:gh[opsur]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|gl(?:pat|dt|ptt|rt)-[\w-]{20,}|hf_[A-Za-z0-9]{30,}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}|xox[abeprs]-[\w-]{10,}|sk-[\w-]{32,}|pypi-AgE[\w-]{40,}|npm_[A-Za-z0-9]{36}"
    r"|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,})")
# A key has an end that is near, or what looks like one is masked: a build may print the first line of keys as a word of
# a program, and what follows is its log.
_PEM = re.compile(
    r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)(?:.{0,20000}?(-----END [A-Z ]{0,30}PRIVATE KEY-----)"
    r"|(?:\*\*\*)?(?:\s*%s(?=\s|\Z))*)" % _KEY_ALONE, re.DOTALL)
_HINTS = (
    "://", "token", "pass", "pwd", "secret", "credential", "key", "auth", "bearer", "cookie", "jwt", "sig=",
    "signature=", "pat=", 'pat"', "pat'", "pat:", "gho_", "ghp_", "ghr_", "ghs_", "ghu_", "github_", "glpat-", "gldt-",
    "glptt-", "glrt-", "hf_", "akia", "asia", "xox", "sk-", "npm_", "eyj", "pypi-age", *HINTS,
)
"""One of these is in every line with a credential, in small letters; other lines are left alone at once."""


def is_secret_name(name: str) -> bool:
    """Tell whether a variable, key or option of this name holds a secret by what its name says.

    The words of a name count, in whatever case: ``HF_TOKEN``, ``npm_config__authToken`` and ``AWS_ACCESS_KEY_ID`` do,
    ``TOKENIZERS_PARALLELISM``, ``PWD`` and ``SSH_AUTH_SOCK`` do not.
    """
    words = [word.upper() for word in _WORDS.findall(name)]
    if not words or words == ["PWD"] or words[-1] in _ABOUT:
        return False
    if words[-1] == "ID":
        return words[-3:-1] == ["ACCESS", "KEY"]
    if words[-1] in ("KEY", "KEYS"):
        return len(words) > 1 and words[-2] in _OF_KEYS
    if words[-1] == "TOKENS" and words[-2:-1] in (["MAX"], ["MIN"], ["NUM"]):
        return False
    if words[-1] == "PWD":
        return words[-2] not in _WORKING
    return words[-1] in ("AUTH", "PASS") or any(map(_SECRET.fullmatch, words))


def withheld(environment: Mapping[str, str], handed_on: Iterable[str] = ()) -> list[str]:
    """List the variables of a caller that a build does not get: with names that promise secrets, and not handed on.

    What a batch system gives its own job stays.
    """
    wanted = set(handed_on)
    return sorted(
        name for name in environment if name not in wanted and is_secret_name(name) and not _OF_A_JOB.match(name)
    )


def secret_values(environment: Mapping[str, str], named: Iterable[str] = ()) -> list[str]:
    """List what must not be seen of an environment, the longest first: variables that are named, or whose names say so.

    Also the passwords in addresses that any variable holds, such as a proxy's; each line of a value counts by itself.
    """
    found: set[str] = set()
    wanted = set(named)
    for name, value in environment.items():
        if name in wanted or is_secret_name(name):
            found.update(line.strip() for line in value.splitlines())
        for match in _ADDRESS.finditer(value):
            user, _colon, password = match.group()[:-1].partition(":")
            secret = password or ("" if _SSH.search(value, 0, match.start()) else user)
            found.update((secret, urllib.parse.unquote(secret)))
        found.update(match.group(2) for match in _CONDA.finditer(value))
    return sorted(
        (secret for secret in found
         if len(secret) >= SHORTEST and secret.lower() not in _INNOCENT and not secret.startswith("-----")),
        key=lambda secret: (-len(secret), secret),
    )


def _masked_address(match: re.Match) -> str:
    user, _colon, password = match.group()[:-1].partition(":")
    # ssh knows no password in an address, and its user is part of it.
    if not password and _SSH.search(match.string, max(0, match.start() - 12), match.start()):
        return match.group()
    return match.group() if is_reference(password or user) else MASK + "@"


def _masked_value(match: re.Match) -> str:
    return match.group() if is_reference(match.group(2).strip()) else match.group(1) + MASK


def _masked_assignment(match: re.Match) -> str:
    dashes, name, sign, value = match.groups()
    bare = value.strip("'\"")
    if not is_secret_name(name) or len(bare) < SHORTEST or is_reference(value) or bare.lower() in _INNOCENT:
        return match.group()
    # What make and CMake count, and a line of a program that a compiler shows.
    if (value.isdigit() and len(value) < COUNTED) or _CALL.match(value):
        return match.group()
    # Prose and C++: "token: expected", "Token::kind"; only a plain assignment or an option is one without quotes.
    if ":" in sign and value == bare and not sign.lstrip().startswith(("'", '"')):
        return match.group()
    mark = value[0] if value[0] in "'\"" else ""
    return (dashes or "") + name + sign + mark + MASK + mark


def _masked_option(match: re.Match) -> str:
    if not is_secret_name(match.group(2)) or len(match.group(3)) < SHORTEST or is_reference(match.group(3)):
        return match.group()
    return match.group(1) + MASK


def credential_in(text: str) -> str:
    """Name the credential in a text that will be executed; empty where there is none.

    Only what cannot be anything else: a program may well assign to a variable ``token``.
    """
    for pattern, what in ((_ADDRESS, "a password in an address"), (_CONDA, "a conda token")):
        for match in pattern.finditer(text) if "://" in text else ():
            if (_masked_address if pattern is _ADDRESS else _masked_value)(match) != match.group():
                return what
    return "a private key" if _PEM.search(text) else "a token" if _SHAPES.search(text) else ""


def named_credential(name: str, value: str) -> str:
    """Name the credential in the value of a variable, by the name of the variable."""
    secret = is_secret_name(name) and len(value) >= SHORTEST and value.lower() not in _INNOCENT
    return "the value of a secret" if secret and not is_reference(value) and not value.startswith("/") else ""


def credentials_in(data: object, name: str = "", path: str = "") -> Iterator[tuple[str, str]]:
    """List the paths in a record, under the key ``name``, where there are certainly credentials, and what they are."""
    if isinstance(data, str):
        what = credential_in(data) or named_credential(name, data)
        if what:
            yield path, what
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from credentials_in(value, str(key), "%s.%s" % (path, key) if path else str(key))
    elif isinstance(data, (list, tuple)):
        for number, value in enumerate(data):
            yield from credentials_in(value, name, "%s[%d]" % (path, number))


def without_credentials(text: str) -> str:
    """Mask every credential in a text that is known by its shape; a text that has passed once is not changed again."""
    if "-----BEGIN" in text:
        text = _PEM.sub(lambda match: match.group(1) + MASK + (match.group(2) or ""), text)
    if not _is_hinted(text):
        return text
    return "\n".join(_masked_line(line) if _is_hinted(line) else line for line in text.split("\n"))


def _is_hinted(text: str) -> bool:
    small = text.lower()
    return any(hint in small for hint in _HINTS)


def _masked_line(text: str) -> str:
    if "://" in text:
        text = _CONDA.sub(_masked_value, _ADDRESS.sub(_masked_address, text))
    text = _PARAMETER.sub(_masked_value, text)
    text = _FIELD.sub(_masked_value, text)
    text = _BEARER.sub(_masked_value, text)
    text = _ASSIGNED.sub(_masked_assignment, text)
    if "--" in text:
        text = _OPTION.sub(_masked_option, text)
    text = without_passwords(_NETRC.sub(_masked_value, text))
    return _SHAPES.sub(MASK, text)


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Mask in a text :func:`secret_values` in any of their spellings, and credentials."""
    for spelling in spellings(secrets):
        text = text.replace(spelling, MASK)
    return without_credentials(text)


def redacted_data(data: object, secrets: Iterable[str] = (), by_name: bool = True) -> object:
    """Mask secrets and credentials in every text of a record; by name, the whole of what stands under a secret's."""
    known = list(secrets)
    if isinstance(data, str):
        return redacted(data, known)
    if isinstance(data, Mapping):
        return {
            key: MASK if by_name and isinstance(value, str) and named_credential(str(key), value)
            else redacted_data(value, known, by_name) for key, value in data.items()
        }
    if isinstance(data, (list, tuple)):
        return [redacted_data(item, known, by_name) for item in data]
    return data
