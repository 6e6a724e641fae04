-- Copyright (c) the hpcml.torchstack contributors
-- SPDX-License-Identifier: Apache-2.0
-- GNU's compilers behind the wrappers, with the MPI: the parts that the dress has.
whatis("Name: PrgEnv-gnu")
family("PrgEnv")
setenv("PE_ENV", "GNU")
try_load("gcc")
try_load("craype")
try_load("cray-mpich")
