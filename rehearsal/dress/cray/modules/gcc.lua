-- Copyright (c) the hpcml.torchstack contributors
-- SPDX-License-Identifier: Apache-2.0
-- Lays: gcc /opt/cray/pe/gcc/{version}
whatis("Name: gcc")
family("compiler")
local prefix = "{place}"
setenv("GCC_PATH", prefix)
prepend_path("PATH", prefix .. "/bin")
