# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The base of a release: what a release file may say of it, and what roles are told, the same for every kind."""

from __future__ import annotations

import shlex

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import base as bases

PYTHON = {
    "executable": "/usr/bin/python3.11", "minor": "3.11", "tag": "cp311", "platform": "linux_x86_64",
    "externally_managed": True,
}
LOCKS = {"tools": "pip==26.3", "base": "numpy==2.4.6", "conda": "py-rattler==0.28.0"}
OVERLAY = {"kind": "python_overlay", "python": "", "minimum": "3.11"}
CONDA = {
    "kind": "conda", "python": "3.12", "channels": [], "mirrors": {}, "specs": ["python 3.12.*", "pip"],
    "optional_specs": [], "lock": "", "virtual_packages": {}, "channel_priority": "strict", "link_method": "copy",
    "accept_defaults_licence": False,
}
WRITTEN = {key: CONDA[key] for key in ("kind", "python", "specs")}


def described(base, root="/soft/pytorch", locks=None, **more):
    definition = {"base": base, "locks": dict(LOCKS, **(locks or {}))}
    return bases.describe(definition, root, "2026-11-20", PYTHON, **more)


def test_both_kinds_of_base_are_described_by_the_same_keys():
    overlay, conda = described(OVERLAY), described(CONDA)
    assert set(conda) - set(overlay) == {"conda"}
    assert set(overlay) <= set(conda)
    assert set(overlay["pip"]) == set(conda["pip"])


def test_an_overlay_is_the_sites_python_with_a_user_install():
    base = described(OVERLAY)
    assert (base["python"], base["minor"], base["tag"]) == ("/usr/bin/python3.11", "3.11", "cp311")
    assert base["site_packages"] == "/soft/pytorch/2026-11-20/base/lib/python3.11/site-packages"
    assert base["environment"]["PYTHONPATH"] == base["customization"] == "/soft/pytorch/2026-11-20/base/site"
    assert base["pip"]["environment"]["PYTHONUSERBASE"] == base["prefix"]
    assert "--user" in base["pip"]["options"]
    assert base["search"]["PYTHONPATH"] == ["/soft/pytorch/2026-11-20/base/site"]


def test_a_conda_base_has_a_python_of_its_own_before_it_is_there():
    base = described(CONDA)
    assert (base["python"], base["tag"]) == ("/soft/pytorch/2026-11-20/base/bin/python3", "cp312")
    assert base["site_packages"] == "/soft/pytorch/2026-11-20/base/lib/python3.12/site-packages"
    assert base["customization"] == "/soft/pytorch/2026-11-20/base/lib/python3.12"
    assert base["search"] == {"PATH": ["/soft/pytorch/2026-11-20/base/bin"]}
    assert base["setenv"] == {"CONDA_PREFIX": base["prefix"], "CONDA_DEFAULT_ENV": base["prefix"]}


def test_nothing_of_the_caller_reaches_pip_of_a_conda_base():
    pip = described(CONDA)["pip"]
    assert "--user" not in pip["options"]
    assert (pip["environment"]["PIP_USER"], pip["environment"]["PYTHONNOUSERSITE"]) == ("0", "1")
    assert pip["environment"]["PYTHONPATH"] == ""


def test_pip_of_the_whole_shell_is_told_nothing_about_an_externally_managed_python():
    assert described(OVERLAY)["setenv"] == {}
    assert "PIP_BREAK_SYSTEM_PACKAGES" not in described(CONDA)["setenv"]


@pytest.mark.parametrize("base", [OVERLAY, CONDA], ids=["overlay", "conda"])
def test_the_text_for_a_shell_says_what_the_words_say(base):
    pip = described(base, root="/soft/it's here")["pip"]
    words = shlex.split(pip["install"])
    count = len(pip["environment"])
    assert dict(word.split("=", 1) for word in words[:count]) == pip["environment"]
    assert words[count:] == [*pip["command"], "install", *pip["options"]]


def test_environments_of_tools_are_shared_by_what_is_in_them():
    assert described(OVERLAY)["tools"] == described(OVERLAY)["tools"]
    assert described(OVERLAY)["tools"] != described(OVERLAY, locks={"tools": "pip==26.2"})["tools"]
    assert described(CONDA)["tools"] != described(dict(CONDA, python="3.11"))["tools"]
    assert described(CONDA)["conda"]["tools"] != described(CONDA, locks={"conda": "py-rattler==0.29"})["conda"]["tools"]


def test_the_sites_channels_serve_a_release_file_that_names_none():
    request = described(CONDA, channels=["/soft/channel"], mirrors={"a": "/site/a", "b": "/site/b"})["conda"]
    assert request["channels"] == ["/soft/channel"]
    own = dict(CONDA, channels=["own"], mirrors={"a": "/own/a"})
    request = described(own, channels=["/soft/channel"], mirrors={"a": "/site/a", "b": "/site/b"})["conda"]
    assert request["channels"] == ["own"]
    assert request["mirrors"] == {"a": "/own/a", "b": "/site/b"}
    assert request["cache"] == "/soft/pytorch/.torchstack/conda-pkgs"


def problems(base, locks=None):
    return bases.problems({"base": base, "locks": locks or LOCKS}, "releases/x.yml")


@pytest.mark.parametrize("base", [OVERLAY, WRITTEN, dict(WRITTEN, specs=[], lock="@EXPLICIT\n"),
                                  dict(WRITTEN, specs=["conda-forge::python=3.12"])])
def test_a_base_in_order_has_no_problems(base):
    assert problems(base) == []


@pytest.mark.parametrize(
    ("base", "sentence"),
    [
        (dict(OVERLAY, channels=["a"]), "'base.channels' in releases/x.yml means nothing to an overlay"),
        (dict(OVERLAY, lock="x"), "'base.lock' in releases/x.yml means nothing to an overlay"),
        (dict(WRITTEN, minimum="3.11"), "'base.minimum' in releases/x.yml means nothing to a conda base"),
        (dict(WRITTEN, lock="@EXPLICIT\n"), "'base' in releases/x.yml has both specs and lock"),
        (dict(WRITTEN, specs=[]), "'base' in releases/x.yml has neither specs nor lock"),
        (dict(WRITTEN, specs=["pip"]), "'base.specs' in releases/x.yml has no python"),
        (dict(WRITTEN, python="3.12.1"), "'base.python' in releases/x.yml must say which Python"),
        (dict(WRITTEN, python=""), "'base.python' in releases/x.yml must say which Python"),
        (dict(WRITTEN, virtual_packages={"glibc": "2.31"}), "'base.virtual_packages' in releases/x.yml has glibc"),
    ],
)
def test_what_contradicts_itself_is_said_in_one_sentence(base, sentence):
    found = problems(base)
    assert len(found) == 1
    assert found[0].startswith(sentence)
    assert found[0].endswith(".")


def test_a_conda_base_without_the_lock_of_its_tool_is_refused():
    assert "'locks' in releases/x.yml has no conda" in problems(WRITTEN, {"tools": "", "base": ""})[0]


@pytest.mark.parametrize("definition", [None, [], {}, {"base": None}, {"base": {"kind": "other"}}, {"base": "conda"}])
def test_what_the_schema_refuses_is_passed_over(definition):
    assert bases.problems(definition) == []
