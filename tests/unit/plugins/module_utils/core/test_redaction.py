# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import json
import random
import re
import shlex
import string
import urllib.parse

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.redaction import (
    MASK,
    credential_in,
    credentials_in,
    is_secret_name,
    redacted,
    redacted_data,
    secret_values,
    without_credentials,
)
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.spellings import spellings

SECRET = "s3cr3t/Wörd+9'x"


@pytest.mark.parametrize("name", [
    "GITHUB_TOKEN", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "CI_JOB_TOKEN", "GITHUB_PAT", "AWS_SECRET_ACCESS_KEY",
    "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "WANDB_API_KEY", "apiKey", "npm_config__authToken", "PGPASSWORD",
    "MYSQL_PWD", "SSHPASS", "TWINE_PASSWORD", "GPG_PASSPHRASE", "SLURM_JWT", "GOOGLE_APPLICATION_CREDENTIALS",
    "DEPLOY_KEY", "SSH_PRIVATE_KEY", "client_secret", "password", "ANSIBLE_VAULT_PASSWORD",
])
def test_the_name_of_a_secret_says_so(name):
    assert is_secret_name(name)


@pytest.mark.parametrize("name", [
    "PWD", "OLDPWD", "PATH", "TOKENIZERS_PARALLELISM", "SSH_AUTH_SOCK", "SSH_ASKPASS", "XAUTHORITY", "KRB5CCNAME",
    "GIT_CONFIG_KEY_0", "KEY", "PUBLIC_KEY", "AWS_SHARED_CREDENTIALS_FILE", "MAX_TOKENS", "USE_CUDA", "BYPASS",
    "COMPASS", "DPATH", "ANSIBLE_VAULT_PASSWORD_FILE", "MONKEY", "TOKENIZER", "NCCL_SOCKET_IFNAME", "",
])
def test_other_names_do_not(name):
    assert not is_secret_name(name)


@pytest.mark.parametrize("text, masked", [
    ("git clone https://me:pa55w0rd@git.example.org/a.git", "git clone https://***@git.example.org/a.git"),
    ("https://tokenonly@git.example.org/a.git", "https://***@git.example.org/a.git"),
    ("git+https://me:a@b@git.example.org/a.git@v1", "git+https://***@git.example.org/a.git@v1"),
    ("http_proxy=http://me:pa55w0rd@proxy.example.org:3128/", "http_proxy=http://***@proxy.example.org:3128/"),
    ("https://conda.example.org/t/me-0123-abc/main/linux-64/x.conda",
     "https://conda.example.org/t/***/main/linux-64/x.conda"),
    ("https://example.org/x?a=1&access_token=abc&b=2", "https://example.org/x?a=1&access_token=***&b=2"),
    ("https://s3.example.org/x?X-Amz-Signature=0123abcd", "https://s3.example.org/x?X-Amz-Signature=***"),
    ("> Authorization: Bearer abc.def", "> Authorization: ***"),
    ("curl -H 'PRIVATE-TOKEN: abcdef' x", "curl -H 'PRIVATE-TOKEN: ***' x"),
    ("with Bearer abcdefgh0123 it works", "with Bearer *** it works"),
    ("export GITHUB_TOKEN=abcdefgh", "export GITHUB_TOKEN=***"),
    ("password = 'abc def ghi'", "password = '***'"),
    ('{"auths": {"x": {"auth": "bWU6c2VjcmV0"}}}', '{"auths": {"x": {"auth": "***"}}}'),
    ("twine upload --password abcdefgh dist/x", "twine upload --password *** dist/x"),
    ("tool --api-key=abcdefgh", "tool --api-key=***"),
    ("machine h login me password abc", "machine h login me password ***"),
    ("remote: ghp_" + 36 * "a", "remote: ***"),
    ("AKIAABCDEFGHIJKLMNOP is the id", "*** is the id"),
    ("-----BEGIN OPENSSH PRIVATE KEY-----\nabc\ndef\n-----END OPENSSH PRIVATE KEY-----\nafter",
     "-----BEGIN OPENSSH PRIVATE KEY-----***-----END OPENSSH PRIVATE KEY-----\nafter"),
])
def test_a_credential_is_known_by_its_shape(text, masked):
    assert without_credentials(text) == masked
    assert without_credentials(masked) == masked


