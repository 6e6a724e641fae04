# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a release asks for is resolved together where it has to fit, and each lock gets its part."""

from __future__ import annotations

from ansible_collections.hpcml.torchstack.plugins.plugin_utils.locking import groups

HASH = " \\\n    --hash=sha256:" + "0" * 64 + "\n"
OTHER = HASH.replace("0", "1")
BOTH = HASH.rstrip("\n") + OTHER


def lock(*pins, hashed=HASH):
    return "".join(pin + hashed for pin in pins)


def content(**more):
    return {
        "base": {"kind": "python_overlay", "minimum": "3.11"},
        "pytorch": {"version": "2.13.0", "lock": lock("torch==2.13.0"), "cuda_lock": lock("nvidia-nccl-cu13==2.29")},
        "locks": {"base": lock("numpy==2.4.6", "sympy==1.14"), "tools": lock("pip==26.3")}, **more}


def test_the_base_is_resolved_with_the_torch_of_the_release_and_tools_apart():
    base, tools = groups.groups(content(), {})
    assert base.paths == ("locks.base", "pytorch.lock", "pytorch.cuda_lock")
    assert base.roots == ("torch==2.13.0", "numpy", "sympy") and list(base.pythons) == [11, 12, 13, 14]
    assert tools.paths == ("locks.tools",) and tools.roots == ("pip",)


def test_a_file_says_what_a_lock_is_made_of():
    (base, _tools) = groups.groups(content(), {"locks.base": "numpy>=2.2  # what users need\n\n# sympy\n"})
    assert base.roots == ("torch==2.13.0", "numpy>=2.2")


def test_a_package_that_is_compiled_is_locked_alone_at_its_version():
    entry = {"name": "timm", "lock": lock("timm==1.0"), "requires": lock("safetensors==0.5")}
    found = {group.paths: group for group in groups.groups(content(packages=[entry]), {})}
    assert found[("packages[0].lock",)].roots == ("timm==1.0",) and found[("packages[0].lock",)].alone
    assert found[("packages[0].requires",)].roots == ("safetensors==0.5",)


def test_what_an_index_of_its_own_has_is_left_alone_with_the_reason():
    wheel = dict(content()["pytorch"], index="https://example.org/cu121")
    entry = {"name": "torchaudio", "lock": lock("torchaudio==2.3"), "index": "https://example.org/cu121"}
    given = content(pytorch=wheel, packages=[entry])
    assert [group.paths for group in groups.groups(given, {})] == [("locks.base",), ("locks.tools",)]
    assert groups.left_alone(given) == {
        "pytorch.lock": "PyTorch comes from https://example.org/cu121",
        "pytorch.cuda_lock": "PyTorch comes from https://example.org/cu121",
        "packages[0].lock": "it comes from https://example.org/cu121"}


def dealt(resolved, **more):
    given = content(**more)
    before = {"locks.base": given["locks"]["base"], "pytorch.lock": given["pytorch"]["lock"],
              "pytorch.cuda_lock": given["pytorch"]["cuda_lock"]}
    (group, _tools) = groups.groups(given, {})
    return before, *groups.deal(group, before, groups.blocks(resolved, group.pythons))


def test_the_same_pins_change_no_lock_though_an_index_has_more_files_and_other_words_for_linux():
    pins = ("nvidia-nccl-cu13==2.29 ; python_full_version < '3.15' and sys_platform == 'linux'", "numpy==2.4.6",
            "sympy==1.14", "torch==2.13.0", "colorama==0.4 ; sys_platform == 'win32'")
    before, after, left = dealt(lock(*pins, hashed=BOTH))
    assert after == before and left == []


def test_a_hash_that_the_index_does_not_have_is_a_change_unless_it_is_of_a_cpu_build():
    pins = ("nvidia-nccl-cu13==2.29", "numpy==2.4.6", "sympy==1.14")
    resolved = lock(*pins, hashed=BOTH) + lock("torch==2.13.0", hashed=OTHER)
    before, after, _left = dealt(resolved)
    assert after == {**before, "pytorch.lock": lock("torch==2.13.0", hashed=OTHER)}
    assert groups.changes(before["pytorch.lock"], after["pytorch.lock"]) == [
        "torch 2.13.0: hashes that its index does not have"]
    wheel = dict(content()["pytorch"], cpu={"hashes": {"cp311": [HASH.split("=", 1)[1].strip()]}})
    before, after, _left = dealt(resolved, pytorch=wheel)
    assert after == before


def test_a_new_version_goes_where_the_old_one_was_and_its_neighbours_keep_their_text():
    pins = ("numpy==2.5.5", "nvidia-nccl-cu13==2.30 ; sys_platform == 'linux'", "sympy==1.14", "torch==2.13.0")
    before, after, _left = dealt(lock(*pins, hashed=BOTH))
    assert after["locks.base"] == lock("numpy==2.5.5", hashed=BOTH) + lock("sympy==1.14")
    assert after["pytorch.cuda_lock"] == lock("nvidia-nccl-cu13==2.30", hashed=BOTH)
    assert after["pytorch.lock"] == before["pytorch.lock"]
    assert groups.changes(before["locks.base"], after["locks.base"]) == ["numpy 2.4.6 -> 2.5.5"]


def test_what_is_for_some_pythons_keeps_its_marker():
    pins = ("numpy==2.4.6 ; python_full_version < '3.12'", "numpy==2.5.5 ; python_full_version >= '3.12'",
            "nvidia-nccl-cu13==2.29", "sympy==1.14", "torch==2.13.0")
    _before, after, _left = dealt(lock(*pins))
    assert after["locks.base"] == lock(pins[0], pins[1], "sympy==1.14")


def test_a_conda_base_may_bring_what_torch_needs_so_that_only_what_was_named_is_locked():
    conda = {"kind": "conda", "python": "3.11", "specs": ["python 3.11.*"]}
    _before, after, left = dealt(
        lock("jinja2==3.1", "numpy==2.4.6", "nvidia-nccl-cu13==2.29", "sympy==1.14", "torch==2.13.0"), base=conda)
    assert left == ["jinja2"] and "jinja2" not in after["locks.base"]


def test_what_came_and_went_is_told_by_package():
    assert groups.changes(lock("a==1", "b==1"), lock("b==1", "c==2")) == ["a 1 -> (none)", "c (none) -> 2"]
    assert groups.changes(lock("a==1"), lock("a==1")) == []
