#!/bin/sh
# cc and CC.
mkdir -p "$PLACE/bin"
for name in cc CC; do install cray/wrapper "$PLACE/bin/$name"; done
