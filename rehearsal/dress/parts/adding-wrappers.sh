#!/bin/sh
# Wrappers before the compilers, which add what loaded modules offer: SETS has a line `VARIABLE DIRECTORY-OF-LIBRARIES` for each.
mkdir -p "$PLACE/bin"
for name in gcc g++ mpicc mpicxx; do install adding-wrapper "$PLACE/bin/$name"; done
echo "$SETS" > "$PLACE/bin/adds"
