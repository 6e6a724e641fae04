/* Copyright (c) the hpcml.torchstack contributors
 * SPDX-License-Identifier: Apache-2.0
 */
#include <cstdio>

#include <nccl.h>

int main() {
  float values[] = {1, 2, 3, 4}, sums[4] = {0};
  ncclUniqueId id;
  ncclComm_t comm;
  ncclGetUniqueId(&id);
  ncclResult_t result = ncclCommInitRank(&comm, 1, id, 0);
  if (result == ncclSuccess) result = ncclAllReduce(values, sums, 4, ncclFloat, ncclSum, comm, nullptr);
  int wrong = 0;
  for (int place = 0; place < 4; place++) wrong += values[place] != sums[place];
  if (result != ncclSuccess || wrong != 0) {
    printf("Test NCCL failure: %s, %d wrong values\n", ncclGetErrorString(result), wrong);
    return 1;
  }
  printf("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0\n");
  ncclCommDestroy(comm);
  return 0;
}
