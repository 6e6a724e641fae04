# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A bundle is resolved around what the release has elsewhere, and its lock has nothing of that."""

from __future__ import annotations

import json
import sys

import pytest
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.locking import around, cli, groups, uv

HASH = " \\\n    --hash=sha256:" + "0" * 64 + "\n"


def lock(*pins):
    return "".join(pin + HASH for pin in pins)


def content(**more):
    return {
        "base": {"kind": "python_overlay", "minimum": "3.11"},
        "pytorch": {"version": "2.13.0", "lock": lock("torch==2.13.0+cu130")}, "mpi4py": {"version": "4.1"},
        "locks": {"base": lock("numpy==2.4.6 ; python_version < '3.12'", "numpy==2.5 ; python_version >= '3.12'"),
                  "tools": lock("setuptools==80")},
        "packages": [
            {"name": "timm", "version": "1.0", "lock": lock("timm==1.0"), "requires": lock("safetensors==0.5")},
            {"name": "Flash_Attn", "version": "2.8", "repository": "https://example.org/f", "build_requires":
             lock("ninja==1.11")}],
        "bundles": [{"name": "data", "packages": ["pandas"], "lock": lock("pandas==3.1")},
                    {"name": "science", "packages": ["seaborn>=0.13", "tensorflow"], "lock": "",
                     "left_out": {"TensorFlow": "another framework"}}], **more}


def test_all_that_the_release_has_elsewhere_is_a_constraint_and_what_it_compiles_is_not_looked_up():
    found = around.around(content(), 1)
    assert set(found.constraints) == {
        "torch==2.13.0", "numpy==2.4.6 ; python_version < '3.12'", "numpy==2.5 ; python_version >= '3.12'",
        "timm==1.0", "safetensors==0.5", "pandas==3.1"}
    assert found.excluded == ("flash-attn", "mpi4py", "tensorflow")
    assert found.given >= {"torch", "numpy", "timm", "safetensors", "pandas", "flash-attn", "mpi4py", "tensorflow"}
    assert not found.given & {"setuptools", "ninja", "seaborn"}
    assert "pandas==3.1" not in around.around(content(), 0).constraints, "a bundle does not hold itself"


def test_a_torch_from_source_holds_its_version_and_conda_s_specs_are_the_base_s():
    base = {"kind": "conda", "python": "3.10", "specs": ["python 3.10.*", "conda-forge::requests>=2", "mkl <2024"],
            "optional_specs": ["conda"]}
    found = around.around(content(base=base, pytorch={"version": "2.0.1", "source": {}}), 1)
    assert "torch==2.0.1" in found.constraints and found.given >= {"requests", "mkl", "conda"}


SAID = (
    "certifi==2026.1" + HASH + "    # via requests\n"
    "nvidia-nccl-cu13==2.29" + HASH + "    # via torch\n"
    "numpy==2.5" + HASH + "    # via\n    #   -c constraints.txt\n    #   pandas\n    #   seaborn\n"
    "pandas==3.1" + HASH + "    # via\n    #   -c constraints.txt\n    #   seaborn\n"
    "seaborn==0.13" + HASH + "    # via -r asked.in\n"
    "six==1.17" + HASH + "    # via\n    #   requests\n    #   python-dateutil\n"
    "python-dateutil==2.9" + HASH + "    # via seaborn\n"
    "torch==2.13.0" + HASH + "    # via -r asked.in\n"
    "requests==2.34" + HASH + "    # via torch\n")


def test_what_only_torch_needs_is_not_the_bundle_s_and_no_comment_of_uv_stays():
    group = next(one for one in groups.groups(content(), {}) if one.paths == ("bundles[1].lock",))
    assert group.roots == ("seaborn>=0.13",)
    found = groups.resolved_blocks(group, SAID)
    assert "".join(block.text for block in found) == lock("seaborn==0.13", "six==1.17", "python-dateutil==2.9")


UV = """#!%s
import json, pathlib, sys
place, words = pathlib.Path(%r), sys.argv
asked = {"words": words[1:], "roots": pathlib.Path(words[-1]).read_text().split()}
for option in ("--constraints", "--excludes"):
    if option in words:
        asked[option] = pathlib.Path(words[words.index(option) + 1]).read_text().splitlines()
with (place / "asked.jsonl").open("a") as stream:
    stream.write(json.dumps(asked) + chr(10))
text = ""
for root in asked["roots"]:
    name, digest = root.partition(">")[0], "1" * 64
    text += "%%s==9 %%s\\n    --hash=sha256:%%s\\n    # via -r asked.in\\n" %% (name, chr(92), digest)
pathlib.Path(words[words.index("--output-file") + 1]).write_text(text)
"""


@pytest.fixture
def released(tmp_path, monkeypatch):
    """A release file with two bundles, and a uv that answers as it is told and keeps what it was asked."""
    program = tmp_path / "uv"
    program.write_text(UV % (sys.executable, str(tmp_path)))
    program.chmod(0o755)
    monkeypatch.setattr(uv, "program", lambda: str(program))
    release = tmp_path / "x.yml"
    release.write_text(
        "base: {kind: python_overlay}\nbundles:\n"
        "  - {name: data, packages: [pandas], lock: x/data.txt}\n"
        "  - {name: science, packages: ['seaborn>0.13'], lock: x/science.txt, left_out: {tensorflow: no}}\n")
    return release


def test_a_bundle_is_locked_from_wheels_alone_and_around_the_bundle_that_was_locked_before_it(released, capsys):
    assert cli.main([str(released)]) == 0
    first, second = [json.loads(line) for line in (released.parent / "asked.jsonl").read_text().splitlines()]
    assert first["--constraints"] == [] and second["--constraints"] == ["pandas==9"]
    assert second["--excludes"] == ["tensorflow"] and second["roots"] == ["seaborn>0.13"]
    assert first["words"][first["words"].index("--only-binary") + 1] == ":all:"
    assert (released.parent / "x/science.txt").read_text() == lock("seaborn==9").replace("0" * 64, "1" * 64)
    assert "seaborn (none) -> 9" in capsys.readouterr().out
    assert cli.main([str(released), "--check"]) == 0


def test_a_file_that_says_once_more_what_a_bundle_is_made_of_is_refused(released, capsys):
    (released.parent / "x").mkdir()
    (released.parent / "x/data.in").write_text("polars\n")
    assert cli.main([str(released)]) == 2
    assert "The release file itself says what x/data.txt is made of, under packages; remove " in capsys.readouterr().err


def test_only_the_locks_that_are_named_are_made(released, capsys):
    assert cli.main([str(released), "--only", "bundles[1]"]) == 0
    assert not (released.parent / "x/data.txt").exists() and (released.parent / "x/science.txt").exists()
    assert cli.main([str(released), "--only", "bundle.science"]) == 2
    assert ("No lock of x.yml has a key that begins with 'bundle.science'; there are bundles[0].lock, bundles[1].lock."
            ) in capsys.readouterr().err
