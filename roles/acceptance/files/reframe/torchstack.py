# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""ReFrame tests of one release of a PyTorch stack, which release.json beside this file describes.

A rollout writes both, and the programs beside them. What differs between runs is said to ReFrame: the partition by
``--system``, the number of nodes by ``-S nodes=4``, how far a figure may miss its floor by ``-S tolerance=0.05``.
"""

import json
import os
import pathlib
import shlex
import subprocess
import sys

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.backends import getlauncher
from reframe.core.builtins import parameter, run_after, run_before, sanity_function, variable
from reframe.core.exceptions import SanityError
from reframe.core.meta import make_test
from reframe.core.runtime import runtime

HERE = pathlib.Path(__file__).resolve().parent
RELEASE = json.loads((HERE / "release.json").read_text(encoding="utf-8"))
OUTCOME, QUESTION = "outcome.json", "question.json"
BANDWIDTH, LATENCY = "bandwidth", "latency"
UNITS = {BANDWIDTH: "GB/s", LATENCY: "us"}
CANNOT_BEGIN = "collectives: "


class Ranks(rfm.RunOnlyRegressionTest):
    """Some ranks with the release's module, started as the site starts them."""

    sourcesdir = None
    time_limit = "%ds" % RELEASE["timeout"]
    nodes = variable(int, value=RELEASE["nodes"])
    per_node = variable(int, value=RELEASE["per_node"])
    # By the launcher of the partition in ReFrame's configuration, or by the words of the release's own acceptance.
    started_by = variable(str, value="partition")
    # How far a figure may miss its floor or its ceiling, as a fraction.
    tolerance = variable(float, value=float(RELEASE["tolerance"]))

    @run_after("init")
    def ask_for_ranks(self):
        self.num_tasks, self.num_tasks_per_node = self.nodes * self.per_node, self.per_node
        if RELEASE["cores"]:
            self.num_cpus_per_task = max(1, RELEASE["cores"] // self.per_node)
        if RELEASE["gpus"]:
            self.extra_resources = {"gpu": {"num_gpus_per_node": RELEASE["gpus"]}}
        self.executable = RELEASE["python"]

    @run_after("init")
    def load_the_release(self):
        system = runtime().modules_system.name
        if not RELEASE["module"] or system == "nomod":
            self.env_vars = {**RELEASE["environment"], **self.env_vars}
            return
        place = RELEASE["modulepaths"].get("lmod" if system == "lmod" else "tcl")
        self.modules = [{"name": RELEASE["module"], **({"path": place} if place else {})}]

    @run_before("run")
    def start_them_as_the_site_does(self):
        words = self.filled(RELEASE["launcher"])
        partition = self.current_partition.launcher_type.registered_name
        self.executable_opts = self.words()
        # ReFrame's launcher "local" starts one process.
        if self.started_by == "release" or partition == "local":
            self.job.launcher = getlauncher("local")()
            self.executable_opts = [*words[1:], self.executable, *self.executable_opts]
            self.executable = words[0]
        elif os.path.basename(words[0]) == partition:
            self.job.launcher.options = self.filled(RELEASE["launcher_options"])

    def filled(self, words):
        """Words of the site's launcher with the numbers of this test, as the shell reads them."""
        for key, count in (("ranks", self.num_tasks), ("nodes", self.nodes), ("per_node", self.per_node)):
            words = [word.replace("{%s}" % key, str(count)) for word in words]
        return [shlex.quote(word) for word in words]

    def words(self):
        """What the interpreter of each rank is told to run, as the shell reads it."""
        raise NotImplementedError

    def status(self):
        """The exit status of the job, which not every batch system tells."""
        return str(self.job.exitcode or 0)


class Acceptance(Ranks):
    """What the release was accepted by: imports, devices, and the values of every backend."""

    descr = "Imports, devices and values of release %s" % RELEASE["release"]

    def words(self):
        seconds = RELEASE["timeout"] - min(60, RELEASE["timeout"] // 4)
        question = dict(RELEASE["question"], ranks=self.num_tasks, nodes=self.nodes, patience=10)
        pathlib.Path(self.stagedir, QUESTION).write_text(json.dumps(question), encoding="utf-8")
        return [shlex.quote(str(HERE / "ranks.pyz")), QUESTION, '"$(($(date +%%s) + %d))"' % seconds]

    @sanity_function
    def judge(self):
        # As a program of its own: another release's may be of another version.
        words = [sys.executable, "-I", str(HERE / "judge.pyz"), QUESTION, sn.evaluate(self.stdout), self.status()]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        done = subprocess.run(words, check=False, **pipes)
        if done.returncode:
            # Such as a ReFrame of a Python that is older than 3.8.
            said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["exit status %d" % done.returncode]
            raise SanityError("judge.pyz cannot judge with %s: %s" % (sys.executable, said[-1]))
        failures = json.loads(done.stdout.decode("utf-8"))
        if failures:
            raise SanityError("; ".join(failures))
        return True


class Measured(Ranks):
    """What collectives.pyz measures of one backend."""

    backend = parameter(sorted(RELEASE["backends"]))
    # Whatever else ran on the nodes would be measured too.
    exclusive_access = True
    kind = variable(str, value="")

    def words(self):
        words = [str(HERE / "collectives.pyz"), "--backend", self.backend, "--json", OUTCOME]
        # Ranks that do not find each other say so before the job's time is over.
        words.append("--patience=%d" % min(300, RELEASE["timeout"] // 2))
        return [shlex.quote(word) for word in [*words, *options(RELEASE["measure"], self.kind)]]

    @sanity_function
    def judge(self):
        reasons = [line[len(CANNOT_BEGIN):] for line in lines(self.stderr) if line.startswith(CANNOT_BEGIN)]
        if reasons:
            self.skip_if(not RELEASE["backends"][self.backend], reasons[0])
            raise SanityError("%s cannot be measured: %s" % (self.backend, reasons[0]))
        if "values verified: yes" not in lines(self.stdout) or self.status() != "0":
            raise SanityError("values are wrong, or were not compared: see %s" % os.path.join(self.stagedir, OUTCOME))
        missing = sorted(limit["name"] for limit in self.limits() if limit["name"] not in self.figures())
        if missing:
            raise SanityError("not measured, and there is a limit for it: %s" % ", ".join(missing))
        return True

    @run_before("performance")
    def log_the_figures(self):
        if self.is_dry_run():
            return
        unit = UNITS[self.kind]
        self.perf_variables = {
            name: sn.make_performance_function(sn.defer(value), unit) for name, value in self.figures().items()
        }
        self.reference = {"*": {limit["name"]: (limit["value"], *self.around(), unit) for limit in self.limits()}}

    def around(self):
        """How far below and above its limit a figure may lie."""
        return (-self.tolerance, None) if self.kind == BANDWIDTH else (None, self.tolerance)

    def limits(self):
        """The floors or ceilings that are of runs like this one."""
        shape = {"ranks": self.num_tasks, "nodes": self.nodes}
        return [
            limit for limit in RELEASE["limits"]
            if limit["kind"] == self.kind and limit["backend"] == self.backend
            and all(limit.get(key, count) == count for key, count in shape.items())
        ]

    def figures(self):
        """What was measured, by the names that ReFrame logs it by: what has a limit, or a size to be logged."""
        found = json.loads(pathlib.Path(self.stagedir, OUTCOME).read_text(encoding="utf-8"))
        if self.kind == LATENCY:
            return {named(LATENCY, row["bytes"]): row["microseconds"]["median"] for row in found["latency"]}
        rows = [(of["operation"], row) for of in found["measurements"] for row in of["rows"]]
        wanted = {limit["name"] for limit in self.limits()}
        wanted.update(named(operation, size) for operation, _row in rows for size in RELEASE["sizes"])
        figures = {named(operation, row["bytes"]): row["busbw"] for operation, row in rows}
        return {name: figures[name] for name in figures if name in wanted}


class Collectives(Measured):
    """The bus bandwidth of the collectives over one backend; those with a floor have to reach it."""

    descr = "Bus bandwidth of release %s" % RELEASE["release"]
    kind = BANDWIDTH


class Latency(Measured):
    """How long a message takes between the two ranks that are farthest apart, over one backend."""

    descr = "Latency of release %s" % RELEASE["release"]
    kind = LATENCY


def lines(stream):
    """What a job has printed."""
    return pathlib.Path(sn.evaluate(stream)).read_text(encoding="utf-8", errors="replace").splitlines()


def options(measure, kind):
    """The options of collectives.pyz for what the release measures."""
    if kind == LATENCY:
        sizes = ",".join(map(str, measure["latency"]["bytes"]))
        return ["--operations=", "--latency=" + sizes, "--iterations=%d" % measure["latency"]["iterations"]]
    numbers = ["--%s=%s" % (name, measure[name]) for name in ("smallest", "largest", "warmups", "trials", "seconds")]
    doubling = {measure["smallest"] << power for power in range(64)}
    between = [str(size) for size in measure["also"] if size > measure["largest"] or size not in doubling]
    also = ["--also=" + ",".join(between)] if between else []
    return ["--operations=" + ",".join(measure["operations"]), *numbers, *also]


def named(operation, count):
    """What ReFrame logs a value by, such as all_reduce_1GiB."""
    power = 0
    while power < 4 and count and count % 1024 == 0:
        count, power = count // 1024, power + 1
    return "%s_%d%s" % (operation, count, ("bytes", "KiB", "MiB", "GiB", "TiB")[power])


EVERYWHERE = {"valid_systems": ["*"], "valid_prog_environs": ["*"], "tags": {"torchstack", RELEASE["release"]}}
TESTS = [Acceptance]
if RELEASE["backends"]:
    TESTS += [Collectives, Latency] if RELEASE["measure"]["latency"] else [Collectives]
# The names of tests are those of one release, so that ReFrame can be given those of several.
for test in TESTS:
    name = "Torchstack%s_%s" % (test.__name__, RELEASE["name"])
    rfm.simple_test(make_test(name, (test,), EVERYWHERE, module=__name__))
