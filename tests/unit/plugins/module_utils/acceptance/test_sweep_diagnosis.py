# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The diagnosis on simulated fleets, of which it is known what is wrong with them."""

from __future__ import annotations

import functools
import random

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.acceptance.sweep_diagnosis import diagnose
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks.pair_rounds import schedule
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks.sweep_levels import Rule, look
from ansible_collections.hpcml.torchstack.plugins.module_utils.ranks.sweep_repeat import again

USUAL = 24.0
USUALLY = Rule()
SEEDS = 100
"""A part of the thousand that tests/bench/test_fleets.py takes."""


all_pairs = functools.lru_cache(maxsize=None)(schedule)


class Fleet:
    """Nodes of which some are slow, or one link, in noise; a pair of two slow nodes is as slow as the slower one."""

    def __init__(self, count, nodes=None, links=None, noise=0.05, seed=0):
        self.count, self.noise, self.random = count, noise, random.Random(seed)
        self.nodes, self.links = nodes or {}, links or {}
        self.hosts = ["n%d" % number for number in range(count)]
        self.measured, self.repeated, self.rounds = [], [], 0
        for together in all_pairs(count):
            self.measured += [self.measure(pair) for pair in together]

    def measure(self, pair):
        """A row."""
        share = min(self.nodes.get(node, 1.0) for node in pair) * self.links.get(pair, 1.0)
        return [*pair, USUAL * share * max(0.01, self.random.gauss(1, self.noise))]

    def verdict(self, rule=USUALLY):
        """The names of slow nodes and of slow links, and the whole diagnosis, after all suspects were seen again."""
        seen = look(self.count, self.measured, rule)
        while True:
            rounds = again(seen, self.repeated)
            if not rounds:
                break
            self.rounds += len(rounds)
            for together in rounds:
                nodes = [node for pair in together for node in pair]
                assert len(nodes) == len(set(nodes)), "pairs of a round are disjoint"
                self.repeated += [self.measure(pair) for pair in together]
        found = diagnose(self.hosts, seen, self.repeated)
        nodes = {self.hosts.index(named["host"]) for named in found.slow_nodes}
        links = {tuple(self.hosts.index(host) for host in named["hosts"]) for named in found.slow_links}
        return nodes, links, found


def of_seed(seed):
    """A fleet of 64 with nothing wrong, one to three slow nodes, or one slow link; half of them lose just a quarter."""
    dice = random.Random(seed)
    wrong = dice.choice(["nothing", "link", 1, 2, 3])

    def share():
        return 0.75 if seed % 2 else 1 - dice.uniform(0.25, 0.9)

    if wrong == "link":
        return Fleet(64, links={tuple(sorted(dice.sample(range(64), 2))): share()}, seed=seed)
    if wrong == "nothing":
        return Fleet(64, seed=seed)
    return Fleet(64, nodes={node: share() for node in dice.sample(range(64), wrong)}, seed=seed)


def tally(seeds):
    """How many were slow, how many of them were not named, how many others were, and the rounds for suspects."""
    bad = missed = accused = 0
    rounds = []
    for seed in seeds:
        fleet = of_seed(seed)
        nodes, links, _found = fleet.verdict()
        truth = len(fleet.nodes) + len(fleet.links)
        right = len(nodes.intersection(fleet.nodes)) + len(links.intersection(fleet.links))
        bad, missed, accused = bad + truth, missed + truth - right, accused + len(nodes) + len(links) - right
        rounds.append(fleet.rounds)
    return bad, missed, accused, sorted(rounds)


