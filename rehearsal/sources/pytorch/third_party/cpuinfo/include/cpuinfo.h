// Copyright (c) the hpcml.torchstack contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once
#define CPUINFO_KIND 1
