// Copyright (c) the hpcml.torchstack contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once
#define NCCL_MAJOR 2
#define NCCL_MINOR 14
#define NCCL_PATCH 3
#define NCCL_VERSION_CODE 21403
enum ncclResult_t { ncclSuccess = 0 };
extern "C" ncclResult_t ncclGetVersion(int* version);
