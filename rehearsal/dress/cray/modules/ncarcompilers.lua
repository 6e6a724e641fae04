-- Copyright (c) the hpcml.torchstack contributors
-- SPDX-License-Identifier: Apache-2.0
-- Lays: ncarcompilers /opt/ncar/ncarcompilers/{version}
-- Wrappers before the compilers, which add what the loaded modules offer.
whatis("Name: ncarcompilers")
prepend_path("PATH", "{place}/bin")
