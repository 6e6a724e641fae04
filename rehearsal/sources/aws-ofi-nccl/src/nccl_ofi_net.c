/* Copyright (c) the hpcml.torchstack contributors
 * SPDX-License-Identifier: Apache-2.0
 * A network plugin that asks libfabric for its version, and says what the real one says in NCCL's log.
 */
#include <stdlib.h>

#include <cuda_runtime.h>
#include <rdma/fabric.h>

#include "nccl_net.h"

static int start(ncclDebugLogger_t logger) {
  const char *provider = getenv("FI_PROVIDER");
  unsigned version = fi_version();
  int toolkit = 0;
  cudaRuntimeGetVersion(&toolkit);
  logger(3, 0, __FILE__, __LINE__, "NET/OFI Using aws-ofi-nccl " PACKAGE_VERSION);
  logger(3, 0, __FILE__, __LINE__, "NET/OFI Using Libfabric version %u.%u", version >> 16, version & 0xffff);
  logger(3, 0, __FILE__, __LINE__, "NET/OFI Selected Provider is %s (found 1 nics)", provider ? provider : "cxi");
  return toolkit == 0;
}

static int devices(int *count) {
  *count = 1;
  return 0;
}

#define OFFER(version) \
  __attribute__((visibility("default"))) const ncclNet_t ncclNetPlugin_v##version = {"AWS Libfabric", start, devices}
OFFER(2);
OFFER(3);
OFFER(4);
OFFER(5);
OFFER(6);
