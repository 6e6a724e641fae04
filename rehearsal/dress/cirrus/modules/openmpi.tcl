#%Module1.0
# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
# Lays: openmpi /opt/cirrus/openmpi/{version}
module-whatis "Open MPI"
prepend-path PATH {place}/bin
prepend-path LD_LIBRARY_PATH {place}/lib
