-- Copyright (c) the hpcml.torchstack contributors
-- SPDX-License-Identifier: Apache-2.0
-- Lays: libfabric /opt/cray/libfabric/{version}
whatis("Name: libfabric")
local prefix = "{place}"
prepend_path("PATH", prefix .. "/bin")
prepend_path("PKG_CONFIG_PATH", pathJoin(prefix, "lib64/pkgconfig"))
