# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Known problems of a release file, as the plays read them that come after the freeze."""

from __future__ import annotations

from support import role_plays


def test_known_problems_that_cannot_be_told_are_refused_by_their_place_in_the_file(tmp_path, ansible_environment):
    written = tmp_path / "2026-11-20.yml"
    written.write_text("known_problems:\n  - problem: It hangs\n    workround: Wait\n  - workaround: Wait\n")
    process = role_plays.play_tasks(
        "release", "known_problems", {"release_file": "{{ case.file }}"}, [{"file": str(written)}],
        ansible_environment, tmp_path, "-e", "torchstack_release=2026-11-20",
    )
    said = " ".join(process.stdout.split())
    assert process.returncode != 0, said
    assert "known_problems[0]" in said and "did you mean 'workaround'" in said, said
    assert "'known_problems[1].problem'" in said and "releases/2026-11-20.yml" in said
