#!/bin/sh
# The nodes' own compilers, at the place of the site's.
mkdir -p "$PLACE/bin"
for name in gcc g++ cpp c++ gfortran; do
  if [ -e "/usr/bin/$name" ]; then ln -s "/usr/bin/$name" "$PLACE/bin/$name"; fi
done
