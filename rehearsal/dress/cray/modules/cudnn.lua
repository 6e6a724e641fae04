-- Copyright (c) the hpcml.torchstack contributors
-- SPDX-License-Identifier: Apache-2.0
-- Lays: cudnn /opt/ncar/cudnn/{version}
whatis("Name: cudnn")
setenv("NCAR_ROOT_CUDNN", "{place}")
