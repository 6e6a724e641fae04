# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a site may ask its batch system for: the rules of options, as the registry applies them to each system."""

from __future__ import annotations

import pytest
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.options import walltime_seconds
from ansible_collections.hpcml.torchstack.plugins.module_utils.batch.registry import asked_gpus, check_options, problems
from ansible_collections.hpcml.torchstack.plugins.module_utils.core.errors import StackError

DEFAULTS = {"requeue": 0, "requeue_on": ["preempted", "node_failed"]}


@pytest.mark.parametrize("launcher, options, expected", [
    ("slurm", None, {}),
    ("slurm", {"cores": None}, {}),
    ("slurm", {"queue": "gpu", "cores": "6", "memory": "240 GiB"}, {"partition": "gpu", "cores": 6, "memory": "240G"}),
    ("pbs", {"queue": "gpu", "memory": "8tb", "gpus": 0}, {"queue": "gpu", "memory": "8T", "gpus": 0}),
    ("slurm", {"walltime": "1-02:30:00", "requeue": 3, "requeue_on": ["time_limit"]},
     {"walltime": "1-02:30:00", "requeue": 3, "requeue_on": ["time_limit"]}),
    ("slurm", {"directives": [" --constraint=a100 "], "bin": "/opt/slurm/bin"},
     {"directives": ["--constraint=a100"], "bin": "/opt/slurm/bin"}),
    ("slurm", {"constraint": "a100&hbm80g", "gpu_type": "l40s", "gpus": 8, "memory_per_gpu": "60G"},
     {"constraint": "a100&hbm80g", "gpu_type": "l40s", "gpus": 8, "memory_per_gpu": "60G"}),
    ("slurm", {"reservation": "rollout", "licenses": "scratch:1,home", "hint": "nomultithread", "exclusive": False},
     {"reservation": "rollout", "licenses": "scratch:1,home", "hint": "nomultithread", "exclusive": False}),
])
def test_options_get_their_one_form(launcher, options, expected):
    assert check_options(launcher, options) == {**DEFAULTS, **expected}
    assert problems(launcher, options) == []


def test_on_the_machine_itself_no_option_matters():
    assert check_options("local", {"partition": "gpu"}) == {}
    assert problems("local", {"nonsense": 1}) == []


@pytest.mark.parametrize("launcher, options, said", [
    ("slurm", {"partiton": "gpu"}, "there is no option partiton"),
    ("slurm", {"partition": "gpu", "queue": "gpu"}, "both given"),
    ("slurm", {"memory": "240G", "memory_per_gpu": "60G"}, "both given"),
    ("slurm", {"constraint": "a100 hbm"}, "features of nodes such as a100&hbm80g"),
    ("slurm", {"exclusive": "yes"}, "one of true, false, user, mcs, topo"),
    ("slurm", {"exclusive": 1}, "one of true, false, user, mcs, topo"),
    ("slurm", {"hint": "no_multithread"}, "one of compute_bound"),
    ("slurm", {"constrain": "a100"}, "there is no option constrain"),
    ("pbs", {"reservation": "R1"}, "PBS has no reservation"),
    ("pbs", {"memory_per_gpu": "60G"}, "PBS has no memory_per_gpu"),
    ("pbs", {"constraint": "a100"}, "PBS has no constraint"),
    ("pbs", {"partition": "gpu"}, "PBS has no partition"),
    ("pbs", {"qos": "long"}, "PBS has no qos"),
    ("slurm", {"walltime": 9000}, "is the number 9000"),
    ("slurm", {"walltime": "90"}, "HH:MM:SS"),
    ("slurm", {"walltime": "00:00:00"}, "HH:MM:SS"),
    ("slurm", {"tmpdir": "scratch"}, "an absolute path"),
    ("slurm", {"tmpdir": "/" + 60 * "s"}, "of at most 60 characters"),
    ("slurm", {"cores": 0}, "at least 1"),
    ("slurm", {"cores": True}, "whole number"),
    ("slurm", {"nodes": 1.5}, "whole number"),
    ("slurm", {"memory": 240}, "with its unit"),
    ("slurm", {"account": "two words"}, "one word"),
    ("slurm", {"account": "a\nexit"}, "one word"),
    ("slurm", {"python": "python3"}, "absolute path"),
    ("slurm", {"directives": "--hold"}, "a list"),
    ("slurm", {"directives": ["--a\n--b"]}, "one line"),
    ("slurm", {"directives": ["#SBATCH --hold"]}, "not allowed"),
    ("slurm", {"directives": ["--job-name=mine"]}, "not allowed"),
    ("slurm", {"directives": ["-J mine"]}, "not allowed"),
    ("slurm", {"directives": ["--array=1-9"]}, "not allowed"),
    ("slurm", {"directives": ["-o /tmp/x"]}, "not allowed"),
    ("slurm", {"directives": ["--wait"]}, "not allowed"),
    ("pbs", {"directives": ["-N mine"]}, "not allowed"),
    ("pbs", {"directives": ["-W block=true"]}, "not allowed"),
    ("slurm", {"requeue_on": ["cancelled"]}, "one of preempted"),
])
def test_what_cannot_be_is_one_sentence(launcher, options, said):
    (sentence,) = problems(launcher, options, "torchstack_jobs.options")
    assert sentence.startswith("torchstack_jobs.options: ")
    assert said in sentence
    with pytest.raises(StackError) as caught:
        check_options(launcher, options)
    assert caught.value.failed_step == "options"
    assert said in caught.value.message


@pytest.mark.parametrize("line", [
    "--constraint=a100", "--gres=gpu:4", "--exclusive", "--hold", "-C a100", "--nodelist=n1", "-x n7",
])
def test_a_site_may_add_directives(line):
    assert problems("slurm", {"directives": [line]}) == []


def test_all_problems_are_told_at_once():
    assert len(problems("slurm", {"cores": 0, "memory": 1, "unknown": 1})) == 3
    assert len(problems("slurm", ["a"])) == 1


def test_walltimes():
    assert walltime_seconds("00:01:05") == 65
    assert walltime_seconds("2-03:00:00") == 51 * 3600
    assert walltime_seconds("100:00:00") == 360000


@pytest.mark.parametrize("launcher, options, gpus", [
    ("local", {"gpus": 4}, 0),
    ("slurm", {}, 0),
    ("slurm", {"gpus": 4, "directives": ["--gres=gpu:8"]}, 4),
    ("slurm", {"directives": ["--exclusive", "--gres=gpu:4"]}, 4),
    ("slurm", {"directives": ["--gres=gpu:l40s:8"]}, 8),
    ("slurm", {"directives": ["--gres=tmp:10G,gpu:nvidia_a100-sxm4-80gb:2"]}, 2),
    ("slurm", {"directives": ["--gres gpu"]}, 1),
    ("slurm", {"directives": ["--gpus-per-node=a100:4"]}, 4),
    ("slurm", {"directives": ["--gpus-per-node=4"]}, 4),
    ("slurm", {"directives": ["--gpu-bind=closest", "--gres=gpumem:4"]}, 0),
    ("pbs", {"directives": ["-l select=1:ncpus=64:ngpus=4"]}, 4),
    ("pbs", {"directives": ["-l place=excl"]}, 0),
])
def test_gpus_are_counted_however_a_site_asks_for_them(launcher, options, gpus):
    assert asked_gpus(launcher, options) == gpus
