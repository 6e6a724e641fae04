-- Copyright (c) the hpcml.torchstack contributors
-- SPDX-License-Identifier: Apache-2.0
-- The place where the site's conda is; it has none here.
whatis("Name: conda")
prepend_path("PATH", pathJoin("/opt/ncar/conda", myModuleVersion(), "condabin"))
