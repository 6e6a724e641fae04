-- Copyright (c) the hpcml.torchstack contributors
-- SPDX-License-Identifier: Apache-2.0
-- Lays: cuda /opt/nvidia/cuda/{version}
whatis("Name: cudatoolkit")
local prefix = "{place}"
setenv("CUDA_HOME", prefix)
setenv("CUDA_TOOLKIT_BASE", prefix)
prepend_path("PATH", prefix .. "/bin")
prepend_path("LD_LIBRARY_PATH", pathJoin(prefix, "lib64"))
