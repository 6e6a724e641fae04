#%Module1.0
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Lays: python /work/y07/shared/cirrus-software/miniconda3/24.1.2-0-py312-gpu
module-whatis "Miniconda's Python, for the GPU nodes"
# Its mpi4py is linked with that MPI, and its variables are of that toolkit.
module load nvidia/nvhpc-nompi/24.5 openmpi/4.1.6-cuda-12.4
prepend-path PATH {place}/bin
