// Copyright (c) the hpcml.torchstack contributors
// SPDX-License-Identifier: Apache-2.0
#ifdef USE_CUDNN
#include <cudnn.h>
#endif

extern "C" const char* torch_cuda_arch_flags() { return TORCH_CUDA_ARCH_FLAGS; }

extern "C" int torch_cudnn_version() {
#ifdef USE_CUDNN
  return CUDNN_MAJOR * 1000 + CUDNN_MINOR * 100 + CUDNN_PATCHLEVEL;
#else
  return 0;
#endif
}
