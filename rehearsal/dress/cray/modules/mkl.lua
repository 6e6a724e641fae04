-- Copyright (c) the hpcml.torchstack contributors
-- SPDX-License-Identifier: Apache-2.0
-- Lays: mkl /opt/ncar/mkl/{version}
whatis("Name: mkl")
local prefix = "{place}"
setenv("MKLROOT", prefix)
prepend_path("CPATH", pathJoin(prefix, "include"))
prepend_path("LIBRARY_PATH", pathJoin(prefix, "lib"))
