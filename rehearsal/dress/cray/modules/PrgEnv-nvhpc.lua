-- Copyright (c) the hpcml.torchstack contributors
-- SPDX-License-Identifier: Apache-2.0
-- There is no compiler of NVIDIA's here: the wrappers run GNU's.
whatis("Name: PrgEnv-nvhpc")
family("PrgEnv")
setenv("PE_ENV", "NVHPC")
try_load("craype")
try_load("cray-mpich")
