# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Locks that pip would refuse, and versions that are not what is locked or tagged."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import locks
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition.lock_lines import Places

HASH = " --hash=sha256:" + "0" * 64
SOUND = "numpy==2.3.5 \\\n    %s\n# a comment\nsix==1.0%s\n" % (HASH.strip(), HASH)
NCCL = "nvidia-nccl-cu12==2.21.5" + HASH
OF_THE_WHEEL = {"version": "2.21.5", "wheel": True}
TORCH = {"version": "2.6.0", "lock": "torch==2.6.0+cu124" + HASH}
NIGHTLY = {"version": "2.15.0.dev20261128", "lock": "torch==2.15.0.dev20261128+cu130" + HASH}


@pytest.mark.parametrize("definition", [
    {"locks": {"tools": SOUND, "base": ""}}, {"pytorch": TORCH}, {"pytorch": {"version": "2.6.0", "lock": ""}},
    {"pytorch": {"version": "2.6.0", "source": {"tag": "v2.6.0"}}}, {"nccl": {"version": "2.21.5", "tag": "v2.21.5-1"}},
    {"nccl": {"version": "1.9.2-aws", "tag": "v1.9.2-aws"}}, {"nccl": {"version": "2.1", "tag": "main"}},
    {"base": {"python": "3.11", "specs": ["python 3.11.*", "python-dateutil 3.9"]}},
    {"pytorch": dict(TORCH, cuda_lock=NCCL), "nccl": OF_THE_WHEEL, "cuda": {"version": "12.4"}},
    {"pytorch": dict(TORCH, cuda_lock=NCCL), "nccl": {"version": "2.27.7"}, "cuda": {"version": "11.8"}},
    {"base": {"python": "3.11", "specs": "python"}}, {"locks": []}, {"pytorch": "x"}, None, {"pytorch": NIGHTLY},
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
    ({"pytorch": dict(NIGHTLY, version="2.15.0.dev20261127")},
     "'pytorch.version' in a.yml is 2.15.0.dev20261127, and pytorch.lock has torch==2.15.0.dev20261128+cu130; correct"),
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
    found = locks.problems({"locks": {"tools": text}}, "", Places({}, {"locks.tools": 100}))
    assert [sentence.partition(":")[0] for sentence in found] == [
        "'locks.tools' (line 105)", "'locks.tools' (line 106)"]


@pytest.mark.parametrize(("line", "what"), [
    ("--index-url https://me:secret@a.example/simple", "'--index-url https://***@a.example/simple' says where"),
    ("--extra-index-url=https://a.example", "says where packages come from, which is for pip's configuration; remove"),
    ("-r other.txt", "'-r other.txt' reads another file; write here what is in it, each requirement with its hashes"),
    ("-e .", "'-e .' installs a tree that may change; make it an entry of packages, with repository and commit"),
    ("--pre", "'--pre' is an option of pip, and a lock has nothing but requirements; remove the line"),
    ("six @ https://a.example/six.whl", "is taken from an address or a directory; make it an entry of packages, with"),
    ("./six-1.0-py3-none-any.whl" + HASH, "is taken from an address or a directory"),
    ("git+https://a.example/six.git", "is taken from an address or a directory"),
    ("six==1.0 --global-option=x" + HASH, "'six==1.0' has the option --global-option besides its hashes; remove it"),
    ("six==1.0 --hash=md5:0", "'six' has '--hash=md5:0', which is no sha256 of 64 hexadecimal digits"),
    ("six>=1.0" + HASH, "is not pinned; write name==version"),
])
def test_what_is_no_requirement_is_named_with_its_file_and_line_and_what_to_do(line, what):
    places = Places({"locks.base": "a/base.txt"})
    (found,) = locks.problems({"locks": {"base": SOUND + line + "\n"}}, "a.yml", places)
    assert found.startswith("'locks.base' in a.yml (a/base.txt, line 5): ") and what in found and "secret" not in found


@pytest.mark.parametrize("size", range(1, len(SOUND.splitlines()[1]) + 1))
def test_a_lock_that_was_cut_off_anywhere_is_told(size):
    """From one character of the hash on; at its last one it is whole."""
    text = "six==1.0 \\\n" + SOUND.splitlines()[1][:size]
    found = locks.problems({"locks": {"base": text}}, "", Places({"locks.base": "a/base.txt"}))
    whole = size == len(SOUND.splitlines()[1])
    assert found == ([] if whole else [
        "'locks.base' (a/base.txt, line 1): the lock ends in the middle of 'six==1.0'; have what was cut off back from "
        "version control, or from bin/lock."])


@pytest.mark.parametrize(("base", "torch", "what"), [
    ("six==1.0" + HASH, "six==1.1" + HASH,
     "'locks.base' has six==1.0 (base.txt, line 1), and pytorch.lock has six==1.1 (torch.txt, line 2); keep one of"),
    ("six==1.0" + HASH, "Six==1.0 --hash=sha256:" + "1" * 64,
     "'locks.base' has six==1.0 (base.txt, line 1), and pytorch.lock has Six==1.0 (torch.txt, line 2) with other"),
    ("six==1.0%s\n\nsix==1.1%s" % (HASH, HASH), "",
     "'locks.base' has six==1.0 (base.txt, line 1), and it also has six==1.1 (base.txt, line 3); keep one"),
    ("six==1.0 ; python_version < '3.12'%s\n" % HASH, "six==1.1" + HASH, "keep one of the two versions"),
    ("six==1.0" + HASH, "six==1.0" + HASH, ""),
    ("six==1.0 ; python_version < '3.12'%s\nsix==1.1 ; python_version >= '3.12'%s\n" % (HASH, HASH), "", ""),
])
def test_locks_that_disagree_about_a_package_are_named_with_their_lines(base, torch, what):
    content = {"locks": {"base": base, "tools": "six==0.9" + HASH},
               "pytorch": {"version": "2.6.0", "lock": TORCH["lock"] + "\n" + torch}}
    found = locks.problems(content, "", Places({"locks.base": "base.txt", "pytorch.lock": "torch.txt"}))
    assert found == [] if not what else len(found) == 1 and what in found[0]
