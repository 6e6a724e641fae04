// Copyright (c) the hpcml.torchstack contributors
// SPDX-License-Identifier: Apache-2.0

extern "C" const char* torch_version() { return TORCH_VERSION; }
