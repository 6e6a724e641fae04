// Copyright (c) the hpcml.torchstack contributors
// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>

extern "C" int torch_nccl_version() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}
