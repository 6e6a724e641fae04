-- Copyright (c) the hpcml.torchstack contributors
-- SPDX-License-Identifier: Apache-2.0
whatis("Name: craype-accel-nvidia80")
if mode() == "load" and not (isloaded("cudatoolkit") or isloaded("nvhpc") or isloaded("PrgEnv-nvhpc")) then
   LmodError("craype-accel-nvidia80 needs cudatoolkit, nvhpc or PrgEnv-nvhpc: load one of them first.")
end
setenv("CRAY_ACCEL_TARGET", "nvidia80")
setenv("CRAY_ACCEL_VENDOR", "nvidia")
setenv("CRAYPE_LINK_TYPE", "dynamic")
setenv("CRAY_TCMALLOC_MEMFS_FORCE", "1")
