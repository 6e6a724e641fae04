#%Module1.0
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Lays: directory /opt/cirrus/nvhpc/Linux_x86_64/{version}
module-whatis "NVIDIA's compilers and libraries, without an MPI"
setenv NVHPC_ROOT {place}
# A second NCCL on the search path of every user.
prepend-path LD_LIBRARY_PATH {place}/comm_libs/nccl/lib
