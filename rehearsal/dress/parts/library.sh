#!/bin/sh
# A shared library without a function.
mkdir -p "${PLACE%/*}"
gcc -shared -o "$PLACE" -x c /dev/null