@pytest.mark.parametrize("text", [
    "ssh://git@git.example.org/a.git", "git@git.example.org:a.git", "file:///home/t/benchmarks/x", "a @ https://x/y@v1",
    "https://registry.example.org/@scope/name", "https://example.org/x?version=1&arch=linux",
    "curl https://$USER:$TOKEN@example.org ${TOKEN} $(token)", "GITHUB_TOKEN=$GITHUB_TOKEN", "--token ${TOKEN}",
    "error: expected unqualified-id before token: foobar", "Tokenizer::token==other", "-DKEY=abcdefgh -DSORT_KEY=name",
    "[12/220] Building CXX object torch/csrc/auth/key/pass/path/patch.cpp.o", "bearer of bad news",
    "Password for https://example.org", "auth=disabled", "-I/t/include -L/t/lib64 key: value",
    "drwxr-xr-x 2 me me 4096 token", "Compiling passwd v0.0.1",
])
def test_what_only_looks_like_one_is_left_alone(text):
    assert without_credentials(text) == text


def test_a_known_value_goes_wherever_and_however_it_stands():
    for text in [*spellings([SECRET]), "x%sy" % SECRET, json.dumps({"a": SECRET}), "echo '%s'" % SECRET]:
        assert MASK in redacted(text, [SECRET]) and "rd+9" not in redacted(text, [SECRET])


