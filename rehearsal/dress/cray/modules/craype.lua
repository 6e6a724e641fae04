-- Copyright (c) the hpcml.torchstack contributors
-- SPDX-License-Identifier: Apache-2.0
-- Lays: craype /opt/cray/pe/craype/{version}
whatis("Name: craype")
setenv("CRAYPE_VERSION", myModuleVersion())
prepend_path("PATH", "{place}/bin")
