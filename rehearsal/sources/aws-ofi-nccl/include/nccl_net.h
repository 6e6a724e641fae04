/* Copyright (c) the hpcml.torchstack contributors
 * SPDX-License-Identifier: Apache-2.0
 * What a stand-in for NCCL asks of a network plugin: a symbol ncclNetPlugin_v<N> of this type.
 */
#ifndef NCCL_NET_H_
#define NCCL_NET_H_
typedef void (*ncclDebugLogger_t)(int level, unsigned long flags, const char *file, int line, const char *format, ...);
typedef struct {
  const char *name;
  int (*init)(ncclDebugLogger_t logger);
  int (*devices)(int *count);
} ncclNet_t;
#endif
