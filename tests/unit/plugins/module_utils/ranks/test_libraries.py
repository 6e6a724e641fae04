# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Which of the files that a process has mapped some globs over sonames mean."""

from __future__ import annotations

from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import libraries

MAPS = """\
7f00-7f01 r-xp 00000000 08:01 11 /release/nccl/lib/libnccl.so.2.27.3
7f01-7f02 r--p 00001000 08:01 11 /release/nccl/lib/libnccl.so.2.27.3
7f02-7f03 r-xp 00000000 08:01 12 /release/nccl/lib/libnccl-net.so
7f03-7f04 r-xp 00000000 08:01 13 /with a blank/libmpi.so.12
7f04-7f05 rw-p 00000000 00:00 0 [heap]
7f05-7f06 rw-p 00000000 00:00 0
7f06-7f07 r--p 00000000 08:01 14 /data/libnccl.so.2-notes.txt
"""


def test_files_are_found_by_the_globs_of_their_sonames_each_once(tmp_path):
    maps = tmp_path / "maps"
    maps.write_text(MAPS)
    assert libraries.declared_libraries(["libnccl.so.2", "libmpi.so*"], str(maps)) == [
        "/release/nccl/lib/libnccl.so.2.27.3", "/with a blank/libmpi.so.12"]
    assert libraries.declared_libraries(["libnccl-net.so"], str(maps)) == ["/release/nccl/lib/libnccl-net.so"]
    assert libraries.declared_libraries(["libfabric.so.1"], str(maps)) == []
