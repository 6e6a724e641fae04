-- Copyright (c) the hpcml.torchstack contributors
-- SPDX-License-Identifier: Apache-2.0
whatis("Name: craype-x86-milan")
setenv("CRAY_CPU_TARGET", "x86-milan")
