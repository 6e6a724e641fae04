#!/bin/sh
# MPICH itself, with what Cray's has besides, and the launcher of PALS. The loader finds its libraries by the machine's
# settings, where they lie, as MPICH's own parts are found beside it.
# Wheels: mpich.txt
prefix=$PLACE/ofi/gnu/12.2
mkdir -p "$prefix/bin" "$PLACE/gtl/lib" /opt/cray/pals/bin /opt/cray/pals/libexec
echo /opt/cray/pals >> "$LAID"
python3 -m zipfile -e "$WHEELS"/mpich-*.whl wheel
cp -R wheel/mpich-*.data/data/include wheel/mpich-*.data/data/lib "$prefix"
install wheel/mpich-*.data/data/bin/mpiexec.hydra wheel/mpich-*.data/data/bin/hydra_pmi_proxy cray/pbs-remote /opt/cray/pals/libexec
rm -r wheel
# Its libfabric has a name of its own, as a process may have the stand-in as well, which MPI could not work over.
find "$prefix/lib" -type f -exec env LC_ALL=C sed -i 's/libfabric[.]so[.]1/libmpifab.so.1/g' {} +
mv "$prefix/lib/mpich/libfabric.so.1" "$prefix/lib/mpich/libmpifab.so.1"
printf '#define CRAY_MPICH_VERSION %s\n' "$VERSION" >> "$prefix/include/mpi.h"
gcc -O1 -shared -fPIC -I"$prefix/include" -Wl,-soname,libmpi_cray.so.0 -o "$prefix/lib/libmpi_cray.so.0" \
  cray/libraries/mpi_cray.c -L"$prefix/lib" -lmpi
gcc -O1 -shared -fPIC -Wl,-soname,libmpi_gtl_cuda.so.0 -o "$PLACE/gtl/lib/libmpi_gtl_cuda.so.0" cray/libraries/mpi_gtl_cuda.c
ln -sf libmpi_cray.so.0 "$prefix/lib/libmpi_cray.so"
ln -sf ../../../../gtl/lib/libmpi_gtl_cuda.so.0 "$prefix/lib/libmpi_gtl_cuda.so"
for name in mpicc mpicxx mpic++; do install cray/wrapper "$prefix/bin/$name"; done
install cray/mpiexec /opt/cray/pals/bin/mpiexec
printf '%s/lib\n' "$prefix" "$PLACE/gtl" >> "$LOADER"
