# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What only an index or a repository knows goes into the release file, and all else there stays."""

from __future__ import annotations

import pytest
import yaml
from ansible_collections.hpcml.torchstack.plugins.plugin_utils.locking import facts

OLD, NEW = "0" * 40, "1" * 40
RELEASE = """\
release: a
nccl:  # ours
  repository: https://a.example/nccl
  tag: v2.21.5-1  # the newest
  commit: %s  # of that tag
  plugin: {repository: https://a.example/ofi, tag: v1, commit: %s}
mpi4py:
  version: "4.0.0"
packages:
  - name: a
    archive: https://a.example/a.tar.gz
  - name: b
    archive: https://a.example/b.tar.gz
    sha256: x
pytorch:
  version: "2.13.0"
  cpu:
    index: https://a.example/cpu
    hashes:  # by interpreter
      cp311:
        - sha256:a
      cp312: sha256:b
  # what comes behind
  lock: a/torch.txt
""" % (OLD, OLD)


def asked():
    return {one.path: one for one in facts.wanted(yaml.safe_load(RELEASE))}


def test_what_is_looked_up_is_what_a_tag_a_version_or_an_address_means():
    found = {path: (one.kind, one.asked) for path, one in asked().items()}
    assert found == {
        "nccl.commit": ("commit", ("https://a.example/nccl", "v2.21.5-1")),
        "nccl.plugin.commit": ("commit", ("https://a.example/ofi", "v1")),
        "mpi4py.sha256": ("source", ("mpi4py", "4.0.0")),
        "packages[0].sha256": ("archive", ("https://a.example/a.tar.gz",)),
        "pytorch.cpu.hashes": ("wheels", ("https://a.example/cpu", "2.13.0")),
    }


def test_what_is_written_changes_its_own_line_alone():
    wanted = asked()
    text = facts.written(RELEASE, [
        (wanted["nccl.commit"], NEW), (wanted["nccl.plugin.commit"], NEW), (wanted["mpi4py.sha256"], "f" * 64),
        (wanted["packages[0].sha256"], "e" * 64),
        (wanted["pytorch.cpu.hashes"], {"cp312": ["sha256:c", "sha256:d"], "cp313": ["sha256:e"]})])
    expected = RELEASE.replace(OLD, NEW).replace('"4.0.0"\n', '"4.0.0"\n  sha256: %s\n' % ("f" * 64))
    expected = expected.replace("a.tar.gz\n", "a.tar.gz\n    sha256: %s\n" % ("e" * 64))
    begin, end = expected.index("      cp311"), expected.index("  # what comes behind")
    block = "      cp312:\n        - sha256:c\n        - sha256:d\n      cp313:\n        - sha256:e\n"
    assert text == expected[:begin] + block + expected[end:]


def test_the_order_of_checksums_is_no_change():
    assert facts.same({"cp311": "sha256:a", "cp312": ["sha256:c", "sha256:b"]},
                      {"cp312": ["sha256:b", "sha256:c"], "cp311": ["sha256:a"]})
    assert not facts.same({"cp311": "sha256:a"}, {"cp311": ["sha256:b"]}) and not facts.same(None, {"cp311": ["x"]})
    assert facts.same(OLD, OLD) and not facts.same(None, OLD)


def test_what_a_file_does_not_say_itself_is_left_to_the_one_that_it_extends():
    wanted = asked()["mpi4py.sha256"]
    assert not facts.own(wanted, {"release"}) and facts.own(wanted, {"mpi4py.version"})


def test_what_cannot_be_written_is_a_sentence_with_the_value():
    text = "pytorch: {version: '2', cpu: {index: 'https://a.example'}}\nnccl: {repository: r, tag: v1}\n"
    for one, value in zip(facts.wanted(yaml.safe_load(text)), (NEW, {"cp311": ["sha256:a"]})):
        with pytest.raises(ValueError, match="cannot be written where it belongs; write it below its own key"):
            facts.written(text, [(one, value)])
