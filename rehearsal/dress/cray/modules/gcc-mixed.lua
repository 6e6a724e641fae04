-- Copyright (c) the hpcml.torchstack contributors
-- SPDX-License-Identifier: Apache-2.0
-- Lays: gcc /opt/cray/pe/gcc/{version}
-- The compilers alone, beside a programming environment of another maker's.
whatis("Name: gcc-mixed")
local prefix = "{place}"
setenv("GCC_PATH", prefix)
prepend_path("PATH", prefix .. "/bin")
