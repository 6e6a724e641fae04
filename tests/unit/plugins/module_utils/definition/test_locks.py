# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Locks that pip would refuse, and versions that are not what is locked or tagged."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import locks

HASH = " --hash=sha256:" + "0" * 64
SOUND = "numpy==2.3.5 \\\n    %s\n# a comment\nsix==1.0%s\n" % (HASH.strip(), HASH)
NCCL = "nvidia-nccl-cu12==2.21.5" + HASH
OF_THE_WHEEL = {"version": "2.21.5", "wheel": True}
TORCH = {"version": "2.6.0", "lock": "torch==2.6.0+cu124" + HASH}


@pytest.mark.parametrize("definition", [
    {"locks": {"tools": SOUND, "base": ""}}, {"pytorch": TORCH}, {"pytorch": {"version": "2.6.0", "lock": ""}},
    {"pytorch": {"version": "2.6.0", "source": {"tag": "v2.6.0"}}}, {"nccl": {"version": "2.21.5", "tag": "v2.21.5-1"}},
    {"nccl": {"version": "1.9.2-aws", "tag": "v1.9.2-aws"}}, {"nccl": {"version": "2.1", "tag": "main"}},
    {"base": {"python": "3.11", "specs": ["python 3.11.*", "python-dateutil 3.9"]}},
    {"pytorch": dict(TORCH, cuda_lock=NCCL), "nccl": OF_THE_WHEEL, "cuda": {"version": "12.4"}},
    {"pytorch": dict(TORCH, cuda_lock=NCCL), "nccl": {"version": "2.27.7"}, "cuda": {"version": "11.8"}},
    {"base": {"python": "3.11", "specs": "python"}}, {"locks": []}, {"pytorch": "x"}, None,
])
def test_what_fits_has_no_problems(definition):
    assert locks.problems(definition) == []


@pytest.mark.parametrize(("definition", "sentence"), [
    ({"locks": {"base": "numpy==2.3.5\n    --hash=sha256:0\n"}},
     "'locks.base' in a.yml: 'numpy==2.3.5' is cut off from its hashes; end its line with a backslash."),
    ({"locks": {"base": "numpy==2.3.5"}}, "'locks.base' in a.yml: 'numpy' has no hash; give it its --hash=sha256."),
    ({"mpi": {"lock": "mpich>=4" + HASH}}, "'mpi.lock' in a.yml: 'mpich>=4"),
    ({"base": {"venv": {"lock": "probe"}}}, "'base.venv.lock' in a.yml: 'probe' is not pinned"),
    ({"pytorch": dict(TORCH, version="2.5.1")},
     "'pytorch.version' in a.yml is 2.5.1, and pytorch.lock has torch==2.6.0+cu124; correct one of the two."),
    ({"pytorch": {"version": "2.6.0", "lock": "six==1.0" + HASH}}, "'pytorch.lock' in a.yml does not have torch;"),
    ({"pytorch": {"version": "2.6.0", "mpi_backend": {"tag": "v2.7.0"}}},
     "'pytorch.mpi_backend.tag' in a.yml is v2.7.0, and pytorch.version is 2.6.0; correct one of the two."),
    ({"nccl": {"version": "2.21.5", "tag": "v2.21.4-1"}},
     "'nccl.tag' in a.yml is v2.21.4-1, and nccl.version is 2.21.5;"),
    ({"pytorch": dict(TORCH, cuda_lock=NCCL), "nccl": dict(OF_THE_WHEEL, version="2.27.7")},
     "'nccl.version' in a.yml is 2.27.7, and pytorch.cuda_lock has nvidia-nccl-cu12==2.21.5; correct one of the two."),
    ({"pytorch": dict(TORCH, cuda_lock=NCCL), "nccl": OF_THE_WHEEL, "cuda": {"version": "13.0"}},
     "'cuda.version' in a.yml is 13.0, and the NCCL of pytorch.cuda_lock is for CUDA 12; the plugin has to be"),
    ({"pytorch": dict(TORCH, cuda_lock=SOUND), "nccl": OF_THE_WHEEL},
     "'nccl.wheel' in a.yml asks for the NCCL of PyTorch's wheel, and no lock has nvidia-nccl-cu<N>; add it"),
    ({"base": {"python": "3.12", "specs": ["python=3.11"]}},
     "'base.python' in a.yml is 3.12, and base.specs has 'python=3.11'; correct one of the two."),
])
def test_what_does_not_fit_is_one_sentence(definition, sentence):
    (found,) = locks.problems(definition, "a.yml")
    assert found.startswith(sentence)


def test_every_line_of_a_lock_is_judged_and_named_by_its_number_in_the_file():
    text = SOUND + "pip==26.3\nwheel>=1%s\n" % HASH
    found = locks.problems({"locks": {"tools": text}}, "", {"locks.tools": 100})
    assert [sentence.partition(":")[0] for sentence in found] == [
        "'locks.tools' (line 105)", "'locks.tools' (line 106)"]