def test_s28_of_simulated_fleets_the_slow_are_named_and_nobody_else():
    bad, missed, accused, rounds = tally(range(SEEDS))
    assert missed <= 0.01 * bad, "%d of %d were missed" % (missed, bad)
    assert accused == 0, "%d innocent ones were accused" % accused
    # Next to the 63 rounds of the sweep itself.
    assert rounds[SEEDS // 2] <= 10 and rounds[-1] <= 20


def test_s28_with_two_nodes_nobody_can_be_named():
    nodes, links, found = Fleet(2, nodes={0: 0.3}).verdict()
    assert not nodes and not links and not found.undecided
    assert found.not_checked == [
        "Two nodes are one pair: there is nothing to compare it with, and nobody can be named."
    ]


@pytest.mark.parametrize("count", [3, 4, 5, 7])
def test_s28_a_small_fleet_is_told_apart_when_it_has_been_measured_again(count):
    for seed in range(20):
        assert Fleet(count, nodes={1: 0.6}, seed=seed).verdict()[:2] == ({1}, set())
        assert Fleet(count, links={(0, 2): 0.6}, seed=seed).verdict()[:2] == (set(), {(0, 2)})
        assert Fleet(count, seed=seed).verdict()[:2] == (set(), set())


def test_s28_a_disturbed_pair_does_not_hide_the_slow_node_of_a_small_fleet():
    fleet = Fleet(4, nodes={2: 0.45}, noise=0.02)
    (disturbed,) = (row for row in fleet.measured if row[:2] == [0, 3])
    disturbed[2] *= 0.55
    assert fleet.verdict()[:2] == ({2}, set())


def test_s28_three_and_four_nodes_say_what_they_cannot_tell():
    assert any("Of three nodes" in text for text in Fleet(3).verdict()[2].not_checked)
    assert any("Of four nodes" in text for text in Fleet(4).verdict()[2].not_checked)


@pytest.mark.parametrize(("count", "slow"), [(5, 2), (8, 3), (64, 16), (64, 28)])
def test_s28_many_slow_nodes_do_not_hide_each_other(count, slow):
    """Two of them are together as slow as one of them, and not slower."""
    nodes, links, found = Fleet(count, dict.fromkeys(range(slow), 0.7), noise=0.03).verdict()
    assert nodes == set(range(slow)) and links == set() and found.undecided == []


@pytest.mark.parametrize(("count", "slow"), [(4, 2), (64, 32), (64, 48)])
def test_s28_what_is_faster_than_usual_is_said_where_most_nodes_may_be_slow(count, slow):
    nodes, links, found = Fleet(count, dict.fromkeys(range(slow), 0.7)).verdict()
    assert not nodes and not links
    assert any("half of them or more may be slow" in sentence for sentence in found.not_checked)
    assert "may be slow" not in str(Fleet(count).verdict()[2].not_checked)


def test_s28_two_groups_of_nodes_with_a_slow_way_between_them_are_no_slow_nodes():
    far = {(one, other): 0.5 for one in range(20) for other in range(20, 32)}
    nodes, links, found = Fleet(32, links=far, seed=1).verdict()
    assert not nodes and not links
    assert "what lies between groups of nodes" in found.undecided[0]


def test_s28_what_noise_hides_is_undecided_rather_than_accused():
    for seed in range(10):
        fleet = Fleet(32, nodes={3: 0.75}, noise=0.25, seed=seed)
        nodes, links, found = fleet.verdict()
        assert nodes <= {3} and not links
        assert nodes or found.undecided


def test_s28_one_slow_measurement_names_nobody():
    fleet = Fleet(16, noise=0.01)
    fleet.measured[5][2] *= 0.4
    nodes, links, found = fleet.verdict()
    assert fleet.rounds and not nodes and not links and not found.undecided


def test_s28_before_the_second_measurement_a_suspect_is_undecided():
    fleet = Fleet(16, nodes={4: 0.5}, links={(8, 9): 0.5}, noise=0.01)
    found = diagnose(fleet.hosts, look(16, fleet.measured, Rule()), [])
    assert not found.slow_nodes and not found.slow_links
    assert [text.partition(" ")[0] for text in found.undecided] == ["n4", "n8"]
    assert all("not been measured again yet" in text for text in found.undecided)


def test_s28_a_sweep_that_stopped_early_names_who_is_slow_with_all_so_far():
    fleet = Fleet(16, nodes={4: 0.5}, noise=0.01)
    pairs = {pair for together in schedule(16)[:5] for pair in together}
    fleet.measured = [row for row in fleet.measured if tuple(row[:2]) in pairs]
    nodes, links, found = fleet.verdict()
    assert nodes == {4} and not links
    assert "80 of 120 pairs have not been measured." in found.not_checked


def test_s28_a_pair_that_cannot_be_measured_hides_nobody():
    for count in (5, 16):
        fleet = Fleet(count, nodes={4: 0.5}, noise=0.01)
        fleet.measured = [row for row in fleet.measured if row[:2] != [0, 1]]
        assert fleet.verdict()[:2] == ({4}, set())


def test_the_evidence_has_the_figures():
    fleet = Fleet(16, nodes={4: 0.5}, links={(8, 9): 0.6}, noise=0.001)
    found = fleet.verdict()[2]
    assert found.slow_nodes == [{
        "host": "n4", "ratio": pytest.approx(0.5, abs=0.01),
        "evidence": "n4 reaches 50 % of what is usual (24 GB/s); measured again with good partners, 50 %.",
    }]
    assert found.slow_links[0]["hosts"] == ["n8", "n9"]
    assert found.slow_links[0]["evidence"] == (
        "n8 and n9 reach 60 % of what is usual with each other; measured again 5 times, 60 %; with others, 100 % and "
        "100 %."
    )


def test_thresholds_are_the_site_s():
    fleet = Fleet(16, nodes={4: 0.7}, noise=0.001)
    assert fleet.verdict(Rule(suspect=0.65, slow=0.6))[0] == set()
    assert fleet.verdict(Rule())[0] == {4}


def test_the_noisier_the_fleet_the_more_often_a_suspect_is_measured():
    assert Rule().needed(0.05) == 5 < Rule().needed(0.07) < Rule().needed(0.5) == 12
