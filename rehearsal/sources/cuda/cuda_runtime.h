/* Copyright (c) the hpcml.torchstack contributors
 * SPDX-License-Identifier: Apache-2.0
 * What programs include of a stand-in for a CUDA toolkit.
 */
#ifndef CUDA_RUNTIME_H
#define CUDA_RUNTIME_H
#include <cuda_runtime_api.h>
#define __global__
#define __device__
#define __host__
#endif
