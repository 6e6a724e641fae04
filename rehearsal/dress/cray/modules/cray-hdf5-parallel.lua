-- Copyright (c) the hpcml.torchstack contributors
-- SPDX-License-Identifier: Apache-2.0
-- Only its name: nothing here is compiled against HDF5.
whatis("Name: cray-hdf5-parallel")
