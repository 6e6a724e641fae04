# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A module that depends on a range of versions, beside modules of random versions."""

from __future__ import annotations

import random

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles import module_load
from ansible_collections.hpcml.torchstack.plugins.module_utils.modulefiles.module_system import LMOD, is_bookkeeping

POOL = ("8", "8.9", "9.0", "9.0.5", "9.1", "9.1.1", "9.2", "9.10", "10.0", "10.1.2-3", "11")


@pytest.fixture()
def world(system, modulefiles, tmp_path):
    """Write a site's modules of some versions, one of them its default, and ours that depends on some of them."""

    def make(versions, depends_on, default=""):
        ours = modulefiles({"name": "torchstack", "version": "1", "prefix": "/soft", "depends_on": [depends_on]})
        place = tmp_path / "site" / "cudnn"
        place.mkdir(parents=True, exist_ok=True)
        for path in place.iterdir():
            path.unlink()
        for version in versions:
            (place / version).write_text("#%%Module1.0\nconflict cudnn\nsetenv CUDNN %s\n" % version)
        if default:
            (place / ".version").write_text('#%%Module1.0\nset ModulesVersion "%s"\n' % default)
        path = "%s:%s" % (ours / ("lmod" if system.kind == LMOD else "tcl"), place.parent)
        return {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MODULEPATH": path}

    return make


def ask(system, environment, *words):
    return module_load.ask(system, environment, words, 60, shell=False)


def test_a_module_loads_a_version_of_its_range_and_takes_it_away_again(system, world):
    start = world(("8.9", "9.1", "9.1.1", "9.10", "10.0"), "cudnn@9.1:9")
    answer = ask(system, start, "load", "torchstack/1")
    assert answer.ok, answer.messages
    assert answer.environment["CUDNN"] == "9.10"
    after = ask(system, answer.environment, "unload", "torchstack/1").environment
    assert {name: value for name, value in after.items() if not is_bookkeeping(name)} == start


def test_the_user_s_own_choice_and_the_site_s_default_are_taken_where_they_lie_in_the_range(system, world):
    start = world(("8.9", "9.1", "9.1.1", "9.10"), "cudnn@9:", "9.1")
    assert ask(system, start, "load", "torchstack/1").environment["CUDNN"] == "9.1"
    mine = ask(system, start, "load", "cudnn/9.1.1").environment
    assert ask(system, mine, "load", "torchstack/1").environment["CUDNN"] == "9.1.1"


def test_where_no_version_lies_in_the_range_nothing_is_loaded_and_the_module_is_named(system, world):
    start = world(("8.9", "10.0"), "cudnn@9.1:9")
    answer = ask(system, start, "load", "torchstack/1")
    assert not module_load.loaded(answer.environment) and "cudnn" in answer.messages
    with pytest.raises(StackError) as refused:
        module_load.load_modules(system, start, ["cudnn@9.1:9"])
    assert refused.value.message == (
        "There is no module cudnn from 9.1 on and up to 9: there is cudnn/8.9, cudnn/10.0.") or (
        "there is cudnn/10.0, cudnn/8.9" in refused.value.message)
    assert refused.value.as_result()["missing"] == ["cudnn from 9.1 on and up to 9"]


def test_what_is_loaded_to_verify_a_release_is_what_its_module_loads(system, world):
    source = random.Random(23)
    for _number in range(25):
        low, high = sorted(source.sample(range(len(POOL)), 2))
        wanted = "cudnn@%s:%s" % source.choice(((POOL[low], POOL[high]), (POOL[low], ""), ("", POOL[high])))
        versions = source.sample(POOL, source.randint(1, len(POOL)))
        default = source.choice(("", source.choice(versions)))
        start = world(versions, wanted, default)
        mine = source.choice((start, ask(system, start, "load", "cudnn/" + source.choice(versions)).environment))
        answer = ask(system, mine, "load", "torchstack/1")
        loads = answer.ok and "torchstack/1" in module_load.loaded(answer.environment)
        try:
            reached = module_load.load_modules(system, mine, [wanted])[0]
        except StackError:
            assert not loads, (versions, wanted, default)
            continue
        assert loads, (versions, wanted, default, mine.get("CUDNN"), answer.messages)
        assert answer.environment["CUDNN"] == reached["CUDNN"], (versions, wanted, default, mine.get("CUDNN"))
