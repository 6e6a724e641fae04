# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Sum tensors over all ranks, check the sums, and say how quick that was.

Started once for each GPU by conda-python-distributed, or by whatever else sets RANK, LOCAL_RANK, WORLD_SIZE,
MASTER_ADDR and MASTER_PORT. Without GPUs the ranks sum on processors, with gloo.
"""

import os
import socket
import sys
import time

import torch
from torch import distributed

COUNTS = (1, 4099, 32 * 1024 * 1024)
"""Elements: one; a prime, which no number of ranks divides; and 128 MiB, of which the time is taken."""

ROUNDS = 10


def summed(rank, ranks, count, device):
    """Whether one sum over all ranks is right, where element i of rank r is i modulo 97 and r modulo 97 and one."""
    pattern = (torch.arange(count, device=device) % 97).float()
    values = pattern + (rank % 97 + 1)
    distributed.all_reduce(values)
    # Whole numbers, which float32 holds exactly up to 2**24.
    return bool(torch.equal(values, pattern * ranks + sum(other % 97 + 1 for other in range(ranks))))


def seconds(count, device):
    """What one sum of so many elements takes on average."""
    values = torch.ones(count, device=device, dtype=torch.float32)
    distributed.all_reduce(values)
    begin = settled(values)
    for _round in range(ROUNDS):
        values.fill_(1)
        distributed.all_reduce(values)
    return (settled(values) - begin) / ROUNDS


def settled(values):
    """The time at which all that was asked for is done: reading an element waits for the GPU."""
    values[0].item()
    return time.perf_counter()


def main():
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    gpu = torch.cuda.is_available()
    device = torch.device("cpu")
    if gpu:
        # Run scripts may show each rank its own GPU only, which then has the number 0.
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if gpu else "gloo")
    print("Rank %d of %d: %s on %s, CPUs %s" % (
        rank, ranks, device, socket.gethostname(), sorted(os.sched_getaffinity(0))), flush=True)
    counts = COUNTS if gpu else COUNTS[:2]
    wrong = [count for count in counts if not summed(rank, ranks, count, device)]
    took = seconds(counts[-1], device)
    distributed.barrier()
    distributed.destroy_process_group()
    if wrong:
        sys.exit("Rank %d: the sums of %s elements are wrong." % (rank, wrong))
    if rank == 0:
        # Of each byte, a ring carries 2 (n - 1) / n over every link.
        speed = 4 * counts[-1] / took * 2 * (ranks - 1) / ranks / 1e9
        print("All sums over %d ranks are right; %d elements took %.3g s, %.3g GB/s on each link." % (
            ranks, counts[-1], took, speed))


if __name__ == "__main__":
    main()
