#!/bin/sh
# Headers with a small library, which computes nothing.
sh ./stand-in-library "$PLACE" mkl_rt mkl_get_max_threads mkl.h "#define INTEL_MKL_VERSION ${VERSION%%.*}0000"
