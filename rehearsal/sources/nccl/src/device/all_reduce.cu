/* Copyright (c) the hpcml.torchstack contributors
 * SPDX-License-Identifier: Apache-2.0
 * The only part that nvcc compiles.
 */
#include <cstddef>

__attribute__((visibility("hidden"))) void allReduceAlone(const float *send, float *receive, size_t count) {
  for (size_t place = 0; place < count; place++) receive[place] = send[place];
}
