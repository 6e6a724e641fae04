# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Records of releases as a report reads them: a rollout that went well but for the nodes, a failed one, a bare one.

Figures are invented and of the size of real ones; the same for every run.
"""

from __future__ import annotations

import datetime
import json
import math
import random

RELEASE = "2026-11-20"
DIGEST = "5f1c0e3f9a6b47d2"
HOSTILE = "<script>alert(1)</script>"
BEGIN = datetime.datetime(2026, 11, 20, 8, 2, 11, tzinfo=datetime.timezone.utc)

STEPS = (
    ("base-fetch", 64, 0),
    ("base", 182, 5),
    ("nccl", 512, 3),
    ("nccl-plugin", 41, 2),
    ("nccl-tests", 35, 1),
    ("pytorch-source", 310, 12),
    ("pytorch-requirements", 4, 1),
    ("pytorch", 7214, 30),
    ("pytorch-install", 48, 4),
    ("mpi4py", 39, 2),
    ("mpi4py-install", 6, 1),
    ("horovod-source", 8, 1),
    ("horovod", 244, 2),
    ("package-torchvision", 391, 64000),
    ("package-deepspeed", 122, 3),
    ("package-apex", 1310, 3),
    ("bytecode", 77, 20),
)
"""Name, seconds, and the seconds of pause before it: between two of them somebody slept."""


def stamp(seconds):
    return (BEGIN + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def write(path, record):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(record if isinstance(record, str) else json.dumps(record))


def resolved(title="PyTorch 2.13.0 with NCCL 2.29.7 and Horovod 0.28.1 for CUDA 13.0"):
    """A resolved release file, as far as a report reads it."""
    packages = [
        ("torchvision", "0.28.0", "BSD-3-Clause"),
        ("deepspeed", "0.19.2", "Apache-2.0"),
        ("apex", "26.10", "BSD-3-Clause"),
    ]
    return {
        "release": RELEASE,
        "site": "mysite",
        "digest": DIGEST,
        "base": {"kind": "conda", "prefix": "/soft/torchstack/2026-11-20/base", "minor": "3.12"},
        "python": {"version": "3.12.13", "executable": "/soft/torchstack/2026-11-20/base/bin/python3.12"},
        "mpi": {"provider": "named", "prefix": "/opt/cray/pe/mpich/9.0.1/ofi/gnu/12.3"},
        "series": {"horovod": "d8dd1ebf", "pytorch": "77aa01"},
        "definition": {
            "title": title,
            "pytorch": {"version": "2.13.0", "source": {"series": "2.13.0"}},
            "cuda": {"version": "13.0", "prefix": "/opt/nvidia/hpc_sdk/Linux_x86_64/26.9/cuda/13.0"},
            "nccl": {
                "version": "2.29.7",
                "repository": "https://github.com/NVIDIA/nccl",
                "plugin": {"version": "1.19.1", "repository": "https://github.com/aws/aws-ofi-nccl"},
            },
            "mpi4py": {"version": "4.1.2"},
            "horovod": {"version": "0.28.1", "series": "0.28.1"},
            "packages": [{"name": name, "version": version, "licence": licence} for name, version, licence in packages],
        },
    }


LOG = """\
CMake Error at CMakeLists.txt:181 (find_package):
  Could NOT find CUDAToolkit (missing: CUDAToolkit_INCLUDE_DIR) <&>

Traceback (most recent call last):
  File "setup.py", line 2, in <module>
