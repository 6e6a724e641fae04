# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
set(NCCL_INCLUDE_DIR "$ENV{NCCL_INCLUDE_DIR}" CACHE PATH "Where NCCL's header is")
set(NCCL_LIB_DIR "$ENV{NCCL_LIB_DIR}" CACHE PATH "Where NCCL's library is")
find_path(NCCL_INCLUDE_DIRS nccl.h HINTS "${NCCL_INCLUDE_DIR}" "$ENV{NCCL_ROOT}/include")
find_library(NCCL_LIBRARIES nccl HINTS "${NCCL_LIB_DIR}" "$ENV{NCCL_ROOT}/lib")

if(NCCL_INCLUDE_DIRS AND NCCL_LIBRARIES)
  file(WRITE "${CMAKE_BINARY_DIR}/nccl_versions.cc" "
#include <nccl.h>
int main() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess && version == NCCL_VERSION_CODE ? 0 : 1;
}
")
  try_run(NCCL_VERSIONS_DIFFER NCCL_VERSIONS_COMPILED "${CMAKE_BINARY_DIR}/nccl_versions" "${CMAKE_BINARY_DIR}/nccl_versions.cc"
    CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${NCCL_INCLUDE_DIRS};${CUDA_TOOLKIT_INCLUDE}" LINK_LIBRARIES "${NCCL_LIBRARIES}")
  if(NOT NCCL_VERSIONS_COMPILED OR NCCL_VERSIONS_DIFFER)
    message(WARNING "NCCL's header and library are of different versions, or do not work.")
    set(NCCL_INCLUDE_DIRS "NCCL_INCLUDE_DIRS-NOTFOUND" CACHE PATH "" FORCE)
    set(NCCL_LIBRARIES "NCCL_LIBRARIES-NOTFOUND" CACHE FILEPATH "" FORCE)
  endif()
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL DEFAULT_MSG NCCL_INCLUDE_DIRS NCCL_LIBRARIES)
