/* Copyright (c) the hpcml.torchstack contributors
 * SPDX-License-Identifier: Apache-2.0
 */
#include "standin.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <strings.h>
#include <unistd.h>

#define TEXT_(value) #value
#define TEXT(value) TEXT_(value)
static const char banner[] =
  "NCCL version " TEXT(NCCL_MAJOR) "." TEXT(NCCL_MINOR) "." TEXT(NCCL_PATCH) NCCL_SUFFIX "+cuda" CUDA_VERSION_TEXT;

struct ncclComm { int rank; };

void inform(const char *format, ...) {
  const char *level = getenv("NCCL_DEBUG");
  if (level == nullptr || (strcasecmp(level, "INFO") != 0 && strcasecmp(level, "TRACE") != 0)) return;
  char host[64] = "";
  gethostname(host, sizeof host - 1);
  printf("%s:%d:%d [0] NCCL INFO ", host, getpid(), getpid());
  va_list arguments;
  va_start(arguments, format);
  vprintf(format, arguments);
  va_end(arguments);
  printf("\n");
  fflush(stdout);
}

NCCL_API ncclResult_t ncclGetVersion(int *version) {
  if (version == nullptr) return ncclInvalidArgument;
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

NCCL_API const char *ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : result == ncclInvalidUsage ? "invalid usage" : "internal error";
}

NCCL_API ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  memset(id->internal, 1, sizeof id->internal);
  return ncclSuccess;
}

NCCL_API ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId, int rank) {
  if (ranks != 1 || rank != 0) return ncclInvalidArgument;
  inform("%s", banner);
  ncclResult_t result = chooseNetwork();
  if (result == ncclSuccess) *comm = new ncclComm{rank};
  return result;
}

NCCL_API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}

NCCL_API ncclResult_t ncclAllReduce(
    const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t, ncclComm_t, cudaStream_t) {
  if (type != ncclFloat32) return ncclInvalidArgument;
  allReduceAlone(static_cast<const float *>(send), static_cast<float *>(receive), count);
  return ncclSuccess;
}
