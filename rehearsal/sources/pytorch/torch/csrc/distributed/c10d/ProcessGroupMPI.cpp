// Copyright (c) the hpcml.torchstack contributors
// SPDX-License-Identifier: Apache-2.0
#include <mpi.h>
#if defined(OPEN_MPI) && OPEN_MPI
#include <mpi-ext.h>
#endif

#include <cstdlib>
#include <dlfcn.h>

namespace c10d {

// Whether buffers of a GPU may be handed to the MPI.
static bool cudaAwareMpiCheck() {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
  return MPIX_Query_cuda_support() == 1;
#else
  // Only Open MPI has the question above.
  return false;
#endif
}

} // namespace c10d

extern "C" int torch_mpi_takes_gpu_buffers() {
  return c10d::cudaAwareMpiCheck() ? 1 : 0;
}

extern "C" const char* torch_mpi_library() {
  static char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  return MPI_Get_library_version(text, &length) == MPI_SUCCESS ? text : "";
}
