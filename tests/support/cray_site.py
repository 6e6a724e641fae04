# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""A machine that passes for a Cray: directories below /opt and a host name, for one process and its children."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

TOP = pathlib.Path(__file__).parents[2]
DRESS = TOP / "rehearsal" / "dress" / "parts" / "cray"
STAND_INS = TOP / "rehearsal" / "sources"
NAMESPACE = ("unshare", "--user", "--map-current-user", "--keep-caps", "--mount", "--uts")

# What is below /opt stays seen; the rest is the directory of the test.
_ENTER = """
set -eu
place=$1 host=$2
shift 2
for old in /opt/*; do
  if [ -d "$old" ]; then mkdir -p "$place/${old##*/}" && mount --rbind "$old" "$place/${old##*/}"; fi
done
mount --rbind "$place" /opt
hostname "$host"
exec "$@"
"""

MPI_HEADER = """#define MPICH_VERSION "3.4a2"
#define CRAY_MPICH_VERSION 8.1.29
int MPI_Init(int *, char ***);
"""
MPI_SOURCE = "int MPI_Init(int *count, char ***words) { return count == 0 && words == 0; }\n"
SRUN = "#!/bin/sh\necho slurm 23.02.7\n"
MPI = "/opt/cray/pe/mpich/8.1.29/ofi/gnu/12.3"
CRAYPE = "/opt/cray/pe/craype/2.7.31/bin"
CUDA = "/opt/nvidia/cuda/12.4"
CUDNN = "/opt/nvidia/cudnn/9.1.0"
LIBFABRIC = "/opt/cray/libfabric/1.22.0"
MODULES = {
    "craype-x86-milan": "",
    "craype-network-ofi": "",
    "libfabric/1.22.0": "",
    "PrgEnv-gnu/8.5.0": 'setenv("CRAY_MPICH_DIR", "%s")\nprepend_path("PATH", "%s")\n' % (MPI, CRAYPE),
    "cuda/12.4": f'setenv("CUDA_HOME", "{CUDA}")\nprepend_path("PATH", "{CUDA}/bin")\n',
    "cudnn/9.1.0": 'setenv("CUDNN_ROOT", "%s")\n' % CUDNN,
}


def missing_means():
    """What this machine lacks to play a Cray, as a sentence; empty where nothing is missing."""
    for program in ("unshare", "g++", "make", "mount", "hostname"):
        if shutil.which(program) is None:
            return "%s is not installed" % program
    if not pathlib.Path("/usr/share/lmod/lmod/init/bash").is_file():
        return "Lmod is not installed"
    probe = [*NAMESPACE, "sh", "-c", "mount --bind /tmp /opt && hostname a"]
    if subprocess.run(probe, stderr=subprocess.DEVNULL, check=False).returncode:
        return "this kernel gives no name spaces to ordinary accounts"
    return ""


class Place:
    """The machine.

    Args:
        directory: for what lies below its /opt.
        host: its name.
    """

    def __init__(self, directory, host):
        self.directory = directory
        self.host = host
        directory.mkdir()

    def run(self, *command, **options):
        """Run a command on the machine; the finished process."""
        words = [*NAMESPACE, "sh", "-c", _ENTER, "sh", str(self.directory), self.host, *command]
        return subprocess.run(
            words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False,
            **options,
        )

    def furnish(self):
        """Lay the programming environment: wrappers, an MPI, stand-ins of CUDA and libfabric, and their modules."""
        (self.directory / "software").mkdir()
        self._lay_mpi()
        for name, text in MODULES.items():
            self._write("/opt/cray/modulefiles/%s.lua" % name, text)
        for library in ("lib/libcudnn.so", "include/cudnn.h"):
            self._write(CUDNN + "/" + library, "")
        for name, prefix, version in (("libfabric", LIBFABRIC, "1.22.0"), ("cuda", CUDA, "12.4")):
            source = str(STAND_INS / name)
            self._run_or_stop("make", "--silent", "-C", source, "install", "PREFIX=" + prefix, "VERSION=" + version)

    def _lay_mpi(self):
        self._write(MPI + "/include/mpi.h", MPI_HEADER)
        self._write(MPI + "/lib/mpi.c", MPI_SOURCE)
        for library in ("mpi", "mpi_cray", "mpi_gtl_cuda"):
            self._run_or_stop("gcc", "-shared", "-fPIC", "-o", "%s/lib/lib%s.so" % (MPI, library), MPI + "/lib/mpi.c")
        wrapper = (DRESS / "wrapper").read_text()
        for name, text in (("cc", wrapper), ("CC", wrapper), ("srun", SRUN)):
            self._write("%s/%s" % (CRAYPE, name), text, 0o755)

    def _write(self, path, text, mode=0o644):
        file = self.directory / pathlib.Path(path).relative_to("/opt")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def _run_or_stop(self, *command):
        done = self.run(*command)
        assert done.returncode == 0, done.stdout
