-- Copyright (c) the hpcml.torchstack contributors
-- SPDX-License-Identifier: Apache-2.0
whatis("Name: craype-network-ofi")
setenv("CRAYPE_NETWORK_TARGET", "ofi")