@pytest.mark.parametrize("before", [b"", b"u", b"us", b"user:", b"__token__:", b"admin1"])
@pytest.mark.parametrize("after", [b"", b"\n", b":x"])
def test_no_token_is_seen_in_base64_whatever_stands_before_it(before, after):
    chance = random.Random(repr(before + after))
    for _number in range(100):
        token = "".join(chance.choices(string.ascii_letters + string.digits + "-_/+", k=chance.randrange(8, 40)))
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = redacted("x %s y" % encode(before + token.encode() + after).decode(), [token])
            shown = text[2:-2].replace(MASK, " ").replace("=", "")
            # At the edges, characters that are half the token's are left: no whole byte of it is.
            assert MASK in text and len(shown) <= -(-8 * (len(before) + len(after)) // 6) + 3, (text, token)


@pytest.mark.parametrize("form", [
    str.__repr__, lambda text: repr({"A": text, "B": 'a"b\'c'}), ascii, lambda text: repr(text.encode()),
    lambda text: text.encode().hex(), lambda text: text.encode().hex().upper(),
    lambda text: urllib.parse.urlencode({"a": text + " "}),
    lambda text: re.sub("%..", lambda match: match.group().lower(), urllib.parse.quote(text)),
    lambda text: json.dumps({"a": text}, ensure_ascii=False), shlex.quote,
])
@pytest.mark.parametrize("secret", ["it's/a\"token+1", "plain-token-1", "W\u00f6rd\\9 2"])
def test_no_secret_is_seen_in_the_way_in_which_programs_print_it(form, secret):
    assert MASK in redacted(form(secret), [secret])


@pytest.mark.parametrize("line, masked", [
    ("curl -u admin:Sw0rdf1shX https://h/x", "curl -u admin:*** https://h/x"),
    ("+ curl -fsSLu 'admin:Sw0rd f1shX' https://h/x", "+ curl -fsSLu 'admin:***' https://h/x"),
    ("curl --user admin:Sw0rdf1shX --proxy-user p:q1w2e3 h", "curl --user admin:*** --proxy-user p:*** h"),
    ("/usr/bin/docker login -u me -p Sw0rdf1shX r.example.org", "/usr/bin/docker login -u me -p *** r.example.org"),
    ("az login --service-principal -u x -p Sw0rdf1shX", "az login --service-principal -u x -p ***"),
    ("skopeo copy --src-creds me:Sw0rdf1shX docker://a", "skopeo copy --src-creds me:*** docker://a"),
    ("sshpass -p Sw0rdf1shX ssh me@h", "sshpass -p *** ssh me@h"),
    ("sshpass -pSw0rdf1shX ssh me@h", "sshpass -p*** ssh me@h"),
    ("mysql -u root -pSw0rdf1shX db", "mysql -u root -p*** db"),
    ("ldapsearch -D cn=me -w Sw0rdf1shX -b dc=x", "ldapsearch -D cn=me -w *** -b dc=x"),
    ("redis-cli -h x -a Sw0rdf1shX ping", "redis-cli -h x -a *** ping"),
    ("smbclient -U me%Sw0rdf1shX //h/s", "smbclient -U me%*** //h/s"),
    ("openssl enc -aes-256-cbc -pass pass:Sw0rdf1shX", "openssl enc -aes-256-cbc -pass pass:***"),
    ("aws configure set aws_secret_access_key Sw0rdf1shX", "aws configure set aws_secret_access_key ***"),
    ("AccountName=a;AccountKey=Sw0rd/f1shX==;EndpointSuffix=x", "AccountName=a;AccountKey=***;EndpointSuffix=x"),
    ("curl -u $USER:$TOKEN h", "curl -u $USER:$TOKEN h"),
    ("docker run --user 1000:1000 -p 8080:80 image", "docker run --user 1000:1000 -p 8080:80 image"),
    ("-- Found CURL: /usr/lib/libcurl.so -u a:b", "-- Found CURL: /usr/lib/libcurl.so -u a:b"),
    ("mkdir -p /login/docker", "mkdir -p /login/docker"),
])
def test_a_password_on_a_command_line_is_known_by_its_program(line, masked):
    assert without_credentials(line) == masked
    assert without_credentials(masked) == masked


def test_values_of_secrets_and_passwords_in_addresses_are_known_and_short_or_innocent_ones_are_not():
    environment = {
        "HF_TOKEN": "hf-0123456", "https_proxy": "http://me:pa%2F55word@proxy:1", "CHANNEL": "https://c.org/t/tk-12345/x",
        "X_TOKEN": "12345", "Y_PASSWORD": "disabled", "HOME": "/home/somebody", "GIT": "ssh://git@git.example.org/x",
        "DEPLOY_KEY": "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADAN\n-----END PRIVATE KEY-----", "OTHER": "named-one",
    }
    assert secret_values(environment, ["OTHER"]) == [
        "MIIEvQIBADAN", "pa%2F55word", "hf-0123456", "named-one", "pa/55word", "tk-12345",
    ]


def test_a_record_is_masked_in_its_texts_and_under_the_names_of_secrets():
    record = {"a": ["x " + SECRET, 1, None], "password": "abcdefgh", "digest": 64 * "a", "n": {"url": "https://u:p@h/"}}
    assert redacted_data(record, [SECRET]) == {
        "a": ["x ***", 1, None], "password": MASK, "digest": 64 * "a", "n": {"url": "https://***@h/"},
    }


def test_credentials_of_a_record_are_found_where_they_are():
    environment = {"HF_TOKEN": "abcdefgh", "A_KEY": "b"}
    record = {"packages": [{"name": "x", "url": "https://u:p@h/x"}], "environment": environment}
    assert list(credentials_in(record)) == [
        ("packages[0].url", "a password in an address"), ("environment.HF_TOKEN", "the value of a secret"),
    ]
    assert credential_in("curl https://$USER:$TOKEN@example.org") == ""


def test_long_texts_take_their_time_only():
    lines = ["x" * 5000 + "://" * 500, "a=b " * 3000 + "token", "--a-b" * 5000 + " token", "a://b/t/" * 3000,
             "_" * 30000 + "key="]
    assert without_credentials("\n".join(lines)) == "\n".join(lines)


@pytest.mark.parametrize("text, seen", [
    ("-----BEGIN PRIVATE KEY-----\nMIIEvQ==\nerror: a b\n", "-----BEGIN PRIVATE KEY-----***\nerror: a b\n"),
    ('if "-----BEGIN PRIVATE KEY-----" in x:\n[1/2] a.o\n', 'if "-----BEGIN PRIVATE KEY-----***" in x:\n[1/2] a.o\n'),
])
def test_a_text_goes_on_behind_what_only_begins_like_a_key(text, seen):
    assert without_credentials(text) == seen
    assert without_credentials(seen) == seen


@pytest.mark.parametrize("line", [
    "# PASS:  1234567", "PASS=1234567", "auto token = tokenizer.next_token();", "-DNUM_TOKEN=1234567",
    "APPTAINER_PWD=/home/user/build", "tokens_per_sec=1234.5678", "PASS_THROUGH=anything", "SUPPORTS_AUTH = Success",
])
def test_what_a_build_prints_is_no_credential(line):
    assert without_credentials(line) == line


@pytest.mark.parametrize("line", ["HF_TOKEN=0123456789", "DB_PWD=hunter2hunter2", "PASS=correcthorse"])
def test_what_a_name_promises_is_masked(line):
    assert without_credentials(line) == line.partition("=")[0] + "=***"
