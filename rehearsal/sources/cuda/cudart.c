/* Copyright (c) the hpcml.torchstack contributors
 * SPDX-License-Identifier: Apache-2.0
 * The run-time library of a stand-in for a CUDA toolkit: no GPU is there.
 */
#include <cuda_runtime_api.h>

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 0;
    return cudaErrorNoDevice;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess ? "no error" : "no CUDA-capable device is detected";
}
