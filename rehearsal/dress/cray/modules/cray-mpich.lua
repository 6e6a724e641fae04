-- Copyright (c) the hpcml.torchstack contributors
-- SPDX-License-Identifier: Apache-2.0
-- Lays: mpich /opt/cray/pe/mpich/{version}
-- The launcher of PALS comes with it, which is a module of its own there.
whatis("Name: cray-mpich")
local prefix = pathJoin("{place}", "ofi/gnu/12.2")
setenv("CRAY_MPICH_VERSION", myModuleVersion())
setenv("CRAY_MPICH_DIR", prefix)
setenv("MPICH_DIR", prefix)
prepend_path("PATH", prefix .. "/bin")
prepend_path("PATH", "/opt/cray/pals/bin")
