# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the benchmark measures, what its figures mean, and when they do not suffice."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks import units

RANKS = (2, 3, 4, 7, 8)


# --- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "count"), [
    ("1 GiB", 1 << 30), ("1GiB", 1 << 30), ("1G", 1 << 30), ("1073741824", 1 << 30), (1 << 30, 1 << 30),
    ("32 KiB", 32768), ("32kib", 32768), ("0.5 MiB", 512 << 10), ("8", 8), ("8 bytes", 8), (" 16 GiB ", 16 << 30),
])
def test_s30_a_size_is_written_as_people_write_it(text, count):
    assert units.parse_size(text) == count


@pytest.mark.parametrize("text", ["", "much", "-1", "1 GB", "1 MB", "0", "1.3", "0.1 KiB", None, True, 1.5, [8]])
def test_s30_what_is_not_a_size_is_refused_with_the_reason(text):
    with pytest.raises(ValueError, match=r"is not a (size|whole number)"):
        units.parse_size(text)


def test_s30_gigabytes_are_refused_because_nobody_knows_how_many_bytes_they_are():
    with pytest.raises(ValueError, match="mean different things"):
        units.parse_size("1 GB")


@pytest.mark.parametrize(("count", "text"), [
    (8, "8 bytes"), (32768, "32 KiB"), (1 << 30, "1 GiB"), (16 << 30, "16 GiB"), (1000, "1000 bytes"),
])
def test_s30_a_size_is_shown_exactly_and_read_again(count, text):
    assert units.format_size(count) == text
    assert units.parse_size(text) == count


def test_s30_a_size_that_does_not_divide_by_the_ranks_loses_less_than_16_bytes_for_each():
    for ranks in RANKS:
        for operation in units.FACTORS:
            count = units.element_count(operation, 1 << 20, ranks)
            assert 0 <= (1 << 20) - 4 * count < 16 * ranks
            if operation in units.PARTITIONED:
                assert count % ranks == 0 and count // ranks * 4 % 16 == 0
    assert units.element_count("all_gather", 32 << 10, 4096) == 0


# --- the definitions -------------------------------------------------------------------------------------------------


def ring_transfers(operation, ranks):
    """What one rank sends, as a part of the whole, when the ranks pass pieces on to the next one."""
    sent = [0] * ranks
    if operation in ("reduce_scatter", "all_reduce"):
        for _step in range(ranks - 1):
            sent = [count + 1 for count in sent]
    if operation in ("all_gather", "all_reduce"):
        for _step in range(ranks - 1):
            sent = [count + 1 for count in sent]
    if operation == "all_to_all":
        sent = [sum(other != rank for other in range(ranks)) for rank in range(ranks)]
    if operation in ("broadcast", "send_recv"):
        sent = [ranks] * ranks
    return max(sent) / ranks


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("operation", sorted(units.FACTORS))
def test_s30_the_bus_bandwidth_counts_what_a_rank_has_to_send(operation, ranks):
    assert units.FACTORS[operation](ranks) == pytest.approx(ring_transfers(operation, ranks))


def test_s30_bandwidths_are_those_of_nccl_tests():
    # all_reduce_perf on two H200 took 3262 microseconds for 1 GiB and said 329 GB/s; on 8 ranks the factor is 7/4.
    line = units.bandwidth_row("all_reduce", 1 << 30, 1 << 28, [0.03262] * 2, [[0.003262] * 10] * 2)
    assert line["busbw"] == line["algbw"] == pytest.approx(329.2, rel=1e-3)
    line = units.bandwidth_row("all_reduce", 1 << 30, 1 << 28, [0.03262] * 8, [[0.003262] * 10] * 8)
    assert line["busbw"] == pytest.approx(1.75 * 329.2, rel=1e-3)


def test_s30_a_row_has_the_mean_over_the_ranks_and_the_spread_of_the_slowest():
    line = units.bandwidth_row("broadcast", 4000, 1000, [10e-6, 30e-6], [[4e-6, 6e-6], [5e-6, 25e-6]])
    assert line["algbw"] == pytest.approx(4000 / 10e-6 / 1e9)
    assert line["microseconds"] == {"min": 5.0, "median": 15.0, "mean": 15.0, "max": 25.0}
    assert line["spread"] == pytest.approx(20 / 15, rel=1e-4)
    assert line["trials"] == 2


def test_s44_the_latency_is_half_of_a_round_trip():
    line = units.latency_row(8, [time * 1e-6 for time in range(2, 202)])
    assert line["microseconds"] == {"min": 1.0, "median": 50.75, "p99": 99.5, "max": 100.5}
    assert line["iterations"] == 200
    assert units.latency_row(1 << 20, [1e-3])["bandwidth"] == pytest.approx(2.0972)


# --- values ----------------------------------------------------------------------------------------------------------


# --- floors ----------------------------------------------------------------------------------------------------------
