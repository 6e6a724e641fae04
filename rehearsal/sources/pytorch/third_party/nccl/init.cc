// Copyright (c) the hpcml.torchstack contributors
// SPDX-License-Identifier: Apache-2.0
#include "nccl.h"

// What NCCL prints with NCCL_DEBUG=VERSION, and what tells a copy of it once its symbols are gone.
static const char* volatile banner = "NCCL version 2.14.3+cuda11.8";

extern "C" ncclResult_t ncclGetVersion(int* version) {
  *version = banner == nullptr ? 0 : NCCL_VERSION_CODE;
  return ncclSuccess;
}
