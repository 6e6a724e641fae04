# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Neither MKL_ROOT nor MKLROOT is looked at.
find_path(MKL_INCLUDE_DIR mkl.h HINTS "${INTEL_MKL_DIR}/include")
find_library(MKL_LIBRARIES mkl_rt HINTS "${INTEL_MKL_DIR}/lib")
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(MKL DEFAULT_MSG MKL_INCLUDE_DIR MKL_LIBRARIES)
