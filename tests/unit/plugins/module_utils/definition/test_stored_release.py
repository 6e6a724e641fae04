# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A release's own file as what it is rolled out from again."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.canonical import digest_of
from ansible_collections.hpcml.torchstack.plugins.module_utils.definition import stored_release

WRITTEN = {"release": "2026-11-20", "mpi": {"prefix": "${CRAY_MPICH_DIR}"}, "horovod": {"series": "0.28.1"}}
SERIES = {"horovod": "a" * 64}


def asked(series):
    return digest_of({"definition": WRITTEN, "series": series})


@pytest.fixture()
def stored():
    """What a rollout left behind, with what the modules' variables stood for."""
    return {
        "release": "2026-11-20", "digest": asked(SERIES), "series": dict(SERIES),
        "definition": dict(WRITTEN, mpi={"prefix": "/opt/cray/pe/mpich/8.1.28"}),
        "written": {"mpi.prefix": "${CRAY_MPICH_DIR}"},
    }


def problem(stored, series=None, digest=None):
    series = SERIES if series is None else series
    return stored_release.problem(stored, series, digest or asked(series), "/root/release.yml")


def test_it_asks_for_what_was_written_and_not_for_what_that_stood_for(stored):
    assert stored_release.is_stored(stored)
    assert stored_release.asked_for(stored) == WRITTEN
    assert problem(stored) == ""


def test_a_release_file_that_somebody_wrote_is_taken_as_it_is():
    assert not stored_release.is_stored(WRITTEN)
    assert stored_release.asked_for(WRITTEN) == WRITTEN
    assert problem(WRITTEN) == ""
    assert not stored_release.is_stored(None)


def test_a_stored_file_that_was_edited_is_refused(stored):
    stored["definition"]["horovod"] = {"series": "0.28.2"}
    other = digest_of({"definition": stored_release.asked_for(stored), "series": SERIES})
    assert problem(stored, digest=other).startswith("/root/release.yml is not as the rollout of 2026-11-20 wrote it")
    stored["definition"] = None
    assert "is not as the rollout of 2026-11-20 wrote it" in problem(stored, digest=other)


@pytest.mark.parametrize("series", [{"horovod": "b" * 64}, {}, dict(SERIES, pytorch="c" * 64)])
def test_other_patches_than_it_was_built_with_are_refused_by_name(stored, series):
    said = problem(stored, series)
    assert "was rolled out with other patches" in said
    assert ("pytorch" in said) == ("pytorch" in series)
    assert ("horovod" in said) == (series.get("horovod") != SERIES["horovod"])


def test_a_checkout_that_resolves_release_files_otherwise_is_refused(stored):
    assert "resolves release files otherwise" in problem(stored, digest="f" * 64)


TITLED = dict(WRITTEN, title="PyTroch with Horovod")


def frozen(recipe, title="PyTroch with Horovod"):
    """What a release has that was frozen with this title."""
    definition = dict(TITLED, title=title)
    return {
        "release": "2026-11-20", "series": dict(SERIES), "definition": definition, "written": {},
        "digest": recipe({"definition": definition, "series": SERIES}),
    }


@pytest.mark.parametrize("recipe", [stored_release.asked_digest, digest_of], ids=["frozen now", "frozen before"])
def test_a_title_is_no_part_of_what_a_frozen_release_is_asked_to_be(recipe):
    record = frozen(recipe)
    for title in ("PyTroch with Horovod", "PyTorch with Horovod"):
        asked_now = {"definition": dict(TITLED, title=title), "series": SERIES}
        assert stored_release.asked_digest(asked_now, record) == record["digest"]
        assert stored_release.problem(record, SERIES, stored_release.asked_digest(asked_now, record), "/r.yml") == ""
    for other in (dict(asked_now, series={"horovod": "b" * 64}),
                  dict(asked_now, definition=dict(TITLED, horovod={"series": "0.28.2"}))):
        assert stored_release.asked_digest(other, record) != record["digest"]