subprocess.CalledProcessError: Command '['cmake']' returned non-zero exit status 1.
"""
"""The end of the log of a step that failed."""


def steps(prefix, fails="", host="x3001c0s7b0n0"):
    clock = 0
    for number, (name, seconds, pause) in enumerate(STEPS):
        clock += pause
        place = prefix / ".torchstack" / "steps" / name
        job = {
            "digest": "%064x" % number,
            "nonce": "n%d" % number,
            "needs": {},
            "attempt": 2 if name == "horovod" else 1,
            "started": stamp(clock),
            "host": host,
            "launcher": "pbs" if seconds > 200 else "local",
        }
        if seconds > 200:
            job["job_id"] = "%d.mysite-pbs-01" % (4711000 + number)
        write(place / "job.json", job)
        clock += seconds
        end = {"nonce": job["nonce"], "finished": stamp(clock), "seconds": seconds, "reason": "done", "code": 0}
        if name == fails:
            write(place / "exit", dict(end, reason="exit", code=2))
            (place / "log").write_text("".join("[%d/75] Building CXX object\n" % line for line in range(1, 61)) + LOG)
            return
        write(place / "exit", end)
        kept = {key: job[key] for key in ("digest", "nonce", "needs", "attempt", "started", "host")}
        write(
            place / "stamp.json", dict(kept, finished=end["finished"], seconds=seconds, from_cache=name == "nccl-tests")
        )


def build(prefix):
    """What the roles and verifications record."""
    records = prefix / ".torchstack"
    write(records / "pytorch.json", {"version": "2.13.0", "cuda": "13.0", "origin": "source at tag v2.13.0, 3 patches"})
    write(
        records / "horovod.json",
        {"version": "0.28.1", "frameworks": ["PyTorch"], "operations": ["NCCL", "MPI", "Gloo"]},
    )
    write(records / "nccl.json", {"version": "2.29.7"})
    libraries = [
        ("libmpi_gnu_123.so.12", "/opt/cray/pe/mpich/9.0.1/ofi/gnu/12.3/lib/libmpi_gnu_123.so.12", "RUNPATH"),
        ("libnccl.so.2", "nccl/lib/libnccl.so.2", "RUNPATH"),
        ("libnccl-net.so", "nccl/lib/libnccl-net.so", "RUNPATH"),
        ("libtorch_cuda.so", "base/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so", "RPATH"),
        ("libtorch_cpu.so", "base/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so", "RPATH"),
        ("libfabric.so.1", "/opt/cray/libfabric/2.2.0rc1/lib64/libfabric.so.1", "RUNPATH"),
        ("libgomp.so.1", "base/lib/libgomp.so.1", "RPATH"),
        ("libstdc++.so.6", "base/lib/libstdc++.so.6", "RPATH"),
        ("libcudart.so.13", "/opt/nvidia/hpc_sdk/Linux_x86_64/26.9/cuda/13.0/lib64/libcudart.so.13", "LD_LIBRARY_PATH"),
        ("libc.so.6", "/lib64/libc.so.6", "ld.so.cache"),
        ("libm.so.6", "/lib64/libm.so.6", "ld.so.cache"),
        ("libz.so.1", "base/lib/libz.so.1", "RPATH"),
    ]
    needed = {name: {"path": path, "rule": rule} for name, path, rule in libraries}
    needed["libcuda.so.1"] = {"path": None, "rule": None}
    write(
        records / "verification.json",
        {
            "objects": {"base/lib/object%d.so" % number: {"needed": needed} for number in range(40)},
            "rules": {
                "allow_missing": [
                    {"name": "libcuda.so.1", "reason": "of the GPU's driver, which login nodes do not have"}
                ]
            },
        },
    )
    write(
        records / "imports.json",
        {
            "modules": ["torch", "torchvision", "deepspeed", "horovod.torch", "mpi4py.MPI"],
            "mapped": ["%d" % number for number in range(214)],
            "allowed": [],
            "reported": {
                "torch.__version__": "2.13.0",
                "torch.version.cuda": "13.0",
                "torch.cuda.nccl.version()": "(2, 29, 7)",
                "mpi4py.MPI.Get_library_version()": "MPI VERSION    : CRAY MPICH version 9.0.1.118\nbuild info",
            },
        },
    )
    for component, digest, titles in (
        (
            "horovod",
            "d8dd1ebf",
            (
                "Compile Horovod and its Gloo as C++17 when PyTorch asks for it",
                "Recognise the hydra launcher",
                "Include what is used",
            ),
        ),
        (
            "pytorch",
            "77aa01",
            (
                "Ask the MPI whether it takes memory of the GPU",
                "Make a group among its members only",
                "Reduce and scatter over MPI",
            ),
        ),
    ):
        for number, title in enumerate(titles):
            name = "%04d-%s.patch" % (number + 1, title.lower().replace(" ", "-")[:30])
            write(records / "series" / component / digest / name, title + "\n\nWhy.\n---\n")


def measured(backend, operation, peak, latency, ranks, nodes, largest, generator, **more):
    """Rows as a benchmark gives them: a start-up time and a peak."""
    rows = []
    factor = {
        "all_reduce": 2 * (ranks - 1) / ranks,
        "all_gather": (ranks - 1) / ranks,
        "reduce_scatter": (ranks - 1) / ranks,
    }
    for power in range(15, largest + 1):
        size = 2**power
        mean = latency + size * factor.get(operation, 1) / (peak * 1e3) * (1 + 2 ** (19 - power))
        mean *= 1 + 0.03 * (generator.random() - 0.5)
        spread = 1 + 0.9 * math.exp((15 - power) / 4) + 0.03
        algorithm = size / mean / 1e3
        rows.append(
            {
                "bytes": size,
                "trials": 20,
                "algbw": round(algorithm, 3),
                "busbw": round(algorithm * factor.get(operation, 1), 3),
                "microseconds": {
                    "min": mean / (1 + (spread - 1) / 3),
                    "median": mean * 0.99,
                    "mean": mean,
                    "max": mean * spread,
                },
                "spread": round(spread - 1, 3),
                "verified": True,
            }
        )
    return dict(
        {
            "backend": backend,
            "provider": "torch",
            "operation": operation,
            "ranks": ranks,
            "nodes": nodes,
            "device": "cuda" if backend == "nccl" else "cpu",
            "dtype": "float32",
            "rows": rows,
            "left_out": "",
        },
        **more,
    )


def acceptance(nodes=2, per_node=4, **changed):
    """A passed acceptance on nodes with GPUs."""
    generator = random.Random(7)
    ranks = nodes * per_node
    hosts = ["x3001c0s%db%dn0" % (1 + number // 2 * 6, number % 2) for number in range(nodes)]
    rows = [
        {
            "rank": rank,
            "local_rank": rank % per_node,
            "size": ranks,
            "host": hosts[rank // per_node],
            "pid": 4711 + rank,
            "device": "gpu %d 0000:%02x:00 GPU-%08x"
            % (rank % per_node, (7, 0x46, 0x85, 0xC7)[rank % 4], 0x2704EC93 + rank),
            "device_facts": {
                "kind": "gpu",
                "index": rank % per_node,
                "cpus": "%d-%d" % (24 - 8 * (rank % 4), 31 - 8 * (rank % 4)),
                "numa": str(3 - rank % 4),
                "gpu_numa": str(3 - rank % 4 if rank != 5 else 0),
            },
        }
        for rank in range(ranks)
    ]
    operations = (
        ("all_reduce", 84.0),
        ("all_gather", 82.5),
        ("reduce_scatter", 83.1),
        ("broadcast", 71.0),
        ("send_recv", 22.4),
    )
    text = (
        "Sizes from 8 GiB on are left out: the GPU with the least free memory, rank 3 on %s, has 38.6 GiB." % hosts[0]
    )
    record = {
        "schema": 2,
        "passed": True,
        "subject": DIGEST,
        "user": "tester",
        "ordinary_user": True,
        "through": "lmod",
        "module": "torchstack/2026-11-20",
        "launcher": ["mpiexec", "-n", str(ranks), "--ppn", str(per_node), "--cpu-bind", "depth"],
        "started": stamp(80400),
        "seconds": 164.2,
        "ranks": rows,
        "checks": [
            {"name": "imports", "status": "passed", "seconds": 11.8, "note": ""},
            {"name": "devices", "status": "passed", "seconds": 0.2, "note": ""},
            {
                "name": "horovod",
                "status": "passed",
                "seconds": 3.9,
                "note": "48 reductions of five types; Horovod has no point-to-point",
            },
            {
                "name": "torch_gloo",
                "status": "passed",
                "seconds": 21.4,
                "note": "gloo of this torch has no reduce_scatter on the CPU",
            },
            {
                "name": "torch_nccl",
                "status": "passed",
                "seconds": 88.0,
                "note": "all-reduce, broadcast, all-gather, reduce-scatter, send and receive",
            },
            {"name": "torch_mpi", "status": "passed", "seconds": 30.1, "note": ""},
            {"name": "cuda_graph_replay", "status": "passed", "seconds": 1.2, "note": ""},
        ],
        "failures": [],
        "remarks": ["rank 5 on %s has its cores on NUMA node 2 and its GPU on NUMA node 0." % hosts[-1]],
        "not_checked": ["Only %d nodes took part: what larger jobs meet is not known." % nodes],
        "transports": [
            {
                "rank": rank,
                "host": rows[rank]["host"],
                "network": "AWS Libfabric",
                "plugin": "aws-ofi-nccl 1.19.1 (cxi)",
                "version": "2.29.7+cuda13.0",
                "channels": {"NET/AWS Libfabric/0/GDRDMA": 8, "P2P/CUMEM": 24},
            }
            for rank in range(ranks)
        ],
        "import_seconds": {
            "torch": {"median": 6.42, "slowest": {"rank": 6, "host": hosts[-1], "seconds": 9.87}},
            "horovod.torch": {"median": 0.61, "slowest": {"rank": 2, "host": hosts[0], "seconds": 0.93}},
        },
        "measurements": [
            *(
                measured("nccl", name, peak, 34.0, ranks, nodes, 32, generator, left_out=text)
                for name, peak in operations
            ),
            *(measured("gloo", name, peak / 52, 410.0, ranks, nodes, 28, generator) for name, peak in operations[:2]),
            *(
                measured("mpi", name, peak / 9, 62.0, ranks, nodes, 28, generator, provider="mpi4py")
                for name, peak in operations[:4]
            ),
        ],
        "latency": [
            {
                "backend": backend,
                "provider": "torch",
                "bytes": 8,
                "hosts": [hosts[0], hosts[-1]],
                "ranks": [0, ranks - 1],
                "microseconds": {"min": median * 0.93, "median": median, "p99": median * 1.8, "max": median * 6.1},
                "iterations": 1000,
            }
            for backend, median in (("nccl", 21.4), ("mpi", 2.31), ("gloo", 48.9))
        ],
        "question": {
            "import_ceiling": 30.0,
            "measure": {
                "floors": {
                    "bandwidth": [
                        {
                            "backend": "nccl",
                            "operation": "all_reduce",
                            "bytes": 2**30,
                            "busbw": 72.0,
                            "source": "the site's documentation, 2 nodes",
                        },
                        {
                            "backend": "nccl",
                            "operation": "send_recv",
                            "bytes": 2**30,
                            "busbw": 20.0,
                            "source": "90 % of the adapter",
                        },
                    ],
                    "latency": [
                        {"backend": "mpi", "bytes": 8, "microseconds": 4.0, "source": "twice the vendor's figure"}
                    ],
                }
            },
        },
    }
    record.update(changed)
    return record


def sweep(count=64, slow=(41,), link=(7, 52), done=1.0):
    """A sweep over nodes of which some are slow, and one link is."""
    generator = random.Random(count)
    hosts = ["nid%06d" % (1000 + 4 * number) for number in range(count)]
    pairs = [(one, other) for one in range(count) for other in range(one + 1, count)]
    rows = []
    for one, other in pairs[: int(done * len(pairs))]:
        speed = (
            22.8
            * generator.gauss(1, 0.02)
            * (0.62 if one in slow or other in slow else 1)
            * (0.5 if (one, other) == link else 1)
        )
        rows.append([one, other, round(speed, 3)])
    return {
        "passed": not (slow or link),
        "hosts": hosts,
        "rounds": count - 1,
        "rounds_done": int(done * (count - 1)),
        "bytes": 2**28,
        "subject": DIGEST,
        "started": stamp(80600),
        "complete": done == 1,
        "backend": "nccl",
        "measured": rows,
        "repeated": [],
        "slow_nodes": [
            {"host": hosts[node], "ratio": 0.62, "evidence": "63 pairs at 14.1 GB/s, 4 more with good partners at 14.2"}
            for node in slow
        ],
        "slow_links": (
            [
                {
                    "hosts": [hosts[one] for one in link],
                    "ratio": 0.5,
                    "evidence": "11.4 GB/s twice, both nodes even otherwise",
                }
            ]
            if link
            else []
        ),
        "undecided": [],
        "not_checked": ["Pairs only: a switch that is slow when all nodes talk at once does not show."],
    }


def health(count=64):
    """What was found of nodes of four GPUs."""
    generator = random.Random(3)
    gpu = {"name": "NVIDIA A100-SXM4-40GB", "vbios": "92.00.19.00.13", "nvlinks": {"links": 12, "up": 12}}
    finding = {
        "severity": "warning",
        "check": "ecc",
        "subject": "gpu 2 0000:85:00",
        "message": "12 corrected errors of the memory since the last reset",
        "value": "12",
        "threshold": "10",
        "source": "the vendor's guide, corrected errors",
        "remedy": "Watch it; report it when it grows.",
    }
    remark = dict(
        finding,
        severity="remark",
        check="persistence",
        subject="",
        message="Persistence mode is off",
        value="off",
        threshold="",
        source="",
        remedy="",
    )
    failure = dict(
        finding,
        severity="failure",
        check="nvlink",
        subject="gpu 0",
        message="Link 7 is down: 11 of 12 links work",
        value="11",
        threshold="12",
        remedy="Drain the node and report it.",
    )
    nodes = [
        {
            "host": "nid%06d" % (1000 + 4 * number),
            "facts": {
                "machine": {"kernel": "6.4.0-150600.23.47-default"},
                "nvidia": {"driver": "580.159.04"},
                "gpus": [gpu] * 3 + [dict(gpu, nvlinks={"links": 12, "up": 11 if number == 41 else 12})],
                "storage": [{
                    "directory": "/lus/eagle/torchstack", "kind": "lustre", "files": 200,
                    "operations": {
                        name: {"median": median * generator.uniform(0.9, 1.3), "p99": 9.0, "max": 31.0}
                        for name, median in (("create", 1.4), ("stat", 0.21), ("rename", 1.1), ("unlink", 0.9))
                    },
                }],
            },
            "not_seen": ["The kernel's log needs root."],
            "findings": [remark] + [finding] * (number in (3, 9)) + [failure] * (number == 41),
        }
        for number in range(count)
    ]
    return {
        "passed": False,
        "nodes": nodes,
        "findings": [],
        "subject": DIGEST,
        "started": stamp(80200),
        "not_checked": ["AMD: nothing here has such a GPU."],
        "seconds": 14.2,
    }


def afterwards(root, accepted, **records):
    place = root / ".torchstack" / RELEASE
    manifest = {"digest": "2c26b46b68ffc68f99b453c1d30413413422d706", "files": 128730, "bytes": 21_474_836_480}
    write(place / "frozen.json", {"digest": DIGEST, "frozen_at": stamp(75800), "manifest": manifest})
    write(
        place / "modulefile.json",
        {
            "name": "torchstack",
            "version": RELEASE,
            "passed": True,
            "checked": [
                {"system": system, "version": version, "shell": shell, "state": "passed"}
                for system, version in (("Lmod", "8.7.34"),)
                for shell in ("bash", "zsh", "tcsh")
            ],
            "not_checked": [{"why": "Environment Modules was not found on this machine."}],
        },
    )
    write(place / "acceptance.json", accepted)
    earlier = dict(
        accepted,
        passed=False,
        started=stamp(77000),
        failures=[
            {"check": "transport", "message": "rank 3 uses Socket, where AWS Libfabric was asked for", "remedy": ""}
        ],
    )
    write(place / "acceptance.jsonl", "".join(json.dumps(record) + "\n" for record in (earlier, accepted)))
    for name, record in records.items():
        write(place / (name + ".json"), record)


def publish(root):
    lines = [
        {"time": stamp(80700), "action": action, "syntax": syntax, "version": RELEASE, "without_acceptance": ""}
        for action in ("show", "default")
        for syntax in ("tcl", "lmod")
    ]
    write(root / ".torchstack" / RELEASE / "publish.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    for syntax, end, first, default, line in (
        ("tcl", "", "#%Module1.0", ".version", 'set ModulesVersion "%s"'),
        ("lmod", ".lua", "--", ".modulerc.lua", 'module_version("torchstack/%s", "default")'),
    ):
        place = root / "modulefiles" / syntax / "torchstack"
        write(place / (RELEASE + end), first + "\n")
        write(place / default, "%s made by the Ansible collection hpcml.torchstack\n%s\n" % (first, line % RELEASE))


def finished(root, nodes=64):
    """A release that was accepted and published, on nodes some of which are not well."""
    steps(root / RELEASE)
    build(root / RELEASE)
    afterwards(
        root,
        acceptance(),
        sweep=sweep(nodes, slow=(41,) if nodes > 41 else (), link=(7, 52) if nodes > 52 else ()),
        node_health=health(nodes),
    )
    publish(root)
    return resolved()


def failed(root):
    """A rollout whose acceptance failed, with texts that mean harm."""
    steps(root / RELEASE)
    build(root / RELEASE)
    accepted = acceptance(
        passed=False,
        measurements=[],
        latency=[],
        transports=[],
        user=HOSTILE,
        failures=[
            {
                "check": "transport",
                "message": "rank 3 on x3001c0s1b0n0 uses Socket, where *libfabric* was asked for (and 7 more)",
                "remedy": "Look whether the plugin is found: NCCL_DEBUG=INFO in the log.",
            },
            {
                "check": "devices",
                "message": "ranks 1 and 2 use the same GPU 0000:46:00 %s" % HOSTILE,
                "remedy": "Bind the ranks, so that each has a GPU of its own (acceptance_launcher).",
            },
        ],
    )
    accepted["checks"][4] = {"name": "torch_nccl", "status": "failed", "seconds": 4.2, "note": HOSTILE}
    afterwards(root, accepted)
    place = root / ".torchstack" / RELEASE
    problem = {"problem": "It hangs " + HOSTILE, "workaround": "Wait", "url": "https://example.org/issues/" + "1" * 60}
    write(place / "notice.json", {"known_problems": [problem]})
    write(place / "retired.json", {"state": "hidden", "since": stamp(90000), "reason": HOSTILE, "successor": ""})
    write(place / "thawed.json", {"at": stamp(91000), "who": "operator", "why": HOSTILE})
    return resolved("PyTorch 2.13.0 %s" % HOSTILE)


def unfinished(root):
    """A rollout that stopped in a step."""
    steps(root / RELEASE, fails="horovod")
    (root / ".torchstack" / RELEASE).mkdir(parents=True)
    return resolved()


def write_all(root):
    """The finished release with its resolved release file, for which JSON is YAML enough, and an older page."""
    write(root / ".torchstack" / RELEASE / "reports" / "acceptance-20251120T120000Z.html", "")
    write(root / RELEASE / ".torchstack" / "release.yml", json.dumps(finished(root)))
